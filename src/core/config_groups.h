// Lists of an experiment whose entries are repeated: {rounds: 3, tasks: [...]} and {matrix: {seed: [0, 1]}, tasks: [...]} become the entries
// themselves, once a round or a combination, before anything is read.
#pragma once

#include "core/config_state.h"

namespace magister {

// In every value of a repeated entry "{seed}" is replaced by the matrix's value, with its type where the whole value is "{seed}"; where the
// matrix lists maps, {model.path} and so on by theirs; and {round}, {round-1} and {round+1} by a whole number; rounds count from 1. An entry's `first_round`
// holds what it has in round 1 in place of its own keys; an empty value takes a key away. Other braces stay. Groups may stand in groups. `list` is the key at the top
// of the file and of the groups' own lists. Copies keep the positions of what they are made from. False: what cannot be repeated was appended to
// the faults.
bool expand_groups(ConfigNode::Shared& shared, const std::string& list);

}  // namespace magister
