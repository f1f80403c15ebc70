// Steps of some models between the products against plain ATen, with the kernels emulated on the host: heads of q, k
// and v, layer norms with biases, a factor of the stream, and learned positions.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "magister/device/launch.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/embed_kernel.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/head_steps_kernel.h"

namespace magister::gpu {
namespace gpu_head_steps_test {

template <typename A>
constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
template <typename A>
A* data(const at::Tensor& tensor) {
  return static_cast<A*>(tensor.data_ptr());
}

at::Tensor wave(at::IntArrayRef sizes, double step) {
  const at::Tensor flat = at::arange(c10::multiply_integers(sizes), at::kDouble);
  return (at::sin(flat * step) * 2).to(at::kFloat).view(sizes);
}

// Relative to the largest value: f32 sums in another order; bf16 keeps 8 bits, and each number is rounded once.
template <typename A>
void expect_close(const at::Tensor& got, const at::Tensor& wanted) {
  const double limit = std::is_same_v<A, float> ? 2e-6 : 4e-3;
  EXPECT_LE((got.to(at::kFloat) - wanted).abs().max().item<double>(), limit * wanted.abs().max().item<double>());
}

constexpr std::int64_t kTokens = 5, kHeads = 3, kKvHeads = 2, kPages = 3;
constexpr double kEps = 1e-4;

// The steps of a layer with its heads; the kernel and plain code read the same fields.
struct Case {
  const char* name;
  std::int64_t E, R;
  bool norm = false, bias = false, after = false, norms_values = false;
  double value_scale = 1, beta = 0;
  std::int64_t V = 0;  // numbers of a head's values; 0: E
  std::int64_t value_dim() const { return V > 0 ? V : E; }
  std::int64_t width() const { return (kHeads + kKvHeads) * E + kKvHeads * value_dim(); }
};

class Heads {
 public:
  explicit Heads(const Case& of) : of_(of) {
    const std::int64_t half = std::max<std::int64_t>(1, of.R / 2);
    const at::Tensor angle = at::arange(kTokens * half, at::kFloat).view({kTokens, half}) * 0.1f;
    cos_ = at::cos(angle) * 1.3;  // as YaRN's factor makes them, so that a rotation changes the root mean square
    sin_ = at::sin(angle) * 1.3;
    for (int i = 0; i < 2; ++i) {
      norms_.push_back(wave({of.E}, 0.2 + i) + 3);
      biases_.push_back(wave({of.E}, 0.4 + i));
    }
  }

  // Rotates `qkv` [T, (H + K) E + K V] in place and fills the pages.
  template <typename A>
  void run(const at::Tensor& qkv, const at::Tensor& keys, const at::Tensor& values, bool in_steps) const {
    const RotateHeads<A> heads{data<A>(qkv),
                               data<float>(cos_),
                               data<float>(sin_),
                               data<std::int32_t>(rows_),
                               of_.norm ? data<float>(norms_[0]) : nullptr,
                               of_.norm ? data<float>(norms_[1]) : nullptr,
                               data<A>(keys),
                               data<A>(values),
                               data<std::int64_t>(slots_),
                               kHeads,
                               kKvHeads,
                               of_.E,
                               of_.R,
                               static_cast<float>(kEps),
                               of_.V};
    if (!in_steps) return launch(heads, heads.shape(kTokens), Queue{});
    const RotateHeadsInSteps<A> kernel{
        heads,
        {of_.bias ? data<float>(biases_[0]) : nullptr, of_.bias ? data<float>(biases_[1]) : nullptr, of_.after,
         of_.norms_values, static_cast<float>(of_.value_scale), static_cast<float>(of_.beta), 4, 1,
         data<std::int32_t>(positions_)}};
    launch(kernel, kernel.shape(kTokens), Queue{});
  }

  // Parts of rows like those of run(): queries, keys and values, [T, heads, numbers] each.
  std::vector<at::Tensor> parts(const at::Tensor& rows) const {
    const auto flat = rows.split_with_sizes({kHeads * of_.E, kKvHeads * of_.E, kKvHeads * of_.value_dim()}, 1);
    return {flat[0].unflatten(1, {kHeads, of_.E}), flat[1].unflatten(1, {kKvHeads, of_.E}),
            flat[2].unflatten(1, {kKvHeads, of_.value_dim()})};
  }

  std::vector<at::Tensor> wanted(const at::Tensor& rows) const {
    const std::vector<at::Tensor> x = parts(rows);
    at::Tensor v = x[2];
    if (of_.norms_values) v = v * at::rsqrt(v.square().mean(-1, true) + kEps);
    const at::Tensor times = at::floor((positions_ + 1).to(at::kDouble) / 4),
                     factor = (1 + of_.beta * at::log1p(times)).to(at::kFloat).view({-1, 1, 1});
    return {turned(x[0], 0) * factor, turned(x[1], 1), v * of_.value_scale};
  }

  const at::Tensor& slots() const { return slots_; }

 private:
  at::Tensor turned(at::Tensor x, std::size_t which) const {
    const auto norm = [&] {
      if (of_.bias) x = x - x.mean(-1, true);
      x = norms_[which] * (x * at::rsqrt(x.square().mean(-1, true) + kEps));
      if (of_.bias) x = x + biases_[which];
    };
    if (of_.norm && !of_.after) norm();
    if (of_.R > 0) {
      const auto halves = x.narrow(-1, 0, of_.R).chunk(2, -1);
      const at::Tensor c = cos_.index_select(0, rows_).unsqueeze(1), s = sin_.index_select(0, rows_).unsqueeze(1);
      x = at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s, x.narrow(-1, of_.R, of_.E - of_.R)},
                  -1);
    }
    if (of_.norm && of_.after) norm();
    return x;
  }

  Case of_;
  at::Tensor cos_, sin_;
  std::vector<at::Tensor> norms_, biases_;
  at::Tensor rows_ = at::tensor({2, 0, 4, 4, 1}, at::kInt), positions_ = at::tensor({2, 3, 40, 0, 4001}, at::kInt);
  at::Tensor slots_ = at::tensor({47, 48, 2 * 48 + 5, 3, 0}, at::kLong);
};

const Case kCases[] = {
    {"after the rotation", 16, 16, true, false, true},
    {"after the rotation of a part", 24, 12, true, false, true},
    {"after no rotation", 40, 0, true, false, true},
    {"after an odd half", 18, 10, true, false, true},
    {"layer norms", 16, 16, true, true},
    {"layer norms of a wide head, a part of which turns", 136, 68, true, true},
    {"queries by position", 16, 16, false, false, false, false, 1, 0.7},
    {"queries by position without rotation", 20, 0, false, false, false, false, 1, 0.7},
    {"norms of values", 40, 8, true, false, false, true},
    {"a factor of values", 16, 16, false, false, false, false, 0.7},
    {"all", 72, 36, true, false, true, true, 1.6, 0.3},
    {"all, with narrow values", 24, 12, true, true, false, true, 1.6, 0.3, 10},
    {"all, with wide values", 24, 12, true, false, true, true, 1.6, 0.3, 40},
};

template <typename A>
class HeadStepsTest : public testing::Test {
 protected:
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
using Types = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(HeadStepsTest, Types);

TYPED_TEST(HeadStepsTest, AreThoseOfPlainCode) {
  for (const HostOrder order : {HostOrder::kAscending, HostOrder::kDescending}) {
    set_host_order(order);
    for (const Case& of : kCases) {
      SCOPED_TRACE(of.name);
      const Heads heads(of);
      const at::Tensor qkv = wave({kTokens, of.width()}, 0.31).to(kType<TypeParam>),
                       before = qkv.to(at::kFloat).clone();
      const at::Tensor keys = at::zeros({kPages, kKvHeads, 48, of.E}, kType<TypeParam>),
                       values = at::zeros({kPages, kKvHeads, 48, of.value_dim()}, kType<TypeParam>);
      heads.run<TypeParam>(qkv, keys, values, true);
      const std::vector<at::Tensor> wanted = heads.wanted(before), got = heads.parts(qkv);
      for (std::size_t i = 0; i < 3; ++i) expect_close<TypeParam>(got[i], wanted[i]);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const std::int64_t slot = heads.slots()[t].template item<std::int64_t>();
        EXPECT_TRUE(at::equal(keys[slot / 48].select(1, slot % 48), got[1][t])) << t;
        EXPECT_TRUE(at::equal(values[slot / 48].select(1, slot % 48), got[2][t])) << t;
      }
    }
  }
}

// Without any of the steps the bits are those of the kernel that most models use.
TYPED_TEST(HeadStepsTest, AreThoseOfRotateHeadsWithoutSteps) {
  for (const Case& of : {Case{"", 16, 16, true}, Case{"", 18, 10, true}, Case{"", 40, 8}}) {
    const Heads heads(of);
    const at::Tensor one = wave({kTokens, of.width()}, 0.31).to(kType<TypeParam>), two = one.clone();
    const at::Tensor keys = at::zeros({kPages, kKvHeads, 48, of.E}, kType<TypeParam>), values = at::zeros_like(keys);
    heads.run<TypeParam>(one, keys, values, true);
    heads.run<TypeParam>(two, keys, values, false);
    EXPECT_TRUE(at::equal(one, two)) << of.E;
  }
}

TYPED_TEST(HeadStepsTest, LayerNormsAddTheirBias) {
  for (const std::int64_t D : {33, 40, 2600}) {
    const at::Tensor hidden = wave({3, D}, 0.9) + 2, delta = wave({3, D}, 1.7).to(kType<TypeParam>),
                     weight = wave({D}, 0.3), bias = wave({D}, 0.8), out = at::empty({3, D}, kType<TypeParam>);
    const at::Tensor sum = (hidden + delta.to(at::kFloat)) * 0.7f, centred = sum - sum.mean(-1, true);
    const AddLayerNorm<TypeParam> kernel{data<float>(hidden),
                                         data<TypeParam>(delta),
                                         data<float>(weight),
                                         data<TypeParam>(out),
                                         D,
                                         1e-5f,
                                         data<float>(bias),
                                         0.7f};
    launch(kernel, kernel.shape(3), Queue{});
    EXPECT_TRUE(at::equal(hidden, sum)) << D;
    expect_close<TypeParam>(out, weight * (centred * at::rsqrt(centred.square().mean(-1, true) + 1e-5)) + bias);
  }
}

// In place, as embeddings are normed.
TEST(StreamNorms, WriteToTheStreamItself) {
  for (const std::int64_t D : {33, 40, 2600}) {
    const at::Tensor stream = wave({3, D}, 0.9) + 2, weight = wave({D}, 0.3), bias = wave({D}, 0.8),
                     before = stream.clone(), centred = before - before.mean(-1, true);
    const AddLayerNorm<float> layer{data<float>(stream), nullptr, data<float>(weight), data<float>(stream), D, 1e-5f,
                                    data<float>(bias)};
    launch(layer, layer.shape(3), Queue{});
    expect_close<float>(stream, weight * (centred * at::rsqrt(centred.square().mean(-1, true) + 1e-5)) + bias);
    stream.copy_(before);
    const AddRmsNorm<float> rms{data<float>(stream), nullptr, data<float>(weight), data<float>(stream), D, 1e-5f};
    launch(rms, rms.shape(3), Queue{});
    expect_close<float>(stream, weight * (before * at::rsqrt(before.square().mean(-1, true) + 1e-5)));
  }
}

// A layer's factor multiplies the stream after its last block has joined it, and only then.
TEST(StreamNorms, MultiplyTheStreamByAFactor) {
  for (const std::int64_t D : {33, 64}) {
    const at::Tensor hidden = wave({3, D}, 0.9), delta = wave({3, D}, 1.7), weight = wave({D}, 0.3),
                     out = at::empty({3, D}, at::kBFloat16), sum = (hidden + delta) * 1.3f;
    at::Tensor stream = hidden.clone();
    AddRmsNorm<Bf16, float> rms{
        data<float>(stream), data<float>(delta), data<float>(weight), data<Bf16>(out), D, 1e-5f, nullptr, 1.3f};
    launch(rms, rms.shape(3), Queue{});
    EXPECT_TRUE(at::equal(stream, sum));
    expect_close<Bf16>(out, weight * (sum * at::rsqrt(sum.square().mean(-1, true) + 1e-5)));
    rms.delta_TD = nullptr;
    launch(rms, rms.shape(3), Queue{});
    EXPECT_TRUE(at::equal(stream, sum));
    if (D % 8 != 0) continue;
    stream.copy_(hidden);
    const at::Tensor bytes = at::empty({3, D}, at::kByte), scale = at::empty({3}, at::kFloat);
    const NormQuantize<float> fused{data<float>(stream),
                                    data<float>(delta),
                                    data<float>(weight),
                                    data<std::uint8_t>(bytes),
                                    data<float>(scale),
                                    D,
                                    1e-5f,
                                    1.3f};
    launch(fused, fused.shape(3), Queue{});
    EXPECT_TRUE(at::equal(stream, sum));
  }
}

// The first shard adds the positions of all tokens, whoever holds their embeddings.
TYPED_TEST(HeadStepsTest, EmbeddingsAddLearnedPositions) {
  for (const std::int64_t D : {40, 33, 2600}) {
    const at::Tensor table = wave({10, D}, 0.7).to(kType<TypeParam>),
                     positions = wave({9, D}, 0.43).to(kType<TypeParam>), hidden = at::full({3, D}, -1.0f),
                     ids = at::tensor({5, 4, 14}, at::kInt), position = at::tensor({6, 0, 3}, at::kInt);
    const EmbedRows<TypeParam> kernel{data<TypeParam>(table),
                                      data<std::int32_t>(ids),
                                      data<float>(hidden),
                                      D,
                                      5,
                                      15,
                                      1.5f,
                                      data<TypeParam>(positions),
                                      data<std::int32_t>(position),
                                      2};
    launch(kernel, kernel.shape(3), Queue{});
    const at::Tensor rows = at::stack({table[0].to(at::kFloat) * 1.5, at::zeros({D}), table[9].to(at::kFloat) * 1.5});
    EXPECT_TRUE(at::equal(hidden, rows + positions.to(at::kFloat).index_select(0, at::tensor({8, 2, 5})))) << D;
  }
}

}  // namespace gpu_head_steps_test
}  // namespace magister::gpu
