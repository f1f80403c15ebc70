// CpuKernels compiled for AVX-512 with VNNI, which multiplies and adds pairs of 16 bits in one instruction;
// cpu_kernels.inc has the bodies.
#define MAGISTER_ISA isa_avx512vnni
#include "model/cpu/kernels/cpu_kernels.inc"

namespace magister {

const CpuKernels& cpu_kernels_avx512vnni_table() {
  static constexpr CpuKernels kKernels = isa_avx512vnni::make_kernels("avx512vnni");
  return kKernels;
}

}  // namespace magister
