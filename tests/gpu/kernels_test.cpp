// Every kernel on the GPU against its emulation on the host, which runs the same source thread by thread on the same
// inputs. Bits are equal where the arithmetic has one order, else within limits: a GPU fuses multiply and add where the
// compiler here does not, has its own expf, and its tensor cores add in their own order. That a row's bits do not
// depend on its neighbours is tested on the GPU itself.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "engine/gpu/head_kernel.h"
#include "engine/gpu/sample_kernel.h"
#include "engine/gpu/wanted_kernel.h"
#include "gpu/both_queues.h"
#include "gpu/gpu_under_test.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/embed_kernel.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/gather_kernel.h"
#include "model/gpu/grouped_attention.h"
#include "model/gpu/head_norm_kernels.h"
#include "model/gpu/head_steps_kernel.h"
#include "model/paged_cache.h"
#include "model/stored_weight.h"
#include "parallel/gpu/peer_sum_kernel.h"

namespace magister::gpu::kernels_test {
namespace {

template <typename A>
class Elementwise : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
};
using Types = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Elementwise, Types);

TYPED_TEST(Elementwise, EmbedRowsHasEqualBits) {
  using A = TypeParam;
  for (const std::int64_t D : {1, 40, 576, 4099}) {
    const Tensors inputs = {at::randn({10, D}).to(kType<A>), at::tensor({5, 4, 14, 15, 9}, at::kInt),
                            at::full({5, D}, NAN)};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      const EmbedRows<A> kernel{data<A>(t[0]), data<std::int32_t>(t[1]), data<float>(t[2]), D, 5, 15};
      launch(kernel, kernel.shape(5), queue);
    });
    EXPECT_TRUE(at::equal(both.device[2], both.host[2])) << D;
  }
}

TYPED_TEST(Elementwise, AddRmsNorm) {
  using A = TypeParam;
  for (const bool with_delta : {false, true}) {
    for (const std::int64_t D : {33, 576, 8192}) {
      const Tensors inputs = {at::randn({7, D}), at::randn({7, D}).to(kType<A>), at::rand({D}) + 0.5,
                              at::zeros({7, D}, kType<A>)};
      const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
        const A* delta = with_delta ? data<A>(t[1]) : nullptr;
        const AddNorm<A, false> kernel{data<float>(t[0]), delta, data<float>(t[2]), data<A>(t[3]), D, 1e-5f};
        launch(kernel, kernel.shape(7), queue);
        const NormRows<A> on_delta{data<A>(t[1]), data<float>(t[2]), D, 1e-5f};
        launch(on_delta, on_delta.shape(7), queue);
      });
      expect_close<A>(both.device[1], both.host[1]);
      EXPECT_TRUE(at::equal(both.device[0], both.host[0])) << D << ": the residual stream is one addition";
      expect_close<A>(both.device[3], both.host[3]);
    }
  }
}

// Sums over shards are f32.
TEST(FloatDelta, NormsTakeAnF32Delta) {
  for (const std::int64_t D : {33, 576, 8192}) {
    const Tensors inputs = {at::randn({7, D}),   at::randn({7, D}),
                            at::rand({D}) + 0.5, at::zeros({7, D}, at::kBFloat16),
                            at::randn({7, D}),   at::zeros({7, D}, at::kBFloat16)};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      const AddRmsNorm<Bf16, float> rms{
          data<float>(t[0]), data<float>(t[1]), data<float>(t[2]), data<Bf16>(t[3]), D, 1e-5f};
      launch(rms, rms.shape(7), queue);
      const AddLayerNorm<Bf16, float> layer{
          data<float>(t[4]), data<float>(t[1]), data<float>(t[2]), data<Bf16>(t[5]), D, 1e-5f};
      launch(layer, layer.shape(7), queue);
    });
    for (const std::size_t stream : {0, 4})
      EXPECT_TRUE(at::equal(both.device[stream], both.host[stream])) << D << ": the residual stream is one addition";
    for (const std::size_t out : {3, 5}) expect_close<Bf16>(both.device[out], both.host[out]);
  }
}

TYPED_TEST(Elementwise, AddLayerNorm) {
  using A = TypeParam;
  for (const std::int64_t D : {33, 576, 8192}) {
    const Tensors inputs = {at::randn({7, D}) + 1, at::randn({7, D}).to(kType<A>), at::rand({D}) + 0.5,
                            at::zeros({7, D}, kType<A>)};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      const AddNorm<A, true> kernel{data<float>(t[0]), data<A>(t[1]), data<float>(t[2]), data<A>(t[3]), D, 1e-5f};
      launch(kernel, kernel.shape(7), queue);
    });
    EXPECT_TRUE(at::equal(both.device[0], both.host[0])) << D << ": the residual stream is one addition";
    expect_close<A>(both.device[3], both.host[3]);
  }
}

TYPED_TEST(Elementwise, NormsOverDividedHeads) {
  using A = TypeParam;
  constexpr std::int64_t T = 7, q = 3 * 80, k = 2 * 80, stride = q + 2 * k;
  const Tensors inputs = {at::randn({T, stride}).to(kType<A>), at::zeros({T, 2}), at::rand({q}) + 0.5,
                          at::rand({k}) + 0.5};
  const Both both = on_both(inputs, [](const Tensors& t, const Queue& queue) {
    const SumHeadSquares<A> sums{data<A>(t[0]), data<float>(t[1]), stride, q, q + 80, k - 80};
    launch(sums, sums.shape(T), queue);
    const NormHeads<A> norms{
        data<A>(t[0]), data<float>(t[1]), data<float>(t[2]), data<float>(t[3]), stride, q, k, 400, 240, 1e-5f};
    launch(norms, norms.shape(T), queue);
  });
  expect_close<float>(both.device[1], both.host[1]);
  expect_close<A>(both.device[0], both.host[0]);
}

TYPED_TEST(Elementwise, RotateHeads) {
  using A = TypeParam;
  constexpr std::int64_t T = 9, P = 4;
  for (const auto& [H, K, E] : std::vector<std::array<std::int64_t, 3>>{{3, 2, 16}, {5, 1, 80}, {8, 2, 128}}) {
    const at::Tensor angle = at::rand({T, E / 2}) * 6, pages = at::zeros({P, K, 48, E}, kType<A>);
    const Tensors inputs = {at::randn({T, H + 2 * K, E}).to(kType<A>),
                            at::cos(angle),
                            at::sin(angle),
                            at::randint(0, T, {T}, at::kInt),
                            at::rand({E}) + 0.5,
                            at::rand({E}) + 0.5,
                            pages,
                            pages,
                            at::randperm(P * 48, at::kLong).narrow(0, 0, T).clone()};
    for (const bool norms : {false, true}) {
      const Both both = on_both(inputs, [&, H = H, K = K, E = E](const Tensors& t, const Queue& queue) {
        const RotateHeads<A> kernel{data<A>(t[0]),
                                    data<float>(t[1]),
                                    data<float>(t[2]),
                                    data<std::int32_t>(t[3]),
                                    norms ? data<float>(t[4]) : nullptr,
                                    norms ? data<float>(t[5]) : nullptr,
                                    data<A>(t[6]),
                                    data<A>(t[7]),
                                    data<std::int64_t>(t[8]),
                                    H,
                                    K,
                                    E,
                                    E,
                                    1e-6f};
        launch(kernel, kernel.shape(T), queue);
      });
      expect_close<A>(both.device[0], both.host[0]);
      expect_close<A>(both.device[6], both.host[6]);
      EXPECT_TRUE(at::equal(both.device[7], both.host[7])) << "values are copied";
      EXPECT_TRUE(at::equal(both.device[6] != 0, both.host[6] != 0)) << "the same slots are written";
    }
  }
}

TYPED_TEST(Elementwise, RotateHeadsInSteps) {
  using A = TypeParam;
  constexpr std::int64_t T = 9, P = 4, H = 5, K = 2;
  for (const auto& [E, R] : std::vector<std::array<std::int64_t, 2>>{{18, 10}, {80, 0}, {128, 128}}) {
    const at::Tensor angle = at::rand({T, E / 2}) * 6, pages = at::zeros({P, K, 48, E}, kType<A>);
    Tensors inputs = {at::randn({T, H + 2 * K, E}).to(kType<A>),
                      at::cos(angle),
                      at::sin(angle),
                      at::randint(0, T, {T}, at::kInt),
                      pages,
                      pages,
                      at::randperm(P * 48, at::kLong).narrow(0, 0, T).clone()};
    for (int i = 0; i < 4; ++i) inputs.push_back(at::rand({E}) + 0.5);
    for (const bool after : {false, true}) {
      const Both both = on_both(inputs, [&, E = E, R = R](const Tensors& t, const Queue& queue) {
        const RotateHeads<A> heads{data<A>(t[0]),
                                   data<float>(t[1]),
                                   data<float>(t[2]),
                                   data<std::int32_t>(t[3]),
                                   data<float>(t[7]),
                                   data<float>(t[8]),
                                   data<A>(t[4]),
                                   data<A>(t[5]),
                                   data<std::int64_t>(t[6]),
                                   H,
                                   K,
                                   E,
                                   R,
                                   1e-6f};
        const float* none = nullptr;
        const RotateHeadsInSteps<A> kernel{heads,
                                           {after ? none : data<float>(t[9]), after ? none : data<float>(t[10]), after,
                                            after, 0.7f, 0.4f, 2, 1, data<std::int32_t>(t[3])}};
        launch(kernel, kernel.shape(T), queue);
      });
      for (const std::size_t of : {0, 4, 5}) expect_close<A>(both.device[of], both.host[of]);
    }
  }
}

TYPED_TEST(Elementwise, GateMultiply) {
  using A = TypeParam;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh})
    for (const std::int64_t F : {1, 21, 2048, 2104, 5000}) {
      const Tensors inputs = {(at::randn({6, 2 * F}) * 4).to(kType<A>), at::zeros({6, F}, kType<A>)};
      const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
        const GateMultiply<A> kernel{data<A>(t[0]), data<A>(t[1]), F, activation};
        launch(kernel, kernel.shape(6), queue);
      });
      expect_close<A>(both.device[1], both.host[1]);
    }
}

// One division and one rounding a number.
TYPED_TEST(Elementwise, QuantizeRowsHasEqualBits) {
  using A = TypeParam;
  if (!std::is_same_v<A, Bf16>) return;  // activations of fp8 products are bf16
  for (const std::int64_t K : {8, 520, 4096}) {
    at::Tensor x = at::randn({6, K}) * at::exp(at::randn({6, K}) * 3);
    x[4].zero_();
    const Tensors inputs = {x.to(at::kBFloat16), at::zeros({6, K}, at::kByte), at::zeros({6})};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      const QuantizeRows<Bf16> kernel{data<Bf16>(t[0]), t[1].data_ptr<std::uint8_t>(), data<float>(t[2]), K};
      launch(kernel, kernel.shape(6), queue);
    });
    EXPECT_TRUE(at::equal(both.device[1], both.host[1])) << K;
    EXPECT_TRUE(at::equal(both.device[2], both.host[2])) << K;
  }
}

TEST(Fp8, NormQuantizeAndGateQuantizeAreThePassesOneAfterTheOther) {
  at::manual_seed(6);
  for (const std::int64_t D : {16, 4096, 14336}) {
    const Tensors inputs = {at::randn({6, D}), at::randn({6, D}).to(at::kBFloat16), at::rand({D}) + 0.5,
                            (at::randn({6, 2 * D}) * 3).to(at::kBFloat16)};
    const auto fused = [&](const Tensors& t, const Queue& queue) {
      const auto byte = t[0].options().dtype(at::kByte);
      at::Tensor normed = at::empty({6, D}, t[1].options()), bytes = at::empty({6, D}, byte),
                 wanted = at::empty({6, D}, byte), scale = at::empty({6}, t[0].options()),
                 wanted_scale = at::empty({6}, t[0].options()), stream = t[0].clone();
      const AddRmsNorm<Bf16> norm{
          data<float>(stream), data<Bf16>(t[1]), data<float>(t[2]), data<Bf16>(normed), D, 1e-5f};
      launch(norm, norm.shape(6), queue);
      const QuantizeRows<Bf16> rows{data<Bf16>(normed), data<std::uint8_t>(wanted), data<float>(wanted_scale), D};
      launch(rows, rows.shape(6), queue);
      const NormQuantize<Bf16> both{data<float>(t[0]),
                                    data<Bf16>(t[1]),
                                    data<float>(t[2]),
                                    data<std::uint8_t>(bytes),
                                    data<float>(scale),
                                    D,
                                    1e-5f};
      launch(both, both.shape(6), queue);
      EXPECT_TRUE(at::equal(bytes, wanted) && at::equal(scale, wanted_scale) && at::equal(t[0], stream)) << D;
      const GateMultiply<Bf16> gate{data<Bf16>(t[3]), data<Bf16>(normed), D, Activation::kSilu};
      launch(gate, gate.shape(6), queue);
      launch(rows, rows.shape(6), queue);
      const GateQuantize gated{data<Bf16>(t[3]), data<std::uint8_t>(bytes), data<float>(scale), D, Activation::kSilu};
      launch(gated, gated.shape(6), queue);
      EXPECT_TRUE(at::equal(bytes, wanted) && at::equal(scale, wanted_scale)) << D;
    };
    on_both(inputs, fused);
  }
}

TEST(Cache, GatherKeysHasEqualBits) {
  at::manual_seed(9);
  const at::Tensor pages = at::randn({2, 40, 8, 48, 128}).to(at::kBFloat16),
                   slots = at::randint(40 * 48, {5003}, at::kLong);
  const Tensors inputs = {pages[0], pages[1], slots, at::zeros({5003, 8, 128}, at::kBFloat16),
                          at::zeros({5003, 8, 128}, at::kBFloat16)};
  const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
    const GatherKeys<Bf16> kernel{
        data<Bf16>(t[0]), data<Bf16>(t[1]), data<std::int64_t>(t[2]), data<Bf16>(t[3]), data<Bf16>(t[4]), 5003, 8, 128};
    launch(kernel, kernel.shape(), queue);
  });
  EXPECT_TRUE(at::equal(both.device[3], both.host[3]) && at::equal(both.device[4], both.host[4]));
}

class Products : public testing::TestWithParam<ProductCase> {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

// Relative to the sum of the products' sizes: tensor cores truncate addends to the sum's last bit.
// Up to eight rows: RingProduct; up to 64 DecodeProduct, and WideProduct above.
TEST_P(Products, DecodeProduct) {
  const ProductCase& c = GetParam();
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({256, c.K}).to(at::kBFloat16), bias = at::randn({c.N});
  const at::Tensor size = at::linear(x.to(at::kDouble).abs(), s.value_NK.abs(), bias.to(at::kDouble).abs());
  const at::Tensor all = product(s, c, x, bias, true, gpu_queue()), host = product(s, c, x.narrow(0, 0, 9), bias);
  EXPECT_LE(((all.narrow(0, 0, 9) - host).to(at::kDouble).abs() / size.narrow(0, 0, 9)).max().item<double>(), 3e-6);
  const at::Tensor wanted = at::linear(x.to(at::kDouble), s.value_NK, bias.to(at::kDouble));
  EXPECT_LE(((all.to(at::kDouble) - wanted).abs() / size).max().item<double>(), 3e-6);
  for (const int M : {1, 5, 13, 20, 64, 65, 128, 201}) {
    EXPECT_TRUE(at::equal(product(s, c, x.narrow(0, 0, M), bias, true, gpu_queue()), all.narrow(0, 0, M)))
        << M << " rows";
  }
  const at::Tensor one = product(s, c, x.narrow(0, 41, 1).clone(), bias, false, gpu_queue());
  EXPECT_TRUE(at::equal(one[0], all[41].to(at::kBFloat16)));
}

TEST_P(Products, DequantizeHasEqualBits) {
  const ProductCase& c = GetParam();
  if (c.bits == 16) return;  // these have no codes
  const Stored s = stored_weight(c), there = s.to(device_of(gpu_queue()));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor host = at::full({c.N, c.K}, NAN, type), device = host.to(device_of(gpu_queue()), false, true);
    dequantize(s.weight, c.bits, c.group, host.data_ptr(), type == at::kFloat, Queue{});
    dequantize(there.weight, c.bits, c.group, device.data_ptr(), type == at::kFloat, gpu_queue());
    EXPECT_TRUE(at::equal(device.cpu(), host)) << c10::toString(type);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Products, testing::ValuesIn(product_cases()), product_name);

// WideProduct: blocks of 128 rows, and from 33 rows on of 128 outputs.
TEST(Product, OfManyRowsAndOutputs) {
  at::manual_seed(9);
  const ProductCase c{16, 0, 16900, 1032};
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({256, c.K}).to(at::kBFloat16), all = product(s, c, x, {}, true, gpu_queue());
  for (const int M : {1, 32, 33, 64, 129}) {
    EXPECT_TRUE(at::equal(product(s, c, x.narrow(0, 0, M), {}, true, gpu_queue()), all.narrow(0, 0, M))) << M;
  }
}

// Blocks of 32 outputs, chosen from 4,224 outputs on, and NaN in the other rows.
TEST(Product, WideBlocksAndStrangeNeighbours) {
  at::manual_seed(8);
  const ProductCase c{4, 32, 4256, 192};
  const Stored s = stored_weight(c);
  at::Tensor x = at::randn({3, c.K}).to(at::kBFloat16);
  const at::Tensor alone = product(s, c, x.narrow(0, 1, 1).clone(), {}, true, gpu_queue());
  EXPECT_TRUE(at::equal(product(s, c, x, {}, true, gpu_queue()).narrow(0, 1, 1), alone));
  x[0].fill_(INFINITY);
  x[2].fill_(NAN);
  EXPECT_TRUE(at::equal(product(s, c, x, {}, true, gpu_queue()).narrow(0, 1, 1), alone));
}

class Attention : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override { at::manual_seed(11); }

  template <typename A>
  void check(double limit) {
    const AttentionCase& c = GetParam();
    const PagedCache<A> cache(c, {1, 48, 193, 401}, 10);
    const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3},
                                    visible_R = {1, 48, 47, 193, 401, 192, 97, 0};
    const auto R = static_cast<std::int64_t>(sequence_R.size());
    const at::Tensor qkv = at::randn({R, (c.H + 2 * c.K) * c.E}).to(PagedCache<A>::kType);
    const auto attend = [&](const at::Tensor& rows, const std::vector<std::int32_t>& sequences,
                            const std::vector<std::int32_t>& visible, int C, const Queue& queue) {
      return cache.attend(rows, sequences, visible, C, queue, plain_paged_attention<A>);
    };
    const at::Tensor host = attend(qkv, sequence_R, visible_R, attention_chunks(401), Queue{});
    const at::Tensor device = attend(qkv, sequence_R, visible_R, attention_chunks(401), gpu_queue());
    EXPECT_LE(largest_difference(device, host), limit * host.to(at::kDouble).abs().max().template item<double>());
    EXPECT_TRUE(at::equal(device, attend(qkv, sequence_R, visible_R, attention_chunks(401), gpu_queue())))
        << "a second run";
    for (std::int64_t r = 0; r + 1 < R; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const int more = attention_chunks(visible_R[i]) + 1;
      const at::Tensor alone = attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]}, more, gpu_queue());
      EXPECT_TRUE(at::equal(alone[0], device[r])) << r;
    }
  }
};
TEST_P(Attention, PagedAttentionAndCombineChunksOfFloats) { check<float>(4e-6); }
TEST_P(Attention, PagedAttentionAndCombineChunksOfBf16) { check<Bf16>(8e-3); }
INSTANTIATE_TEST_SUITE_P(All, Attention, testing::ValuesIn(attention_cases()), attention_name);

// Candidates, maximum and target have equal bits; sums over the row have the GPU's expf.
TEST(Head, ReduceLogits) {
  at::manual_seed(13);
  for (const auto& [v, kept] :
       std::vector<std::array<std::int64_t, 2>>{{1, 0}, {37, 5}, {1024, 64}, {2500, 1000}, {32003, 70}}) {
    constexpr std::int64_t R = 5, begin = 11;
    at::Tensor logits = at::randn({R, v}) * 5;
    logits[1] = at::arange(v, at::kFloat) * 1e-3;            // every column enters
    logits[2].fill_(0.25);                                   // ties: the lower ids
    logits[3].narrow(0, v / 2, v - v / 2).fill_(-INFINITY);  // padding of a vocabulary
    const std::int64_t W = ReduceLogits::kNumbers + kept;
    const Tensors inputs = {logits, at::tensor({11, 10 + static_cast<int>(v), -1, 12, 5}, at::kInt),
                            at::zeros({R, W}, at::kLong)};
    const Both both = on_both(inputs, [&, v = v, kept = kept](const Tensors& t, const Queue& queue) {
      const ReduceLogits kernel{data<float>(t[0]),     data<std::int32_t>(t[1]), data<std::int64_t>(t[2]), v, begin, W,
                                static_cast<int>(kept)};
      launch(kernel, kernel.shape(R), queue);
    });
    const at::Tensor &device = both.device[2], &host = both.host[2];
    for (const std::int64_t exact : {0, 3})
      EXPECT_TRUE(at::equal(device.select(1, exact), host.select(1, exact))) << v << " " << exact;
    EXPECT_TRUE(at::equal(device.narrow(1, ReduceLogits::kNumbers, kept), host.narrow(1, ReduceLogits::kNumbers, kept)))
        << v;
    for (const std::int64_t sum : {1, 2}) {
      const at::Tensor a = device.select(1, sum).contiguous().view(at::kDouble),
                       b = host.select(1, sum).contiguous().view(at::kDouble);
      EXPECT_TRUE(at::equal(a.isnan(), b.isnan())) << v << " " << sum;  // rows with an infinite logit have no sum
      EXPECT_LE(((a - b).abs() / (b.abs() + 1e-3)).nan_to_num(0).max().item<double>(), 1e-5) << v << " " << sum;
    }
  }
}

// Maximum and found logits have equal bits; sums have the GPU's expf.
TEST(Head, WantedLogits) {
  at::manual_seed(14);
  for (const std::int64_t v : {1, 37, 1024, 32003, 128256}) {
    constexpr std::int64_t R = 4, begin = 11;
    at::Tensor logits = at::randn({R, v}) * 4;
    logits[2][v / 2] = INFINITY;
    const auto last = static_cast<int>(begin + v - 1);
    const Tensors inputs = {logits, at::tensor({0, 2, 2, 3, 7}, at::kInt),
                            at::tensor({11, last, 11, 10, last + 1, last, 12}, at::kInt),
                            at::zeros({R, 2}, at::kDouble), at::zeros({7}, at::kDouble)};
    const Both both = on_both(inputs, [&, v = v](const Tensors& t, const Queue& queue) {
      const WantedLogits kernel{data<float>(t[0]),
                                data<std::int32_t>(t[1]),
                                data<std::int32_t>(t[2]),
                                data<double>(t[3]),
                                data<double>(t[4]),
                                v,
                                begin};
      launch(kernel, kernel.shape(R), queue);
    });
    EXPECT_TRUE(at::equal(both.device[4], both.host[4])) << v;
    EXPECT_TRUE(at::equal(both.device[3].select(1, 0), both.host[3].select(1, 0))) << v;
    const at::Tensor a = both.device[3].select(1, 1), b = both.host[3].select(1, 1);
    EXPECT_TRUE(at::equal(a.isnan(), b.isnan())) << v;
    EXPECT_LE(((a - b).abs() / (b.abs() + 1e-3)).nan_to_num(0).max().item<double>(), 1e-6) << v;
  }
}

// The same tokens; expf of the one and the other could part them only where a uniform falls within 1e-7 of a boundary.
TEST(Sampler, SampleRows) {
  at::manual_seed(17);
  struct Draw {
    double temperature;
    int top_k;
    double top_p, min_p;
  };
  const std::vector<Draw> draws = {{0, 0, 1, 0},     {1, 0, 1, 0},    {0.7, 40, 1, 0},
                                   {1.3, 0, 0.9, 0}, {1, 50, 0.8, 0}, {1, 0, 1, 0.05}};
  for (const std::int64_t V : {5, 1003, 20011}) {
    constexpr std::int64_t R = 7;
    at::Tensor logits = at::randn({R, V}) * 3;
    logits[3] = at::round(logits[3] * 2) / 2;  // many equal ones
    const Tensors inputs = {logits, at::rand({R}, at::kDouble), at::full({R}, -7, at::kInt), at::zeros({R})};
    for (const Draw& draw : draws) {
      const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
        const SampleRows kernel{data<float>(t[0]),  V,
                                data<double>(t[1]), data<std::int32_t>(t[2]),
                                data<float>(t[3]),  static_cast<int>(V),
                                draw.temperature,   draw.top_k,
                                draw.top_p,         draw.min_p};
        launch(kernel, kernel.shape(R), queue);
      });
      EXPECT_TRUE(at::equal(both.device[2], both.host[2]))
          << V << " " << draw.temperature << " " << draw.top_k << " " << draw.top_p;
      EXPECT_LE(largest_difference(both.device[3], both.host[3]), 1e-5) << V;
    }
  }
}

// The middle one of three shards; the others' numbers of two turns have arrived before. The sums have three addends, so
// that another order gives other bits; their places in the peers' memory are compared, too. Sums over several GPUs at
// once are tested on the host in parallel/peer_sums.
TEST(Peers, PeerSumHasEqualBits) {
  constexpr PeerMemoryLayout kLayout{3};
  const std::int64_t count = 2 * kPeerBlockNumbers + 7;
  at::Tensor received = at::randn({kLayout.words()});
  auto* const words = reinterpret_cast<std::uint32_t*>(received.data_ptr<float>());
  std::fill(words + kLayout.flag(0, 0), words + kLayout.turn(0), 2u);
  std::fill(words + kLayout.turn(0), words + kLayout.words(), 0u);
  const at::Tensor zeros = at::zeros({kLayout.words()});
  const Tensors inputs = {at::randn({2, count + 1}), zeros, received, zeros, at::zeros({2 * kMostPeers}, at::kInt)};
  const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
    for (const std::int64_t turn : {0, 1}) {
      PeerSum kernel{};
      kernel.numbers = data<float>(t[0]) + turn * (count + 1);
      kernel.count = count;
      for (std::size_t shard = 0; shard < 3; ++shard) kernel.memory[shard] = data<float>(t[1 + shard]);
      kernel.flags = reinterpret_cast<PeerFlags*>(t[4].data_ptr());
      kernel.patience = 10'000'000'000;
      kernel.layout = kLayout;
      kernel.own = 1;
      start(kernel, queue);
    }
  });
  for (std::size_t i = 0; i < inputs.size(); ++i)
    EXPECT_TRUE(at::equal(both.device[i].view(at::kInt), both.host[i].view(at::kInt))) << "tensor " << i;
  const auto from = [&](int shard) {  // the first block's numbers of the first turn, in the second half
    return received.narrow(0, kLayout.numbers(1, 0, shard), kPeerBlockNumbers);
  };
  const at::Tensor mine = inputs[0].view({-1}).narrow(0, 0, kPeerBlockNumbers);
  EXPECT_TRUE(at::equal(both.device[0].view({-1}).narrow(0, 0, kPeerBlockNumbers), from(0) + mine + from(2)));
  EXPECT_TRUE(at::equal(both.device[3].narrow(0, kLayout.numbers(1, 0, 1), kPeerBlockNumbers), mine));
}

}  // namespace
}  // namespace magister::gpu::kernels_test
