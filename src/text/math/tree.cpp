// See tree.h.
#include "text/math/tree.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace magister::math {

TreePtr number_tree(Rational number, bool decimal) {
  Tree tree;
  tree.number = std::move(number);
  tree.decimal = decimal;
  return std::make_shared<const Tree>(std::move(tree));
}

TreePtr named_tree(Kind kind, std::string name, std::vector<TreePtr> parts) {
  Tree tree;
  tree.kind = kind;
  tree.name = std::move(name);
  tree.parts = std::move(parts);
  return std::make_shared<const Tree>(std::move(tree));
}

TreePtr tree_of(Kind kind, std::vector<TreePtr> parts) { return named_tree(kind, "", std::move(parts)); }

namespace {

std::string head_of(const Tree& tree) {
  switch (tree.kind) {
    case Kind::kNumber:
      return tree.number.get_str() + (tree.decimal ? "." : "");
    case Kind::kSymbol:
    case Kind::kConstant:
    case Kind::kCall:
      return tree.name;
    case Kind::kSum:
      return "sum";
    case Kind::kProduct:
      return "product";
    case Kind::kNegative:
      return "minus";
    case Kind::kQuotient:
      return "quotient";
    case Kind::kPower:
      return "power";
    case Kind::kSigns:
      return tree.name;
    case Kind::kPercent:
      return "percent";
    case Kind::kList:
      return "list";
    case Kind::kSet:
      return "set";
    case Kind::kGroup:
      return "group " + tree.name;
    case Kind::kUnion:
      return tree.name;
    case Kind::kMatrix:
      return "matrix";
    case Kind::kRelation:
      break;
  }
  std::string out = "relation";
  for (const std::string& sign : tree.signs) out += " " + sign;
  return out;
}

void draw(const Tree& tree, std::size_t depth, std::string& out) {
  out.append(2 * depth, ' ').append(head_of(tree)).append("\n");
  for (const TreePtr& part : tree.parts) draw(*part, depth + 1, out);
}

void write(const Tree& tree, std::string& out) {
  out += head_of(tree);
  if (tree.parts.empty()) return;
  for (std::size_t i = 0; i < tree.parts.size(); ++i) {
    out += i == 0 ? "(" : ", ";
    write(*tree.parts[i], out);
  }
  out += ")";
}

void gather(const Tree& tree, std::vector<std::string>& names) {
  if (tree.kind == Kind::kSymbol) names.push_back(tree.name);
  const bool folds = tree.kind == Kind::kCall && (tree.name == "total" || tree.name == "multiplied");
  const auto begin = static_cast<std::ptrdiff_t>(names.size());
  for (std::size_t i = folds ? 1 : 0; i < tree.parts.size(); ++i) gather(*tree.parts[i], names);
  if (folds) names.erase(std::remove(names.begin() + begin, names.end(), tree.parts[0]->name), names.end());
}

}  // namespace

std::string text_of(const Tree& tree) {
  std::string out;
  write(tree, out);
  return out;
}

std::string drawing_of(const Tree& tree) {
  std::string out;
  draw(tree, 0, out);
  return out;
}

bool holds(const Tree& tree, Kind kind) {
  return tree.kind == kind ||
         std::any_of(tree.parts.begin(), tree.parts.end(), [&](const TreePtr& part) { return holds(*part, kind); });
}

bool holds_decimal(const Tree& tree) {
  return tree.decimal ||
         std::any_of(tree.parts.begin(), tree.parts.end(), [](const TreePtr& part) { return holds_decimal(*part); });
}

std::vector<std::string> symbols_of(const Tree& tree) {
  std::vector<std::string> names;
  gather(tree, names);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

TreePtr with_signs(const TreePtr& tree, bool plus) {
  if (!holds(*tree, Kind::kSigns)) return tree;
  Tree copy = *tree;
  for (TreePtr& part : copy.parts) part = with_signs(part, plus);
  if (copy.kind != Kind::kSigns) return std::make_shared<const Tree>(std::move(copy));
  const bool positive = plus == (copy.name == "+-");
  return positive ? copy.parts[0] : tree_of(Kind::kNegative, {copy.parts[0]});
}

}  // namespace magister::math
