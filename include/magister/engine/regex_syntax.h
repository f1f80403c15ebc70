// Regular expressions as people write them, in one spelling that the grammar library reads rightly.
#pragma once

#include <string>

namespace magister {

// Where the expression stands: a text of its own, or the text between the quotes of a JSON string.
enum class RegexPlace { kText, kJsonString };

// The same language for whole texts, in plain ASCII. What it means: \d, \w and \s are ASCII (so \D and \W are all the rest; \S and
// [^\s] leave out every white space of Unicode, so that a text matches however one reads them), "." is not a line end, ^ and $ stand at the ends of the expression or of an alternative of it.
// The library (xgrammar 0.2.8) takes \s for a superset of that, and inside JSON strings its automata of X? and X{n,} let a text skip a
// part of X where X begins or ends in a repetition: those are written as (|X) and as n times X before X*.
// Throws std::runtime_error naming the position for what is not an expression or is not known: look-around, back references, \b, \p, flags.
std::string plain_regex(const std::string& regex, RegexPlace place);

// Whether some whole text matches both expressions; true also where they are too large to tell. Throws likewise. Local.
bool may_share_a_text(const std::string& one, const std::string& other);

}  // namespace magister
