// Tests by name: used after "is", and in select() and its relatives.
#include <map>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

template <Kind... kinds>
bool is_kind(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test", arguments, {});
  return (input.is(kinds) || ...);
}

// Accepts everything that has a length and items by index or key; an undefined value has both, as in the reference.
bool is_sequence(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return is_kind<Kind::kUndefined, Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kRange>(runtime, input,
                                                                                                        arguments);
}

bool iterable(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test iterable", arguments, {});
  return is_iterable(input);
}

bool defined(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return !is_kind<Kind::kUndefined>(runtime, input, arguments);
}

template <bool flag>
bool is_flag(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test", arguments, {});
  return input.is(Kind::kBool) && (input.as_integer() != 0) == flag;
}

const Value& other(Runtime& runtime, const Arguments& arguments) {
  return *bind_arguments(runtime, "the test", arguments, {"other"}, 1)[0];
}

bool is_equal(Runtime& runtime, const Value& a, const Arguments& arguments) {
  return equal(runtime, a, other(runtime, arguments));
}
bool not_equal(Runtime& runtime, const Value& a, const Arguments& arguments) {
  return !is_equal(runtime, a, arguments);
}
bool is_less(Runtime& runtime, const Value& a, const Arguments& arguments) {
  return less(runtime, a, other(runtime, arguments));
}
bool greater(Runtime& runtime, const Value& a, const Arguments& arguments) {
  return less(runtime, other(runtime, arguments), a);
}
bool at_most(Runtime& runtime, const Value& a, const Arguments& arguments) {
  return is_less(runtime, a, arguments) || is_equal(runtime, a, arguments);
}
bool at_least(Runtime& runtime, const Value& a, const Arguments& arguments) {
  return greater(runtime, a, arguments) || is_equal(runtime, a, arguments);
}

bool is_in(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return contains(runtime, other(runtime, arguments), input);
}

bool same_as(Runtime& runtime, const Value& a, const Arguments& arguments) {
  const Value& b = other(runtime, arguments);
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kNone) || a.is(Kind::kBool)) return a.as_integer() == b.as_integer();
  // Python keeps one object for each small whole number; for other equal numbers and texts the result depends on it.
  if (a.is(Kind::kInt) && (a.as_integer() != b.as_integer() || (a.as_integer() >= -5 && a.as_integer() <= 256)))
    return a.as_integer() == b.as_integer();
  if (a.is_number() || a.is(Kind::kBigInt) || a.is(Kind::kString))
    runtime.refuse("\"sameas\" of a {} depends on the interpreter (so the text would); use ==", type_name(a));
  return a.pointer() == b.pointer();
}

template <int wanted>
bool parity(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test", arguments, {});
  return equal(runtime, arithmetic(runtime, "%", input, Value::integer(2)), Value::integer(wanted));
}

bool divisible_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return equal(runtime, arithmetic(runtime, "%", input, other(runtime, arguments)), Value::integer(0));
}

bool in_upper_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test upper", arguments, {});
  return is_upper(str_of(runtime, input));
}
bool in_lower_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test lower", arguments, {});
  return is_lower(str_of(runtime, input));
}
bool escaped(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test escaped", arguments, {});
  return input.is_markup();
}
bool known_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test filter", arguments, {});
  return find_filter(need_text(runtime, input, "a filter's name")) != nullptr;
}
bool known_test(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the test test", arguments, {});
  return find_test(need_text(runtime, input, "a test's name")) != nullptr;
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> kTests = {
      {"defined", defined},
      {"undefined", is_kind<Kind::kUndefined>},
      {"none", is_kind<Kind::kNone>},
      {"string", is_kind<Kind::kString>},
      {"mapping", is_kind<Kind::kDict>},
      {"integer", is_kind<Kind::kInt, Kind::kBigInt>},
      {"float", is_kind<Kind::kFloat>},
      {"boolean", is_kind<Kind::kBool>},
      {"callable", is_kind<Kind::kCallable>},
      {"number", is_kind<Kind::kInt, Kind::kBigInt, Kind::kFloat, Kind::kBool>},
      {"sequence", is_sequence},
      {"iterable", iterable},
      {"true", is_flag<true>},
      {"false", is_flag<false>},
      {"odd", parity<1>},
      {"even", parity<0>},
      {"divisibleby", divisible_by},
      {"in", is_in},
      {"sameas", same_as},
      {"upper", in_upper_case},
      {"lower", in_lower_case},
      {"escaped", escaped},
      {"filter", known_filter},
      {"test", known_test},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"==", is_equal},
      {"ne", not_equal},
      {"!=", not_equal},
      {"lt", is_less},
      {"lessthan", is_less},
      {"<", is_less},
      {"gt", greater},
      {"greaterthan", greater},
      {">", greater},
      {"le", at_most},
      {"<=", at_most},
      {"ge", at_least},
      {">=", at_least}};
  return kTests;
}

}  // namespace

Test find_test(std::string_view name) {
  const auto found = tests().find(name);
  return found == tests().end() ? nullptr : found->second;
}

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : tests()) names.emplace_back(name);
  return names;
}
}  // namespace magister::jinja
