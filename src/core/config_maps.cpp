// Reads of maps and lists of maps, their places in messages, and the declaration of keys.
#include <algorithm>

#include "core/config_state.h"
#include "core/scalar.h"
#include "core/yaml_tree.h"
#include "magister/core/config.h"
#include "magister/core/error.h"

namespace magister {

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

}  // namespace

ConfigNode::ConfigNode(Shared* shared, Value* value, Value* place, Resolved* resolved, ConfigRules* rules,
                       std::string path, bool broken)
    : shared_(shared),
      value_(value),
      place_(place),
      resolved_(resolved),
      rules_(rules),
      path_(std::move(path)),
      broken_(broken) {
  if (value_ != nullptr) value_->rules = rules_;
}

ConfigNode ConfigNode::child(std::string_view key, Value* value, Resolved* resolved, ConfigRules* rules,
                             bool broken) const {
  return ConfigNode(shared_, value, value == nullptr ? place_ : value, resolved, rules, path_of(key), broken);
}

std::string ConfigNode::path_of(std::string_view key) const {
  if (key.empty()) return path_;
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

ConfigNode::Value* ConfigNode::find(std::string_view key) const {
  return value_ == nullptr ? nullptr : value_->find(key);
}

ConfigNode::Value* ConfigNode::find_known(std::string_view key) {
  Value* const value = find(key);
  if (value == nullptr) return nullptr;
  if (!refusal_.empty()) {
    if (!value->known) add_fault(key, refusal_);
    value->known = value->abandoned = true;
    return nullptr;
  }
  value->known = true;
  return value;
}

ConfigKey& ConfigNode::declare(std::string_view name, ConfigRule rule, std::string fallback) {
  ConfigKey& key = rules_->key(name);
  if (std::find(key.rules.begin(), key.rules.end(), rule) == key.rules.end()) key.rules.push_back(std::move(rule));
  if (!fallback.empty()) key.fallback = std::move(fallback);
  return key;
}

ConfigRules& ConfigNode::declare_map(std::string_view name, std::size_t index, bool is_list) {
  ConfigKey& key = rules_->key(name);
  key.is_list = is_list;
  while (key.maps.size() <= index) key.maps.push_back(std::make_unique<ConfigRules>());
  return *key.maps[index];
}

ConfigNode ConfigNode::only_if(bool applies, std::string refusal) const {
  ConfigNode node = *this;
  if (applies) return node;
  node.resolved_ = &shared_->dropped;
  node.refusal_ = std::move(refusal);
  return node;
}

void ConfigNode::one_of(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) rules_->key(key).required = false;
  if (std::find(rules_->one_of.begin(), rules_->one_of.end(), keys) == rules_->one_of.end())
    rules_->one_of.push_back(keys);
}

void ConfigNode::also_called(std::string_view key, const std::vector<std::string>& other_names) {
  // A key of another map ("layout.gpus_per_group") is stored among the keys of this map, with other names but without
  // rules.
  std::vector<std::string>& names = rules_->key(key).other_names;
  names.insert(names.end(), other_names.begin(), other_names.end());
}

void ConfigNode::outside_identity(std::string_view key) { resolved_->outside_identity.emplace_back(key); }

void ConfigNode::identity_alone(std::string_view key) { resolved_->identity_alone.emplace_back(key); }

void ConfigNode::text_form(std::string_view key, std::string_view pattern) {
  for (ConfigRule& rule : rules_->key(key).rules) {
    if (rule.type == ConfigRule::Type::kText) rule.pattern = pattern;
  }
}

void ConfigNode::range_end(std::string_view key, RangeEnd end, double number) {
  for (ConfigRule& rule : rules_->key(key).rules) {
    if (rule.type != ConfigRule::Type::kInteger && rule.type != ConfigRule::Type::kNumber) continue;
    (end == RangeEnd::kMost ? rule.most : rule.least) = fmt::format("{}", number);
    rule.above_least = end == RangeEnd::kAbove || (end == RangeEnd::kMost && rule.above_least);
  }
}

std::string ConfigNode::place(std::string_view key) const {
  const Value* const value = key.empty() ? value_ : find(key);
  return shared_->where(value != nullptr ? value->position : place_->key_position) + ": " + path_of(key);
}

void ConfigNode::add_fault(std::string_view key, std::string message) {
  // A map in whose place something else was written has that fault already; what it seems to lack follows from it.
  if (broken_ && value_ == nullptr) return;
  const Value* const value = key.empty() ? value_ : find(key);
  shared_->faults.push_back(
      {value != nullptr ? value->position : place_->key_position, path_of(key), std::move(message)});
}

void ConfigNode::add_fault(const Written& written, std::string message) {
  shared_->faults.push_back({written.value->position, written.path, std::move(message)});
}

void ConfigNode::missing(std::string_view key, std::string_view expected) {
  if (broken_ || !refusal_.empty()) return;
  add_fault(key, fmt::format("the key is missing (there is no default for it); add it with {}", expected));
}

bool ConfigNode::has(std::string_view key) const { return find(key) != nullptr; }

bool ConfigNode::is_list(std::string_view key) const {
  const Value* const value = find(key);
  return value != nullptr && value->kind == Kind::kList;
}

namespace {

void add_values(const ConfigNode::Value& value, const std::string& path, std::vector<ConfigNode::Written>& values) {
  if (value.kind == ConfigNode::Value::Kind::kScalar) values.push_back({value.scalar, path, &value});
  for (const auto& [name, member] : value.members) add_values(*member, path + "." + printable(name, 60), values);
  for (std::size_t i = 0; i < value.items.size(); ++i)
    add_values(*value.items[i], fmt::format("{}.{}", path, i), values);
}

}  // namespace

std::vector<ConfigNode::Written> ConfigNode::all_values() const {
  std::vector<Written> values;
  if (value_ != nullptr) add_values(*value_, path_, values);
  return values;
}

void ConfigNode::abandon() {
  if (value_ != nullptr) value_->abandoned = true;
}

void ConfigNode::for_entries(std::string_view key,
                             const std::function<void(const std::string&, const Value&, Resolved&)>& entry) {
  Value* const map = find_known(key);
  if (map == nullptr) return;
  if (map->kind != Kind::kMap) {
    add_fault(key, fmt::format("{} is given (a map of further keys is expected); indent names and values below the key",
                               name_of(map->kind)));
    map->abandoned = true;
    return;
  }
  Resolved& resolved = resolved_->member(key);
  resolved.kind = Resolved::Kind::kMap;
  for (const auto& [name, value] : map->members) {
    value->known = true;
    if (value->kind == Kind::kScalar) {
      entry(name, *value, resolved.member(name));
      continue;
    }
    shared_->faults.push_back(
        {value->position, path_of(key) + "." + name,
         fmt::format("{} is given (one value is expected); write one value after the colon", name_of(value->kind))});
    value->abandoned = true;
  }
}

std::vector<std::pair<std::string, std::string>> ConfigNode::text_map(std::string_view key) {
  declare(key, {.type = ConfigRule::Type::kTextMap});
  std::vector<std::pair<std::string, std::string>> entries;
  for_entries(key, [&](const std::string& name, const Value& value, Resolved& resolved) {
    entries.emplace_back(name, value.scalar);
    resolved = {.kind = Resolved::Kind::kScalar, .scalar = yaml_text(value.scalar)};
  });
  return entries;
}

std::vector<std::pair<std::string, ConfigValue>> ConfigNode::value_map(std::string_view key) {
  declare(key, {.type = ConfigRule::Type::kTextMap});
  std::vector<std::pair<std::string, ConfigValue>> entries;
  for_entries(key, [&](const std::string& name, const Value& value, Resolved& resolved) {
    const auto add = [&](ConfigValue typed, std::string yaml) {
      entries.emplace_back(name, std::move(typed));
      resolved = {.kind = Resolved::Kind::kScalar, .scalar = std::move(yaml)};
    };
    const auto truth = read_boolean(value.scalar, value.quoted);
    const auto integer = read_integer(value.scalar, value.quoted);
    const auto number = read_number(value.scalar, value.quoted);
    if (const bool* one = std::get_if<bool>(&truth)) return add(*one, *one ? "true" : "false");
    if (const auto* one = std::get_if<std::int64_t>(&integer)) return add(*one, fmt::format("{}", *one));
    if (const double* one = std::get_if<double>(&number)) return add(*one, yaml_number(*one));
    if (const std::string surprise = text_surprise(value.scalar, value.quoted); !surprise.empty()) {
      shared_->faults.push_back({value.position, path_of(key) + "." + name, surprise});
      return;
    }
    add(value.scalar, yaml_text(value.scalar));
  });
  return entries;
}

std::optional<ConfigNode> ConfigNode::optional_section(std::string_view key) {
  declare_map(key, 0, false);
  if (!has(key) && !shared_->for_rules) return std::nullopt;
  ConfigNode node = section(key);
  rules_->key(key).required = false;
  return node;
}

std::vector<ConfigNode> ConfigNode::optional_sections(std::string_view key) {
  declare_map(key, 0, true);
  if (!has(key) && !shared_->for_rules) return {};
  std::vector<ConfigNode> nodes = sections(key);
  rules_->key(key).required = false;
  return nodes;
}

ConfigNode ConfigNode::section(std::string_view key) {
  ConfigRules& rules = declare_map(key, 0, false);
  rules_->key(key).required = true;
  Value* value = find_known(key);
  Resolved& resolved = resolved_->member(key);
  resolved.kind = Resolved::Kind::kMap;
  bool broken = broken_ || !refusal_.empty();  // a map that does not apply here misses no keys
  if (value != nullptr && value->kind != Kind::kMap) {
    if (value->kind == Kind::kEmpty) {
      add_fault(key,
                "the key has no value (a map of further keys is expected); indent them below it, or remove the key");
    } else {
      value->is_asked_to_be_a_map = true;
    }
    value->abandoned = true;
    value = nullptr;
    broken = true;
  }
  return child(key, value, &resolved, &rules, broken);
}

std::vector<ConfigNode> ConfigNode::sections(std::string_view key) {
  ConfigRules& first = declare_map(key, 0, true);
  rules_->key(key).required = true;
  Value* const value = find_known(key);
  std::vector<ConfigNode> nodes;
  if (value == nullptr && shared_->for_rules) {
    nodes.push_back(child(fmt::format("{}.0", key), nullptr, &shared_->dropped, &first, false));
    return nodes;
  }
  if (value == nullptr) {
    missing(key, "a list of maps, each beginning with \"- \"");
    return nodes;
  }
  if (value->kind != Kind::kList || value->items.empty()) {
    add_fault(key, fmt::format("{} is given (a list of maps, at least one, is expected); begin each entry with \"- \"",
                               value->kind == Kind::kList ? "an empty list" : name_of(value->kind)));
    value->abandoned = true;
    return nodes;
  }
  Resolved& list = resolved_->member(key);
  list.kind = Resolved::Kind::kList;
  for (std::size_t i = 0; i < value->items.size(); ++i) {
    Value* item = value->items[i].get();
    item->known = true;
    const std::string name = fmt::format("{}.{}", key, i);
    list.items.push_back(std::make_unique<Resolved>());
    bool broken = broken_;
    if (item->kind != Kind::kMap) {
      shared_->faults.push_back(
          {item->position, path_of(name),
           fmt::format("{} is given (a map is expected); write keys and values", name_of(item->kind))});
      item->abandoned = true;
      item = nullptr;
      broken = true;
    }
    nodes.push_back(child(name, item, list.items.back().get(), &declare_map(key, i, true), broken));
  }
  return nodes;
}

}  // namespace magister
