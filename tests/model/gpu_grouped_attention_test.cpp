// GroupedAttention on the host, thread by thread, over pages of bf16 and of codes, against a softmax in double and
// beside the plain kernel; which shapes have it; and that a row's bits depend neither on its neighbours nor on the
// chunks of a block.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "model/gpu/grouped_attention.h"
#include "model/gpu/grouped_attention_codes.h"
#include "model/paged_cache.h"

namespace magister::gpu {
namespace gpu_grouped_attention_test {

using Case = AttentionCase;
using Cache = PagedCache<Bf16>;

class Grouped : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(17);
    set_host_order(GetParam().order);
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
class GroupedCodes : public Grouped {};

at::Tensor rows_of(const Case& c, std::int64_t R) {
  return (at::randn({R, (c.H + 2 * c.K) * c.E}) * 2).to(at::kBFloat16);
}

// The error's size, relative to that of the numbers.
double apart(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got.to(at::kDouble) - wanted).pow(2).mean() / wanted.pow(2).mean()).sqrt().item<double>();
}

// Ends of tiles of 16 keys, of pages and of chunks.
void expect_that_of_doubles(const Case& c, bool codes) {
  const Cache cache(c, {2000}, 45, codes);
  const std::vector<std::int32_t> visible_R = {1,   2,   15,  16,  17,  31,  33,  47,  48,  49,   95,
                                               144, 191, 192, 193, 241, 384, 385, 577, 999, 1921, 2000};
  const auto R = static_cast<std::int64_t>(visible_R.size());
  const std::vector<std::int32_t> sequence_R(visible_R.size(), 0);
  const at::Tensor qkv = rows_of(c, R);
  const at::Tensor out = cache.attend(qkv, sequence_R, visible_R, 16),
                   plain = cache.attend(qkv, sequence_R, visible_R, 16, {}, plain_paged_attention<Bf16>);
  double worst = 0, worst_of_plain = 0;
  for (std::int64_t r = 0; r < R; ++r) {
    const at::Tensor q = qkv[r].narrow(0, 0, c.H * c.E).view({c.H, c.E});
    const at::Tensor wanted = cache.wanted(q, 0, visible_R[static_cast<std::size_t>(r)]);
    EXPECT_LE((out[r].to(at::kDouble) - wanted).abs().max().item<double>(), 4e-3 * wanted.abs().max().item<double>())
        << visible_R[static_cast<std::size_t>(r)] << " keys";
    const double distance = apart(out[r], wanted), of_plain = apart(plain[r], wanted);
    EXPECT_LE(distance, 1.1 * of_plain + 1e-5) << visible_R[static_cast<std::size_t>(r)] << " keys";
    worst = std::max(worst, distance);
    worst_of_plain = std::max(worst_of_plain, of_plain);
  }
  std::printf("from double: %.3e, the plain kernel's %.3e\n", worst, worst_of_plain);
}

void expect_rows_with_bits_of_their_own(const Case& c, bool codes) {
  const Cache cache(c, {1, 48, 193, 901}, 20, codes);
  const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3, 3},
                                  visible_R = {1, 48, 47, 193, 901, 192, 97, 0, 400};
  const auto R = static_cast<std::int64_t>(sequence_R.size());
  const at::Tensor qkv = rows_of(c, R), out = cache.attend(qkv, sequence_R, visible_R, 5);
  for (const int C : {5, 8, 16}) {
    for (const int span : {1, 2, 3, 8, 16})
      EXPECT_TRUE(at::equal(cache.attend(qkv, sequence_R, visible_R, C, {}, by_blocks_of(span)), out))
          << C << " chunks, " << span << " a block";
  }
  EXPECT_TRUE(at::equal(out[7], at::zeros_like(out[7])));
  for (std::int64_t r = 0; r < R; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const at::Tensor alone = cache.attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]},
                                          attention_chunks(visible_R[i]) + static_cast<int>(r % 2));
    EXPECT_TRUE(at::equal(alone[0], out[r])) << visible_R[i] << " keys";
  }
}

TEST_P(Grouped, AttentionIsThatOfDoubles) { expect_that_of_doubles(GetParam(), false); }
TEST_P(Grouped, BitsAreARowsOwn) { expect_rows_with_bits_of_their_own(GetParam(), false); }
TEST_P(GroupedCodes, AttentionIsThatOfDoubles) { expect_that_of_doubles(GetParam(), true); }
TEST_P(GroupedCodes, BitsAreARowsOwn) { expect_rows_with_bits_of_their_own(GetParam(), true); }

INSTANTIATE_TEST_SUITE_P(
    All, Grouped,
    testing::Values(
        Case{.H = 4, .K = 2, .E = 64}, Case{.H = 3, .K = 1, .E = 80},
        Case{.H = 5, .K = 1, .E = 96, .order = HostOrder::kDescending}, Case{.H = 8, .K = 2, .E = 128},
        Case{.H = 7, .K = 1, .E = 128, .order = HostOrder::kDescending}, Case{.H = 8, .K = 1, .E = 64},
        Case{.H = 9, .K = 1, .E = 64}, Case{.H = 12, .K = 1, .E = 128},
        Case{.H = 16, .K = 1, .E = 128, .order = HostOrder::kDescending}, Case{.H = 19, .K = 1, .E = 64},
        Case{.H = 10, .K = 1, .E = 80}, Case{.H = 4, .K = 2, .E = 192, .V = 128}, Case{.H = 2, .K = 1, .E = 256},
        Case{.H = 6, .K = 1, .E = 256, .order = HostOrder::kDescending}, Case{.H = 2, .K = 1, .E = 64, .window = 1},
        Case{.H = 4, .K = 1, .E = 64, .window = 100}, Case{.H = 4, .K = 1, .E = 128, .window = 192},
        Case{.H = 2, .K = 1, .E = 256, .window = 250}, Case{.H = 4, .K = 1, .E = 96, .window = 700},
        Case{.H = 4, .K = 1, .E = 64, .window = 48, .chunked = true},
        Case{.H = 4, .K = 2, .E = 80, .window = 250, .chunked = true}, Case{.H = 16, .K = 2, .E = 64, .sinks = true},
        Case{.H = 8, .K = 1, .E = 64, .window = 128, .sinks = true}, Case{.H = 4, .K = 2, .E = 256, .softcap = 1.5f},
        Case{.H = 4, .K = 1, .E = 128, .window = 100, .softcap = 50.0f, .sinks = true}),
    attention_name);

// Every instance, both orders, windows, sinks and capped scores.
INSTANTIATE_TEST_SUITE_P(
    All, GroupedCodes,
    testing::Values(Case{.H = 4, .K = 2, .E = 64}, Case{.H = 9, .K = 1, .E = 64, .order = HostOrder::kDescending},
                    Case{.H = 6, .K = 2, .E = 80}, Case{.H = 5, .K = 1, .E = 96}, Case{.H = 8, .K = 2, .E = 128},
                    Case{.H = 19, .K = 1, .E = 128, .order = HostOrder::kDescending},
                    Case{.H = 4, .K = 2, .E = 192, .V = 128}, Case{.H = 6, .K = 1, .E = 256},
                    Case{.H = 2, .K = 1, .E = 64, .window = 1}, Case{.H = 4, .K = 1, .E = 128, .window = 100},
                    Case{.H = 4, .K = 2, .E = 80, .window = 250, .chunked = true},
                    Case{.H = 8, .K = 1, .E = 64, .window = 128, .softcap = 1.5f, .sinks = true}),
    attention_name);

TEST(GroupedCodesOfE4m3, AllBecomeTheirNumbers) {
  at::Tensor codes = at::arange(256, at::kInt).to(at::kByte);
  const at::Tensor numbers = codes.view(at::kFloat8_e4m3fn).to(at::kFloat).nan_to_num();
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // NaN, which no page holds
    const auto word = static_cast<std::uint32_t>(code);
    const auto low = [](std::uint32_t pair) { return bits_as_float(pair << 16); };
    const auto high = [](std::uint32_t pair) { return bits_as_float(pair & 0xffff0000u); };
    const float wanted = numbers[code].item<float>();
    EXPECT_EQ(low(even_e4m3(word | 0xa500u)), wanted) << code;
    EXPECT_EQ(high(even_e4m3(word << 16 | 0x5a000000u)), wanted) << code;
    EXPECT_EQ(low(odd_e4m3(word << 8 | 0xa5u)), wanted) << code;
    EXPECT_EQ(high(odd_e4m3(word << 24 | 0x5a0000u)), wanted) << code;
  }
}

AttentionArguments<Bf16> heads(int H, int K, int E, int V) {
  AttentionArguments<Bf16> a{};
  a.H = H, a.K = K, a.E = E, a.V = V;
  return a;
}

TEST(GroupedShapes, AreChosenByShapeAlone) {
  for (const int E : {64, 80, 96, 128, 256}) {
    for (const int group : {2, 4, 5, 16, 71}) EXPECT_TRUE(is_grouped_attention(heads(group, 1, E, E))) << E;
    EXPECT_FALSE(is_grouped_attention(heads(8, 8, E, E))) << E;
    AttentionArguments<Bf16> alibi = heads(8, 2, E, E);
    const float slope = 1;
    alibi.alibi_H = &slope;
    EXPECT_FALSE(is_grouped_attention(alibi)) << E;
    AttentionArguments<Bf16> codes = heads(8, 2, E, E);
    codes.codes = true;
    EXPECT_TRUE(is_grouped_attention(codes)) << E;
  }
  EXPECT_TRUE(is_grouped_attention(heads(8, 1, 192, 128)));
  for (const auto& [E, V] : {std::pair{16, 16}, {64, 32}, {128, 64}, {130, 130}, {512, 512}})
    EXPECT_FALSE(is_grouped_attention(heads(8, 1, E, V))) << E;
}

// 8B has 8 KV heads; a graph's C is a power of two.
TEST(GroupedShapes, BlocksAreEnoughForTheDevice) {
  EXPECT_EQ(chunks_of_a_block(256 * 8, 4), 4);  // 256 texts of 512 tokens: nothing to combine
  EXPECT_EQ(chunks_of_a_block(32 * 8, 4), 4);   // 32 of them
  EXPECT_EQ(chunks_of_a_block(1 * 8, 2), 2);    // short texts
  EXPECT_EQ(chunks_of_a_block(1 * 8, 4), 1);    // a text of 512 tokens
  EXPECT_EQ(chunks_of_a_block(1 * 8, 32), 1);   // of 4,096: 176 blocks
  EXPECT_EQ(chunks_of_a_block(1 * 8, 256), 8);  // of 40,000
  EXPECT_EQ(chunks_of_a_block(256 * 8, 64), 16);
  EXPECT_EQ(chunks_of_a_block(8, 1), 1);
}

}  // namespace gpu_grouped_attention_test
}  // namespace magister::gpu
