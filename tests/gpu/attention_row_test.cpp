// Kernels on rows of attention on the GPU against their emulation on the host, see kernels_test.cpp: keys that are
// values, too, gates of outputs, and values of another size than keys.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "gpu/both_queues.h"
#include "model/gpu/attention_row_kernels.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gather_kernel.h"

namespace magister::gpu::kernels_test {
namespace {

using Types = testing::Types<float, Bf16>;

template <typename A>
class AttentionRows : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
};
TYPED_TEST_SUITE(AttentionRows, Types);

TYPED_TEST(AttentionRows, RepeatKeysHasEqualBits) {
  using A = TypeParam;
  for (const auto& [given, repeated] : {std::pair{96, 32}, {90, 30}, {2560, 512}}) {
    const Tensors inputs = {at::randn({7, given}).to(kType<A>), at::zeros({7, given + repeated}, kType<A>)};
    const Both both = on_both(inputs, [&, given = given, repeated = repeated](const Tensors& t, const Queue& queue) {
      const RepeatKeys<A> kernel{data<A>(t[0]), data<A>(t[1]), given, repeated};
      launch(kernel, kernel.shape(7), queue);
    });
    EXPECT_TRUE(at::equal(both.device[1], both.host[1])) << given;
  }
}

TYPED_TEST(AttentionRows, GateOutputs) {
  using A = TypeParam;
  for (const auto& [H, V] : {std::pair{3, 16}, {5, 10}, {20, 128}}) {
    for (const std::int64_t each : {1, V}) {
      const Tensors inputs = {at::randn({7, H * V / each}).to(kType<A>) * 5, at::randn({7, H * V}).to(kType<A>)};
      for (const bool softplus : {false, true}) {
        const Both both = on_both(inputs, [&, H = H, V = V](const Tensors& t, const Queue& queue) {
          const GateOutputs<A> kernel{data<A>(t[0]), data<A>(t[1]), H * V, each, softplus};
          launch(kernel, kernel.shape(7), queue);
        });
        expect_close<A>(both.device[1], both.host[1]);
      }
    }
  }
}

// Keys of 24 numbers with values of 16 or 6: rotated, placed in pages and gathered again.
TYPED_TEST(AttentionRows, RotateHeadsAndGatherKeysWithNarrowValues) {
  using A = TypeParam;
  constexpr std::int64_t T = 9, H = 3, K = 2, E = 24, R = 8, P = 4;
  for (const std::int64_t V : {16, 6}) {
    const at::Tensor angle = at::rand({T, R / 2}) * 6, slots = at::randperm(P * 48, at::kLong).narrow(0, 0, T).clone();
    const Tensors inputs = {at::randn({T, (H + K) * E + K * V}).to(kType<A>),
                            at::cos(angle),
                            at::sin(angle),
                            at::randint(0, T, {T}, at::kInt),
                            at::zeros({P, K, 48, E}, kType<A>),
                            at::zeros({P, K, 48, V}, kType<A>),
                            slots,
                            at::zeros({T, K, E}, kType<A>),
                            at::zeros({T, K, V}, kType<A>)};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      const RotateHeads<A> rotate{.qkv_TQ = data<A>(t[0]),
                                  .cos_PR2 = data<float>(t[1]),
                                  .sin_PR2 = data<float>(t[2]),
                                  .rows_T = data<std::int32_t>(t[3]),
                                  .q_norm_E = nullptr,
                                  .k_norm_E = nullptr,
                                  .key_pages = data<A>(t[4]),
                                  .value_pages = data<A>(t[5]),
                                  .slots_T = data<std::int64_t>(t[6]),
                                  .H = H,
                                  .K = K,
                                  .E = E,
                                  .R = R,
                                  .eps = 1e-6f,
                                  .V = V};
      launch(rotate, rotate.shape(T), queue);
      if (V % 8 != 0) return;
      const GatherKeys<A> gather{.key_pages = data<A>(t[4]),
                                 .value_pages = data<A>(t[5]),
                                 .slots_N = data<std::int64_t>(t[6]),
                                 .keys_NKE = data<A>(t[7]),
                                 .values_NKV = data<A>(t[8]),
                                 .N = T,
                                 .K = K,
                                 .E = E,
                                 .V = static_cast<std::uint32_t>(V)};
      launch(gather, gather.shape(), queue);
    });
    expect_close<A>(both.device[4], both.host[4]);
    EXPECT_TRUE(at::equal(both.device[5], both.host[5])) << "values are copied";
    if (V % 8 != 0) continue;
    EXPECT_TRUE(
        at::equal(both.device[8], both.device[5].transpose(1, 2).reshape({P * 48, K, V}).index_select(0, slots)));
  }
}

}  // namespace
}  // namespace magister::gpu::kernels_test
