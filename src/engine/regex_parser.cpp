// Parses an expression into a tree; unsupported syntax is refused with its position.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/regex_tree.h"
#include "magister/core/utf8.h"

namespace magister::regex {
namespace {

constexpr int kMaxDepth = 100;               // of nested groups
constexpr std::uint32_t kMaxCount = 10'000;  // of a repetition

Set normal(Set set) {
  std::sort(set.begin(), set.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  Set merged;
  for (const Range& range : set) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

Set complement(const Set& set) {
  Set rest;
  char32_t next = 0;
  for (const Range& range : normal(set)) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) rest.push_back({next, kLast});
  return rest;
}

const Set kDigits = {{'0', '9'}};
const Set kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Set kSpace = {{'\t', '\r'}, {' ', ' '}};
// The characters that Unicode, JavaScript or Python call white space.
const Set kAnySpace = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                       {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                       {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Set kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(const std::string& regex) {
    for (std::size_t at = 0; at < regex.size();) {
      const std::size_t bytes = utf8_sequence_length(std::string_view(regex).substr(at));
      if (bytes == 0 || regex[at] == '\0')
        throw std::runtime_error(fmt::format("byte {} of the expression is no UTF-8 or is NUL", at + 1));
      points_.push_back(decoded(std::string_view(regex).substr(at, bytes)));
      at += bytes;
    }
  }

  Node run() {
    Node whole = choice(0);
    if (!at_end()) fail("a \")\" without its \"(\"; an unmatched parenthesis: write \\) for the character");
    return whole;
  }

 private:
  static char32_t decoded(std::string_view bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(bytes[i])); };
    if (bytes.size() == 1) return byte(0);
    char32_t value = byte(0) & (0xFF >> (bytes.size() + 1));
    for (std::size_t i = 1; i < bytes.size(); ++i) value = value << 6 | (byte(i) & 0x3F);
    return value;
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw std::runtime_error(fmt::format("character {} of the expression: {}", at_ + 1, problem));
  }
  bool at_end() const { return at_ == points_.size(); }
  char32_t now() const { return at_end() ? 0 : points_[at_]; }
  char32_t ahead(std::size_t by) const { return at_ + by < points_.size() ? points_[at_ + by] : 0; }
  bool skip(char32_t wanted) { return !at_end() && now() == wanted ? (++at_, true) : false; }
  static bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

  Node choice(int depth) {
    if (depth > kMaxDepth) fail("groups nested deeper than is known here");
    Node all;
    all.kind = Node::Kind::kChoice;
    do {
      all.parts.push_back(sequence(depth));
    } while (skip('|'));
    return all.parts.size() == 1 ? std::move(all.parts.front()) : all;
  }

  Node sequence(int depth) {
    Node all;
    if (depth == 0) skip('^');
    while (!at_end() && now() != '|' && now() != ')') {
      if (now() == '^')
        fail("\"^\" should be at the start (elsewhere it would be ignored); remove it, or write \\^ for the character");
      if (now() == '$') {
        ++at_;
        if (depth == 0 && (at_end() || now() == '|')) break;
        --at_;
        fail("\"$\" should be at the end (elsewhere it would be ignored); remove it, or write \\$ for the character");
      }
      all.parts.push_back(repeated(atom(depth)));
    }
    return all;
  }

  Node repeated(Node atom) {
    Node all;
    all.kind = Node::Kind::kRepeat;
    if (skip('*')) {
      all.most = kNoBound;
    } else if (skip('+')) {
      all.least = 1;
      all.most = kNoBound;
    } else if (skip('?')) {
      all.most = 1;
    } else if (skip('{')) {
      all.least = count();
      all.most = all.least;
      if (skip(',')) all.most = is_digit(now()) ? count() : kNoBound;
      if (!skip('}')) fail("there is no count between these braces; write \\{ for the character");
      if (all.most < all.least) fail(fmt::format("a count of at least {} and at most {}", all.least, all.most));
    } else {
      return atom;
    }
    skip('?');  // lazy repetition: it matches the same texts
    if (now() == '*' || now() == '+' || now() == '?' || now() == '{')
      fail("two repetitions in a row; put the first into a group");
    all.parts.push_back(std::move(atom));
    return all;
  }

  std::uint32_t count() {
    if (!is_digit(now())) fail("there is no count between these braces; write \\{ for the character");
    std::uint32_t value = 0;
    for (; is_digit(now()); ++at_) {
      value = value * 10 + (now() - '0');
      if (value > kMaxCount) fail(fmt::format("a count above {}", kMaxCount));
    }
    return value;
  }

  Node atom(int depth) {
    Node leaf;
    leaf.kind = Node::Kind::kSet;
    const char32_t c = now();
    if (c == '(') return group(depth);
    if (c == '[') {
      leaf.set = character_class();
    } else if (c == '\\') {
      leaf.set = escape(false);
    } else if (c == '.') {
      ++at_;
      leaf.set = complement(kLineEnds);
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      fail("nothing comes before this repetition");
    } else if (c == ']' || c == '}') {
      fail(fmt::format("a \"{}\" that closes nothing; write \\{} for the character", static_cast<char>(c),
                       static_cast<char>(c)));
    } else {
      ++at_;
      leaf.set = {{c, c}};
    }
    return leaf;
  }

  Node group(int depth) {
    const std::size_t begin = at_++;
    if (skip('?')) {
      if (now() == '=' || now() == '!') fail("look-ahead is not known here (Lookahead)");
      if (now() == '<' && (ahead(1) == '=' || ahead(1) == '!')) fail("look-behind is not known here (Lookbehind)");
      if (now() == 'P' && ahead(1) == '<') ++at_;
      if (skip('<')) {
        while (!at_end() && now() != '>') ++at_;
        if (!skip('>')) fail("a group's name that does not end");
      } else if (!skip(':')) {
        fail("flags of a group are not known here");
      }
    }
    Node inner = choice(depth + 1);
    if (!skip(')')) {
      at_ = begin;
      fail("the parenthesis is not closed; write \\( for the character");
    }
    return inner;
  }

  Set character_class() {
    const std::size_t begin = at_++;
    const bool negated = skip('^');
    if (now() == ']') fail("\"]\" begins a class; write \\] for the character");
    Set set;
    while (!at_end() && now() != ']') {
      if (negated && now() == '\\' && ahead(1) == 's') set.insert(set.end(), kAnySpace.begin(), kAnySpace.end());
      const Set first = unit();
      if (now() == '-' && ahead(1) != ']' && ahead(1) != 0) {
        ++at_;
        const Set last = unit();
        const bool singles = is_single(first) && is_single(last);
        if (!singles || first[0].first > last[0].first)
          fail("a range of a class whose ends are no two characters in order; write \\- for the character");
        set.push_back({first[0].first, last[0].first});
      } else {
        set.insert(set.end(), first.begin(), first.end());
      }
    }
    if (!skip(']')) {
      at_ = begin;
      fail("the class is not closed; write \\[ for the character");
    }
    return negated ? complement(set) : normal(set);
  }

  static bool is_single(const Set& set) { return set.size() == 1 && set[0].first == set[0].last; }

  Set unit() {
    if (now() == '\\') return escape(true);
    if (now() == '[' && (ahead(1) == ':' || ahead(1) == '=' || ahead(1) == '.'))
      fail("classes with names are not known here; write the characters");
    const char32_t c = points_[at_++];
    return {{c, c}};
  }

  Set escape(bool in_class) {
    ++at_;
    if (at_end()) fail("a \"\\\" at the end; write \\\\ for the character");
    const char32_t c = points_[at_++];
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kAnySpace);
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'x':
        return single(hexadecimal(2, 2));
      case 'u':
        return skip('{') ? braced() : single(unicode());
      default:
        break;
    }
    --at_;
    if (is_digit(c)) fail("back references are not known here (Backreference)");
    if (c == 'b' || c == 'B')
      fail(in_class ? "\\b is not known in a class" : "word boundaries are not known here (Word boundary)");
    if (c == 'p' || c == 'P') fail("classes of Unicode are not known here; write the characters");
    if (c < 0x80 && std::isalpha(static_cast<int>(c)) != 0)
      fail(fmt::format("the escape \\{} is not known here", static_cast<char>(c)));
    ++at_;
    return single(c);
  }

  static Set single(char32_t c) { return {{c, c}}; }

  char32_t hexadecimal(std::size_t least, std::size_t most) {
    char32_t value = 0;
    std::size_t digits = 0;
    for (; digits < most && now() < 0x80 && std::isxdigit(static_cast<int>(now())) != 0; ++digits, ++at_) {
      const char32_t c = now();
      value = value * 16 + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (digits < least || value > kLast) fail("an escape without its hexadecimal digits, or beyond U+10FFFF");
    return value;
  }

  Set braced() {
    const char32_t value = hexadecimal(1, 6);
    if (!skip('}')) fail("an escape \\u{...} that does not end");
    return single(value);
  }

  // \uD83D\uDE00 is one character.
  char32_t unicode() {
    const char32_t high = hexadecimal(4, 4);
    if (high < 0xD800 || high > 0xDBFF || now() != '\\' || ahead(1) != 'u') return high;
    at_ += 2;
    const char32_t low = hexadecimal(4, 4);
    if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  std::u32string points_;
  std::size_t at_ = 0;
};

}  // namespace

Node parse(const std::string& regex) { return Parser(regex).run(); }

}  // namespace magister::regex
