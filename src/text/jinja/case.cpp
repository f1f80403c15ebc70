// Upper, lower and title case with Unicode's full mappings, as Python has them.
#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/case_table.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace magister::jinja {
namespace {

const SpecialCase* special_case(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                       [](const SpecialCase& row, char32_t value) { return row.code_point < value; });
  return found != std::end(kSpecialCases) && found->code_point == c ? found : nullptr;
}

char32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

void append_upper(std::string& result, char32_t c) {
  if (const SpecialCase* row = special_case(c)) {
    result += row->upper;
  } else {
    append_utf8(result, simple(utf8proc_toupper, c));
  }
}

void append_title(std::string& result, char32_t c) {
  if (const SpecialCase* row = special_case(c)) {
    result += row->title;
  } else {
    append_utf8(result, simple(utf8proc_totitle, c));
  }
}

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         simple(utf8proc_toupper, c) != c || simple(utf8proc_tolower, c) != c;
}

// Unicode's Case_Ignorable as far as a final sigma needs it: marks, formats, modifiers and punctuation inside words.
bool is_case_ignorable(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' ||
         c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

// A capital sigma at the end of a word becomes the final form.
bool is_final_sigma(const std::vector<std::string_view>& points, std::size_t at) {
  const auto value = [&](std::size_t i) { return code_point_at(points[i], 0).value; };
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(value(before - 1))) --before;
  if (before == 0 || !is_cased(value(before - 1))) return false;
  std::size_t after = at + 1;
  while (after < points.size() && is_case_ignorable(value(after))) ++after;
  return after == points.size() || !is_cased(value(after));
}

void append_lower(std::string& result, const std::vector<std::string_view>& points, std::size_t at) {
  const char32_t c = code_point_at(points[at], 0).value;
  if (c == 0x130) {
    result += "i\xCC\x87";
  } else if (c == 0x3A3) {
    append_utf8(result, is_final_sigma(points, at) ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(result, simple(utf8proc_tolower, c));
  }
}

bool in_one_case(std::string_view text, utf8proc_category_t wanted) {
  bool any = false;
  for (const std::string_view point : points_of(text)) {
    const char32_t c = code_point_at(point, 0).value;
    const auto kind = category(c);
    if (kind != wanted &&
        (kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT)) {
      return false;
    }
    any = any || kind == wanted;
  }
  return any;
}

}  // namespace

std::string upper(std::string_view text) {
  std::string result;
  for (const std::string_view point : points_of(text)) append_upper(result, code_point_at(point, 0).value);
  return result;
}

std::string lower(std::string_view text) {
  std::string result;
  const auto points = points_of(text);
  for (std::size_t i = 0; i < points.size(); ++i) append_lower(result, points, i);
  return result;
}

std::string capitalize(std::string_view text) {
  std::string result;
  const auto points = points_of(text);
  if (!points.empty()) append_title(result, code_point_at(points[0], 0).value);
  for (std::size_t i = 1; i < points.size(); ++i) append_lower(result, points, i);
  return result;
}

std::string title(std::string_view text) {
  std::string result;
  const auto points = points_of(text);
  bool inside = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const char32_t c = code_point_at(points[i], 0).value;
    if (inside) {
      append_lower(result, points, i);
    } else {
      append_title(result, c);
    }
    inside = is_cased(c);
  }
  return result;
}

std::string swap_case(std::string_view text) {
  std::string result;
  const auto points = points_of(text);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const char32_t c = code_point_at(points[i], 0).value;
    if (category(c) == UTF8PROC_CATEGORY_LU) {
      append_lower(result, points, i);
    } else if (category(c) == UTF8PROC_CATEGORY_LL) {
      append_upper(result, c);
    } else {
      result += points[i];
    }
  }
  return result;
}

std::string title_filter(std::string_view text) {
  std::string result;
  const auto separates = [&](std::size_t at) {
    return is_python_space(code_point_at(text, at).value) ||
           std::string_view("-({[<").find(text[at]) != std::string_view::npos;
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    const bool separator = separates(at);
    while (end < text.size() && separates(end) == separator) end += code_point_at(text, end).bytes;
    const std::string_view word = text.substr(at, end - at);
    const std::size_t first = code_point_at(word, 0).bytes;
    result += upper(word.substr(0, first));
    result += lower(word.substr(first));
    at = end;
  }
  return result;
}

bool is_upper(std::string_view text) { return in_one_case(text, UTF8PROC_CATEGORY_LU); }
bool is_lower(std::string_view text) { return in_one_case(text, UTF8PROC_CATEGORY_LL); }
}  // namespace magister::jinja
