// Rotary tables: independent of the number of threads, dynamic scaling only above the trained length, bands of llama3.
// Equality with transformers' own functions is shown by oracle_test.py on real configs.
#include "magister/model/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "magister/model/transformer.h"
#include "model/cpu/cpu_weights.h"

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

bool same_row(const at::Tensor& table_PE2, std::int64_t row, const at::Tensor& other_PE2, std::int64_t other) {
  return std::memcmp(table_PE2.const_data_ptr<float>() + row * table_PE2.size(1),
                     other_PE2.const_data_ptr<float>() + other * table_PE2.size(1),
                     static_cast<std::size_t>(table_PE2.size(1)) * sizeof(float)) == 0;
}

TEST(Rope, RowsHaveTheBitsOfTheTable) {
  for (const std::int64_t head_dim : {2, 20, 64, 96, 128, 256}) {
    for (const RopeConfig::Kind kind : {RopeConfig::Kind::kDefault, RopeConfig::Kind::kLlama3}) {
      ModelConfig config = rotary(kind, head_dim);
      config.rope.attention_factor = head_dim == 96 ? 1.25 : 1.0;
      const RopeTable all = rope_table(config, 0, 9000);
      for (const std::vector<std::int64_t>& positions :
           {std::vector<std::int64_t>{8000}, {0}, {17, 8999, 3}, {5, 6, 7, 8, 9, 10, 11}, {1, 4, 9, 16, 25}}) {
        const RopeTable rows = rope_rows(config, 0, at::tensor(positions, at::kLong));
        for (std::size_t i = 0; i < positions.size(); ++i) {
          EXPECT_TRUE(same_row(rows.cos_PE2, static_cast<std::int64_t>(i), all.cos_PE2, positions[i]) &&
                      same_row(rows.sin_PE2, static_cast<std::int64_t>(i), all.sin_PE2, positions[i]))
              << positions[i] << " of heads of " << head_dim;
        }
      }
    }
  }
}

// Two texts of which a cache holds most: a pass makes rows for its own positions, each once.
TEST(Rope, APassHasRowsForItsPositionsOnly) {
  CpuWeights weights;
  weights.config = rotary(RopeConfig::Kind::kDefault);
  const PackedBatch batch = pack_sequences({{1}, {1, 2, 3}, {1, 2}}, {8000, 4, 5});
  const RopeTables tables = weights.rope_tables(batch);
  ASSERT_EQ(tables.tables.size(), 2u);
  EXPECT_EQ(tables.tables[0].sizes(), (std::vector<std::int64_t>{4, 32}));
  const RopeTable all = rope_table(weights.config, 0, 8001);
  ASSERT_EQ(tables.rows.size(), 1u);
  ASSERT_EQ(tables.rows[0].cos.size(), 6u);
  std::size_t t = 0;
  for (const std::int64_t position : {8000, 4, 5, 6, 5, 6}) {
    const auto same = [&](const float* row, const at::Tensor& table) {
      return std::memcmp(row, table.const_data_ptr<float>() + position * 32, 32 * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(tables.rows[0].cos[t], all.cos_PE2) && same(tables.rows[0].sin[t], all.sin_PE2)) << position;
    ++t;
  }
}

// A sequence above the trained length of dynamic scaling has its own frequencies; the others share theirs.
TEST(Rope, ALongSequenceHasItsOwnRows) {
  CpuWeights weights;
  weights.config = rotary(RopeConfig::Kind::kDynamic);
  const PackedBatch batch = pack_sequences({std::vector<TokenId>(150, 1), {1, 2}});
  const RopeTables tables = weights.rope_tables(batch);
  ASSERT_EQ(tables.tables.size(), 4u);
  EXPECT_EQ(tables.tables[0].size(0), 2);
  const RopeTable own = rope_table(weights.config, 150, 150), shared = rope_table(weights.config, 0, 2);
  EXPECT_TRUE(tables.tables[2].equal(own.cos_PE2) && tables.tables[3].equal(own.sin_PE2));
  EXPECT_TRUE(tables.tables[0].equal(shared.cos_PE2));
  EXPECT_EQ(tables.rows[0].cos[149], tables.tables[2].const_data_ptr<float>() + 149 * 32);
  EXPECT_EQ(tables.rows[0].cos[151], tables.tables[0].const_data_ptr<float>() + 32);
}

// Texts that grow in a cache: all of them share the rows of one length, whatever their own is.
TEST(Rope, AFixedLengthGivesAllTextsItsRows) {
  ModelConfig dynamic = rotary(RopeConfig::Kind::kDynamic), lists = rotary(RopeConfig::Kind::kLongRope);
  lists.rope.short_factor.assign(32, 1.0f);
  lists.rope.long_factor.assign(32, 3.0f);
  const at::Tensor at_300 = rope_inverse_frequencies(dynamic, 300), far = rope_inverse_frequencies(lists, 65),
                   near = rope_inverse_frequencies(lists, 64);
  EXPECT_TRUE(at::allclose(near, far * 3.0));
  EXPECT_EQ(positions_of_first_rope(dynamic), 128);
  EXPECT_EQ(positions_of_first_rope(lists), 64);
  dynamic.rope.fixed_length = 300;
  lists.rope.fixed_length = 128;
  for (const std::int64_t length : {1, 129, 5000}) {
    EXPECT_FALSE(rope_needs_own_table(dynamic, length) || rope_needs_own_table(lists, length));
    EXPECT_TRUE(at::equal(rope_inverse_frequencies(dynamic, length), at_300));
    EXPECT_TRUE(at::equal(rope_inverse_frequencies(lists, length), far));
  }
  lists.rope.fixed_length = 64;
  EXPECT_TRUE(at::equal(rope_inverse_frequencies(lists, 5000), near));
}

// The rows of 96 tokens with 32 numbers more: cosines and sines twice while they are made, and half as many angles.
TEST(Rope, PlansCountTheRows) {
  const ModelConfig narrow = [] {
    ModelConfig config = rotary(RopeConfig::Kind::kDefault);
    config.rotary_dim = 32;
    return config;
  }();
  const ModelConfig whole = rotary(RopeConfig::Kind::kDefault);
  EXPECT_EQ(rope_row_bytes(whole), 64u * sizeof(float));
  EXPECT_EQ(activation_bytes(whole, {}, 96, 1), activation_bytes(narrow, {}, 96, 1) + 96 * 5 * 16 * sizeof(float));
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
