// minLength and maxLength of JSON texts. A grammar that counts needs a rule for every character left, and a mask for each; so the grammar leaves
// the length open and says which bounds are in force, and the characters are counted here: a code point, or an escape, is one.
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
  std::int64_t least = 0, most = -1;  // characters; -1: any number
  friend bool operator==(const TextBounds&, const TextBounds&) = default;
};

// What a grammar takes where these bounds are in force, and no token holds.
std::string bounds_mark(const TextBounds& bounds);
constexpr char kBoundsMark = '\x01';

// The rest of a text behind its first quote, to its last one, as EBNF with the rule root. counts: the length is counted here.
std::string counted_text_grammar(const TextBounds& bounds, bool counts);

// Where a JSON text stands: in a text of its own, how many characters of it there are, and which bounds it has.
struct TextPlace {
  bool inside = false;
  Escape escape = kPlain;
  std::int64_t count = 0;
  TextBounds bounds;  // of the text; outside nothing
};

// Goes on by these bytes. opened(n): a text begins with byte n - 1, and its bounds are returned. False where the count breaks them, or an escape
// is barred.
bool go_on(TextPlace& place, std::string_view bytes, const std::function<TextBounds(std::size_t)>& opened);

// A vocabulary, as far as counting wants it.
class CountedTokens {
 public:
  explicit CountedTokens(const std::vector<std::string>& tokens);  // kept by reference
  // Clears the bits of tokens that break bounds. bounds_behind(bytes): of the text that begins with the last of these bytes, from here.
  void bar(std::vector<std::uint64_t>& allowed, const TextPlace& place,
           const std::function<TextBounds(std::string_view)>& bounds_behind) const;

 private:
  const std::vector<std::string>& tokens_;
  std::vector<std::uint32_t>
      chars_;  // of token i, that it adds to a text that it begins in, up to its end or the text's
  std::vector<std::uint32_t> closing_;    // tokens that end such a text
  std::vector<std::uint32_t> reopening_;  // and begin another and go on in it
  std::vector<std::uint32_t> opening_;    // that begin a text from outside and go on in it
  std::uint32_t most_chars_ = 0;
};

}  // namespace magister
