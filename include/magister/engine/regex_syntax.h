// Rewrites users' regular expressions in a form that the grammar library reads correctly.
#pragma once

#include <string>

namespace magister {

// Where the expression applies: to a whole text, or to the text between the quotes of a JSON string.
enum class RegexPlace { kText, kJsonString };

// Returns an expression for the same whole texts, in plain ASCII. Semantics: \d, \w and \s are ASCII, so \D and \W are
// everything else; \S and [^\s] also exclude every Unicode white space, so that a match does not depend on the reader.
// "." is not a line end. ^ and $ are allowed only at the ends of the expression or of a top-level alternative.
// The library (xgrammar 0.2.8) takes \s for a larger set. Inside JSON strings its automata for X? and X{n,} let a text
// skip a part of X if X begins or ends in a repetition. So X? is written as (|X) there, and X{n,} always as n times X
// before X*.
// Throws std::runtime_error naming the position for text that is not an expression, and for syntax that is not
// supported: look-around, back references, \b, \p, flags.
std::string plain_regex(const std::string& regex, RegexPlace place);

// Returns whether some whole text matches both expressions; also true if they are too large to decide. Throws like
// plain_regex(). Local.
bool may_share_a_text(const std::string& one, const std::string& other);

}  // namespace magister
