// One thread and weights of 1 GiB in the chosen format with a depth of 4096: far larger than the caches, as in a large
// model. The reading limit is measured alternately with the product, over the same bytes, so that a busy machine
// disturbs both alike.
#include "app/bench/product.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "app/bench/units.h"
#include "magister/core/error.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/cpu/panel_memory.h"

namespace magister {
namespace {

constexpr std::int64_t kDepth = 4096;
constexpr std::int64_t kWeightBytes = std::int64_t{1} << 30;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Sums a buffer in eight independent registers and prefetches 8 KiB ahead: of the distances from 1 to 64 KiB this one
// reads fastest on one core here; without prefetching it is 20 % slower.
std::uint64_t sum_of(const void* data, std::uint64_t bytes) {
  constexpr std::uint64_t kRegisters = 8, kAhead = 8192;
  const auto* begin = static_cast<const char*>(data);
  __m256i sums[kRegisters] = {};
  for (std::uint64_t at = 0; at + kRegisters * sizeof(__m256i) <= bytes; at += kRegisters * sizeof(__m256i)) {
    for (std::uint64_t i = 0; i < kRegisters; ++i) {
      const char* from = begin + at + i * sizeof(__m256i);
      if (i % 2 == 0) _mm_prefetch(from + kAhead, _MM_HINT_T0);
      sums[i] = _mm256_add_epi64(sums[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
  }
  for (std::uint64_t i = 1; i < kRegisters; ++i) sums[0] = _mm256_add_epi64(sums[0], sums[i]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 0)) +
         static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 1)) +
         static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 2)) +
         static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 3));
}

// Weights whose values do not matter, but are finite and spread over the memory; codes may be any bits.
Linear weights_of(const BenchOptions& options) {
  const auto fill = [](at::Tensor to, int byte) {
    std::fill_n(static_cast<std::uint8_t*>(to.data_ptr()), to.nbytes(), static_cast<std::uint8_t>(byte));
    return to;
  };
  constexpr std::int64_t W = Linear::kPanel;
  const bool quantized = options.format.starts_with("int");
  const bool kept = options.format.ends_with("-kept");  // with f16 scales and minima, as in a file
  const QuantScheme scheme = quant_scheme(quantized ? options.format.substr(0, 4) : "none", options.group);
  const IndexRange columns{0, kDepth};
  if (quantized && (kept || options.format.size() == 4)) {
    const std::int64_t panels = kWeightBytes / static_cast<std::int64_t>(scheme.bytes(W, columns, kept));
    Linear linear;
    linear.panels_PKW = fill(empty_panels({panels, scheme.words(columns), W}, at::kInt), 0x5a);
    linear.scales_PGW = fill(empty_panels({panels, scheme.scales(columns), W}, kept ? at::kHalf : at::kBFloat16), 0x3c);
    if (kept) linear.offsets_PGW = fill(empty_panels({panels, scheme.scales(columns), W}, at::kHalf), 0x3c);
    linear.offset = kept ? CodeFormat::Offset::kMinimum : CodeFormat::Offset::kMiddle;
    linear.scheme = scheme;
    linear.num_inputs = kDepth;
    linear.num_outputs = panels * W;
    return linear;
  }
  const bool known = options.format == "f32" || options.format == "bf16" || options.format == "f16";
  MAGISTER_CHECK(known, ExitCode::kUsage,
                 "--format {} is not a storage of weights (nothing was measured); choose f32, bf16, f16, "
                 "int8, int4, int8-kept or int4-kept",
                 printable(options.format));
  const at::ScalarType type = options.format == "f32"    ? at::kFloat
                              : options.format == "bf16" ? at::kBFloat16
                                                         : at::kHalf;
  const std::int64_t panels = kWeightBytes / (W * kDepth * static_cast<std::int64_t>(c10::elementSize(type)));
  Linear linear;
  linear.panels_PKW = fill(empty_panels({panels, kDepth, W}, type), 0x3c);
  linear.num_outputs = panels * W;
  return linear;
}

}  // namespace

nlohmann::ordered_json bench_product(const BenchOptions& options) {
  const std::int64_t rows = std::max<std::int64_t>(1, options.rows);
  const Linear linear = weights_of(options);
  const at::Tensor x_MK = at::rand({rows, kDepth}, at::kFloat);
  at::Tensor out_MN = at::empty({rows, linear.out_features()}, at::kFloat);
  const auto product = [&] {
    linear_tile(x_MK.const_data_ptr<float>(), kDepth, rows, linear, out_MN.data_ptr<float>(), out_MN.size(1), false,
                nullptr, RowKind::kText);
  };
  std::uint64_t total = 0;
  const auto reading = [&] { total += sum_of(linear.panels_PKW.const_data_ptr(), linear.panels_PKW.nbytes()); };
  product();
  reading();
  std::vector<double> product_seconds, reading_seconds, ratios;
  const auto panel_bytes = static_cast<double>(linear.panels_PKW.nbytes());
  const double bytes = panel_bytes + (linear.is_quantized() ? static_cast<double>(linear.scales_PGW.nbytes()) : 0) +
                       (linear.offsets_PGW.defined() ? static_cast<double>(linear.offsets_PGW.nbytes()) : 0);
  for (int i = 0; i < options.repeats; ++i) {
    product_seconds.push_back(seconds_of(product));
    reading_seconds.push_back(seconds_of(reading));
    ratios.push_back(bytes / product_seconds.back() / (panel_bytes / reading_seconds.back()));
  }
  MAGISTER_CHECK(total != 1, ExitCode::kInternal, "the bench's own sum is {} (it must be used); report this", total);
  const double seconds = median(product_seconds);
  const double flops = 2.0 * static_cast<double>(rows * linear.in_features() * linear.out_features());
  return {{"bench", "product"},
          {"format", options.format},
          {"rows", rows},
          {"group", linear.scheme.group},
          {"gbs", bytes / seconds * 1e-9},
          {"read_gbs", panel_bytes / median(reading_seconds) * 1e-9},
          {"ratio", median(ratios)},
          {"gflops", flops / seconds * 1e-9},
          {"seconds", seconds},
          {"weight_bytes", bytes}};
}

}  // namespace magister
