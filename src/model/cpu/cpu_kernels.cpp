// Chooses the build of the CPU kernels by the CPU's features, once.
// Source: Intel SDM vol. 2 (CPUID leaf 7), read through the compiler's __builtin_cpu_supports and <cpuid.h>.
#include "magister/model/cpu/cpu_kernels.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "magister/core/error.h"

namespace magister {

const CpuKernels& cpu_kernels_avx2_table();
const CpuKernels& cpu_kernels_avx512_table();
const CpuKernels& cpu_kernels_avx512vnni_table();
void multiply_bf16_avx512(const Bf16Product& product);
void multiply_bf16_amx(const Bf16Product& product);

namespace {

bool is_amd() {
  static const bool amd = __builtin_cpu_is("amd");
  return amd;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_avx512_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx512() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

bool has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 22)) != 0;
}

// Linux lets a process use the AMX tiles (8 kB of state) only on request. Source: the kernel's document on XSTATE
// features.
bool may_use_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return has_avx512_bf16() && has_amx_bf16() && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuKernels with_bf16(const char* name, void (*multiply)(const Bf16Product&)) {
  CpuKernels kernels = cpu_kernels_f32();
  kernels.name = name;
  kernels.multiply_bf16 = multiply;
  return kernels;
}

const CpuKernels& chosen_kernels() {
  const std::vector<const CpuKernels*>& all = cpu_kernels_here();
  if (const char* forced = std::getenv("MAGISTER_CPU_KERNELS"); forced != nullptr && *forced != '\0') {
    std::string names;
    for (const CpuKernels* kernels : all) {
      if (std::string_view(forced) == kernels->name) return *kernels;
      names += std::string(names.empty() ? "" : ", ") + kernels->name;
    }
    fail(ExitCode::kConfig,
         "MAGISTER_CPU_KERNELS is \"{}\" in the environment (this CPU has {}); choose one of them or unset it",
         printable(forced), names);
  }
  const bool fast = std::string_view(all.back()->name) != "avx512bf16" || is_amd();
  return fast ? *all.back() : cpu_kernels_f32();
}

std::atomic<const CpuKernels*> in_use{nullptr};

}  // namespace

const CpuKernels& cpu_kernels_avx2() { return cpu_kernels_avx2_table(); }
const CpuKernels* cpu_kernels_avx512() { return has_avx512() ? &cpu_kernels_avx512_table() : nullptr; }
const CpuKernels& cpu_kernels_f32() {
  if (has_avx512_vnni()) return cpu_kernels_avx512vnni_table();
  return has_avx512() ? cpu_kernels_avx512_table() : cpu_kernels_avx2_table();
}

const std::vector<const CpuKernels*>& cpu_kernels_here() {
  static const std::vector<const CpuKernels*> all = [] {
    std::vector<const CpuKernels*> found = {&cpu_kernels_avx2()};
    if (has_avx512()) found.push_back(cpu_kernels_avx512());
    if (has_avx512_vnni()) found.push_back(&cpu_kernels_avx512vnni_table());
    static const CpuKernels pairs = with_bf16("avx512bf16", multiply_bf16_avx512),
                            tiles = with_bf16("amx", multiply_bf16_amx);
    if (has_avx512_bf16()) found.push_back(&pairs);
    if (may_use_amx()) found.push_back(&tiles);
    return found;
  }();
  return all;
}

const CpuKernels& cpu_kernels() {
  const CpuKernels* kernels = in_use.load(std::memory_order_relaxed);
  if (kernels == nullptr) {
    static const CpuKernels& chosen = chosen_kernels();
    use_cpu_kernels(chosen);
    kernels = &chosen;
  }
  return *kernels;
}

void use_cpu_kernels(const CpuKernels& kernels) { in_use.store(&kernels, std::memory_order_relaxed); }

const char* cpu_features() {
  static const std::string features = [] {
    std::string words = "avx2 fma";
    if (has_avx512()) words += " avx512";
    if (has_avx512_vnni()) words += " avx512vnni";
    if (has_avx512_bf16()) words += " avx512bf16";
    if (has_amx_bf16()) words += " amx-bf16";
    return words;
  }();
  return features.c_str();
}

bool cpu_prefers_bf16() { return cpu_kernels().multiply_bf16 != nullptr; }

PanelFetch panel_fetch(std::int64_t rows) {
  constexpr std::int64_t kAhead = 8192, kMostWithout = 5;
  if (!is_amd()) return {kAhead, false};
  return rows <= kMostWithout ? PanelFetch{} : PanelFetch{kAhead, true};
}

std::int64_t slab_inputs() { return is_amd() ? 768 : 192; }

std::int64_t rows_of_tile() { return &cpu_kernels() == &cpu_kernels_avx2_table() ? 128 : 256; }

}  // namespace magister
