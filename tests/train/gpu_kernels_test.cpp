// The kernels of a training's passes as the host emulates them, in both orders of their threads, against plain ATen in
// f64, forward and gradients; products and attention with the roundings that they promise.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>
#include <vector>

#include "magister/device/host_block.h"
#include "magister/model/plain_activation.h"
#include "magister/train/head_loss.h"
#include "train/gpu_attention.h"
#include "train/gpu_ops.h"
#include "train/gpu_products.h"

namespace magister {
namespace gpu_kernels_test {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<at::Tensor(const Tensors&)>;

class Kernels : public testing::TestWithParam<gpu::HostOrder> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    gpu::set_host_order(GetParam());
  }
  void TearDown() override { gpu::set_host_order(gpu::HostOrder::kAscending); }
};
INSTANTIATE_TEST_SUITE_P(Orders, Kernels, testing::Values(gpu::HostOrder::kAscending, gpu::HostOrder::kDescending));

// Relative to the largest number of the plain ones, the output first.
void expect_equal(const Operation& found, const Operation& plain, const Tensors& inputs, double limit) {
  Tensors leaves, doubles;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.clone().requires_grad_(true));
    doubles.push_back(input.to(at::kDouble).requires_grad_(true));
  }
  const at::Tensor expected = plain(doubles), out = found(leaves);
  const at::Tensor gradient = at::randn(expected.sizes()).to(out.scalar_type());
  Tensors theirs = torch::autograd::grad({expected}, doubles, {gradient.to(at::kDouble)}),
          ours = torch::autograd::grad({out}, leaves, {gradient});
  theirs.insert(theirs.begin(), expected.detach());
  ours.insert(ours.begin(), out.detach());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), theirs[i].sizes()) << i;
    EXPECT_LE(((ours[i].to(at::kDouble) - theirs[i]).abs().max() / theirs[i].abs().max()).item<double>(), limit) << i;
  }
}

constexpr double kF32 = 2e-6, kBf16 = 1e-2;

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
}

// Rows of a warp and of a block, and more of them than one thread's partial sum has.
TEST_P(Kernels, NormsWithTheStream) {
  for (const auto& [R, D] : {std::pair{70, 24}, {70, 33}, {19, 1024}, {3, 1031}}) {
    const Tensors inputs = {at::randn({R, D}), at::rand({D}) + 0.5};
    for (const bool bf16 : {false, true}) {
      const auto ours = [&](const Tensors& in, bool with_stream) {
        const auto [normed, stream] = gpu_norm_of_stream(in[0], in[1], 1e-5, bf16 ? at::kBFloat16 : at::kFloat);
        EXPECT_EQ(normed.scalar_type(), bf16 ? at::kBFloat16 : at::kFloat);
        return with_stream ? normed.to(at::kFloat) + 2 * stream : normed;
      };
      expect_equal([&](const Tensors& in) { return ours(in, true); },
                   [](const Tensors& in) { return plain_norm(in[0], in[1]) + 2 * in[0]; }, inputs, bf16 ? kBf16 : kF32);
      expect_equal([&](const Tensors& in) { return ours(in, false); },
                   [](const Tensors& in) { return plain_norm(in[0], in[1]); }, inputs, bf16 ? kBf16 : kF32);
    }
  }
}

TEST_P(Kernels, Gates) {
  for (int kind = 0; kind < kNumActivations; ++kind) {
    const auto activation = static_cast<Activation>(kind);
    for (const std::int64_t F : {5, 64, 2056}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor both = (at::randn({3, 2 * F}) * 3).to(type);
        const double limit = type == at::kFloat ? kF32 : kBf16;
        expect_equal(
            [&](const Tensors& in) { return gpu_gate(in[0], activation); },
            [&](const Tensors& in) { return activated(in[0].narrow(1, 0, F), activation) * in[0].narrow(1, F, F); },
            {both}, limit);
        expect_equal([&](const Tensors& in) { return gpu_gate(in[0], in[1], activation); },
                     [&](const Tensors& in) { return activated(in[0], activation) * in[1]; },
                     {both.narrow(1, 0, F).contiguous(), both.narrow(1, F, F).contiguous()}, limit);
      }
    }
  }
}

at::Tensor turned_plainly(const at::Tensor& x_THE, const at::Tensor& angles, bool interleaved) {
  const std::int64_t half = angles.size(1), rest = x_THE.size(2) - 2 * half;
  const at::Tensor turns = x_THE.narrow(2, 0, 2 * half);
  const at::Tensor pairs = interleaved ? turns.unflatten(2, {half, 2}) : turns.unflatten(2, {2, half}).transpose(2, 3);
  const at::Tensor cos = at::cos(angles).unsqueeze(1), sin = at::sin(angles).unsqueeze(1), a = pairs.select(3, 0),
                   b = pairs.select(3, 1);
  at::Tensor out = at::stack({a * cos - b * sin, b * cos + a * sin}, 3);
  if (!interleaved) out = out.transpose(2, 3);
  return at::cat({out.flatten(2), x_THE.narrow(2, 2 * half, rest)}, 2);
}

// With and without norms per head, rotated, several sequences in one call, two heads per KV head, windows, and heads of
// which only a part is rotated.
TEST_P(Kernels, AttentionOfPackedSequences) {
  constexpr std::int64_t T = 23, H = 4, K = 2;
  const std::vector<std::int64_t> cu_seqlens = {0, 1, 8, 15, 23};
  const SequencePlan sequences(cu_seqlens, at::kCPU);
  for (const auto& [E, turning] : {std::pair{16, 16}, {24, 8}, {32, 16}}) {
    for (const bool interleaved : {false, true}) {
      LayerShape shape;
      shape.heads = H;
      shape.kv_heads = K;
      shape.head_dim = E;
      shape.rotary_dim = turning;
      shape.sliding_window = interleaved ? 3 : 0;
      shape.attention_scale = 0.3f;
      ASSERT_TRUE(flash_trains(shape));
      const at::Tensor angles = at::randn({T, turning / 2}) * 3;
      const RopeTable rope{at::cos(angles), at::sin(angles)};
      for (const bool normed : {false, true}) {
        Tensors inputs = {at::randn({T, (H + 2 * K) * E}).to(at::kBFloat16)};
        if (normed) inputs.insert(inputs.end(), {at::rand({E}) + 0.5, at::rand({E}) + 0.5});
        expect_equal(
            [&](const Tensors& in) {
              return gpu_flash_attention(in[0].clone(), sequences, shape, &rope, interleaved,
                                         normed ? HeadNorms{in[1], in[2], 1e-5} : HeadNorms{});
            },
            [&, E = E](const Tensors& in) {
              const auto norm = [&](const at::Tensor& x, std::size_t weight) {
                return normed ? plain_norm(x, in[weight]) : x;
              };
              const at::Tensor all = in[0].view({T, H + 2 * K, E}), wide = angles.to(at::kDouble);
              const at::Tensor q = turned_plainly(norm(all.narrow(1, 0, H), 1), wide, interleaved),
                               k = turned_plainly(norm(all.narrow(1, H, K), 2), wide, interleaved)
                                       .repeat_interleave(H / K, 1),
                               v = all.narrow(1, H + K, K).repeat_interleave(H / K, 1);
              Tensors outputs;
              for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
                const std::int64_t begin = cu_seqlens[s], L = cu_seqlens[s + 1] - begin;
                const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, L).transpose(0, 1); };
                const at::Tensor far =
                    at::ones({L, L}, at::kBool).triu(1) |
                    (interleaved ? at::ones({L, L}, at::kBool).tril(-3) : at::zeros({L, L}, at::kBool));
                const at::Tensor scores = (at::matmul(part(q), part(k).transpose(1, 2)) * 0.3f)
                                              .masked_fill(far, -std::numeric_limits<double>::infinity());
                outputs.push_back(at::matmul(at::softmax(scores, -1), part(v)).transpose(0, 1).reshape({L, H * E}));
              }
              return at::cat(outputs, 0);
            },
            inputs, 1.5e-2);
      }
    }
  }
}

// Weights, a bias and an adapter side by side; an output on top of a stream.
TEST(GpuProducts, AreThoseOfEachWeight) {
  at::manual_seed(4);
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const Tensors inputs = {
      at::randn({21, 48}).to(at::kBFloat16), rounded(at::randn({10, 48})), at::randn({10}),
      rounded(at::randn({6, 48})),           rounded(at::randn({3, 48})),  rounded(at::randn({6, 3}))};
  for (const at::ScalarType to : {at::kFloat, at::kBFloat16}) {
    expect_equal(
        [&](const Tensors& in) {
          const at::Tensor out = gpu_linear(in[0], {{in[1], in[2]}, {in[3], {}, in[4], in[5]}}, {true, false, to, 2.0});
          EXPECT_EQ(out.scalar_type(), to);
          return out;
        },
        [](const Tensors& in) {
          return at::cat({at::linear(in[0], in[1], in[2]),
                          at::linear(in[0], in[3]) + 2 * at::linear(at::linear(in[0], in[4]), in[5])},
                         1);
        },
        inputs, kBf16);
  }
  expect_equal([](const Tensors& in) { return gpu_linear(in[0], {{in[1]}}, {true, true}, in[2]); },
               [](const Tensors& in) { return at::matmul(in[0], in[1]) + in[2]; },
               {at::randn({21, 48}).to(at::kBFloat16), rounded(at::randn({48, 10})), at::randn({21, 10})}, kBf16);
  // Sums are f32, and the stream is not rounded.
  const at::Tensor x = at::randn({5, 640}).to(at::kBFloat16), weight = rounded(at::randn({7, 640})),
                   stream = at::randn({5, 7}) * 100;
  const at::Tensor exact = at::linear(x.to(at::kDouble), weight.to(at::kDouble)) + stream.to(at::kDouble);
  EXPECT_LE((gpu_linear(x, {{weight}}, {true}, stream) - exact).abs().max().item<double>(), 1e-4);
}

// A bf16 head's losses and gradients compared with the CPU's in f32: logits are f32, their gradient is rounded once.
TEST(GpuHead, InBf16) {
  at::manual_seed(5);
  constexpr std::int64_t T = 300, D = 32, V = 517, K = 5;
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const at::Tensor hidden = rounded(at::randn({T, D})), head = rounded(at::randn({V, D}));
  HeadLossTargets targets;
  targets.labels_T = at::randint(V, {T}, at::kLong);
  targets.labels_T.narrow(0, 7, 20).fill_(-100);
  targets.teacher_ids_TK = std::get<1>(at::rand({T, V}).topk(K, 1)).to(at::kInt);
  targets.teacher_logprobs_TK = at::log_softmax(at::randn({T, K}) * 2, 1) - 0.1;
  for (const double softcap : {0.0, 15.0}) {
    HeadLossOptions options;
    options.distill.lm_weight = 0.5;
    options.distill.temperature = 1.5;
    options.scaling.softcap = softcap;
    at::Tensor of_cpu = at::ones({V, D}), of_gpu = at::ones({V, D});
    const HeadLossResult cpu = head_loss(hidden, head, targets, options, 0.01, of_cpu);
    options.gpu_code = options.bf16 = true;
    const HeadLossResult gpu = head_loss(hidden, head, targets, options, 0.01, of_gpu);
    EXPECT_NEAR(gpu.loss / cpu.loss, 1, 1e-6);
    EXPECT_TRUE(at::allclose(at::nan_to_num(gpu.label_logprob_T), at::nan_to_num(cpu.label_logprob_T), 1e-5, 1e-5));
    const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a - b).norm() / b.norm()).item<double>();
    };
    EXPECT_LE(apart(gpu.hidden_gradient_TD, cpu.hidden_gradient_TD), 5e-3);
    EXPECT_LE(apart(of_gpu - 1, of_cpu - 1), 5e-3);
    EXPECT_EQ(gpu.hidden_gradient_TD.narrow(0, 7, 20).abs().max().item<float>(), 0);
  }
}

}  // namespace gpu_kernels_test
}  // namespace magister
