// See math_answer.h. Every function is linear in its text, apart from replacements, which are linear each.
#include "text/math_answer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace magister {
namespace {

constexpr auto kNone = std::string_view::npos;

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(what, at);
    out += text.substr(at, found - at);
    if (found == kNone) return out;
    out += by;
    at = found + what.size();
  }
}

std::vector<std::string_view> split(std::string_view text, std::string_view by) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(by, at);
    parts.push_back(text.substr(at, found - at));
    if (found == kNone) return parts;
    at = found + by.size();
  }
}

// The first code point, unchanged; empty if the text is empty. A byte that begins no code point counts as one.
std::string_view first_sign(std::string_view text) {
  if (text.empty()) return text;
  std::size_t size = 1;
  while (size < text.size() && size < 4 && (static_cast<unsigned char>(text[0]) & 0xC0) == 0xC0 &&
         (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
    ++size;
  return text.substr(0, size);
}

// Counts up to `most` + 1.
std::size_t count_signs(std::string_view text, std::size_t most) {
  std::size_t count = 0;
  for (; !text.empty() && count <= most; ++count) text.remove_prefix(first_sign(text).size());
  return count;
}

char32_t value_of(std::string_view sign) {
  const auto first = static_cast<unsigned char>(sign[0]);
  const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return size == sign.size() ? code_point_at(sign, 0).value : U'\uFFFD';
}

// Python's str.isspace: White_Space and the four separators of ASCII.
bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); }

// Reports whether Python's int() accepts the text: digits of any script with single underscores between them, a sign,
// whitespace around; at most 4,300 digits.
bool is_python_int(std::string_view text) {
  text = stripped(text);
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  std::size_t digits = 0;
  bool after_digit = false;
  while (!text.empty()) {
    const std::string_view sign = first_sign(text);
    text.remove_prefix(sign.size());
    if (sign == "_") {
      if (!after_digit) return false;
      after_digit = false;
    } else if ((char_class(value_of(sign)) & kDigit) != 0) {
      after_digit = true;
      ++digits;
    } else {
      return false;
    }
  }
  return after_digit && digits <= 4300;
}

// Reports whether Python would write the number like this: no sign but -, no leading zero, no -0.
bool is_written_int(std::string_view text) {
  if (text == "0") return true;
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return !text.empty() && text[0] != '0' && text.find_first_not_of("0123456789") == kNone;
}

// fix_sqrt: \sqrt3 -> \sqrt{3}.
std::optional<std::string> braced_roots(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, "\\sqrt");
  std::string out(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) return std::nullopt;
    const std::string_view sign = first_sign(parts[i]);
    if (sign == "{") {
      out.append("\\sqrt").append(parts[i]);
    } else {
      out.append("\\sqrt{").append(sign).append("}").append(parts[i].substr(sign.size()));
    }
  }
  return out;
}

// fix_fracs: \frac12 -> \frac{1}{2}, \frac1{72} -> \frac{1}{72}.
std::optional<std::string> braced_fractions(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, "\\frac");
  std::string out(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) return std::nullopt;
    out += "\\frac";
    if (parts[i][0] == '{') {
      out += parts[i];
      continue;
    }
    const std::string_view a = first_sign(parts[i]), rest = parts[i].substr(a.size());
    if (rest.empty()) return std::string(text);
    const std::string_view b = first_sign(rest), after = rest.substr(b.size());
    out.append("{").append(a).append("}");
    if (b == "{") {
      out.append(rest);
    } else {
      out.append("{").append(b).append("}").append(after);
    }
  }
  return out;
}

// fix_a_slash_b: 1/2 -> \frac{1}{2}.
std::optional<std::string> slash_as_fraction(std::string text) {
  const std::vector<std::string_view> parts = split(text, "/");
  if (parts.size() != 2) return text;
  if (!is_python_int(parts[0]) || !is_python_int(parts[1])) return std::nullopt;
  if (!is_written_int(parts[0]) || !is_written_int(parts[1])) return text;
  return "\\frac{" + std::string(parts[0]) + "}{" + std::string(parts[1]) + "}";
}

bool is_number_sign(char c) { return c == '$' || c == '.' || c == ',' || (c >= '0' && c <= '9'); }

}  // namespace

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_python_space(value_of(first_sign(text)))) text.remove_prefix(first_sign(text).size());
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    const std::string_view last = text.substr(at);
    if (first_sign(last).size() != last.size() || !is_python_space(value_of(last))) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::optional<std::string> last_boxed(std::string_view text) {
  constexpr std::string_view kBoxed = "\\boxed", kSpaced = "\\boxed ", kFramed = "\\fbox";
  if (const std::size_t spaced = text.rfind(kSpaced); spaced != kNone) {
    const std::string_view content = text.substr(spaced + kSpaced.size());
    return std::string(content.substr(0, content.find('$')));
  }
  std::size_t begin = text.rfind(kBoxed);
  std::string_view name = kBoxed;
  if (begin == kNone) {
    begin = text.rfind(kFramed);
    name = kFramed;
  }
  if (begin == kNone) return std::nullopt;
  const std::size_t open = begin + name.size();
  if (open >= text.size() || text[open] != '{') return std::nullopt;
  std::int64_t depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
    if (depth == 0) return std::string(text.substr(open + 1, at - open - 1));
  }
  return std::nullopt;
}

std::string between_dollars(std::string_view text) {
  const std::size_t first = text.find('$'), last = text.rfind('$');
  return std::string(first == last ? text : text.substr(first + 1, last - first - 1));
}

std::optional<std::string> strip_latex(std::string_view text) {
  // The order matters: each replacement sees the result of the previous ones.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kFirst = {{{"\n", ""},
                                                                                            {"\\!", ""},
                                                                                            {"\\\\", "\\"},
                                                                                            {"tfrac", "frac"},
                                                                                            {"dfrac", "frac"},
                                                                                            {"\\left", ""},
                                                                                            {"\\right", ""},
                                                                                            {"^{\\circ}", ""},
                                                                                            {"^\\circ", ""},
                                                                                            {"\\$", ""}}};
  std::string out(text);
  for (const auto& [what, by] : kFirst) out = replaced(out, what, by);
  // "\text{ " begins a unit.
  const std::vector<std::string_view> units = split(out, "\\text{ ");
  if (units.size() > 2) return std::nullopt;
  out = std::string(units[0]);
  out = replaced(replaced(replaced(out, "\\%", ""), " .", " 0."), "{.", "{0.");
  if (out.empty()) return out;
  if (out[0] == '.') out.insert(0, "0");
  // "k = 5" is 5.
  if (const auto sides = split(out, "="); sides.size() == 2 && count_signs(sides[0], 2) <= 2)
    out = std::string(sides[1]);
  const std::optional<std::string> roots = braced_roots(out);
  if (!roots) return std::nullopt;
  std::optional<std::string> fractions = braced_fractions(replaced(*roots, " ", ""));
  if (!fractions) return std::nullopt;
  if (*fractions == "0.5") return "\\frac{1}{2}";
  return slash_as_fraction(std::move(*fractions));
}

bool same_latex(std::string_view one, std::string_view other) {
  const std::optional<std::string> a = strip_latex(one), b = strip_latex(other);
  return a && b ? *a == *b : one == other;
}

std::optional<std::string> marked_number(std::string_view text) {
  constexpr std::string_view kMark = "#### ";
  for (std::size_t at = text.find(kMark); at != kNone; at = text.find(kMark, at + 1)) {
    const std::size_t begin = at + kMark.size();
    const std::size_t digits = begin + (begin < text.size() && text[begin] == '-' ? 1 : 0);
    const std::size_t end = std::min(text.find_first_not_of("0123456789.,", digits), text.size());
    if (end > digits) return std::string(text.substr(begin, end - begin));
  }
  return std::nullopt;
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string_view> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t digits = at + (text[at] == '-' ? 1 : 0);
    std::size_t end = digits;
    while (end < text.size() && is_number_sign(text[end])) ++end;
    // At least two characters of a number, or a single digit.
    const bool number = end - digits >= 2 || (end - digits == 1 && text[digits] >= '0' && text[digits] <= '9');
    if (number) found = text.substr(at, end - at);
    at = number ? end : std::max(end, at + 1);
  }
  return found ? std::optional<std::string>(*found) : std::nullopt;
}

std::string plain_number(std::string_view text) {
  std::string out = replaced(replaced(text, ",", ""), "$", "");
  if (const std::size_t mark = out.rfind("#### "); mark != std::string::npos) out.erase(0, mark + 5);
  // Python's $ also matches before a newline at the end.
  const std::size_t end = out.size() - (!out.empty() && out.back() == '\n' ? 1 : 0);
  if (end > 0 && out[end - 1] == '.') out.erase(end - 1, 1);
  return out;
}

}  // namespace magister
