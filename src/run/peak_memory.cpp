// See peak_memory.h. Source: proc(5), /proc/pid/status and /proc/pid/clear_refs (5 resets the peak).
#include "magister/run/peak_memory.h"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/units_of_measure.h"
#include "magister/device/gpu.h"

namespace magister {
namespace {

struct OfProcess {
  std::mutex mutex;
  PeakMemory most;
  std::vector<int> counted;  // GPUs whose peak is reset when the next task begins
};

OfProcess& of_process() {
  static OfProcess process;
  return process;
}

std::uint64_t resident_peak() {
  constexpr std::string_view kName = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName)) return 1024 * std::stoull(line.substr(kName.size()));
  }
  return 0;
}

void keep_most(PeakMemory& most, const PeakMemory& other) {
  most.host_bytes = std::max(most.host_bytes, other.host_bytes);
  for (const GpuPeak& gpu : other.gpus) {
    const auto known =
        std::find_if(most.gpus.begin(), most.gpus.end(), [&](const GpuPeak& one) { return one.uuid == gpu.uuid; });
    if (known == most.gpus.end()) {
      most.gpus.push_back(gpu);
    } else {
      known->bytes = std::max(known->bytes, gpu.bytes);
      known->reserved_bytes = std::max(known->reserved_bytes, gpu.reserved_bytes);
    }
  }
}

}  // namespace

void begin_peak_memory() {
  OfProcess& process = of_process();
  const std::lock_guard lock(process.mutex);
  process.most.host_bytes = std::max(process.most.host_bytes, resident_peak());
  std::ofstream("/proc/self/clear_refs") << 5;
  for (const int gpu : process.counted) reset_gpu_peak(gpu);
}

PeakMemory peak_memory(const std::vector<GpuDevice>& gpus) {
  PeakMemory peak{resident_peak(), {}};
  OfProcess& process = of_process();
  const std::lock_guard lock(process.mutex);
  for (const GpuDevice& gpu : gpus) {
    if (gpus_on_host()) break;
    try {
      const GpuAllocated allocated = gpu_allocated(gpu.index);
      peak.gpus.push_back({gpu.index, gpu.uuid, allocated.peak_bytes, allocated.reserved_peak_bytes});
      if (std::find(process.counted.begin(), process.counted.end(), gpu.index) == process.counted.end())
        process.counted.push_back(gpu.index);
    } catch (const std::exception&) {  // a device on which this process has allocated nothing
    }
  }
  keep_most(process.most, peak);
  return peak;
}

PeakMemory peak_memory_of_process() {
  OfProcess& process = of_process();
  const std::lock_guard lock(process.mutex);
  keep_most(process.most, {resident_peak(), {}});
  return process.most;
}

nlohmann::ordered_json gathered_peaks(const Communicator& world, std::uint64_t job_rank, const PeakMemory& own) {
  nlohmann::ordered_json mine = {{"rank", job_rank}, {"host", host_name()}, {"host_bytes", own.host_bytes}};
  mine["gpus"] = nlohmann::ordered_json::array();
  for (const GpuPeak& gpu : own.gpus) {
    mine["gpus"].push_back(
        {{"index", gpu.index}, {"uuid", gpu.uuid}, {"bytes", gpu.bytes}, {"reserved_bytes", gpu.reserved_bytes}});
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& text :
       world.all_gather(mine.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)))
    all.push_back(nlohmann::ordered_json::parse(text));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a["rank"] < b["rank"]; });
  return all;
}

std::string describe_peaks(const nlohmann::ordered_json& peaks) {
  std::uint64_t host = 0, gpu = 0;
  std::string of_host, of_gpu;
  for (const auto& rank : peaks) {
    const auto host_bytes = rank["host_bytes"].get<std::uint64_t>();
    if (host_bytes > host) {
      host = host_bytes;
      of_host = fmt::format("{} of host memory on rank {}", format_bytes(host), rank["rank"].get<std::uint64_t>());
    }
    for (const auto& one : rank["gpus"]) {
      const auto bytes = one["reserved_bytes"].get<std::uint64_t>();
      if (bytes <= gpu) continue;
      gpu = bytes;
      of_gpu = fmt::format("{} of cuda:{} on rank {}", format_bytes(gpu), one["index"].get<int>(),
                           rank["rank"].get<std::uint64_t>());
    }
  }
  return of_gpu.empty() ? of_host : of_gpu + ", " + of_host;
}

}  // namespace magister
