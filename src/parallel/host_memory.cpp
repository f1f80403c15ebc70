// Memory limits of the machine, of cgroups and of Slurm; see host_memory.h.
#include "magister/parallel/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "parallel/cgroup.h"

namespace magister {
namespace {

constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;  // v1 writes about 2^63 for no limit

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::istringstream text(read_text(path));
  std::uint64_t value = 0;
  return text >> value && value < kNoLimit ? std::optional(value) : std::nullopt;  // "max" does not parse as a number
}

// The number in a line "name number ...".
std::uint64_t value_of(const std::string& lines, const std::string& name) {
  std::istringstream text(lines);
  std::string word;
  while (text >> word) {
    std::uint64_t value = 0;
    if (word == name && text >> value) return value;
    text.clear();
    std::getline(text, word);
  }
  return 0;
}

// File names and fields of the two cgroup versions.
struct Files {
  const char *limit, *usage, *active, *inactive;
};
constexpr Files kV2{"/memory.max", "/memory.current", "active_file", "inactive_file"};
constexpr Files kV1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_active_file", "total_inactive_file"};

void narrow(HostMemory& memory, const std::string& folder, const Files& files) {
  const std::optional<std::uint64_t> limit = number_in(folder + files.limit), usage = number_in(folder + files.usage);
  if (!limit) return;
  if (*limit < memory.total_bytes) {
    memory.total_bytes = *limit;
    memory.limited_by = folder;
  }
  const std::string stat = read_text(folder + "/memory.stat");
  const std::uint64_t pages_of_files = value_of(stat, files.active) + value_of(stat, files.inactive);
  const std::uint64_t used = usage.value_or(0) - std::min(usage.value_or(0), pages_of_files);
  memory.free_bytes = std::min(memory.free_bytes, *limit - std::min(*limit, used));
}

}  // namespace

SlurmMemory slurm_memory() {
  const auto number = [](const char* name) -> std::uint64_t {
    const char* text = std::getenv(name);
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  };
  if (const std::uint64_t a_node = number("SLURM_MEM_PER_NODE"); a_node > 0) return {a_node << 20, "--mem"};
  return {(number("SLURM_MEM_PER_CPU") * number("SLURM_CPUS_ON_NODE")) << 20, "--mem-per-cpu"};
}

HostMemory read_host_memory(const std::string& meminfo, const std::string& cgroup_lines, const std::string& mount,
                            const SlurmMemory& slurm) {
  HostMemory memory{value_of(meminfo, "MemTotal:") * 1024, value_of(meminfo, "MemAvailable:") * 1024, ""};
  for_each_cgroup(cgroup_lines, mount, "memory",
                  [&](const std::string& folder, bool v2) { narrow(memory, folder, v2 ? kV2 : kV1); });
  if (slurm.bytes > 0 && slurm.bytes < memory.total_bytes) {
    memory.total_bytes = slurm.bytes;
    memory.limited_by = std::string("Slurm's ") + slurm.option;
  }
  memory.free_bytes = std::min(memory.free_bytes, memory.total_bytes);
  return memory;
}

HostMemory host_memory() {
  return read_host_memory(read_text("/proc/meminfo"), read_text("/proc/self/cgroup"), "/sys/fs/cgroup", slurm_memory());
}

}  // namespace magister
