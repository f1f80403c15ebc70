// Methods of str: one small function each, looked up by name.
#include "text/jinja/string_methods.h"

#include <algorithm>
#include <map>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace magister::jinja {
namespace {

struct Call {
  Runtime& runtime;
  const std::string& name;
  const std::string& self;
  const Arguments& arguments;

  Bound bound(std::initializer_list<const char*> names, std::size_t required = 0) const {
    return bind_arguments(runtime, "str." + name + "()", arguments, names, required);
  }
  void nothing() const { bound({}); }
  Value text(std::string_view result) const { return runtime.text(std::string(result)); }
  const std::string& need(const Value& value) const {
    return need_text(runtime, value, "an argument of str." + name + "()");
  }
  std::int64_t number(const Value& value) const {
    return need_integer(runtime, value, "an argument of str." + name + "()");
  }
  // Searching backwards and by sets costs the product of both lengths in the worst case.
  void charge_product(std::size_t size) const { runtime.charge((self.size() / 64 + 1) * (size / 64 + 1)); }
  Value list(const std::vector<std::string_view>& parts) const {
    Values items;
    runtime.charge(parts.size() + self.size() / 64);
    for (const std::string_view part : parts) items.push_back(Value::text(std::string(part)));
    return runtime.list(std::move(items));
  }
};

Value stripped(const Call& call, Side side) {
  const Bound given = call.bound({"chars"});
  const std::string* set = given[0] == nullptr || given[0]->is(Kind::kNone) ? nullptr : &call.need(*given[0]);
  call.charge_product(set == nullptr ? 0 : set->size());
  return call.text(strip(call.self, set, side));
}

Value split_parts(const Call& call, bool from_right) {
  const Bound given = call.bound({"sep", "maxsplit"});
  const std::string* separator = given[0] == nullptr || given[0]->is(Kind::kNone) ? nullptr : &call.need(*given[0]);
  const std::int64_t limit = given[1] == nullptr ? -1 : call.number(*given[1]);
  if (separator != nullptr && separator->empty()) call.runtime.refuse("str.{}() with an empty separator", call.name);
  call.charge_product(separator == nullptr ? 0 : separator->size());
  return call.list(from_right ? split_from_right(call.self, separator, limit) : split(call.self, separator, limit));
}

// Returns the part of the text between the optional arguments start and end. begin: its first byte; possible: start <=
// end.
std::string_view window(const Call& call, const Value* start, const Value* end, std::size_t& begin, bool& possible) {
  const auto points = static_cast<std::int64_t>(count_points(call.self));
  const auto at = [&](const Value* value, std::int64_t fallback) {
    if (value == nullptr || value->is(Kind::kNone)) return fallback;
    std::int64_t place = std::max<std::int64_t>(call.number(*value), -points - 1);
    if (place < 0) place = std::max<std::int64_t>(place + points, 0);
    return place;
  };
  const std::int64_t from = at(start, 0), to = std::min(at(end, points), points);
  possible = from <= to;
  if (!possible) return {};
  begin = byte_of_point(call.self, static_cast<std::size_t>(from));
  const std::string_view rest = std::string_view(call.self).substr(begin);
  return rest.substr(0, byte_of_point(rest, static_cast<std::size_t>(to - from)));
}

Value has_affix(const Call& call, bool at_end) {
  const Bound given = call.bound({"prefix", "start", "end"}, 1);
  std::size_t begin = 0;
  bool possible = true;
  const std::string_view text = window(call, given[1], given[2], begin, possible);
  const auto matches = [&](const Value& affix) {
    const std::string& part = call.need(affix);
    return possible && (at_end ? text.ends_with(part) : text.starts_with(part));
  };
  if (!given[0]->is(Kind::kTuple)) return Value::boolean(matches(*given[0]));
  const Values& any = given[0]->object<Sequence>().items;
  return Value::boolean(std::any_of(any.begin(), any.end(), matches));
}

Value position(const Call& call, bool from_right, bool must) {
  const Bound given = call.bound({"sub", "start", "end"}, 1);
  const std::string& part = call.need(*given[0]);
  call.charge_product(part.size());
  std::size_t begin = 0;
  bool possible = true;
  const std::string_view text = window(call, given[1], given[2], begin, possible);
  const std::size_t at = !possible ? std::string_view::npos : from_right ? text.rfind(part) : find(text, part);
  if (at == std::string_view::npos) {
    if (must) call.runtime.refuse("str.{}(): the part is not in the text", call.name);
    return Value::integer(-1);
  }
  return Value::integer(static_cast<std::int64_t>(count_points(std::string_view(call.self).substr(0, begin + at))));
}

Value counted(const Call& call) {
  const Bound given = call.bound({"sub", "start", "end"}, 1);
  std::size_t begin = 0;
  bool possible = true;
  const std::string_view text = window(call, given[1], given[2], begin, possible);
  return Value::integer(possible ? static_cast<std::int64_t>(count_parts(text, call.need(*given[0]))) : 0);
}

Value replaced(const Call& call) {
  const Bound given = call.bound({"old", "new", "count"}, 2);
  const std::string &from = call.need(*given[0]), &to = call.need(*given[1]);
  const std::int64_t limit = given[2] == nullptr ? -1 : call.number(*given[2]);
  call.runtime.charge_text(call.self.size() + count_parts(call.self, from) * to.size());
  return Value::text(replace(call.self, from, to, limit));
}

Value joined(const Call& call) {
  const Bound given = call.bound({"iterable"}, 1);
  std::string result;
  bool first = true;
  need_defined(call.runtime, *given[0]);
  for (const Value& item : items_of(call.runtime, *given[0])) {
    if (!first) result += call.self;
    first = false;
    result += call.need(item);
    call.runtime.charge_text(result.size() > call.runtime.options().max_bytes ? result.size() : 0);
  }
  return call.runtime.text(std::move(result));
}

Value partitioned(const Call& call, bool from_right) {
  const Bound given = call.bound({"sep"}, 1);
  const std::string& separator = call.need(*given[0]);
  if (separator.empty()) call.runtime.refuse("str.{}() with an empty separator", call.name);
  call.charge_product(separator.size());
  const std::size_t at = from_right ? call.self.rfind(separator) : find(call.self, separator);
  if (at == std::string::npos) {
    Values parts = {call.text(""), call.text(""), call.text("")};
    parts[from_right ? 2 : 0] = call.text(call.self);
    return call.runtime.tuple(std::move(parts));
  }
  return call.runtime.tuple(
      {call.text(call.self.substr(0, at)), call.text(separator), call.text(call.self.substr(at + separator.size()))});
}

Value justified(const Call& call, char align) {
  const Bound given = call.bound({"width", "fillchar"}, 1);
  const std::string fill = given[1] == nullptr ? " " : call.need(*given[1]);
  const std::int64_t width = call.number(*given[0]), points = static_cast<std::int64_t>(count_points(call.self));
  if (count_points(fill) != 1) call.runtime.refuse("str.{}() fills with one character", call.name);
  if (width <= points) return call.text(call.self);
  call.runtime.charge_text(static_cast<std::uint64_t>(width));
  const std::int64_t room = width - points;
  // If the width is odd too, Python puts the odd fill character on the left.
  const std::int64_t left = align == '<' ? 0 : align == '>' ? room : room / 2 + (room & width & 1);
  std::string result;
  for (std::int64_t i = 0; i < left; ++i) result += fill;
  result += call.self;
  for (std::int64_t i = left; i < room; ++i) result += fill;
  return call.runtime.text(std::move(result));
}

Value zero_filled(const Call& call) {
  const Bound given = call.bound({"width"}, 1);
  const std::int64_t width = call.number(*given[0]), points = static_cast<std::int64_t>(count_points(call.self));
  if (width <= points) return call.text(call.self);
  call.runtime.charge_text(static_cast<std::uint64_t>(width));
  std::string result = call.self;
  const std::size_t sign = !result.empty() && (result[0] == '+' || result[0] == '-') ? 1 : 0;
  return call.runtime.text(result.insert(sign, static_cast<std::size_t>(width - points), '0'));
}

Value without_affix(const Call& call, bool at_end) {
  const Bound given = call.bound({"prefix"}, 1);
  const std::string& part = call.need(*given[0]);
  if (at_end ? !call.self.ends_with(part) : !call.self.starts_with(part)) return call.text(call.self);
  return call.text(call.self.substr(at_end ? 0 : part.size(), call.self.size() - part.size()));
}

// isdigit and its relatives depend on properties that are not available here: other numbers than decimals are refused.
Value all_are(const Call& call, std::uint8_t classes) {
  call.nothing();
  bool all = !call.self.empty();
  for (const std::string_view point : points_of(call.self)) {
    const std::uint8_t found = char_class(code_point_at(point, 0).value);
    if ((found & kNumber) != 0 && (found & kDigit) == 0 && (classes & kDigit) != 0) {
      call.runtime.refuse("str.{}() of the character {} is not known here", call.name, point);
    }
    all = all && (found & classes) != 0;
  }
  return Value::boolean(all);
}

Value all_spaces(const Call& call) {
  call.nothing();
  return Value::boolean(!call.self.empty() && strip(call.self, nullptr, Side::kBoth).empty());
}

Value lines(const Call& call) {
  const Bound given = call.bound({"keepends"});
  return call.list(split_lines(call.self, given[0] != nullptr && truthy(*given[0])));
}

using Method = Value (*)(const Call&);
const std::map<std::string_view, Method>& methods() {
  static const std::map<std::string_view, Method> kMethods = {
      {"strip", [](const Call& c) { return stripped(c, Side::kBoth); }},
      {"lstrip", [](const Call& c) { return stripped(c, Side::kLeft); }},
      {"rstrip", [](const Call& c) { return stripped(c, Side::kRight); }},
      {"split", [](const Call& c) { return split_parts(c, false); }},
      {"rsplit", [](const Call& c) { return split_parts(c, true); }},
      {"splitlines", lines},
      {"startswith", [](const Call& c) { return has_affix(c, false); }},
      {"endswith", [](const Call& c) { return has_affix(c, true); }},
      {"find", [](const Call& c) { return position(c, false, false); }},
      {"rfind", [](const Call& c) { return position(c, true, false); }},
      {"index", [](const Call& c) { return position(c, false, true); }},
      {"rindex", [](const Call& c) { return position(c, true, true); }},
      {"count", counted},
      {"replace", replaced},
      {"join", joined},
      {"partition", [](const Call& c) { return partitioned(c, false); }},
      {"rpartition", [](const Call& c) { return partitioned(c, true); }},
      {"removeprefix", [](const Call& c) { return without_affix(c, false); }},
      {"removesuffix", [](const Call& c) { return without_affix(c, true); }},
      {"ljust", [](const Call& c) { return justified(c, '<'); }},
      {"rjust", [](const Call& c) { return justified(c, '>'); }},
      {"center", [](const Call& c) { return justified(c, '^'); }},
      {"zfill", zero_filled},
      {"upper", [](const Call& c) { return c.nothing(), c.text(upper(c.self)); }},
      {"lower", [](const Call& c) { return c.nothing(), c.text(lower(c.self)); }},
      {"title", [](const Call& c) { return c.nothing(), c.text(title(c.self)); }},
      {"capitalize", [](const Call& c) { return c.nothing(), c.text(capitalize(c.self)); }},
      {"swapcase", [](const Call& c) { return c.nothing(), c.text(swap_case(c.self)); }},
      {"isalpha", [](const Call& c) { return all_are(c, kLetter); }},
      {"isdigit", [](const Call& c) { return all_are(c, kDigit); }},
      {"isdecimal", [](const Call& c) { return all_are(c, kDigit); }},
      {"isnumeric", [](const Call& c) { return all_are(c, kDigit); }},
      {"isalnum", [](const Call& c) { return all_are(c, kLetter | kDigit); }},
      {"isspace", all_spaces},
      {"isupper", [](const Call& c) { return c.nothing(), Value::boolean(is_upper(c.self)); }},
      {"islower", [](const Call& c) { return c.nothing(), Value::boolean(is_lower(c.self)); }},
      {"isascii", [](const Call& c) { return c.nothing(), Value::boolean(is_ascii(c.self)); }},
      {"format", [](const Call& c) { return c.runtime.text(brace_format(c.runtime, c.self, c.arguments)); }},
      {"casefold",
       [](const Call& c) {
         c.nothing();
         if (!is_ascii(c.self)) c.runtime.refuse("str.casefold() beyond ASCII is not known here");
         return c.text(lower(c.self));
       }},
  };
  return kMethods;
}

}  // namespace

bool is_string_method(std::string_view name) { return methods().contains(name); }

Value string_method(Runtime& runtime, const Callable& method, const Arguments& arguments) {
  const std::string& self = method.self.as_text();
  runtime.charge(1 + self.size() / 64);
  return methods().at(method.name)({runtime, method.name, self, arguments});
}
}  // namespace magister::jinja
