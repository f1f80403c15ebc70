// The peak memory of a rank: on its host, as the kernel counts it (VmHWM), and on its GPUs, as ATen's allocator counts
// it. It goes to run.jsonl, never into results. If the host runs the GPU code, only the host's memory is counted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/layout.h"

namespace magister {

struct GpuPeak {
  int index = 0;
  std::string uuid;
  std::uint64_t bytes = 0;           // in tensors
  std::uint64_t reserved_bytes = 0;  // held by the allocator; without the memory of CUDA itself and of NCCL
};
struct PeakMemory {
  std::uint64_t host_bytes = 0;  // resident; 0: unknown
  std::vector<GpuPeak> gpus;
};

// Resets the peaks. If the kernel does not let a process do that, the host's peak stays that of the whole process.
// Local.
void begin_peak_memory();
// Returns the peaks since the last reset, on these GPUs (DeviceRow::gpu of this rank's rows). Local.
PeakMemory peak_memory(const std::vector<GpuDevice>& gpus);
// Returns the largest values that peak_memory() has returned, and the host's peak of this process until now. Local.
PeakMemory peak_memory_of_process();

// [{rank, host, host_bytes, gpus: [{index, uuid, bytes, reserved_bytes}]}] of all ranks, sorted by rank. job_rank: this
// rank's number in the job. Collective over world.
nlohmann::ordered_json gathered_peaks(const Communicator& world, std::uint64_t job_rank, const PeakMemory& own);
// Describes the largest peaks: "71.3 GiB of cuda:2 on rank 2, 2.1 GiB of host memory on rank 3"; a GPU's are the
// reserved bytes.
std::string describe_peaks(const nlohmann::ordered_json& peaks);

}  // namespace magister
