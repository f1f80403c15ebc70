// The model that GRPO's texts are written with: weights read from a device, without the host, have the bits of weights
// that the host reads and sends, with and without an adapter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "magister/io/checkpoint/device_tensors.h"
#include "magister/parallel/process_group.h"
#include "magister/train/weights_file.h"
#include "model/gpu/gpu_backend.h"
#include "model/gpu/gpu_weights.h"
#include "train/models_of_blocks.h"

namespace magister {
namespace device_weights_test {

ModelDescription description_of(const nlohmann::json& changes) {
  nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                           {"model_type", "llama"},
                           {"vocab_size", 130},
                           {"hidden_size", 72},
                           {"intermediate_size", 100},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"max_position_embeddings", 512},
                           {"rms_norm_eps", 1e-5},
                           {"tie_word_embeddings", false}};
  if (changes.contains("n_embd")) config = {{"vocab_size", 130}};  // names of its own
  config.update(changes);
  const auto folder = std::filesystem::temp_directory_path() / ("device_weights_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump();
  ModelDescription description = describe_config((folder / "config.json").string());
  std::filesystem::remove_all(folder);
  return description;
}

// Values that are rounded by bf16, and whose products round in f32.
at::Tensor some_numbers(std::int64_t count, double step) {
  return ((at::arange(count, at::kDouble) * step).sin() * 0.3).to(at::kFloat);
}

void compare(const nlohmann::json& changes, bool adapts) {
  const ModelDescription description = description_of(changes);
  const ParameterLayout layout(description);
  const at::Tensor flat = some_numbers(layout.flat_size(), 0.77);
  std::optional<LoraLayout> factors;
  at::Tensor adapter;
  std::optional<LoraWeights> lora;
  if (adapts) {
    LoraOptions options;
    options.config.rank = 5;
    options.config.alpha = 7;
    options.config.targets = {"all-linear"};
    adapter = some_numbers(factors.emplace(layout, options).flat_size(), 1.31);
    lora.emplace(LoraWeights{*factors, adapter});
  }
  const auto host = weights_as_file(layout, flat, lora), there = weights_as_file(layout, flat, lora, gpu::Queue{});
  EXPECT_FALSE(are_on(*host, at::kCPU));
  EXPECT_TRUE(are_on(*there, at::kCPU));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const TensorInfo& tensor : host->tensors()) {
      const std::int64_t K = tensor.shape.back(), N = static_cast<std::int64_t>(tensor.num_bytes) / 4 / K;
      const std::int64_t row = N / 3, column = K / 5;
      const at::Tensor expected = at::zeros({N - row, K - column}, type), found = at::zeros_like(expected);
      host->read(tensor.name, row, N, column, K, expected);
      there->read(tensor.name, row, N, column, K, found);
      EXPECT_TRUE(at::equal(found, expected)) << tensor.name;
      EXPECT_GT(expected.abs().max().item<float>(), 0) << tensor.name;
    }
    ThreadPool pool(2);
    const auto group = make_single_process_group();
    const auto load = [&](const TensorFile& file) {
      return gpu::load_gpu_weights(description, file, *group, pool, type, {}, gpu::Queue{}, {});
    };
    const auto sent = load(*host), own = load(*there);
    EXPECT_TRUE(at::equal(own->embedding_vD, sent->embedding_vD));
    EXPECT_TRUE(at::equal(own->head.weight_NK, sent->head.weight_NK));
    for (std::size_t layer = 0; layer < sent->layers.size(); ++layer) {
      const auto products = sent->layers[layer].products(), others = own->layers[layer].products();
      ASSERT_EQ(products.size(), others.size());
      for (std::size_t i = 0; i < products.size(); ++i)
        EXPECT_TRUE(at::equal(others[i]->weight_NK, products[i]->weight_NK)) << layer << " " << i;
    }
  }
}

TEST(DeviceWeights, HaveTheBitsOfTheHosts) {
  compare(nlohmann::json::object(), false);
  compare({{"architectures", nullptr},
           {"model_type", "qwen3_moe"},
           {"head_dim", 32},
           {"num_experts", 4},
           {"num_experts_per_tok", 2},
           {"moe_intermediate_size", 40}},
          false);
}

// Also of a model that stores its weights as [in, out].
TEST(DeviceWeights, HaveTheBitsOfTheHostsWithAnAdapter) {
  compare(nlohmann::json::object(), true);
  compare({{"architectures", nullptr},
           {"model_type", "gpt2"},
           {"n_embd", 72},
           {"n_layer", 2},
           {"n_head", 4},
           {"n_positions", 512}},
          true);
}

}  // namespace device_weights_test
}  // namespace magister
