// Parses a formula's text into a tree, or says why it is not a formula. Bounds: 64 kB of text, 4096 tokens, 200 levels.
#pragma once

#include <string>
#include <string_view>

#include "text/math/lexer.h"
#include "text/math/tree.h"

namespace magister::math {

constexpr std::size_t kMaxText = 65536;
constexpr int kMaxDepth = 200;

struct Parsed {
  TreePtr tree;           // null: not parsed
  std::string fault;      // why it was not parsed
  bool too_long = false;  // a bound on sizes was exceeded
};

Parsed parse_formula(std::string_view text);

}  // namespace magister::math
