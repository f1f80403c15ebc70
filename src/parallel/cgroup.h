// The cgroups above a process, of both versions: what limits its cores and its memory stands in their files, any of which may be absent.
// Source: cgroups(7).
#pragma once

#include <functional>
#include <string>

namespace magister {

// The whole file, empty when it cannot be read.
std::string read_text(const std::string& path);

// visit(folder, is version 2) for the process's group and every one above it up to the root of its hierarchy, in all places where it may be
// mounted. lines: text of /proc/self/cgroup; mount: /sys/fs/cgroup; controller: of version 1 ("cpu", "memory").
void for_each_cgroup(const std::string& lines, const std::string& mount, const std::string& controller,
                     const std::function<void(const std::string& folder, bool v2)>& visit);

}  // namespace magister
