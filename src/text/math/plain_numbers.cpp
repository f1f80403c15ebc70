// See plain_numbers.h.
#include "text/math/plain_numbers.h"

#include <algorithm>
#include <cctype>

namespace magister::math {
namespace {

bool digit_at(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; }

bool three_digits_at(std::string_view text, std::size_t at) {
  return digit_at(text, at) && digit_at(text, at + 1) && digit_at(text, at + 2) && !digit_at(text, at + 3);
}

std::size_t past_digits(std::string_view text, std::size_t at) {
  while (digit_at(text, at)) ++at;
  return at;
}

// Length of the separator of thousands that the text begins with: a comma, a space, or a form of LaTeX or Unicode; 0:
// none.
std::size_t part_of_thousands(std::string_view text) {
  for (const std::string_view mark : {",\\!", "\\!,", ",", " ", "{,}", "\\,", "\\;", "\u00A0", "\u202F", "\u2009"})
    if (text.starts_with(mark)) return mark.size();
  return 0;
}

// Reads "5" of "1.5e5", "-3" of "2E-3" and moves `at` after it; empty if letters follow.
std::string read_exponent(std::string_view text, std::size_t& at) {
  if (at >= text.size() || (text[at] != 'e' && text[at] != 'E')) return "";
  const bool negative = at + 1 < text.size() && text[at + 1] == '-';
  const bool sign = negative || (at + 1 < text.size() && text[at + 1] == '+');
  const std::size_t begin = at + (sign ? 2 : 1), end = past_digits(text, begin);
  const bool goes_on = end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0;
  if (end == begin || end - begin > 6 || goes_on) return "";
  at = end;
  return (negative ? "-" : "") + std::string(text.substr(begin, end - begin));
}

// Reads one number from `at` on, written with a point and without separators of thousands; moves `at` after it.
bool read_number(std::string_view text, std::size_t& at, std::string& out) {
  std::size_t end = past_digits(text, at);
  std::string digits(text.substr(at, end - at));
  const bool leads = !digits.empty() && digits.size() <= 3 && digits[0] != '0';
  bool grouped = false;
  while (leads && end < text.size()) {
    const std::size_t mark = end + part_of_thousands(text.substr(end));
    if (mark == end || !three_digits_at(text, mark)) break;
    digits += text.substr(mark, 3);
    end = mark + 3;
    grouped = true;
  }
  const bool comma = !grouped && end < text.size() && text[end] == ',' && digit_at(text, end + 1) && !digits.empty();
  if (comma || (end < text.size() && text[end] == '.' && digit_at(text, end + 1))) {
    const std::size_t last = past_digits(text, end + 1);
    digits += "." + std::string(text.substr(end + 1, last - end - 1));
    end = last;
  }
  if (digits.empty()) return false;
  at = end;
  const std::string power = read_exponent(text, at);
  out += power.empty() ? digits : "(" + digits + "\\cdot10^{" + power + "})";
  return true;
}

std::size_t past_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] == ' ') ++at;
  return at;
}

// Reads an arithmetic operator, and writes it as formulas do.
bool read_operator(std::string_view text, std::size_t& at, std::string& out) {
  std::size_t place = past_spaces(text, at);
  if (place >= text.size() || std::string_view("+-*/^\xC3").find(text[place]) == std::string_view::npos) return false;
  for (const auto& [sign, as] :
       {std::pair{"**", "^"}, {"+", "+"}, {"-", "-"}, {"*", "*"}, {"/", "/"}, {"^", "^"}, {"\u00D7", "*"}}) {
    const std::string_view name = sign;
    if (!text.substr(std::min(place, text.size())).starts_with(name)) continue;
    out += as;
    at = past_spaces(text, place + name.size());
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
      if (!first && text[begin] == '0' && digit_at(text, begin + 1)) return true;  // part of a date
    }
    signs += first ? 0 : 1;
    out += part;
    at = place;
  }
}

// Reads \frac{3}{4} of numbers only.
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

// Reports whether a minus is before the money sign at `at`, as in "-$5" and "-\u00A35", and is not part of a range.
bool minus_before_money(std::string_view text, std::size_t at) {
  std::string_view before = text.substr(0, at);
  for (const std::string_view sign : {"$", "\u20AC", "\u00A3", "\u00A5"}) {
    if (!before.ends_with(sign)) continue;
    before.remove_suffix(sign.size());
    if (!before.ends_with('-')) return false;
    before.remove_suffix(1);
    return before.empty() || before.back() == ' ' || before.back() == '\n' || before.back() == ':' ||
           before.back() == '=' || before.back() == '(';
  }
  return false;
}

// Reports whether the text ends with a Chinese, Japanese or Korean character or punctuation: no space separates words
// there.
bool ends_ideograph(std::string_view text) {
  std::size_t lead = text.size();
  while (lead > 0 && text.size() - lead < 4 && (static_cast<unsigned char>(text[lead - 1]) & 0xC0) == 0x80) --lead;
  if (lead == 0 || lead == text.size()) return false;
  const auto first = static_cast<unsigned char>(text[lead - 1]), second = static_cast<unsigned char>(text[lead]);
  return (first >= 0xE3 && first <= 0xED) || (first == 0xEF && second >= 0xBC && second <= 0xBE);
}

bool may_begin(std::string_view text, std::size_t at) {
  if (at == 0) return true;
  const unsigned char before = static_cast<unsigned char>(text[at - 1]);
  if (before == ' ' || before == '\n' || before == '\t' || before == '\r' || before == '$' || before == '=' ||
      before == ':')
    return true;
  return text.substr(0, at).ends_with("\u20AC") || text.substr(0, at).ends_with("\u00A3") ||
         text.substr(0, at).ends_with("\u00A5") || text.substr(0, at).ends_with("\u00A0") ||
         text.substr(0, at).ends_with("**") || text.substr(0, at).ends_with("..") || ends_ideograph(text.substr(0, at));
}

}  // namespace

std::size_t percent_sign(std::string_view text) {
  const std::size_t at = past_spaces(text, 0);
  for (const std::string_view name : {"\\%", "%", "percentage", "percent", "pct"})
    if (text.substr(at).starts_with(name)) return at + name.size();
  return 0;
}

std::vector<Found> plain_numbers(std::string_view text) {
  std::vector<Found> all;
  for (std::size_t at = 0; at < text.size();) {
    if (!digit_at(text, at) && text[at] != '-' && text[at] != '(' && text[at] != '.' && text[at] != '\\') {
      ++at;
      continue;
    }
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
    if (minus_before_money(text, at)) found.formula.insert(0, "-");
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
