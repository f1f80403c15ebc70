// + - * / // % ** on numbers, texts, lists and tuples.
#include <bit>
#include <cmath>
#include <cstdint>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

[[noreturn]] void overflow(Runtime& runtime) { runtime.refuse("a whole number beyond 64 bits"); }

std::int64_t power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) overflow(runtime);
  }
  return result;
}

// a / b, rounded once as Python rounds it: beyond 2^53 the two numbers as doubles would be rounded first.
double true_quotient(std::int64_t a, std::int64_t b) {
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
  const std::uint64_t above = a < 0 ? 0 - static_cast<std::uint64_t>(a) : static_cast<std::uint64_t>(a),
                      below = b < 0 ? 0 - static_cast<std::uint64_t>(b) : static_cast<std::uint64_t>(b);
  if (above == 0 || (above <= kExact && below <= kExact)) return static_cast<double>(a) / static_cast<double>(b);
  // At least 64 bits of the quotient, the last of which is set if anything is left, so that a tie is none.
  const int shift = 64 + std::countl_zero(above);
  const unsigned __int128 shifted = static_cast<unsigned __int128>(above) << shift;
  const unsigned __int128 quotient = (shifted / below) | static_cast<unsigned>(shifted % below != 0);
  const double result = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) != (b < 0) ? -result : result;
}

Value integers(Runtime& runtime, std::string_view operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool over = false;
  if (operation == "+") {
    over = __builtin_add_overflow(a, b, &result);
  } else if (operation == "-") {
    over = __builtin_sub_overflow(a, b, &result);
  } else if (operation == "*") {
    over = __builtin_mul_overflow(a, b, &result);
  } else if (operation == "**") {
    if (b < 0) {
      if (a == 0) runtime.refuse("0 to a negative power");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    result = power(runtime, a, b);
  } else {
    if (b == 0) runtime.refuse("division by zero");
    if (operation == "/") return Value::real(true_quotient(a, b));
    if (b == -1) {  // the only division that can leave 64 bits
      if (operation == "%") return Value::integer(0);
      over = __builtin_sub_overflow(std::int64_t{0}, a, &result);
    } else {  // Python rounds towards minus infinity, and the remainder has the divisor's sign
      const bool adjust = a % b != 0 && (a < 0) != (b < 0);
      result = operation == "//" ? a / b - (adjust ? 1 : 0) : a % b + (adjust ? b : 0);
    }
  }
  if (over) overflow(runtime);
  return Value::integer(result);
}

Value reals(Runtime& runtime, std::string_view operation, double a, double b) {
  if (operation == "+") return Value::real(a + b);
  if (operation == "-") return Value::real(a - b);
  if (operation == "*") return Value::real(a * b);
  if (operation == "**") {
    if ((a == 0 && b < 0) || (a < 0 && b != std::floor(b))) runtime.refuse("a power that is not a real number");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) runtime.refuse("a power beyond the largest float");
    return Value::real(result);
  }
  if (b == 0) runtime.refuse("division by zero");
  if (operation == "/") return Value::real(a / b);
  double rest = std::fmod(a, b);
  if (operation == "%") {
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    return Value::real(rest == 0 ? std::copysign(0.0, b) : rest);
  }
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  return Value::real(quotient == 0 ? std::copysign(0.0, a / b)
                                   : std::floor(quotient + (quotient - std::floor(quotient) > 0.5 ? 1 : 0)));
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  if (value.is(Kind::kString)) {
    const std::string& text = value.as_text();
    if (!text.empty() && static_cast<std::uint64_t>(times) > runtime.options().max_bytes / text.size()) {
      runtime.refuse("a text repeated {} times is longer than the {} bytes that are allowed", times,
                     runtime.options().max_bytes);
    }
    std::string result;
    if (!text.empty()) {
      for (std::int64_t i = 0; i < times; ++i) result += text;
    }
    return runtime.text(std::move(result));
  }
  const Values& part = value.object<Sequence>().items;
  Values items;
  if (!part.empty()) {
    if (static_cast<std::uint64_t>(times) > runtime.options().max_steps / part.size())
      runtime.refuse("a list repeated {} times", times);
    runtime.charge(static_cast<std::uint64_t>(times) * part.size());
    for (std::int64_t i = 0; i < times; ++i) items.insert(items.end(), part.begin(), part.end());
  }
  return value.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

bool can_repeat(const Value& value) {
  return value.is(Kind::kString) || value.is(Kind::kList) || value.is(Kind::kTuple);
}

Value joined(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::kString)) {
    if (a.is_markup() || b.is_markup()) {
      std::string text = (a.is_markup() ? a.as_text() : escape_html(a.as_text())) +
                         (b.is_markup() ? b.as_text() : escape_html(b.as_text()));
      runtime.charge_text(text.size());
      return Value::markup(std::move(text));
    }
    runtime.charge_text(a.as_text().size() + b.as_text().size());
    return Value::text(a.as_text() + b.as_text());
  }
  Values items = a.object<Sequence>().items;
  const Values& more = b.object<Sequence>().items;
  items.insert(items.end(), more.begin(), more.end());
  return a.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

}  // namespace

Value arithmetic(Runtime& runtime, std::string_view operation, const Value& a, const Value& b) {
  need_defined(runtime, a);
  if (operation == "%" && a.is(Kind::kString)) return runtime.text(percent_format(runtime, a.as_text(), b));
  need_defined(runtime, b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integers(runtime, operation, a.as_integer(), b.as_integer());
    return reals(runtime, operation, a.as_real(), b.as_real());
  }
  if (operation == "+" && a.kind() == b.kind() && can_repeat(a)) return joined(runtime, a, b);
  if (operation == "*" && can_repeat(a) && b.is_integral()) return repeat(runtime, a, b.as_integer());
  if (operation == "*" && can_repeat(b) && a.is_integral()) return repeat(runtime, b, a.as_integer());
  runtime.refuse("{} {} {} is not possible", type_name(a), operation, type_name(b));
}

Value negate(Runtime& runtime, const Value& value, bool minus) {
  need_defined(runtime, value);
  if (value.is(Kind::kFloat)) return Value::real(minus ? -value.as_real() : value.as_real());
  if (!value.is_integral()) runtime.refuse("{} has no sign", type_name(value));
  return minus ? integers(runtime, "-", 0, value.as_integer()) : Value::integer(value.as_integer());
}
}  // namespace magister::jinja
