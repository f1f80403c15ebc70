// Small encoders on the GPU against the CPU's code, the same bits for a text alone, among others and again, and the
// kernel of their attention against its emulation on the host.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "gpu/both_queues.h"
#include "gpu/gpu_under_test.h"
#include "model/gpu/encoder_attention_kernel.h"
#include "model/gpu/gpu_encoder.h"
#include "model/small_encoder.h"

namespace magister {
namespace {

TEST(GpuEncoders, TextsHaveTheBitsThatTheyHaveAlone) {
  for (const ModelConfig& config : {small_bert(), small_deberta()}) {
    SmallEncoder encoder(config);
    Transformer gpu = encoder.on_gpu(gpu::gpu_queue()), cpu = encoder.on_cpu();
    gpu.self_test();
    std::vector<std::vector<TokenId>> texts;
    for (const std::size_t length : {1, 7, 130, 300, 44, 300, 520})
      texts.push_back(some_text(length, static_cast<std::uint32_t>(length)));
    const at::Tensor all_SL = first_logits(gpu, texts);
    const double difference = apart(all_SL, first_logits(cpu, texts));
    std::printf("   %s: %.1e of the logits from the CPU's\n", config.family.c_str(), difference);
    EXPECT_LE(difference, 1e-5);
    EXPECT_TRUE(at::equal(first_logits(gpu, texts), all_SL)) << "again";
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_TRUE(at::equal(first_logits(gpu, {texts[i]})[0], all_SL[static_cast<std::int64_t>(i)]))
          << config.family << ", " << texts[i].size() << " tokens";
    }
  }
}

// Heads of 15 numbers come one number at a time, and those of 72 have two parts of outputs.
TEST(EncoderAttention, HasTheNumbersOfItsEmulation) {
  using namespace gpu::kernels_test;
  at::manual_seed(5);
  constexpr std::int64_t H = 2, N = 32, T = 1 + 64 + 130 + 300, reach = 320;
  const at::Tensor blocks_B3 = gpu::encoder_blocks(pack_sequences(
      {std::vector<TokenId>(1), std::vector<TokenId>(64), std::vector<TokenId>(130), std::vector<TokenId>(300)}));
  for (const std::int64_t E : {64, 15, 72}) {
    const Tensors inputs = {at::randn({T, 3 * H * E}), blocks_B3, at::full({T, H * E}, NAN), at::randn({N, 2 * H * E}),
                            at::randint(0, N, {2 * reach - 1}, at::kInt)};
    for (const bool distances : {false, true}) {
      const Both both = on_both(inputs, [&](const Tensors& t, const gpu::Queue& queue) {
        gpu::EncoderAttentionArguments arguments{data<float>(t[0]),
                                                 data<gpu::EncoderBlock>(t[1]),
                                                 data<float>(t[2]),
                                                 static_cast<int>(t[1].size(0)),
                                                 H,
                                                 static_cast<int>(E),
                                                 0.1f};
        if (!distances) return gpu::start(gpu::EncoderAttention<false>{arguments}, queue);
        arguments.relative_NX = data<float>(t[3]);
        arguments.vectors = data<std::int32_t>(t[4]) + reach - 1;
        arguments.content_to_position = arguments.position_to_content = true;
        gpu::start(gpu::EncoderAttention<true>{arguments}, queue);
      });
      expect_close<float>(both.device[2], both.host[2]);
    }
  }
}

}  // namespace
}  // namespace magister
