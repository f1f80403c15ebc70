// Positions, stripping, splitting, replacing and the repr of texts and floats.
#include "text/jinja/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "text/unicode.h"

namespace magister::jinja {
namespace {

bool starts_with_point_of(std::string_view point, const std::string* set) {
  if (set == nullptr) return is_python_space(code_point_at(point, 0).value);
  return find(*set, point) != std::string_view::npos;
}

std::size_t space_at(std::string_view text, std::size_t at) {
  const CodePoint point = code_point_at(text, at);
  return is_python_space(point.value) ? point.bytes : 0;
}

std::size_t last_point(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// str.isprintable() of one code point: not a control, format, private or unassigned code point and not a separator.
bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool is_python_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

std::size_t count_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<std::string_view> points_of(std::string_view text) {
  std::vector<std::string_view> points;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = code_point_at(text, at).bytes;
    points.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return points;
}

std::size_t byte_of_point(std::string_view text, std::size_t point) {
  std::size_t at = 0;
  while (point > 0 && at < text.size()) {
    at += code_point_at(text, at).bytes;
    --point;
  }
  return at;
}

std::string_view strip(std::string_view text, const std::string* set, Side side) {
  if (side != Side::kRight) {
    while (!text.empty()) {
      const std::size_t bytes = code_point_at(text, 0).bytes;
      if (!starts_with_point_of(text.substr(0, bytes), set)) break;
      text.remove_prefix(bytes);
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      const std::size_t at = last_point(text);
      if (!starts_with_point_of(text.substr(at), set)) break;
      text = text.substr(0, at);
    }
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const CodePoint point = code_point_at(text, at);
    const char32_t c = point.value;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    const std::size_t line_end = at;
    at += point.bytes;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : line_end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::vector<std::string_view> split(std::string_view text, const std::string* separator, std::int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator != nullptr) {
    std::size_t begin = 0;
    while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
      const std::size_t at = find(text, *separator, begin);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(begin, at - begin));
      begin = at + separator->size();
    }
    parts.push_back(text.substr(begin));
    return parts;
  }
  text = strip(text, nullptr, Side::kLeft);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && space_at(text, end) == 0) end += code_point_at(text, end).bytes;
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), nullptr, Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> split_from_right(std::string_view text, const std::string* separator,
                                               std::int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string_view> parts;
  if (separator != nullptr) {
    while (static_cast<std::int64_t>(parts.size()) < limit) {
      const std::size_t at = text.rfind(*separator);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
    return {parts.rbegin(), parts.rend()};
  }
  text = strip(text, nullptr, Side::kRight);
  while (!text.empty()) {
    if (static_cast<std::int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0 && space_at(text, last_point(text.substr(0, begin))) == 0)
      begin = last_point(text.substr(0, begin));
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), nullptr, Side::kRight);
  }
  return {parts.rbegin(), parts.rend()};
}

std::size_t find(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // memmem is linear; std::string's search costs the product of both lengths on hostile input.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t count_parts(std::string_view text, std::string_view part) {
  if (part.empty()) return count_points(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = find(text, part); at != std::string_view::npos; at = find(text, part, at + part.size()))
    ++count;
  return count;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t limit) {
  std::string result;
  std::size_t at = 0;
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    if (from.empty()) {  // before every code point and at the end
      result += to;
      if (at == text.size()) return result;
      const std::size_t bytes = code_point_at(text, at).bytes;
      result += text.substr(at, bytes);
      at += bytes;
      continue;
    }
    const std::size_t found = find(text, from, at);
    if (found == std::string_view::npos) break;
    result += text.substr(at, found - at);
    result += to;
    at = found + from.size();
  }
  return result += text.substr(at);
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&#34;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string repr_of_text(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos, both = text.find('"') != std::string_view::npos;
  const char quote = single && !both ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      result += text.substr(at, bytes);
    } else {
      result += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<unsigned>(c))
                              : fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    at += bytes;
  }
  return result += quote;
}

// The shortest digits that read back as the same number, with an exponent below 1e-4 and from 1e16 on.
std::string repr_of_real(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  const double size = std::fabs(number);
  const bool with_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  char buffer[400];
  const auto format = with_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, format).ptr;
  std::string digits(buffer, end);
  if (!with_exponent && digits.find('.') == std::string::npos) digits += ".0";
  return digits;
}
}  // namespace magister::jinja
