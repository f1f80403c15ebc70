// See prepared.h.
#include "text/math/prepared.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "magister/core/splitmix64.h"

namespace magister::math {
namespace {

bool all_signs(const Tree& relation, std::initializer_list<std::string_view> signs) {
  return std::all_of(relation.signs.begin(), relation.signs.end(),
                     [&](const std::string& one) { return std::find(signs.begin(), signs.end(), one) != signs.end(); });
}

}  // namespace

bool is_value(const Tree& tree) {
  switch (tree.kind) {
    case Kind::kNumber:
    case Kind::kSymbol:
    case Kind::kSum:
    case Kind::kProduct:
    case Kind::kNegative:
    case Kind::kQuotient:
    case Kind::kPower:
    case Kind::kCall:
    case Kind::kPercent:
      return true;
    case Kind::kConstant:
      return !tree.name.starts_with("numbers");
    default:
      return false;
  }
}

bool is_collection(const Tree& tree) { return tree.kind == Kind::kSet || tree.kind == Kind::kList; }

bool is_equation(const Tree& tree) { return tree.kind == Kind::kRelation && all_signs(tree, {"=", "in"}); }

const TreePtr& first_of(const Tree& chain) { return chain.parts.front(); }
const TreePtr& last_of(const Tree& chain) { return chain.parts.back(); }

bool names_something(const Tree& tree) {
  return !holds(tree, Kind::kNumber) &&
         (holds(tree, Kind::kSymbol) || tree.kind == Kind::kConstant || tree.kind == Kind::kCall);
}

namespace {

// Spreads members: one with +- becomes two, and one such as x = {1, 2} becomes its values.
std::vector<TreePtr> spread(const std::vector<TreePtr>& parts) {
  std::vector<TreePtr> out;
  for (const TreePtr& part : parts) {
    if (holds(*part, Kind::kSigns)) {
      out.push_back(with_signs(part, true));
      out.push_back(with_signs(part, false));
    } else if (part->kind == Kind::kRelation && is_equation(*part) && part->parts.size() == 2 &&
               is_collection(*last_of(*part))) {
      for (const TreePtr& one : last_of(*part)->parts) out.push_back(one);
    } else {
      out.push_back(part);
    }
  }
  return out;
}

// "x = 1, 2" becomes x = {1, 2}: values without a name follow one with a name.
TreePtr gathered(const TreePtr& tree) {
  if (tree->kind != Kind::kList || tree->parts.size() < 2) return tree;
  const Tree& first = *tree->parts[0];
  const bool rest = std::all_of(tree->parts.begin() + 1, tree->parts.end(),
                                [](const TreePtr& one) { return one->kind != Kind::kRelation; });
  if (!rest || first.kind != Kind::kRelation || first.parts.size() != 2 || !is_equation(first)) return tree;
  std::vector<TreePtr> values = tree->parts;
  values[0] = last_of(first);
  Tree whole = first;
  whole.parts[1] = tree_of(Kind::kSet, std::move(values));
  return std::make_shared<const Tree>(std::move(whole));
}

}  // namespace

TreePtr prepared(TreePtr tree) {
  tree = gathered(tree);
  if (is_value(*tree) && holds(*tree, Kind::kSigns))
    return tree_of(Kind::kSet, {with_signs(tree, true), with_signs(tree, false)});
  if (tree->kind == Kind::kSigns) return tree_of(Kind::kSet, {with_signs(tree, true), with_signs(tree, false)});
  if (is_equation(*tree) && holds(*last_of(*tree), Kind::kSigns)) {
    Tree copy = *tree;
    copy.parts.back() = tree_of(Kind::kSet, {with_signs(last_of(*tree), true), with_signs(last_of(*tree), false)});
    return std::make_shared<const Tree>(std::move(copy));
  }
  if (is_collection(*tree)) return named_tree(tree->kind, tree->name, spread(tree->parts));
  return tree;
}

Point drawn_point(const std::vector<std::string>& names, std::uint64_t seed, int number) {
  Point point;
  for (const std::string& name : names) {
    std::uint64_t hash = seed + static_cast<std::uint64_t>(number) * 1000003;
    for (const char c : name) hash = splitmix64(hash ^ static_cast<unsigned char>(c));
    hash = splitmix64(hash);
    const auto over = static_cast<long>(200 + hash % 3000);
    point.insert_or_assign(name, Complex(Rational((hash >> 40) % 2 == 0 ? over : -over, 997)));
  }
  return point;
}

}  // namespace magister::math
