// Walks up the cgroup hierarchies; see cgroup.h.
#include "parallel/cgroup.h"

#include <fstream>
#include <iterator>
#include <sstream>

namespace magister {
namespace {

// Visits the folders from `path` up to the root of the hierarchy that is mounted at `base`.
void walk_up(const std::string& base, std::string path, const std::function<void(const std::string&)>& visit) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    visit(base + path);
    if (path.empty()) return;
    path.erase(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

}  // namespace

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void for_each_cgroup(const std::string& lines, const std::string& mount, const std::string& controller,
                     const std::function<void(const std::string& folder, bool v2)>& visit) {
  std::istringstream text(lines);
  for (std::string line; std::getline(text, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* place : {"", "/unified"})
        walk_up(mount + place, path, [&](const std::string& folder) { visit(folder, true); });
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      walk_up(mount + "/" + controller, path, [&](const std::string& folder) { visit(folder, false); });
      if (controllers != controller)
        walk_up(mount + "/" + controllers, path, [&](const std::string& folder) { visit(folder, false); });
    }
  }
}

}  // namespace magister
