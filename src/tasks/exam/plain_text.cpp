#include "tasks/exam/plain_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "magister/core/utf8.h"
#include "tasks/exam/source.h"

namespace magister {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Lower-case ASCII.
std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return result;
}

void append_code_point(std::string& text, std::uint32_t c) {
  if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
             static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
             static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
}

constexpr std::pair<std::string_view, std::uint32_t> kEntities[] = {
    {"amp", '&'},      {"lt", '<'},       {"gt", '>'},        {"quot", '"'},     {"apos", '\''},    {"nbsp", ' '},
    {"ndash", 0x2013}, {"mdash", 0x2014}, {"hellip", 0x2026}, {"lsquo", 0x2018}, {"rsquo", 0x2019}, {"ldquo", 0x201C},
    {"rdquo", 0x201D}, {"times", 0xD7},   {"divide", 0xF7},   {"deg", 0xB0},     {"micro", 0xB5},   {"middot", 0xB7},
    {"plusmn", 0xB1},  {"minus", 0x2212}, {"auml", 0xE4},     {"ouml", 0xF6},    {"uuml", 0xFC},    {"Auml", 0xC4},
    {"Ouml", 0xD6},    {"Uuml", 0xDC},    {"szlig", 0xDF},    {"eacute", 0xE9},  {"egrave", 0xE8},  {"agrave", 0xE0},
    {"ccedil", 0xE7},  {"ntilde", 0xF1},  {"alpha", 0x3B1},   {"beta", 0x3B2},   {"gamma", 0x3B3},  {"delta", 0x3B4},
    {"Delta", 0x394},  {"lambda", 0x3BB}, {"mu", 0x3BC},      {"pi", 0x3C0},     {"sigma", 0x3C3},  {"omega", 0x3C9},
    {"rarr", 0x2192},  {"larr", 0x2190},  {"le", 0x2264},     {"ge", 0x2265},    {"ne", 0x2260},    {"copy", 0xA9},
    {"euro", 0x20AC}};

// Appends the character of the reference at the start of `text` ("&amp;...") and returns its bytes; 0: none.
std::size_t append_reference(std::string& to, std::string_view text) {
  const std::size_t end = text.substr(0, 12).find(';');
  if (end == std::string_view::npos || end < 2) return 0;
  const std::string_view name = text.substr(1, end - 1);
  if (name[0] == '#') {
    const bool is_hex = name.size() > 1 && (name[1] == 'x' || name[1] == 'X');
    const std::string_view digits = name.substr(is_hex ? 2 : 1);
    std::uint32_t value = 0;
    const auto [stop, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
    if (fault != std::errc{} || stop != digits.data() + digits.size()) return 0;
    append_code_point(to, value);
    return end + 1;
  }
  const auto* found = std::find_if(std::begin(kEntities), std::end(kEntities),
                                   [&](const auto& entity) { return entity.first == name; });
  if (found == std::end(kEntities)) return 0;
  append_code_point(to, found->second);
  return end + 1;
}

constexpr std::array<std::string_view, 5> kWithoutText{"script", "style", "head", "template", "noscript"};
constexpr std::array<std::string_view, 34> kBlocks{
    "p",     "div",     "h1",       "h2",      "h3",      "h4",      "h5",        "h6",     "ul",
    "ol",    "dl",      "table",    "section", "header",  "footer",  "main",      "nav",    "blockquote",
    "pre",   "hr",      "aside",    "form",    "article", "body",    "html",      "figure", "thead",
    "tbody", "caption", "fieldset", "address", "details", "summary", "figcaption"};
constexpr std::array<std::string_view, 5> kLines{"br", "li", "tr", "dt", "dd"};

template <typename Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::size_t kMaxTagBytes = 1 << 16;  // a longer one is text

struct Tag {
  std::string name;  // in lower case; empty for comments and declarations
  bool closes = false;
  std::size_t bytes = 0;  // 0: no tag begins here
};

Tag tag_at(std::string_view html) {
  if (html.starts_with("<!--")) return {"", false, std::min(html.find("-->", 4), html.size() - 3) + 3};
  if (html.size() < 2) return {};
  const bool closes = html[1] == '/';
  const std::size_t begin = closes ? 2 : 1;
  std::size_t at = begin;
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  while (at < html.size() && is_name(html[at])) ++at;
  if (at == begin && html[1] != '!' && html[1] != '?') return {};
  Tag tag{lowered(html.substr(begin, at - begin)), closes, 0};
  char quote = 0;
  for (const std::size_t end = std::min(html.size(), kMaxTagBytes); at < end; ++at) {
    if (quote != 0) {
      if (html[at] == quote) quote = 0;
    } else if (html[at] == '"' || html[at] == '\'') {
      quote = html[at];
    } else if (html[at] == '>') {
      tag.bytes = at + 1;
      break;
    }
  }
  return tag;
}

// The bytes up to the end tag of an element whose content is no text.
std::size_t skipped(std::string_view html, const std::string& name) {
  const std::string closing = "</" + name;
  for (std::size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at + 1)) {
    if (lowered(html.substr(at, closing.size())) == closing) return at;
  }
  return html.size();
}

}  // namespace

std::string html_text(std::string_view html) {
  std::string text;
  while (!html.empty()) {
    std::size_t used = 0;
    if (html[0] == '<') {
      const Tag tag = tag_at(html);
      used = tag.bytes;
      if (used > 0 && !tag.closes && is_among(kWithoutText, tag.name)) {
        used += skipped(html.substr(used), tag.name);
      } else if (used > 0 && is_among(kBlocks, tag.name)) {
        text += "\n\n";
      } else if (used > 0 && is_among(kLines, tag.name)) {
        text += tag.closes ? "" : "\n";
      } else if (used > 0 && (tag.name == "td" || tag.name == "th")) {
        text += ' ';
      }
    } else if (html[0] == '&') {
      used = append_reference(text, html);
    } else if (html[0] == '\n' || html[0] == '\r' || html[0] == '\t' || html[0] == ' ') {
      if (!text.empty() && text.back() != ' ' && text.back() != '\n') text += ' ';
      used = 1;
    }
    if (used == 0) {
      text += html[0];
      used = 1;
    }
    html.remove_prefix(used);
  }
  return paragraphs_of(text);
}

std::string paragraphs_of(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string result, line;
  int empty_lines = 0;
  const auto end_line = [&] {
    while (!line.empty() && is_blank(line.back())) line.pop_back();
    if (line.empty()) {
      ++empty_lines;
    } else {
      if (!result.empty()) result += empty_lines > 0 ? "\n\n" : "\n";
      result += line;
      empty_lines = 0;
    }
    line.clear();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n' || c == '\r') {
      if (c == '\r' && at + 1 < text.size() && text[at + 1] == '\n') ++at;
      end_line();
    } else if (c == '\f') {
      end_line();
      ++empty_lines;
    } else if (c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F)) {
      line += c;
    }
  }
  end_line();
  return result;
}

}  // namespace magister
