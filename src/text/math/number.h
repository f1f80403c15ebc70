// Numbers of answers: exact fractions (GMP), and complex numbers of 220 bits (more than 60 digits, of which 35 decide).
// Functions are rounded correctly (MPFR, MPC), so a value is the same on every machine.
#pragma once

#include <gmpxx.h>
#include <mpc.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace magister::math {

using Rational = mpq_class;

constexpr mpfr_prec_t kBits = 220;
// Fractions with a longer numerator or denominator are not computed exactly.
constexpr std::size_t kExactBits = 8192;

// "12", "0.250", ".5": digits with at most one point.
Rational rational_of(std::string_view digits);
std::size_t bits(const Rational& number);
bool is_integer(const Rational& number);
// Returns a whole number between -most and most, else nothing.
std::optional<long> small_integer(const Rational& number, long most);
// Rounds half to even at the sixth decimal.
Rational rounded_to_six(const Rational& number);

class Complex {
 public:
  Complex() {
    mpc_init2(value_, kBits);
    mpc_set_ui(value_, 0, MPC_RNDNN);
  }
  explicit Complex(const Rational& real) : Complex() { mpfr_set_q(mpc_realref(value_), real.get_mpq_t(), MPFR_RNDN); }
  Complex(const Complex& other) : Complex() { mpc_set(value_, other.value_, MPC_RNDNN); }
  Complex(Complex&& other) noexcept : Complex() { mpc_swap(value_, other.value_); }
  Complex& operator=(Complex other) noexcept {
    mpc_swap(value_, other.value_);
    return *this;
  }
  ~Complex() { mpc_clear(value_); }

  mpc_ptr get() { return value_; }
  mpc_srcptr get() const { return value_; }
  mpfr_srcptr real() const { return mpc_realref(value_); }
  mpfr_srcptr imaginary() const { return mpc_imagref(value_); }
  mpfr_ptr real() { return mpc_realref(value_); }
  mpfr_ptr imaginary() { return mpc_imagref(value_); }

  bool is_finite() const { return mpfr_number_p(real()) != 0 && mpfr_number_p(imaginary()) != 0; }
  bool is_zero() const { return mpfr_zero_p(real()) != 0 && mpfr_zero_p(imaginary()) != 0; }
  // Binary exponent of the larger part; very small for zero.
  std::int64_t magnitude() const;
  bool is_real() const;
  // The real part with this many significant digits, and the imaginary part if there is one.
  std::string text(int digits) const;
  // Both parts, rounded exactly to six decimals.
  std::string rounded_text() const;

 private:
  mpc_t value_;
};

// Reports whether the two differ by less than 2^-bits of the larger one (or both are smaller than 2^-180).
bool near(const Complex& a, const Complex& b, int bits);
// Reports whether both parts are equal when rounded to six decimals.
bool same_in_six(const Complex& a, const Complex& b);

}  // namespace magister::math
