// See functions.h.
#include "text/math/functions.h"

#include <cmath>
#include <string_view>
#include <utility>

namespace magister::math {
namespace {

// Numbers with a larger binary exponent are "too large": no answer is, and functions of such numbers take long.
constexpr std::int64_t kMaxMagnitude = 100000;
constexpr std::int64_t kMaxFunctionMagnitude = 512;

}  // namespace

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

namespace {

std::optional<long> as_integer(const Complex& value) {
  if (mpfr_zero_p(value.imaginary()) == 0 || mpfr_integer_p(value.real()) == 0 ||
      mpfr_fits_slong_p(value.real(), MPFR_RNDN) == 0)
    return std::nullopt;
  return mpfr_get_si(value.real(), MPFR_RNDN);
}

}  // namespace

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
  budget.spend(n ? 8 : 50);
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

namespace {

using Function = int (*)(mpc_ptr, mpc_srcptr, mpc_rnd_t);
struct NamedFunction {
  std::string_view name;
  Function function;
  bool inverse;  // its reciprocal
};
constexpr NamedFunction kOfMpc[] = {
    {"sin", mpc_sin, false},     {"cos", mpc_cos, false},   {"tan", mpc_tan, false},     {"cot", mpc_tan, true},
    {"sec", mpc_cos, true},      {"csc", mpc_sin, true},    {"arcsin", mpc_asin, false}, {"arccos", mpc_acos, false},
    {"arctan", mpc_atan, false}, {"sinh", mpc_sinh, false}, {"cosh", mpc_cosh, false},   {"tanh", mpc_tanh, false},
    {"ln", mpc_log, false}};

// Functions of real numbers: floor, ceiling, max, min, and the factorial as the gamma function.
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
  if (name == "factorial") budget.spend(200);
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
  budget.spend(*count + 1);
  return checked(std::move(out), budget);
}

}  // namespace

Value call(const std::string& name, const std::vector<Complex>& of, Budget& budget) {
  if (!budget.spend(name == "abs" || name == "root" ? 1 : 100)) return std::nullopt;
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
    budget.why = name + " is not a number";
    return std::nullopt;
  }
  return out;
}

}  // namespace magister::math
