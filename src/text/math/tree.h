// An answer as a tree: the parser makes it from a text, and comparisons work on it. Immutable and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/math/number.h"

namespace magister::math {

enum class Kind : std::uint8_t {
  kNumber,    // number; decimal: written with a point
  kSymbol,    // name: a variable, a word, a letter with its index; lower case
  kConstant,  // name: pi, e, i, infinity, reals, integers, ...
  kSum,       // parts
  kProduct,   // parts
  kNegative,  // one part
  kQuotient,  // two parts
  kPower,     // two parts
  kCall,      // name: the function; parts: its arguments
  kSigns,     // name: "+-" or "-+"; one part with either sign
  kPercent,   // one part, a hundredth of it
  kRelation,  // parts with signs.size() == parts.size() - 1 between them: = != < <= > >= in
  kList,      // parts separated by commas: "1, 2"
  kSet,       // parts in braces
  kGroup,     // two parts or more in brackets: a point, a tuple, an interval; name: the two brackets
  kUnion,     // name: union, intersection, difference
  kMatrix,    // parts are rows, kList each
};

struct Tree;
using TreePtr = std::shared_ptr<const Tree>;

struct Tree {
  Kind kind = Kind::kNumber;
  std::string name;
  std::vector<TreePtr> parts;
  std::vector<std::string> signs;
  Rational number;
  bool decimal = false;
};

TreePtr number_tree(Rational number, bool decimal = false);
TreePtr named_tree(Kind kind, std::string name, std::vector<TreePtr> parts = {});
TreePtr tree_of(Kind kind, std::vector<TreePtr> parts);

// In one line, as in sum(x, 1); equal trees have equal texts.
std::string text_of(const Tree& tree);
// Indented, one part per line.
std::string drawing_of(const Tree& tree);

// Reports whether the tree or a part of it has this kind.
bool holds(const Tree& tree, Kind kind);
// Reports whether it contains a number written with a point.
bool holds_decimal(const Tree& tree);
// The names of its variables, sorted, each once.
std::vector<std::string> symbols_of(const Tree& tree);
// Returns a copy in which every +- has the sign that `plus` gives, and every -+ the opposite sign.
TreePtr with_signs(const TreePtr& tree, bool plus);

}  // namespace magister::math
