// A number is compared with both bounds digit by digit, from the left: there is a rule for each place at which it may
// still equal a bound, and free digits once it is strictly between. Negative numbers are mirrored. Bounds are doubles
// in their shortest digits (integers beyond 2^53 with all digits), because a text that is not larger than these digits
// is read as a double that is not larger. For an excluded bound the next double is used.
#include "engine/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// The value 0.d1 d2 d3 ... times 10^point; no digits: 0.
struct Decimal {
  std::string digits;
  int point = 0;

  // The digit with weight 10^weight.
  int digit(int weight) const {
    const int i = point - 1 - weight;
    return i < 0 || i >= static_cast<int>(digits.size()) ? 0 : digits[static_cast<std::size_t>(i)] - '0';
  }
  // Returns whether all digits of this weight and below are 0.
  bool ends_above(int weight) const { return digits.empty() || point - static_cast<int>(digits.size()) > weight; }
};

Decimal decimal_of(double value) {
  Decimal decimal;
  if (value == 0) return decimal;
  if (value >= 0x1p53 && value < 1e25) {
    decimal.digits = fmt::format("{:.0f}", value);
    decimal.point = static_cast<int>(decimal.digits.size());
  } else {
    std::string shortest;  // the shortest text that is read as the value
    for (int precision = 0; precision <= 17; ++precision) {
      shortest = fmt::format("{:.{}e}", value, precision);
      if (std::strtod(shortest.c_str(), nullptr) == value) break;
    }
    const std::size_t e = shortest.find('e');
    for (const char c : shortest.substr(0, e)) {
      if (c != '.') decimal.digits += c;
    }
    decimal.point = std::stoi(shortest.substr(e + 1)) + 1;
  }
  while (!decimal.digits.empty() && decimal.digits.back() == '0') decimal.digits.pop_back();
  return decimal;
}

class RangeWriter {
 public:
  // least <= most; both may be infinite.
  std::string write(double least, double most) {
    std::string root;
    const auto add = [&](const std::string& sign, double from, double to) {
      for (const std::string& part : {plain(from, to), scientific(from, to)}) {
        if (part.empty()) continue;
        root += fmt::format("{}{}({})", root.empty() ? "" : " | ", sign, part);
      }
    };
    if (least <= 0) add("\"-\" ", std::max(0.0, -most), -least);
    if (most >= 0) add("", std::max(0.0, least), most);
    MAGISTER_ASSERT(!root.empty());
    return fmt::format("root ::= {}\n{}digits ::= [0-9]*\nzeros ::= [0]*\nmore ::= \"\" | \".\" [0-9] digits\n", root,
                       rules_);
  }

 private:
  using Key = std::tuple<int, bool, bool, bool>;  // weight; may still equal low, high; needs a digit

  static std::string digit_class(int first, int last) {
    return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
  }

  // Returns the expression that may follow the digits above this weight, which is that of the first decimal or below.
  std::string tail(int weight, bool low, bool high, bool must) {
    low = low && !low_.ends_above(weight);
    if (!low && !high) return must ? "[0-9] digits" : weight == -1 ? "more" : "digits";
    if (high && high_.ends_above(weight))
      return weight == -1 && !must ? "(\"\" | \".\" \"0\" zeros)" : must ? "\"0\" zeros" : "zeros";
    if (weight == -1 && !must) return fmt::format("({}\".\" {})", low ? "" : "\"\" | ", tail(weight, low, high, true));
    return state({weight, low, high, must});
  }

  // Digits before the point, from this weight down.
  std::string before(int weight, bool low, bool high, bool first) {
    if (weight < 0) return tail(-1, low, high, false);
    if (!low && !high) return fmt::format("[0-9]{{{}}} more", weight + 1);
    return choices(weight, low, high, first && weight > 0 ? 1 : 0,
                   [&](bool l, bool h) { return before(weight - 1, l, h, false); });
  }

  template <typename Next>
  std::string choices(int weight, bool low, bool high, int smallest, const Next& next) {
    const int from = std::max(smallest, low ? low_.digit(weight) : 0), to = high ? high_.digit(weight) : 9;
    std::string all;
    const auto add = [&](int first, int last, bool l, bool h) {
      if (first > last) return;
      all += fmt::format("{}{} {}", all.empty() ? "" : " | ", digit_class(first, last), next(l, h));
    };
    const bool at_low = low && from == low_.digit(weight), at_high = high;
    if (from == to) {
      add(from, to, at_low, at_high);
    } else if (from < to) {
      if (at_low) add(from, from, true, false);
      add(at_low ? from + 1 : from, at_high ? to - 1 : to, false, false);
      if (at_high) add(to, to, false, true);
    }
    MAGISTER_ASSERT(!all.empty());
    return fmt::format("({})", all);
  }

  std::string state(const Key& key) {
    const auto [weight, low, high, must] = key;
    const auto found = names_.find(key);
    if (found != names_.end()) return found->second;
    const std::string name = fmt::format("digit{}", ++num_rules_);
    names_.emplace(key, name);
    std::string body =
        choices(weight, low, high, 0, [&, weight = weight](bool l, bool h) { return tail(weight - 1, l, h, false); });
    if (!must && !low) body = "\"\" | " + body;
    rules_ += fmt::format("{} ::= {}\n", name, body);
    return name;
  }

  void between(Decimal low, Decimal high) {
    low_ = std::move(low);
    high_ = std::move(high);
    names_.clear();
  }

  std::string plain(double from, double to) {
    Decimal low = decimal_of(from), high = to == kNoLimit ? Decimal{} : decimal_of(to);
    cut(low, true);
    cut(high, false);
    const int shortest = std::max(1, low.point), longest = to == kNoLimit ? kPlainDigits + 1 : std::max(1, high.point);
    if (shortest > kPlainDigits) return "";
    if (to != kNoLimit && is_less(high, low)) return "";
    between(low, high);
    std::string all;
    const auto add = [&](const std::string& part) { all += (all.empty() ? "" : " | ") + part; };
    const int last_free = to == kNoLimit ? kPlainDigits : std::min(kPlainDigits, longest - 1);
    add(before(shortest - 1, true, shortest == longest, true));
    if (shortest < last_free) add(fmt::format("[1-9] [0-9]{{{},{}}} more", shortest, last_free - 1));
    if (to == kNoLimit) add(fmt::format("[1-9] [0-9]{{{}}} digits more", kPlainDigits));
    if (shortest < longest && longest <= kPlainDigits) add(before(longest - 1, false, true, true));
    return all;
  }

  // Rounds to kPlainDigits decimals: down, or with `upwards` to the next number with so many decimals.
  static void cut(Decimal& decimal, bool upwards) {
    const int kept = decimal.point + kPlainDigits;
    if (static_cast<int>(decimal.digits.size()) <= std::max(kept, 0)) return;
    decimal.digits.resize(static_cast<std::size_t>(std::max(kept, 0)));
    if (upwards) {
      if (kept <= 0) {
        decimal = {"1", 1 - kPlainDigits};
        return;
      }
      std::size_t i = decimal.digits.size();
      while (i > 0 && decimal.digits[i - 1] == '9') decimal.digits[--i] = '0';
      if (i > 0) {
        ++decimal.digits[i - 1];
      } else {
        decimal.digits.insert(decimal.digits.begin(), '1');
        ++decimal.point;
      }
    }
    while (!decimal.digits.empty() && decimal.digits.back() == '0') decimal.digits.pop_back();
    if (decimal.digits.empty()) decimal.point = 0;
  }

  static bool is_less(const Decimal& a, const Decimal& b) {
    if (a.digits.empty() || b.digits.empty()) return a.digits.empty() && !b.digits.empty();
    return a.point != b.point ? a.point < b.point : a.digits < b.digits;
  }

  // One digit other than 0 before the point, and an exponent. Numbers beyond the range of doubles have no such form.
  std::string scientific(double from, double to) {
    const Decimal high = decimal_of(std::min(to, std::numeric_limits<double>::max()));
    if (high.digits.empty()) return "";
    const Decimal low = decimal_of(from);
    const int to_exponent = high.point - 1, from_exponent = low.point - 1;
    const bool from_zero = low.digits.empty();
    const Decimal low_mantissa{low.digits, 1}, high_mantissa{high.digits, 1};
    std::string all;
    const auto add = [&](const std::string& mantissa, const std::string& exponent) {
      all += fmt::format("{}{} [eE] {}", all.empty() ? "" : " | ", mantissa, exponent);
    };
    const auto exactly = [&](int exponent) { return exponents(exponent, exponent); };
    if (!from_zero && from_exponent == to_exponent) {
      between(low_mantissa, high_mantissa);
      add(mantissa(true, true), exactly(to_exponent));
      return all;
    }
    between(low_mantissa, high_mantissa);
    add(mantissa(false, true), exactly(to_exponent));
    if (!from_zero) add(mantissa(true, false), exactly(from_exponent));
    if (from_zero) {
      add("[1-9] more", exponents({}, to_exponent - 1));
    } else if (from_exponent + 1 < to_exponent) {
      add("[1-9] more", exponents(from_exponent + 1, to_exponent - 1));
    }
    return all;
  }

  std::string mantissa(bool low, bool high) {
    return choices(0, low, high, 1, [&](bool l, bool h) { return tail(-1, l, h, false); });
  }

  // Exponents from `least` (no bound if empty) to `most`, with or without a sign and with leading zeros.
  std::string exponents(std::optional<int> least, int most) {
    std::string all;
    const auto add = [&](const char* sign, const std::string& numbers) {
      all += fmt::format("{}{} zeros {}", all.empty() ? "" : " | ", sign, numbers);
    };
    if (most >= 0) add("(\"\" | \"+\")", whole_numbers(std::max(0, least.value_or(0)), most));
    const int nearest = std::max(1, -most);
    if (!least) {
      add("\"-\"", whole_numbers(nearest, {}));
    } else if (-*least >= nearest) {
      add("\"-\"", whole_numbers(nearest, -*least));
    }
    return fmt::format("({})", all);
  }

  // Integers of at most three digits, as exponents of doubles have: ranges whose digits are free after the first one
  // that differs.
  static std::string whole_numbers(int least, std::optional<int> most) {
    std::string all;
    const auto add = [&](const std::string& part) { all += (all.empty() ? "" : " | ") + part; };
    const int last = most.value_or(999);
    for (int n = least; n <= last;) {
      const int step = n % 100 == 0 && n + 99 <= last && n > 0 ? 100 : n % 10 == 0 && n + 9 <= last && n > 0 ? 10 : 1;
      if (step == 1) {
        int end = n;
        while (end < last && (end + 1) % 10 != 0) ++end;
        add(n < 10 ? digit_class(n, end) : fmt::format("\"{}\" {}", n / 10, digit_class(n % 10, end % 10)));
        n = end + 1;
        continue;
      }
      add(fmt::format("\"{}\" {}", n / step, step == 100 ? "[0-9] [0-9]" : "[0-9]"));
      n += step;
    }
    if (!most) add("[1-9] [0-9] [0-9] [0-9] digits");
    return fmt::format("({})", all);
  }

  Decimal low_, high_;
  std::map<Key, std::string> names_;
  std::string rules_;
  int num_rules_ = 0;
};

}  // namespace

std::string number_range_grammar(std::optional<double> least, std::optional<double> most, bool excludes_least,
                                 bool excludes_most) {
  double from = least.value_or(-kNoLimit), to = most.value_or(kNoLimit);
  if (excludes_least) from = std::nextafter(from, kNoLimit);
  if (excludes_most) to = std::nextafter(to, -kNoLimit);
  if (from > to) throw std::runtime_error("no number lies between the bounds");
  return RangeWriter().write(from, to);
}

}  // namespace magister
