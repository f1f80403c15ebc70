// Panels: packing, and the loops around the micro-kernel. Blocking after Goto & van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication" (2008): a slab of 192 x 48 weights (36 kB) stays in L1 while all rows of the
// tile use it, and the next slab is prefetched meanwhile. Measured with 256 rows and sizes from 576 to 4096: 192 is
// best or within 2 % (128, 256, 384 and 576 were tried). On AMD's Zen 4 larger slabs are better: slab_inputs().
#include "magister/model/cpu/matmul.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/panels.h"
#include "magister/parallel/thread_pool.h"

// The BLAS inside libtorch_cpu (MKL, 32-bit integers). ATen does not export its wrapper.
extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

namespace magister {
namespace {

constexpr std::int64_t kPanel = Linear::kPanel;
constexpr std::int64_t kSlab = 192;      // inputs per slab of weights that are widened
constexpr std::int64_t kTileRows = 256;  // rows_of_tile() is at most this
// Up to this number 16-bit weights are widened in registers; with more rows, slab by slab in L1.
constexpr std::int64_t kFewRows = 8;

WeightFormat format_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return WeightFormat::kF32;
    case at::kBFloat16:
      return WeightFormat::kBF16;
    case at::kHalf:
      return WeightFormat::kF16;
    default:
      MAGISTER_ASSERT(false);
      return WeightFormat::kF32;
  }
}

// One panel of a packed weight in any storage.
struct Panel {
  WeightFormat format;
  const char* bytes;
  QuantizedPanel quantized;  // of a quantised weight
  bool eight_bits = false;   // int8 codes, else int4
  bool is_quantized() const { return format >= WeightFormat::kInt8; }
  int quant_index() const { return static_cast<int>(format) - static_cast<int>(WeightFormat::kInt8); }

  // Address of row k.
  const char* at(std::int64_t k) const {
    if (is_quantized()) return bytes + (quantized.lead % 8 + k) * kPanel / (eight_bits ? 1 : 2);
    return bytes +
           k * kPanel * static_cast<std::int64_t>(format == WeightFormat::kF32 ? sizeof(float) : sizeof(std::uint16_t));
  }
  // Writes rows [begin, begin + depth) of k as f32 [depth, 48].
  void widen(std::int64_t begin, std::int64_t depth, float* to) const {
    const CpuKernels& kernels = cpu_kernels();
    if (is_quantized()) return kernels.widen_quantized[quant_index()](quantized, begin, begin + depth, to);
    const auto* bits = reinterpret_cast<const std::uint16_t*>(at(begin));
    if (format == WeightFormat::kBF16) kernels.from_bf16(bits, to, depth * kPanel);
    if (format == WeightFormat::kF16) kernels.from_f16(bits, to, depth * kPanel);
  }
};

Panel panel_of(const Linear& linear, std::int64_t index) {
  const at::Tensor& panels = linear.panels_PKW;
  const auto* bytes = static_cast<const char*>(panels.const_data_ptr()) +
                      index * panels.stride(0) * static_cast<std::int64_t>(panels.element_size());
  if (!linear.is_quantized()) return {format_of(linear.dtype()), bytes, {}};
  const auto of_panel = [index](const at::Tensor& all_PGW) {
    return static_cast<const std::uint16_t*>(all_PGW.const_data_ptr()) + index * all_PGW.stride(0);
  };
  QuantizedPanel quantized{reinterpret_cast<const std::uint32_t*>(bytes), of_panel(linear.scales_PGW),
                           linear.scheme.group, linear.lead};
  quantized.half_scales = linear.scales_PGW.scalar_type() == at::kHalf;
  const bool kept = quantized.half_scales || linear.offsets_PGW.defined(),
             eight = linear.scheme.type == QuantType::kInt8;
  if (linear.offsets_PGW.defined()) {
    quantized.offsets = of_panel(linear.offsets_PGW);
    quantized.offsets_are_zeros = linear.offset == CodeFormat::Offset::kZero;
  }
  const WeightFormat format = kept ? (eight ? WeightFormat::kInt8Kept : WeightFormat::kInt4Kept)
                                   : (eight ? WeightFormat::kInt8 : WeightFormat::kInt4);
  return {format, bytes, quantized, eight};
}

// One panel's product for at most kTileRows rows. Few rows read numbers directly; more rows, and codes, go slab by slab
// through f32.
void multiply_panel(const float* x, std::int64_t x_stride, std::int64_t rows, const Panel& panel, std::int64_t k,
                    float* out, std::int64_t out_stride, std::int64_t columns, bool accumulate) {
  alignas(64) thread_local float widened[kSlab * kPanel];
  alignas(64) thread_local float sums[kTileRows * kPanel];
  const CpuKernels& kernels = cpu_kernels();
  const bool through_buffer = panel.is_quantized() || (panel.format != WeightFormat::kF32 && rows > kFewRows);
  const std::int64_t slab = through_buffer ? kSlab : rows <= kFewRows ? k : slab_inputs();
  MAGISTER_ASSERT(rows <= kTileRows);
  for (std::int64_t begin = 0; begin < k; begin += slab) {
    const std::int64_t depth = std::min(slab, k - begin);
    if (through_buffer) panel.widen(begin, depth, widened);
    Product product{x + begin,
                    x_stride,
                    rows,
                    through_buffer ? static_cast<const void*>(widened) : panel.at(begin),
                    kPanel,
                    depth,
                    accumulate ? sums : out,
                    accumulate ? kPanel : out_stride,
                    columns,
                    begin > 0};
    if (rows > kFewRows) {
      product.next = panel.at(begin + depth);
      product.next_bytes = panel.at(begin + depth) - panel.at(begin);
    }
    product.streams = rows <= kFewRows && !through_buffer;
    if (product.streams) product.fetch = panel_fetch(rows);
    // The product is summed from zero and added last. So the bits equal those of a partial product that a group sums.
    if (accumulate && begin + depth == k) {
      product.add_to = out;
      product.add_stride = out_stride;
    }
    kernels.multiply[static_cast<int>(through_buffer ? WeightFormat::kF32 : panel.format)](product);
  }
}

// Outputs [first, last); first must be a multiple of kPanel.
void linear_tile_packed(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear,
                        std::int64_t first, std::int64_t last, float* out, std::int64_t out_stride, bool accumulate) {
  const std::int64_t k = linear.in_features();
  for (std::int64_t begin = first; begin < last; begin += kPanel) {
    multiply_panel(x, x_stride, rows, panel_of(linear, begin / kPanel), k, out + begin, out_stride,
                   std::min(kPanel, last - begin), accumulate);
  }
}

// Codes, for rows of texts that are being written.
void linear_tile_codes(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear,
                       std::int64_t first, std::int64_t last, float* out, std::int64_t out_stride, bool accumulate) {
  const Panel panel = panel_of(linear, first / kPanel);
  const int bits = panel.eight_bits ? 0 : 1;
  cpu_kernels().multiply_codes[bits]({x, x_stride, rows, linear.num_inputs, panel.quantized,
                                      linear.panels_PKW.stride(0), linear.scales_PGW.stride(0), out + first, out_stride,
                                      last - first, accumulate});
}

// Panels of pairs. All rows are passed at once, because the activations are rounded once for all panels.
void linear_tile_pairs(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear,
                       std::int64_t first, std::int64_t last, float* out, std::int64_t out_stride, bool accumulate) {
  const at::Tensor& panels = linear.panels_PKW;
  const auto* bits = static_cast<const std::uint16_t*>(panels.const_data_ptr()) + first / kPanel * panels.stride(0);
  cpu_kernels().multiply_bf16({x, x_stride, rows, linear.num_inputs, bits, panels.stride(0), out + first, out_stride,
                               last - first, accumulate});
}

// Returns [K, 48] from a panel of pairs [Kp / 2, 96].
at::Tensor unpaired(const at::Tensor& panel_HW, std::int64_t k) {
  return panel_HW.view({-1, kPanel, 2}).transpose(1, 2).reshape({-1, kPanel}).narrow(0, 0, k);
}

}  // namespace

at::Tensor Linear::plain_weight() const {
  if (!is_packed()) return weight_NK;
  const std::int64_t k = in_features();
  at::Tensor numbers_PKW = panels_PKW;
  if (is_quantized()) {
    numbers_PKW = at::empty({panels_PKW.size(0), k, kPanel}, at::TensorOptions().dtype(at::kFloat));
    for (std::int64_t p = 0; p < panels_PKW.size(0); ++p) {
      panel_of(*this, p).widen(0, k, numbers_PKW.data_ptr<float>() + p * k * kPanel);
    }
  }
  if (pairs) {
    numbers_PKW = at::empty({panels_PKW.size(0), k, kPanel}, panels_PKW.options());
    for (std::int64_t p = 0; p < panels_PKW.size(0); ++p)
      numbers_PKW.select(0, p).copy_(unpaired(panels_PKW.select(0, p), k));
  }
  return numbers_PKW.transpose(1, 2).reshape({-1, k}).narrow(0, 0, num_outputs).contiguous();
}

Linear Linear::outputs(std::int64_t begin, std::int64_t end) const {
  const at::Tensor bias = bias_N.defined() ? bias_N.narrow(0, begin, end - begin) : at::Tensor();
  if (!is_packed()) return {weight_NK.narrow(0, begin, end - begin), bias};
  MAGISTER_ASSERT(begin % kPanel == 0 && begin <= end && end <= num_outputs);
  const std::int64_t first = begin / kPanel, last = (end + kPanel - 1) / kPanel;
  Linear out = *this;
  out.bias_N = bias;
  out.panels_PKW = panels_PKW.narrow(0, first, last - first);
  if (is_quantized()) out.scales_PGW = scales_PGW.narrow(0, first, last - first);
  if (offsets_PGW.defined()) out.offsets_PGW = offsets_PGW.narrow(0, first, last - first);
  out.num_outputs = end - begin;
  return out;
}

void Linear::copy_row(std::int64_t n, float* out) const {
  if (is_quantized()) {
    const at::Tensor row_1K =
        outputs(n / kPanel * kPanel, std::min(num_outputs, (n / kPanel + 1) * kPanel)).plain_weight();
    std::copy_n(row_1K.const_data_ptr<float>() + n % kPanel * num_inputs, num_inputs, out);
    return;
  }
  if (pairs) {
    const auto* from = static_cast<const std::uint16_t*>(panels_PKW.const_data_ptr()) +
                       n / kPanel * panels_PKW.stride(0) + n % kPanel * 2;
    for (std::int64_t i = 0; i < num_inputs; ++i) {
      out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i / 2 * 2 * kPanel + i % 2]) << 16);
    }
    return;
  }
  const at::Tensor row_K =
      is_packed() ? panels_PKW.select(0, n / kPanel).select(1, n % kPanel) : weight_NK.select(0, n);
  const std::int64_t stride = row_K.stride(0);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, row_K.scalar_type(), "copy_row", [&] {
    const auto* from = static_cast<const scalar_t*>(row_K.const_data_ptr());
    for (std::int64_t i = 0; i < row_K.size(0); ++i) out[i] = static_cast<float>(from[i * stride]);
  });
}

Linear pack(Linear plain, ThreadPool* pool) {
  if (plain.is_packed()) return plain;
  const at::Tensor& weight_NK = plain.weight_NK;
  const std::int64_t n = weight_NK.size(0);
  Linear packed = empty_packed(n, weight_NK.size(1), weight_NK.scalar_type());
  packed.bias_N = plain.bias_N;
  clear_padding(packed);
  on_threads(pool, (n + kPanel - 1) / kPanel, [&](std::int64_t p) {
    pack_rows(weight_NK.narrow(0, p * kPanel, std::min(kPanel, n - p * kPanel)), p * kPanel, packed);
  });
  return packed;
}

void linear_tile(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear, float* out,
                 std::int64_t out_stride, bool accumulate, ThreadPool* pool, RowKind kind) {
  if (linear.is_packed()) {
    const std::int64_t n = linear.out_features(), panels = (n + kPanel - 1) / kPanel;
    const std::int64_t parts = pool == nullptr ? 1 : std::min(panels, std::int64_t{4} * pool->num_threads());
    const auto part = [&](std::int64_t i, int) {
      const std::int64_t first = panels * i / parts * kPanel, last = std::min(panels * (i + 1) / parts * kPanel, n);
      if (linear.pairs) return linear_tile_pairs(x, x_stride, rows, linear, first, last, out, out_stride, accumulate);
      if (linear.is_quantized() && kind == RowKind::kText)
        return linear_tile_codes(x, x_stride, rows, linear, first, last, out, out_stride, accumulate);
      // Even tiles: each reads all weights.
      const std::int64_t tiles = (rows + rows_of_tile() - 1) / rows_of_tile();
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t r = rows * tile / tiles, end = rows * (tile + 1) / tiles;
        linear_tile_packed(x + r * x_stride, x_stride, end - r, linear, first, last, out + r * out_stride, out_stride,
                           accumulate);
      }
    };
    if (parts > 1) {
      pool->run(parts, part);
    } else {
      part(0, 0);
    }
  } else {
    MAGISTER_ASSERT(linear.dtype() == at::kFloat);
    sgemm(true, rows, linear.out_features(), linear.in_features(), 1.0f, x, x_stride,
          linear.weight_NK.const_data_ptr<float>(), linear.in_features(), accumulate ? 1.0f : 0.0f, out, out_stride);
  }
  if (!linear.bias_N.defined()) return;
  cpu_kernels().add_bias(out, out_stride, linear.bias_N.const_data_ptr<float>(), rows, linear.out_features());
}

void sgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
           std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return;
  const char transa = transpose_b ? 'T' : 'N';
  const char transb = 'N';
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), inner = static_cast<int>(k);
  const int lda = static_cast<int>(b_stride), ldb = static_cast<int>(a_stride), ldc = static_cast<int>(c_stride);
  sgemm_(&transa, &transb, &rows, &columns, &inner, &alpha, b, &lda, a, &ldb, &beta, c, &ldc);
}

}  // namespace magister
