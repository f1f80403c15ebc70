// See lexer.h. One pass replaces characters beyond ASCII; the next reads tokens and joins the digits of thousands.
#include "text/math/lexer.h"

#include <algorithm>
#include <cctype>

#include "text/math/lexer_tables.h"

namespace magister::math {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

template <typename Words>
bool is_one_of(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string with_plain_signs(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto* sign = kPlainSigns.end();
    if (static_cast<unsigned char>(text[at]) >= 0xC2)
      sign = std::find_if(kPlainSigns.begin(), kPlainSigns.end(),
                          [&](const Pair& one) { return one.first[0] == text[at] && rest.starts_with(one.first); });
    if (sign == kPlainSigns.end()) {
      out += text[at++];
    } else {
      out += sign->second;
      at += sign->first.size();
    }
  }
  return out;
}

// Undoes an escape too many: "\\\\frac" for "\\frac". In a text with environments "\\\\" ends a row and stays.
std::string with_single_backslashes(std::string text) {
  if (text.find("\\begin") != std::string::npos) return text;
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    bool twice = text.compare(at, 2, "\\\\") == 0 && (at == 0 || text[at - 1] != '\\');
    twice = twice && at + 3 < text.size() && is_letter(text[at + 2]) && is_letter(text[at + 3]);
    if (!twice) out += text[at];
  }
  return out;
}

// Length of a separator of thousands at the start of the text; 0: none.
std::size_t thousands_mark(std::string_view text) {
  for (const std::string_view mark : {"{,}", " {, }", "{, }", ",\\! ", "\\! ,", "\\,", "\\;", "\\ ", "~", " ", "'",
                                      "\\!,\\!", ",\\!", "\\!,", "\\!", "{{,}}"})
    if (text.starts_with(mark)) return mark.size();
  return 0;
}

bool three_digits(std::string_view text) {
  return text.size() >= 3 && is_digit(text[0]) && is_digit(text[1]) && is_digit(text[2]) &&
         (text.size() == 3 || !is_digit(text[3]));
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}
  Tokens read();

 private:
  std::string_view rest(std::size_t from = 0) const {
    return std::string_view(text_).substr(std::min(at_ + from, text_.size()));
  }
  void add(TokenType type, std::string text) {
    out_.all.push_back({type, std::move(text), space_});
    space_ = false;
  }
  void too_long(const char* why) {
    out_.fault = why;
    out_.too_long = true;
  }
  void number();
  void multiply_by_power(std::string& digits);
  bool repeating(const std::string& digits);
  void command();
  void word();
  void sign();
  void words(std::string content);
  bool braces(std::string& content);
  bool commas_part_thousands(std::size_t digits) const;
  bool ends_value(std::size_t at) const;

  std::string text_;
  std::size_t at_ = 0;
  std::int64_t depth_ = 0;
  bool space_ = false;
  Tokens out_;
};

// Reports whether a number such as "1,234,567" begins here, of which `digits` digits were read.
bool Lexer::commas_part_thousands(std::size_t digits) const {
  if (depth_ > 0 || digits > 3 || text_[at_] == '0' || (at_ > 0 && text_[at_ - 1] == ',')) return false;
  std::size_t at = digits, groups = 0;
  for (; rest(at).starts_with(',') && three_digits(rest(at + 1)); at += 4) ++groups;
  return groups > 0 && !(rest(at).starts_with(',') && rest(at).size() > 1 && is_digit(rest(at)[1]));
}

void Lexer::number() {
  std::string digits;
  std::size_t count = 0;
  while (count < rest().size() && is_digit(rest()[count])) ++count;
  const bool commas = count > 0 && commas_part_thousands(count);
  const bool lone_zero = count == 1 && text_[at_] == '0' && depth_ == 0;
  bool grouped = false;
  digits = rest().substr(0, count);
  const std::size_t first = count;
  at_ += count;
  while (first > 0 && first <= 3 && digits[0] != '0') {
    const std::size_t mark = commas && rest().starts_with(',') ? 1 : thousands_mark(rest());
    if (mark == 0 || !three_digits(rest(mark))) break;
    digits += rest(mark).substr(0, 3);
    at_ += mark + 3;
    grouped = true;
  }
  if (lone_zero && !grouped && rest().size() > 1 && rest()[0] == ',' && is_digit(rest()[1])) text_[at_] = '.';
  if (!grouped && rest().starts_with("{,}") && rest().size() > 3 && is_digit(rest()[3])) {  // 3{,}5: a decimal comma
    at_ += 2;
    text_[at_] = '.';
  }
  if (rest().starts_with('.') && rest().size() > 1 && is_digit(rest()[1])) {
    // 7.425.000: the points separate thousands.
    const auto dots = [&] { return rest().starts_with('.') && three_digits(rest(1)); };
    const std::size_t again = at_ + 4;
    const bool thousands =
        dots() && first <= 3 && first > 0 && again < text_.size() && text_[again] == '.' && three_digits(rest(5));
    if (thousands) {
      for (; dots(); at_ += 4) digits += rest(1).substr(0, 3);
    } else {
      digits += '.';
      for (++at_; at_ < text_.size() && is_digit(text_[at_]); ++at_) digits += text_[at_];
    }
  } else if (rest().starts_with('.') && !rest().starts_with("..")) {
    ++at_;
  }
  multiply_by_power(digits);
  if (digits.size() > kMaxDigits) too_long("a number of more than 2000 digits");
  if (!repeating(digits)) add(TokenType::kNumber, digits);
}

// 0.1\overline{6} is 0.1 + 6/90.
bool Lexer::repeating(const std::string& digits) {
  std::size_t open = 0;
  for (const std::string_view mark : {"\\overline{", "\\bar{", "\\dot{"})
    if (rest().starts_with(mark)) open = mark.size();
  std::size_t end = open;
  while (end < rest().size() && is_digit(rest()[end])) ++end;
  if (open == 0 || end == open || end >= rest().size() || rest()[end] != '}' || text_[at_ - 1] == '}') return false;
  const std::size_t dot = digits.find('.');
  if (dot == std::string::npos && text_[at_ - 1] != '.') return false;
  const std::string period(rest().substr(open, end - open));
  const std::size_t after = dot == std::string::npos ? 0 : digits.size() - dot - 1;
  at_ += end + 1;
  add(TokenType::kSign, "(");
  add(TokenType::kNumber, digits);
  add(TokenType::kSign, "+");
  add(TokenType::kNumber, period);
  add(TokenType::kSign, "/");
  add(TokenType::kNumber, std::string(period.size(), '9') + std::string(after, '0'));
  add(TokenType::kSign, ")");
  return true;
}

// 1.5e3 is 1500. 2e-1 stays: that e may be Euler's number.
void Lexer::multiply_by_power(std::string& digits) {
  if (rest().size() < 2 || (rest()[0] != 'e' && rest()[0] != 'E') || !is_digit(rest()[1])) return;
  std::size_t end = 1, power = 0;
  for (; end < rest().size() && is_digit(rest()[end]) && power <= kMaxDigits; ++end)
    power = 10 * power + static_cast<std::size_t>(rest()[end] - '0');
  if (power > kMaxDigits) return too_long("a number of more than 2000 digits");
  if (end < rest().size() && is_letter(rest()[end])) return;
  const std::size_t dot = std::min(digits.find('.'), digits.size());
  if (dot < digits.size()) digits.erase(dot, 1);
  if (digits.size() < dot + power) digits.append(dot + power - digits.size(), '0');
  if (digits.size() > dot + power) digits.insert(dot + power, ".");
  at_ += end;
}

// Reads the content of the braces that begin here.
bool Lexer::braces(std::string& content) {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  if (at_ >= text_.size() || text_[at_] != '{') return false;
  std::int64_t depth = 0;
  for (std::size_t end = at_; end < text_.size(); ++end) {
    depth += text_[end] == '{' ? 1 : text_[end] == '}' ? -1 : 0;
    if (depth != 0) continue;
    content = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  out_.fault = "braces that do not close";
  return false;
}

void Lexer::words(std::string content) {
  std::erase_if(content, [](char c) { return c == '~' || c == '\\' || c == '{' || c == '}' || c == '$'; });
  const auto first = content.find_first_not_of(" ,.;:"), last = content.find_last_not_of(" ,.;:");
  if (first == std::string::npos) return;
  content = content.substr(first, last - first + 1);
  if (content == "and" || content == "or") return add(TokenType::kSign, "and");
  if (content == "%" || content == "percent" || content == "pct") return add(TokenType::kSign, "%");
  if (content.size() == 3 && content[0] == '(' && content[2] == ')') content = content.substr(1, 1);  // \text{(C)}
  const bool unit = !out_.all.empty() && out_.all.back().type == TokenType::kNumber && content.size() == 1 &&
                    kShortUnits.find(content[0]) != std::string_view::npos;
  if (content.size() == 1 && is_letter(content[0])) return add(unit ? TokenType::kText : TokenType::kLetter, content);
  const std::string_view function = content;
  if (content == "pi" || is_one_of(kFunctions, function)) return add(TokenType::kCommand, content);
  if (is_digit(content[0]) || (content.size() > 1 && content[0] == '-' && is_digit(content[1]))) {  // "5 apples"
    Tokens inner = Lexer(content).read();
    if (inner.fault.empty()) {
      inner.all.pop_back();
      for (Token& token : inner.all) out_.all.push_back(std::move(token));
      return;
    }
  }
  add(TokenType::kText, content);
}

void Lexer::command() {
  std::size_t end = at_ + 1;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  std::string name = text_.substr(at_ + 1, end - at_ - 1);
  if (name.empty()) {
    const char c = end < text_.size() ? text_[end] : ' ';
    at_ = std::min(end + 1, text_.size());
    if (c == '{' || c == '}') {
      depth_ += c == '{' ? 1 : -1;
      return add(TokenType::kSign, std::string("\\") + c);
    }
    if (c == '%') return add(TokenType::kSign, "%");
    if (c == '|') return add(TokenType::kSign, "|");
    if (c == '\\') return add(TokenType::kSign, "row");
    space_ = true;  // \, \; \: \! \$ and the like
    return;
  }
  at_ = end;
  if (name == "dfrac" || name == "tfrac" || name == "cfrac") name = "frac";
  if (name == "dbinom" || name == "tbinom") name = "binom";
  if (name == "rm" || name == "bf" || name == "it") return;
  if (is_one_of(kTextCommands, name)) {
    std::string content;
    if (braces(content)) words(content);
    return;
  }
  if (name == "left" || name == "right") {  // \left. and \right. are not brackets
    if (rest().starts_with('.')) ++at_;
    return;
  }
  if (is_one_of(kIgnoredCommands, name)) {
    space_ = true;
    return;
  }
  for (const auto& [command, means] : kSignCommands)
    if (command == name) return add(TokenType::kSign, std::string(means));
  if (is_one_of(kFunctions, name) || is_one_of(kConstructions, name)) return add(TokenType::kCommand, name);
  add(TokenType::kLetter, name.starts_with("var") && name.size() > 5 ? name.substr(3) : name);
}

// Reports whether the value ends here: in "2cm+m^2" cm is not a unit.
bool Lexer::ends_value(std::size_t at) const {
  at = text_.find_first_not_of(" .", at);
  return at == std::string::npos || std::string_view(",;)}]$").find(text_[at]) != std::string_view::npos;
}

// Adjacent letters: a word if it is known, else one letter each.
void Lexer::word() {
  std::size_t end = at_;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  const std::string name = text_.substr(at_, end - at_);
  std::size_t open = end;
  while (open < text_.size() && text_[open] == ' ') ++open;
  const bool called = open < text_.size() && text_[open] == '(';
  const TokenType last = out_.all.empty() ? TokenType::kEnd : out_.all.back().type;
  const bool closed = last == TokenType::kSign &&
                      (out_.all.back().text == ")" || out_.all.back().text == "}" || out_.all.back().text == "degree");
  const bool after =
      last == TokenType::kNumber || closed || (space_ && (last == TokenType::kLetter || last == TokenType::kCommand));
  if (name == "and" || name == "or") {
    add(TokenType::kSign, "and");
  } else if (name == "percent" || name == "pct" || name == "percentage") {
    add(TokenType::kSign, "%");
  } else if (name == "pi" || (name == "sqrt" && called) || (called && is_one_of(kFunctions, name))) {
    add(TokenType::kCommand, name);
  } else if (after && name.size() > 1 && is_one_of(kUnits, name) && (name.size() > 2 || ends_value(end))) {
    add(TokenType::kText, name);
  } else {
    if (end - at_ > kMaxTokens) return too_long("more than 4096 signs");
    for (; at_ < end; ++at_) add(TokenType::kLetter, text_.substr(at_, 1));
  }
  at_ = end;
}

void Lexer::sign() {
  const char c = text_[at_];
  for (const std::string_view two : {"<=", ">=", "!=", "**", "+-", ":="})
    if (rest().starts_with(two)) {
      at_ += 2;
      return add(TokenType::kSign, two == "**" ? "^" : two == ":=" ? "=" : std::string(two));
    }
  if (c == '(' || c == '[') ++depth_;
  if (c == ')' || c == ']') --depth_;
  ++at_;
  if (std::string_view("()[]{}|+-*/:^_!%=<>,;&'").find(c) != std::string_view::npos)
    return add(TokenType::kSign, std::string(1, c));
  if (c == '.' || c == '$' || c == '?') {
    space_ = true;
    return;
  }
  out_.fault = "a character that no formula has";
}

Tokens Lexer::read() {
  // Layout commands are not tokens, but they count too.
  for (std::size_t read = 0; at_ < text_.size() && out_.fault.empty();) {
    const char c = text_[at_];
    if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '~') {
      space_ = true;
      ++at_;
      continue;
    }
    if (out_.all.size() >= kMaxTokens || ++read > 4 * kMaxTokens) too_long("more than 4096 signs");
    if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      number();
    } else if (is_letter(c)) {
      word();
    } else if (c == '\\') {
      command();
    } else {
      sign();
    }
  }
  add(TokenType::kEnd, "");
  return std::move(out_);
}

}  // namespace

Tokens tokens_of(std::string_view text) { return Lexer(with_single_backslashes(with_plain_signs(text))).read(); }

}  // namespace magister::math
