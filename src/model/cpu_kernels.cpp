// Chooses the build of the CPU kernels by CPU feature, once.
// Source: Intel SDM vol. 2 (CPUID leaf 7), read through the compiler's __builtin_cpu_supports and <cpuid.h>.
#include "magister/model/cpu_kernels.h"

#include <cpuid.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace magister {

const CpuKernels& cpu_kernels_avx2_table();
const CpuKernels& cpu_kernels_avx512_table();

namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

bool has_avx512_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx512() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

bool has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 22)) != 0;
}

}  // namespace

const CpuKernels& cpu_kernels_avx2() { return cpu_kernels_avx2_table(); }
const CpuKernels* cpu_kernels_avx512() { return has_avx512() ? &cpu_kernels_avx512_table() : nullptr; }

const CpuKernels& cpu_kernels() {
  static const CpuKernels& chosen = [&]() -> const CpuKernels& {
    const char* forced = std::getenv("MAGISTER_CPU_KERNELS");
    if (forced != nullptr && std::string_view(forced) == "avx2") return cpu_kernels_avx2();
    const CpuKernels* wide = cpu_kernels_avx512();
    return wide != nullptr ? *wide : cpu_kernels_avx2();
  }();
  return chosen;
}

const char* cpu_features() {
  static const std::string features = [] {
    std::string words = "avx2 fma";
    if (has_avx512()) words += " avx512";
    if (__builtin_cpu_supports("avx512vnni")) words += " avx512vnni";
    if (has_avx512_bf16()) words += " avx512bf16";
    if (has_amx_bf16()) words += " amx-bf16";
    return words;
  }();
  return features.c_str();
}

bool cpu_prefers_bf16() { return has_amx_bf16() || (has_avx512_bf16() && __builtin_cpu_is("amd")); }

}  // namespace magister
