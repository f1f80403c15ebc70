// The GPUs and the host of the service's machine, as they are at this moment. Jobs may run elsewhere (`srun`): what
// their ranks measure is in their own run folders.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "magister/monitor/host.h"
#include "magister/monitor/nvml.h"

namespace magister {

// Thread-safe.
class Devices {
 public:
  Devices();
  // [{"index", "uuid", "name", "values": {metric: number}}], with the names of gpu_metrics().
  nlohmann::ordered_json gpus();
  std::size_t num_gpus() const { return gpus_.size(); }
  // Why no GPU can be asked; empty: NVIDIA's library works.
  const std::string& problem() const { return nvml_.problem(); }
  // {metric: number} of this process and its host, with the names of rank_metrics().
  nlohmann::ordered_json host();

 private:
  struct Gpu {
    std::string name;
    NvmlGpu reader;
  };
  const Nvml nvml_;
  std::vector<Gpu> gpus_;
  std::mutex mutex_;
  HostReader host_;
};

}  // namespace magister
