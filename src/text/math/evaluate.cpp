// See evaluate.h.
#include "text/math/evaluate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace magister::math {
namespace {

// Exponents of two beyond this are "too large": no answer is, and functions of such numbers take long.
constexpr std::int64_t kMaxMagnitude = 100000;
constexpr std::int64_t kMaxFunctionMagnitude = 512;
constexpr long kMaxFactorial = 2000;
constexpr long kMaxTerms = 1000;

using Exact = std::optional<Rational>;
using Value = std::optional<Complex>;

bool spend(Budget& budget, std::int64_t steps = 1) {
  budget.steps -= steps;
  if (budget.steps < 0 && budget.why.empty()) budget.why = "too many steps";
  return budget.steps >= 0;
}

// Steps for an operation with numbers so long.
std::int64_t steps_of(const Rational& number) { return static_cast<std::int64_t>(bits(number) / 128); }

Exact bounded(Rational number) { return bits(number) <= kExactBits ? Exact(std::move(number)) : std::nullopt; }

std::optional<long> small_integer(const Rational& number, long most) {
  if (!is_integer(number) || bits(number) > 40) return std::nullopt;
  const long value = number.get_num().get_si();
  return value <= most && value >= -most ? std::optional(value) : std::nullopt;
}

Exact exact_power(const Rational& base, const Rational& exponent) {
  const std::optional<long> n = small_integer(exponent, 1 << 20);
  if (!n || (*n < 0 && base == 0)) return std::nullopt;
  if (base == 1 || *n == 0) return Rational(1);
  const auto count = static_cast<unsigned long>(std::labs(*n));
  if (bits(base) * count > kExactBits) return std::nullopt;
  mpz_class over, under;
  mpz_pow_ui(over.get_mpz_t(), base.get_num_mpz_t(), count);
  mpz_pow_ui(under.get_mpz_t(), base.get_den_mpz_t(), count);
  if (*n < 0) std::swap(over, under);
  Rational power(over, under);
  power.canonicalize();
  return power;
}

// The root where it is a fraction itself.
Exact exact_root(const Rational& number, const Rational& index) {
  const std::optional<long> n = small_integer(index, 64);
  if (!n || *n < 1 || number < 0) return std::nullopt;
  mpz_class over, under;
  const auto count = static_cast<unsigned long>(*n);
  if (mpz_root(over.get_mpz_t(), number.get_num_mpz_t(), count) == 0 ||
      mpz_root(under.get_mpz_t(), number.get_den_mpz_t(), count) == 0)
    return std::nullopt;
  return Rational(over, under);
}

Rational floor_of(const Rational& number) {
  mpz_class whole;
  mpz_fdiv_q(whole.get_mpz_t(), number.get_num_mpz_t(), number.get_den_mpz_t());
  return Rational(whole);
}

Exact exact_call(const std::string& name, const std::vector<Rational>& of) {
  if (of.empty()) return std::nullopt;
  if (name == "root" && of.size() == 2) return exact_root(of[0], of[1]);
  if (name == "abs") return Rational(abs(of[0]));
  if (name == "floor") return floor_of(of[0]);
  if (name == "ceiling") return Rational(-floor_of(-of[0]));
  if (name == "max") return *std::max_element(of.begin(), of.end());
  if (name == "min") return *std::min_element(of.begin(), of.end());
  if (name == "mod" && of.size() == 2 && of[1] != 0) return Rational(of[0] - of[1] * floor_of(of[0] / of[1]));
  if (name == "factorial") {
    const std::optional<long> n = small_integer(of[0], kMaxFactorial);
    if (!n || *n < 0) return std::nullopt;
    mpz_class product;
    mpz_fac_ui(product.get_mpz_t(), static_cast<unsigned long>(*n));
    return bounded(Rational(product));
  }
  if (name == "binomial" && of.size() == 2) {
    const std::optional<long> n = small_integer(of[0], 1 << 20), k = small_integer(of[1], kMaxFactorial);
    if (!n || !k || *n < 0 || *k < 0) return std::nullopt;
    mpz_class ways;
    mpz_bin_uiui(ways.get_mpz_t(), static_cast<unsigned long>(*n), static_cast<unsigned long>(*k));
    return bounded(Rational(ways));
  }
  if (name != "gcd" && name != "lcm") return std::nullopt;
  mpz_class all = of[0].get_num();
  for (const Rational& one : of) {
    if (!is_integer(one)) return std::nullopt;
    mpz_class next;
    if (name == "gcd") {
      mpz_gcd(next.get_mpz_t(), all.get_mpz_t(), one.get_num_mpz_t());
    } else {
      mpz_lcm(next.get_mpz_t(), all.get_mpz_t(), one.get_num_mpz_t());
    }
    all = next;
  }
  return bounded(Rational(all));
}

}  // namespace

std::optional<Rational> exact_value(const Tree& tree, Budget& budget) {
  if (!spend(budget)) return std::nullopt;
  if (tree.kind == Kind::kNumber) return bounded(tree.number);
  if (tree.kind == Kind::kSymbol || tree.kind == Kind::kConstant || tree.parts.empty()) return std::nullopt;
  if (tree.kind == Kind::kCall && (tree.name == "total" || tree.name == "multiplied" || tree.name == "determinant"))
    return std::nullopt;
  std::vector<Rational> of;
  for (const TreePtr& part : tree.parts) {
    Exact value = exact_value(*part, budget);
    if (!value || !spend(budget, steps_of(*value))) return std::nullopt;
    of.push_back(std::move(*value));
  }
  Rational all = of[0];
  switch (tree.kind) {
    case Kind::kSum:
      for (std::size_t i = 1; i < of.size(); ++i) {
        all += of[i];
        if (bits(all) > kExactBits || !spend(budget, steps_of(all))) return std::nullopt;
      }
      return all;
    case Kind::kProduct:
      for (std::size_t i = 1; i < of.size(); ++i) {
        all *= of[i];
        if (bits(all) > kExactBits || !spend(budget, steps_of(all))) return std::nullopt;
      }
      return all;
    case Kind::kNegative:
      return Rational(-all);
    case Kind::kQuotient:
      return of[1] == 0 ? std::nullopt : bounded(of[0] / of[1]);
    case Kind::kPower:
      return exact_power(of[0], of[1]);
    case Kind::kPercent:
      return Rational(all / 100);
    case Kind::kCall:
      return exact_call(tree.name, of);
    default:
      return std::nullopt;
  }
}

namespace {

Value checked(Complex value, Budget& budget) {
  if (!value.is_finite()) {
    if (budget.why.empty()) budget.why = "a value that is not finite";
    return std::nullopt;
  }
  if (value.magnitude() > kMaxMagnitude) {
    if (budget.why.empty()) budget.why = "a number too large to compute with";
    return std::nullopt;
  }
  return value;
}

Value divided(const Complex& over, const Complex& under, Budget& budget) {
  if (under.is_zero() || under.magnitude() < -200) {
    if (budget.why.empty()) budget.why = "a division by zero";
    return std::nullopt;
  }
  Complex out;
  mpc_div(out.get(), over.get(), under.get(), MPC_RNDNN);
  return checked(std::move(out), budget);
}

std::optional<long> as_integer(const Complex& value) {
  if (mpfr_zero_p(value.imaginary()) == 0 || mpfr_integer_p(value.real()) == 0 ||
      mpfr_fits_slong_p(value.real(), MPFR_RNDN) == 0)
    return std::nullopt;
  return mpfr_get_si(value.real(), MPFR_RNDN);
}

Value power(const Complex& base, const Complex& exponent, Budget& budget) {
  Complex out;
  const std::optional<long> n = as_integer(exponent);
  if (base.is_zero()) {
    if (mpfr_sgn(exponent.real()) > 0) return out;
    if (n && *n == 0) return Complex(Rational(1));
    budget.why = "a division by zero";
    return std::nullopt;
  }
  const double size = std::abs(static_cast<double>(base.magnitude())) + 1;
  const double times = std::abs(mpfr_get_d(exponent.real(), MPFR_RNDN));
  if (size * times > static_cast<double>(kMaxMagnitude) || exponent.magnitude() > 32) {
    budget.why = "a power too large to compute with";
    return std::nullopt;
  }
  spend(budget, n ? 8 : 50);
  if (n) {
    mpc_pow_si(out.get(), base.get(), *n, MPC_RNDNN);
  } else {
    Complex logarithm;
    mpc_log(logarithm.get(), base.get(), MPC_RNDNN);
    mpc_mul(logarithm.get(), logarithm.get(), exponent.get(), MPC_RNDNN);
    mpc_exp(out.get(), logarithm.get(), MPC_RNDNN);
  }
  return checked(std::move(out), budget);
}

using Function = int (*)(mpc_ptr, mpc_srcptr, mpc_rnd_t);
struct NamedFunction {
  std::string_view name;
  Function function;
  bool inverse;  // one over it
};
constexpr NamedFunction kOfMpc[] = {
    {"sin", mpc_sin, false},     {"cos", mpc_cos, false},   {"tan", mpc_tan, false},     {"cot", mpc_tan, true},
    {"sec", mpc_cos, true},      {"csc", mpc_sin, true},    {"arcsin", mpc_asin, false}, {"arccos", mpc_acos, false},
    {"arctan", mpc_atan, false}, {"sinh", mpc_sinh, false}, {"cosh", mpc_cosh, false},   {"tanh", mpc_tanh, false},
    {"ln", mpc_log, false}};

// Of real numbers: floor, ceiling, max, min, and the factorial as the gamma function.
Value real_call(const std::string& name, const std::vector<Complex>& of, Budget& budget) {
  Complex out = of[0];
  for (const Complex& one : of) {
    if (one.is_real()) continue;
    budget.why = name + " of a complex number";
    return std::nullopt;
  }
  mpfr_set_zero(out.imaginary(), 1);
  if (name == "floor") {
    mpfr_floor(out.real(), of[0].real());
  } else if (name == "ceiling") {
    mpfr_ceil(out.real(), of[0].real());
  } else if (name == "max" || name == "min") {
    for (const Complex& one : of)
      if ((mpfr_cmp(one.real(), out.real()) > 0) == (name == "max")) mpfr_set(out.real(), one.real(), MPFR_RNDN);
  } else if (name == "factorial") {
    if (mpfr_cmp_si(of[0].real(), kMaxFactorial) > 0 || mpfr_cmp_si(of[0].real(), -kMaxFactorial) < 0) {
      budget.why = "a factorial too large to compute with";
      return std::nullopt;
    }
    mpfr_add_ui(out.real(), out.real(), 1, MPFR_RNDN);
    mpfr_gamma(out.real(), out.real(), MPFR_RNDN);
  } else {
    budget.why = name + " has no value here";
    return std::nullopt;
  }
  if (name == "factorial") spend(budget, 200);
  return checked(std::move(out), budget);
}

Value binomial(const Complex& n, const Complex& k, Budget& budget) {
  const std::optional<long> count = as_integer(k);
  if (!count || *count < 0 || *count > 200) {
    budget.why = "a binomial coefficient that is not computed";
    return std::nullopt;
  }
  Complex out{Rational(1)};
  for (long i = 0; i < *count; ++i) {
    Complex factor = n;
    mpfr_sub_si(factor.real(), factor.real(), i, MPFR_RNDN);
    mpc_mul(out.get(), out.get(), factor.get(), MPC_RNDNN);
    mpc_div_ui(out.get(), out.get(), static_cast<unsigned long>(i + 1), MPC_RNDNN);
  }
  spend(budget, *count + 1);
  return checked(std::move(out), budget);
}

Value call(const std::string& name, const std::vector<Complex>& of, Budget& budget) {
  if (!spend(budget, name == "abs" || name == "root" ? 1 : 100)) return std::nullopt;
  Complex out;
  if (name == "abs") {
    mpc_abs(out.real(), of[0].get(), MPFR_RNDN);
    return out;
  }
  if (name == "root") {
    const Value inverse = divided(Complex(Rational(1)), of[1], budget);
    return inverse ? power(of[0], *inverse, budget) : std::nullopt;
  }
  if (name == "binomial") return binomial(of[0], of[1], budget);
  if (name == "mod") {
    const Value times = divided(of[0], of[1], budget);
    if (!times) return std::nullopt;
    Value whole = real_call("floor", {*times}, budget);
    if (!whole) return std::nullopt;
    mpc_mul(out.get(), whole->get(), of[1].get(), MPC_RNDNN);
    mpc_sub(out.get(), of[0].get(), out.get(), MPC_RNDNN);
    return out;
  }
  if (of[0].magnitude() > kMaxFunctionMagnitude && name != "ln" && name != "log") {
    budget.why = name + " of a number too large to compute with";
    return std::nullopt;
  }
  if (name == "log") {
    if (of[0].is_zero() || of[1].is_zero()) {
      budget.why = "a logarithm of zero";
      return std::nullopt;
    }
    Complex base;
    mpc_log(out.get(), of[0].get(), MPC_RNDNN);
    mpc_log(base.get(), of[1].get(), MPC_RNDNN);
    return divided(out, base, budget);
  }
  for (const NamedFunction& one : kOfMpc) {
    if (one.name != name) continue;
    one.function(out.get(), of[0].get(), MPC_RNDNN);
    return one.inverse ? divided(Complex(Rational(1)), out, budget) : checked(std::move(out), budget);
  }
  return real_call(name, of, budget);
}

Value constant(const std::string& name, Budget& budget) {
  Complex out;
  if (name == "pi") {
    mpfr_const_pi(out.real(), MPFR_RNDN);
  } else if (name == "e") {
    mpfr_set_ui(out.real(), 1, MPFR_RNDN);
    mpfr_exp(out.real(), out.real(), MPFR_RNDN);
  } else if (name == "i") {
    mpfr_set_ui(out.imaginary(), 1, MPFR_RNDN);
  } else {
    budget.why = name + " is no number";
    return std::nullopt;
  }
  return out;
}

// Sums and products over whole numbers.
Value folded(const Tree& tree, const Point& point, Budget& budget) {
  const Exact first = exact_value(*tree.parts[1], budget), last = exact_value(*tree.parts[2], budget);
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

// Of a matrix: along its first row.
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
  spend(budget, 400);
  return determinant(values);
}

}  // namespace

std::optional<Complex> value_at(const Tree& tree, const Point& point, Budget& budget) {
  if (!spend(budget)) return std::nullopt;
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
      budget.why = "a structure where a number is due";
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
