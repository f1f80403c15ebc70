// How a verdict's word is spelled, alike for the tokens that may begin it and for the search in a written reply.
#pragma once

#include <set>
#include <string>

namespace magister {

// As written, capitalised, in capitals and small, each with and without the space before it.
std::set<std::string> verdict_spellings(const std::string& word);

}  // namespace magister
