// Expands groups in a list of the experiment: {rounds: 3, tasks: [...]} and {matrix: {seed: [0, 1]}, tasks: [...]} are
// replaced by one copy of their entries per round or combination, before anything is read.
#pragma once

#include "core/config_state.h"

namespace magister {

// Expands the groups of `list`, the key at the top of the file and of the groups' own lists. In every value of a
// repeated entry, "{seed}" is replaced by the matrix's value (with its type if "{seed}" is the whole value). If the
// matrix lists maps, "{model.path}" is replaced by the map's value. {round}, {round-1} and {round+1} are replaced by
// whole numbers; rounds count from 1. The keys of an entry's `first_round` replace its own keys in round 1; an empty
// value removes a key. Other braces stay. Groups may be nested. Copies keep the positions of their originals. Returns
// false if a group cannot be expanded; the faults were then appended to shared.faults.
bool expand_groups(ConfigNode::Shared& shared, const std::string& list);

}  // namespace magister
