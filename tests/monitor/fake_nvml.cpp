// A libnvidia-ml.so.1 for tests: it has every GPU that it is asked for, and reads its answers from the file that
// MAGISTER_FAKE_NVML names, anew at each call: lines of "name value". A name that is not in the file is not supported.
// A UUID that begins with MIG- is an instance of the GPU "GPU-whole".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6, kTimeout = 10;

struct FakeDevice {
  char uuid[96];
  bool instance;
};

// The last value of a name in the file, and how often it stands there.
int value_of(const char* name, double& value) {
  const char* const path = std::getenv("MAGISTER_FAKE_NVML");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "r");
  if (file == nullptr) return 0;
  char word[64];
  double number = 0;
  int found = 0;
  while (std::fscanf(file, "%63s %lf", word, &number) == 2) {
    if (std::strcmp(word, name) != 0) continue;
    value = number;
    ++found;
  }
  std::fclose(file);
  return found;
}

template <typename Number>
int answer(const char* name, Number* out) {
  double value = 0;
  if (value_of(name, value) == 0) return kNotSupported;
  *out = static_cast<Number>(value);
  return kSuccess;
}

FakeDevice* new_device(const char* uuid, bool instance) {
  auto* const device = new FakeDevice{"", instance};  // NVML's handles are never freed either
  std::snprintf(device->uuid, sizeof device->uuid, "%s", uuid);
  return device;
}

int events_given = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  double code = 0;
  return value_of("init", code) == 0 ? kSuccess : static_cast<int>(code);
}
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetHandleByUUID(const char* uuid, FakeDevice** device) {
  double value = 0;
  const bool mig = std::strncmp(uuid, "MIG-", 4) == 0;
  if (value_of("only_mig", value) > 0 && !mig) return kNotFound;
  *device = new_device(uuid, mig);
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) { return answer("gpus", count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, FakeDevice** device) {
  char uuid[32];
  std::snprintf(uuid, sizeof uuid, "GPU-%u", index);
  *device = new_device(uuid, false);
  return kSuccess;
}
int nvmlDeviceGetName(FakeDevice*, char* text, unsigned size) {
  std::snprintf(text, size, "Fake GPU");
  return kSuccess;
}
int nvmlDeviceIsMigDeviceHandle(FakeDevice* device, unsigned* is) {
  *is = device->instance ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(FakeDevice*, FakeDevice** whole) {
  *whole = new_device("GPU-whole", false);
  return kSuccess;
}
int nvmlDeviceGetUUID(FakeDevice* device, char* text, unsigned size) {
  std::snprintf(text, size, "%s", device->uuid);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(FakeDevice*, unsigned long long* memory) {
  double code = 0;
  if (value_of("memory_code", code) > 0) return static_cast<int>(code);
  if (answer("memory_total", &memory[0]) != kSuccess) return kNotSupported;
  answer("memory_used", &memory[2]);
  memory[1] = memory[0] - memory[2];
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(FakeDevice* device, unsigned* rates) {
  if (device->instance) return kNotSupported;
  answer("memory_busy", &rates[1]);
  return answer("utilization", &rates[0]);
}
int nvmlDeviceGetTemperature(FakeDevice* device, int, unsigned* value) {
  return device->instance ? kNotSupported : answer("temperature", value);
}
int nvmlDeviceGetTemperatureThreshold(FakeDevice*, int kind, unsigned* value) {
  return kind == 1 ? answer("slowdown", value) : kNotSupported;
}
int nvmlDeviceGetPowerUsage(FakeDevice* device, unsigned* value) {
  return device->instance ? kNotSupported : answer("power", value);
}
int nvmlDeviceGetEnforcedPowerLimit(FakeDevice*, unsigned* value) { return answer("power_limit", value); }
int nvmlDeviceGetTotalEnergyConsumption(FakeDevice*, unsigned long long* value) {
  double step = 0;
  static double grown = 0;
  const int code = answer("energy", value);
  // "energy_step": mJ by which the counter grows at each call.
  if (code == kSuccess && value_of("energy_step", step) > 0) *value += static_cast<unsigned long long>(grown += step);
  return code;
}
int nvmlDeviceGetClockInfo(FakeDevice*, int kind, unsigned* value) {
  return answer(kind == 1 ? "sm_clock" : "memory_clock", value);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(FakeDevice*, unsigned long long* value) {
  return answer("throttle", value);
}
int nvmlDeviceGetTotalEccErrors(FakeDevice*, int kind, int counter, unsigned long long* value) {
  return kind == 1 && counter == 0 ? answer("ecc", value) : kNotSupported;
}
int nvmlDeviceGetComputeRunningProcesses_v3(FakeDevice*, unsigned* count, void*) {
  const int code = answer("processes", count);
  return code == kSuccess && *count > 0 ? 7 : code;  // no room for them
}
int nvmlDeviceGetPcieThroughput(FakeDevice*, int received, unsigned* value) {
  return answer(received == 1 ? "pcie_received" : "pcie_sent", value);
}
struct FakeField {
  unsigned field, scope;
  long long timestamp, latency;
  int type, code;
  unsigned long long value;
};
int nvmlDeviceGetFieldValues(FakeDevice*, int count, FakeField* fields) {
  for (int i = 0; i < count; ++i) {
    const char* const name = fields[i].field == 138 ? "nvlink_sent" : "nvlink_received";
    fields[i].code = fields[i].scope == 0xffffffff ? answer(name, &fields[i].value) : kNotSupported;
    fields[i].type = 3;
  }
  return kSuccess;
}
int nvmlEventSetCreate(void** set) {
  static int one;
  *set = &one;
  return kSuccess;
}
int nvmlDeviceRegisterEvents(FakeDevice*, unsigned long long, void*) { return kSuccess; }
struct FakeEvent {
  FakeDevice* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
// Every line "xid N" is one event, given once.
int nvmlEventSetWait_v2(void*, FakeEvent* event, unsigned) {
  double xid = 0;
  if (value_of("xid", xid) <= events_given) return kTimeout;
  ++events_given;
  event->type = 8;
  event->data = static_cast<unsigned long long>(xid);
  return kSuccess;
}
int nvmlEventSetFree(void*) { return kSuccess; }
}
