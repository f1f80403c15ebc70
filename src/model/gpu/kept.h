// A value that a kernel keeps in a register.
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

}  // namespace magister::gpu
