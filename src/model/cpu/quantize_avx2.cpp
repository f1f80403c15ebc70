// Scales, codes and their packing, one output after the other. The file's name makes the build use -O3: the search for
// 4-bit scales reads the groups of a row several times, and its loops run over eight lanes that are added up in a fixed
// order.
// Source of the sign: ggml's Q4_0, which gives the largest weight the code -8.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/cpu/panel_memory.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/code_words.h"

namespace magister {
namespace {

constexpr std::int64_t kPanel = Linear::kPanel;
constexpr std::int64_t kLanes = 8;
constexpr float kLargest = 1e30f;    // for larger weights, 2^23 times a scale could overflow in the kernels
constexpr float kSmallest = 1e-30f;  // a group whose weights are all smaller counts as zero

float as_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Rounds to nearest, ties to even, for |x| < 2^22: adding 1.5 * 2^23 removes all bits below one.
float nearest(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

struct Fit {
  double error;              // sum of (w - q scale)^2
  double with_codes, codes;  // sums of w q and of q^2: their ratio is the best scale for these codes
};

// values: n numbers; n is a multiple of kLanes, padded with zeros.
Fit fit(const float* values, std::int64_t n, float scale, float least, float most) {
  float error[kLanes] = {}, with_codes[kLanes] = {}, codes[kLanes] = {};
  const float inverse = 1.0f / scale;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const float w = values[i + l], q = std::min(most, std::max(least, nearest(w * inverse))), e = w - q * scale;
      error[l] += e * e;
      with_codes[l] += w * q;
      codes[l] += q * q;
    }
  }
  Fit sum{};
  for (std::int64_t l = 0; l < kLanes; ++l) {
    sum.error += error[l];
    sum.with_codes += with_codes[l];
    sum.codes += codes[l];
  }
  return sum;
}

// Finds the scale with the least error for a group of n weights (padded as above): the best of the attempted scales, or
// the least-squares scale for the codes which that one gives.
class ScaleSearch {
 public:
  ScaleSearch(const float* values, std::int64_t n, float least, float most)
      : values_(values), n_(n), least_(least), most_(most) {}
  void attempt(float scale) {
    scale = as_bf16(scale);
    const Fit found = fit(values_, n_, scale, least_, most_);
    if (found.error >= best_fit_.error) return;
    best_ = scale;
    best_fit_ = found;
  }
  float refined() {
    if (best_fit_.codes > 0) attempt(static_cast<float>(best_fit_.with_codes / best_fit_.codes));
    return best_;
  }

 private:
  const float* values_;
  std::int64_t n_;
  float least_, most_, best_ = 0;
  Fit best_fit_{INFINITY, 0, 0};
};

// A wider grid of scales gives a smaller error of the weights, but a worse model. Measured on SmolLM2 (groups of 32),
// increase of perplexity: factors from 0.7 to 1 +30.6 %, from 1 to 1.12 +28.8 %, errors weighted by the squares of the
// weights +31.1 %, this search +27.3 %.
float int4_scale(const float* values, std::int64_t n, float extreme) {
  ScaleSearch search(values, n, -8, 7);
  search.attempt(extreme / -8.0f);
  search.attempt(extreme / 7.0f);
  return search.refined();
}

// values: as for fit(). The extreme is the weight of the largest absolute value, and of equal ones the first.
float group_scale(const float* values, std::int64_t n, QuantType type) {
  float high[kLanes] = {}, low[kLanes] = {};
  std::int32_t good[kLanes];
  std::fill_n(good, kLanes, 1);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const float v = values[i + l];
      high[l] = std::max(high[l], v);
      low[l] = std::min(low[l], v);
      good[l] &= std::abs(v) <= kLargest ? 1 : 0;
    }
  }
  const float most = *std::max_element(high, high + kLanes), least = *std::min_element(low, low + kLanes);
  const bool finite = *std::min_element(good, good + kLanes) == 1;
  float extreme = most > -least ? most : least;
  if (finite && most == -least)
    extreme = *std::find_if(values, values + n, [most](float v) { return std::abs(v) == most; });
  MAGISTER_CHECK(finite, ExitCode::kData,
                 "a weight to be quantised is NaN, infinite or above {} (its group would have no "
                 "scale); fetch the model again, or set model.quantization to none",
                 kLargest);
  if (std::abs(extreme) < kSmallest) return 0;
  return type == QuantType::kInt8 ? as_bf16(std::abs(extreme) / 127.0f) : int4_scale(values, n, extreme);
}

// Codes and scales of one output's row.
class RowQuantizer {
 public:
  RowQuantizer(const QuantScheme& scheme, IndexRange columns, IndexRange covering)
      : scheme_(scheme),
        size_(static_cast<std::int64_t>(covering.size())),
        skipped_(static_cast<std::int64_t>(columns.begin - covering.begin)),
        kept_(static_cast<std::int64_t>(columns.size())),
        group_(scheme.group == 0 ? std::max<std::int64_t>(size_, 1) : scheme.group),
        padded_(static_cast<std::size_t>((group_ + kLanes - 1) / kLanes * kLanes)) {}

  // row: the covering columns. Writes the codes of the kept columns with their bias, as they are stored, and
  // scales[group][48] at `scales`.
  void run(const float* row, std::uint8_t* codes, std::uint16_t* scales) {
    const float least = scheme_.type == QuantType::kInt8 ? -127 : -8, most = scheme_.type == QuantType::kInt8 ? 127 : 7;
    const std::int32_t bias = 1 << (scheme_.bits() - 1);
    for (std::int64_t begin = 0, g = 0; begin < size_; begin += group_, ++g) {
      const std::int64_t end = std::min(begin + group_, size_);
      std::fill(std::copy(row + begin, row + end, padded_.begin()), padded_.end(), 0.0f);
      const float scale = group_scale(padded_.data(), static_cast<std::int64_t>(padded_.size()), scheme_.type);
      std::uint32_t scale_bits;
      std::memcpy(&scale_bits, &scale, sizeof scale_bits);
      scales[g * kPanel] = static_cast<std::uint16_t>(scale_bits >> 16);
      const float inverse = scale == 0 ? 0 : 1.0f / scale;
      const std::int64_t first = std::max(begin, skipped_), last = std::min(end, skipped_ + kept_);
      for (std::int64_t i = first; i < last; ++i) {
        codes[i - skipped_] = static_cast<std::uint8_t>(
            static_cast<std::int32_t>(std::min(most, std::max(least, nearest(row[i] * inverse)))) + bias);
      }
    }
  }

 private:
  QuantScheme scheme_;
  std::int64_t size_, skipped_, kept_, group_;
  std::vector<float> padded_;
};

}  // namespace

IndexRange QuantScheme::covering(IndexRange columns, std::uint64_t K) const {
  if (!on() || columns.size() == 0) return columns;
  if (group == 0) return {0, K};
  const auto g = static_cast<std::uint64_t>(group);
  return {columns.begin / g * g, std::min(K, (columns.end + g - 1) / g * g)};
}

std::int64_t QuantScheme::lead(std::uint64_t column) const {
  return static_cast<std::int64_t>(column % static_cast<std::uint64_t>(group == 0 ? 8 : group));
}

std::int64_t QuantScheme::words(IndexRange columns) const {
  return (lead(columns.begin) % 8 + static_cast<std::int64_t>(columns.size()) + rows_a_word() - 1) / rows_a_word();
}

std::int64_t QuantScheme::scales(IndexRange columns) const {
  return group == 0 ? 1 : (lead(columns.begin) + static_cast<std::int64_t>(columns.size()) + group - 1) / group;
}

std::uint64_t QuantScheme::bytes(std::int64_t N, IndexRange columns, bool offsets) const {
  const auto outputs = static_cast<std::uint64_t>((N + kPanel - 1) / kPanel * kPanel);
  return outputs * static_cast<std::uint64_t>(4 * words(columns) + (offsets ? 4 : 2) * scales(columns));
}

QuantScheme quant_scheme(const std::string& type, std::int64_t group) {
  const bool known = type == "none" || type == "int8" || type == "int4";
  MAGISTER_CHECK(
      known && (group == 0 || group == 32 || group == 64 || group == 128), ExitCode::kConfig,
      "quantisation {} in groups of {} is not supported (the kernels read int8 and int4 in groups of 32, 64, 128 or, "
      "with 0, one scale per output); choose one of these",
      printable(type), group);
  if (type == "none") return {};
  return {type == "int8" ? QuantType::kInt8 : QuantType::kInt4, group};
}

Linear quantize(const Linear& plain, const QuantScheme& scheme, IndexRange columns, IndexRange covering,
                ThreadPool* pool) {
  const at::Tensor weight_NK = plain.weight_NK.to(at::kFloat).contiguous();
  const std::int64_t n = weight_NK.size(0), panels = (n + kPanel - 1) / kPanel, k = weight_NK.size(1);
  MAGISTER_ASSERT(scheme.on() && k == static_cast<std::int64_t>(covering.size()) && covering.begin <= columns.begin &&
                  columns.end <= covering.end);
  Linear out;
  out.bias_N = plain.bias_N;
  out.num_outputs = n;
  out.scheme = scheme;
  out.num_inputs = static_cast<std::int64_t>(columns.size());
  out.lead = scheme.lead(columns.begin);
  out.panels_PKW = empty_panels({panels, scheme.words(columns), kPanel}, at::kInt).zero_();
  out.scales_PGW = empty_panels({panels, scheme.scales(columns), kPanel}, at::kBFloat16).zero_();
  auto* const words = reinterpret_cast<std::uint32_t*>(out.panels_PKW.data_ptr<std::int32_t>());
  auto* const scales = static_cast<std::uint16_t*>(out.scales_PGW.data_ptr());
  const std::int64_t panel_words = out.panels_PKW.stride(0), panel_scales = out.scales_PGW.stride(0);
  const float* const weights = weight_NK.const_data_ptr<float>();
  const std::int64_t num_words = scheme.words(columns);
  on_threads(pool, panels, [&](std::int64_t p) {
    RowQuantizer rows(scheme, columns, covering);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(num_words * scheme.rows_a_word()));
    for (std::int64_t row = p * kPanel; row < std::min(n, (p + 1) * kPanel); ++row) {
      const std::int64_t column = row - p * kPanel;
      rows.run(weights + row * k, codes.data() + out.lead % 8, scales + p * panel_scales + column);
      place_words(codes.data(), scheme.bits(), num_words, words + p * panel_words + column);
    }
  });
  return out;
}

Linear quantize(const Linear& plain, const QuantScheme& scheme) {
  const IndexRange all{0, static_cast<std::uint64_t>(plain.weight_NK.size(1))};
  return quantize(plain, scheme, all, all);
}

}  // namespace magister
