// Products of codes with the rows of many texts on the host, thread by thread: against ATen in double, the numbers that
// codes become bit by bit, and a row's bits alone and among others. The cases: coded_rows.h.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "model/coded_rows.h"
#include "model/gpu/code_product_kernel.h"

namespace magister::gpu {
namespace gpu_code_product_test {

using Case = ProductCase;

class CodedRows : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    set_host_order(GetParam().order);
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

// The numbers that products over prompts use.
at::Tensor plain_of(const Stored& s, const Case& c) {
  at::Tensor plain_NK = at::full({c.N, c.K}, NAN, at::kBFloat16);
  dequantize(s.weight, c.bits, c.group, plain_NK.data_ptr(), false, Queue{});
  return plain_NK;
}

// A row with a single one gives the weights of its input.
TEST_P(CodedRows, MultiplyTheNumbersThatPromptsDo) {
  const Case& c = GetParam();
  const Stored s = stored_weight(c);
  const at::Tensor plain_NK = plain_of(s, c);
  EXPECT_TRUE(at::equal(plain_NK, s.value_NK.to(at::kFloat).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(code_product(s, c, at::eye(c.K, at::kBFloat16), {}).t(), plain_NK.to(at::kFloat)));
}

// Sums in f32 of K products. Batches of one block, whole or with idle rows, and of two.
TEST_P(CodedRows, AreThoseOfDoubleArithmeticAndARowsBitsAreItsOwn) {
  const Case& c = GetParam();
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({167, c.K}).to(at::kBFloat16), bias = at::randn({c.N});
  const at::Tensor weight = plain_of(s, c).to(at::kDouble);
  const at::Tensor wanted = at::linear(x.to(at::kDouble), weight, bias.to(at::kDouble));
  const at::Tensor size = at::linear(x.to(at::kDouble).abs(), weight.abs(), bias.to(at::kDouble).abs());
  const at::Tensor all = code_product(s, c, x, bias);
  EXPECT_LE(((all.to(at::kDouble) - wanted).abs() / size).max().item<double>(), 1e-6);
  for (const auto& [first, rows] : {std::pair{166, 1}, {100, 7}, {3, 64}, {7, 160}}) {
    const at::Tensor some = code_product(s, c, x.narrow(0, first, rows).clone(), bias);
    EXPECT_TRUE(at::equal(some, all.narrow(0, first, rows))) << rows << " rows from " << first;
  }
  const at::Tensor one = code_product(s, c, x.narrow(0, 41, 1).clone(), bias, false);
  EXPECT_TRUE(at::equal(one[0], all[41].to(at::kBFloat16))) << "rounded once";
}

INSTANTIATE_TEST_SUITE_P(All, CodedRows, testing::ValuesIn(coded_cases()), product_name);

// More steps than shares: a share ends one tile and begins the next, and a tile has pieces of several shares.
TEST(CodedRows, OfManySteps) {
  at::manual_seed(8);
  const Case c{8, 128, 1032, 2144};
  ASSERT_EQ(CodeShares::of(c.N, c.K).tiles * CodeShares::of(c.N, c.K).steps, 170);
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({33, c.K}).to(at::kBFloat16), weight = plain_of(s, c).to(at::kDouble);
  const at::Tensor all = code_product(s, c, x, {}), wanted = at::linear(x.to(at::kDouble), weight),
                   size = at::linear(x.to(at::kDouble).abs(), weight.abs());
  EXPECT_LE(((all.to(at::kDouble) - wanted).abs() / size).max().item<double>(), 1e-6);
  EXPECT_TRUE(at::equal(code_product(s, c, x.narrow(0, 32, 1).clone(), {}), all.narrow(0, 32, 1)));
}

TEST(CodedRows, AreTheSameWithLessSharedMemory) {
  using Kernel = CodeProduct<8, true>;
  at::manual_seed(9);
  const Case c{8, 32, 264, 11040};  // 346 steps: shares of two and three
  Stored s = stored_weight(c);
  s.weight.group_shift = 5;
  const at::Tensor x = at::randn({40, c.K}).to(at::kBFloat16);
  const CodeShares shares = CodeShares::of(c.N, c.K);
  std::vector<at::Tensor> pieces;
  for (const int stages : {Kernel::kManyStages, Kernel::kFewStages}) {
    pieces.push_back(at::zeros({code_piece_numbers(40, c.N, c.K)}));
    start(Kernel{s.weight, static_cast<const Bf16*>(x.data_ptr()), c.K, pieces.back().data_ptr<float>(), 40, 64, stages,
                 shares},
          Queue{});
  }
  EXPECT_TRUE(at::equal(pieces[0], pieces[1]));
  EXPECT_GT(pieces[0].abs().max().item<double>(), 0.1);
}

// Every step is in one share, and every piece has its own place.
TEST(CodeShares, CoverTheWeight) {
  for (const auto& [N, K] : std::vector<std::pair<int, int>>{
           {8, 32}, {256, 64}, {264, 8480}, {1024, 4096}, {10240, 8192}, {57344, 8192}, {8192, 28672}}) {
    const CodeShares shares = CodeShares::of(N, K);
    std::set<int> places;
    std::pair<int, int> last{-1, -1};
    EXPECT_EQ(shares.begin(0), 0);
    EXPECT_EQ(shares.begin(CodeShares::kShares), shares.tiles * shares.steps);
    for (int step = 0; step < shares.tiles * shares.steps; ++step) {
      const int share = shares.share_of(step), tile = step / shares.steps;
      ASSERT_LE(shares.begin(share), step) << N << " x " << K;
      ASSERT_LT(step, shares.begin(share + 1)) << N << " x " << K;
      if (std::pair{tile, share} == last) continue;
      last = {tile, share};
      ASSERT_TRUE(places.insert(CodeShares::piece(tile, share)).second);
      ASSERT_LT(CodeShares::piece(tile, share), shares.num_pieces());
    }
  }
}

// What cannot be read 16 bytes at a time, or has parts of groups, becomes plain before its product.
TEST(CodeProduct, TakesWholeGroupsAlone) {
  const auto takes = [](std::int64_t N, std::int64_t K, std::int64_t lead, std::int64_t group = 128) {
    GpuLinear linear;
    linear.outputs = N;
    linear.inputs = K;
    linear.scheme = {QuantType::kInt8, group};
    linear.lead = lead;
    linear.codes_NB = at::zeros({N, (K + 15) / 16 * 16}, at::kByte);
    linear.scales_NG = at::zeros({N, group == 0 ? 1 : (lead + K - 1) / group + 1}, at::kShort);
    return takes_codes(linear);
  };
  EXPECT_TRUE(takes(264, 96, 0) && takes(8, 64, 32) && takes(8, 64, 5, 0));
  EXPECT_FALSE(takes(20, 96, 0) || takes(264, 112, 0) || takes(264, 100, 0) || takes(264, 96, 16));
  EXPECT_FALSE(takes_codes(GpuLinear{}));
}

}  // namespace gpu_code_product_test
}  // namespace magister::gpu
