// Small encoders on the GPU against the CPU's code, and the same bits for a text alone, among others and again.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "gpu/gpu_under_test.h"
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

}  // namespace
}  // namespace magister
