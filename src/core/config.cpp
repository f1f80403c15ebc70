// Reads are where keys become known: find_known() marks the value and remembers the name for "did you mean".
// ConfigDocument::finish() walks the tree for what nobody asked for; until then faults are only kept.
#include "magister/core/config.h"

#include <algorithm>

#include "core/config_state.h"
#include "core/scalar.h"
#include "core/yaml_tree.h"
#include "magister/core/error.h"

namespace magister {

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

std::string range_text(double value, double least, double most, bool unbounded) {
  if (unbounded) return fmt::format("{} is out of range (at least {} is needed); write a larger value", value, least);
  return fmt::format("{} is out of range ({} to {} is possible); write a value in it", value, least, most);
}

std::string range_text(std::int64_t value, std::int64_t least, std::int64_t most) {
  if (most == ConfigNode::kMaxInteger) {
    return fmt::format("{} is out of range (at least {} is needed); write a larger value", value, least);
  }
  return fmt::format("{} is out of range ({} to {} is possible); write a value in it", value, least, most);
}

}  // namespace

ConfigNode::ConfigNode(Shared* shared, Value* value, Value* place, Resolved* resolved, std::string path, bool broken)
    : shared_(shared), value_(value), place_(place), resolved_(resolved), path_(std::move(path)), broken_(broken) {}

ConfigNode ConfigNode::child(std::string_view key, Value* value, Resolved* resolved, bool broken) const {
  return ConfigNode(shared_, value, value == nullptr ? place_ : value, resolved, path_of(key), broken);
}

std::string ConfigNode::path_of(std::string_view key) const {
  if (key.empty()) return path_;
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

ConfigNode::Value* ConfigNode::find(std::string_view key) const { return value_ == nullptr ? nullptr : value_->find(key); }

ConfigNode::Value* ConfigNode::find_known(std::string_view key) {
  if (value_ == nullptr) return nullptr;
  if (std::find(value_->asked.begin(), value_->asked.end(), key) == value_->asked.end()) value_->asked.emplace_back(key);
  Value* const value = value_->find(key);
  if (value != nullptr) value->known = true;
  return value;
}

void ConfigNode::add_fault(std::string_view key, std::string message) {
  const Value* const value = key.empty() ? value_ : find(key);
  shared_->faults.push_back({value != nullptr ? value->position : place_->key_position, path_of(key), std::move(message)});
}

void ConfigNode::missing(std::string_view key, std::string_view expected) {
  if (broken_) return;
  add_fault(key, fmt::format("the key is missing (there is no default for it); add it with {}", expected));
}

bool ConfigNode::has(std::string_view key) const { return find(key) != nullptr; }

bool ConfigNode::is_list(std::string_view key) const {
  const Value* const value = find(key);
  return value != nullptr && value->kind == Kind::kList;
}

void ConfigNode::abandon() {
  if (value_ != nullptr) value_->abandoned = true;
}

namespace {

// A scalar where one is expected; null after a fault. `expected` reads like "a text".
const Value* scalar_of(Value& value, std::string_view expected, std::string& problem) {
  if (value.kind == Kind::kScalar) return &value;
  if (value.kind == Kind::kEmpty) {
    problem = fmt::format("the key has no value ({} is expected); write one, or remove the key", expected);
  } else {
    problem = fmt::format("{} stands here ({} is expected); write one value after the colon", name_of(value.kind), expected);
    value.abandoned = true;
  }
  return nullptr;
}

}  // namespace

std::string ConfigNode::text(std::string_view key) {
  if (find_known(key) == nullptr) {
    missing(key, "a text");
    return {};
  }
  return optional_text(key).value_or(std::string());
}

std::string ConfigNode::text(std::string_view key, std::string_view fallback) {
  const std::optional<std::string> value = optional_text(key);
  if (!value) resolved_->member(key) = {Resolved::Kind::kScalar, yaml_text(fallback), {}, {}, {}};
  return value.value_or(std::string(fallback));
}

std::optional<std::string> ConfigNode::optional_text(std::string_view key) {
  Value* const value = find_known(key);
  if (value == nullptr) return std::nullopt;
  std::string problem;
  const Value* const scalar = scalar_of(*value, "a text", problem);
  if (scalar != nullptr && scalar->scalar.empty()) {
    problem = "the text is empty (nothing can be named by it); write one, or remove the key";
  }
  if (scalar != nullptr && problem.empty()) problem = text_surprise(scalar->scalar, scalar->quoted);
  if (!problem.empty()) {
    add_fault(key, std::move(problem));
    return std::nullopt;
  }
  resolved_->member(key) = {Resolved::Kind::kScalar, yaml_text(scalar->scalar), {}, {}, {}};
  return scalar->scalar;
}

std::vector<std::string> ConfigNode::texts(std::string_view key) {
  Value* const value = find_known(key);
  if (value == nullptr || value->kind != Kind::kList) {
    const std::string single = text(key);
    return single.empty() ? std::vector<std::string>() : std::vector<std::string>{single};
  }
  std::vector<std::string> texts;
  Resolved list{Resolved::Kind::kFlowList, {}, {}, {}, {}};
  if (value->items.empty()) add_fault(key, "the list is empty (at least one text is needed); write one");
  for (std::size_t i = 0; i < value->items.size(); ++i) {
    Value& item = *value->items[i];
    item.known = true;
    std::string problem;
    const Value* const scalar = scalar_of(item, "a text", problem);
    if (scalar != nullptr && scalar->scalar.empty()) problem = "the text is empty (nothing can be named by it); remove it";
    if (scalar != nullptr && problem.empty()) problem = text_surprise(scalar->scalar, scalar->quoted);
    if (!problem.empty()) {
      shared_->faults.push_back({item.position, fmt::format("{}.{}", path_of(key), i), std::move(problem)});
      continue;
    }
    texts.push_back(scalar->scalar);
    list.flow.push_back(yaml_text(scalar->scalar));
  }
  resolved_->member(key) = std::move(list);
  return texts;
}

std::optional<std::int64_t> ConfigNode::optional_integer(std::string_view key, std::int64_t least, std::int64_t most) {
  Value* const value = find_known(key);
  if (value == nullptr) return std::nullopt;
  std::string problem;
  if (const Value* const scalar = scalar_of(*value, "a whole number", problem)) {
    const auto result = read_integer(scalar->scalar, scalar->quoted);
    if (const auto* number = std::get_if<std::int64_t>(&result)) {
      if (*number >= least && *number <= most) {
        resolved_->member(key) = {Resolved::Kind::kScalar, fmt::format("{}", *number), {}, {}, {}};
        return *number;
      }
      problem = range_text(*number, least, most);
    } else {
      problem = std::get<std::string>(result);
    }
  }
  add_fault(key, std::move(problem));
  return std::nullopt;
}

std::int64_t ConfigNode::integer(std::string_view key, std::int64_t fallback, std::int64_t least, std::int64_t most) {
  const auto value = optional_integer(key, least, most);
  if (!value) resolved_->member(key) = {Resolved::Kind::kScalar, fmt::format("{}", fallback), {}, {}, {}};
  return value.value_or(fallback);
}

std::optional<std::int64_t> ConfigNode::integer_or_auto(std::string_view key, std::int64_t least, std::int64_t most) {
  Value* const value = find_known(key);
  if (value == nullptr || (value->kind == Kind::kScalar && value->scalar == "auto")) {
    resolved_->member(key) = {Resolved::Kind::kScalar, "auto", {}, {}, {}};
    return std::nullopt;
  }
  return optional_integer(key, least, most);
}

double ConfigNode::number(std::string_view key, double fallback, double least, double most) {
  Value* const value = find_known(key);
  double number = fallback;
  if (value != nullptr) {
    std::string problem;
    if (const Value* const scalar = scalar_of(*value, "a number", problem)) {
      const auto result = read_number(scalar->scalar, scalar->quoted);
      if (const auto* found = std::get_if<double>(&result)) {
        number = *found;
        if (number < least || number > most) {
          problem = range_text(number, least, most, most >= std::numeric_limits<double>::max());
        }
      } else {
        problem = std::get<std::string>(result);
      }
    }
    if (!problem.empty()) add_fault(key, std::move(problem));
  }
  resolved_->member(key) = {Resolved::Kind::kScalar, yaml_number(number), {}, {}, {}};
  return number;
}

bool ConfigNode::boolean(std::string_view key, bool fallback) {
  Value* const value = find_known(key);
  bool truth = fallback;
  if (value != nullptr) {
    std::string problem;
    if (const Value* const scalar = scalar_of(*value, "true or false", problem)) {
      const auto result = read_boolean(scalar->scalar, scalar->quoted);
      if (const auto* found = std::get_if<bool>(&result)) {
        truth = *found;
      } else {
        problem = std::get<std::string>(result);
      }
    }
    if (!problem.empty()) add_fault(key, std::move(problem));
  }
  resolved_->member(key) = {Resolved::Kind::kScalar, truth ? "true" : "false", {}, {}, {}};
  return truth;
}

std::string ConfigNode::choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                               std::string_view also) {
  Value* const value = find_known(key);
  std::string chosen(fallback);
  if (value != nullptr) {
    std::string problem;
    if (const Value* const scalar = scalar_of(*value, "one of " + join_names(names), problem)) {
      if (std::find(names.begin(), names.end(), scalar->scalar) != names.end()) {
        chosen = scalar->scalar;
      } else {
        const std::string nearest = nearest_name(scalar->scalar, names);
        problem = fmt::format("\"{}\" is not possible (known: {}{}{}); {}", printable(scalar->scalar, 60), join_names(names),
                              also.empty() ? "" : ", or ", also,
                              nearest.empty() ? "write one of them" : "did you mean " + nearest + "?");
      }
    }
    if (!problem.empty()) add_fault(key, std::move(problem));
  }
  resolved_->member(key) = {Resolved::Kind::kScalar, yaml_text(chosen), {}, {}, {}};
  return chosen;
}

std::vector<std::int64_t> ConfigNode::integers(std::string_view key, std::int64_t least, std::int64_t most) {
  Value* value = find_known(key);
  std::vector<std::int64_t> numbers;
  Resolved list{Resolved::Kind::kFlowList, {}, {}, {}, {}};
  if (value != nullptr && value->kind != Kind::kList) {
    add_fault(key, fmt::format("{} stands here (a list of whole numbers is expected); write it as [0, 1]", name_of(value->kind)));
    value = nullptr;
  }
  if (value != nullptr && value->items.empty()) add_fault(key, "the list is empty (at least one number is needed); write one");
  for (std::size_t i = 0; value != nullptr && i < value->items.size(); ++i) {
    Value& item = *value->items[i];
    std::string problem;
    if (const Value* const scalar = scalar_of(item, "a whole number", problem)) {
      const auto result = read_integer(scalar->scalar, scalar->quoted);
      if (const auto* number = std::get_if<std::int64_t>(&result)) {
        if (*number >= least && *number <= most) {
          numbers.push_back(*number);
          list.flow.push_back(fmt::format("{}", *number));
          continue;
        }
        problem = range_text(*number, least, most);
      } else {
        problem = std::get<std::string>(result);
      }
    }
    shared_->faults.push_back({item.position, fmt::format("{}.{}", path_of(key), i), std::move(problem)});
  }
  resolved_->member(key) = std::move(list);
  return numbers;
}

std::optional<ConfigNode> ConfigNode::optional_section(std::string_view key) {
  if (find_known(key) == nullptr) return std::nullopt;
  return section(key);
}

ConfigNode ConfigNode::section(std::string_view key) {
  Value* value = find_known(key);
  Resolved& resolved = resolved_->member(key);
  resolved.kind = Resolved::Kind::kMap;
  bool broken = broken_;
  if (value != nullptr && value->kind != Kind::kMap) {
    if (value->kind == Kind::kEmpty) {
      add_fault(key, "the key has no value (a map of further keys is expected); indent them below it, or remove the key");
    } else {
      add_fault(key, fmt::format("{} stands here (a map of further keys is expected); indent them below the key",
                                 name_of(value->kind)));
    }
    value->abandoned = true;
    value = nullptr;
    broken = true;
  }
  return child(key, value, &resolved, broken);
}

std::vector<std::pair<std::string, std::string>> ConfigNode::text_map(std::string_view key) {
  std::optional<ConfigNode> node = optional_section(key);
  std::vector<std::pair<std::string, std::string>> entries;
  if (!node || node->value_ == nullptr) return entries;
  for (const auto& [name, value] : node->value_->members) {
    node->find_known(name);
    std::string problem;
    const Value* const scalar = scalar_of(*value, "one value", problem);
    if (scalar == nullptr) {
      node->add_fault(name, std::move(problem));
      continue;
    }
    entries.emplace_back(name, scalar->scalar);
    node->resolved_->member(name) = {Resolved::Kind::kScalar, yaml_text(scalar->scalar), {}, {}, {}};
  }
  return entries;
}

std::vector<ConfigNode> ConfigNode::sections(std::string_view key) {
  Value* const value = find_known(key);
  std::vector<ConfigNode> nodes;
  if (value == nullptr) {
    missing(key, "a list of maps, each beginning with \"- \"");
    return nodes;
  }
  if (value->kind != Kind::kList || value->items.empty()) {
    add_fault(key, fmt::format("{} stands here (a list of maps, at least one, is expected); begin each entry with \"- \"",
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
      shared_->faults.push_back({item->position, path_of(name), fmt::format("{} stands here (a map is expected); write "
                                 "keys and values", name_of(item->kind))});
      item->abandoned = true;
      item = nullptr;
      broken = true;
    }
    nodes.push_back(child(name, item, list.items.back().get(), broken));
  }
  return nodes;
}

}  // namespace magister
