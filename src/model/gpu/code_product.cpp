// code_product_cuda.cu compiles all instances; a new one here needs a line there.
#include "model/gpu/code_product.h"

#include "magister/core/error.h"
#include "model/gpu/code_product_kernel.h"
#include "model/gpu/product.h"
#include "model/gpu/product_formats.h"

namespace magister::gpu {
namespace {

// Rows are divided evenly over blocks, since a block with few rows widens as many codes as one with many.
int rows_of_block(int M, int most, int step) {
  const int blocks = (M + most - 1) / most, rows = (M + blocks - 1) / blocks;
  return (rows + step - 1) / step * step;
}

template <typename Kernel>
void run(const ProductArguments& a, float* pieces, const CodeShares& shares, const Queue& queue) {
  const bool has_room = Kernel::shared_bytes(Kernel::kManyStages) <= most_shared(queue);
  start(Kernel{a.weight, a.x_MK, a.x_stride, pieces, a.M, rows_of_block(a.M, Kernel::kMostRows, Kernel::kRowStep),
               has_room ? Kernel::kManyStages : Kernel::kFewStages, shares},
        queue);
}

}  // namespace

bool takes_codes(const GpuLinear& linear) {
  if (!linear.is_quantized() || linear.offset == kFloatCodes) return false;
  const StoredWeight weight = linear.stored();
  return code_product_fits(linear.outputs, linear.inputs, weight.lead) &&
         is_aligned(weight, static_cast<int>(linear.scheme.bits()));
}

void code_product(ProductArguments a, int bits, int group, float* pieces, const Queue& queue) {
  MAGISTER_ASSERT(a.M >= 0 && a.M <= kMostDecodeRows && (bits == 8 || bits == 4) && a.weight.scales != nullptr);
  MAGISTER_ASSERT(code_product_fits(a.weight.N, a.weight.K, group == 0 ? 0 : a.weight.lead) && is_aligned(a, bits) &&
                  a.out_stride % 8 == 0 && a.output_scales_N == nullptr);
  if (a.M == 0 || a.weight.N == 0) return;
  set_group(a.weight, group);
  const CodeShares shares = CodeShares::of(a.weight.N, a.weight.K);
  if (bits == 4) {
    run<CodeProduct<4, false>>(a, pieces, shares, queue);
  } else if (a.weight.offset == CodeFormat::Offset::kMiddle && !a.weight.half_scales) {
    run<CodeProduct<8, true>>(a, pieces, shares, queue);
  } else {
    run<CodeProduct<8, false>>(a, pieces, shares, queue);
  }
  start(AddPieces{pieces, shares, a}, queue);
}

}  // namespace magister::gpu
