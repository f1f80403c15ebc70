// State that the nodes of one ConfigDocument share: the parsed tree, the faults so far and the resolved experiment.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/yaml_tree.h"
#include "magister/core/config.h"

namespace magister {

// A part of the resolved experiment; scalars are already written as YAML.
struct ConfigNode::Resolved {
  enum class Kind { kScalar, kFlowList, kList, kMap };
  Kind kind = Kind::kMap;
  std::string scalar{};
  std::vector<std::string> flow{};  // kFlowList: scalars on one line
  std::vector<std::pair<std::string, std::unique_ptr<Resolved>>> members{};
  std::vector<std::unique_ptr<Resolved>> items{};
  std::vector<std::string> outside_identity{};  // members that do not decide results
  std::vector<std::string> identity_alone{};    // members that the reader would refuse

  // Returns the place of a member; reading a key twice gives the same place.
  Resolved& member(std::string_view key);
};

struct ConfigNode::Shared {
  std::string source;
  std::vector<std::string> arguments;
  std::unique_ptr<Value> tree;
  Resolved resolved;
  Resolved dropped;  // values that are read but not part of the resolved experiment
  ConfigRules rules;
  bool for_rules = false;
  std::vector<ConfigFault> faults;

  // "file:line:column", or "argument key.path=value".
  std::string where(const ConfigPosition& at) const;
};

// Name of a kind for messages: "a list", "a single value" ...
std::string_view name_of(ConfigNode::Value::Kind kind);
// "a, b, c"
std::string join_names(const std::vector<std::string>& names);

// Puts the value of one "key.path=value" into the tree. `argument` counts from 1. Faults are appended.
void apply_override(ConfigNode::Shared& shared, const std::string& text, int argument);

}  // namespace magister
