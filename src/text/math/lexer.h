// Tokens of a formula in LaTeX or plain signs. What only sets type (sizes, spaces, fonts) is gone; ways to write the same sign are one token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister::math {

enum class TokenType : std::uint8_t {
  kNumber,   // digits, at most one point
  kLetter,   // one letter, or the name of a Greek one
  kCommand,  // a function or a construction: sin, frac, sqrt, begin
  kText,     // words: what \text{} and its kin hold, or a unit
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
  std::string fault;       // why the text is no formula; empty: it is
  bool too_long = false;   // by a bound
};

// A formula of more is not read.
constexpr std::size_t kMaxTokens = 4096;
constexpr std::size_t kMaxDigits = 2000;

Tokens tokens_of(std::string_view text);

}  // namespace magister::math
