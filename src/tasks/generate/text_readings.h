// Whether lengths of texts can be counted outside of the grammar (ConstraintRule::counts_texts).
#pragma once

#include <string>

namespace magister {

// Whether at every place of a text that matches, the text before it says which part of the schema is in force: no two parts of an anyOf or oneOf
// begin with one kind of value that may hold texts. (No name matches two patterns: plain_schema() refuses those.) schema: checked by
// check_schema_keywords(). Local.
bool has_one_reading(const std::string& schema);

}  // namespace magister
