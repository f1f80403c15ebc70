// Filters, tests and functions of the environment, found by name. An unknown name is refused when a template is parsed;
// names that are looked up while it runs (map("upper"), select("string")) are refused then.
#pragma once

#include "text/jinja/runtime.h"

namespace magister::jinja {

using Filter = Value (*)(Runtime&, const Value& input, const Arguments&);
using Test = bool (*)(Runtime&, const Value& input, const Arguments&);
struct NamedFilter {
  std::string_view name;
  Filter run;
};

Filter find_filter(std::string_view name);  // null if there is none
Test find_test(std::string_view name);      // null if there is none
std::vector<std::string> filter_names();    // for "did you mean"
std::vector<std::string> test_names();
std::vector<NamedFilter> scalar_filters();  // filters_scalar.cpp
std::vector<NamedFilter> list_filters();    // filters_list.cpp
std::vector<NamedFilter> more_filters();    // filters_more.cpp
std::vector<NamedFilter> layout_filters();  // filters_layout.cpp: wordwrap, pprint

bool is_function(std::string_view name);  // range, namespace, raise_exception, ...
Value call_function(Runtime& runtime, const std::string& name, const Arguments& arguments);
}  // namespace magister::jinja
