// Numbers are decimal as in JSON (RFC 8259): no sign +, no leading zero, no 0x, no _, no .5. Booleans are true and
// false. YAML 1.1 would read 010 as 8, yes as true, 1:30 as 90 and 1_0 as 10, so these are refused.
#include "core/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "magister/core/error.h"
#include "magister/core/utf8.h"

namespace magister {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string shown(std::string_view scalar) { return printable(scalar, 60); }

// -?(0|[1-9][0-9]*)
bool is_decimal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return all_digits(text) && (text.size() == 1 || text[0] != '0');
}

// Matches a number of JSON.
bool is_json_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view power = text.substr(exponent + 1);
    if (power.starts_with('-') || power.starts_with('+')) power.remove_prefix(1);
    if (!all_digits(power)) return false;
    text = text.substr(0, exponent);
  }
  const std::size_t point = text.find('.');
  if (point != std::string_view::npos) {
    if (!all_digits(text.substr(point + 1))) return false;
    text = text.substr(0, point);
  }
  return is_decimal(text) && !text.starts_with('-');
}

std::string strip_zeros(std::string_view digits) {
  const std::size_t first = digits.find_first_not_of('0');
  return first == std::string_view::npos ? std::string("0") : std::string(digits.substr(first));
}

// Explains the refused number and says what was probably meant; empty: no guess.
std::string number_hint(std::string_view scalar) {
  const bool negative = scalar.starts_with('-');
  const std::string_view digits = negative ? scalar.substr(1) : scalar;
  if (scalar.starts_with('+'))
    return fmt::format("{} has a plus sign (readers of YAML disagree on it); remove it", shown(scalar));
  if (all_digits(digits) && digits.size() > 1 && digits[0] == '0') {
    return fmt::format("{} has a leading zero (some readers take it for octal); write {}{}", shown(scalar),
                       negative ? "-" : "", strip_zeros(digits));
  }
  if (digits.size() > 2 && digits[0] == '0' && std::string_view("xXoObB").find(digits[1]) != std::string_view::npos) {
    return fmt::format("{} is not decimal (readers of YAML disagree on other bases); write it in decimal",
                       shown(scalar));
  }
  if (digits.find_first_of("_,' ") != std::string_view::npos && std::any_of(digits.begin(), digits.end(), is_digit) &&
      digits.find_first_not_of("0123456789_,' .") == std::string_view::npos) {
    return fmt::format("{} has marks between its digits (readers of YAML disagree on them); write the digits alone",
                       shown(scalar));
  }
  if (digits.find(':') != std::string_view::npos &&
      digits.find_first_not_of("0123456789:.") == std::string_view::npos) {
    return fmt::format("{} is written in sixties (some readers take 1:30 for 90); write one decimal number",
                       shown(scalar));
  }
  return {};
}

std::string quoted_hint(std::string_view scalar, std::string_view expected) {
  return fmt::format("\"{}\" is a text in quotes (a {} is expected); remove the quotes", shown(scalar), expected);
}

}  // namespace

ScalarResult<std::int64_t> read_integer(std::string_view scalar, bool quoted) {
  if (is_decimal(scalar)) {
    if (quoted) return quoted_hint(scalar, "whole number");
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(scalar.data(), scalar.data() + scalar.size(), value);
    if (error == std::errc()) return value;
    return fmt::format("{} does not fit 64 bits (no count here is that large); write a smaller number", shown(scalar));
  }
  if (std::string hint = number_hint(scalar); !hint.empty()) return hint;
  if (is_json_number(scalar)) {
    return fmt::format("{} is not a whole number (nothing is rounded silently); write digits alone", shown(scalar));
  }
  return fmt::format("\"{}\" is not a whole number (one is expected here); write digits alone", shown(scalar));
}

ScalarResult<double> read_number(std::string_view scalar, bool quoted) {
  if (is_json_number(scalar)) {
    if (quoted) return quoted_hint(scalar, "number");
    double value = 0;
    const auto [end, error] = std::from_chars(scalar.data(), scalar.data() + scalar.size(), value);
    if (error == std::errc() && std::isfinite(value)) return value;
    return fmt::format("{} does not fit a 64-bit number (it would become 0 or infinite); write another", shown(scalar));
  }
  if (std::string hint = number_hint(scalar); !hint.empty()) return hint;
  if (scalar.starts_with('.') || scalar.starts_with("-.")) {
    return fmt::format("{} begins with a point (readers of YAML disagree on it); write a digit before it",
                       shown(scalar));
  }
  return fmt::format("\"{}\" is not a number (one is expected here); write it like 0.5 or 1e-6", shown(scalar));
}

ScalarResult<bool> read_boolean(std::string_view scalar, bool quoted) {
  if (!quoted && scalar == "true") return true;
  if (!quoted && scalar == "false") return false;
  const std::string word = lower(scalar);
  const bool yes = word == "yes" || word == "on" || word == "y" || word == "true" || word == "1";
  const bool no = word == "no" || word == "off" || word == "n" || word == "false" || word == "0";
  if (yes || no) {
    return fmt::format("{} is not a truth value here (readers of YAML disagree on it); write {}",
                       quoted ? "\"" + shown(scalar) + "\"" : shown(scalar), yes ? "true" : "false");
  }
  return fmt::format("\"{}\" is not a truth value (one is expected here); write true or false", shown(scalar));
}

std::string text_surprise(std::string_view scalar, bool quoted) {
  if (quoted) return {};
  static constexpr std::array kWords = {"true", "false", "yes", "no", "on", "off", ".inf", "-.inf", ".nan"};
  const bool word = std::find(kWords.begin(), kWords.end(), lower(scalar)) != kWords.end();
  // A time such as 01:30:00 is a valid text of its key. Any other text that number_hint() knows is a number for other
  // readers.
  if (!word && (scalar.find(':') != std::string_view::npos || number_hint(scalar).empty())) return {};
  return fmt::format("{} as a text (some readers of YAML take it for {}); write it in quotes: '{}'", shown(scalar),
                     word ? "a truth value or a number" : "another number", shown(scalar));
}

std::string yaml_text(std::string_view text) {
  static constexpr std::array kSpecial = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", ".inf", ".nan"};
  const auto plain_character = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/' || c == '.' ||
           c == '-';
  };
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/'; };
  // The first character is a letter, or a point before a letter or path (.deps/models, ../a): no reader takes such a
  // text for a number, a list or a document mark.
  const bool plain_start =
      !text.empty() && (letter(text[0]) || (text.size() > 1 && text[0] == '.' && letter(text[1])) ||
                        text.starts_with("../") || text.starts_with("./"));
  const bool special = std::find(kSpecial.begin(), kSpecial.end(), lower(text)) != kSpecial.end();
  if (plain_start && !special && std::all_of(text.begin(), text.end(), plain_character)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string yaml_number(double value) {
  std::string text = fmt::format("{}", value);
  const std::size_t exponent = text.find('e');
  // YAML 1.1 takes 1e-05 for a text, because it requires the point.
  if (text.find('.') == std::string::npos) text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  return text;
}

}  // namespace magister
