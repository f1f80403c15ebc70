// Word boundaries in any script, by Unicode's general categories (UAX 44).
#pragma once

#include <cstddef>
#include <string_view>

namespace magister {

// Reports whether [at, at + size) of text is a whole word: no letter, number, mark or connector ("_") touches it. Marks
// belong to the character before them: "Yes" is not a word in "Yes" + U+0301, but it is one after an emoji with its
// variation selector. text is UTF-8; a byte that belongs to no code point ends a word.
bool is_whole_word(std::string_view text, std::size_t at, std::size_t size);

}  // namespace magister
