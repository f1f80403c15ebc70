// Methods of str, dict, list and tuple that templates may call.
#include <algorithm>
#include <array>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/string_methods.h"

namespace magister::jinja {
namespace {

bool in(std::string_view name, const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); }

constexpr std::array<std::string_view, 5> kDictKnown = {"items", "keys", "values", "get", "copy"};
constexpr std::array<std::string_view, 6> kDictForbidden = {"clear",      "pop",    "popitem",
                                                            "setdefault", "update", "fromkeys"};
constexpr std::array<std::string_view, 2> kTupleKnown = {"count", "index"};
constexpr std::array<std::string_view, 3> kListKnown = {"count", "index", "copy"};
constexpr std::array<std::string_view, 8> kListForbidden = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 8> kStringUnknown = {"encode",      "expandtabs", "format_map", "isidentifier",
                                                            "isprintable", "maketrans",  "translate",  "istitle"};
constexpr std::array<std::string_view, 8> kIntUnknown = {"as_integer_ratio", "bit_count",  "bit_length", "conjugate",
                                                         "denominator",      "from_bytes", "numerator",  "to_bytes"};
constexpr std::array<std::string_view, 6> kFloatUnknown = {"as_integer_ratio", "conjugate", "fromhex", "hex",
                                                           "is_integer",       "real"};

Value dict_view(const Value& dict, View::Part part) {
  auto view = std::make_shared<View>();
  view->part = part;
  view->depth = dict.depth() + 1;
  view->dict = dict;
  return {Kind::kView, std::move(view)};
}

Value dict_method(Runtime& runtime, const Callable& method, const Arguments& arguments) {
  if (method.name == "get") {
    const Bound given = bind_arguments(runtime, "dict.get()", arguments, {"key", "default"}, 1);
    if (!arguments.named.empty()) runtime.refuse("dict.get() takes no named arguments");
    need_hashable(runtime, *given[0]);
    const Value* found = find_in_dict(runtime, method.self.object<Dict>(), *given[0]);
    return found != nullptr ? *found : given[1] != nullptr ? *given[1] : Value::none();
  }
  bind_arguments(runtime, "dict." + method.name + "()", arguments, {});
  if (method.name == "copy") return method.self;  // neither of them can change
  return dict_view(method.self, method.name == "items"  ? View::Part::kItems
                                : method.name == "keys" ? View::Part::kKeys
                                                        : View::Part::kValues);
}

Value sequence_method(Runtime& runtime, const Callable& method, const Arguments& arguments) {
  if (method.name == "copy") return bind_arguments(runtime, "list.copy()", arguments, {}), method.self;
  const Bound given = bind_arguments(runtime, "list." + method.name + "()", arguments, {"value"}, 1);
  const Values items = items_of(runtime, method.self);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!equal(runtime, items[i], *given[0])) continue;
    if (method.name == "index") return Value::integer(static_cast<std::int64_t>(i));
    ++count;
  }
  if (method.name == "index") runtime.refuse("the value is not in the list");
  return Value::integer(count);
}

Value loop_method(Runtime& runtime, const Callable& method, const Arguments& arguments) {
  auto& loop = method.self.object<LoopState>();
  if (!arguments.named.empty()) runtime.refuse("loop.{}() takes no named arguments", method.name);
  if (method.name == "cycle") {
    if (arguments.positional.empty()) runtime.refuse("loop.cycle() needs arguments");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  const bool same = loop.changed_called && loop.changed.size() == arguments.positional.size() &&
                    std::equal(loop.changed.begin(), loop.changed.end(), arguments.positional.begin(),
                               [&](const Value& a, const Value& b) { return equal(runtime, a, b); });
  repr_of(runtime, runtime.tuple(arguments.positional));  // refuses this loop as an argument: it would contain itself
  loop.changed = arguments.positional;
  loop.changed_called = true;
  return Value::boolean(!same);
}

}  // namespace

MethodState method_state(Kind kind, std::string_view name) {
  const auto state = [&](const auto& known, const auto& forbidden) {
    return in(name, known) ? MethodState::kKnown : in(name, forbidden) ? MethodState::kForbidden : MethodState::kNone;
  };
  constexpr std::array<std::string_view, 0> none{};
  switch (kind) {
    case Kind::kDict:
      return state(kDictKnown, kDictForbidden);
    case Kind::kList:
      return state(kListKnown, kListForbidden);
    case Kind::kTuple:
    case Kind::kRange:
      return state(kTupleKnown, none);
    case Kind::kString:
      if (is_string_method(name)) return MethodState::kKnown;
      return in(name, kStringUnknown) ? MethodState::kUnknownHere : MethodState::kNone;
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kBool:
      return in(name, kIntUnknown) || name == "real" || name == "imag" ? MethodState::kUnknownHere : MethodState::kNone;
    case Kind::kFloat:
      return in(name, kFloatUnknown) || name == "imag" ? MethodState::kUnknownHere : MethodState::kNone;
    default:
      return MethodState::kNone;
  }
}

bool is_unknown_method_everywhere(std::string_view name) { return in(name, kStringUnknown) || in(name, kIntUnknown); }

Value call_method(Runtime& runtime, const Callable& method, const Arguments& arguments) {
  const Kind kind = method.self.kind();
  if (kind == Kind::kLoop) return loop_method(runtime, method, arguments);
  if (method_state(kind, method.name) != MethodState::kKnown) {
    runtime.refuse("the method {}.{}() is not known here", type_name(method.self), method.name);
  }
  if (kind == Kind::kDict) return dict_method(runtime, method, arguments);
  if (kind == Kind::kString) return string_method(runtime, method, arguments);
  return sequence_method(runtime, method, arguments);
}
}  // namespace magister::jinja
