// Rows of texts times codes (CodeProduct): every kernel of this CPU has the bits of the definition written out with
// integers, for any number of rows; and they are as near to products in double as activations of 16 bits can be.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace code_products_test {

// A weight of some panels with random codes, scales and offsets, of which this shard has inputs [lead, lead + k) of the
// first group on.
struct Codes {
  std::int64_t bits, group, lead, k, columns;
  bool half_scales = false, offsets = false, zeros = false;
  at::Tensor words, scales, given;

  void make() {
    const std::int64_t panels = (columns + 47) / 48, per = 32 / bits, groups = group == 0 ? 1 : (lead + k) / group + 1;
    words = at::randint(-2147483648LL, 2147483647LL, {panels, (lead % 8 + k + per - 1) / per, 48}, at::kInt);
    scales = (at::randn({panels, groups, 48}) * 0.01).to(half_scales ? at::kHalf : at::kBFloat16);
    given = (zeros ? at::randint(0, std::int64_t{1} << bits, {panels, groups, 48}).to(at::kFloat)
                   : at::randn({panels, groups, 48}) * 0.05)
                .to(at::kHalf);
  }
  std::int64_t group_of(std::int64_t input) const { return group == 0 ? 0 : (lead + input) / group; }
  float scale(std::int64_t input, std::int64_t n) const {
    return scales[n / 48][group_of(input)][n % 48].item<float>();
  }
  // The addend of a code that counts from the middle.
  float offset(std::int64_t input, std::int64_t n) const {
    if (!offsets) return 0;
    const float number = given[n / 48][group_of(input)][n % 48].item<float>();
    return std::fma(static_cast<float>(1 << (bits - 1)), scale(input, n),
                    zeros ? 0.0f - number * scale(input, n) : number);
  }
  std::int64_t code(std::int64_t input, std::int64_t n) const {  // from the middle
    const std::int64_t per = 32 / bits, place = lead % 8 + input;
    const auto word = static_cast<std::uint32_t>(
        words.const_data_ptr<std::int32_t>()[(n / 48 * words.size(1) + place / per) * 48 + n % 48]);
    return static_cast<std::int64_t>((word >> (place % per * bits)) & ((1u << bits) - 1)) -
           (std::int64_t{1} << (bits - 1));
  }
  // Where the block of this input ends: at the end of its group, or of 128 inputs of it.
  std::int64_t block_end(std::int64_t input) const {
    const std::int64_t in_group = group == 0 ? lead % 8 + input : (lead + input) % group, most = 128;
    const std::int64_t size = group == 0 || group > most ? most : group;
    std::int64_t end = input - in_group % size + size;
    if (group > 0) end = std::min(end, input - in_group + group);
    return std::min(end, k);
  }
  CodeProduct product(const at::Tensor& x, at::Tensor& out) const {
    QuantizedPanel panel{reinterpret_cast<const std::uint32_t*>(words.const_data_ptr<std::int32_t>()),
                         static_cast<const std::uint16_t*>(scales.const_data_ptr()), group, lead};
    panel.half_scales = half_scales;
    panel.offsets = offsets ? static_cast<const std::uint16_t*>(given.const_data_ptr()) : nullptr;
    panel.offsets_are_zeros = zeros;
    return {x.const_data_ptr<float>(), x.stride(0),           x.size(0),     k,      panel, words.stride(0),
            scales.stride(0),          out.data_ptr<float>(), out.stride(0), columns};
  }
};

// The definition, one element at a time.
float written_out(const Codes& w, const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t begin = 0; begin < w.k; begin = w.block_end(begin)) {
    const std::int64_t end = w.block_end(begin);
    float largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    const double step = largest < 0x1p-100 ? 0 : std::ldexp(1.0, std::ilogb(largest) + 1 - 15);
    std::int64_t exact = 0, plain = 0;
    for (std::int64_t i = begin; i < end && step > 0; ++i) {
      const auto number = std::min<std::int64_t>(std::llrint(x[i] / step), 32767);
      exact += number * w.code(i, n);
      plain += number;
    }
    sum = std::fma(static_cast<float>(exact), w.scale(begin, n) * static_cast<float>(step), sum);
    if (w.offsets) sum = std::fma(static_cast<float>(plain) * static_cast<float>(step), w.offset(begin, n), sum);
  }
  return sum;
}

// Rows of unlike size, with large numbers among small ones, and in the first row blocks of zeros and of tiny numbers.
at::Tensor some_rows(std::int64_t rows, std::int64_t k) {
  at::Tensor x = at::randn({rows, k + 5}) * at::randn({rows, 1}).exp();
  x.mul_(at::where(at::rand({rows, k + 5}) < 0.02, at::full({}, 300.0), at::full({}, 1.0)));
  x[0].narrow(0, 0, k / 3).zero_();
  x[0].narrow(0, k / 3, k / 5).fill_(1e-36);
  x[1][k / 2] = std::nextafter(65536.0f, 0.0f);  // rounds to the number that 16 bits do not have
  return x.narrow(1, 0, k);
}

std::vector<Codes> kinds() {
  std::vector<Codes> all;
  for (const std::int64_t bits : {8, 4}) {
    for (const std::int64_t group : {0, 8, 32, 64, 128, 200, 256}) {
      all.push_back({bits, group, 0, 301, 97});
      all.push_back({bits, group, group == 0 ? 5 : std::min<std::int64_t>(group - 3, 45), 290, 31, true});
      all.push_back({bits, group, 0, 256, 48, true, true, true});
      all.push_back({bits, group, group == 0 ? 1 : 7, 131, 50, group == 32, true, false});
    }
  }
  return all;
}

TEST(CodeProducts, HaveTheBitsOfTheDefinition) {
  at::manual_seed(21);
  for (Codes& w : kinds()) {
    w.make();
    const at::Tensor x = some_rows(13, w.k);
    at::Tensor want = at::empty({13, w.columns});
    for (std::int64_t r = 0; r < 13; ++r)
      for (std::int64_t n = 0; n < w.columns; ++n)
        want.data_ptr<float>()[r * w.columns + n] = written_out(w, x.const_data_ptr<float>() + r * x.stride(0), n);
    for (const CpuKernels* kernels : cpu_kernels_here()) {
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
        at::Tensor out = at::full({rows, w.columns + 3}, 7.0f);
        CodeProduct product = w.product(x.narrow(0, 13 - rows, rows), out);
        kernels->multiply_codes[w.bits == 8 ? 0 : 1](product);
        ASSERT_TRUE(at::equal(out.narrow(1, 0, w.columns), want.narrow(0, 13 - rows, rows)))
            << kernels->name << " " << w.bits << " bits, groups of " << w.group << ", " << rows << " rows";
        EXPECT_TRUE(at::equal(out.narrow(1, w.columns, 3), at::full({rows, 3}, 7.0f)));
        product.add = true;
        kernels->multiply_codes[w.bits == 8 ? 0 : 1](product);
        ASSERT_TRUE(at::equal(out.narrow(1, 0, w.columns), want.narrow(0, 13 - rows, rows) * 2));
      }
    }
  }
}

at::Tensor weights_of(const Codes& w) {
  at::Tensor weight_KN = at::empty({w.k, w.columns}, at::kDouble);
  auto* to = weight_KN.data_ptr<double>();
  for (std::int64_t i = 0; i < w.k; ++i)
    for (std::int64_t n = 0; n < w.columns; ++n)
      *to++ = static_cast<double>(w.code(i, n)) * w.scale(i, n) + w.offset(i, n);
  return weight_KN;
}

// Half a step of every activation, and a whole one of those that round to 2^15 steps.
TEST(CodeProducts, ErrAtMostByTheRoundingOfActivations) {
  at::manual_seed(22);
  for (const std::int64_t group : {32, 128}) {
    Codes w{8, group, 0, 1536, 48, true, true, false};
    w.make();
    const at::Tensor x = some_rows(5, w.k), plain = at::randn({5, w.k}), weight_KN = weights_of(w);
    for (const at::Tensor& a : {x, plain}) {
      at::Tensor steps = at::zeros({5, w.k}, at::kDouble), out = at::empty({5, 48});
      for (std::int64_t r = 0; r < 5; ++r) {
        for (std::int64_t begin = 0; begin < w.k; begin = w.block_end(begin)) {
          const double largest = a[r].slice(0, begin, w.block_end(begin)).abs().max().item<double>();
          if (largest > 0)
            steps[r].slice(0, begin, w.block_end(begin)).fill_(std::ldexp(1.0, std::ilogb(largest) - 14));
        }
      }
      cpu_kernels().multiply_codes[0](w.product(a, out));
      const at::Tensor exact = at::mm(a.to(at::kDouble), weight_KN),
                       size = at::mm(a.to(at::kDouble).abs(), weight_KN.abs());
      const at::Tensor bound = at::mm(steps, weight_KN.abs()) * 0.51 + size * 1e-6;
      EXPECT_TRUE(((out - exact).abs() <= bound).all().item<bool>());
      if (a.is_same(plain))
        EXPECT_LE((out - exact).abs().max().item<double>(), 1e-4 * exact.abs().max().item<double>());
    }
  }
}

TEST(CodeProducts, ARowWithANumberThatIsNotFiniteGivesNaN) {
  at::manual_seed(23);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Codes w{4, 32, 0, 100, 48};
    w.make();
    at::Tensor x = some_rows(3, w.k).clone(), good = at::empty({3, 48}), out = at::empty({3, 48});
    for (const CpuKernels* kernels : cpu_kernels_here()) {
      kernels->multiply_codes[1](w.product(x, good));
      at::Tensor broken = x.clone();
      broken[1][97] = bad;
      kernels->multiply_codes[1](w.product(broken, out));
      EXPECT_TRUE(out[1].isnan().all().item<bool>());
      for (const std::int64_t r : {0, 2}) EXPECT_TRUE(at::equal(out[r], good[r]));
    }
  }
}

}  // namespace code_products_test
}  // namespace magister
