// Order of the search for the intended key: another program's name in the same map, the enclosing map, a task of this
// file, a similar name, a map below. A whole section of another program is answered key by key.
#include "core/unknown_keys.h"

#include <algorithm>

#include "core/config_state.h"
#include "magister/core/error.h"
#include "magister/core/foreign_names.h"

namespace magister {
namespace {

using Value = ConfigNode::Value;

constexpr std::size_t kEntriesLookedAt = 64;  // of a list of maps; most tasks are copies of a few

bool has_other_name(const ConfigKey& key, const std::string& name) {
  return std::find(key.other_names.begin(), key.other_names.end(), name) != key.other_names.end();
}

// False for a key of another map that is stored in this map only for its other names.
bool is_read_here(const ConfigKey& key) { return !key.rules.empty() || !key.maps.empty(); }

// Returns whether the key can hold the written value: a map does not fit a key with a single value.
bool fits(const ConfigKey& key, const Value& written) {
  const auto has_entries = [](const ConfigRule& rule) { return rule.type == ConfigRule::Type::kTextMap; };
  return written.kind != Value::Kind::kMap || !key.maps.empty() ||
         std::any_of(key.rules.begin(), key.rules.end(), has_entries);
}

// A key that no read asked for, as written.
struct UnknownKey {
  const std::string& name;
  const Value& value;

  bool may_be(const ConfigKey& key) const {
    return is_read_here(key) && (key.name == name || has_other_name(key, name)) && fits(key, value);
  }
};

// Path of the key with this name (ours or another program's) in the maps below; empty: there is none. Lists of maps are
// left out, because keys of another task do not help for this one.
std::string find_below(const ConfigRules& rules, const std::string& prefix, const UnknownKey& unknown) {
  for (const auto& key : rules.keys) {
    if (key->maps.empty() || key->is_list) continue;
    const std::string inside = prefix + key->name + ".";
    for (const auto& inner : key->maps.front()->keys) {
      if (unknown.may_be(*inner)) return inside + inner->name;
    }
    if (const std::string found = find_below(*key->maps.front(), inside, unknown); !found.empty()) return found;
  }
  return {};
}

// The same in the lists of maps of the document, which are the tasks: first a key of a task itself, then a key below it
// -> "tasks.0.train.epochs".
std::string find_in_lists(const Value& tree, const UnknownKey& unknown) {
  std::string below;
  for (const auto& [list, entries] : tree.members) {
    for (std::size_t i = 0; i < std::min(entries->items.size(), kEntriesLookedAt); ++i) {
      const ConfigRules* const rules = entries->items[i]->rules;
      if (rules == nullptr) continue;
      const std::string prefix = fmt::format("{}.{}.", list, i);
      for (const auto& key : rules->keys) {
        if (unknown.may_be(*key)) return prefix + key->name;
      }
      if (below.empty()) below = find_below(*rules, prefix, unknown);
    }
  }
  return below;
}

// "{path: VALUE}": the map that was probably meant by a single value in its place; empty: the map has no such key.
std::string map_of_value(const ConfigRules& rules, const std::string& value) {
  for (const char* const name : {"path", "user", "results"}) {
    const ConfigKey* const key = rules.find(name);
    if (key != nullptr && !key->rules.empty()) return fmt::format("{{{}: {}}}", name, value);
  }
  const ConfigKey* const model = rules.find("model");
  if (model == nullptr || model->maps.empty() || model->maps.front()->find("path") == nullptr) return {};
  return fmt::format("{{model: {{path: {}}}}}", value);
}

// The known keys of a map, and the prefix of their paths ("tasks.0.").
struct KnownMap {
  const ConfigRules& rules;
  std::string prefix;
};

class UnknownKeys {
 public:
  UnknownKeys(const Value& tree, const ConfigRules& all, std::vector<ConfigFault>& faults)
      : tree_(tree), all_(all), faults_(faults) {}

  void find(const Value& value, const std::string& path, const KnownMap& around) {
    if (value.abandoned) return;
    static const ConfigRules kNone;
    const KnownMap at{value.rules == nullptr ? kNone : *value.rules, path.empty() ? "" : path + "."};
    for (const auto& [name, member] : value.members) {
      if (member->known && member->is_asked_to_be_a_map) {
        report_value({name, *member}, at);
      } else if (member->known) {
        find(*member, at.prefix + name, at);
      } else if (!report_section(*member, at.prefix + name, at, around)) {
        report({name, *member}, at.prefix + name, at, around);
      }
    }
    for (std::size_t i = 0; i < value.items.size(); ++i)
      find(*value.items[i], at.prefix + fmt::format("{}", i), around);
  }

 private:
  // The key that was probably meant; empty: unknown.
  std::string meant_by(const UnknownKey& unknown, const KnownMap& at, const KnownMap& around) const {
    const auto& [here, prefix] = at;
    for (const auto& key : here.keys) {
      if (has_other_name(*key, unknown.name) && fits(*key, unknown.value)) return key->name;
    }
    const ConfigKey* const outside = around.rules.find(unknown.name);
    if (outside != nullptr && !around.prefix.empty() && unknown.may_be(*outside)) return around.prefix + unknown.name;
    if (prefix.empty()) {
      if (const std::string of_a_task = find_in_lists(tree_, unknown); !of_a_task.empty()) return of_a_task;
    }
    if (const std::string nearest = nearest_name(unknown.name, here.names()); !nearest.empty()) {
      const ConfigKey* const key = here.find(nearest);
      if (key == nullptr || !is_read_here(*key) || fits(*key, unknown.value)) return nearest;
    }
    if (const std::string below = find_below(here, prefix, unknown); !below.empty()) return below;
    // `name` is a key of the experiment, of every task and of some models; in deeper maps it has another meaning.
    if (unknown.name == "name") return {};
    if (const std::string elsewhere = find_below(all_, "", unknown); !elsewhere.empty()) return elsewhere;
    if (prefix.empty()) return {};
    for (const auto& key : all_.keys) {
      if (key->name != unknown.name && !has_other_name(*key, unknown.name)) continue;
      if (fits(*key, unknown.value) || !is_read_here(*key))
        return key->name + (is_read_here(*key) ? " at the top of the file" : "");
    }
    const bool is_in_entry = std::any_of(all_.keys.begin(), all_.keys.end(), [&](const auto& key) {
      return key->is_list && prefix.starts_with(key->name + ".");
    });
    return is_in_entry ? "" : find_in_lists(tree_, unknown);
  }

  // Advice for an unknown key: first a key of this map that other programs call by this name, then the table of foreign
  // names. Empty: no advice.
  std::string advice_for(const UnknownKey& unknown, const KnownMap& at, const KnownMap& around) const {
    const bool called_so_here = std::any_of(at.rules.keys.begin(), at.rules.keys.end(), [&](const auto& key) {
      return has_other_name(*key, unknown.name) && fits(*key, unknown.value);
    });
    if (const std::string foreign = called_so_here ? "" : foreign_key(unknown.name); !foreign.empty()) return foreign;
    const std::string meant = meant_by(unknown, at, around);
    return meant.empty() ? "" : "did you mean " + meant + "?";
  }

  void report(const UnknownKey& unknown, const std::string& path, const KnownMap& at, const KnownMap& around) {
    add(unknown, path, "known here: " + join_names(at.rules.names()), advice_for(unknown, at, around));
  }

  void add(const UnknownKey& unknown, const std::string& path, const std::string& why, const std::string& advice) {
    faults_.push_back(
        {unknown.value.key_position, printable(path),
         fmt::format("unknown key (it would change nothing; {}); {}", why, advice.empty() ? "remove it" : advice)});
  }

  void report_value(const UnknownKey& given, const KnownMap& at) {
    const ConfigKey* const key = at.rules.find(given.name);
    const ConfigRules* const inside = key == nullptr || key->maps.empty() ? nullptr : key->maps.front().get();
    const bool one_value = given.value.kind == Value::Kind::kScalar;
    const std::string map =
        one_value && inside != nullptr ? map_of_value(*inside, printable(given.value.scalar, 80)) : "";
    const std::string names = inside == nullptr ? "" : ": " + join_names(inside->names());
    faults_.push_back({given.value.position, printable(at.prefix + given.name),
                       fmt::format("{} is given (a map of further keys is expected{}); {}", name_of(given.value.kind),
                                   map.empty() ? names : "",
                                   map.empty() ? "indent them below the key" : "write " + given.name + ": " + map)});
  }

  // For a whole map of another program ("training: {micro_batch_size: 4}") whose name means nothing here: each of its
  // keys is answered as if it were in the enclosing map. Returns false if none of the keys means anything.
  bool report_section(const Value& section, const std::string& path, const KnownMap& at, const KnownMap& around) {
    const std::string name = path.substr(at.prefix.size());
    if (section.kind != Value::Kind::kMap) return false;
    if (!advice_for({name, section}, at, around).empty()) return false;
    std::vector<std::pair<const std::string*, std::string>> answers;
    bool any = false;
    for (const auto& [key, value] : section.members) {
      const ConfigKey* const same = at.rules.find(key);
      answers.emplace_back(&key, same != nullptr && is_read_here(*same) ? "did you mean " + at.prefix + key + "?"
                                                                        : advice_for({key, *value}, at, around));
      any = any || !answers.back().second.empty();
    }
    if (!any) return false;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto& [key, advice] = answers[i];
      add({*key, *section.members[i].second}, path + "." + *key, printable(name, 60) + " is no section here", advice);
    }
    return true;
  }

  const Value& tree_;
  const ConfigRules& all_;
  std::vector<ConfigFault>& faults_;
};

}  // namespace

void find_unknown_keys(const ConfigNode::Value& tree, const ConfigRules& all, std::vector<ConfigFault>& faults) {
  UnknownKeys(tree, all, faults).find(tree, "", {all, ""});
}

}  // namespace magister
