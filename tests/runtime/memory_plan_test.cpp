// A plan counts for GPUs the memory that a run requests: the passes by the same estimate, and once the parts that the
// models of a group share.
#include "magister/runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "magister/engine/logit_reducer.h"
#include "magister/model/partition.h"
#include "magister/model/pass_memory.h"
#include "magister/parallel/peer_sums.h"

namespace magister {
namespace memory_plan_test {

ModelConfig small_config() {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = 128;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 16;
  config.head_dim = 16;
  config.vocab_size = 640;
  config.intermediate_size = 512;
  config.max_position_embeddings = 4096;
  return config;
}

std::uint64_t part_of(const MemoryParts& parts, std::string_view name) {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.first == name; });
  return found == parts.end() ? 0 : found->second;
}

MemoryParts planned(int tp_size, const GpuDemand& gpu, const PassShape& pass, std::uint64_t pages) {
  return device_memory(small_config(), [](int) { return std::uint64_t{1000}; }, tp_size, pass, pages, gpu);
}

TEST(MemoryPlan, CountsPassesAsRunsDo) {
  const PassShape pass{.tokens = 300, .sequence_tokens = 700, .sampled_rows = 9};
  for (const int tp_size : {1, 2, 3}) {
    for (const bool codes : {false, true}) {
      const MemoryParts plan = planned(tp_size, {at::kBFloat16, codes}, pass, 40);
      const GpuPassSize size{300, 700, kLogitRows, 9};
      for (const auto& [name, bytes] : gpu_pass_parts(small_config(), partition_for(small_config(), 0, tp_size),
                                                      tp_size, size, codes, at::kBFloat16))
        EXPECT_EQ(part_of(plan, name), bytes) << name << " of " << tp_size;
      EXPECT_EQ(part_of(plan, "a plain product") > 0, codes);
    }
  }
}

// 41 pages; a byte a number and one a key or value, in place of two bytes a number.
TEST(MemoryPlan, CountsPagesOfCodes) {
  const PassShape pass{.tokens = 300, .sequence_tokens = 700};
  const std::uint64_t plain = part_of(planned(1, {at::kBFloat16, false, false}, pass, 40), "keys and values"),
                      codes = part_of(planned(1, {at::kBFloat16, false, true}, pass, 40), "keys and values");
  const ModelConfig config = small_config();
  const auto E = static_cast<std::uint64_t>(config.head_dim);
  EXPECT_GT(plain, 0u);
  EXPECT_EQ(codes * 2 * E, plain * (E + 1));
}

// Pieces of the products of codes, which decoding for throughput alone has: of 4 tiles of 256 outputs and 132 shares.
TEST(MemoryPlan, CountsProductsOfCodesInDecoding) {
  const PassShape pass{.tokens = 300, .sequence_tokens = 700};
  const auto bytes = [&](bool quantized, bool throughput, std::uint64_t pages) {
    return part_of(planned(1, {at::kBFloat16, quantized, false, throughput}, pass, pages),
                   "products of codes in decoding");
  };
  EXPECT_EQ(bytes(true, true, 40), 4u * (4 + 131) * 256 * 256);
  EXPECT_EQ(bytes(false, true, 40) + bytes(true, false, 40) + bytes(true, true, 0), 0u);
}

// Cosines and sines of heads of 16, of all positions up to the longest text, in steps of 4,096. A model with dynamic
// scaling appends the rows of a longer text to a copy of them.
TEST(MemoryPlan, CountsRotaryTables) {
  const auto tables = [](const PassShape& pass, RopeConfig::Kind kind) {
    ModelConfig config = small_config();
    config.rope.kind = kind;
    return part_of(device_memory(
                       config, [](int) { return std::uint64_t{1000}; }, 1, pass, 40, GpuDemand{at::kBFloat16, false}),
                   "rotary tables");
  };
  constexpr std::uint64_t kRow = 16 * sizeof(float);
  using Kind = RopeConfig::Kind;
  EXPECT_EQ(tables({.tokens = 300, .sequence_tokens = 700}, Kind::kDefault), 4096 * kRow);
  EXPECT_EQ(tables({.tokens = 300, .sequence_tokens = 8193}, Kind::kDefault), 3 * 4096 * kRow);
  EXPECT_EQ(tables({.tokens = 5000}, Kind::kDefault), 2 * 4096 * kRow);
  EXPECT_EQ(tables({.tokens = 5000}, Kind::kDynamic), (2 * 4096 + 2 * 5000) * kRow);
}

// 2 MiB for every shard of a group on one host, whatever its task: they are made when the model is tested.
TEST(MemoryPlan, CountsTheMemoryOfSumsInKernels) {
  const auto sums = [](int tp_size, at::ScalarType dtype, std::uint64_t pages) {
    return part_of(planned(tp_size, {dtype, false}, {300, pages > 0 ? 700u : 0u, 0, 0}, pages), "sums in kernels");
  };
  for (const int tp_size : {2, 4, 8}) {
    for (const std::uint64_t pages : {0, 40}) {
      EXPECT_EQ(sums(tp_size, at::kBFloat16, pages), PeerSums::memory_bytes(tp_size));
      EXPECT_EQ(sums(tp_size, at::kFloat8_e4m3fn, pages), PeerSums::memory_bytes(tp_size));
    }
    EXPECT_GT(PeerSums::memory_bytes(tp_size), static_cast<std::uint64_t>(tp_size) << 21);
    EXPECT_LT(PeerSums::memory_bytes(tp_size), (static_cast<std::uint64_t>(tp_size) << 21) + (1u << 16));
    EXPECT_EQ(sums(tp_size, at::kFloat, 40), 0u) << "f32 has no kernels for texts";
  }
  EXPECT_EQ(sums(1, at::kBFloat16, 40), 0u);
  EXPECT_EQ(sums(16, at::kBFloat16, 40), 0u) << "more than the GPUs of a host";
  EXPECT_EQ(part_of(without_shared(planned(2, {}, {300, 700, 0, 0}, 40)), "sums in kernels"), 0u);
}

}  // namespace memory_plan_test
}  // namespace magister
