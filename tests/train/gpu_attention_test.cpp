// Attention of a micro-batch as GPU code brings it into its kernels' form, against the code of CPUs, which takes a
// sequence at a time: outputs and gradients, with every mask, bias and size of heads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "train/alibi_columns.h"
#include "train/gpu_ops.h"
#include "train/sequence_attention.h"

namespace magister {
namespace gpu_attention_test {

struct Case {
  std::string name;
  std::function<void(LayerShape&)> change;
  bool sinks = false;
};

std::vector<Case> cases() {
  const auto slopes = [](LayerShape& shape) { shape.alibi_slopes = {0.5f, 0.2f, 0.05f, 0.01f}; };
  return {
      {"plain", [](LayerShape&) {}},
      {"heads of 20 numbers", [](LayerShape& shape) { shape.head_dim = 20; }},
      {"narrow values", [](LayerShape& shape) { shape.own_value_dim = 8; }},
      {"wide values", [](LayerShape& shape) { shape.own_value_dim = 28; }},
      {"chunks",
       [](LayerShape& shape) {
         shape.sliding_window = 5;
         shape.chunked_windows = true;
       }},
      {"ALiBi", slopes},
      {"ALiBi in bf16",
       [&](LayerShape& shape) {
         slopes(shape);
         shape.alibi_in_bf16 = true;
       }},
      {"ALiBi in windows",
       [&](LayerShape& shape) {
         slopes(shape);
         shape.sliding_window = 5;
       }},
      {"sinks", [](LayerShape&) {}, true},
      {"sinks in windows", [](LayerShape& shape) { shape.sliding_window = 5; }, true},
      {"sinks and narrow values", [](LayerShape& shape) { shape.own_value_dim = 8; }, true},
  };
}

LayerShape shape_of(const Case& one) {
  LayerShape shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  shape.kv_of_head = {0, 0, 1, 1};
  shape.attention_scale = 0.3f;
  one.change(shape);
  return shape;
}

class AttendSequences : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, AttendSequences, testing::ValuesIn(cases()),
                         [](const auto& test) { return std::to_string(test.index); });

// Limits are relative to the largest number. In bf16 the inputs are numbers of bf16, and the output and the gradients
// are rounded to it.
TEST_P(AttendSequences, AsCpusDo) {
  at::manual_seed(5);
  const LayerShape shape = shape_of(GetParam());
  const std::vector<std::int64_t> cu_seqlens = {0, 1, 8, 15, 48};
  const std::int64_t T = cu_seqlens.back(), E = shape.head_dim, V = shape.value_dim();
  SequencePlan plan(cu_seqlens, at::kCPU, shape.chunked_windows ? shape.sliding_window : 0);
  if (!shape.alibi_slopes.empty()) plan.alibi_THC = alibi_columns(shape, cu_seqlens, at::kCPU);
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const std::vector<at::Tensor> inputs = {rounded(at::randn({T, shape.heads, E})),
                                          rounded(at::randn({T, shape.kv_heads, E})),
                                          rounded(at::randn({T, shape.kv_heads, V})), at::randn({shape.heads})};
  const at::Tensor gradient = rounded(at::randn({T, shape.heads * V}));
  const auto run = [&](const SequencePlan* gpu_plan, bool bf16) {
    const GpuCodeScope gpu_code(gpu_plan != nullptr);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.clone().requires_grad_(true));
    const at::Tensor sinks = GetParam().sinks ? leaves[3] : at::Tensor();
    if (!GetParam().sinks) leaves.pop_back();
    const at::Tensor out = attend_sequences(leaves[0], leaves[1], leaves[2], sinks, shape, cu_seqlens, gpu_plan, bf16);
    EXPECT_EQ(out.scalar_type(), bf16 ? at::kBFloat16 : at::kFloat) << "without flash attention";
    std::vector<at::Tensor> all = torch::autograd::grad({out}, leaves, {gradient.to(out.scalar_type())});
    all.push_back(out.detach());
    return all;
  };
  const std::vector<at::Tensor> expected = run(nullptr, false);
  for (const bool bf16 : {false, true}) {
    const std::vector<at::Tensor> found = run(&plan, bf16);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double apart =
          ((found[i].to(at::kFloat) - expected[i]).abs().max() / expected[i].abs().max()).item<double>();
      EXPECT_LE(apart, bf16 ? 1.5e-2 : 5e-6) << GetParam().name << (bf16 ? ", bf16, " : ", f32, ") << i;
    }
  }
}

}  // namespace gpu_attention_test
}  // namespace magister
