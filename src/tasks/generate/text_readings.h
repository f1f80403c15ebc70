// Decides if lengths of strings can be counted outside the grammar (ConstraintRule::counts_texts).
#pragma once

#include <string>

namespace magister {

// True if at every position of a matching text, the text before it determines which part of the schema applies: no two
// parts of an anyOf or oneOf begin with the same kind of value, if that kind may contain strings. (No name matches two
// patterns: plain_schema() refuses those.) schema: checked by check_schema_keywords(). Local.
bool has_one_reading(const std::string& schema);

}  // namespace magister
