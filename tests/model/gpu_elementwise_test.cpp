// Kernels between the products against plain ATen, on the host and, if there is one, on the GPU: the same source both
// times.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "magister/device/launch.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/embed_kernel.h"
#include "model/gpu/fp8_kernel.h"

namespace magister::gpu {
namespace gpu_elementwise_test {

template <typename A>
constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
template <typename A>
A* data(at::Tensor& tensor) {
  return static_cast<A*>(tensor.data_ptr());
}

at::Tensor wave(at::IntArrayRef sizes, double step) {
  const at::Tensor flat = at::arange(c10::multiply_integers(sizes), at::kDouble);
  return (at::sin(flat * step) * 2).to(at::kFloat).view(sizes);
}

// Relative to the largest value: f32 sums in another order; bf16 keeps 8 bits.
template <typename A>
void expect_close(const at::Tensor& got, const at::Tensor& wanted) {
  const double limit = std::is_same_v<A, float> ? 2e-6 : 8e-3;
  EXPECT_LE((got.to(at::kFloat) - wanted).abs().max().item<double>(), limit * wanted.abs().max().item<double>());
}

template <typename A>
void residual_and_norm(std::int64_t D) {
  const std::int64_t T = 3;
  at::Tensor hidden = wave({T, D}, 0.9), delta = wave({T, D}, 1.7).to(kType<A>), weight = wave({D}, 0.3);
  at::Tensor out = at::empty({T, D}, kType<A>);
  const at::Tensor sum = hidden + delta.to(at::kFloat);
  const at::Tensor wanted = weight * (sum * at::rsqrt(sum.pow(2).mean(-1, true) + 1e-5));
  AddRmsNorm<A> kernel{hidden.data_ptr<float>(), data<A>(delta), weight.data_ptr<float>(), data<A>(out), D, 1e-5f};
  launch(kernel, kernel.shape(T), Queue{});
  EXPECT_TRUE(at::equal(hidden, sum));
  expect_close<A>(out, wanted);
  kernel.delta_TD = nullptr;  // the first norm of a model
  launch(kernel, kernel.shape(T), Queue{});
  EXPECT_TRUE(at::equal(hidden, sum));
  expect_close<A>(out, wanted);
  kernel.weight_D = nullptr;  // a block without a norm on its input
  launch(kernel, kernel.shape(T), Queue{});
  EXPECT_TRUE(at::equal(out, sum.to(kType<A>)));
}

// A sum over shards joins the stream as it is, not rounded to the activations' type.
TEST(FloatDelta, JoinsTheResidualStreamAsItIs) {
  for (const std::int64_t D : {33, 64, 576}) {
    const std::int64_t T = 3;
    at::Tensor hidden = wave({T, D}, 0.9), delta = wave({T, D}, 1.7), weight = wave({D}, 0.3);
    const at::Tensor sum = hidden + delta, centred = sum - sum.mean(-1, true);
    ASSERT_FALSE(at::equal(sum, hidden + delta.to(at::kBFloat16).to(at::kFloat)));
    at::Tensor out = at::empty({T, D}, at::kBFloat16), stream = hidden.clone();
    const AddRmsNorm<Bf16, float> rms{
        stream.data_ptr<float>(), delta.data_ptr<float>(), weight.data_ptr<float>(), data<Bf16>(out), D, 1e-5f};
    launch(rms, rms.shape(T), Queue{});
    EXPECT_TRUE(at::equal(stream, sum));
    expect_close<Bf16>(out, weight * (sum * at::rsqrt(sum.pow(2).mean(-1, true) + 1e-5)));
    const at::Tensor normed = out.clone();
    stream.copy_(hidden);
    const AddLayerNorm<Bf16, float> layer{
        stream.data_ptr<float>(), delta.data_ptr<float>(), weight.data_ptr<float>(), data<Bf16>(out), D, 1e-5f};
    launch(layer, layer.shape(T), Queue{});
    EXPECT_TRUE(at::equal(stream, sum));
    expect_close<Bf16>(out, weight * (centred * at::rsqrt(centred.pow(2).mean(-1, true) + 1e-5)));
    if (D % 8 != 0) continue;
    stream.copy_(hidden);
    at::Tensor bytes = at::empty({T, D}, at::kByte), scale = at::empty({T}, at::kFloat);
    const NormQuantize<float> fused{stream.data_ptr<float>(),
                                    delta.data_ptr<float>(),
                                    weight.data_ptr<float>(),
                                    bytes.data_ptr<std::uint8_t>(),
                                    scale.data_ptr<float>(),
                                    D,
                                    1e-5f};
    launch(fused, fused.shape(T), Queue{});
    EXPECT_TRUE(at::equal(stream, sum));
    const at::Tensor stands_for = bytes.view(at::kFloat8_e4m3fn).to(at::kFloat) * scale.unsqueeze(1);
    EXPECT_LE((stands_for - normed.to(at::kFloat)).abs().max().item<double>(),
              0.04 * normed.abs().max().item<double>());
  }
}

template <typename A>
void residual_and_layer_norm(std::int64_t D) {
  const std::int64_t T = 3;
  at::Tensor hidden = wave({T, D}, 0.9) + 2, delta = wave({T, D}, 1.7).to(kType<A>), weight = wave({D}, 0.3);
  at::Tensor out = at::empty({T, D}, kType<A>);
  const at::Tensor sum = hidden + delta.to(at::kFloat), centred = sum - sum.mean(-1, true);
  const AddLayerNorm<A> kernel{
      hidden.data_ptr<float>(), data<A>(delta), weight.data_ptr<float>(), data<A>(out), D, 1e-5f};
  launch(kernel, kernel.shape(T), Queue{});
  EXPECT_TRUE(at::equal(hidden, sum));
  expect_close<A>(out, weight * (centred * at::rsqrt(centred.pow(2).mean(-1, true) + 1e-5)));
}

template <typename A>
class Elementwise : public testing::Test {};
using Types = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Elementwise, Types);

TYPED_TEST(Elementwise, EmbeddingRowsOfThisShard) {
  for (const std::int64_t D : {40, 33, 2600}) {  // in eights, number by number, more than a turn of the threads
    at::Tensor table = wave({10, D}, 0.7).to(kType<TypeParam>), hidden = at::full({4, D}, -1.0f);
    at::Tensor ids = at::tensor({5, 4, 14, 15}, at::kInt);
    const EmbedRows<TypeParam> kernel{
        data<TypeParam>(table), ids.data_ptr<std::int32_t>(), hidden.data_ptr<float>(), D, 5, 15, 1.5f};
    launch(kernel, kernel.shape(4), Queue{});
    EXPECT_TRUE(at::equal(hidden[0], table[0].to(at::kFloat) * 1.5)) << D;
    EXPECT_TRUE(at::equal(hidden[2], table[9].to(at::kFloat) * 1.5)) << D;
    EXPECT_TRUE(at::equal(hidden[1], at::zeros({D}))) << D;
    EXPECT_TRUE(at::equal(hidden[3], at::zeros({D}))) << D;
  }
}

TYPED_TEST(Elementwise, ResidualAndNorm) { residual_and_norm<TypeParam>(576); }
TYPED_TEST(Elementwise, ResidualAndNormOfWideRows) {
  residual_and_norm<TypeParam>(2600);
}  // more than a turn of the threads
TYPED_TEST(Elementwise, ResidualAndNormNumberByNumber) { residual_and_norm<TypeParam>(574); }  // rows off 16 bytes

TYPED_TEST(Elementwise, LayerNorms) {
  for (const std::int64_t D : {1, 33, 40, 576}) residual_and_layer_norm<TypeParam>(D);
}

// A norm over some columns of wider rows, wherever they begin.
TYPED_TEST(Elementwise, NormOfAPartOfTheRows) {
  for (const auto& [first, D, width] :
       std::vector<std::array<std::int64_t, 3>>{{0, 24, 40}, {24, 8, 40}, {20, 16, 50}}) {
    at::Tensor x = wave({3, width}, 0.7).to(kType<TypeParam>), weight = wave({D}, 0.3);
    const at::Tensor before = x.to(at::kFloat).clone(), part = before.narrow(1, first, D);
    const NormRows<TypeParam> kernel{data<TypeParam>(x) + first,      weight.data_ptr<float>(), D, 1e-5f, width,
                                     first % 8 == 0 && width % 8 == 0};
    launch(kernel, kernel.shape(3), Queue{});
    expect_close<TypeParam>(x.narrow(1, first, D), weight * (part * at::rsqrt(part.pow(2).mean(-1, true) + 1e-5)));
    EXPECT_TRUE(at::equal(x.narrow(1, 0, first).to(at::kFloat), before.narrow(1, 0, first)));
  }
}

TYPED_TEST(Elementwise, RotationNormsAndPages) {
  constexpr std::int64_t T = 5, H = 3, K = 2, E = 16, P = 3;
  at::Tensor qkv = wave({T, H + 2 * K, E}, 0.31).to(kType<TypeParam>);
  const at::Tensor before = qkv.to(at::kFloat).clone();
  at::Tensor angle = at::arange(T * E / 2, at::kFloat).view({T, E / 2}) * 0.1f;
  at::Tensor cos = at::cos(angle), sin = at::sin(angle), q_norm = wave({E}, 0.2) + 3, k_norm = wave({E}, 0.4) + 3;
  at::Tensor keys = at::zeros({P, K, 48, E}, kType<TypeParam>), values = at::zeros_like(keys);
  at::Tensor slots = at::tensor({47, 48, 2 * 48 + 5, 3, 0}, at::kLong);
  at::Tensor table_rows = at::tensor({2, 0, 4, 4, 1}, at::kInt);
  const RotateHeads<TypeParam> kernel{data<TypeParam>(qkv),
                                      cos.data_ptr<float>(),
                                      sin.data_ptr<float>(),
                                      table_rows.data_ptr<std::int32_t>(),
                                      q_norm.data_ptr<float>(),
                                      k_norm.data_ptr<float>(),
                                      data<TypeParam>(keys),
                                      data<TypeParam>(values),
                                      slots.data_ptr<std::int64_t>(),
                                      H,
                                      K,
                                      E,
                                      E,
                                      1e-6f};
  launch(kernel, kernel.shape(T), Queue{});
  const auto rotated = [&](at::Tensor x, const at::Tensor& norm) {
    x = norm * (x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-6));
    const auto halves = x.chunk(2, -1);
    const at::Tensor c = cos.index_select(0, table_rows).unsqueeze(1), s = sin.index_select(0, table_rows).unsqueeze(1);
    return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
  };
  const at::Tensor k_wanted = rotated(before.narrow(1, H, K), k_norm);
  expect_close<TypeParam>(qkv.narrow(1, 0, H), rotated(before.narrow(1, 0, H), q_norm));
  expect_close<TypeParam>(qkv.narrow(1, H, K), k_wanted);
  EXPECT_TRUE(at::equal(qkv.narrow(1, H + K, K).to(at::kFloat), before.narrow(1, H + K, K)));
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t slot = slots[t].template item<std::int64_t>();
    EXPECT_TRUE(at::equal(keys[slot / 48].select(1, slot % 48), qkv[t].narrow(0, H, K))) << t;
    EXPECT_TRUE(at::equal(values[slot / 48].select(1, slot % 48), qkv[t].narrow(0, H + K, K))) << t;
  }
  EXPECT_EQ(keys.count_nonzero().template item<std::int64_t>(), T * K * E);  // and nothing else was written
}

TYPED_TEST(Elementwise, ActivatedGateTimesUp) {
  constexpr std::int64_t T = 3;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    for (const std::int64_t F : {2104, 21}) {  // two blocks a row, the second short; number by number
      at::Tensor gate_up = wave({T, 2 * F}, 0.77).to(kType<TypeParam>) * 3, out = at::empty({T, F}, kType<TypeParam>);
      const GateMultiply<TypeParam> kernel{data<TypeParam>(gate_up), data<TypeParam>(out), F, activation};
      launch(kernel, kernel.shape(T), Queue{});
      const auto halves = gate_up.to(at::kFloat).chunk(2, -1);
      const at::Tensor gate = activation == Activation::kSilu ? at::silu(halves[0]) : at::gelu(halves[0], "tanh");
      expect_close<TypeParam>(out, gate * halves[1]);
    }
  }
}

TYPED_TEST(Elementwise, RowsAreNormedInPlace) {
  for (const std::int64_t D : {33, 576, 4104}) {
    at::Tensor x = wave({3, D}, 1.7).to(kType<TypeParam>), weight = wave({D}, 0.3);
    const at::Tensor before = x.to(at::kFloat).clone();
    const NormRows<TypeParam> kernel{data<TypeParam>(x), weight.data_ptr<float>(), D, 1e-5f};
    launch(kernel, kernel.shape(3), Queue{});
    expect_close<TypeParam>(x, weight * (before * at::rsqrt(before.pow(2).mean(-1, true) + 1e-5)));
  }
}

// Every rounding of ATen's own e4m3, subnormals and ties included; each row has its scale.
TEST(Fp8, RowsRoundAsATenDoes) {
  constexpr std::int64_t K = 4096;
  at::Tensor x = at::cat({wave({1, K}, 0.37) * at::exp(wave({1, K}, 0.011) * 5), wave({1, K}, 0.5) * 1e-3,
                          at::zeros({1, K}), (at::arange(K, at::kFloat).view({1, K}) - 2048) * 0.21875f},
                         0)
                     .to(at::kBFloat16);
  at::Tensor out = at::empty({4, K}, at::kByte), scale = at::empty({4}, at::kFloat);
  const QuantizeRows<Bf16> kernel{data<Bf16>(x), out.data_ptr<std::uint8_t>(), scale.data_ptr<float>(), K};
  launch(kernel, kernel.shape(4), Queue{});
  const at::Tensor wide = x.to(at::kFloat), largest = std::get<0>(wide.abs().max(1));
  EXPECT_TRUE(at::equal(scale, at::where(largest > 0, largest / 448.0f, at::ones({4}))));
  EXPECT_TRUE(at::equal(out.view(at::kFloat8_e4m3fn).to(at::kFloat),
                        (wide / scale.unsqueeze(1)).to(at::kFloat8_e4m3fn).to(at::kFloat)));
}

struct Quantized {
  at::Tensor bytes, scale;
};
Quantized quantized(at::Tensor rows) {
  const std::int64_t M = rows.size(0), K = rows.size(1);
  Quantized out{at::empty({M, K}, at::kByte), at::empty({M}, at::kFloat)};
  const QuantizeRows<Bf16> kernel{data<Bf16>(rows), out.bytes.data_ptr<std::uint8_t>(), out.scale.data_ptr<float>(), K};
  launch(kernel, kernel.shape(M), Queue{});
  return out;
}

class Fused : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override { set_host_order(GetParam()); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

// One pass or two: the same residual stream, the same bytes, the same scales.
TEST_P(Fused, NormAndQuantizingAreThoseOneAfterTheOther) {
  for (const std::int64_t D : {16, 576, 4112}) {
    for (const bool with_delta : {true, false}) {
      for (const bool with_weight : {true, false}) {
        at::Tensor hidden = wave({4, D}, 0.9), delta = wave({4, D}, 1.7).to(at::kBFloat16), weight = wave({D}, 0.3);
        hidden[2].zero_();
        delta[2].zero_();
        at::Tensor stream = hidden.clone(), normed = at::empty({4, D}, at::kBFloat16);
        const AddRmsNorm<Bf16> norm{stream.data_ptr<float>(),
                                    with_delta ? data<Bf16>(delta) : nullptr,
                                    with_weight ? weight.data_ptr<float>() : nullptr,
                                    data<Bf16>(normed),
                                    D,
                                    1e-5f};
        launch(norm, norm.shape(4), Queue{});
        const Quantized wanted = quantized(normed);
        at::Tensor bytes = at::empty({4, D}, at::kByte), scale = at::empty({4}, at::kFloat);
        const NormQuantize<Bf16> fused{hidden.data_ptr<float>(),
                                       norm.delta_TD,
                                       norm.weight_D,
                                       bytes.data_ptr<std::uint8_t>(),
                                       scale.data_ptr<float>(),
                                       D,
                                       1e-5f};
        launch(fused, fused.shape(4), Queue{});
        EXPECT_TRUE(at::equal(hidden, stream)) << D;
        EXPECT_TRUE(at::equal(bytes, wanted.bytes)) << D;
        EXPECT_TRUE(at::equal(scale, wanted.scale)) << D;
      }
    }
  }
}

TEST_P(Fused, GateAndQuantizingAreThoseOneAfterTheOther) {
  for (const std::int64_t F : {16, 608, 4112}) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      at::Tensor gate_up = (wave({3, 2 * F}, 0.77) * at::exp(wave({3, 2 * F}, 0.013) * 2)).to(at::kBFloat16);
      gate_up[1].zero_();
      at::Tensor middle = at::empty({3, F}, at::kBFloat16);
      const GateMultiply<Bf16> gate{data<Bf16>(gate_up), data<Bf16>(middle), F, activation};
      launch(gate, gate.shape(3), Queue{});
      const Quantized wanted = quantized(middle);
      at::Tensor bytes = at::empty({3, F}, at::kByte), scale = at::empty({3}, at::kFloat);
      const GateQuantize fused{data<Bf16>(gate_up), bytes.data_ptr<std::uint8_t>(), scale.data_ptr<float>(), F,
                               activation};
      launch(fused, fused.shape(3), Queue{});
      EXPECT_TRUE(at::equal(bytes, wanted.bytes)) << F;
      EXPECT_TRUE(at::equal(scale, wanted.scale)) << F;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothOrders, Fused, testing::Values(HostOrder::kAscending, HostOrder::kDescending),
                         [](const auto& info) { return info.param == HostOrder::kAscending ? "up" : "down"; });

}  // namespace gpu_elementwise_test
}  // namespace magister::gpu
