// The memory that plans count for models with latent attention against what a pass allocates, at the sizes of published
// models. Nothing of it is written.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "magister/model/rope.h"
#include "magister/model/transformer.h"
#include "model/cpu/attention.h"

namespace magister {
namespace latent_memory_test {

struct Case {
  const char* name;
  int shards;
};

std::uint64_t bytes_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.nbytes() : 0; }

std::uint64_t page_bytes(const LayerShape& shape) {
  const KvPages pages = pages_for(shape, 2);
  return sizeof(float) * static_cast<std::uint64_t>(pages.key_page(0, 1) - pages.key_page(0, 0) +
                                                    pages.value_page(0, 1) - pages.value_page(0, 0));
}

class LatentMemory : public testing::TestWithParam<Case> {};

TEST_P(LatentMemory, IsWhatThePlanCounts) {
  const char* const source = std::getenv("MAGISTER_SOURCE_DIR");
  const std::string folder = std::string(source == nullptr ? "." : source) + "/configs/shapes/" + GetParam().name;
  const ModelConfig config = describe_config(folder + "/config.json").config;
  const Partition partition = partition_for(config, 0, GetParam().shards);
  std::uint64_t a_page = 0, most = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::uint64_t of_layer = page_bytes(shape_of(config, partition, layer));
    a_page += of_layer;
    most = std::max(most, of_layer);
  }
  EXPECT_EQ(kv_page_bytes(config, partition), a_page);

  // A prompt over what an indexer chooses, two short ones, and, as in decoding, single tokens.
  for (const bool decodes : {false, true}) {
    std::vector<std::vector<TokenId>> sequences = {std::vector<TokenId>(3000), std::vector<TokenId>(20), {0}};
    if (decodes) sequences.assign(256, {0});
    const PackedBatch batch =
        pack_sequences(sequences, decodes ? std::vector<std::int64_t>(256, 2500) : std::vector<std::int64_t>());
    const std::int64_t T = batch.num_tokens();
    const LayerShape shape = shape_of(config, partition, 0);
    const LayerBuffers buffers(batch, std::vector<BlockTable>(sequences.size()), shape, 4);
    std::uint64_t bytes = 2 * static_cast<std::uint64_t>(T * config.hidden_size) * sizeof(float);
    for (const at::Tensor* tensor :
         {&buffers.qkv_TQ, &buffers.latent_THW, &buffers.chosen_Tk, &buffers.index_queries_TQ,
          &buffers.index_weights_TI, &buffers.attention_TA, &buffers.scratch, &buffers.experts_Tk,
          &buffers.expert_weights_Tk, &buffers.expert_rows_ND})
      bytes += bytes_of(*tensor);
    if (!decodes) bytes += static_cast<std::uint64_t>(BatchPages(batch).num_pages()) * most;
    bytes += static_cast<std::uint64_t>(T) * rope_row_bytes(config);
    const std::uint64_t planned = activation_bytes(config, partition, T, 4);
    EXPECT_LE(bytes, planned) << (decodes ? "tokens" : "prompts");
    EXPECT_GE(static_cast<double>(bytes), 0.5 * static_cast<double>(planned)) << (decodes ? "tokens" : "prompts");
  }
}

INSTANTIATE_TEST_SUITE_P(Published, LatentMemory,
                         testing::Values(Case{"deepseek-v3", 1}, Case{"deepseek-v3", 8}, Case{"kimi-k2", 4},
                                         Case{"deepseek-v3.2", 1}, Case{"deepseek-v3.2", 16}, Case{"glm-5", 1},
                                         Case{"glm-5", 8}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& letter : name) letter = std::isalnum(letter) ? letter : '_';
                           return name + "_on_" + std::to_string(info.param.shards);
                         });

}  // namespace latent_memory_test
}  // namespace magister
