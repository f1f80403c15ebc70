// "%s of %d" % (...) with the conversions s r d i u f F e E g G x X o c, and "{} of {name:>8}".format(...) with s d f F
// e E x X o b %, both with flags, width and precision. Anything else (attributes and items inside braces, nested
// fields) is refused.
#include "text/jinja/format.h"

#include <algorithm>
#include <cstdio>

#include "text/jinja/operations.h"
#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

constexpr int kMaxWidth = 10000;

struct Field {
  std::string fill = " ";
  char align = 0, sign = 0, type = 0;  // align < > ^ =; sign + or space; type as in Python, 0: none given
  bool alternate = false, comma = false;
  int width = 0, precision = -1;
};

std::string padded(const Field& field, std::string body, bool number) {
  const auto points = static_cast<int>(count_points(body));
  if (points >= field.width) return body;
  const int room = field.width - points;
  const char align = field.align != 0 ? field.align : number ? '>' : '<';
  const auto fill = [&](int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += field.fill;
    return text;
  };
  if (align == '<') return body + fill(room);
  if (align == '^') return fill(room / 2) + body + fill(room - room / 2);
  const std::size_t sign =
      align == '=' && !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ') ? 1 : 0;
  return body.substr(0, sign) + fill(room) + body.substr(sign);
}

std::string with_commas(std::string digits) {
  std::size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string signed_number(const Field& field, bool negative, std::string digits) {
  if (field.comma) digits = with_commas(std::move(digits));
  const std::string sign = negative ? "-" : field.sign != 0 ? std::string(1, field.sign) : "";
  return padded(field, sign + digits, true);
}

std::string integer_field(Runtime& runtime, const Field& field, std::int64_t number) {
  const bool negative = number < 0;
  const std::uint64_t size = negative ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::string digits;
  switch (field.type) {
    case 'x':
      digits = fmt::format("{}{:x}", field.alternate ? "0x" : "", size);
      break;
    case 'X':
      digits = fmt::format("{}{:X}", field.alternate ? "0X" : "", size);
      break;
    case 'o':
      digits = fmt::format("{}{:o}", field.alternate ? "0o" : "", size);
      break;
    case 'b':
      digits = fmt::format("{}{:b}", field.alternate ? "0b" : "", size);
      break;
    default:
      digits = std::to_string(size);
  }
  if (field.precision > 0 && static_cast<int>(digits.size()) < field.precision) {
    digits.insert(0, static_cast<std::size_t>(field.precision) - digits.size(), '0');
  }
  runtime.charge_text(digits.size());
  return signed_number(field, negative, std::move(digits));
}

std::string real_field(const Field& field, double number) {
  const bool negative = std::signbit(number);
  const double size = negative ? -number : number;
  if (field.type == 0) return signed_number(field, negative, repr_of_real(size));
  const char type = field.type == '%' ? 'f' : field.type;
  const char format[] = {'%', '.', '*', type, 0};
  char buffer[kMaxWidth + 400];
  std::snprintf(buffer, sizeof buffer, format, field.precision < 0 ? 6 : field.precision,
                field.type == '%' ? size * 100 : size);
  return signed_number(field, negative, std::string(buffer) + (field.type == '%' ? "%" : ""));
}

std::string text_field(const Field& field, const std::string& text) {
  const std::size_t end =
      field.precision < 0 ? text.size() : byte_of_point(text, static_cast<std::size_t>(field.precision));
  return padded(field, text.substr(0, end), false);
}

int read_number(Runtime& runtime, const std::string& text, std::size_t& at) {
  int number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + (text[at] - '0');
    if (number > kMaxWidth) runtime.refuse("a format wider than {}", kMaxWidth);
  }
  return number;
}

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

// Reads a field from after the % up to and including its conversion.
Field read_percent_field(Runtime& runtime, const std::string& text, std::size_t& at) {
  Field field;
  field.align = '>';  // % pads on the left, texts too
  bool zero = false, left = false;
  for (; at < text.size() && is_one_of(text[at], "-+ #0"); ++at) {
    if (text[at] == '-') left = true;
    if (text[at] == '0') zero = true;
    if (text[at] == '#') field.alternate = true;
    if (text[at] == '+' || (text[at] == ' ' && field.sign == 0)) field.sign = text[at];
  }
  field.width = read_number(runtime, text, at);
  if (at < text.size() && text[at] == '.') field.precision = read_number(runtime, text, ++at);
  if (at >= text.size() || !is_one_of(text[at], "sradiufFeEgGxXoc"))
    runtime.refuse("a % format that is not known here: {}", text);
  field.type = text[at++];
  if (zero && !is_one_of(field.type, "src")) field.fill = "0", field.align = '=';
  if (left) field.fill = " ", field.align = '<';
  return field;
}

std::string percent_value(Runtime& runtime, const Field& field, const Value& value) {
  const char type = field.type;
  if (type == 's') return text_field(field, str_of(runtime, value));
  if (type == 'r') return text_field(field, repr_of(runtime, value));
  need_defined(runtime, value);
  if (type == 'c' && value.is(Kind::kString) && count_points(value.as_text()) == 1)
    return text_field(field, value.as_text());
  if (!value.is_number() || is_one_of(type, "ac")) runtime.refuse("%{} of a {}", type, type_name(value));
  if (is_one_of(type, "diu") && value.is(Kind::kFloat)) {
    if (!(std::abs(value.as_real()) < 9e18)) runtime.refuse("%{} of a number beyond 64 bits", type);
    return integer_field(runtime, field, static_cast<std::int64_t>(value.as_real()));
  }
  if (is_one_of(type, "diuxXo")) {
    if (!value.is_integral()) runtime.refuse("%{} of a {}", type, type_name(value));
    return integer_field(runtime, field, value.as_integer());
  }
  return real_field(field, value.as_real());
}

// [[fill]align][sign][#][0][width][,][.precision][type]
Field read_brace_field(Runtime& runtime, const std::string& spec) {
  Field field;
  std::size_t at = 0;
  const std::size_t first = spec.empty() ? 0 : byte_of_point(spec, 1);
  if (first < spec.size() && is_one_of(spec[first], "<>^=")) {
    field.fill = spec.substr(0, first);
    field.align = spec[first];
    at = first + 1;
  } else if (!spec.empty() && is_one_of(spec[0], "<>^=")) {
    field.align = spec[at++];
  }
  if (at < spec.size() && is_one_of(spec[at], "+- ")) field.sign = spec[at] == '-' ? '\0' : spec[at], ++at;
  if (at < spec.size() && spec[at] == '#') field.alternate = true, ++at;
  if (at < spec.size() && spec[at] == '0') {
    if (field.align == 0) field.fill = "0", field.align = '=';
    ++at;
  }
  field.width = read_number(runtime, spec, at);
  if (at < spec.size() && spec[at] == ',') field.comma = true, ++at;
  if (at < spec.size() && spec[at] == '.') field.precision = read_number(runtime, spec, ++at);
  if (at < spec.size() && is_one_of(spec[at], "sdfFeExXob%")) field.type = spec[at++];
  const bool zeros_and_commas = field.comma && field.fill == "0";
  if (at != spec.size() || zeros_and_commas) runtime.refuse("the format \"{}\" is not known here", spec);
  return field;
}

std::string brace_value(Runtime& runtime, const Value& value, const std::string& spec) {
  if (spec.empty()) return str_of(runtime, value);
  const Field field = read_brace_field(runtime, spec);
  if (value.is(Kind::kString) && (field.type == 0 || field.type == 's') && field.align != '=')
    return text_field(field, value.as_text());
  const bool real =
      value.is(Kind::kFloat) || (value.is_integral() && is_one_of(field.type, "fFeE%") && field.type != 0);
  if (real && field.type != 'd' && (field.type != 0 || field.precision < 0) && !is_one_of(field.type, "xXobs")) {
    return real_field(field, value.as_real());
  }
  const bool whole = value.is(Kind::kInt) || (value.is(Kind::kBool) && field.type == 'd');
  if (whole && field.type != 's' && field.precision < 0) return integer_field(runtime, field, value.as_integer());
  runtime.refuse("the format \"{}\" of a {} is not known here", spec, type_name(value));
}

const Value& brace_argument(Runtime& runtime, const Arguments& values, const std::string& name, std::size_t& next) {
  const bool number = name.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    std::size_t at = 0;
    const std::size_t index = name.empty() ? next++ : static_cast<std::size_t>(read_number(runtime, name, at));
    if (index >= values.positional.size()) runtime.refuse("str.format() has no argument {}", index);
    return values.positional[index];
  }
  for (const auto& [key, value] : values.named) {
    if (key == name) return value;
  }
  runtime.refuse("str.format() has no argument \"{}\"", name);
}

}  // namespace

std::string percent_format(Runtime& runtime, const std::string& text, const Value& values) {
  const Values given = values.is(Kind::kTuple) ? values.object<Sequence>().items : Values{values};
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '%') {
      out += text[at++];
      continue;
    }
    ++at;
    if (at < text.size() && text[at] == '%') {
      out += text[at++];
      continue;
    }
    const Value* value = nullptr;
    if (at < text.size() && text[at] == '(') {
      const std::size_t end = text.find(')', at);
      if (end == std::string::npos || !values.is(Kind::kDict)) runtime.refuse("a % format with a name needs a dict");
      value = find_in_dict(runtime, values.object<Dict>(), Value::text(text.substr(at + 1, end - at - 1)));
      if (value == nullptr)
        runtime.refuse("the dict has no \"{}\" for the % format", text.substr(at + 1, end - at - 1));
      next = given.size();
      at = end + 1;
    }
    const Field field = read_percent_field(runtime, text, at);
    if (value == nullptr) {
      if (next >= given.size()) runtime.refuse("too few values for the % format");
      value = &given[next++];
    }
    out += percent_value(runtime, field, *value);
    runtime.charge_text(out.size() > runtime.options().max_bytes ? out.size() : 64);
  }
  const bool all_used =
      next >= given.size() || values.is(Kind::kDict) || values.is(Kind::kList) || values.is(Kind::kUndefined);
  if (!all_used) runtime.refuse("too many values for the % format");
  return out;
}

std::string brace_format(Runtime& runtime, const std::string& text, const Arguments& values) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
    } else if (c == '{') {
      const std::size_t end = text.find_first_of("{}", at + 1);
      if (end == std::string::npos || text[end] == '{')
        runtime.refuse("a field in braces that is not known here: {}", text);
      const std::string field = text.substr(at + 1, end - at - 1);
      const std::size_t colon = std::min(field.find(':'), field.size());
      if (field.substr(0, colon).find_first_of(".[!") != std::string::npos)
        runtime.refuse("the field {{{}}} is not known here", field);
      const Value& value = brace_argument(runtime, values, field.substr(0, colon), next);
      out += brace_value(runtime, value, colon < field.size() ? field.substr(colon + 1) : "");
      at = end + 1;
    } else {
      if (c == '}') runtime.refuse("a single }} in a format");
      out += c;
      ++at;
    }
    runtime.charge_text(out.size() > runtime.options().max_bytes ? out.size() : 0);
  }
  return out;
}
}  // namespace magister::jinja
