// The formats of stored weights, which are template arguments of the products' kernels.
#pragma once

#include "magister/core/error.h"
#include "magister/device/launch.h"
#include "model/gpu/product_step.h"

namespace magister::gpu {

// Sets group_shift, and lead to 0 where one scale serves a whole row. group: 32, 64, 128 or 0.
void set_group(StoredWeight& weight, int group);

// True if the weight's rows can be read 16 bytes at a time.
bool is_aligned(const StoredWeight& weight, int bits);
// The same for the rows of x, too.
bool is_aligned(const ProductArguments& arguments, int bits);

// True for blocks of 32 outputs, which read x half as often as blocks of 16. That matters from 3 rows on with int4: 3
// rows of x have 0.75 of the bytes of a block's 16 outputs.
bool has_wide_blocks(const ProductArguments& arguments);

// Bytes of shared memory that a block can have. Source: the CUDA programming guide's table of compute capabilities.
std::size_t most_shared(const Queue& queue);

// Calls body.template operator()<bits, parts, offset>() with the arguments of ProductStep for a format.
template <int kBits, int kParts, typename Body>
void with_offset(CodeFormat::Offset offset, const Body& body) {
  switch (offset) {
    case CodeFormat::Offset::kMiddle:
      return body.template operator()<kBits, kParts, CodeFormat::Offset::kMiddle>();
    case CodeFormat::Offset::kZero:
      return body.template operator()<kBits, kParts, CodeFormat::Offset::kZero>();
    case CodeFormat::Offset::kMinimum:
      return body.template operator()<kBits, kParts, CodeFormat::Offset::kMinimum>();
  }
}
template <typename Body>
void with_format(int bits, int group, CodeFormat::Offset offset, const Body& body) {
  if (bits == 16) return body.template operator()<16, 1, CodeFormat::Offset::kMiddle>();
  if (offset == kFloatCodes) {
    MAGISTER_ASSERT(bits == 8 ? group == 0 : group == 32);
    return bits == 8 ? body.template operator()<8, 1, kFloatCodes>() : body.template operator()<4, 4, kFloatCodes>();
  }
  if (bits == 8) return group == 32 ? with_offset<8, 2>(offset, body) : with_offset<8, 1>(offset, body);
  MAGISTER_ASSERT(bits == 4);
  if (group == 32) return with_offset<4, 4>(offset, body);
  group == 64 ? with_offset<4, 2>(offset, body) : with_offset<4, 1>(offset, body);
}

}  // namespace magister::gpu
