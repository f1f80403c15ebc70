// Cores by affinity mask and by CPU quota; every file of the cgroup hierarchy may be absent.
#include "parallel/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "magister/parallel/thread_pool.h"
#include "parallel/cgroup.h"

namespace magister {
namespace {

// Cores of a quota. v2 writes "200000 100000" or "max 100000"; v1 has quota and period in two files, with -1 for no
// limit. 0: no limit.
int cores_of(const std::string& quota, const std::string& period) {
  char* end = nullptr;
  const long long microseconds = std::strtoll(quota.c_str(), &end, 10);
  const bool is_number = end != quota.c_str();
  const long long of = std::strtoll(period.c_str(), nullptr, 10);
  if (!is_number || microseconds <= 0 || of <= 0) return 0;
  return static_cast<int>(std::clamp<long long>(microseconds / of, 1, 1 << 20));
}

int quota_v2(const std::string& folder) {
  std::istringstream text(read_text(folder + "/cpu.max"));
  std::string quota, period;
  text >> quota >> period;
  return cores_of(quota, period);
}

int quota_v1(const std::string& folder) {
  return cores_of(read_text(folder + "/cpu.cfs_quota_us"), read_text(folder + "/cpu.cfs_period_us"));
}

}  // namespace

std::vector<int> allowed_cores() {
  // The kernel refuses a mask that is shorter than its own, and machines with more than 1024 cores exist.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(static_cast<std::size_t>(capacity)),
                                                                [](cpu_set_t* set) { CPU_FREE(set); });
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    CPU_ZERO_S(bytes, mask.get());
    if (sched_getaffinity(0, bytes, mask.get()) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    std::vector<int> cores;
    for (int core = 0; core < capacity; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.get())) cores.push_back(core);
    }
    return cores;
  }
  return {};
}

namespace {

constexpr int kMostNodes = 1024;

std::set<int> cores_of_node(const std::string& nodes, int node) {
  std::istringstream ranges(read_text(fmt::format("{}/node{}/cpulist", nodes, node)));
  std::set<int> cores;
  for (std::string range; std::getline(ranges, range, ',');) {
    char* end = nullptr;
    const long first = std::strtol(range.c_str(), &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, nullptr, 10) : first;
    if (end == range.c_str() || first < 0 || last > 1 << 20) continue;
    for (long core = first; core <= last; ++core) cores.insert(static_cast<int>(core));
  }
  return cores;
}

}  // namespace

int num_nodes_with_cores(const std::string& nodes) {
  int count = 0;
  for (int node = 0; node < kMostNodes; ++node) count += cores_of_node(nodes, node).empty() ? 0 : 1;
  return std::max(1, count);
}

int memory_node_of(const std::vector<int>& cores, const std::string& nodes) {
  for (int node = 0; node < kMostNodes && !cores.empty(); ++node) {
    const std::set<int> own = cores_of_node(nodes, node);
    const auto has = [&](int core) { return own.count(core) > 0; };
    if (std::any_of(cores.begin(), cores.end(), has)) return std::all_of(cores.begin(), cores.end(), has) ? node : -1;
  }
  return -1;
}

CpuQuota read_cpu_quota(const std::string& cgroup_lines, const std::string& mount) {
  CpuQuota least;
  for_each_cgroup(cgroup_lines, mount, "cpu", [&](const std::string& folder, bool v2) {
    const int cores = v2 ? quota_v2(folder) : quota_v1(folder);
    if (cores > 0 && (least.cores == 0 || cores < least.cores)) least = {cores, folder};
  });
  return least;
}

CpuQuota cpu_quota() { return read_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup"); }

int usable_cores() {
  int cores = static_cast<int>(allowed_cores().size());
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  if (const int quota = cpu_quota().cores; quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

}  // namespace magister
