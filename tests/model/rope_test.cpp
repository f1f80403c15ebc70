// Rotary tables: independent of the number of threads, dynamic scaling only above the trained length, bands of llama3.
// Equality with transformers' own functions is shown by oracle_test.py on real configs.
#include "magister/model/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace magister {
namespace rope_test {

ModelConfig rotary(RopeConfig::Kind kind, std::int64_t head_dim = 64) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.max_position_embeddings = 128;
  config.rope.kind = kind;
  config.rope.factor = 4;
  config.rope.original_max_position_embeddings = 64;
  return config;
}

TEST(Rope, AnglesInDoublePrecision) {
  const RopeTable table = rope_table(rotary(RopeConfig::Kind::kDefault), 0, 200);
  ASSERT_EQ(table.cos_PE2.sizes(), (std::vector<std::int64_t>{200, 32}));
  for (const std::int64_t position : {0, 1, 17, 199}) {
    for (std::int64_t i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(2 * i) / 64.0);
      EXPECT_NEAR(table.cos_PE2[position][i].item<double>(), std::cos(angle), 2e-5);
      EXPECT_NEAR(table.sin_PE2[position][i].item<double>(), std::sin(angle), 2e-5);
    }
  }
}

TEST(Rope, TableDoesNotDependOnThreadsOrItsLength) {
  const ModelConfig config = rotary(RopeConfig::Kind::kLlama3, 128);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const RopeTable one = rope_table(config, 0, 4099);
  at::set_num_threads(3);
  const RopeTable three = rope_table(config, 0, 4099);
  const RopeTable shorter = rope_table(config, 0, 77);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.cos_PE2, three.cos_PE2) && at::equal(one.sin_PE2, three.sin_PE2));
  EXPECT_TRUE(at::equal(one.cos_PE2.narrow(0, 0, 77), shorter.cos_PE2));
  EXPECT_TRUE(at::equal(one.sin_PE2.narrow(0, 0, 77), shorter.sin_PE2));
}

TEST(Rope, DynamicScalingStartsAboveTheTrainedLength) {
  const ModelConfig dynamic = rotary(RopeConfig::Kind::kDynamic), plain = rotary(RopeConfig::Kind::kDefault);
  EXPECT_FALSE(rope_needs_own_table(dynamic, 128));
  EXPECT_TRUE(rope_needs_own_table(dynamic, 129));
  EXPECT_FALSE(rope_needs_own_table(plain, 100000));
  EXPECT_TRUE(at::equal(rope_inverse_frequencies(dynamic, 128), rope_inverse_frequencies(plain, 0)));
  const at::Tensor longer = rope_inverse_frequencies(dynamic, 300);
  EXPECT_FALSE(at::equal(longer, rope_inverse_frequencies(plain, 0)));
  EXPECT_FLOAT_EQ(longer[0].item<float>(), 1.0f);  // the shortest wave stays
  const double theta = 10000.0 * std::pow(4.0 * 300 / 128 - 3.0, 64.0 / 62.0);
  EXPECT_NEAR(longer[31].item<double>() * std::pow(theta, 62.0 / 64.0), 1.0, 1e-5);
}

TEST(Rope, LinearLlama3AndExplicitDivisors) {
  const at::Tensor plain = rope_inverse_frequencies(rotary(RopeConfig::Kind::kDefault), 0);
  EXPECT_TRUE(at::equal(rope_inverse_frequencies(rotary(RopeConfig::Kind::kLinear), 0), plain / 4.0));
  ModelConfig given = rotary(RopeConfig::Kind::kExplicit);
  for (int i = 0; i < 32; ++i) given.rope.frequency_divisors.push_back(1.0f + static_cast<float>(i));
  EXPECT_TRUE(at::equal(rope_inverse_frequencies(given, 0), plain / (at::arange(32) + 1.0)));
  const at::Tensor banded = rope_inverse_frequencies(rotary(RopeConfig::Kind::kLlama3), 0);
  int kept = 0, divided = 0;
  for (int i = 0; i < 32; ++i) {
    const double wave = 2 * std::numbers::pi / plain[i].item<double>();
    const double ratio = plain[i].item<double>() / banded[i].item<double>();
    if (wave < 64.0 / 4.0) kept += ratio == 1.0;
    if (wave > 64.0) divided += std::abs(ratio - 4.0) < 1e-6;
    EXPECT_GE(ratio, 1.0 - 1e-6);
    EXPECT_LE(ratio, 4.0 + 1e-6);
  }
  EXPECT_EQ(kept, 4);
  EXPECT_EQ(divided, 23);
}

}  // namespace rope_test
}  // namespace magister
