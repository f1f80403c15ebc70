// The tree of one YAML text: what config.cpp reads from. yaml-cpp only cuts the text into events; every rule of ours
// (limits, no anchors, tags, repeated keys ...) is applied while the tree grows. Positions count from 1, in code points.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "magister/core/config.h"

namespace magister {

struct ConfigPosition {
  int argument = 0;  // 0: the file; else the number of the command-line argument, from 1
  int line = 0;
  int column = 0;
  auto operator<=>(const ConfigPosition&) const = default;
};

struct ConfigNode::Value {
  enum class Kind { kScalar, kEmpty, kList, kMap };

  Kind kind = Kind::kEmpty;  // kEmpty: nothing, ~ or null
  bool quoted = false;
  bool known = false;                 // some read asked for it
  bool abandoned = false;             // keys below are not looked at
  bool is_asked_to_be_a_map = false;  // and is none: find_unknown_keys() says what could stand there
  ConfigPosition position;            // of the value
  ConfigPosition key_position;        // of its key in a map, else of the value
  std::string scalar;
  std::vector<std::pair<std::string, std::unique_ptr<Value>>> members;  // kMap, in the order of the file
  std::vector<std::unique_ptr<Value>> items;                            // kList
  const ConfigRules* rules = nullptr;  // kMap: the keys that reads asked for; null: it was not read as a map

  Value* find(std::string_view key) const;
};

struct ConfigFault {
  ConfigPosition position;
  std::string path;     // "tasks.0.top_k" or empty
  std::string message;  // "<problem> (<why>); <what to do>"
};

// One text (a file's, or an argument's value) -> its tree; null when the text cannot be a tree at all. Every fault is
// appended. argument: 0 for the file; an argument's positions all are its number, as its text is one short line.
std::unique_ptr<ConfigNode::Value> parse_yaml(std::string_view text, int argument, const std::string& root_path,
                                              std::vector<ConfigFault>& faults);

}  // namespace magister
