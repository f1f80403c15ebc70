// Encoders by the GPU's code on the host: logits of a text alone, among others and in parts of its heads, beside those
// of the CPU's code, and the memory of passes against their plan.
#include "model/gpu/gpu_encoder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
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
  for (const std::size_t length : {1, 7, 130, 300, 44, 33, 520})
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

TEST_P(GpuEncoderTest, APassFitsItsPlan) {
  Transformer gpu = encoder_.on_gpu(gpu::Queue{});
  for (const auto& [texts, length] : std::map<std::size_t, std::size_t>{{1, 1000}, {500, 2}}) {
    const PackedBatch batch = pack_sequences(std::vector<std::vector<TokenId>>(texts, some_text(length, 5)));
    const std::uint64_t planned =
        gpu_activation_bytes(gpu.config(), partition_for(gpu.config(), 0, 1), batch.num_tokens(), 0, at::kFloat);
    const CountedBytes counted;
    const at::Tensor hidden_TD = gpu.forward(batch);
    std::printf("%zu texts of %zu tokens: %.1f MB planned, %.1f used\n", texts, length,
                1e-6 * static_cast<double>(planned), 1e-6 * static_cast<double>(counted.most()));
    EXPECT_LE(counted.most(), planned);
    EXPECT_TRUE(texts > 1 || 3 * counted.most() >= planned) << "the plan is far above what is used";
  }
  // It has no rotary tables, and its head makes a few numbers.
  EXPECT_EQ(gpu_rotary_bytes(gpu.config(), 100, 100), 0u);
  EXPECT_EQ(
      gpu_pass_parts(gpu.config(), partition_for(gpu.config(), 0, 1), 1, {100, 0, kLogitRows, 0}, false, at::kFloat)
          .size(),
      1u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuEncoderTest, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Distances") : std::string("Positions");
});

TEST(GpuEncoderParts, ALongTextGoesThroughAttentionInPartsOfItsHeads) {
  EXPECT_EQ(gpu::encoder_heads_at_once(16, 512, 512), 16);
  EXPECT_EQ(gpu::encoder_heads_at_once(16, 4096, 512), 4);
  EXPECT_EQ(gpu::encoder_heads_at_once(16, 100'000, 512), 1);
  constexpr std::int64_t kLong = 4800;
  ASSERT_EQ(gpu::encoder_heads_at_once(4, kLong, 0), 2);
  ModelConfig config = small_bert();
  config.num_hidden_layers = 1;
  SmallEncoder encoder(config);
  Transformer gpu = encoder.on_gpu(gpu::Queue{}), cpu = encoder.on_cpu();
  const std::vector<TokenId> text = some_text(kLong, 9);
  EXPECT_LT(apart(first_logits(gpu, {text}), first_logits(cpu, {text})), 3e-6);
}

}  // namespace gpu_encoder_test
}  // namespace magister
