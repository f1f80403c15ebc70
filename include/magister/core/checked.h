// Checked arithmetic for sizes that come from files: every product and sum is checked for overflow of 64 bits before it
// is used as a size.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "magister/core/error.h"

namespace magister {

// Returns a * b. Throws Error(kData) on overflow; `what` names the product in the message.
inline std::uint64_t checked_multiply(std::uint64_t a, std::uint64_t b, std::string_view what) {
  std::uint64_t product = 0;
  MAGISTER_CHECK(!__builtin_mul_overflow(a, b, &product), ExitCode::kData,
                 "{}: {} * {} does not fit 64 bits (the file's header cannot be true); fetch the file again", what, a,
                 b);
  return product;
}

inline std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, std::string_view what) {
  std::uint64_t sum = 0;
  MAGISTER_CHECK(!__builtin_add_overflow(a, b, &sum), ExitCode::kData,
                 "{}: {} + {} does not fit 64 bits (the file's header cannot be true); fetch the file again", what, a,
                 b);
  return sum;
}

}  // namespace magister
