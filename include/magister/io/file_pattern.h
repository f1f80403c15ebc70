#pragma once

#include <string>
#include <vector>

namespace magister {

// The paths that match a pattern with *, ? or [...], in byte order whatever the locale. A path that exists as it is
// written is taken as it is, and so is a text without these characters. Empty: nothing matches. Throws
// Error(kInputOutput) if a folder of the pattern cannot be read, since files would be missing. Source: glob(7). Local.
std::vector<std::string> paths_matching(const std::string& pattern);

}  // namespace magister
