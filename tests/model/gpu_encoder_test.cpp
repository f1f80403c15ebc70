// Encoders by the GPU's code on the host: logits of a text alone and among others next to those of the CPU's code, the
// memory of passes on both against their plans, and the layer that is not finite.
#include "model/gpu/gpu_encoder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "magister/model/pass_memory.h"
#include "model/small_encoder.h"
#include "support/counted_bytes.h"

namespace magister {
namespace gpu_encoder_test {

class GpuEncoderTest : public testing::TestWithParam<bool> {
 protected:
  SmallEncoder encoder_{GetParam() ? small_deberta() : small_bert()};
};

TEST_P(GpuEncoderTest, ATextHasItsOwnBits) {
  Transformer gpu = encoder_.on_gpu(gpu::Queue{}), cpu = encoder_.on_cpu();
  gpu.self_test();
  std::vector<std::vector<TokenId>> texts;
  for (const std::size_t length : {1, 7, 130, 300, 64, 33, 520})
    texts.push_back(some_text(length, static_cast<std::uint32_t>(length)));
  const at::Tensor all_SL = first_logits(gpu, texts), wanted_SL = first_logits(cpu, texts);
  std::printf("%s: the GPU's code is %.1e of the logits from the CPU's, which spread by %.2f\n",
              gpu.config().family.c_str(), apart(all_SL, wanted_SL), wanted_SL.std().item<double>());
  EXPECT_LT(apart(all_SL, wanted_SL), 3e-6);
  EXPECT_GT(wanted_SL.std().item<double>(), 0.1);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(at::equal(first_logits(gpu, {texts[i]})[0], all_SL[static_cast<std::int64_t>(i)])) << texts[i].size();
  }
  // Again in another order, by a model whose tables of distances were first made for short texts.
  Transformer other = encoder_.on_gpu(gpu::Queue{});
  first_logits(other, {texts[1]});
  EXPECT_TRUE(at::equal(first_logits(other, {texts[6], texts[2]}), at::stack({all_SL[6], all_SL[2]})));
}

// Bytes of a pass over `texts` texts of this length, counted on the host. Numbers of tokens are multiples of the tiles
// that products have there.
std::uint64_t used_bytes(Transformer& model, std::size_t texts, std::size_t length) {
  const PackedBatch batch = pack_sequences(std::vector<std::vector<TokenId>>(texts, some_text(length, 5)));
  const CountedBytes counted;
  const at::Tensor hidden_TD = model.forward(batch);
  return counted.most();
}

// Compares what 512 more tokens take, since products pad their last rows to larger tiles on a GPU.
TEST_P(GpuEncoderTest, APassTakesItsPlan) {
  ModelConfig config = encoder_.description.config;
  config.num_hidden_layers = 1;
  SmallEncoder of_one_layer(config);
  Transformer gpu = of_one_layer.on_gpu(gpu::Queue{});
  const auto planned = [&](std::int64_t tokens) {
    return static_cast<double>(
        gpu_activation_bytes(gpu.config(), partition_for(gpu.config(), 0, 1), tokens, 0, at::kFloat));
  };
  used_bytes(gpu, 1, 1024);  // makes the table of distances
  const double plan = planned(1024) - planned(512);
  for (const bool one_text : {true, false}) {
    const auto used = [&](std::size_t tokens) {
      return static_cast<double>(one_text ? used_bytes(gpu, 1, tokens) : used_bytes(gpu, tokens / 16, 16));
    };
    const double more = used(1024) - used(512);
    std::printf("%s: %.3f MB planned for 512 tokens more, %.3f used\n", one_text ? "one text" : "texts of 16 tokens",
                1e-6 * plan, 1e-6 * more);
    EXPECT_LE(more, plan);
    EXPECT_GE(more, 0.9 * plan);
  }
  // It has no rotary tables, and its head makes a few numbers.
  EXPECT_EQ(gpu_rotary_bytes(gpu.config(), 100, 100), 0u);
  EXPECT_EQ(
      gpu_pass_parts(gpu.config(), partition_for(gpu.config(), 0, 1), 1, {100, 0, kLogitRows, 0}, false, at::kFloat)
          .size(),
      1u);
}

// A CPU's scores of a text grow with the square of its length.
TEST_P(GpuEncoderTest, APassOnACpuTakesItsPlan) {
  SmallEncoder of_one_thread(encoder_.description.config, 1);
  Transformer cpu = of_one_thread.on_cpu();
  for (const std::size_t length : {512, 1024}) {
    const auto used = static_cast<double>(used_bytes(cpu, 1, length)),
               plan = static_cast<double>(activation_bytes(cpu.config(), partition_for(cpu.config(), 0, 1),
                                                           static_cast<std::int64_t>(length), 1));
    std::printf("one text of %zu tokens on a CPU: %.3f MB planned, %.3f used\n", length, 1e-6 * plan, 1e-6 * used);
    EXPECT_LE(used, plan);
    EXPECT_GE(used, 0.9 * plan);
  }
}

TEST_P(GpuEncoderTest, TheLayerThatIsNotFiniteIsNamed) {
  const PackedBatch batch = pack_sequences({some_text(9, 2), some_text(70, 3)});
  EXPECT_EQ(encoder_.on_gpu(gpu::Queue{}).first_not_finite(batch), "the head");
  const TensorNames& names = encoder_.description.names;
  for (const auto& [tensor, place] :
       {std::pair{names.layers[1].o_bias, "layer 1"}, {names.embed_norm, "the embeddings"}}) {
    SmallEncoder spoilt(encoder_.description.config);
    spoilt.values(tensor).fill_(NAN);
    EXPECT_EQ(spoilt.on_gpu(gpu::Queue{}).first_not_finite(batch), place);
    EXPECT_EQ(spoilt.on_cpu().first_not_finite(batch), place);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuEncoderTest, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Distances") : std::string("Positions");
});

// DeBERTa-v3-large: 6 (1 + 1 + 4) KB and 20 bytes a token, products of 512 vectors, and tiles of 2,048 rows.
TEST(GpuEncoderPlan, IsThatOfLargeModels) {
  ModelConfig large = small_deberta();
  large.hidden_size = 1024;
  large.intermediate_size = 4096;
  large.num_hidden_layers = 24;
  large.num_attention_heads = large.num_key_value_heads = 16;
  large.head_dim = 64;
  large.encoder->relative_span = large.encoder->position_buckets = 256;
  EXPECT_EQ(gpu::gpu_encoder_bytes(large, 0), 0u);
  EXPECT_EQ(gpu::gpu_encoder_bytes(large, 8192), 375'619'584u);
  EXPECT_EQ(gpu::gpu_encoder_bytes(large, 16384), 577'175'552u);
  // BERT-base has no such vectors.
  ModelConfig base = small_bert();
  base.hidden_size = 768;
  base.intermediate_size = 3072;
  EXPECT_EQ(gpu::gpu_encoder_bytes(base, 2048), 88'121'344u);
}

}  // namespace gpu_encoder_test
}  // namespace magister
