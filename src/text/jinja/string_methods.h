// Methods of str.
#pragma once

#include "text/jinja/runtime.h"

namespace magister::jinja {

bool is_string_method(std::string_view name);
Value string_method(Runtime& runtime, const Callable& method, const Arguments& arguments);
}  // namespace magister::jinja
