// Functions of the environment: range, dict, namespace, raise_exception, strftime_now.
#include <ctime>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"

namespace magister::jinja {
namespace {

Value make_range(Runtime& runtime, const Arguments& arguments) {
  if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3) {
    runtime.refuse("range() takes one to three numbers");
  }
  std::vector<std::int64_t> numbers;
  for (const Value& value : arguments.positional)
    numbers.push_back(need_integer(runtime, value, "an argument of range()"));
  auto range = std::make_shared<Range>();
  range->start = numbers.size() == 1 ? 0 : numbers[0];
  range->stop = numbers.size() == 1 ? numbers[0] : numbers[1];
  range->step = numbers.size() == 3 ? numbers[2] : 1;
  if (range->step == 0) runtime.refuse("range() with step 0");
  constexpr std::int64_t kFar = std::int64_t{1} << 60;  // so that no difference overflows
  for (const std::int64_t number : {range->start, range->stop, range->step}) {
    if (number > kFar || number < -kFar) runtime.refuse("range() up to {}", number);
  }
  if (range->count() > kMaxRange) runtime.refuse("range() over {} numbers, more than {}", range->count(), kMaxRange);
  return {Kind::kRange, std::move(range)};
}

// dict(mapping or pairs, **named).
Value make_dict(Runtime& runtime, const Arguments& arguments) {
  DictBuilder dict(runtime);
  if (arguments.positional.size() > 1) runtime.refuse("dict() takes one value and names");
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.object<Dict>().entries) dict.set(key, value);
      continue;
    }
    for (const Value& pair : items_of(runtime, source)) {
      const Values parts = items_of(runtime, pair);
      if (parts.size() != 2) runtime.refuse("dict() needs pairs");
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::text(name), value);
  return dict.done();
}

Value make_space(Runtime& runtime, const Arguments& arguments) {
  const Value dict = make_dict(runtime, arguments);
  Value space = runtime.make_namespace();
  for (const auto& [key, value] : dict.object<Dict>().entries) {
    const std::string& name = need_text(runtime, key, "a name in namespace()");
    if (name.starts_with('_')) runtime.refuse("the attribute \"{}\" of a namespace begins with an underscore", name);
    space.object<Namespace>().attributes.emplace_back(name, value);
  }
  return space;
}

Value formatted_time(Runtime& runtime, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "strftime_now()", arguments, {"format"}, 1);
  const std::string& format = need_text(runtime, *given[0], "the format of strftime_now()");
  if (!runtime.options().now) runtime.refuse("the template asks for today's date and none is set");
  if (format.size() > 1000) runtime.refuse("a date format of {} bytes", format.size());
  const auto seconds = static_cast<std::time_t>(*runtime.options().now);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) runtime.refuse("the date that is set lies outside of the calendar");
  for (std::size_t at = format.find('%'); at != std::string::npos; at = format.find('%', at + 2)) {
    // Other directives depend on the machine's time zone, locale or C library, or are Python's own.
    const char directive = at + 1 < format.size() ? format[at + 1] : ' ';
    const bool known = std::string_view("aAbBdHIjmMpSUwWyYcxX%DeFhnRtTuVG-").find(directive) != std::string_view::npos;
    const bool bare = directive == '-' && at + 2 < format.size() &&
                      std::string_view("dmHIMSj").find(format[at + 2]) != std::string_view::npos;
    if (!known || (directive == '-' && !bare)) runtime.refuse("the date format %{} is not known here", directive);
  }
  char buffer[8192];
  return runtime.text(std::string(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &parts)));
}

}  // namespace

bool is_function(std::string_view name) {
  return name == "range" || name == "dict" || name == "namespace" || name == "raise_exception" ||
         name == "strftime_now";
}

Value call_function(Runtime& runtime, const std::string& name, const Arguments& arguments) {
  if (name == "range") return make_range(runtime, arguments);
  if (name == "dict") return make_dict(runtime, arguments);
  if (name == "namespace") return make_space(runtime, arguments);
  if (name == "strftime_now") return formatted_time(runtime, arguments);
  const Bound given = bind_arguments(runtime, "raise_exception()", arguments, {"message"}, 1);
  runtime.raise(str_of(runtime, *given[0]));
}
}  // namespace magister::jinja
