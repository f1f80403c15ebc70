// See nvml_library.h.
#include "monitor/nvml_library.h"

#include <dlfcn.h>

#include "magister/core/error.h"
#include "magister/monitor/nvml.h"

namespace magister {

std::string nvml_error(int code) {
  switch (code) {
    case 0:
      return "success";
    case 1:
      return "the library was not started";
    case 2:
      return "an argument is invalid";
    case 3:
      return "the GPU does not support this";
    case 4:
      return "this user may not ask for it";
    case 6:
      return "no such GPU";
    case 8:
      return "a power cable is not attached";
    case 9:
      return "the NVIDIA driver is not loaded";
    case 10:
      return "the time is over";
    case 11:
      return "the kernel has a problem with the GPU's interrupts";
    case 12:
      return "a library of the driver is missing";
    case 13:
      return "the driver lacks this function";
    case 14:
      return "the GPU's InfoROM is damaged";
    case 15:
      return "the GPU has fallen off the bus or cannot be reached";
    case 16:
      return "the GPU must be reset";
    case 17:
      return "the operating system (a container or a cgroup) blocks access to the GPU";
    case 18:
      return "the library and the kernel's driver have different versions";
    case 19:
      return "the GPU is in use";
    case 20:
      return "not enough memory";
    case 21:
      return "no data yet";
    case 28:
      return "no GPU was found";
    default:
      return fmt::format("error {} of NVML", code);
  }
}

template <typename Function>
bool NvmlLibrary::load(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library_, name));
  return function != nullptr;
}

NvmlLibrary::NvmlLibrary(std::string& problem) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) {
    problem = "libnvidia-ml.so.1, a library of the NVIDIA driver, cannot be loaded";
    return;
  }
  if (!load(init, "nvmlInit_v2") || !load(shutdown, "nvmlShutdown") || !load(by_uuid, "nvmlDeviceGetHandleByUUID") ||
      !load(memory, "nvmlDeviceGetMemoryInfo")) {
    problem = "libnvidia-ml.so.1 lacks functions that every driver since 2018 has";
    return;
  }
  load(count, "nvmlDeviceGetCount_v2");
  load(by_index, "nvmlDeviceGetHandleByIndex_v2");
  load(name, "nvmlDeviceGetName");
  load(is_instance, "nvmlDeviceIsMigDeviceHandle");
  load(whole_of_instance, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  load(uuid, "nvmlDeviceGetUUID");
  load(utilization, "nvmlDeviceGetUtilizationRates");
  load(temperature, "nvmlDeviceGetTemperature");
  load(temperature_limit, "nvmlDeviceGetTemperatureThreshold");
  load(power, "nvmlDeviceGetPowerUsage");
  load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  load(energy, "nvmlDeviceGetTotalEnergyConsumption");
  load(clock, "nvmlDeviceGetClockInfo");
  if (!load(throttled, "nvmlDeviceGetCurrentClocksEventReasons"))
    load(throttled, "nvmlDeviceGetCurrentClocksThrottleReasons");
  load(ecc_errors, "nvmlDeviceGetTotalEccErrors");
  load(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  load(pcie, "nvmlDeviceGetPcieThroughput");
  load(fields, "nvmlDeviceGetFieldValues");
  load(make_events, "nvmlEventSetCreate");
  load(register_events, "nvmlDeviceRegisterEvents");
  load(wait_for_event, "nvmlEventSetWait_v2");
  load(free_events, "nvmlEventSetFree");
  const int code = init();
  works_ = code == kNvmlSuccess;
  if (!works_) problem = "NVML does not start: " + nvml_error(code);
}

NvmlLibrary::~NvmlLibrary() {
  if (works_) shutdown();
  if (library_ != nullptr) dlclose(library_);
}

}  // namespace magister
