// exact_value(); see evaluate.h.
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "text/math/evaluate.h"
#include "text/math/functions.h"

namespace magister::math {
namespace {

using Exact = std::optional<Rational>;

// Steps to charge for an operation with a number of this length.
std::int64_t steps_of(const Rational& number) { return static_cast<std::int64_t>(bits(number) / 64); }

Exact bounded(Rational number) { return bits(number) <= kExactBits ? Exact(std::move(number)) : std::nullopt; }

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

// The root, if it is a fraction too.
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

Exact factorial_of(const Rational& number, Budget& budget) {
  const std::optional<long> n = small_integer(number, kMaxFactorial);
  if (!n || *n < 0 || !budget.spend(*n / 8)) return std::nullopt;
  mpz_class product;
  mpz_fac_ui(product.get_mpz_t(), static_cast<unsigned long>(*n));
  return bounded(Rational(product));
}

Exact binomial_of(const Rational& above, const Rational& below, Budget& budget) {
  const std::optional<long> n = small_integer(above, 1 << 20), k = small_integer(below, kMaxFactorial);
  if (!n || !k || *n < 0 || *k < 0 || !budget.spend(*k / 2)) return std::nullopt;
  mpz_class ways;
  mpz_bin_uiui(ways.get_mpz_t(), static_cast<unsigned long>(*n), static_cast<unsigned long>(*k));
  return bounded(Rational(ways));
}

// The greatest common divisor or the least common multiple of whole numbers.
Exact common_of(bool divisor, const std::vector<Rational>& of) {
  mpz_class all = of[0].get_num();
  for (const Rational& one : of) {
    if (!is_integer(one)) return std::nullopt;
    mpz_class next;
    if (divisor) {
      mpz_gcd(next.get_mpz_t(), all.get_mpz_t(), one.get_num_mpz_t());
    } else {
      mpz_lcm(next.get_mpz_t(), all.get_mpz_t(), one.get_num_mpz_t());
    }
    all = next;
    if (mpz_sizeinbase(all.get_mpz_t(), 2) > kExactBits) return std::nullopt;
  }
  return Rational(all);
}

Exact exact_call(const std::string& name, const std::vector<Rational>& of, Budget& budget) {
  if (of.empty()) return std::nullopt;
  if (name == "root" && of.size() == 2)
    return budget.spend(2 * steps_of(of[0])) ? exact_root(of[0], of[1]) : std::nullopt;
  if (name == "abs") return Rational(abs(of[0]));
  if (name == "floor") return floor_of(of[0]);
  if (name == "ceiling") return Rational(-floor_of(-of[0]));
  if (name == "max") return *std::max_element(of.begin(), of.end());
  if (name == "min") return *std::min_element(of.begin(), of.end());
  if (name == "mod" && of.size() == 2 && of[1] != 0) return Rational(of[0] - of[1] * floor_of(of[0] / of[1]));
  if (name == "factorial") return factorial_of(of[0], budget);
  if (name == "binomial" && of.size() == 2) return binomial_of(of[0], of[1], budget);
  if (name == "gcd" || name == "lcm") return common_of(name == "gcd", of);
  return std::nullopt;
}

}  // namespace

std::optional<Rational> exact_value(const Tree& tree, Budget& budget) {
  if (!budget.spend()) return std::nullopt;
  if (tree.kind == Kind::kNumber) return bounded(tree.number);
  if (tree.kind == Kind::kSymbol || tree.kind == Kind::kConstant || tree.parts.empty()) return std::nullopt;
  if (tree.kind == Kind::kCall && (tree.name == "total" || tree.name == "multiplied" || tree.name == "determinant"))
    return std::nullopt;
  std::vector<Rational> of;
  for (const TreePtr& part : tree.parts) {
    Exact value = exact_value(*part, budget);
    if (!value || !budget.spend(steps_of(*value))) return std::nullopt;
    of.push_back(std::move(*value));
  }
  Rational all = of[0];
  switch (tree.kind) {
    case Kind::kSum:
      for (std::size_t i = 1; i < of.size(); ++i) {
        all += of[i];
        if (bits(all) > kExactBits || !budget.spend(steps_of(all))) return std::nullopt;
      }
      return all;
    case Kind::kProduct:
      for (std::size_t i = 1; i < of.size(); ++i) {
        all *= of[i];
        if (bits(all) > kExactBits || !budget.spend(steps_of(all))) return std::nullopt;
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
      return exact_call(tree.name, of, budget);
    default:
      return std::nullopt;
  }
}

}  // namespace magister::math
