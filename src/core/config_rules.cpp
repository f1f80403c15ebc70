// Lookup of keys by name. A map has at most a few dozen keys, so the search is linear.
#include "magister/core/config_rules.h"

#include <algorithm>

namespace magister {

const ConfigKey* ConfigRules::find(std::string_view name) const {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key->name == name; });
  return at == keys.end() ? nullptr : at->get();
}

ConfigKey& ConfigRules::key(std::string_view name) {
  if (const ConfigKey* const found = find(name)) return const_cast<ConfigKey&>(*found);
  keys.push_back(std::make_unique<ConfigKey>());
  keys.back()->name = name;
  return *keys.back();
}

std::vector<std::string> ConfigRules::names() const {
  std::vector<std::string> names;
  for (const auto& key : keys) {
    if (!key->rules.empty() || !key->maps.empty()) names.push_back(key->name);
  }
  return names;
}

}  // namespace magister
