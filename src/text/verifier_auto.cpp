// See verifier_auto.h. A unit is a symbol, a word of three letters or more that means no number or operation, or one of
// a few short words.
#include "text/verifier_auto.h"

#include <algorithm>
#include <array>
#include <utility>

namespace magister {
namespace {

using namespace std::string_view_literals;

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

template <std::size_t kSize>
bool is_in(const std::array<std::string_view, kSize>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Units of one letter count only after a space: "5m" may be a product.
bool is_unit(std::string_view word, bool space_before) {
  static constexpr std::array kShort = {"cm"sv, "mm"sv, "km"sv, "kg"sv, "mg"sv, "ml"sv, "mL"sv, "ft"sv, "in"sv, "lb"sv,
                                        "oz"sv, "hr"sv, "yd"sv, "mi"sv, "Hz"sv, "ms"sv, "kW"sv, "am"sv, "pm"sv};
  static constexpr std::array kJoined = {"lbs"sv, "mph"sv, "min"sv, "sec"sv, "hrs"sv, "kWh"sv};
  static constexpr std::array kBehindSpace = {"m"sv, "g"sv, "s"sv, "h"sv, "L"sv, "of"sv, "a"sv, "an"sv, "per"sv};
  static constexpr std::array kNumbers = {
      "and"sv,      "choose"sv, "cos"sv,     "cot"sv,     "csc"sv,      "divided"sv, "exp"sv,      "factorial"sv,
      "from"sv,     "plus"sv,   "minus"sv,   "mod"sv,     "modulo"sv,   "over"sv,    "power"sv,    "root"sv,
      "sin"sv,      "sqrt"sv,   "squared"sv, "cubed"sv,   "tan"sv,      "times"sv,   "log"sv,      "less"sv,
      "more"sv,     "than"sv,   "dozen"sv,   "hundred"sv, "thousand"sv, "million"sv, "billion"sv,  "trillion"sv,
      "infinity"sv, "half"sv,   "halves"sv,  "third"sv,   "thirds"sv,   "quarter"sv, "quarters"sv, "fourth"sv,
      "fourths"sv,  "fifth"sv,  "fifths"sv,  "sixth"sv,   "sixths"sv,   "eighth"sv,  "eighths"sv,  "tenth"sv,
      "tenths"sv,   "one"sv,    "two"sv,     "three"sv,   "four"sv,     "five"sv,    "six"sv,      "seven"sv,
      "eight"sv,    "nine"sv,   "ten"sv,     "alpha"sv,   "beta"sv,     "gamma"sv,   "theta"sv,    "lambda"sv,
      "phi"sv,      "omega"sv};
  if (is_in(kShort, word)) return true;
  if (!space_before) return is_in(kJoined, word);
  return is_in(kBehindSpace, word) || (word.size() >= 3 && !is_in(kNumbers, word));
}

}  // namespace

std::string plain_signs(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, char>, 10> kPlain = {{{"\u2212", '-'},
                                                                                {"\u2010", '-'},
                                                                                {"\u2011", '-'},
                                                                                {"\u2012", '-'},
                                                                                {"\u2013", '-'},
                                                                                {"\uFE63", '-'},
                                                                                {"\uFF0D", '-'},
                                                                                {"\u20AC", '$'},
                                                                                {"\u00A3", '$'},
                                                                                {"\u00A5", '$'}}};
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto sign = std::find_if(kPlain.begin(), kPlain.end(), [&](const auto& one) {
      return static_cast<unsigned char>(text[at]) >= 0x80 && text.substr(at).starts_with(one.first);
    });
    out += sign == kPlain.end() ? text[at] : sign->second;
    at += sign == kPlain.end() ? 1 : sign->first.size();
  }
  return out;
}

namespace {

// Returns how many digits the text ends with, if they are at most three and begin a number or form a group of
// thousands; else 0.
std::size_t digits_before(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && is_ascii_digit(text[begin - 1])) --begin;
  const std::size_t count = text.size() - begin;
  const bool in_group = begin > 0 && text[begin - 1] == ',';
  const bool is_fraction = begin > 0 && text[begin - 1] == '.';
  const bool leads = count > 0 && text[begin] != '0';
  return count > 3 || is_fraction || (in_group ? count < 3 : !leads) ? 0 : count;
}

bool three_digits_begin(std::string_view text) {
  return text.size() >= 3 && std::all_of(text.begin(), text.begin() + 3, is_ascii_digit) &&
         (text.size() == 3 || !is_ascii_digit(text[3]));
}

// Returns the first of `words` that the text begins with; empty: none.
template <std::size_t kSize>
std::string_view begins_with(const std::array<std::string_view, kSize>& words, std::string_view text) {
  const auto found =
      std::find_if(words.begin(), words.end(), [&](std::string_view one) { return text.starts_with(one); });
  return found == words.end() ? std::string_view() : *found;
}

}  // namespace

std::string plain_separators(std::string_view text) {
  static constexpr std::array kSeparators = {"{,}\\!"sv, "{,}"sv, ",\\!"sv, "\\!,\\!"sv, "\\!,"sv,   "\\,"sv,   "\\;"sv,
                                             "\\:"sv,    "\\ "sv, "~"sv,    "\u00A0"sv,  "\u2009"sv, "\u202F"sv};
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view separator =
        !out.empty() && is_ascii_digit(out.back()) ? begins_with(kSeparators, text.substr(at)) : std::string_view();
    const bool parts =
        !separator.empty() && three_digits_begin(text.substr(at + separator.size())) && digits_before(out) > 0;
    out += parts ? ',' : text[at];
    at += parts ? separator.size() : 1;
  }
  return out;
}

std::string plain_spaces(std::string_view text) {
  static constexpr std::array kSpaces = {"\\quad"sv, "\\,"sv,    "\\;"sv,    "\\:"sv,   "\\ "sv,
                                         "~"sv,      "\u00A0"sv, "\u2009"sv, "\u202F"sv};
  static constexpr std::array kUpright = {"\\text{"sv, "\\mathrm{"sv, "\\textbf{"sv, "\\mathbf{"sv, "\\mbox{"sv};
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at), space = begins_with(kSpaces, rest),
                           mark = begins_with(kUpright, rest);
    const std::size_t end = mark.empty() ? std::string_view::npos : rest.find_first_of("{}", mark.size());
    const bool is_word = end != std::string_view::npos && rest[end] == '}' && rest[mark.size()] != ' ';
    if (!space.empty()) {
      out += ' ';
      at += space.size();
    } else if (is_word) {
      out.append(" ").append(rest.substr(mark.size(), end - mark.size()));
      at += end + 1;
    } else {
      out += text[at++];
    }
  }
  return out;
}

bool joins(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end > 0 && (text[end - 1] == '%' || text[end - 1] == '$')) --end;
  return end > 0 && (is_ascii_digit(text[end - 1]) || (end == at && is_ascii_letter(text[end - 1])));
}

std::string_view without_unit(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("-$0123456789.,/"), text.size());
  const std::string_view number = text.substr(0, end);
  if (number.find_first_of("0123456789") == std::string_view::npos) return text;
  std::string_view rest = text.substr(end);
  while (!rest.empty() && (rest.back() == '.' || rest.back() == '!')) rest.remove_suffix(1);
  bool space_before = false;
  while (!rest.empty()) {
    const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
    const std::size_t size =
        static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_ascii_letter) - rest.begin());
    if (size > 0) {
      if (!is_unit(rest.substr(0, size), space_before)) return text;
      rest.remove_prefix(size);
      space_before = rest.starts_with('/');  // "km/h"
      if (space_before) rest.remove_prefix(1);
      if (space_before && (rest.empty() || !is_ascii_letter(rest[0]))) return text;
    } else if (is_space(rest[0]) || rest[0] == '%' || rest[0] == '$') {
      space_before = true;
      rest.remove_prefix(1);
    } else if (rest.starts_with("\u00B0")) {
      rest.remove_prefix(2);
      if (rest.starts_with('C') || rest.starts_with('F')) rest.remove_prefix(1);
      space_before = false;
    } else {
      return text;
    }
  }
  return number;
}

}  // namespace magister
