// Values as text: str(), repr(), json.dumps(), and the formats of "%" and str.format().
#pragma once

#include <string>

#include "text/jinja/runtime.h"

namespace magister::jinja {

std::string str_of(Runtime& runtime, const Value& value);
// strict: refuses an undefined value, which would be written as an empty text.
void need_written(const Runtime& runtime, const Value& value);
std::string repr_of(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false, indented = false, sort_keys = false;
  std::string indent, between = ", ", after_key = ": ";
};
std::string json_of(Runtime& runtime, const Value& value, const JsonStyle& style);

// text % values, where values is a tuple, a dict or a single value.
std::string percent_format(Runtime& runtime, const std::string& text, const Value& values);
// text.format(*positional, **named)
std::string brace_format(Runtime& runtime, const std::string& text, const Arguments& values);
}  // namespace magister::jinja
