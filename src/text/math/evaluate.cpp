// See evaluate.h.
#include "text/math/evaluate.h"

#include <utility>
#include <vector>

#include "text/math/functions.h"

namespace magister::math {
namespace {

constexpr long kMaxTerms = 1000;

// Sums and products over a range of whole numbers.
Value folded(const Tree& tree, const Point& point, Budget& budget) {
  const std::optional<Rational> first = exact_value(*tree.parts[1], budget), last = exact_value(*tree.parts[2], budget);
  const std::optional<long> from = first ? small_integer(*first, 1000000) : std::nullopt,
                            to = last ? small_integer(*last, 1000000) : std::nullopt;
  if (!from || !to || *to - *from >= kMaxTerms) {
    budget.why = "a sum of too many terms, or without an end";
    return std::nullopt;
  }
  const bool product = tree.name == "multiplied";
  Complex all{Rational(product ? 1 : 0)};
  Point inner = point;
  for (long k = *from; k <= *to; ++k) {
    if (!budget.spend(4)) return std::nullopt;
    inner.insert_or_assign(tree.parts[0]->name, Complex(Rational(k)));
    const Value term = value_at(*tree.parts[3], inner, budget);
    if (!term) return std::nullopt;
    if (product) {
      mpc_mul(all.get(), all.get(), term->get(), MPC_RNDNN);
    } else {
      mpc_add(all.get(), all.get(), term->get(), MPC_RNDNN);
    }
  }
  return checked(std::move(all), budget);
}

// Expands the determinant along the first row.
Value determinant(const std::vector<std::vector<Complex>>& rows) {
  const std::size_t n = rows.size();
  if (n == 1) return rows[0][0];
  Complex all;
  for (std::size_t column = 0; column < n; ++column) {
    std::vector<std::vector<Complex>> minor;
    for (std::size_t r = 1; r < n; ++r) {
      std::vector<Complex> row = rows[r];
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
      minor.push_back(std::move(row));
    }
    Complex term = *determinant(minor);
    mpc_mul(term.get(), term.get(), rows[0][column].get(), MPC_RNDNN);
    if (column % 2 == 0) {
      mpc_add(all.get(), all.get(), term.get(), MPC_RNDNN);
    } else {
      mpc_sub(all.get(), all.get(), term.get(), MPC_RNDNN);
    }
  }
  return all;
}

Value determinant_of(const Tree& tree, const Point& point, Budget& budget) {
  const std::vector<TreePtr>& rows = tree.parts[0]->parts;
  if (rows.size() > 5 || rows[0]->parts.size() != rows.size()) {
    budget.why = "a determinant that is not computed";
    return std::nullopt;
  }
  std::vector<std::vector<Complex>> values;
  for (const TreePtr& row : rows) {
    values.emplace_back();
    for (const TreePtr& part : row->parts) {
      Value value = value_at(*part, point, budget);
      if (!value) return std::nullopt;
      values.back().push_back(std::move(*value));
    }
  }
  budget.spend(400);
  return determinant(values);
}

}  // namespace

std::optional<Complex> value_at(const Tree& tree, const Point& point, Budget& budget) {
  if (!budget.spend()) return std::nullopt;
  switch (tree.kind) {
    case Kind::kNumber:
      return checked(Complex(tree.number), budget);
    case Kind::kConstant:
      return constant(tree.name, budget);
    case Kind::kSymbol:
      return point.at(tree.name);
    case Kind::kSum:
    case Kind::kProduct:
    case Kind::kNegative:
    case Kind::kQuotient:
    case Kind::kPower:
    case Kind::kPercent:
    case Kind::kCall:
      break;
    default:
      budget.why = "a structure instead of a number";
      return std::nullopt;
  }
  if (tree.kind == Kind::kCall && tree.name == "determinant") return determinant_of(tree, point, budget);
  if (tree.kind == Kind::kCall && (tree.name == "total" || tree.name == "multiplied"))
    return folded(tree, point, budget);
  std::vector<Complex> of;
  of.reserve(tree.parts.size());
  for (const TreePtr& part : tree.parts) {
    Value value = value_at(*part, point, budget);
    if (!value) return std::nullopt;
    of.push_back(std::move(*value));
  }
  if (of.empty()) return std::nullopt;
  if (tree.kind == Kind::kCall) return call(tree.name, of, budget);
  if (tree.kind == Kind::kPower) return power(of[0], of[1], budget);
  if (tree.kind == Kind::kQuotient) return divided(of[0], of[1], budget);
  Complex all = of[0];
  for (std::size_t i = 1; i < of.size(); ++i) {
    if (tree.kind == Kind::kSum) {
      mpc_add(all.get(), all.get(), of[i].get(), MPC_RNDNN);
    } else {
      mpc_mul(all.get(), all.get(), of[i].get(), MPC_RNDNN);
    }
  }
  if (tree.kind == Kind::kNegative) mpc_neg(all.get(), all.get(), MPC_RNDNN);
  if (tree.kind == Kind::kPercent) mpc_div_ui(all.get(), all.get(), 100, MPC_RNDNN);
  return checked(std::move(all), budget);
}

int infinite_sign(const Tree& tree) {
  if (tree.kind == Kind::kConstant && tree.name == "infinity") return 1;
  return tree.kind == Kind::kNegative ? -infinite_sign(*tree.parts[0]) : 0;
}

}  // namespace magister::math
