// Tokens of a formula in LaTeX or plain characters. Layout (sizes, spaces, fonts) is dropped, and different spellings
// of a sign are one token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister::math {

enum class TokenType : std::uint8_t {
  kNumber,   // digits, at most one point
  kLetter,   // one letter, or the name of a Greek letter
  kCommand,  // a function or a construction: sin, frac, sqrt, begin
  kText,     // words: the content of \text{} and its relatives, or a unit
  kSign,     // ( ) [ ] { } \{ \} | + - * / : ^ _ ! % = != < <= > >= in , ; and ...
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  bool after_space = false;
};

struct Tokens {
  std::vector<Token> all;  // the last one is kEnd
  std::string fault;       // why the text is not a formula; empty: it is one
  bool too_long = false;   // a bound was exceeded
};

// Longer formulas and numbers are not read.
constexpr std::size_t kMaxTokens = 4096;
constexpr std::size_t kMaxDigits = 2000;

Tokens tokens_of(std::string_view text);

}  // namespace magister::math
