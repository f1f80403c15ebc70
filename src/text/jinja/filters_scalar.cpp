// Filters that turn their input into one text or number.
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

using TextToText = std::string (*)(std::string_view);
template <TextToText convert>
Value text_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter", arguments, {});
  return runtime.text(convert(str_of(runtime, input)));
}

Value trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter trim", arguments, {"chars"});
  const std::string* set =
      given[0] == nullptr || given[0]->is(Kind::kNone) ? nullptr : &need_text(runtime, *given[0], "chars");
  const std::string text = str_of(runtime, input);
  if (set != nullptr) runtime.charge((text.size() / 64 + 1) * (set->size() / 64 + 1));
  return runtime.text(std::string(strip(text, set, Side::kBoth)));
}

Value replace_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = str_of(runtime, input), from = str_of(runtime, *given[0]), to = str_of(runtime, *given[1]);
  const bool all = given[2] == nullptr || given[2]->is(Kind::kNone);
  runtime.charge_text(text.size() + count_parts(text, from) * to.size());
  return Value::text(replace(text, from, to, all ? -1 : need_integer(runtime, *given[2], "count")));
}

Value default_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter default", arguments, {"default_value", "boolean"});
  const bool absent = input.is(Kind::kUndefined) || (given[1] != nullptr && truthy(*given[1]) && !truthy(input));
  if (!absent) return input;
  return given[0] != nullptr ? *given[0] : runtime.text("");
}

Value length_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter length", arguments, {});
  const auto length = length_of(input);
  if (!length) runtime.refuse("{} has no length", type_name(input));
  if (input.is(Kind::kString)) runtime.charge(input.as_text().size() / 64);
  return Value::integer(*length);
}

Value string_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter string", arguments, {});
  return input.is(Kind::kString) ? input : runtime.text(str_of(runtime, input));
}

Value safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter safe", arguments, {});
  return Value::markup(str_of(runtime, input));
}

Value escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter escape", arguments, {});
  if (input.is_markup()) return input;
  std::string text = escape_html(str_of(runtime, input));
  runtime.charge_text(text.size());
  return Value::markup(std::move(text));
}

Value force_escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return escape(runtime, runtime.text(str_of(runtime, input)), arguments);
}

Value to_json(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given =
      bind_arguments(runtime, "the filter tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = given[0] != nullptr && truthy(*given[0]);
  style.indented = given[1] != nullptr && !given[1]->is(Kind::kNone);
  if (style.indented) {
    style.between = ",";
    if (given[1]->is(Kind::kString)) {
      style.indent = given[1]->as_text();
    } else {
      const std::int64_t width = need_integer(runtime, *given[1], "indent");
      if (width > 1000) runtime.refuse("an indent of {}", width);
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  if (given[2] != nullptr && !given[2]->is(Kind::kNone)) {
    const Values separators = items_of(runtime, *given[2]);
    if (separators.size() != 2) runtime.refuse("separators are two");
    style.between = need_text(runtime, separators[0], "a separator");
    style.after_key = need_text(runtime, separators[1], "a separator");
  }
  style.sort_keys = given[3] != nullptr && truthy(*given[3]);
  return runtime.text(json_of(runtime, input, style));
}

// int("12", base): digits with an optional sign, white space around and single underscores between; nothing if the text
// is not a number.
std::optional<std::int64_t> whole_number(Runtime& runtime, std::string_view text, std::int64_t base) {
  text = strip(text, nullptr, Side::kBoth);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const auto prefix = [&](char letter) { return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter; };
  const std::int64_t named = prefix('x') ? 16 : prefix('o') ? 8 : prefix('b') ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    base = named;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
  }
  if (base == 0) base = 10;
  std::string digits = negative ? "-" : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (!between) digits += text[i];
  }
  std::int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (error == std::errc::result_out_of_range && end == digits.data() + digits.size())
    runtime.refuse("a whole number beyond 64 bits");
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<double> real_number(std::string_view text) {
  const std::string trimmed(strip(text, nullptr, Side::kBoth));
  if (trimmed.empty() || trimmed.find_first_of("xXpP(") != std::string::npos) return std::nullopt;  // C's, not Python's
  char* end = nullptr;
  const double number = std::strtod(trimmed.c_str(), &end);
  if (end != trimmed.c_str() + trimmed.size()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> truncated(Runtime& runtime, double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (std::fabs(number) >= 9.2e18) runtime.refuse("a whole number beyond 64 bits");
  return static_cast<std::int64_t>(number);
}

Value int_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter int", arguments, {"default", "base"});
  const Value fallback = given[0] != nullptr ? *given[0] : Value::integer(0);
  const std::int64_t base = given[1] != nullptr ? need_integer(runtime, *given[1], "base") : 10;
  need_defined(runtime, input);
  if (base != 0 && (base < 2 || base > 36)) runtime.refuse("a base of {}", base);
  std::optional<std::int64_t> number;
  if (input.is(Kind::kBigInt)) return input;
  if (input.is_integral()) number = input.as_integer();
  if (input.is(Kind::kFloat)) number = truncated(runtime, input.as_real());
  if (input.is(Kind::kString)) {
    number = whole_number(runtime, input.as_text(), base);
    if (!number) {
      if (const auto real = real_number(input.as_text())) number = truncated(runtime, *real);
    }
  }
  return number ? Value::integer(*number) : fallback;
}

Value float_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter float", arguments, {"default"});
  Value fallback = given[0] != nullptr ? *given[0] : Value::real(0);
  need_defined(runtime, input);
  if (input.is_number()) return Value::real(input.as_real());
  if (input.is(Kind::kBigInt)) {
    const double real = std::strtod(input.as_text().c_str(), nullptr);
    if (!std::isfinite(real)) runtime.refuse("an int that is too large for a float");
    return Value::real(real);
  }
  if (!input.is(Kind::kString)) return fallback;
  const auto number = real_number(input.as_text());
  return number ? Value::real(*number) : fallback;
}

Value absolute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter abs", arguments, {});
  const bool minus =
      input.is_number() && (input.is(Kind::kFloat) ? std::signbit(input.as_real()) : input.as_integer() < 0);
  return negate(runtime, input, minus);
}

Value round_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter round", arguments, {"precision", "method"});
  const std::int64_t precision = given[0] != nullptr ? need_integer(runtime, *given[0], "precision") : 0;
  const std::string method = given[1] != nullptr ? need_text(runtime, *given[1], "method") : "common";
  need_defined(runtime, input);
  if (!input.is_number() || precision < 0 || precision > 300)
    runtime.refuse("rounding {} to {} places is not known here", type_name(input), precision);
  if (method == "common") {
    if (input.is_integral()) return Value::integer(input.as_integer());
    if (!std::isfinite(input.as_real())) return input;
    // printf rounds the exact binary value, halves to even, as Python's round() does.
    return Value::real(std::strtod(fmt::format("{:.{}f}", input.as_real(), precision).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") runtime.refuse("the method \"{}\" of round is not known", method);
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = input.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter indent", arguments, {"width", "first", "blank"});
  std::string margin(4, ' ');
  if (given[0] != nullptr && given[0]->is(Kind::kString)) {
    margin = given[0]->as_text();
  } else if (given[0] != nullptr) {
    const std::int64_t width = need_integer(runtime, *given[0], "width");
    if (width > 10000) runtime.refuse("an indent of {}", width);
    margin.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool first = given[1] != nullptr && truthy(*given[1]), blank = given[2] != nullptr && truthy(*given[2]);
  const std::string text = need_text(runtime, input, "what indent gets") + "\n";
  const auto lines = split_lines(text, false);
  runtime.charge_text(text.size() + lines.size() * (margin.size() + 1));
  std::string result = first ? margin : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i > 0 && (blank || !lines[i].empty())) result += margin;
    result += lines[i];
  }
  return Value::text(std::move(result));
}

Value format_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty())
    runtime.refuse("the filter format takes values or names, not both");
  DictBuilder named(runtime);
  for (const auto& [name, value] : arguments.named) named.set(Value::text(name), value);
  const Value values = arguments.named.empty() ? runtime.tuple(arguments.positional) : named.done();
  return runtime.text(percent_format(runtime, str_of(runtime, input), values));
}

Value center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter center", arguments, {"width"});
  Callable method;
  method.name = "center";
  method.self = runtime.text(str_of(runtime, input));
  return call_method(runtime, method, {{given[0] != nullptr ? *given[0] : Value::integer(80)}, {}});
}

}  // namespace

std::vector<NamedFilter> scalar_filters() {
  return {{"trim", trim},
          {"replace", replace_filter},
          {"default", default_filter},
          {"d", default_filter},
          {"length", length_filter},
          {"count", length_filter},
          {"string", string_filter},
          {"safe", safe},
          {"escape", escape},
          {"e", escape},
          {"forceescape", force_escape},
          {"tojson", to_json},
          {"int", int_filter},
          {"float", float_filter},
          {"abs", absolute},
          {"round", round_filter},
          {"indent", indent},
          {"format", format_filter},
          {"center", center},
          {"upper", text_filter<upper>},
          {"lower", text_filter<lower>},
          {"title", text_filter<title_filter>},
          {"capitalize", text_filter<capitalize>}};
}
}  // namespace magister::jinja
