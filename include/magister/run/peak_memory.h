// The most memory that a rank has had: of its host, as the kernel counts it (VmHWM), and of its GPUs, as ATen's allocator does. For run.jsonl, never for
// results. Of GPUs whose code the host runs the host's memory is all there is.
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
  std::uint64_t bytes = 0;           // of tensors
  std::uint64_t reserved_bytes = 0;  // with what the allocator kept beside them; without CUDA's own and NCCL's
};
struct PeakMemory {
  std::uint64_t host_bytes = 0;  // resident; 0: the system does not say
  std::vector<GpuPeak> gpus;
};

// Begins to count anew. Where the kernel does not let a process do that the host's peak is that of its whole life. Local.
void begin_peak_memory();
// Since then, on these GPUs (DeviceRow::gpu of this rank's rows). Local.
PeakMemory peak_memory(const std::vector<GpuDevice>& gpus);
// The most of all that were asked for, and of this process until now. Local.
PeakMemory peak_memory_of_process();

// [{rank, host, host_bytes, gpus: [{index, uuid, bytes, reserved_bytes}]}] of all ranks, by rank; job_rank: of this one in the job. Collective over world.
nlohmann::ordered_json gathered_peaks(const Communicator& world, std::uint64_t job_rank, const PeakMemory& own);
// "2.1 GiB of host memory on rank 3, 71.3 GiB of cuda:2 on rank 2": the largest of them.
std::string describe_peaks(const nlohmann::ordered_json& peaks);

}  // namespace magister
