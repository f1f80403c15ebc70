// The cgroups of a process, versions 1 and 2. Their files hold the limits of cores and memory; any file may be absent.
// Source: cgroups(7).
#pragma once

#include <functional>
#include <string>

namespace magister {

// Reads the whole file; empty if it cannot be read.
std::string read_text(const std::string& path);

// Calls visit(folder, is version 2) for the process's group and every group above it up to the root of its hierarchy,
// at each path where the hierarchy may be mounted. lines: text of /proc/self/cgroup; mount: /sys/fs/cgroup; controller:
// name in version 1 ("cpu", "memory").
void for_each_cgroup(const std::string& lines, const std::string& mount, const std::string& controller,
                     const std::function<void(const std::string& folder, bool v2)>& visit);

}  // namespace magister
