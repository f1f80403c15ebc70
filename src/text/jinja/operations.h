// Python's operations on values: truth, equality, order, arithmetic, iteration, attributes, items and slices.
#pragma once

#include <optional>

#include "text/jinja/runtime.h"

namespace magister::jinja {

bool truthy(const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b);
bool less(Runtime& runtime, const Value& a, const Value& b);  // refuses values that Python cannot order
std::optional<std::int64_t> length_of(const Value& value);    // of values that have len()
bool is_iterable(const Value& value);
Values items_of(Runtime& runtime, const Value& value);  // refuses values that are not iterable; empties an iterator
bool contains(Runtime& runtime, const Value& container, const Value& item);
void need_defined(Runtime& runtime, const Value& value);
void need_hashable(Runtime& runtime, const Value& key);
const Value* find_in_dict(Runtime& runtime, const Dict& dict, const Value& key);

// operation is one of + - * / // % **
Value arithmetic(Runtime& runtime, std::string_view operation, const Value& a, const Value& b);
Value negate(Runtime& runtime, const Value& value, bool minus);

Value attribute_of(Runtime& runtime, const Value& value, const std::string& name);  // value.name
Value item_of(Runtime& runtime, const Value& value, const Value& key);              // value[key]
Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);

std::int64_t need_integer(Runtime& runtime, const Value& value, std::string_view what);
const std::string& need_text(Runtime& runtime, const Value& value, std::string_view what);

// methods.cpp: methods of Python's types. A method of state kKnown can be called.
enum class MethodState { kNone, kKnown, kUnknownHere, kForbidden };
MethodState method_state(Kind kind, std::string_view name);
bool is_unknown_method_everywhere(std::string_view name);  // Python has it, but no type does here: refused when parsed
Value call_method(Runtime& runtime, const Callable& method, const Arguments& arguments);
}  // namespace magister::jinja
