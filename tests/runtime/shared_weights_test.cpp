// The ranks of a host have a model's embeddings and products in one copy, with the numbers that each would read alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "magister/model/host_copy.h"
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
  world.barrier();
}

}  // namespace shared_weights_test
}  // namespace magister
