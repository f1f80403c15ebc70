// The tables of filters by name.
#include "text/jinja/filters.h"

#include <map>

namespace magister::jinja {
namespace {

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters = [] {
    std::map<std::string_view, Filter> all;
    for (const auto& group : {scalar_filters(), list_filters(), more_filters(), layout_filters()}) {
      for (const NamedFilter& filter : group) all.emplace(filter.name, filter.run);
    }
    return all;
  }();
  return kFilters;
}

}  // namespace

Filter find_filter(std::string_view name) {
  const auto found = filters().find(name);
  return found == filters().end() ? nullptr : found->second;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : filters()) names.emplace_back(name);
  return names;
}
}  // namespace magister::jinja
