// Writes the tree. Sets are written as positive classes, so that the result does not depend on the library's
// complements and escapes.
#include "magister/engine/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string_view>

#include "engine/regex_tree.h"

namespace magister {
namespace {

using regex::kNoBound;
using regex::Node;
using regex::Range;
using regex::Set;
constexpr std::size_t kMaxBytes = 1 << 20;  // of the result, because X{n,} repeats X

class Writer {
 public:
  explicit Writer(RegexPlace place) : place_(place) {}
  std::string out;

  void write(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kSet:
        write_set(node.set);
        break;
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) part.kind == Node::Kind::kChoice ? group(part) : write(part);
        break;
      case Node::Kind::kChoice:
        for (std::size_t i = 0; i < node.parts.size(); ++i) {
          if (i > 0) out += '|';
          write(node.parts[i]);
        }
        break;
      case Node::Kind::kRepeat:
        repeat(node);
        break;
    }
    if (out.size() > kMaxBytes) throw std::runtime_error("the expression repeats too much");
  }

 private:
  void group(const Node& node) {
    if (node.kind == Node::Kind::kSet) return write(node);
    out += "(?:";
    write(node);
    out += ')';
  }

  void repeat(const Node& node) {
    const Node& part = node.parts.front();
    const bool unbounded = node.most == kNoBound;
    if (place_ == RegexPlace::kJsonString && !unbounded && node.least == 0 && node.most == 1) {
      out += "(?:|";
      group(part);
      out += ')';
      return;
    }
    if (unbounded && node.least > 1) {
      group(part);
      out += fmt::format("{{{}}}", node.least);
    }
    group(part);
    if (unbounded) {
      out += node.least == 1 ? '+' : '*';
    } else if (node.least == 0 && node.most == 1) {
      out += '?';
    } else {
      out += fmt::format("{{{},{}}}", node.least, node.most);
    }
  }

  static void point(std::string& text, char32_t c) {
    if (c < 0x80 && std::isalnum(static_cast<int>(c)) != 0) {
      text += static_cast<char>(c);
    } else if (c <= 0xFFFF) {
      text += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    } else {
      text += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(c));
    }
  }

  // Surrogates are left out, because no text has them, and in plain texts NUL. "^" is written last, because the library
  // unescapes it before it looks for a negation.
  void write_set(const Set& given) {
    Set set;
    bool caret = false;
    const auto add = [&](char32_t first, char32_t last) {
      if (first <= last) set.push_back({first, last});
    };
    for (Range range : given) {
      if (place_ == RegexPlace::kText) range.first = std::max<char32_t>(range.first, 1);
      if (range.first <= '^' && range.last >= '^') {
        caret = true;
        add(range.first, '^' - 1);
        range.first = '^' + 1;
      }
      add(range.first, std::min<char32_t>(range.last, 0xD7FF));
      add(std::max<char32_t>(range.first, 0xE000), range.last);
    }
    if (place_ == RegexPlace::kJsonString) return write_json_set(set, caret);
    write_class(set, caret);
  }

  // Characters that JSON writes as escapes are written here as these escapes, in the spelling of json.dumps.
  void write_json_set(const Set& set, bool caret) {
    static constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const auto has = [&](char32_t c) {
      return std::any_of(set.begin(), set.end(),
                         [c](const Range& range) { return range.first <= c && c <= range.last; });
    };
    Set plain, letters, digits[2];  // the last: for \u000X and \u001X
    for (const Range& range : set) {
      char32_t first = std::max<char32_t>(range.first, 0x20);
      for (const char32_t escaped : {U'"', U'\\'}) {
        if (first > escaped || range.last < escaped) continue;
        if (first < escaped) plain.push_back({first, escaped - 1});
        first = escaped + 1;
      }
      if (first <= range.last) plain.push_back({first, range.last});
    }
    for (std::size_t i = 0; i < kShort.size(); ++i) {
      const auto letter = static_cast<char32_t>(kLetters[i]);
      if (has(static_cast<char32_t>(kShort[i]))) letters.push_back({letter, letter});
    }
    for (char32_t c = 0; c < 0x20; ++c) {
      if (!has(c) || kShort.find(static_cast<char>(c)) != kShort.npos) continue;
      const auto digit = static_cast<char32_t>("0123456789abcdef"[c % 16]);
      digits[c / 16].push_back({digit, digit});
    }
    if (letters.empty() && digits[0].empty() && digits[1].empty()) return write_class(plain, caret);
    out += "(?:";
    if (!plain.empty() || caret) {
      write_class(plain, caret);
      out += '|';
    }
    const auto escape = [&](const char* begin, const Set& ends, bool last) {
      if (ends.empty()) return;
      out += begin;
      write_class(ends, false);
      if (!last) out += '|';
    };
    escape("\\u005c", letters, digits[0].empty() && digits[1].empty());
    escape("\\u005cu000", digits[0], digits[1].empty());
    escape("\\u005cu001", digits[1], true);
    out += ')';
  }

  void write_class(const Set& set, bool caret) {
    if (set.empty() && !caret) throw std::runtime_error("a class without a character (nothing could match)");
    if (set.empty()) {
      out += "\\^";
      return;
    }
    if (!caret && set.size() == 1 && set[0].first == set[0].last) return point(out, set[0].first);
    out += '[';
    for (const Range& range : set) {
      point(out, range.first);
      if (range.last > range.first) {
        out += '-';
        point(out, range.last);
      }
    }
    out += caret ? "\\^]" : "]";
  }

  RegexPlace place_;
};

}  // namespace

std::string plain_regex(const std::string& expression, RegexPlace place) {
  Writer writer(place);
  const Node whole = regex::parse(expression);
  writer.write(whole);
  return writer.out;
}

}  // namespace magister
