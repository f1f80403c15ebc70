// Kernels on rows of attention on the GPU against their emulation on the host: keys that are values, too, gates of
// outputs, and values of another size than keys.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "model/gpu/attention_row_kernels.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gather_kernel.h"

namespace magister::gpu {
namespace attention_row_test {

template <typename A>
A* data(const at::Tensor& tensor) {
  return static_cast<A*>(tensor.data_ptr());
}

using Body = std::function<void(const std::vector<at::Tensor>&, const Queue&)>;
// All tensors after the body on a queue's device, on the CPU again.
std::vector<at::Tensor> after(const Queue& queue, const std::vector<at::Tensor>& inputs, const Body& body) {
  std::vector<at::Tensor> there;
  for (const at::Tensor& tensor : inputs)
    there.push_back(tensor.to(device_of(queue), /*non_blocking=*/false, /*copy=*/true));
  body(there, queue);
  for (at::Tensor& tensor : there) tensor = tensor.cpu();
  return there;
}

template <typename A>
class AttentionRows : public testing::Test {
 protected:
  static constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
  void SetUp() override { at::manual_seed(5); }
};
using Types = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(AttentionRows, Types);

TYPED_TEST(AttentionRows, RepeatKeysHasEqualBits) {
  using A = TypeParam;
  for (const auto& [given, repeated] : {std::pair{96, 32}, {90, 30}, {2560, 512}}) {
    const std::vector<at::Tensor> inputs = {at::randn({7, given}).to(this->kType),
                                            at::zeros({7, given + repeated}, this->kType)};
    const Body body = [&, given = given, repeated = repeated](const auto& t, const Queue& queue) {
      const RepeatKeys<A> kernel{data<A>(t[0]), data<A>(t[1]), given, repeated};
      launch(kernel, kernel.shape(7), queue);
    };
    EXPECT_TRUE(at::equal(after(gpu_queue(), inputs, body)[1], after(Queue{}, inputs, body)[1])) << given;
  }
}

TYPED_TEST(AttentionRows, GateOutputs) {
  using A = TypeParam;
  for (const auto& [H, V] : {std::pair{3, 16}, {5, 10}, {20, 128}}) {
    for (const std::int64_t each : {1, V}) {
      const std::vector<at::Tensor> inputs = {at::randn({7, H * V / each}).to(this->kType) * 5,
                                              at::randn({7, H * V}).to(this->kType)};
      for (const bool softplus : {false, true}) {
        const Body body = [&, H = H, V = V](const auto& t, const Queue& queue) {
          const GateOutputs<A> kernel{data<A>(t[0]), data<A>(t[1]), H * V, each, softplus};
          launch(kernel, kernel.shape(7), queue);
        };
        const at::Tensor device = after(gpu_queue(), inputs, body)[1], host = after(Queue{}, inputs, body)[1];
        EXPECT_TRUE(at::allclose(device.to(at::kFloat), host.to(at::kFloat), std::is_same_v<A, float> ? 4e-6 : 8e-3));
      }
    }
  }
}

// Keys of 24 numbers with values of 16 or 6: rotated, placed in pages and gathered again.
TYPED_TEST(AttentionRows, RotateHeadsAndGatherKeysWithNarrowValues) {
  using A = TypeParam;
  constexpr std::int64_t T = 9, H = 3, K = 2, E = 24, R = 8, P = 4;
  for (const std::int64_t V : {16, 6}) {
    const at::Tensor angle = at::rand({T, R / 2}) * 6;
    const std::vector<at::Tensor> inputs = {at::randn({T, (H + K) * E + K * V}).to(this->kType),
                                            at::cos(angle),
                                            at::sin(angle),
                                            at::randint(0, T, {T}, at::kInt),
                                            at::zeros({P, K, 48, E}, this->kType),
                                            at::zeros({P, K, 48, V}, this->kType),
                                            at::randperm(P * 48, at::kLong).narrow(0, 0, T).clone(),
                                            at::zeros({T, K, E}, this->kType),
                                            at::zeros({T, K, V}, this->kType)};
    const Body body = [&](const auto& t, const Queue& queue) {
      const RotateHeads<A> rotate{data<A>(t[0]),
                                  data<float>(t[1]),
                                  data<float>(t[2]),
                                  data<std::int32_t>(t[3]),
                                  nullptr,
                                  nullptr,
                                  data<A>(t[4]),
                                  data<A>(t[5]),
                                  data<std::int64_t>(t[6]),
                                  H,
                                  K,
                                  E,
                                  R,
                                  1e-6f,
                                  V};
      launch(rotate, rotate.shape(T), queue);
      if (V % 8 != 0) return;
      const GatherKeys<A> gather{data<A>(t[4]),
                                 data<A>(t[5]),
                                 data<std::int64_t>(t[6]),
                                 data<A>(t[7]),
                                 data<A>(t[8]),
                                 T,
                                 K,
                                 E,
                                 static_cast<std::uint32_t>(V)};
      launch(gather, gather.shape(), queue);
    };
    const auto device = after(gpu_queue(), inputs, body), host = after(Queue{}, inputs, body);
    EXPECT_TRUE(at::allclose(device[4].to(at::kFloat), host[4].to(at::kFloat), 8e-3, 1e-5));
    EXPECT_TRUE(at::equal(device[5], host[5])) << "values are copied";
    EXPECT_TRUE(at::equal(device[8], host[8]));
    if (V % 8 != 0) continue;
    EXPECT_TRUE(at::equal(device[8], device[5].transpose(1, 2).reshape({P * 48, K, V}).index_select(0, inputs[6])));
  }
}

}  // namespace attention_row_test
}  // namespace magister::gpu
