// The functions of libnvidia-ml.so.1 that are used, with the types and constants of its stable C interface.
#pragma once

#include <memory>
#include <string>

namespace magister {

using NvmlDevice = struct nvmlDevice_st*;
using NvmlEventSet = struct nvmlEventSet_st*;

struct NvmlUtilization {
  unsigned gpu = 0, memory = 0;  // percent
};
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;  // bytes
};
struct NvmlProcess {
  unsigned pid = 0;
  unsigned long long used_memory = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
struct NvmlEvent {
  NvmlDevice device = nullptr;
  unsigned long long type = 0, data = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
struct NvmlField {
  unsigned field = 0, scope = 0;
  long long timestamp = 0, latency = 0;
  int type = 0, code = 0;
  union {
    double floating;
    unsigned whole;
    unsigned long long large = 0;
  };
};

constexpr int kNvmlSuccess = 0, kNvmlNotSupported = 3, kNvmlTimeout = 10, kNvmlGpuIsLost = 15;
constexpr unsigned long long kNvmlEventDoubleBitEcc = 0x2, kNvmlEventXid = 0x8;
constexpr unsigned long long kNvmlSwPowerCap = 0x4, kNvmlHwSlowdown = 0x8, kNvmlSwThermal = 0x20, kNvmlHwThermal = 0x40,
                             kNvmlHwPowerBrake = 0x80;
constexpr unsigned kNvmlFieldNvlinkTransmit = 138, kNvmlFieldNvlinkReceive = 139;  // KiB
constexpr unsigned kNvmlAllLinks = 0xffffffff;
constexpr int kNvmlThresholdSlowdown = 1, kNvmlClockSm = 1, kNvmlClockMemory = 2, kNvmlUncorrected = 1,
              kNvmlVolatile = 0;

// A function that an old driver lacks is null. Everything but the first four may be.
class NvmlLibrary {
 public:
  // problem: why it cannot be used; empty: it can.
  explicit NvmlLibrary(std::string& problem);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*is_instance)(NvmlDevice, unsigned*) = nullptr;
  int (*whole_of_instance)(NvmlDevice, NvmlDevice*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*temperature_limit)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;                // mW
  int (*power_limit)(NvmlDevice, unsigned*) = nullptr;          // mW
  int (*energy)(NvmlDevice, unsigned long long*) = nullptr;     // mJ
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;           // MHz
  int (*throttled)(NvmlDevice, unsigned long long*) = nullptr;  // bits
  int (*ecc_errors)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  int (*pcie)(NvmlDevice, int, unsigned*) = nullptr;  // KB/s; 0: sent, 1: received
  int (*fields)(NvmlDevice, int, NvmlField*) = nullptr;
  int (*make_events)(NvmlEventSet*) = nullptr;
  int (*register_events)(NvmlDevice, unsigned long long, NvmlEventSet) = nullptr;
  int (*wait_for_event)(NvmlEventSet, NvmlEvent*, unsigned) = nullptr;  // ms
  int (*free_events)(NvmlEventSet) = nullptr;

 private:
  template <typename Function>
  bool load(Function*& function, const char* name);

  void* library_ = nullptr;
  bool works_ = false;
};

}  // namespace magister
