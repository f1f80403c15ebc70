// Splits a template into tokens and resolves white-space control.
// Source: the syntax of Jinja 3.1 with its default delimiters.
#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/text.h"
#include "text/unicode.h"

namespace magister::jinja {
namespace {

// \r\n and \r become \n, and the last line end of the file is dropped.
std::string normalized(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else {
      result += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string text, const std::string& source) : text_(std::move(text)), source_(source) {
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == '\n') lines_.push_back(i + 1);
    }
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) outside();
    add(TokenKind::kEnd, "", text_.size());
    return std::move(tokens_);
  }

 private:
  Place place(std::size_t at) const {
    const auto line = std::upper_bound(lines_.begin(), lines_.end(), at) - 1;
    return {static_cast<int>(line - lines_.begin()) + 1, static_cast<int>(at - *line) + 1};
  }
  template <typename... Args>
  [[noreturn]] void refuse(std::size_t at, fmt::format_string<Args...> format, Args&&... args) const {
    refuse_template(source_, place(at), "{}", fmt::format(format, std::forward<Args>(args)...));
  }
  void add(TokenKind kind, std::string text, std::size_t at) { tokens_.push_back({kind, std::move(text), place(at)}); }
  bool looking_at(std::string_view word, std::size_t at) const {
    return std::string_view(text_).substr(at).starts_with(word);
  }
  char character(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  std::size_t after_spaces(std::size_t at) const {
    while (at < text_.size()) {
      const CodePoint point = code_point_at(text_, at);
      if (!is_python_space(point.value)) break;
      at += point.bytes;
    }
    return at;
  }

  // Adds the data from `begin` up to a tag at `end` whose sign (- + or none) is `sign`.
  void add_data(std::size_t begin, std::size_t end, char sign, bool is_variable) {
    std::string_view data = std::string_view(text_).substr(begin, end - begin);
    if (sign == '-') {
      data = strip(data, nullptr, Side::kRight);
    } else if (sign != '+' && !is_variable) {  // lstrip_blocks
      const std::size_t newline = data.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      const bool starts_line = line > 0 || begin == 0 || text_[begin - 1] == '\n';
      if (starts_line && strip(data.substr(line), nullptr, Side::kLeft).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::kData, std::string(data), begin);
  }

  void outside() {
    const std::size_t begin = at_;
    std::size_t tag = text_.find('{', begin);
    while (tag != std::string::npos && std::string_view("{%#").find(character(tag + 1)) == std::string_view::npos)
      tag = text_.find('{', tag + 1);
    if (tag == std::string::npos || tag + 1 >= text_.size()) {
      add(TokenKind::kData, text_.substr(begin), begin);
      at_ = text_.size();
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = character(tag + 2) == '-' || character(tag + 2) == '+' ? text_[tag + 2] : '\0';
    add_data(begin, tag, sign, kind == '{');
    at_ = tag + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw(tag)) return;
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "", tag);
    inside(tag, kind == '%');
  }

  // Returns the end of a comment, block or raw block at `at`, with its sign and the white space that it removes; npos
  // if there is none.
  std::size_t end_of_tag(std::size_t at, std::string_view end) const {
    if (character(at) == '+' && looking_at(end, at + 1)) return at + 3;
    if (character(at) == '-' && looking_at(end, at + 1)) return after_spaces(at + 3);
    if (looking_at(end, at)) return at + 2 + (character(at + 2) == '\n' ? 1 : 0);  // trim_blocks
    return std::string::npos;
  }

  void comment(std::size_t tag) {
    const std::size_t found = text_.find("#}", at_);
    if (found == std::string::npos) refuse(tag, "a comment without its end");
    const bool with_sign = found > at_ && (text_[found - 1] == '-' || text_[found - 1] == '+');
    at_ = end_of_tag(with_sign ? found - 1 : found, "#}");
  }

  // {% raw %}: everything up to {% endraw %} is data.
  bool raw(std::size_t tag) {
    std::size_t at = after_spaces(at_);
    if (!looking_at("raw", at)) return false;
    at = after_spaces(at + 3);
    const bool strips = looking_at("-%}", at);
    if (!strips && !looking_at("%}", at)) return false;
    const std::size_t begin = strips ? after_spaces(at + 3) : at + 2;
    for (std::size_t end = text_.find("{%", begin); end != std::string::npos; end = text_.find("{%", end + 1)) {
      const char sign = character(end + 2) == '-' || character(end + 2) == '+' ? text_[end + 2] : '\0';
      const std::size_t word = after_spaces(end + 2 + (sign != '\0' ? 1 : 0));
      if (!looking_at("endraw", word)) continue;
      const std::size_t after = end_of_tag(after_spaces(word + 6), "%}");
      if (after == std::string::npos) continue;
      add_data(begin, end, sign, false);
      at_ = after;
      return true;
    }
    refuse(tag, "a raw block without its end");
  }

  void inside(std::size_t tag, bool block) {
    std::string open;  // closing brackets of those that are open
    while (at_ < text_.size()) {
      if (open.empty() && end_tag(block)) return;
      const CodePoint point = code_point_at(text_, at_);
      if (is_python_space(point.value)) {
        at_ += point.bytes;
      } else if (!number() && !name() && !string()) {
        operation(open);
      }
    }
    refuse(tag, "a tag without its end");
  }

  bool end_tag(bool block) {
    std::size_t end = std::string::npos;
    if (block) {
      end = end_of_tag(at_, "%}");
    } else if (looking_at("}}", at_)) {
      end = at_ + 2;
    } else if (looking_at("-}}", at_)) {
      end = after_spaces(at_ + 3);
    }
    if (end == std::string::npos) return false;
    add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "", at_);
    at_ = end;
    return true;
  }

  // Scans digits with single underscores between them from `at`; returns the end.
  std::size_t digits(std::size_t at, bool (*is_one)(char)) const {
    while (is_one(character(at)) ||
           (character(at) == '_' && is_one(character(at + 1)) && at > 0 && is_one(text_[at - 1])))
      ++at;
    return at;
  }

  bool number() {
    if (!is_digit(text_[at_])) return false;
    const std::size_t begin = at_;
    const bool after_dot = begin > 0 && text_[begin - 1] == '.';
    std::size_t end = digits(begin, is_digit), fraction = end;
    if (character(end) == '.' && is_digit(character(end + 1))) fraction = digits(end + 1, is_digit);
    std::size_t exponent = fraction;
    if ((character(fraction) | 0x20) == 'e') {
      const std::size_t sign =
          fraction + 1 + (character(fraction + 1) == '+' || character(fraction + 1) == '-' ? 1 : 0);
      if (is_digit(character(sign))) exponent = digits(sign, is_digit);
    }
    const bool real = exponent > end && !after_dot;
    const char letter = static_cast<char>(character(begin + 1) | 0x20);
    int base = 10;
    if (real) {
      end = exponent;
    } else if (text_[begin] == '0' && (letter == 'x' || letter == 'o' || letter == 'b')) {
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
      end = begin + 2;
      while (std::isxdigit(static_cast<unsigned char>(character(end))) || character(end) == '_') ++end;
    } else if (text_[begin] == '0') {
      end = digits(begin, [](char c) { return c == '0'; });
    }
    std::string text = text_.substr(begin, end - begin);
    std::erase(text, '_');
    if (!real) {
      std::int64_t value = 0;
      const char* first = text.data() + (base == 10 ? 0 : 2);
      const auto [last, error] = std::from_chars(first, text.data() + text.size(), value, base);
      if (error != std::errc{} || last != text.data() + text.size())
        refuse(begin, "not a number, or one that does not fit 64 bits: {}", text);
      text = std::to_string(value);
    }
    add(real ? TokenKind::kFloat : TokenKind::kInteger, std::move(text), begin);
    at_ = end;
    return true;
  }

  bool name() {
    const std::size_t begin = at_;
    if (static_cast<unsigned char>(text_[begin]) >= 0x80) refuse(begin, "a character beyond ASCII in an expression");
    while (is_name_part(character(at_))) ++at_;
    if (at_ == begin) return false;
    add(TokenKind::kName, text_.substr(begin, at_ - begin), begin);
    return true;
  }

  bool string() {
    const char quote = text_[at_];
    if (quote != '\'' && quote != '"') return false;
    const std::size_t begin = at_;
    std::string value;
    for (++at_; character(at_) != quote;) {
      if (at_ >= text_.size()) refuse(begin, "a text without its closing quote");
      if (text_[at_] == '\\') {
        escape(value);
      } else {
        value += text_[at_++];
      }
    }
    ++at_;
    add(TokenKind::kString, std::move(value), begin);
    return true;
  }

  // Reads one escape sequence, as Python does; an unknown one stays as written.
  void escape(std::string& value) {
    const std::size_t begin = at_++;
    const char c = character(at_++);
    static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t known = kFrom.find(c); c != '\0' && known != std::string_view::npos) {
      value += kTo[known];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code_point(value, begin, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      --at_;
      std::size_t count = 1;
      while (count < 3 && character(at_ + count) >= '0' && character(at_ + count) <= '7') ++count;
      append_code_point(value, begin, count, 8);
    } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
      refuse(begin, "this escape in a text is not known here");
    } else if (c != '\n') {
      value += '\\';
      if (begin + 1 < text_.size()) value += c;
      if (begin + 1 >= text_.size()) at_ = text_.size();
    }
  }

  void append_code_point(std::string& value, std::size_t begin, std::size_t count, int base) {
    std::uint32_t code = 0;
    const char* first = text_.data() + std::min(at_, text_.size());
    const char* last = text_.data() + std::min(at_ + count, text_.size());
    const auto [end, error] = std::from_chars(first, last, code, base);
    const bool good =
        error == std::errc{} && end == first + count && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (!good) refuse(begin, "an escape in a text that names no character");
    append_utf8(value, static_cast<char32_t>(code));
    at_ += count;
  }

  void operation(std::string& open) {
    static constexpr std::string_view kTwo[] = {"**", "//", "==", "!=", ">=", "<="};
    std::string found;
    for (const std::string_view two : kTwo) {
      if (looking_at(two, at_)) found = two;
    }
    const char c = text_[at_];
    if (found.empty() && std::string_view("+-/*%~[](){}><=.:|,;").find(c) != std::string_view::npos)
      found = std::string(1, c);
    if (found.empty()) refuse(at_, "unexpected character '{}'", c);
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) refuse(at_, "unexpected '{}'", c);
      open.pop_back();
    }
    add(TokenKind::kOperator, found, at_);
    at_ += found.size();
  }

  std::string text_;
  const std::string& source_;
  std::vector<std::size_t> lines_{0};
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Token> tokenize(std::string_view template_text, const std::string& source) {
  return Lexer(normalized(template_text), source).run();
}
}  // namespace magister::jinja
