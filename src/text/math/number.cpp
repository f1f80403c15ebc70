// See number.h.
#include "text/math/number.h"

#include <algorithm>
#include <array>
#include <limits>

namespace magister::math {

Rational rational_of(std::string_view digits) {
  const std::size_t dot = digits.find('.');
  std::string whole(digits.substr(0, dot));
  std::string fraction(dot == std::string_view::npos ? std::string_view() : digits.substr(dot + 1));
  mpz_class over((whole + fraction).empty() ? "0" : whole + fraction, 10), under;
  mpz_ui_pow_ui(under.get_mpz_t(), 10, fraction.size());
  Rational number(over, under);
  number.canonicalize();
  return number;
}

std::size_t bits(const Rational& number) {
  return std::max(mpz_sizeinbase(number.get_num_mpz_t(), 2), mpz_sizeinbase(number.get_den_mpz_t(), 2));
}

bool is_integer(const Rational& number) { return number.get_den() == 1; }

std::optional<long> small_integer(const Rational& number, long most) {
  if (!is_integer(number) || bits(number) > 40) return std::nullopt;
  const long value = number.get_num().get_si();
  return value <= most && value >= -most ? std::optional(value) : std::nullopt;
}

Rational rounded_to_six(const Rational& number) {
  const Rational scaled = number * 1000000;
  mpz_class floor;
  mpz_fdiv_q(floor.get_mpz_t(), scaled.get_num_mpz_t(), scaled.get_den_mpz_t());
  const Rational rest = scaled - Rational(floor), half(1, 2);
  if (rest > half || (rest == half && mpz_odd_p(floor.get_mpz_t()) != 0)) floor += 1;
  Rational rounded(floor, 1000000);
  rounded.canonicalize();
  return rounded;
}

namespace {

std::int64_t exponent_of(mpfr_srcptr part) {
  return mpfr_regular_p(part) != 0 ? mpfr_get_exp(part) : std::numeric_limits<std::int32_t>::min();
}

std::string real_text(mpfr_srcptr part, int digits) {
  std::array<char, 128> text{};
  mpfr_snprintf(text.data(), text.size(), "%.*Rg", digits, part);
  return text.data();
}

}  // namespace

std::int64_t Complex::magnitude() const { return std::max(exponent_of(real()), exponent_of(imaginary())); }

bool Complex::is_real() const {
  return mpfr_zero_p(imaginary()) != 0 ||
         exponent_of(imaginary()) < std::max<std::int64_t>(exponent_of(real()), 0) - 130;
}

std::string Complex::text(int digits) const {
  if (is_real()) return real_text(real(), digits);
  const std::string imaginary_part = real_text(imaginary(), digits) + "i";
  if (exponent_of(real()) < exponent_of(imaginary()) - 130) return imaginary_part;
  return real_text(real(), digits) + (imaginary_part[0] == '-' ? "" : "+") + imaginary_part;
}

std::string Complex::rounded_text() const {
  Rational part;
  mpfr_get_q(part.get_mpq_t(), real());
  std::string out = rounded_to_six(part).get_str();
  if (is_real()) return out;
  mpfr_get_q(part.get_mpq_t(), imaginary());
  return out + " " + rounded_to_six(part).get_str();
}

bool near(const Complex& a, const Complex& b, int bits) {
  Complex difference;
  mpc_sub(difference.get(), a.get(), b.get(), MPC_RNDNN);
  if (difference.is_zero()) return true;
  const std::int64_t scale = std::max(a.magnitude(), b.magnitude());
  return difference.magnitude() <= scale - bits || (a.magnitude() < -180 && b.magnitude() < -180);
}

namespace {

bool same_part_in_six(mpfr_srcptr a, mpfr_srcptr b) {
  if (exponent_of(a) > 4096 || exponent_of(b) > 4096) return mpfr_equal_p(a, b) != 0;
  Rational of_a, of_b;
  mpfr_get_q(of_a.get_mpq_t(), a);
  mpfr_get_q(of_b.get_mpq_t(), b);
  return rounded_to_six(of_a) == rounded_to_six(of_b);
}

}  // namespace

bool same_in_six(const Complex& a, const Complex& b) {
  return same_part_in_six(a.real(), b.real()) && same_part_in_six(a.imaginary(), b.imaginary());
}

}  // namespace magister::math
