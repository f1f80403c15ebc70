// CpuKernels compiled for AVX-512; cpu_kernels.inc has the bodies.
#define MAGISTER_ISA isa_avx512
#include "model/cpu/kernels/cpu_kernels.inc"

namespace magister {

const CpuKernels& cpu_kernels_avx512_table() {
  static constexpr CpuKernels kKernels = isa_avx512::make_kernels("avx512");
  return kKernels;
}

}  // namespace magister
