// A ZIP archive (PKWARE, "APPNOTE.TXT", 4.3) of files without compression and without dates, so that the same files
// always give the same bytes. Local.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace magister {

// (name, bytes) in order; names are UTF-8, at most 65,535 files and 4 GiB in all, or Error(kData).
std::string zip_file(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace magister
