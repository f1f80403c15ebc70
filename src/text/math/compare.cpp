// See compare.h: values, members, and structures that may replace each other.
#include "text/math/compare.h"

#include <algorithm>
#include <string_view>

#include "text/math/matrices.h"
#include "text/math/prepared.h"
#include "text/math/regions.h"

namespace magister::math {
namespace {

constexpr int kDraws = 12;
constexpr std::size_t kMaxMembers = 100;
// Bytes of two trees' texts per step of the budget; texts are compared at every level.
constexpr std::size_t kSignsAStep = 64;

bool holds_decimals(const Tree& gold, const Tree& answer) { return holds_decimal(gold) || holds_decimal(answer); }

std::string both_texts(const std::string& gold, const std::string& answer) {
  return gold.substr(0, 40) + " and " + answer.substr(0, 40);
}

}  // namespace

Comparison Comparer::at_points(const Tree& gold, const Tree& answer) {
  std::vector<std::string> names = symbols_of(gold);
  for (const std::string& name : symbols_of(answer)) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const bool decimals = holds_decimals(gold, answer);
  const int wanted = names.empty() ? 1 : kPoints;
  std::string why;
  int same = 0;
  for (int draw = 0; draw < kDraws && same < wanted; ++draw) {
    const Point point = drawn_point(names, seed_, draw);
    budget_.why.clear();
    const std::optional<Complex> a = value_at(gold, point, budget_);
    const std::optional<Complex> b = a ? value_at(answer, point, budget_) : std::nullopt;
    if (budget_.steps < 0) return not_computed("too many steps");
    if (!a || !b) {
      if (why.empty()) why = budget_.why;
      if (names.empty()) break;
      continue;
    }
    const bool equal = near(*a, *b, decimals && !names.empty() ? kDecimalBits : kSameBits) ||
                       (decimals && names.empty() && same_in_six(*a, *b));
    if (!equal)
      return say(false, names.empty() ? "values " + a->text(20) + " and " + b->text(20) : "values differ at a point");
    ++same;
  }
  if (same < std::min(wanted, 2)) return not_computed("not computed: " + (why.empty() ? "no values" : why));
  return say(true, names.empty() ? "equal values" : "equal at " + std::to_string(same) + " points");
}

Comparison Comparer::values(const TreePtr& gold, const TreePtr& answer) {
  const int a = infinite_sign(*gold), b = infinite_sign(*answer);
  if (a != 0 || b != 0) return say(a == b, "infinite values");
  const std::optional<Rational> exact = exact_value(*gold, budget_), other = exact_value(*answer, budget_);
  if (!exact || !other) return at_points(*gold, *answer);
  if (*exact == *other) return say(true, "equal values");
  const std::string why = "values " + Complex(*exact).text(20) + " and " + Complex(*other).text(20);
  if (!holds_decimals(*gold, *answer)) return say(false, why);
  // A whole number is not a measured value.
  const bool whole = (!holds_decimal(*gold) && is_integer(*exact)) || (!holds_decimal(*answer) && is_integer(*other));
  if (whole) return say(near(Complex(*exact), Complex(*other), 100), why);
  return say(rounded_to_six(*exact) == rounded_to_six(*other), why + ", rounded to six decimals");
}

// 28\% equals 28 as well as 0.28; with decimals only the hundredth counts.
Comparison Comparer::percents(const TreePtr& gold, const TreePtr& answer) {
  Comparison found = values(gold, answer);
  if (found.equal || (gold->kind == Kind::kPercent) == (answer->kind == Kind::kPercent)) return found;
  const TreePtr& hundredths = gold->kind == Kind::kPercent ? gold->parts[0] : answer->parts[0];
  if (holds_decimal(*hundredths)) return found;  // as in Math-Verify: 28% is 28, 28.5% is only 0.285
  return gold->kind == Kind::kPercent ? values(hundredths, answer) : values(gold, hundredths);
}

Comparison Comparer::in_order(const std::vector<TreePtr>& gold, const std::vector<TreePtr>& answer) {
  if (gold.size() != answer.size()) return say(false, "different numbers of members");
  if (gold.size() > kMaxMembers) return not_computed("more than 100 members");
  for (std::size_t i = 0; i < gold.size(); ++i) {
    Comparison one = compare(gold[i], answer[i]);
    if (one.equal) continue;
    one.why.insert(0, "member " + std::to_string(i + 1) + ": ");
    return one;
  }
  return say(true, "equal members in their order");
}

// Every member of each side must have an equal one on the other side: {1, 1} is {1}.
Comparison Comparer::in_any_order(const std::vector<TreePtr>& gold, const std::vector<TreePtr>& answer) {
  const std::size_t n = gold.size(), m = answer.size();
  if (n > kMaxMembers || m > kMaxMembers) return not_computed("more than 100 members");
  std::vector<bool> gold_met(n, false), answer_met(m, false);
  std::vector<std::string> texts;
  for (const TreePtr& one : answer) texts.push_back(text_of(*one));
  for (std::size_t i = 0; i < n; ++i) {
    const std::string text = text_of(*gold[i]);
    for (std::size_t j = 0; j < m; ++j)
      if (texts[j] == text) gold_met[i] = answer_met[j] = true;
  }
  Unread unread = Unread::kNone;  // a member without a value may be the missing one
  const auto meet = [&](std::size_t i, std::size_t j) {
    const Comparison one = compare(gold[i], answer[j]);
    if (one.equal) gold_met[i] = answer_met[j] = true;
    if (one.unread == Unread::kNotComputed) unread = one.unread;
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m && !gold_met[i]; ++j) meet(i, j);
    if (!gold_met[i]) return {false, "member " + std::to_string(i + 1) + " of the gold answer is not there", unread};
  }
  for (std::size_t j = 0; j < m; ++j) {
    for (std::size_t i = 0; i < n && !answer_met[j]; ++i) meet(i, j);
    if (!answer_met[j]) return {false, "member " + std::to_string(j + 1) + " is not in the gold answer", unread};
  }
  return say(true, "equal members");
}

Comparison Comparer::matrices(const TreePtr& gold, const TreePtr& answer) {
  const TreePtr a = as_matrix(gold), b = as_matrix(answer);
  if (!a || !b) return not_comparable("not comparable: a matrix and something else");
  if (a->parts.size() != b->parts.size()) return say(false, "different numbers of rows");
  for (std::size_t r = 0; r < a->parts.size(); ++r) {
    Comparison row = in_order(a->parts[r]->parts, b->parts[r]->parts);
    if (row.equal) continue;
    row.why.insert(0, "row " + std::to_string(r + 1) + ", ");
    return row;
  }
  return say(true, "equal matrices");
}

// Compares when neither side is an equation, a relation or a matrix.
Comparison Comparer::plain(const TreePtr& gold, const TreePtr& answer) {
  if (is_value(*gold) && is_value(*answer)) return percents(gold, answer);
  const auto is_point = [](const Tree& tree) { return tree.kind == Kind::kGroup && tree.name == "()"; };
  if (gold->kind == Kind::kGroup && answer->kind == Kind::kGroup) {
    const bool intervals = region_of(*gold, budget_) && region_of(*answer, budget_);
    if (intervals && gold->name != answer->name && infinite_sign(*gold->parts[0]) == 0 &&
        infinite_sign(*gold->parts[1]) == 0)
      return say(false, "different ends");
    if (!intervals || gold->name == answer->name) return in_order(gold->parts, answer->parts);
  }
  if (is_collection(*gold) && (is_collection(*answer) || is_point(*answer)))
    return in_any_order(gold->parts, answer->parts);
  if (is_point(*gold) && is_collection(*answer)) return in_order(gold->parts, answer->parts);
  const std::optional<Region> a = region_of(*gold, budget_), b = region_of(*answer, budget_);
  if (a && b) return say(same_region(*a, *b, holds_decimals(*gold, *answer)), "sets of numbers");
  if (is_collection(*gold) && is_value(*answer)) return in_any_order(gold->parts, {answer});
  if (is_collection(*answer) && is_value(*gold)) return in_any_order({gold}, answer->parts);
  if (is_collection(*gold) && gold->parts.size() == 1) return compare(gold->parts[0], answer);
  if (is_collection(*answer) && answer->parts.size() == 1) return compare(gold, answer->parts[0]);
  if (gold->kind == Kind::kUnion && answer->kind == Kind::kUnion && gold->name == answer->name)
    return in_any_order(gold->parts, answer->parts);
  return not_comparable("not comparable: " + both_texts(text_of(*gold), text_of(*answer)));
}

Comparison Comparer::compare(const TreePtr& gold_given, const TreePtr& answer_given) {
  const TreePtr gold = prepared(gold_given), answer = prepared(answer_given);
  const std::string of_gold = text_of(*gold), of_answer = text_of(*answer);
  budget_.steps -= 1 + static_cast<std::int64_t>((of_gold.size() + of_answer.size()) / kSignsAStep);
  if (of_gold == of_answer) return say(true, "the same tree");
  if (budget_.steps < 0) return not_computed("too many steps");
  if (gold->kind == Kind::kRelation || answer->kind == Kind::kRelation) return relation_and_other(gold, answer);
  if (holds(*gold, Kind::kMatrix) || holds(*answer, Kind::kMatrix)) {
    const bool determinants = is_value(*gold) && is_value(*answer) && !as_matrix(gold) && !as_matrix(answer);
    return determinants ? values(gold, answer) : matrices(gold, answer);
  }
  return plain(gold, answer);
}

}  // namespace magister::math
