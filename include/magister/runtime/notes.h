// Notes: lines for people, a name and what is said of it, as `plan` prints them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace magister {

using Notes = std::vector<std::pair<std::string, std::string>>;

}  // namespace magister
