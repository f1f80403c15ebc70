// Reads of single values. A read declares its key (config_rules.h) and marks the value as known.
// ConfigDocument::finish() then finds the keys that no read asked for. Until then faults are only collected. Maps are
// in config_maps.cpp.
#include "magister/core/config.h"

#include <algorithm>

#include "core/config_state.h"
#include "core/scalar.h"
#include "core/yaml_tree.h"
#include "magister/core/error.h"
#include "magister/core/foreign_names.h"

namespace magister {

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;
using Type = ConfigRule::Type;

// A default value as JSON text; no default needs an escape.
std::string json_text(std::string_view text) { return fmt::format("\"{}\"", text); }

// Rewrites "0,1" or "cuda:0, cuda:1" as the list that was probably meant, "[0, 1]"; empty: the text is no such list.
std::string list_of_numbers(std::string_view text) {
  std::string list;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view number = text.substr(begin, end - begin);
    begin = end + 1;
    while (number.starts_with(' ')) number.remove_prefix(1);
    while (number.ends_with(' ')) number.remove_suffix(1);
    if (number.starts_with("cuda:")) number.remove_prefix(5);
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) return {};
    list += fmt::format("{}{}", list.empty() ? "" : ", ", number);
  }
  return "[" + list + "]";
}

ConfigRule integer_rule(std::int64_t least, std::int64_t most) {
  ConfigRule rule{.type = Type::kInteger};
  rule.least = fmt::format("{}", least);
  if (most != ConfigNode::kMaxInteger) rule.most = fmt::format("{}", most);
  return rule;
}

ConfigRule number_rule(double least, double most) {
  ConfigRule rule{.type = Type::kNumber};
  rule.least = yaml_number(least);
  if (most < std::numeric_limits<double>::max()) rule.most = yaml_number(most);
  return rule;
}

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

namespace {

// Returns the scalar of `value`; null after a fault. `expected` reads like "a text".
const Value* scalar_of(Value& value, std::string_view expected, std::string& problem) {
  if (value.kind == Kind::kScalar) return &value;
  if (value.kind == Kind::kEmpty) {
    problem = fmt::format("the key has no value ({} is expected); write one, or remove the key", expected);
  } else {
    problem =
        fmt::format("{} is given ({} is expected); write one value after the colon", name_of(value.kind), expected);
    value.abandoned = true;
  }
  return nullptr;
}

// Returns std::nullopt after a fault.
std::optional<bool> truth_of(Value& value, std::string_view expected, std::string& problem) {
  const Value* const scalar = scalar_of(value, expected, problem);
  if (scalar == nullptr) return std::nullopt;
  const auto result = read_boolean(scalar->scalar, scalar->quoted);
  if (const auto* truth = std::get_if<bool>(&result)) return *truth;
  problem = std::get<std::string>(result);
  return std::nullopt;
}

}  // namespace

std::string ConfigNode::text(std::string_view key) {
  declare(key, {.type = Type::kText}).required = true;
  if (!has(key)) missing(key, "a text");
  return read_text(key).value_or(std::string());
}

std::string ConfigNode::text(std::string_view key, std::string_view fallback) {
  declare(key, {.type = Type::kText}, json_text(fallback));
  const std::optional<std::string> value = read_text(key);
  if (!value) resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = yaml_text(fallback)};
  return value.value_or(std::string(fallback));
}

std::optional<std::string> ConfigNode::optional_text(std::string_view key) {
  declare(key, {.type = Type::kText});
  return read_text(key);
}

std::optional<std::string> ConfigNode::read_text(std::string_view key) {
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
  resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = yaml_text(scalar->scalar)};
  return scalar->scalar;
}

std::vector<std::string> ConfigNode::texts(std::string_view key) {
  const bool given = has(key);
  std::vector<std::string> texts = optional_texts(key);
  declare(key, {.type = Type::kText}).required = true;
  if (!given) missing(key, "a text");
  return texts;
}

std::vector<std::string> ConfigNode::optional_texts(std::string_view key) {
  declare(key, {.type = Type::kText});
  declare(key, {.type = Type::kText, .is_list = true});
  if (!is_list(key)) {
    const std::optional<std::string> single = read_text(key);
    return single ? std::vector<std::string>{*single} : std::vector<std::string>();
  }
  Value* const value = find_known(key);
  if (value == nullptr) return {};
  std::vector<std::string> texts;
  Resolved list{.kind = Resolved::Kind::kFlowList};
  if (value->items.empty()) add_fault(key, "the list is empty (at least one text is needed); write one");
  for (std::size_t i = 0; i < value->items.size(); ++i) {
    Value& item = *value->items[i];
    item.known = true;
    std::string problem;
    const Value* const scalar = scalar_of(item, "a text", problem);
    if (scalar != nullptr && scalar->scalar.empty())
      problem = "the text is empty (nothing can be named by it); remove it";
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
  declare(key, integer_rule(least, most));
  Value* const value = find_known(key);
  if (value == nullptr) return std::nullopt;
  std::string problem;
  if (const Value* const scalar = scalar_of(*value, "a whole number", problem)) {
    const auto result = read_integer(scalar->scalar, scalar->quoted);
    if (const auto* number = std::get_if<std::int64_t>(&result)) {
      if (*number >= least && *number <= most) {
        resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = fmt::format("{}", *number)};
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
  declare(key, integer_rule(least, most), fmt::format("{}", fallback));
  const auto value = optional_integer(key, least, most);
  if (!value) resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = fmt::format("{}", fallback)};
  return value.value_or(fallback);
}

std::optional<std::int64_t> ConfigNode::integer_or_auto(std::string_view key, std::int64_t least, std::int64_t most) {
  declare(key, {.type = Type::kChoice, .names = {"auto"}}, "\"auto\"");
  declare(key, integer_rule(least, most));
  Value* const value = find(key);
  if (value == nullptr || (value->kind == Kind::kScalar && value->scalar == "auto")) {
    find_known(key);
    resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = "auto"};
    return std::nullopt;
  }
  return optional_integer(key, least, most);
}

std::optional<std::int64_t> ConfigNode::integer_or_auto_among(std::string_view key,
                                                              const std::vector<std::int64_t>& numbers) {
  declare(key, {.type = Type::kChoice, .names = {"auto"}}, "\"auto\"");
  declare(key, {.type = Type::kInteger, .numbers = numbers});
  Value* const value = find_known(key);
  if (value == nullptr || (value->kind == Kind::kScalar && value->scalar == "auto")) {
    resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = "auto"};
    return std::nullopt;
  }
  std::string problem;
  if (const Value* const scalar = scalar_of(*value, "a whole number", problem)) {
    const auto result = read_integer(scalar->scalar, scalar->quoted);
    const auto* const number = std::get_if<std::int64_t>(&result);
    if (number != nullptr && std::find(numbers.begin(), numbers.end(), *number) != numbers.end()) {
      resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = fmt::format("{}", *number)};
      return *number;
    }
    problem = number == nullptr ? std::get<std::string>(result)
                                : fmt::format("{} is not possible (known: auto, {}); write one of them", *number,
                                              fmt::join(numbers, ", "));
  }
  add_fault(key, std::move(problem));
  return std::nullopt;
}

double ConfigNode::number(std::string_view key, double least, double most) {
  declare(key, number_rule(least, most)).required = true;
  if (!has(key)) missing(key, "a number");
  return read_number_or(key, least, least, most);
}

double ConfigNode::number(std::string_view key, double fallback, double least, double most) {
  declare(key, number_rule(least, most), yaml_number(fallback));
  return read_number_or(key, fallback, least, most);
}

double ConfigNode::read_number_or(std::string_view key, double fallback, double least, double most) {
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
  resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = yaml_number(number)};
  return number;
}

bool ConfigNode::boolean(std::string_view key, bool fallback) {
  declare(key, {.type = Type::kBoolean}, fallback ? "true" : "false");
  // A default that is written down asks for nothing: it is no fault where the key does not apply.
  Value* const stated = refusal_.empty() || fallback ? nullptr : find(key);
  if (stated != nullptr && stated->kind == Kind::kScalar && !stated->quoted && stated->scalar == "false")
    stated->known = stated->abandoned = true;
  Value* const value = find_known(key);
  bool truth = fallback;
  if (value != nullptr) {
    std::string problem;
    truth = truth_of(*value, "true or false", problem).value_or(fallback);
    if (!problem.empty()) add_fault(key, std::move(problem));
  }
  resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = truth ? "true" : "false"};
  return truth;
}

std::optional<bool> ConfigNode::boolean_or_auto(std::string_view key) {
  declare(key, {.type = Type::kChoice, .names = {"auto"}}, "\"auto\"");
  declare(key, {.type = Type::kBoolean});
  Value* const value = find_known(key);
  std::optional<bool> truth;
  if (value != nullptr && !(value->kind == Kind::kScalar && value->scalar == "auto")) {
    std::string problem;
    truth = truth_of(*value, "auto, true or false", problem);
    if (!problem.empty()) add_fault(key, std::move(problem));
  }
  resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = !truth ? "auto" : *truth ? "true" : "false"};
  return truth;
}

std::string ConfigNode::choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                               std::string_view also) {
  declare(key, {.type = Type::kChoice, .names = names}, json_text(fallback));
  return read_choice(key, names, fallback, also);
}

std::string ConfigNode::choice(std::string_view key, const std::vector<std::string>& names) {
  declare(key, {.type = Type::kChoice, .names = names}).required = true;
  if (!has(key)) missing(key, fmt::format("one of {}", join_names(names)));
  return read_choice(key, names, {}, {});
}

std::string ConfigNode::later_choice(std::string_view key, const std::vector<std::string>& names) {
  const std::string& before = names.front();
  declare(key, {.type = Type::kChoice, .names = names}, json_text(before));
  const std::string chosen = chosen_name(key, names, before, {});
  if (chosen != before) resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = yaml_text(chosen)};
  return chosen;
}

std::string ConfigNode::choice_or_integers(std::string_view key, const std::vector<std::string>& names,
                                           std::string_view fallback, std::string_view also,
                                           std::vector<std::int64_t>& numbers, std::int64_t least, std::int64_t most) {
  declare(key, {.type = Type::kChoice, .names = names}, json_text(fallback));
  if (!is_list(key)) {
    ConfigRule rule = integer_rule(least, most);
    rule.is_list = true;
    declare(key, std::move(rule));
    return read_choice(key, names, fallback, also);
  }
  numbers = integers(key, least, most);
  return {};
}

std::vector<std::int64_t> ConfigNode::integers_or_auto(std::string_view key, std::int64_t least, std::int64_t most) {
  ConfigRule rule = integer_rule(least, most);
  rule.is_list = true;
  const bool list = is_list(key);
  std::optional<std::int64_t> single;
  if (!list) single = integer_or_auto(key, least, most);
  declare(key, std::move(rule));
  if (list) return integers(key, least, most);
  return single ? std::vector<std::int64_t>{*single} : std::vector<std::int64_t>();
}

void ConfigNode::resolve_as(std::string_view key, const std::vector<std::int64_t>& numbers) {
  Resolved list{.kind = Resolved::Kind::kFlowList};
  for (const std::int64_t number : numbers) list.flow.push_back(fmt::format("{}", number));
  resolved_->member(key) = std::move(list);
}

void ConfigNode::resolve_as(std::string_view key, std::int64_t number) {
  resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = fmt::format("{}", number)};
}

std::vector<std::int64_t> ConfigNode::optional_integers(std::string_view key, std::int64_t least, std::int64_t most) {
  declare(key, integer_rule(least, most));
  if (is_list(key)) return integers(key, least, most);
  ConfigRule rule = integer_rule(least, most);
  rule.is_list = true;
  declare(key, std::move(rule));
  const std::optional<std::int64_t> single = optional_integer(key, least, most);
  return single ? std::vector<std::int64_t>{*single} : std::vector<std::int64_t>();
}

std::string ConfigNode::read_choice(std::string_view key, const std::vector<std::string>& names,
                                    std::string_view fallback, std::string_view also) {
  std::string chosen = chosen_name(key, names, fallback, also);
  resolved_->member(key) = {.kind = Resolved::Kind::kScalar, .scalar = yaml_text(chosen)};
  return chosen;
}

namespace {

// may_be_list: the key also takes a list of numbers in brackets.
std::string advice_for_value(std::string_view key, const std::string& value, const std::vector<std::string>& names,
                             bool may_be_list) {
  if (const std::string foreign = foreign_value(key, value); !foreign.empty()) return foreign;
  if (const std::string list = may_be_list ? list_of_numbers(value) : ""; !list.empty())
    return "numbers are written in brackets: " + list;
  const std::string nearest = nearest_name(value, names);
  return nearest.empty() ? "write one of them" : "did you mean " + nearest + "?";
}

}  // namespace

std::string ConfigNode::chosen_name(std::string_view key, const std::vector<std::string>& names,
                                    std::string_view fallback, std::string_view also) {
  Value* const value = find_known(key);
  std::string chosen(fallback);
  if (value != nullptr) {
    std::string problem;
    if (const Value* const scalar = scalar_of(*value, "one of " + join_names(names), problem)) {
      if (std::find(names.begin(), names.end(), scalar->scalar) != names.end()) {
        chosen = scalar->scalar;
      } else {
        problem =
            fmt::format("\"{}\" is not possible (known: {}{}{}); {}", printable(scalar->scalar, 60), join_names(names),
                        also.empty() ? "" : ", or ", also, advice_for_value(key, scalar->scalar, names, !also.empty()));
      }
    }
    if (!problem.empty()) add_fault(key, std::move(problem));
  }
  return chosen;
}

std::vector<std::int64_t> ConfigNode::integers(std::string_view key, std::int64_t least, std::int64_t most) {
  ConfigRule rule = integer_rule(least, most);
  rule.is_list = true;
  declare(key, std::move(rule));
  Value* value = find_known(key);
  std::vector<std::int64_t> numbers;
  Resolved list{.kind = Resolved::Kind::kFlowList};
  if (value != nullptr && value->kind != Kind::kList) {
    add_fault(key, fmt::format("{} is given (a list of whole numbers is expected); write it as [0, 1]",
                               name_of(value->kind)));
    value = nullptr;
  }
  if (value != nullptr && value->items.empty())
    add_fault(key, "the list is empty (at least one number is needed); write one");
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

}  // namespace magister
