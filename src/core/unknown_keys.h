// Reports keys that no read asked for, with the key that was probably meant: a key of this map, of the enclosing map,
// of a task, or another program's name. Also reports single values where a map is expected; only after the reads it is
// known which keys that map has.
#pragma once

#include <vector>

#include "core/yaml_tree.h"
#include "magister/core/config_rules.h"

namespace magister {

// Appends a fault for each unknown key of `tree`. all: the rules of the whole document.
void find_unknown_keys(const ConfigNode::Value& tree, const ConfigRules& all, std::vector<ConfigFault>& faults);

}  // namespace magister
