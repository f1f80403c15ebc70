// minLength and maxLength of JSON strings. A grammar that counts needs a rule and a mask for every remaining character.
// So the grammar leaves the length open and only shows which bounds apply, and the characters are counted here: a code
// point or an escape is one character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/json_escapes.h"

namespace magister {

struct TextBounds {
  std::int64_t least = 0, most = -1;  // characters; most -1: no limit
  friend bool operator==(const TextBounds&, const TextBounds&) = default;
};

// A text that the grammar accepts where these bounds apply, and that no token contains.
std::string bounds_mark(const TextBounds& bounds);
constexpr char kBoundsMark = '\x01';

// EBNF with the rule root for the rest of a string after its opening quote, including the closing quote. counts: the
// length is counted in this file.
std::string counted_text_grammar(const TextBounds& bounds, bool counts);

// Position in a JSON text: whether it is inside a string, how many characters the string has so far, and its bounds.
struct TextPlace {
  bool inside = false;
  Escape escape = kPlain;
  std::int64_t count = 0;
  TextBounds bounds;  // of the string; unused outside strings
};

// Advances by these bytes. opened(n) is called if a string begins with byte n - 1, and returns its bounds. Returns
// false if the count breaks the bounds, or if an escape is not allowed.
bool go_on(TextPlace& place, std::string_view bytes, const std::function<TextBounds(std::size_t)>& opened);

// The properties of a vocabulary that counting needs.
class CountedTokens {
 public:
  explicit CountedTokens(const std::vector<std::string>& tokens);  // keeps a reference
  // Clears the bits of tokens that would break bounds. bounds_after(bytes): the bounds of the string that begins with
  // the last of these bytes after the current text.
  void bar(std::vector<std::uint64_t>& allowed, const TextPlace& place,
           const std::function<TextBounds(std::string_view)>& bounds_after) const;

 private:
  const std::vector<std::string>& tokens_;
  std::vector<std::uint32_t>
      chars_;  // characters that token i adds to a string in which it begins, up to the end of the token or string
  std::vector<std::uint32_t> closing_;    // tokens that end such a string
  std::vector<std::uint32_t> reopening_;  // tokens that also begin another string and continue in it
  std::vector<std::uint32_t> opening_;    // tokens that begin a string from outside and continue in it
  std::uint32_t most_chars_ = 0;
};

}  // namespace magister
