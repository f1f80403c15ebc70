// Host memory that this process may use: the kernel's total, or less if a cgroup (container, Slurm job or step) or
// Slurm's own accounting limits it. All ranks of a host share it. Source: cgroups(7), the kernel's documents on memory
// cgroups, sbatch(1).
#pragma once

#include <cstdint>
#include <string>

namespace magister {

struct HostMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // available memory; file pages that the kernel can reclaim count as free
  std::string limited_by;  // folder of the cgroup, or the Slurm option, that sets the total; empty: the machine itself
};

// The limit of a Slurm job per node, and the option of sbatch that set it.
struct SlurmMemory {
  std::uint64_t bytes = 0;  // 0: none
  const char* option = "--mem";
};

// meminfo: text of /proc/meminfo. cgroup_lines: text of /proc/self/cgroup. mount: where the hierarchies are mounted
// (/sys/fs/cgroup). Every group from that of this process up to the root counts; any file may be absent.
HostMemory read_host_memory(const std::string& meminfo, const std::string& cgroup_lines, const std::string& mount,
                            const SlurmMemory& slurm);
// The limit that the job's environment names.
SlurmMemory slurm_memory();
// Reads those files for this process. Local.
HostMemory host_memory();

}  // namespace magister
