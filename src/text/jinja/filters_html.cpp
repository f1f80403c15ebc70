// The filter striptags: HTML as plain text.
// Source: MarkupSafe 3.0 Markup.striptags(), Python 3.11 html.unescape() (WHATWG's table of named characters).
#include <algorithm>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace magister::jinja {
namespace {

struct HtmlEntity {
  std::string_view name, text;
};
#include "text/jinja/html_entities.inc"

const HtmlEntity* find_entity(std::string_view name) {
  const auto* found =
      std::lower_bound(std::begin(kHtmlEntities), std::end(kHtmlEntities), name,
                       [](const HtmlEntity& entity, std::string_view key) { return entity.name < key; });
  return found == std::end(kHtmlEntities) || found->name != name ? nullptr : found;
}

// What browsers take the codes 0x80 to 0x9f for: Windows-1252, itself where that has no character.
constexpr char32_t kWindows1252[] = {0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                     0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d,   0x017d, 0x8f,
                                     0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                     0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};

std::string text_of_code(char32_t code) {
  if (code == 0) code = 0xfffd;
  if (code >= 0x80 && code <= 0x9f) {
    code = kWindows1252[code - 0x80];
  } else if ((code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) {
    code = 0xfffd;
  } else if ((code >= 0x1 && code <= 0x8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f ||
             (code >= 0xfdd0 && code <= 0xfdef) || (code & 0xfffe) == 0xfffe) {
    return "";
  }
  std::string text;
  append_utf8(text, code);
  return text;
}

bool is_digit(char c, int base) {
  return (c >= '0' && c <= '9') || (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')));
}

// "#123;", "#x1f;" behind an '&'; takes what it reads from `rest`. Nothing where no number stands.
std::optional<std::string> take_number(std::string_view& rest) {
  const int base = rest.size() > 1 && (rest[1] == 'x' || rest[1] == 'X') ? 16 : 10;
  const std::size_t begin = base == 16 ? 2 : 1;
  std::size_t end = begin;
  char32_t code = 0;
  for (; end < rest.size() && is_digit(rest[end], base); ++end) {
    const char c = rest[end];
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    code = std::min<char32_t>(code * static_cast<char32_t>(base) + static_cast<char32_t>(digit), 0x110000);
  }
  if (end == begin) return std::nullopt;
  if (end < rest.size() && rest[end] == ';') ++end;
  rest.remove_prefix(end);
  return text_of_code(code);
}

// A name behind an '&', or the longest name that it begins with.
std::string take_name(std::string_view& rest) {
  std::size_t end = 0;
  for (int points = 0; points < 32 && end < rest.size(); ++points) {
    if (std::string_view("\t\n\f <&#;").find(rest[end]) != std::string_view::npos) break;
    end += byte_of_point(rest.substr(end), 1);
  }
  if (end > 0 && end < rest.size() && rest[end] == ';') ++end;
  const std::string_view name = rest.substr(0, end);
  rest.remove_prefix(end);
  for (std::size_t length = name.size(); length > 0; --length) {
    if (length == 1 && name.size() > 1) break;
    const HtmlEntity* entity = find_entity(name.substr(0, length));
    if (entity != nullptr) return std::string(entity->text) + std::string(name.substr(length));
  }
  return "&" + std::string(name);
}

std::string unescape(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t next = std::min(text.find('&'), text.size());
    out += text.substr(0, next);
    if (next == text.size()) return out;
    text.remove_prefix(next + 1);
    if (text.starts_with('#')) {
      out += take_number(text).value_or("&");
    } else {
      out += take_name(text);
    }
  }
}

std::string without_tags(std::string_view text) {
  std::string kept;
  std::size_t at = 0;
  for (std::size_t start = text.find('<'); start != std::string_view::npos; start = text.find('<', at)) {
    const bool comment = text.substr(start).starts_with("<!--");
    const std::size_t end = comment ? text.find("-->", start + 4) : text.find('>', start);
    if (end == std::string_view::npos) break;
    kept += text.substr(at, start - at);
    at = end + (comment ? 3 : 1);
  }
  return kept += text.substr(at);
}

Value strip_tags(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter striptags", arguments, {});
  const std::string text = str_of(runtime, input);
  runtime.charge_text(text.size() * 2);
  const std::string kept = without_tags(text);
  return runtime.text(unescape(fmt::format("{}", fmt::join(split(kept, nullptr, -1), " "))));
}

}  // namespace

std::vector<NamedFilter> html_filters() { return {{"striptags", strip_tags}}; }
}  // namespace magister::jinja
