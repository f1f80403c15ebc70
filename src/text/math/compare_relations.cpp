// See compare.h: equations and inequalities.
#include <algorithm>

#include "text/math/compare.h"
#include "text/math/prepared.h"
#include "text/math/regions.h"

namespace magister::math {
namespace {

TreePtr difference_of(const TreePtr& left, const TreePtr& right) {
  return tree_of(Kind::kSum, {left, tree_of(Kind::kNegative, {right})});
}

}  // namespace

// Equations in several variables are equal up to a constant factor.
Comparison Comparer::up_to_a_factor(const Tree& gold, const Tree& answer, const std::vector<std::string>& names) {
  const Point first = drawn_point(names, seed_, 0);
  budget_.why.clear();
  const std::optional<Complex> x = value_at(gold, first, budget_), y = value_at(answer, first, budget_);
  if (!x || !y) return not_computed("not computed: " + budget_.why);
  if (x->is_zero() || y->is_zero()) return say(false, "no factor makes the equations equal");
  const int bits = holds_decimal(gold) || holds_decimal(answer) ? kDecimalBits : kSameBits;
  for (int number = 1; number < kPoints; ++number) {
    const Point point = drawn_point(names, seed_, number);
    std::optional<Complex> u = value_at(gold, point, budget_), v = value_at(answer, point, budget_);
    if (!u || !v) return not_computed("not computed: " + budget_.why);
    mpc_mul(u->get(), u->get(), y->get(), MPC_RNDNN);
    mpc_mul(v->get(), v->get(), x->get(), MPC_RNDNN);
    if (!near(*u, *v, bits)) return say(false, "no factor makes the equations equal");
  }
  return say(true, "equations equal up to a factor");
}

Comparison Comparer::equations(const Tree& gold, const Tree& answer) {
  const TreePtr a = difference_of(first_of(gold), last_of(gold)), b = difference_of(first_of(answer), last_of(answer));
  const std::vector<std::string> names = symbols_of(*a);
  if (names != symbols_of(*b)) return say(false, "different variables");
  Comparison same = values(a, b);
  if (same.equal) return same;
  same = values(a, tree_of(Kind::kNegative, {b}));
  // An equation in one variable is a task to solve, so no factor is allowed.
  return same.equal || names.size() < 2 ? same : up_to_a_factor(*a, *b, names);
}

bool Comparer::same_relation(const Tree& gold, const Tree& answer, bool flip) {
  const auto flipped = [](const std::string& sign) -> std::string {
    return sign == "<" ? ">" : sign == "<=" ? ">=" : sign == ">" ? "<" : sign == ">=" ? "<=" : sign;
  };
  const std::size_t count = gold.signs.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t j = flip ? count - 1 - i : i;
    const TreePtr& left = answer.parts[flip ? j + 1 : j];
    const TreePtr& right = answer.parts[flip ? j : j + 1];
    const std::string sign = flip ? flipped(answer.signs[j]) : answer.signs[j];
    const TreePtr a = difference_of(gold.parts[i], gold.parts[i + 1]), b = difference_of(left, right);
    const bool same = sign == gold.signs[i] && values(a, b).equal;
    const bool negated = flipped(sign) == gold.signs[i] && values(a, tree_of(Kind::kNegative, {b})).equal;
    if (!same && !negated) return false;
  }
  return true;
}

Comparison Comparer::relations(const Tree& gold, const Tree& answer) {
  if (is_equation(gold) && is_equation(answer)) {
    const TreePtr &a = last_of(gold), &b = last_of(answer);
    if (is_value(*first_of(gold)) && is_value(*first_of(answer)) && is_value(*a) && is_value(*b))
      return equations(gold, answer);
    const Comparison left = compare(first_of(gold), first_of(answer));
    return left.equal ? compare(a, b) : say(false, "different left sides");
  }
  if (gold.signs.size() != answer.signs.size()) return say(false, "relations of different lengths");
  const bool same = same_relation(gold, answer, false) || same_relation(gold, answer, true);
  return say(same, same ? "the same relation" : "different relations");
}

// At least one of the two is a relation.
Comparison Comparer::relation_and_other(const TreePtr& gold, const TreePtr& answer) {
  const bool of_gold = gold->kind == Kind::kRelation, of_answer = answer->kind == Kind::kRelation;
  // The answer names the value: x in (5, inf) for x > 5, or x = 5 for 5.
  if (is_equation(*answer) && !is_equation(*gold)) return compare(gold, last_of(*answer));
  if (of_gold && of_answer) return relations(*gold, *answer);
  if (!of_gold) return not_comparable("not comparable: an inequality instead of a value or a set");
  if (is_equation(*gold)) {
    const bool named = std::any_of(gold->parts.begin(), gold->parts.end() - 1,
                                   [](const TreePtr& one) { return names_something(*one); });
    return named ? compare(last_of(*gold), answer) : not_comparable("not comparable: an equation and a value");
  }
  const std::optional<Region> solved = solutions_of(*gold, budget_), region = region_of(*answer, budget_);
  if (!solved || !region) return not_comparable("not comparable: a relation and something else");
  return say(same_region(*solved, *region, holds_decimal(*gold) || holds_decimal(*answer)), "sets of numbers");
}

}  // namespace magister::math
