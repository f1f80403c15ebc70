// Notes: lines for users, each a name and a text, as `plan` prints them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace magister {

using Notes = std::vector<std::pair<std::string, std::string>>;

}  // namespace magister
