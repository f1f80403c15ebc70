// grouped_product*_cuda.cu compile all instances; a new one here needs a line there.
#include "model/gpu/grouped_product.h"

#include "magister/core/error.h"
#include "model/gpu/product_formats.h"

namespace magister::gpu {
namespace {

// Weights with zero points or minima are not on a measured path: one instance for any number of rows.
template <int kBits, int kParts, CodeFormat::Offset kOffset, typename Run>
void by_rows(int rows, bool aligned, const Run& run) {
  if (!aligned) return run(DecodeProduct<kBits, kParts, kOffset, 4, 1, false>{});
  if constexpr (kOffset == CodeFormat::Offset::kMiddle) {
    if (rows <= 8) return run(DecodeProduct<kBits, kParts, kOffset, 1, 1>{});
    if (rows <= 16) return run(DecodeProduct<kBits, kParts, kOffset, 2, 2>{});
  }
  run(DecodeProduct<kBits, kParts, kOffset, 4, 2>{});
}

}  // namespace

int item_rows(std::int64_t R, std::int64_t k, std::int64_t X) {
  const std::int64_t expected = (3 * R * k + 2 * X - 1) / (2 * X), most = expected < R ? expected : R;
  return most <= 8 ? 8 : most <= 16 ? 16 : 32;
}

void grouped_product(const ProductArguments& a, const ExpertPlace* places_X, const ExpertRows* items_I, int I, int bits,
                     int group, bool aligned, const Queue& queue) {
  MAGISTER_ASSERT(a.M > 0 && a.M <= 32);
  if (a.weight.N == 0 || I == 0) return;
  ProductArguments own = a;
  set_group(own.weight, group);
  with_format(bits, group, a.weight.offset, [&]<int kBits, int kParts, CodeFormat::Offset kOffset>() {
    by_rows<kBits, kParts, kOffset>(a.M, aligned, [&]<typename Product>(Product product) {
      product.a = own;
      start(GroupedProduct<Product>{product, places_X, items_I, I}, queue);
    });
  });
}

}  // namespace magister::gpu
