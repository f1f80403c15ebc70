// Keys that no read asked for, and what each was probably meant to be: a key of this map, of the map around it, of a task, or another
// program's word. And single values where a map is expected: by now it is known which keys that map has.
#pragma once

#include <vector>

#include "core/yaml_tree.h"
#include "magister/core/config_rules.h"

namespace magister {

// Appends a fault for each. all: the rules of the whole document, whose tree this is.
void find_unknown_keys(const ConfigNode::Value& tree, const ConfigRules& all, std::vector<ConfigFault>& faults);

}  // namespace magister
