// The host's memory as this process may use it: what the kernel has, or less where a cgroup (container, Slurm job or step) or Slurm's own
// accounting limits it. Ranks of one host share it. Source: cgroups(7), the kernel's documents of memory cgroups, sbatch(1).
#pragma once

#include <cstdint>
#include <string>

namespace magister {

struct HostMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // what can still be had: file pages that the kernel would give up count as free
  std::string limited_by;  // the cgroup's folder or Slurm's variable that sets the total; empty: the machine itself
};

// meminfo: text of /proc/meminfo. cgroup_lines: text of /proc/self/cgroup; mount: where the hierarchies are mounted (/sys/fs/cgroup). Every
// group from this process's up to the root counts, and any file may be absent. slurm_bytes: SLURM_MEM_PER_NODE, 0: none.
HostMemory read_host_memory(const std::string& meminfo, const std::string& cgroup_lines, const std::string& mount,
                            std::uint64_t slurm_bytes);
// Of this process, from those files. Local.
HostMemory host_memory();

}  // namespace magister
