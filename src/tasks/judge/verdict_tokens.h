// The spellings of a verdict's word, both for the tokens that may begin it and for the search in a written reply.
#pragma once

#include <set>
#include <string>

namespace magister {

// As given, capitalised, in capitals and in small letters, each with and without a space before it; one letter only as
// given.
std::set<std::string> verdict_spellings(const std::string& word);

}  // namespace magister
