// CpuKernels compiled for AVX2; cpu_kernels.inc has the bodies.
#define MAGISTER_ISA isa_avx2
#include "model/cpu/kernels/cpu_kernels.inc"

namespace magister {

const CpuKernels& cpu_kernels_avx2_table() {
  static constexpr CpuKernels kKernels = isa_avx2::make_kernels("avx2");
  return kKernels;
}

}  // namespace magister
