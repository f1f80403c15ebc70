// Values that a kernel keeps in registers, or does not.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// The value, a pointer or an int, which the compiler then keeps: it would rather compute addresses, products of 64 bits
// among them, anew at every use.
template <typename T>
MAGISTER_DEVICE T kept(T value) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 4);
#if defined(__CUDACC__)
  if constexpr (sizeof(T) == 8) {
    asm("" : "+l"(value));
  } else {
    asm("" : "+r"(value));
  }
#endif
  return value;
}

// The value, from which the compiler then computes other values where they are used: in a loop it would rather keep
// them all in registers, which a kernel that needs every register does not have.
MAGISTER_DEVICE int not_kept(int value) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(value));
#endif
  return value;
}

}  // namespace magister::gpu
