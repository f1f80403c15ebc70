// Looks once at every byte: strings are skipped, and outside them a digit or a minus begins a number.
#include "io/large_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace magister {

WithoutLargeNumbers without_large_numbers(std::string_view json) {
  WithoutLargeNumbers found{std::string(json), {}};
  std::uint64_t index = 0;
  for (std::size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      for (++at; at < json.size() && json[at] != '"'; ++at) at += json[at] == '\\' ? 1 : 0;
      ++at;
    } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
      const std::size_t end = std::min(json.find_first_not_of("+-.eE0123456789", at), json.size());
      std::string number(json.substr(at, end - at));
      if (!std::isfinite(std::strtod(number.c_str(), nullptr))) {
        found.text.replace(at, number.size(), "0" + std::string(number.size() - 1, ' '));
        found.numbers.push_back({index, std::move(number)});
      }
      ++index;
      at = end;
    } else {
      ++at;
    }
  }
  return found;
}

}  // namespace magister
