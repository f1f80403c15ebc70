// Texts as people compare them: Unicode's NFKC_Casefold (UAX 44) by utf8proc, and their words. Not the tokenizers'
// normal forms, which follow the reference tokenizer's version of Unicode.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

// NFKC, case folding, without default ignorable code points (soft hyphen, zero-width space); white space at the ends
// removed, elsewhere one space. text is well-formed UTF-8.
std::string folded(std::string_view text);

// The words of folded(text), in order: runs of letters, marks and numbers; an apostrophe or a full stop between two of
// them belongs to the word ("don't", "3.14"). Each character of a script without spaces (Han, Hiragana, Katakana,
// Thai, Lao, Khmer, Myanmar) is a word.
std::vector<std::string> folded_words(std::string_view text);

// Code points of a well-formed text.
std::size_t num_code_points(std::string_view text);

}  // namespace magister
