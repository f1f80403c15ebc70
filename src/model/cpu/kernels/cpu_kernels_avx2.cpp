// CpuKernels compiled for AVX2; the bodies stand in cpu_kernels.inc.
#define MAGISTER_ISA isa_avx2
#include "model/cpu/kernels/cpu_kernels.inc"

namespace magister {

const CpuKernels& cpu_kernels_avx2_table() {
  static constexpr CpuKernels kKernels = isa_avx2::make_kernels("avx2");
  return kKernels;
}

}  // namespace magister
