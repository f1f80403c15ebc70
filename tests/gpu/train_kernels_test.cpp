// The operations of a training pass on the GPU against the host, where the same kernels are emulated and plain
// arithmetic replaces flash attention and cuBLAS: forward and gradients, equal within rounding, and with the same bits
// when they run again. The tests' names say which kernels.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "magister/device/copy_queue.h"
#include "magister/device/upload.h"
#include "magister/train/head_loss.h"
#include "magister/train/training_device.h"
#include "train/gpu/merge_kernel.h"
#include "train/gpu/optimizer_kernels.h"
#include "train/gpu/put_kernel.h"
#include "train/gpu_attention.h"
#include "train/gpu_numbers.h"
#include "train/gpu_ops.h"
#include "train/gpu_products.h"

namespace magister {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<at::Tensor(const Tensors&)>;

// The output and the gradients by all inputs of a floating type, on the CPU again.
Tensors run_on(at::Device device, const Operation& operation, const Tensors& inputs) {
  Tensors there, leaves;
  for (const at::Tensor& input : inputs) {
    there.push_back(input.to(device, /*non_blocking=*/false, /*copy=*/true));
    if (input.is_floating_point()) leaves.push_back(there.back().requires_grad_(true));
  }
  const at::Tensor out = operation(there);
  const at::Tensor gradient =
      at::sin(at::arange(out.numel(), at::kFloat)).view(out.sizes()).to(out.options().requires_grad(false));
  Tensors all = torch::autograd::grad({out}, leaves, {gradient});
  all.insert(all.begin(), out.detach());
  for (at::Tensor& tensor : all) tensor = tensor.cpu();
  return all;
}

// limit: of the largest number of a tensor.
void expect_like_the_host(const Operation& operation, const Tensors& inputs, double limit) {
  // As in a training: without it the flash kernel's backward pass adds by atomics.
  const TrainingDevice deterministic(gpu::gpu_queue());
  const at::Device device = deterministic.device();
  const Tensors host = run_on(at::kCPU, operation, inputs), found = run_on(device, operation, inputs),
                again = run_on(device, operation, inputs);
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], again[i])) << "tensor " << i << " differs in a second run";
    const at::Tensor expected = host[i].to(at::kDouble);
    EXPECT_LE((found[i].to(at::kDouble) - expected).abs().max().item<double>(),
              limit * expected.abs().max().item<double>())
        << "tensor " << i;
  }
}

constexpr double kF32 = 4e-6, kBf16 = 1.6e-2;  // a few roundings; neighbouring numbers

TEST(TrainKernels, TrainNormAndTrainNormBack) {
  at::manual_seed(1);
  for (const std::int64_t D : {33, 128, 2048, 5000}) {
    for (const bool bf16 : {false, true}) {
      expect_like_the_host(
          [&](const Tensors& in) {
            const auto [normed, stream] = gpu_norm_of_stream(in[0], in[1], 1e-5, bf16 ? at::kBFloat16 : at::kFloat);
            return normed.to(at::kFloat) + stream;
          },
          {at::randn({77, D}), at::rand({D}) + 0.5}, bf16 ? kBf16 : kF32);
    }
  }
}

TEST(TrainKernels, TurnHeads) {
  at::manual_seed(2);
  const at::Tensor angles = at::randn({33, 32}) * 3;
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t E : {64, 70, 96}) {
      expect_like_the_host(
          [&](const Tensors& in) {
            const at::Device device = in[0].device();
            return gpu_rotation(in[0], {at::cos(angles).to(device), at::sin(angles).to(device)}, 64, interleaved);
          },
          {at::randn({33, 5, E})}, kF32);
    }
  }
}

TEST(TrainKernels, TrainGateAndTrainGateBack) {
  at::manual_seed(3);
  for (int kind = 0; kind < kNumActivations; ++kind) {
    const auto activation = static_cast<Activation>(kind);
    for (const std::int64_t F : {37, 8200}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        expect_like_the_host([&](const Tensors& in) { return gpu_gate(in[0], activation); },
                             {(at::randn({9, 2 * F}) * 3).to(type)}, type == at::kFloat ? kF32 : kBf16);
      }
    }
  }
}

TEST(TrainKernels, FlashAttentionOfSequencesOfUnlikeLengthsWithNormsOfHeads) {
  at::manual_seed(4);
  const std::vector<std::int64_t> cu_seqlens = {0, 1, 140, 457, 460};
  for (const std::int64_t window : {0, 50}) {
    for (const std::int64_t E : {64, 128, 256}) {
      LayerShape shape;
      shape.heads = 8;
      shape.kv_heads = 2;
      shape.head_dim = shape.rotary_dim = E;
      shape.sliding_window = window;
      shape.attention_scale = 0.1f;
      const at::Tensor angles = at::randn({460, E / 2}) * 3;
      Tensors inputs = {at::randn({460, 12 * E}).to(at::kBFloat16)};
      if (E == 128) inputs.insert(inputs.end(), {at::rand({E}) + 0.5, at::rand({E}) + 0.5});
      expect_like_the_host(
          [&](const Tensors& in) {
            const at::Device device = in[0].device();
            const SequencePlan sequences(cu_seqlens, device);
            const RopeTable rope{at::cos(angles).to(device), at::sin(angles).to(device)};
            const HeadNorms norms = in.size() > 1 ? HeadNorms{in[1], in[2], 1e-5} : HeadNorms{};
            return gpu_flash_attention(in[0].clone(), sequences, shape, &rope, false, norms);
          },
          inputs, 2e-2);
    }
  }
}

TEST(TrainKernels, FlashAttentionWithSinks) {
  at::manual_seed(7);
  const std::vector<std::int64_t> cu_seqlens = {0, 1, 140, 457, 460};
  for (const std::int64_t window : {0, 50}) {
    LayerShape shape;
    shape.heads = 8;
    shape.kv_heads = 2;
    shape.head_dim = 64;
    shape.sliding_window = window;
    shape.attention_scale = 0.1f;
    expect_like_the_host(
        [&](const Tensors& in) {
          const SequencePlan sequences(cu_seqlens, in[0].device());
          return gpu_flash_attention(in[0].clone(), sequences, shape, nullptr, false, {}, in[1]);
        },
        {at::randn({460, 12 * 64}).to(at::kBFloat16), at::randn({8}) * 2}, 2e-2);
  }
}

TEST(TrainKernels, ProductsInBf16) {
  at::manual_seed(5);
  for (const at::ScalarType to : {at::kFloat, at::kBFloat16}) {
    expect_like_the_host(
        [&](const Tensors& in) {
          return gpu_linear(in[0], {{in[1], in[2]}, {in[3], {}, in[4], in[5]}}, {true, false, to, 2.0});
        },
        {at::randn({200, 256}).to(at::kBFloat16), at::randn({96, 256}), at::randn({96}), at::randn({64, 256}),
         at::randn({8, 256}), at::randn({64, 8})},
        kBf16);
  }
  expect_like_the_host([](const Tensors& in) { return gpu_linear(in[0], {{in[1]}}, {true, true}, in[2]); },
                       {at::randn({200, 256}).to(at::kBFloat16), at::randn({256, 96}), at::randn({200, 96})}, kBf16);
}

// Two chunks and rows without labels.
TEST(TrainKernels, RowNumbersLogitGradientAndPlaceNumbers) {
  at::manual_seed(6);
  constexpr std::int64_t D = 64, K = 8;
  for (const auto& [T, V] : {std::pair<std::int64_t, std::int64_t>{2100, 504}, {140, 4099}, {140, 8200}}) {
    for (const bool bf16 : {false, true}) {
      HeadLossTargets targets;
      targets.labels_T = at::randint(V, {T}, at::kLong);
      targets.labels_T.narrow(0, 50, 30).fill_(-100);
      targets.teacher_ids_TK = std::get<1>(at::rand({T, 500}).topk(K, 1)).to(at::kInt);
      targets.teacher_logprobs_TK = at::log_softmax(at::randn({T, K}) * 2, 1) - 0.1;
      HeadLossOptions options;
      options.gpu_code = true;
      options.bf16 = bf16;
      options.distill.temperature = 1.5;
      options.distill.lm_weight = 0.5;
      options.scaling.softcap = 20;
      const at::Tensor hidden = at::randn({T, D}), head = at::randn({V, D});
      std::vector<Tensors> all;
      std::vector<double> losses;
      for (const at::Device device : {at::Device(at::kCPU), device_of(gpu::gpu_queue()), device_of(gpu::gpu_queue())}) {
        at::Tensor gradient = at::zeros({V, D}, at::TensorOptions(at::kFloat).device(device));
        const HeadLossResult result = head_loss(hidden.to(device), head.to(device), targets, options, 1e-3, gradient);
        all.push_back({result.hidden_gradient_TD.cpu(), gradient.cpu(), at::nan_to_num(result.label_logprob_T)});
        losses.push_back(result.loss);
      }
      EXPECT_NEAR(losses[1] / losses[0], 1, 1e-5);
      EXPECT_EQ(losses[1], losses[2]);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(at::equal(all[1][i], all[2][i])) << i;
        EXPECT_LE((all[1][i] - all[0][i]).abs().max().item<double>(),
                  (bf16 ? kBf16 : 2e-5) * all[0][i].abs().max().item<double>())
            << i;
      }
    }
  }
}

// By a kernel of these tensors on the host and on the GPU: the same bits, in every tensor.
void expect_equal_bits(const std::function<void(const Tensors&, const gpu::Queue&)>& run, const Tensors& tensors) {
  std::vector<Tensors> all;
  for (const gpu::Queue& queue : {gpu::Queue{}, gpu::gpu_queue()}) {
    Tensors there;
    for (const at::Tensor& tensor : tensors) there.push_back(tensor.to(device_of(queue), false, /*copy=*/true));
    run(there, queue);
    for (at::Tensor& tensor : there) tensor = tensor.cpu();
    all.push_back(there);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(at::equal(all[0][i], all[1][i])) << "tensor " << i;
}

TEST(TrainKernels, AdamwHasEqualBits) {
  at::manual_seed(7);
  constexpr std::int64_t kCount = 16387;  // some fours, and three
  const at::Tensor tiles = at::tensor({std::int64_t{0}, std::int64_t{0}, kCount + (std::int64_t{1} << 32)}, at::kLong);
  const AdamwRates rates{0.999f, 0.1f, 0.999f, 0.001f, 1e-3f, 0.03f, 1e-8f, 0.7f};
  expect_equal_bits(
      [&](const Tensors& in, const gpu::Queue& queue) {
        start(gpu::Adamw{rates, static_cast<const gpu::Adamw::Tile*>(in[0].data_ptr()), 1, numbers<const float>(in[1]),
                         0, numbers<float>(in[2]), numbers<float>(in[3]), numbers<float>(in[4])},
              queue);
      },
      {tiles, at::randn({kCount}), at::randn({kCount}), at::randn({kCount}) * 0.1, at::rand({kCount}) * 0.01});
}

TEST(TrainKernels, BlockSquaresHasEqualBits) {
  at::manual_seed(8);
  const at::Tensor numbers_N = at::randn({40 * 4096 + 77}) * 3, sums = at::zeros({41}, at::kDouble);
  expect_equal_bits(
      [&](const Tensors& in, const gpu::Queue& queue) {
        start(gpu::BlockSquares{numbers<const float>(in[0]), in[0].numel(), numbers<double>(in[1])}, queue);
        EXPECT_NEAR(in[1].sum().item<double>(), in[0].to(at::kDouble).square().sum().item<double>(), 1e-6);
      },
      {numbers_N, sums});
}

TEST(TrainKernels, PutNumbersHasEqualBits) {
  at::manual_seed(9);
  for (const bool adds : {false, true}) {
    for (const bool finite : {true, false}) {
      at::Tensor from = at::randn({9001});
      if (!finite) from[8999] = std::numeric_limits<float>::infinity();
      expect_equal_bits(
          [&](const Tensors& in, const gpu::Queue& queue) {
            start(gpu::PutNumbers{numbers<const float>(in[0]), numbers<float>(in[1]), in[0].numel(), adds,
                                  numbers<std::uint32_t>(in[2])},
                  queue);
            EXPECT_EQ(in[2].item<std::int32_t>(), finite ? 0 : 1);
          },
          {from, at::randn({9001}), at::zeros({1}, at::kInt)});
    }
  }
}

// A copy is slower than what overwrites it: 256 MB at 50 GB/s beside 3 TB/s.
TEST(TrainKernels, WhatIsWrittenBehindACopyWaitsForIt) {
  const auto queue = make_copy_queue(gpu::gpu_queue());
  const std::int64_t size = gpu::host_plays_gpu() ? 1 << 16 : 64 << 20;
  const at::Tensor expected = at::arange(size, at::kFloat);
  const at::Tensor there = at::empty({size}, expected.options().device(device_of(gpu::gpu_queue())));
  const std::vector<CopyQueue::Copy> copies = {{there, queue->take(size)}};
  ASSERT_TRUE(copies[0].to.defined());
  for (int time = 0; time < 3; ++time) {
    there.copy_(expected, /*non_blocking=*/true);
    there.add_(time);
    queue->start(copies);
    queue->hold_default();
    there.zero_();
    queue->wait();
    EXPECT_TRUE(at::equal(copies[0].to, expected + time)) << time;
  }
}

TEST(TrainKernels, MergeFactorsHasEqualBits) {
  at::manual_seed(10);
  constexpr std::int64_t kN = 37, kK = 101, kR = 9;
  expect_equal_bits(
      [&](const Tensors& in, const gpu::Queue& queue) {
        start(gpu::MergeFactors{numbers<float>(in[0]), numbers<const float>(in[1]), numbers<const float>(in[2]), kR, 1,
                                kK, 1, kN, kK, kR, 0.7f},
              queue);
      },
      {at::randn({kN, kK}), at::randn({kN, kR}), at::randn({kR, kK})});
}

}  // namespace
}  // namespace magister
