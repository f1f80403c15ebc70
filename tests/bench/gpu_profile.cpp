// Records a GPU's activity for any program: the driver loads it if CUDA_INJECTION64_PATH names it, and it writes one
// line per kernel, copy and fill to the file MAGISTER_PROFILE_FILE, from CUPTI's activity records
// (docs.nvidia.com/cupti, "Activity API"): kind, begin and end in nanoseconds of the wall clock, bytes, name, separated
// by tabs. Lines are written every 200 ms, so that a program may be ended at any time. gpu_profile.py builds it where
// it is used. It costs a few microseconds per kernel.
#include <cupti.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <thread>

namespace {

constexpr std::size_t kBufferBytes = 4 << 20;

std::FILE* out() {
  static std::FILE* file = [] {
    const char* path = std::getenv("MAGISTER_PROFILE_FILE");
    return path != nullptr ? std::fopen(path, "w") : nullptr;
  }();
  return file;
}

std::mutex one_line;

void put(const char* kind, std::uint64_t begin, std::uint64_t end, std::uint64_t bytes, const char* name) {
  if (out() == nullptr) return;
  const std::lock_guard lock(one_line);
  std::fprintf(out(), "%s\t%llu\t%llu\t%llu\t%s\n", kind, static_cast<unsigned long long>(begin),
               static_cast<unsigned long long>(end), static_cast<unsigned long long>(bytes), name);
}

const char* direction(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "device to device";
    default:
      return "other";
  }
}

void take(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      put("kernel", kernel->start, kernel->end, 0, kernel->name);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      const bool is_pageable =
          copy->srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE || copy->dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
      put(is_pageable ? "copy, ordinary memory" : "copy", copy->start, copy->end, copy->bytes,
          direction(copy->copyKind));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      put("fill", fill->start, fill->end, fill->bytes, "memset");
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (valid_bytes > 0 && cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) take(record);
  std::free(buffer);
}

std::uint64_t CUPTIAPI wall_clock() {
  std::timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void write_all_the_time() {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    cuptiActivityFlushAll(0);
    if (out() != nullptr) std::fflush(out());
  }
}

}  // namespace

// The driver calls this before the program's first CUDA call. Errors of CUPTI are written to the file.
extern "C" int InitializeInjection() {
  const CUptiResult results[] = {
      cuptiActivityRegisterTimestampCallback(wall_clock), cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY),
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET)};
  for (const CUptiResult result : results) {
    const char* said = nullptr;
    if (result != CUPTI_SUCCESS && cuptiGetResultString(result, &said) == CUPTI_SUCCESS) put("refused", 0, 0, 0, said);
  }
  if (out() != nullptr) std::fflush(out());
  std::thread(write_all_the_time).detach();
  return 1;
}

// For a machine without a GPU: a line as a kernel would have it.
extern "C" void magister_profile_try(std::uint64_t begin, std::uint64_t end) {
  put("kernel", begin, end, 0, "_Z3tryv");
  if (out() != nullptr) std::fflush(out());
}
