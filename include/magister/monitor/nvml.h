// NVIDIA's management library (NVML), loaded at run time: it comes with the driver, and neither its header nor its
// library is needed to build. Source: the stable C interface of libnvidia-ml.so.1. Local.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/monitor/metrics.h"

namespace magister {

// Our own text for a return code of NVML: nvmlErrorString() fails as well where there is no driver.
std::string nvml_error(int code);

class NvmlLibrary;  // handle of the library and its functions

// One GPU, or one instance of a divided GPU (MIG), by UUID.
class NvmlGpu {
 public:
  // Faults: problems that a reading has found, each reported once. A fatal one means that results can no longer be
  // trusted or that the GPU is gone.
  struct Fault {
    std::string message;
    bool fatal = false;
  };

  const std::string& uuid() const { return uuid_; }
  // The UUID of the whole GPU, which differs for an instance. Power and energy are those of the whole GPU.
  const std::string& whole_uuid() const { return whole_uuid_; }
  bool is_instance() const { return is_instance_; }
  // Returns what the GPU reports, by the names of gpu_metrics(); a quantity that it does not support is absent. Appends
  // faults that are new. slow: also the rates of PCIe, which NVML measures for 20 ms each.
  Readings read(std::vector<Fault>& faults, bool slow);

 private:
  friend class Nvml;
  NvmlGpu(std::shared_ptr<NvmlLibrary> library, std::string uuid);
  void read_memory(Readings& out);
  void read_power_and_clocks(Readings& out);
  void read_links(Readings& out, bool slow);
  void find_limits(const Readings& out, std::vector<Fault>& faults);
  void read_errors(Readings& out, std::vector<Fault>& faults);
  void warn_once(bool& warned, bool now, const std::string& message, std::vector<Fault>& faults) const;

  struct EventSet;
  std::shared_ptr<NvmlLibrary> library_;
  std::string uuid_, whole_uuid_;
  bool is_instance_ = false;
  struct nvmlDevice_st* device_ = nullptr;  // the GPU or the instance
  struct nvmlDevice_st* whole_ = nullptr;
  std::shared_ptr<EventSet> events_;
  double num_xid_ = 0;
  std::optional<double> first_ecc_, temperature_limit_;
  bool warned_hot_ = false, warned_thermal_ = false, warned_hardware_ = false, lost_ = false;
};

class Nvml {
 public:
  // Loads the library and starts it. If that fails, problem() tells why and open() finds no GPU.
  Nvml();
  const std::string& problem() const { return problem_; }
  // The whole GPUs of this host in the driver's order; empty if there is a problem.
  struct Named {
    std::string uuid, name;
  };
  std::vector<Named> gpus() const;
  // The GPU with this UUID as the CUDA runtime or NVML write it; empty: NVML does not know it, and why says more.
  std::optional<NvmlGpu> open(const std::string& uuid, std::string& why) const;

 private:
  std::string problem_;  // set while the library is made
  std::shared_ptr<NvmlLibrary> library_;
};

}  // namespace magister
