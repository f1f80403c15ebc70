// See plain_numbers.h.
#include "text/math/plain_numbers.h"

#include <algorithm>

namespace magister::math {
namespace {

bool digit_at(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; }

bool three_digits_at(std::string_view text, std::size_t at) {
  return digit_at(text, at) && digit_at(text, at + 1) && digit_at(text, at + 2) && !digit_at(text, at + 3);
}

std::size_t behind_digits(std::string_view text, std::size_t at) {
  while (digit_at(text, at)) ++at;
  return at;
}

// One number from `at` on, written with a point and without thousands; moves `at` behind it.
bool read_number(std::string_view text, std::size_t& at, std::string& out) {
  std::size_t end = behind_digits(text, at);
  std::string digits(text.substr(at, end - at));
  const bool leads = !digits.empty() && digits.size() <= 3 && digits[0] != '0';
  bool grouped = false;
  while (leads && end < text.size() && (text[end] == ',' || text[end] == ' ') && three_digits_at(text, end + 1)) {
    digits += text.substr(end + 1, 3);
    end += 4;
    grouped = true;
  }
  const bool comma = !grouped && end < text.size() && text[end] == ',' && digit_at(text, end + 1) && !digits.empty();
  if (comma || (end < text.size() && text[end] == '.' && digit_at(text, end + 1))) {
    const std::size_t last = behind_digits(text, end + 1);
    digits += "." + std::string(text.substr(end + 1, last - end - 1));
    end = last;
  }
  if (digits.empty()) return false;
  out += digits;
  at = end;
  return true;
}

std::size_t behind_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] == ' ') ++at;
  return at;
}

// A sign of arithmetic, as formulas have it.
bool read_operator(std::string_view text, std::size_t& at, std::string& out) {
  std::size_t place = behind_spaces(text, at);
  for (const auto& [sign, as] :
       {std::pair{"**", "^"}, {"+", "+"}, {"-", "-"}, {"*", "*"}, {"/", "/"}, {"^", "^"}, {"\u00D7", "*"}}) {
    const std::string_view name = sign;
    if (!text.substr(std::min(place, text.size())).starts_with(name)) continue;
    out += as;
    at = behind_spaces(text, place + name.size());
    return true;
  }
  return false;
}

bool read_arithmetic(std::string_view text, std::size_t& at, std::string& out, int& signs, bool inside) {
  for (bool first = true;; first = false) {
    std::size_t place = at;
    std::string part;
    if (!first && !read_operator(text, place, part)) return true;
    const bool negative = place < text.size() && text[place] == '-';
    if (negative) {
      part += '-';
      ++place;
    }
    if (place < text.size() && text[place] == '(' && !inside) {
      std::string group;
      std::size_t end = place + 1;
      int inner = 0;
      if (!read_arithmetic(text, end, group, inner, true) || inner == 0 || end >= text.size() || text[end] != ')')
        return !first;
      part += "(" + group + ")";
      place = end + 1;
    } else {
      const std::size_t begin = place;
      if (!read_number(text, place, part)) return !first;
      if (!first && text[begin] == '0' && digit_at(text, begin + 1)) return true;  // a date's
    }
    signs += first ? 0 : 1;
    out += part;
    at = place;
  }
}

// \frac{3}{4} of numbers alone.
bool read_fraction(std::string_view text, std::size_t& at, std::string& out) {
  std::size_t place = at + 1;
  if (place < text.size() && (text[place] == 'd' || text[place] == 't')) ++place;
  if (!text.substr(std::min(place, text.size())).starts_with("frac{")) return false;
  place += 4;
  out += "\\frac";
  for (int part = 0; part < 2; ++part) {
    if (place >= text.size() || text[place] != '{') return false;
    ++place;
    out += '{';
    if (place < text.size() && text[place] == '-') {
      out += '-';
      ++place;
    }
    if (!read_number(text, place, out) || place >= text.size() || text[place] != '}') return false;
    ++place;
    out += '}';
  }
  at = place;
  return true;
}

bool may_begin(std::string_view text, std::size_t at) {
  if (at == 0) return true;
  const unsigned char before = static_cast<unsigned char>(text[at - 1]);
  if (before == ' ' || before == '\n' || before == '\t' || before == '\r' || before == '$' || before == '=' ||
      before == ':')
    return true;
  return text.substr(0, at).ends_with("\u20AC") || text.substr(0, at).ends_with("\u00A3") ||
         text.substr(0, at).ends_with("\u00A0") || text.substr(0, at).ends_with("**");
}

}  // namespace

std::size_t percent_sign(std::string_view text) {
  const std::size_t at = behind_spaces(text, 0);
  for (const std::string_view name : {"\\%", "%", "percentage", "percent", "pct"})
    if (text.substr(at).starts_with(name)) return at + name.size();
  return 0;
}

std::vector<Found> plain_numbers(std::string_view text) {
  std::vector<Found> all;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    Found found{at, at, ""};
    int signs = 0;
    const bool fraction = text[at] == '\\' && read_fraction(text, end, found.formula);
    if (fraction && at > 0 && text[at - 1] == '-') found.formula.insert(0, "-");
    if (!fraction && (!may_begin(text, at) || !read_arithmetic(text, end, found.formula, signs, false) ||
                      (text[at] == '(' && signs == 0 && end == at))) {
      ++at;
      continue;
    }
    if (end == at) {
      ++at;
      continue;
    }
    if (const std::size_t percent = percent_sign(text.substr(end)); percent > 0) {
      found.formula = "(" + found.formula + ")\\%";
      end += percent;
    }
    found.end = end;
    all.push_back(std::move(found));
    at = end;
  }
  return all;
}

}  // namespace magister::math
