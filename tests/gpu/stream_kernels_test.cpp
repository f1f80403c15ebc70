// The kernels of AltUp, Laurel, vectors by layer and sparse gates on the GPU against their emulation on the host, as in
// kernels_test.cpp: within a few roundings, and with the same bits in a second run.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "magister/device/upload.h"
#include "model/gpu/altup_end_kernels.h"
#include "model/gpu/altup_kernels.h"
#include "model/gpu/per_layer_kernels.h"

namespace magister::gpu::stream_kernels_test {

using Tensors = std::vector<at::Tensor>;
using Body = std::function<void(const Tensors&, const Queue&)>;

constexpr std::int64_t T = 7;

template <typename N>
constexpr at::ScalarType kType = std::is_same_v<N, float> ? at::kFloat : at::kBFloat16;
template <typename N>
N* data(const at::Tensor& tensor) {
  return static_cast<N*>(tensor.data_ptr());
}

Tensors run_on(const Queue& queue, const Tensors& inputs, const Body& body) {
  Tensors there;
  for (const at::Tensor& tensor : inputs)
    there.push_back(tensor.to(device_of(queue), /*non_blocking=*/false, /*copy=*/true));
  body(there, queue);
  for (at::Tensor& tensor : there) tensor = tensor.cpu();
  return there;
}

// All tensors after the kernels; limits are relative to the largest number of each.
void expect_like_the_host(const Tensors& inputs, const Body& body) {
  const Tensors host = run_on(Queue{}, inputs, body), found = run_on(gpu_queue(), inputs, body),
                again = run_on(gpu_queue(), inputs, body);
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i].view(at::kByte), again[i].view(at::kByte))) << i << " differs in a second run";
    const at::Tensor wanted = host[i].to(at::kDouble);
    const double limit = host[i].scalar_type() == at::kBFloat16 ? 8e-3 : 1e-5;
    EXPECT_LE((found[i].to(at::kDouble) - wanted).abs().max().item<double>(), limit * wanted.abs().max().item<double>())
        << "tensor " << i;
  }
}

template <typename N>
class StreamKernels : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
};
using Types = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(StreamKernels, Types);

TYPED_TEST(StreamKernels, PredictAndCorrect) {
  using N = TypeParam;
  for (const auto& [A, D] : std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 2048}, {3, 37}}) {
    const Tensors inputs = {at::randn({A, D}) * 40,      (at::rand({D}) + 0.5) / D,
                            at::randn({A * A, A}) * 0.3, at::randn({A, A}) * 0.3,
                            at::rand({D}) + 0.5,         at::randn({T, A, D}),
                            at::empty({T, D}).zero_(),   at::randn({T, D}).to(kType<N>),
                            at::zeros({T, D}, kType<N>), at::randn({T, D})};
    expect_like_the_host(inputs, [&, A = A, D = D](const Tensors& t, const Queue& queue) {
      AltUpStep step{data<float>(t[0]), data<float>(t[1]), data<float>(t[2]), A, D, 1, 1e-6f};
      const PredictStream predict{step, data<float>(t[5]), data<float>(t[6])};
      launch(predict, predict.shape(T), queue);
      step.coefficients_XA = data<float>(t[3]);
      const CorrectStream<N> correct{
          step, data<float>(t[6]), data<N>(t[7]), data<float>(t[5]), data<float>(t[4]), data<N>(t[8])};
      launch(correct, correct.shape(T), queue);
      const CorrectStream<N, float> of_sum{step,    data<float>(t[6]), data<float>(t[9]), data<float>(t[5]),
                                           nullptr, data<N>(t[8])};
      launch(of_sum, of_sum.shape(T), queue);
    });
  }
}

TYPED_TEST(StreamKernels, SpreadJoinAndLaurel) {
  using N = TypeParam;
  for (const auto& [A, D] : std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 2048}, {3, 37}}) {
    const Tensors inputs = {at::randn({T, D}),    at::randn({T, (A - 1) * D}).to(kType<N>),
                            at::zeros({T, A, D}), at::zeros({T, D}),
                            at::rand({D}) + 0.5,  at::rand({D}) + 0.5};
    expect_like_the_host(inputs, [&, A = A, D = D](const Tensors& t, const Queue& queue) {
      StreamEnds<N> ends{{}, (A - 1) * D, A, D};
      for (std::int64_t a = 1; a < A; ++a) ends.products[a - 1] = data<N>(t[1]) + (a - 1) * D;
      const SpreadStream<N> spread{ends, data<float>(t[0]), data<float>(t[2])};
      launch(spread, spread.shape(T), queue);
      const JoinStream<N> join{ends, data<float>(t[2]), data<float>(t[3])};
      launch(join, join.shape(T), queue);
      const AddLaurel<N> laurel{data<float>(t[0]), data<N>(t[1]), data<float>(t[4]), data<float>(t[5]), D, 1e-6f};
      launch(laurel, laurel.shape(T), queue);
    });
  }
}

TYPED_TEST(StreamKernels, VectorsByLayer) {
  using N = TypeParam;
  for (const auto& [P, D] : std::vector<std::pair<std::int64_t, std::int64_t>>{{256, 2048}, {12, 37}}) {
    constexpr std::int64_t kLayers = 11, kRows = 20;
    const Tensors inputs = {at::randn({T, kLayers * P}).to(kType<N>),
                            at::rand({P}) + 0.5,
                            at::randn({kRows, kLayers * P}).to(kType<N>),
                            at::tensor({0, 19, 5, 6, 25, 7, 7}, at::kInt),
                            at::zeros({T, kLayers * P}),
                            at::randn({T, P}).to(kType<N>),
                            at::zeros({T, P}, kType<N>),
                            at::randn({T, D}).to(kType<N>),
                            at::rand({D}) + 0.5,
                            at::randn({T, 3, D})};
    expect_like_the_host(inputs, [&, P = P, D = D](const Tensors& t, const Queue& queue) {
      const PerLayerVectors<N> vectors{data<N>(t[0]),
                                       data<float>(t[1]),
                                       data<N>(t[2]),
                                       data<std::int32_t>(t[3]),
                                       data<float>(t[4]),
                                       kLayers,
                                       P,
                                       0,
                                       kRows,
                                       kRows,
                                       0.1f,
                                       4.0f,
                                       1e-6f};
      launch(vectors, vectors.shape(T), queue);
      const GateVectors<N> gates{data<N>(t[5]), data<float>(t[4]) + 2 * P, data<N>(t[6]), T, P,
                                 kLayers * P,   Activation::kGeluTanh};
      start(gates, queue);
      const AddNormed<N> sum{data<N>(t[7]), data<float>(t[8]), data<float>(t[9]) + D, D, 2, 3 * D, 1e-6f, 0.7f};
      launch(sum, sum.shape(T), queue);
    });
  }
}

TYPED_TEST(StreamKernels, SparseGates) {
  using N = TypeParam;
  for (const std::int64_t F : {16384, 37}) {
    const Tensors inputs = {at::randn({T, 2 * F}).to(kType<N>), at::zeros({T, 2}, at::kDouble),
                            at::zeros({T, F}, kType<N>)};
    expect_like_the_host(inputs, [&](const Tensors& t, const Queue& queue) {
      const SumGates<N> sums{data<N>(t[0]), data<double>(t[1]), F};
      launch(sums, sums.shape(T), queue);
      const SparseGate<N> gates{data<N>(t[0]), data<double>(t[1]),   data<N>(t[2]), F, static_cast<double>(F),
                                1.6,           Activation::kGeluTanh};
      launch(gates, gates.shape(T), queue);
    });
  }
}

}  // namespace magister::gpu::stream_kernels_test
