// The ranks of a host have a model's embeddings and products in one copy, with the numbers that each would read alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "magister/model/host_copy.h"
#include "magister/model/transformer.h"
#include "magister/model/weight_store.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/cpu_weights.h"
#include "model/families/family.h"
#include "model/random_tensor_file.h"
#include "support/huge_pages.h"

namespace magister {
namespace shared_weights_test {

constexpr std::size_t kRoom = std::size_t{16} << 20;

// True if the first number is in memory that SharedMemory mapped.
bool is_shared(const at::Tensor& tensor) {
  const auto place = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    const std::uintptr_t begin = std::stoull(line, nullptr, 16),
                         end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (begin <= place && place < end) return line.find("memfd:magister") != std::string::npos;
  }
  return false;
}

ModelDescription described(ModelConfig config) {
  config.vocab_size = 3000;
  config.hidden_size = config.intermediate_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 16;
  config.max_position_embeddings = 4096;
  ModelDescription description;
  description.names = hf_tensor_names(config);
  description.config = std::move(config);
  return description;
}

// Compares what stands in the copy with what this rank reads alone.
void expect_shared(const std::vector<at::Tensor>& shared, const std::vector<at::Tensor>& own) {
  ASSERT_EQ(shared.size(), own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(is_shared(shared[i])) << i;
    EXPECT_FALSE(is_shared(own[i])) << i;
    EXPECT_TRUE(at::equal(shared[i], own[i])) << i;
  }
}

TEST(SharedWeights, EmbeddingsAndProductsAreInOneCopy) {
  const Communicator world = Communicator::world();
  if (!ranks_share_huge_pages(world)) GTEST_SKIP() << "a kernel without huge pages on request";
  const std::shared_ptr<HostCopy> copy = HostCopy::make(world, kRoom);
  ASSERT_NE(copy, nullptr);
  ModelConfig config;
  config.family = "opt";
  config.learned_positions = true;
  const ModelDescription description = described(config);
  const RandomTensorFile file(description);
  ThreadPool pool(1);
  const auto load = [&](const std::shared_ptr<HostCopy>& into) {
    return load_cpu_weights(description, file, 0, 1, at::kFloat, {}, pool, {}, into);
  };
  const CpuWeights shared = load(copy), own = load(nullptr);
  const auto tensors = [](const CpuWeights& of) {
    return std::vector{of.embedding.weight_NK, of.lm_head.projection.panels_PKW,
                       of.decoder.back().attention.weights().qkv_proj.panels_PKW};
  };
  expect_shared(tensors(shared), tensors(own));
  EXPECT_EQ(shared.num_bytes, own.num_bytes);
  EXPECT_EQ(own.shared_bytes, 0u);
  world.barrier();
}

// Models whose pieces differ: a head of its own, positions, experts, latents, vectors by layer and AltUp.
std::vector<ModelConfig> kinds_of_models() {
  std::vector<ModelConfig> kinds(6);
  for (ModelConfig& config : kinds) config.family = "llama";
  kinds[0].tie_word_embeddings = true;
  kinds[1].family = "opt";
  kinds[1].learned_positions = true;
  kinds[2].num_experts = 4;
  kinds[2].num_experts_per_tok = 2;
  kinds[2].moe_intermediate_size = 32;
  kinds[2].num_shared_experts = 1;
  kinds[3].latent = LatentConfig{.query_rank = 24, .rank = 32, .nope_dim = 8, .rope_dim = 8, .value_dim = 16};
  kinds[4].per_layer_width = 16;
  kinds[4].per_layer_vocab = 2000;
  kinds[4].laurel_rank = 16;
  kinds[4].altup = AltUpConfig{.inputs = 2};
  kinds[5].labels = {"no", "yes"};
  return kinds;
}

// `plan` counts these bytes once a host, and the rest on each rank.
TEST(SharedWeights, HostCopyBytesAreThoseInTheCopy) {
  const Communicator world = Communicator::world();
  if (!ranks_share_huge_pages(world)) GTEST_SKIP() << "a kernel without huge pages on request";
  const std::vector<ModelConfig> kinds = kinds_of_models();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const ModelDescription description = described(kinds[i]);
    const RandomTensorFile file(description);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const auto single = make_single_process_group();
      ThreadPool pool(1);
      WeightStore store;
      store.keep_only({"it"});
      const KeptWeights kept{&store, "it", HostCopy::make(world, kRoom)};
      const CpuWeights loaded = load_cpu_weights(description, file, 0, 1, dtype, {}, pool, {}, kept.host_copy);
      const std::uint64_t shared = host_copy_bytes(description.config, dtype);
      EXPECT_EQ(loaded.shared_bytes, shared) << i;
      EXPECT_LT(shared, loaded.num_bytes) << i;
      EXPECT_GT(shared, loaded.num_bytes / 2) << i;
      const KeptWeights again{&store, "it", HostCopy::make(world, kRoom)};
      const Transformer model(description, file, *single, pool, dtype, {}, {}, again);
      EXPECT_EQ(store.host_bytes(), loaded.num_bytes - shared + shared / 2) << i << ": a half of what two ranks have";
      EXPECT_EQ(store.ranks_a_copy("it"), 2) << i;
      world.barrier();
    }
  }
}

}  // namespace shared_weights_test
}  // namespace magister
