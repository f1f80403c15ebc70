// The tree of one YAML text, from which config.cpp reads. yaml-cpp only splits the text into events; the program's own
// rules (limits, no anchors, tags, repeated keys ...) are applied while the tree is built. Positions count from 1, in
// code points.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "magister/core/config.h"

namespace magister {

struct ConfigPosition {
  int argument = 0;  // 0: the file; otherwise the number of the command-line argument, from 1
  int line = 0;
  int column = 0;
  auto operator<=>(const ConfigPosition&) const = default;
};

struct ConfigNode::Value {
  enum class Kind { kScalar, kEmpty, kList, kMap };

  Kind kind = Kind::kEmpty;  // kEmpty: nothing, ~ or null
  bool quoted = false;
  bool known = false;                 // a read asked for it
  bool abandoned = false;             // keys below are not checked
  bool is_asked_to_be_a_map = false;  // but is no map: find_unknown_keys() reports which keys the map could have
  ConfigPosition position;            // of the value
  ConfigPosition key_position;        // of its key in a map, otherwise of the value
  std::string scalar;
  std::vector<std::pair<std::string, std::unique_ptr<Value>>> members;  // kMap, in the order of the file
  std::vector<std::unique_ptr<Value>> items;                            // kList
  const ConfigRules* rules = nullptr;  // kMap: the keys that reads asked for; null: not read as a map

  Value* find(std::string_view key) const;
};

struct ConfigFault {
  ConfigPosition position;
  std::string path;     // "tasks.0.top_k" or empty
  std::string message;  // "<problem> (<why>); <what to do>"
};

// Parses one text (of a file, or an argument's value) into a tree; null if the text cannot be parsed at all. Every
// fault is appended. argument: 0 for the file; all positions of an argument are its number, because its text is one
// short line.
std::unique_ptr<ConfigNode::Value> parse_yaml(std::string_view text, int argument, const std::string& root_path,
                                              std::vector<ConfigFault>& faults);

}  // namespace magister
