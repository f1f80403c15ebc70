#include "magister/io/file_pattern.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "magister/core/error.h"

namespace magister {

std::vector<std::string> paths_matching(const std::string& pattern) {
  struct stat status{};
  if (::lstat(pattern.c_str(), &status) == 0 || pattern.find_first_of("*?[") == std::string::npos) return {pattern};
  glob_t found{};
  const int outcome = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  const int error = errno;
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (outcome == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  MAGISTER_CHECK(outcome == 0 || outcome == GLOB_NOMATCH, ExitCode::kInputOutput,
                 "{}: the folders of this pattern cannot be read ({}); check their permissions", printable(pattern),
                 std::strerror(error));
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace magister
