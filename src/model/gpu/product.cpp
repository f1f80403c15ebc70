// Chooses an instance by bits and group (the contents of a step of 64 bytes), then by the number of rows of x.
// product_cuda.cu, product_int4*_cuda.cu, product_ring_cuda.cu and product_wide_cuda.cu compile all instances; a new
// one here needs a line there.
// Sources: product_kernels.h, ring_product_kernel.h, wide_product_kernel.h.
#include "model/gpu/product.h"

#include <bit>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "model/gpu/dequantize_kernel.h"
#include "model/gpu/head_product_kernel.h"
#include "model/gpu/product_formats.h"
#include "model/gpu/product_kernels.h"
#include "model/gpu/ring_product_kernel.h"
#include "model/gpu/wide_product_kernel.h"

namespace magister::gpu {
namespace {

constexpr int kFewRows = 64;  // most rows of DecodeProduct

constexpr int kUnalignedRows = 32;  // rows at a time without alignment: more would spill registers

// Splits the rows for the unaligned product.
template <typename Multiply>
void in_parts(ProductArguments a, const Multiply& multiply) {
  const std::int64_t out_bytes = a.out_stride * (a.float_out ? 4 : 2);
  for (int left = a.M; left > 0; left -= kUnalignedRows) {
    a.M = left < kUnalignedRows ? left : kUnalignedRows;
    multiply(a);
    a.x_MK += kUnalignedRows * a.x_stride;
    a.out_MN = static_cast<unsigned char*>(a.out_MN) + kUnalignedRows * out_bytes;
  }
}

constexpr int blocks_of(int count, int size) { return (count + size - 1) / size; }

// True for more rows than DecodeProduct supports, or for more than half of that if there are at least as many blocks of
// 128 outputs as multiprocessors: a block of DecodeProduct reads 2 to 8 bytes of 64 rows of x for each of its weights.
bool is_wide(const ProductArguments& a) {
  return a.M > kFewRows || (a.M > kFewRows / 2 && blocks_of(a.weight.N, 128) >= kMultiprocessors);
}

// bf16 uses 128 rows per block if there is a block for at least every second multiprocessor. Codes leave too few
// registers for that many rows.
template <int kBits, int kParts, CodeFormat::Offset kOffset, typename Run>
void wide(const ProductArguments& a, const Run& run) {
  if constexpr (kBits == 16) {
    if (a.M > kFewRows && blocks_of(a.M, 128) * blocks_of(a.weight.N, 128) >= kMultiprocessors / 2 - 2)
      return run(WideProduct<kBits, kParts, kOffset, 8>{a});
  }
  run(WideProduct<kBits, kParts, kOffset, 4>{a});
}

template <int kBits, int kParts, CodeFormat::Offset kOffset, typename Run>
void by_rows(const ProductArguments& a, bool is_aligned, const Run& run) {
  if (!is_aligned) {
    in_parts(a, [&](const ProductArguments& part) { run(DecodeProduct<kBits, kParts, kOffset, 4, 1, false>{part}); });
  } else if (is_wide(a)) {
    wide<kBits, kParts, kOffset>(a, run);
  } else if constexpr (kOffset != CodeFormat::Offset::kMiddle) {
    a.M <= 8 ? run(DecodeProduct<kBits, kParts, kOffset, 1, 1>{a})
             : run(DecodeProduct<kBits, kParts, kOffset, 8, 2>{a});
  } else if (a.M <= 8) {
    has_wide_blocks(a) ? run(DecodeProduct<kBits, kParts, kOffset, 1, 2>{a})
                       : run(DecodeProduct<kBits, kParts, kOffset, 1, 1>{a});
  } else if (a.M <= 16) {
    run(DecodeProduct<kBits, kParts, kOffset, 2, 2>{a});
  } else if (a.M <= 32) {
    run(DecodeProduct<kBits, kParts, kOffset, 4, 2>{a});
  } else {
    run(DecodeProduct<kBits, kParts, kOffset, 8, 2>{a});
  }
}

// Starts the kernel unless the weight's scales or the GPU's shared memory do not fit it; DecodeProduct then has the
// same bits.
template <typename Ring>
bool started(const Ring& kernel, const Queue& queue) {
  if (!kernel.takes(most_shared(queue))) return false;
  start(kernel, queue);
  return true;
}

template <int kBits, int kParts, CodeFormat::Offset kOffset>
void by_rows(const ProductArguments& a, const NextWeight& next, const Queue& queue) {
  const bool aligned = is_aligned(a, kBits);
  if constexpr (kOffset == CodeFormat::Offset::kMiddle) {
    if (aligned && a.M <= 8 &&
        (has_wide_blocks(a) ? started(RingProduct<kBits, kParts, 2>{a, {}, next}, queue)
                            : started(RingProduct<kBits, kParts, 1>{a, {}, next}, queue)))
      return;
  }
  by_rows<kBits, kParts, kOffset>(a, aligned, [&](const auto& kernel) { start(kernel, queue); });
}

}  // namespace

bool is_aligned(const StoredWeight& w, int bits) {
  const auto whole = [](auto bytes) { return bytes % 16 == 0; };
  return whole(reinterpret_cast<std::uintptr_t>(w.rows)) && whole(w.row_bytes) && whole(std::int64_t{w.K} * bits / 8) &&
         std::int64_t{w.K} * bits % 8 == 0 && whole(w.lead * bits / 8) && w.lead * bits % 8 == 0;
}

bool is_aligned(const ProductArguments& a, int bits) {
  return is_aligned(a.weight, bits) && reinterpret_cast<std::uintptr_t>(a.x_MK) % 16 == 0 && a.x_stride % 8 == 0;
}

// If there would be fewer wide blocks than the 132 multiprocessors of an H200, the small blocks are faster.
bool has_wide_blocks(const ProductArguments& a) { return a.M > 2 && a.weight.N >= kMultiprocessors * 32; }

std::size_t most_shared(const Queue& queue) {
  const int capability = queue.on_host() ? 90 : gpu_compute_capability(queue.device);
  if (capability == 80 || capability == 87) return std::size_t{163} << 10;
  return std::size_t{capability >= 90 && capability < 120 ? 227u : 99u} << 10;
}

void set_group(StoredWeight& weight, int group) {
  MAGISTER_ASSERT(group == 0 || group == 32 || group == 64 || group == 128);
  weight.group_shift = group == 0 ? 30 : std::countr_zero(static_cast<unsigned>(group));
  if (group == 0) weight.lead = 0;
  MAGISTER_ASSERT(weight.scales == nullptr || weight.G == ((weight.lead + weight.K - 1) >> weight.group_shift) + 1);
  // The shape is the checkpoint's, and the kernels' indices have 32 bits.
  MAGISTER_CHECK(std::int64_t{weight.N} * weight.G < std::int64_t{1} << 31, ExitCode::kConfig,
                 "a quantised weight of {} x {} numbers has {} groups a row (the GPU's kernels count fewer than 2^31 "
                 "groups); divide the model over more GPUs, or choose model.quantization_group: 128",
                 weight.N, weight.K, weight.G);
}

void decode_product(ProductArguments a, int bits, int group, const Queue& queue, const NextWeight& next) {
  MAGISTER_ASSERT(a.M >= 0 && a.M <= kMostDecodeRows && (bits == 16) == (a.weight.scales == nullptr));
  MAGISTER_ASSERT((a.weight.offsets != nullptr) ==
                  (a.weight.offset == CodeFormat::Offset::kZero || a.weight.offset == CodeFormat::Offset::kMinimum));
  if (a.M == 0 || a.weight.N == 0) return;
  set_group(a.weight, group);
  with_format(bits, group, a.weight.offset, [&]<int kBits, int kParts, CodeFormat::Offset kOffset>() {
    if constexpr (kBits == 8 && kOffset == kFloatCodes) {
      MAGISTER_ASSERT(false);  // only grouped products read e4m3; others are cuBLAS's
    } else {
      by_rows<kBits, kParts, kOffset>(a, next, queue);
    }
  });
}

void head_products(const ProductArguments& a, const HeadStrides& steps, const Queue& queue) {
  MAGISTER_ASSERT(a.M >= 0 && a.M <= kMostDecodeRows && a.weight.scales == nullptr && a.weight.K > 0);
  if (a.M == 0 || steps.heads == 0) return;
  const bool aligned = is_aligned(a, 16) && steps.weight_bytes % 16 == 0 && steps.x % 8 == 0;
  by_rows<16, 1, CodeFormat::Offset::kMiddle>(
      a, aligned, [&]<typename Product>(const Product& kernel) { start(EachHead<Product>{kernel, steps}, queue); });
}

void dequantize(StoredWeight weight, int bits, int group, void* out_NK, bool float_out, const Queue& queue) {
  MAGISTER_ASSERT((bits == 8 || bits == 4) && weight.scales != nullptr &&
                  reinterpret_cast<std::uintptr_t>(out_NK) % 16 == 0);
  if (weight.N == 0) return;
  set_group(weight, group);
  const auto run = [&]<typename A>(A* out) {
    bits == 8 ? start(Dequantize<8, A>{weight, out}, queue) : start(Dequantize<4, A>{weight, out}, queue);
  };
  float_out ? run(static_cast<float*>(out_NK)) : run(static_cast<Bf16*>(out_NK));
}

}  // namespace magister::gpu
