// Writing the tree. Sets are written as positive classes, so that neither the library's complements nor its escapes have a say.
#include "magister/engine/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "engine/regex_tree.h"

namespace magister {
namespace {

using regex::kNoBound;
using regex::Node;
using regex::Range;
using regex::Set;
constexpr std::size_t kMaxBytes = 1 << 20;  // of what is written: X{n,} repeats X

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

  // Without NUL and surrogates, which stand in no text. "^" goes last: the library unescapes it before it looks for a negation.
  void write_set(const Set& given) {
    Set set;
    bool caret = false;
    const auto add = [&](char32_t first, char32_t last) {
      if (first <= last) set.push_back({first, last});
    };
    for (Range range : given) {
      range.first = std::max<char32_t>(range.first, 1);
      if (range.first <= '^' && range.last >= '^') {
        caret = true;
        add(range.first, '^' - 1);
        range.first = '^' + 1;
      }
      add(range.first, std::min<char32_t>(range.last, 0xD7FF));
      add(std::max<char32_t>(range.first, 0xE000), range.last);
    }
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
