// See compare.h.
#include "text/math/compare.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "text/math/regions.h"

namespace magister::math {
namespace {

constexpr int kPoints = 5;
constexpr int kDraws = 12;
// 35 digits where all numbers are exact; 13 where decimals were written, as a double's arithmetic would have them.
constexpr int kSameBits = 116;
constexpr int kDecimalBits = 43;

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

bool all_signs(const Tree& relation, std::initializer_list<std::string_view> signs) {
  return std::all_of(relation.signs.begin(), relation.signs.end(),
                     [&](const std::string& one) { return std::find(signs.begin(), signs.end(), one) != signs.end(); });
}

bool is_equation(const Tree& tree) { return tree.kind == Kind::kRelation && all_signs(tree, {"=", "in"}); }

// "x = 1/2" of a chain "x = 2/4 = 1/2".
const TreePtr& first_of(const Tree& chain) { return chain.parts.front(); }
const TreePtr& last_of(const Tree& chain) { return chain.parts.back(); }

// Whether what stands left of = is a name of something, not an equation that has still to be solved.
bool names_something(const Tree& tree) {
  return !holds(tree, Kind::kNumber) &&
         (holds(tree, Kind::kSymbol) || tree.kind == Kind::kConstant || tree.kind == Kind::kCall);
}

// +- makes two of one.
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

// "x = 1, 2" is x = {1, 2}: values without a name behind one with it.
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

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

Point Comparer::point_of(const std::vector<std::string>& names, int number) const {
  Point point;
  for (const std::string& name : names) {
    std::uint64_t hash = seed_ + static_cast<std::uint64_t>(number) * 1000003;
    for (const char c : name) hash = mixed(hash ^ static_cast<unsigned char>(c));
    hash = mixed(hash);
    // Between 1/5 and 3.2, of either sign, with a denominator that no answer has.
    const auto over = static_cast<long>(200 + hash % 3000);
    point.insert_or_assign(name, Complex(Rational((hash >> 40) % 2 == 0 ? over : -over, 997)));
  }
  return point;
}

Comparison Comparer::at_points(const Tree& gold, const Tree& answer) {
  std::vector<std::string> names = symbols_of(gold);
  for (const std::string& name : symbols_of(answer)) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const bool decimals = holds_decimal(gold) || holds_decimal(answer);
  const int wanted = names.empty() ? 1 : kPoints;
  int same = 0;
  for (int draw = 0; draw < kDraws && same < wanted; ++draw) {
    const Point point = point_of(names, draw);
    Budget of_gold = {budget_.steps, ""}, of_answer;
    const std::optional<Complex> a = value_at(gold, point, of_gold);
    of_answer.steps = of_gold.steps;
    const std::optional<Complex> b = value_at(answer, point, of_answer);
    budget_.steps = of_answer.steps;
    if (budget_.steps < 0) return say(false, "too many steps");
    if (!a || !b) {
      if (names.empty()) return say(false, "not computed: " + (a ? of_answer.why : of_gold.why));
      if (budget_.why.empty()) budget_.why = a ? of_answer.why : of_gold.why;
      continue;
    }
    const bool equal = near(*a, *b, decimals && !names.empty() ? kDecimalBits : kSameBits) ||
                       (decimals && names.empty() && same_in_six(*a, *b));
    if (!equal)
      return say(false, names.empty() ? "values " + a->text(20) + " and " + b->text(20) : "values differ at a point");
    ++same;
  }
  if (same < 2 && !names.empty())
    return say(false, "not comparable: " + (budget_.why.empty() ? "no values" : budget_.why));
  return say(true, names.empty() ? "equal values" : "equal at " + std::to_string(same) + " points");
}

Comparison Comparer::values(const TreePtr& gold, const TreePtr& answer) {
  const int a = infinite_sign(*gold), b = infinite_sign(*answer);
  if (a != 0 || b != 0) return say(a == b, "infinite values");
  const std::optional<Rational> exact = exact_value(*gold, budget_), other = exact_value(*answer, budget_);
  if (!exact || !other) return at_points(*gold, *answer);
  const std::string why = "values " + Complex(*exact).text(20) + " and " + Complex(*other).text(20);
  if (*exact == *other) return say(true, "equal values");
  const bool decimals = holds_decimal(*gold) || holds_decimal(*answer);
  if (!decimals) return say(false, why);
  // A whole number is no measured one.
  const bool whole = (!holds_decimal(*gold) && is_integer(*exact)) || (!holds_decimal(*answer) && is_integer(*other));
  if (whole) return say(near(Complex(*exact), Complex(*other), 100), why);
  return say(rounded_to_six(*exact) == rounded_to_six(*other), why + ", rounded to six decimals");
}

// A percent sign may be left out of whole numbers, or be a hundredth.
Comparison Comparer::percents(const TreePtr& gold, const TreePtr& answer) {
  Comparison found = values(gold, answer);
  if (found.equal || (gold->kind == Kind::kPercent) == (answer->kind == Kind::kPercent)) return found;
  const TreePtr& hundredths = gold->kind == Kind::kPercent ? gold->parts[0] : answer->parts[0];
  if (holds_decimal(*hundredths)) return found;  // as Math-Verify: 28% is 28, 28.5% is 0.285 alone
  return gold->kind == Kind::kPercent ? values(hundredths, answer) : values(gold, hundredths);
}

Comparison Comparer::members(const std::vector<TreePtr>& gold, const std::vector<TreePtr>& answer, bool ordered) {
  if (gold.size() > 100 || answer.size() > 100) return say(false, "more than 100 members");
  if (ordered) {
    if (gold.size() != answer.size()) return say(false, "other numbers of members");
    for (std::size_t i = 0; i < gold.size(); ++i) {
      const Comparison one = compare(gold[i], answer[i]);
      if (!one.equal) return say(false, "member " + std::to_string(i + 1) + ": " + one.why);
    }
    return say(true, "equal members in their order");
  }
  // Each of either side has one of the other: {1, 1} is {1}.
  std::vector<bool> met(answer.size(), false);
  for (std::size_t i = 0; i < gold.size(); ++i) {
    bool found = false;
    for (std::size_t j = 0; j < answer.size(); ++j) {
      if (!compare(gold[i], answer[j]).equal) continue;
      met[j] = true;
      found = true;
    }
    if (!found) return say(false, "member " + std::to_string(i + 1) + " of the gold answer is not there");
  }
  const auto left = std::find(met.begin(), met.end(), false);
  if (left != met.end())
    return say(false, "member " + std::to_string(left - met.begin() + 1) + " is not in the gold answer");
  return say(true, "equal members");
}

Comparison Comparer::equations(const Tree& gold, const Tree& answer) {
  const TreePtr a = tree_of(Kind::kSum, {first_of(gold), tree_of(Kind::kNegative, {last_of(gold)})});
  const TreePtr b = tree_of(Kind::kSum, {first_of(answer), tree_of(Kind::kNegative, {last_of(answer)})});
  const std::vector<std::string> names = symbols_of(*a);
  if (names != symbols_of(*b)) return say(false, "other variables");
  Comparison same = values(a, b);
  if (same.equal) return same;
  same = values(a, tree_of(Kind::kNegative, {b}));
  // An equation in one variable is to be solved; of several it is what it is, whatever factor it has.
  if (same.equal || names.size() < 2) return same;
  const Point first = point_of(names, 0);
  Budget& budget = budget_;
  const std::optional<Complex> x = value_at(*a, first, budget), y = value_at(*b, first, budget);
  if (!x || !y || x->is_zero() || y->is_zero()) return say(false, "not comparable: no factor");
  for (int number = 1; number < kPoints; ++number) {
    const Point point = point_of(names, number);
    std::optional<Complex> u = value_at(*a, point, budget), v = value_at(*b, point, budget);
    if (!u || !v) return say(false, "not comparable: " + budget.why);
    mpc_mul(u->get(), u->get(), y->get(), MPC_RNDNN);
    mpc_mul(v->get(), v->get(), x->get(), MPC_RNDNN);
    if (!near(*u, *v, holds_decimal(*a) || holds_decimal(*b) ? kDecimalBits : kSameBits))
      return say(false, "no factor makes the equations equal");
  }
  return say(true, "equations equal up to a factor");
}

Comparison Comparer::relations(const Tree& gold, const Tree& answer) {
  if (is_equation(gold) && is_equation(answer)) {
    const TreePtr &a = last_of(gold), &b = last_of(answer);
    if (is_value(*first_of(gold)) && is_value(*first_of(answer)) && is_value(*a) && is_value(*b))
      return equations(gold, answer);
    const Comparison left = compare(first_of(gold), first_of(answer));
    return left.equal ? compare(a, b) : say(false, "other left sides");
  }
  if (gold.signs.size() != answer.signs.size()) return say(false, "relations of other lengths");
  const auto flipped = [](const std::string& sign) -> std::string {
    return sign == "<" ? ">" : sign == "<=" ? ">=" : sign == ">" ? "<" : sign == ">=" ? "<=" : sign;
  };
  const std::size_t count = gold.signs.size();
  for (const bool flip : {false, true}) {
    bool all = true;
    for (std::size_t i = 0; i < count && all; ++i) {
      const std::size_t j = flip ? count - 1 - i : i;
      const TreePtr& left = answer.parts[flip ? j + 1 : j];
      const TreePtr& right = answer.parts[flip ? j : j + 1];
      const std::string sign = flip ? flipped(answer.signs[j]) : answer.signs[j];
      const TreePtr a = tree_of(Kind::kSum, {gold.parts[i], tree_of(Kind::kNegative, {gold.parts[i + 1]})});
      const TreePtr b = tree_of(Kind::kSum, {left, tree_of(Kind::kNegative, {right})});
      const bool same = sign == gold.signs[i] && values(a, b).equal;
      const bool negated = flipped(sign) == gold.signs[i] && values(a, tree_of(Kind::kNegative, {b})).equal;
      all = same || negated;
    }
    if (all) return say(true, "the same relation");
  }
  return say(false, "other relations");
}

namespace {

// Products of larger ones, or of more, would be trees without an end.
constexpr std::size_t kMaxFactorRows = 6;
constexpr int kMaxMatrixProducts = 3;

// Sums, products and multiples of matrices are worked out first.
TreePtr as_matrix(const TreePtr& tree, int& products) {
  if (tree->kind == Kind::kMatrix) return tree;
  const auto entrywise = [](const TreePtr& matrix, const auto& change) {
    std::vector<TreePtr> rows;
    for (std::size_t r = 0; r < matrix->parts.size(); ++r) {
      std::vector<TreePtr> row;
      for (std::size_t c = 0; c < matrix->parts[r]->parts.size(); ++c)
        row.push_back(change(matrix->parts[r]->parts[c], r, c));
      rows.push_back(tree_of(Kind::kList, std::move(row)));
    }
    return tree_of(Kind::kMatrix, std::move(rows));
  };
  if (tree->kind == Kind::kNegative) {
    const TreePtr inside = as_matrix(tree->parts[0], products);
    return inside ? entrywise(inside, [](const TreePtr& one, std::size_t,
                                         std::size_t) { return tree_of(Kind::kNegative, {one}); })
                  : nullptr;
  }
  if (tree->kind != Kind::kSum && tree->kind != Kind::kProduct) return nullptr;
  TreePtr all = as_matrix(tree->parts[0], products), factor = all ? nullptr : tree->parts[0];
  for (std::size_t i = 1; i < tree->parts.size(); ++i) {
    const TreePtr next = as_matrix(tree->parts[i], products);
    if (tree->kind == Kind::kSum) {
      if (!all || !next || all->parts.size() != next->parts.size() ||
          all->parts[0]->parts.size() != next->parts[0]->parts.size())
        return nullptr;
      all = entrywise(all, [&](const TreePtr& one, std::size_t r, std::size_t c) {
        return tree_of(Kind::kSum, {one, next->parts[r]->parts[c]});
      });
    } else if (!next) {
      factor = factor ? tree_of(Kind::kProduct, {factor, tree->parts[i]}) : tree->parts[i];
    } else if (!all) {
      all = next;
    } else {
      if (all->parts[0]->parts.size() != next->parts.size() || next->parts.size() > kMaxFactorRows ||
          ++products > kMaxMatrixProducts)
        return nullptr;
      std::vector<TreePtr> rows;
      for (const TreePtr& row : all->parts) {
        std::vector<TreePtr> made;
        for (std::size_t c = 0; c < next->parts[0]->parts.size(); ++c) {
          std::vector<TreePtr> terms;
          for (std::size_t k = 0; k < row->parts.size(); ++k)
            terms.push_back(tree_of(Kind::kProduct, {row->parts[k], next->parts[k]->parts[c]}));
          made.push_back(tree_of(Kind::kSum, std::move(terms)));
        }
        rows.push_back(tree_of(Kind::kList, std::move(made)));
      }
      all = tree_of(Kind::kMatrix, std::move(rows));
    }
  }
  if (!all || !factor) return all;
  return entrywise(
      all, [&](const TreePtr& one, std::size_t, std::size_t) { return tree_of(Kind::kProduct, {factor, one}); });
}

TreePtr as_matrix(const TreePtr& tree) {
  int products = 0;
  return as_matrix(tree, products);
}

}  // namespace

Comparison Comparer::matrices(const TreePtr& gold, const TreePtr& answer) {
  const TreePtr a = as_matrix(gold), b = as_matrix(answer);
  if (!a || !b) return say(false, "a matrix and something else");
  if (a->parts.size() != b->parts.size()) return say(false, "other numbers of rows");
  for (std::size_t r = 0; r < a->parts.size(); ++r) {
    const Comparison row = members(a->parts[r]->parts, b->parts[r]->parts, true);
    if (!row.equal) return say(false, "row " + std::to_string(r + 1) + ", " + row.why);
  }
  return say(true, "equal matrices");
}

// What is left when neither side is an equation, a relation or a matrix.
Comparison Comparer::plain(const TreePtr& gold, const TreePtr& answer) {
  if (is_value(*gold) && is_value(*answer)) return percents(gold, answer);
  const auto is_point = [](const Tree& tree) { return tree.kind == Kind::kGroup && tree.name == "()"; };
  if (gold->kind == Kind::kGroup && answer->kind == Kind::kGroup) {
    const bool intervals = region_of(*gold, budget_) && region_of(*answer, budget_);
    if (intervals && gold->name != answer->name && infinite_sign(*gold->parts[0]) == 0 &&
        infinite_sign(*gold->parts[1]) == 0)
      return say(false, "other ends");
    if (!intervals || gold->name == answer->name) return members(gold->parts, answer->parts, true);
  }
  if (is_collection(*gold) && is_collection(*answer)) return members(gold->parts, answer->parts, false);
  if (is_collection(*gold) && is_point(*answer)) return members(gold->parts, answer->parts, false);
  if (is_point(*gold) && is_collection(*answer)) return members(gold->parts, answer->parts, true);
  const std::optional<Region> a = region_of(*gold, budget_), b = region_of(*answer, budget_);
  if (a && b) return say(same_region(*a, *b, holds_decimal(*gold) || holds_decimal(*answer)), "sets of numbers");
  if (is_collection(*gold) && is_value(*answer)) return members(gold->parts, {answer}, false);
  if (is_collection(*answer) && is_value(*gold)) return members({gold}, answer->parts, false);
  if (is_collection(*gold) && gold->parts.size() == 1) return compare(gold->parts[0], answer);
  if (is_collection(*answer) && answer->parts.size() == 1) return compare(gold, answer->parts[0]);
  if (gold->kind == Kind::kUnion && answer->kind == Kind::kUnion && gold->name == answer->name)
    return members(gold->parts, answer->parts, false);
  return say(false, "not comparable: " + text_of(*gold).substr(0, 40) + " and " + text_of(*answer).substr(0, 40));
}

Comparison Comparer::compare(const TreePtr& gold_given, const TreePtr& answer_given) {
  if (--budget_.steps < 0) return say(false, "too many steps");
  const TreePtr gold = prepared(gold_given), answer = prepared(answer_given);
  if (text_of(*gold) == text_of(*answer)) return say(true, "the same tree");
  const bool of_gold = gold->kind == Kind::kRelation, of_answer = answer->kind == Kind::kRelation;
  if (of_gold && of_answer) {
    if (is_equation(*answer) && !is_equation(*gold))  // x > 5 and x in (5, inf)
      return compare(gold, last_of(*answer));
    return relations(*gold, *answer);
  }
  if (of_gold) {
    if (is_equation(*gold)) {
      const bool named = std::any_of(gold->parts.begin(), gold->parts.end() - 1,
                                     [](const TreePtr& one) { return names_something(*one); });
      return named ? compare(last_of(*gold), answer) : say(false, "an equation and a value");
    }
    const std::optional<Region> solved = solutions_of(*gold, budget_), region = region_of(*answer, budget_);
    if (solved && region)
      return say(same_region(*solved, *region, holds_decimal(*gold) || holds_decimal(*answer)), "sets of numbers");
    return say(false, "not comparable: a relation and something else");
  }
  if (of_answer)
    return is_equation(*answer) ? compare(gold, last_of(*answer))
                                : say(false, "an inequality where a value or a set is due");
  if (holds(*gold, Kind::kMatrix) || holds(*answer, Kind::kMatrix)) {
    const bool determinants = is_value(*gold) && is_value(*answer) && !as_matrix(gold) && !as_matrix(answer);
    return determinants ? values(gold, answer) : matrices(gold, answer);
  }
  return plain(gold, answer);
}

namespace {

// Values at two points of fixed hashes; a number behind rounding to six decimals.
std::string value_form(const TreePtr& tree) {
  Budget budget;
  if (infinite_sign(*tree) != 0) return infinite_sign(*tree) > 0 ? "inf" : "-inf";
  if (const std::optional<Rational> exact = exact_value(*tree, budget)) return "n" + rounded_to_six(*exact).get_str();
  const std::vector<std::string> names = symbols_of(*tree);
  std::string out = "n";
  for (const int number : {0, 1}) {
    Point point;
    for (const std::string& name : names) {
      std::uint64_t hash = mixed(static_cast<std::uint64_t>(number) + 42);
      for (const char c : name) hash = mixed(hash ^ static_cast<unsigned char>(c));
      point.insert_or_assign(name, Complex(Rational(static_cast<long>(200 + hash % 3000), 997)));
    }
    std::optional<Complex> value = value_at(*tree, point, budget);
    if (!value) return "t" + text_of(*tree);
    if (!names.empty()) {
      out += value->text(12) + " ";
    } else if (number == 0) {
      Rational real, imaginary;
      mpfr_get_q(real.get_mpq_t(), value->real());
      mpfr_get_q(imaginary.get_mpq_t(), value->imaginary());
      out += rounded_to_six(real).get_str();
      if (!value->is_real()) out += " " + rounded_to_six(imaginary).get_str();
    }
  }
  return out;
}

}  // namespace

std::string form_of(const TreePtr& given) {
  TreePtr tree = prepared(given);
  if (is_equation(*tree) && names_something(*first_of(*tree))) tree = prepared(last_of(*tree));
  if (is_value(*tree)) return value_form(tree);
  if (is_collection(*tree)) {
    std::vector<std::string> forms;
    for (const TreePtr& part : tree->parts) forms.push_back(form_of(part));
    std::sort(forms.begin(), forms.end());
    forms.erase(std::unique(forms.begin(), forms.end()), forms.end());
    std::string out = "{";
    for (const std::string& form : forms) out += form + ";";
    return out + "}";
  }
  if (tree->kind == Kind::kGroup || tree->kind == Kind::kMatrix) {
    std::string out = tree->name + "(";
    for (const TreePtr& part : tree->parts) out += form_of(part) + ";";
    return out + ")";
  }
  return "t" + text_of(*tree);
}

}  // namespace magister::math
