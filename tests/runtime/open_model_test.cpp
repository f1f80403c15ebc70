// The numbers that sizing and loading must agree on: faults.md number 20 was a group size that only loading knew of.
#include "magister/runtime/open_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/families/family.h"
#include "model/random_tensor_file.h"

namespace magister {
namespace open_model_test {

TEST(QuantScheme, AGroupOfTheExperimentIsKnownToBeGiven) {
  ModelSection section;
  section.quantization = "int8";
  EXPECT_FALSE(quant_scheme_of(section).group_given);
  EXPECT_EQ(quant_scheme_of(section).group, 32);
  section.quantization_group = 128;
  EXPECT_TRUE(quant_scheme_of(section).group_given);
  EXPECT_EQ(quant_scheme_of(section).group, 128);
}

// What loading makes is what sizing counts: a decoding pass for throughput widens codes, and only these.
TEST(OpenModel, CountsTheBufferOfCodesForThroughput) {
  OpenModel model;
  ModelConfig& config = model.description.config;
  config.family = "llama";
  config.vocab_size = 96;
  config.hidden_size = config.intermediate_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 16;
  config.max_position_embeddings = 4096;
  model.description.names = hf_tensor_names(config);
  const RandomTensorFile file(model.description);
  model.file = &file;
  model.dtype = model.plain_dtype = at::kBFloat16;
  model.gpu = gpu::Queue{};
  const auto has_buffer = [&] {
    const MemoryParts parts = model.device_memory(1, PassShape{.tokens = 300, .sequence_tokens = 700}, 40);
    return std::ranges::any_of(parts, [](const auto& part) { return part.first == "products of codes in decoding"; });
  };
  model.throughput_decoding = true;
  EXPECT_FALSE(has_buffer()) << "bf16 is not widened";
  ModelSection section;
  section.quantization = "int8";
  model.quantization = quant_scheme_of(section);
  EXPECT_TRUE(has_buffer());
  model.throughput_decoding = false;
  EXPECT_FALSE(has_buffer());
}

}  // namespace open_model_test
}  // namespace magister
