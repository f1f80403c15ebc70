// Chooses the instance by bits and group. product_paired_cuda.cu compiles all instances.
#include "model/gpu/paired_product.h"

#include "model/gpu/product_formats.h"
#include "model/gpu/ring_product_kernel.h"

namespace magister::gpu {
namespace {

template <typename End>
bool paired_product(ProductArguments a, int bits, int group, const End& end, const Queue& queue,
                    const NextWeight& next) {
  if (a.M == 0 || a.M > 8 || has_wide_blocks(a) || a.weight.N % 16 != 0 ||
      a.weight.offset != CodeFormat::Offset::kMiddle || !is_aligned(a, bits))
    return false;
  set_group(a.weight, group);
  bool is_started = false;
  with_format(bits, group, CodeFormat::Offset::kMiddle, [&]<int kBits, int kParts, CodeFormat::Offset kOffset>() {
    if constexpr (kOffset == CodeFormat::Offset::kMiddle) {
      const RingProduct<kBits, kParts, 1, End> kernel{a, end, next};
      is_started = kernel.takes(most_shared(queue));
      if (is_started) start(kernel, queue);
    }
  });
  return is_started;
}

bool turns_alone(const RotateHeads<Bf16>& heads) {
  return heads.q_norm_E == nullptr && heads.k_norm_E == nullptr && !heads.codes && heads.E % 16 == 0 &&
         heads.R == heads.E && heads.value_dim() == heads.E;
}

}  // namespace

bool gate_product(const ProductArguments& arguments, int bits, int group, const GateEnds& end, const Queue& queue,
                  const NextWeight& next) {
  return end.F % 8 == 0 && arguments.weight.N == 2 * end.F && paired_product(arguments, bits, group, end, queue, next);
}

bool rotate_product(const ProductArguments& arguments, int bits, int group, const RotatedEnds& end, const Queue& queue,
                    const NextWeight& next) {
  const RotateHeads<Bf16>& heads = end.heads;
  return turns_alone(heads) && arguments.weight.N == (heads.H + 2 * heads.K) * heads.E &&
         paired_product(arguments, bits, group, end, queue, next);
}

}  // namespace magister::gpu
