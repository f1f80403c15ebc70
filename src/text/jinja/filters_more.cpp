// Filters that few chat templates use.
// Source: Jinja 3.1 filters.py.
#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace magister::jinja {
namespace {

Value truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given =
      bind_arguments(runtime, "the filter truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = given[0] == nullptr ? 255 : need_integer(runtime, *given[0], "length");
  const std::string end = given[2] == nullptr ? "..." : need_text(runtime, *given[2], "end");
  const bool has_leeway = given[3] != nullptr && !given[3]->is(Kind::kNone);
  const std::int64_t leeway = has_leeway ? need_integer(runtime, *given[3], "leeway") : 5;
  const auto end_points = static_cast<std::int64_t>(count_points(end));
  if (length < end_points) runtime.refuse("expected length >= {}, got {}", end_points, length);
  if (leeway < 0) runtime.refuse("expected leeway >= 0, got {}", leeway);
  if (input.is(Kind::kUndefined)) return input;
  const std::string& text = need_text(runtime, input, "what truncate takes");
  runtime.charge(text.size() / 64);
  if (static_cast<std::int64_t>(count_points(text)) <= length ||
      static_cast<std::int64_t>(count_points(text)) - length <= leeway)
    return input;
  std::string_view kept =
      std::string_view(text).substr(0, byte_of_point(text, static_cast<std::size_t>(length - end_points)));
  if (given[1] == nullptr || !truthy(*given[1])) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return runtime.text(std::string(kept) + end);
}

Value word_count(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter wordcount", arguments, {});
  const std::string text = str_of(runtime, input);
  runtime.charge(text.size() / 16);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const bool word = is_letter(point.value) || is_number(point.value) || point.value == '_';
    words += word && !inside ? 1 : 0;
    inside = word;
    at += point.bytes;
  }
  return Value::integer(words);
}

Value slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t slices = need_integer(runtime, *given[0], "slices");
  if (slices < 1 || slices > kMaxRange) runtime.refuse("{} slices", slices);
  const Values all = items_of(runtime, input);
  const auto count = static_cast<std::size_t>(slices), each = all.size() / count, longer = all.size() % count;
  Values made;
  auto at = all.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    Values part(at, end);
    if (given[1] != nullptr && !given[1]->is(Kind::kNone) && i >= longer) part.push_back(*given[1]);
    made.push_back(runtime.list(std::move(part)));
    at = end;
  }
  return runtime.iterator(std::move(made));
}

std::string quoted(std::string_view text, bool in_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !in_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value url_encode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter urlencode", arguments, {});
  if (input.is(Kind::kString) || !is_iterable(input)) {
    const std::string text = str_of(runtime, input);
    runtime.charge_text(text.size() * 3);
    return runtime.text(quoted(text, false));
  }
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    out += (out.empty() ? "" : "&") + quoted(str_of(runtime, key), true) + "=" + quoted(str_of(runtime, value), true);
    runtime.charge(1 + out.size() / 64);
  };
  if (input.is(Kind::kDict)) {
    for (const auto& [key, value] : input.object<Dict>().entries) add(key, value);
    return runtime.text(std::move(out));
  }
  for (const Value& pair : items_of(runtime, input)) {
    const Values parts = items_of(runtime, pair);
    if (parts.size() != 2) runtime.refuse("urlencode takes pairs, not {} values", parts.size());
    add(parts[0], parts[1]);
  }
  return runtime.text(std::move(out));
}

Value file_size(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter filesizeformat", arguments, {"binary"});
  if (!input.is_number()) runtime.refuse("the size of a file is a number here, not {}", type_name(input));
  const bool binary = given[0] != nullptr && truthy(*given[0]);
  const double bytes = input.as_real(), base = binary ? 1024 : 1000;
  if (!std::isfinite(bytes)) runtime.refuse("the size of a file is {}", bytes);
  if (bytes == 1) return runtime.text("1 Byte");
  if (bytes < base) return runtime.text(fmt::format("{:.0f} Bytes", std::trunc(bytes) + 0.0));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t prefix = 0;
  while (prefix + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++prefix;
  }
  const char letter = binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  return runtime.text(fmt::format("{:.1f} {}{}B", bytes / unit, letter, binary ? "i" : ""));
}

}  // namespace

std::vector<NamedFilter> more_filters() {
  return {{"truncate", truncate},
          {"wordcount", word_count},
          {"slice", slice},
          {"urlencode", url_encode},
          {"filesizeformat", file_size}};
}
}  // namespace magister::jinja
