// Regular expressions over names of layers, as rank_pattern and alpha_pattern of PEFT have them. io cannot use the
// tokenizers' PCRE2, and a pattern from a file must not take exponential time, so this is a matcher of its own, which
// follows all ways at once. It reads literals, `.`, `\.` and other escaped signs, \d, \w, [...],
// groups, `|`, `*`, `+`, `?`, `^` and `$`, with Python's meaning.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// The part of the pattern that is not read here; empty: all of it is.
std::string unread_in_pattern(std::string_view pattern);
// True if PEFT's get_pattern_key() takes this key for the name: the pattern matches the whole name, or the rest after
// one of its dots. The pattern must have no unread part.
bool pattern_names(std::string_view pattern, std::string_view name);

}  // namespace magister
