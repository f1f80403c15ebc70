// Cores of the host that this process may use: the scheduler's affinity mask (mpirun and Slurm bind ranks with it) and
// the cgroup's CPU quota (containers). Source: sched_getaffinity(2), cgroups(7), the kernel's cgroup-v2 document.
#pragma once

#include <string>
#include <vector>

namespace magister {

// Numbers of the cores in this process's affinity mask, ascending; empty if the system call fails.
std::vector<int> allowed_cores();

// The NUMA node that has all of these cores; -1: several nodes have them, or it is not known. nodes: the folder of the
// system's nodes (/sys/devices/system/node). Source: sysfs-devices-node in the kernel's documents of its ABI.
int memory_node_of(const std::vector<int>& cores, const std::string& nodes);
// The number of nodes that have cores; 1 if the system does not say.
int num_nodes_with_cores(const std::string& nodes);

struct CpuQuota {
  int cores = 0;      // whole cores, at least 1; 0: no limit
  std::string group;  // folder of the cgroup that sets it; processes with the same folder share the quota
};

// The smallest quota on the path from this process's cgroup to the root. cgroup_lines: text of /proc/self/cgroup;
// mount: where the hierarchies are mounted (/sys/fs/cgroup).
CpuQuota read_cpu_quota(const std::string& cgroup_lines, const std::string& mount);
CpuQuota cpu_quota();

}  // namespace magister
