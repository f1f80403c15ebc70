// Forward and gradient of the fused operations, and of the GPU's replacements, against autograd over the plain
// formulas, in f64 where the limits are tight.
#include "train/fused_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "train/gpu_ops.h"
#include "train/trained_linear.h"

namespace magister {
namespace fused_ops_test {

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Largest difference over the largest number of the plain one.
double apart(const at::Tensor& fused, const at::Tensor& plain) {
  return ((fused.to(at::kDouble) - plain).abs().max() / plain.abs().max()).item<double>();
}

void expect_equal(const Operation& fused, const Operation& plain, const std::vector<at::Tensor>& inputs, double limit) {
  std::vector<at::Tensor> singles, doubles;
  for (const at::Tensor& input : inputs) {
    singles.push_back(input.clone().requires_grad_(true));
    doubles.push_back(input.to(at::kDouble).requires_grad_(true));
  }
  const at::Tensor expected = plain(doubles), gradient = at::randn(expected.sizes());
  const auto wanted = torch::autograd::grad({expected}, doubles, {gradient.to(at::kDouble)});
  for (const bool gpu_code : {false, true}) {
    at::Tensor out;
    {
      const GpuCodeScope scope(gpu_code);
      out = fused(singles);
    }
    ASSERT_EQ(out.sizes(), expected.sizes());
    EXPECT_LE(apart(out.detach(), expected.detach()), limit) << gpu_code;
    const auto found = torch::autograd::grad({out}, singles, {gradient});
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(apart(found[i], wanted[i]), limit) << "gradient " << i << ", a GPU's code: " << gpu_code;
  }
}

TEST(FusedOps, RmsNorm) {
  at::manual_seed(1);
  for (const std::int64_t width : {5, 16, 40, 576}) {
    // Rows of unlike size, and one that is nothing but eps.
    at::Tensor x = at::randn({7, width}) * at::logspace(-2, 2, 7).unsqueeze(1);
    x[3].zero_();
    expect_equal([](const auto& in) { return fused_rms_norm(in[0], in[1], 1e-5); },
                 [](const auto& in) { return in[0] * at::rsqrt(in[0].pow(2).mean(-1, true) + 1e-5) * in[1]; },
                 {x, at::randn({width})}, 2e-6);
  }
}

TEST(FusedOps, RmsNormOfHeads) {
  at::manual_seed(2);
  expect_equal([](const auto& in) { return fused_rms_norm(in[0], in[1], 1e-6); },
               [](const auto& in) { return in[0] * at::rsqrt(in[0].pow(2).mean(-1, true) + 1e-6) * in[1]; },
               {at::randn({4, 3, 24}), at::randn({24})}, 2e-6);
}

TEST(FusedOps, Rotation) {
  at::manual_seed(3);
  for (const std::int64_t turning : {4, 12, 32}) {
    const at::Tensor angle = at::randn({6, turning / 2}) * 3;
    const RopeTable rope{at::cos(angle), at::sin(angle)};
    for (const bool interleaved : {false, true}) {
      expect_equal([&](const auto& in) { return fused_rotation(in[0], rope, turning, interleaved); },
                   [&](const auto& in) {
                     const at::Tensor cos = rope.cos_PE2.to(at::kDouble).unsqueeze(1),
                                      sin = rope.sin_PE2.to(at::kDouble).unsqueeze(1);
                     const at::Tensor turns = in[0].narrow(-1, 0, turning),
                                      rest = in[0].narrow(-1, turning, 32 - turning);
                     const at::Tensor pairs = interleaved ? turns.unflatten(-1, {turning / 2, 2})
                                                          : turns.unflatten(-1, {2, turning / 2}).transpose(-1, -2);
                     const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
                     at::Tensor out = at::stack({a * cos - b * sin, b * cos + a * sin}, -1);
                     if (!interleaved) out = out.transpose(-1, -2);
                     return at::cat({out.flatten(-2), rest}, -1);
                   },
                   {at::randn({6, 5, 32})}, 1e-6);
    }
  }
}

TEST(FusedOps, SiluProduct) {
  at::manual_seed(4);
  expect_equal([](const auto& in) { return fused_silu_product(in[0], in[1]); },
               [](const auto& in) { return at::silu(in[0]) * in[1]; }, {at::randn({9, 37}) * 4, at::randn({9, 37})},
               1e-6);
}

TEST(TrainedLinear, ProductsOfAllShapes) {
  at::manual_seed(5);
  const auto plain = [](const auto& in) {
    return at::linear(in[0], in[1], in.size() > 2 ? std::optional(in[2]) : std::nullopt);
  };
  for (const std::int64_t T : {1, 5, 37, 300}) {
    for (const auto& [N, K] : {std::pair{7, 3}, {48, 64}, {50, 193}, {130, 48}}) {
      expect_equal([](const auto& in) { return trained_linear(in[0], in[1], {}, false, false); }, plain,
                   {at::randn({T, K}), at::randn({N, K})}, 3e-6);
      expect_equal([](const auto& in) { return trained_linear(in[0], in[1], in[2], false, false); }, plain,
                   {at::randn({T, K}), at::randn({N, K}), at::randn({N})}, 3e-6);
      expect_equal([](const auto& in) { return trained_linear(in[0], in[1], in[2], true, false); },
                   [](const auto& in) { return at::addmm(in[2], in[0], in[1]); },
                   {at::randn({T, K}), at::randn({K, N}), at::randn({N})}, 3e-6);
    }
  }
  // One matrix of a tensor of several, like gpt-oss's experts.
  expect_equal([](const auto& in) { return trained_linear(in[0], in[1].select(0, 2), {}, true, false); },
               [](const auto& in) { return at::mm(in[0], in[1].select(0, 2)); },
               {at::randn({9, 16}), at::randn({4, 16, 20})}, 3e-6);
}

// Sums are f32: rounded ones would be a thousand times farther away.
TEST(TrainedLinear, GpuCodeRoundsOperandsAlone) {
  at::manual_seed(6);
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const GpuCodeScope scope(true);
  expect_equal([](const auto& in) { return trained_linear(in[0], in[1], {}, false, true); },
               [](const auto& in) { return at::linear(in[0], in[1]); },
               {rounded(at::randn({37, 64})), rounded(at::randn({50, 64}))}, 4e-3);
  const at::Tensor x = rounded(at::randn({37, 640})), weight = rounded(at::randn({50, 640}));
  EXPECT_LE(apart(trained_linear(x, weight, {}, false, true), at::linear(x.to(at::kDouble), weight.to(at::kDouble))),
            1e-6);
}

TEST(TrainedLinear, WhatNeedsNoGradientHasNone) {
  const at::Tensor x = at::randn({4, 8}), frozen = at::randn({6, 8});
  const at::Tensor leaf = x.clone().requires_grad_(true);
  const at::Tensor out = trained_linear(leaf, frozen, {}, false, false);
  EXPECT_TRUE(at::allclose(torch::autograd::grad({out}, {leaf}, {at::ones({4, 6})})[0], at::ones({4, 6}).matmul(frozen),
                           1e-5, 1e-6));
  EXPECT_FALSE(trained_linear(x, frozen, {}, false, false).requires_grad());
}

}  // namespace fused_ops_test
}  // namespace magister
