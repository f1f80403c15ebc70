// value.name, value[key] and value[start:stop:step].
#include <algorithm>

#include "text/jinja/operations.h"
#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

Value missing(Runtime& runtime, const Value& value, std::string_view name) {
  runtime.charge(1);
  return Value::undefined(
      fmt::format("'{} object' has no attribute or item '{}'", type_name(value), name.substr(0, 100)));
}

Value namespace_attribute(Runtime& runtime, const Namespace& space, std::string_view name) {
  runtime.charge(space.attributes.size() / 16);
  for (const auto& [key, value] : space.attributes) {
    if (key == name) return value;
  }
  return Value();
}

Value loop_attribute(Runtime& runtime, const Value& loop, const std::string& name) {
  const auto& state = loop.object<LoopState>();
  const auto index = static_cast<std::int64_t>(state.index), length = static_cast<std::int64_t>(state.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "depth") return Value::integer(state.level + 1);
  if (name == "depth0") return Value::integer(state.level);
  if (name == "previtem")
    return index == 0 ? Value::undefined("there is no previous item") : state.items[state.index - 1];
  if (name == "nextitem")
    return index + 1 == length ? Value::undefined("there is no next item") : state.items[state.index + 1];
  if (name == "cycle" || name == "changed") {
    return runtime.method(loop, name);
  }
  return missing(runtime, loop, name);
}

// Python's getattr(), without items. Nothing: there is no such attribute.
std::optional<Value> python_attribute(Runtime& runtime, const Value& value, const std::string& name) {
  need_defined(runtime, value);
  if (value.is(Kind::kLoop)) return loop_attribute(runtime, value, name);
  if (value.is(Kind::kNamespace)) {
    Value found = namespace_attribute(runtime, value.object<Namespace>(), name);
    if (!found.is(Kind::kUndefined) || found.has_object()) return found;
    return std::nullopt;
  }
  if (value.is(Kind::kTuple) && value.object<Sequence>().is_group && (name == "grouper" || name == "list"))
    return value.object<Sequence>().items[name == "list" ? 1 : 0];
  switch (method_state(value.kind(), name)) {
    case MethodState::kKnown:
    case MethodState::kUnknownHere:
      return runtime.method(value, name);
    case MethodState::kForbidden:
      return Value::undefined(fmt::format("'{}' of a {} is not allowed in templates", name, type_name(value)));
    case MethodState::kNone:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Value> python_item(Runtime& runtime, const Value& value, const Value& key) {
  need_defined(runtime, value);
  if (value.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
    const Value* found = find_in_dict(runtime, value.object<Dict>(), key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!key.is_integral()) return std::nullopt;
  std::int64_t at = key.as_integer();
  const bool indexed =
      value.is(Kind::kString) || value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange);
  if (!indexed) return std::nullopt;
  const std::int64_t length = *length_of(value);
  if (value.is(Kind::kString)) runtime.charge(value.as_text().size() / 64);
  if (at < 0) at += length;
  if (at < 0 || at >= length) return std::nullopt;
  if (value.is(Kind::kRange)) return Value::integer(value.object<Range>().start + at * value.object<Range>().step);
  if (!value.is(Kind::kString)) return value.object<Sequence>().items[static_cast<std::size_t>(at)];
  const std::string& text = value.as_text();
  const std::size_t begin = byte_of_point(text, static_cast<std::size_t>(at));
  return Value::text(text.substr(begin, byte_of_point(std::string_view(text).substr(begin), 1)));
}

struct Cut {
  std::int64_t start, stop, step, count;
};

// Python's rules for absent and out-of-range ends.
Cut cut_of(Runtime& runtime, const Value& start, const Value& stop, const Value& step, std::int64_t length) {
  const auto number = [&](const Value& value, std::int64_t fallback) {
    return value.is(Kind::kNone) ? fallback : need_integer(runtime, value, "an end of a slice");
  };
  Cut cut{};
  cut.step = number(step, 1);
  if (cut.step == 0) runtime.refuse("a slice with step 0");
  cut.step = std::clamp<std::int64_t>(cut.step, -(length + 1), length + 1);
  const std::int64_t low = cut.step > 0 ? 0 : -1, high = cut.step > 0 ? length : length - 1;
  const auto bounded = [&](const Value& value, std::int64_t fallback) {
    if (value.is(Kind::kNone)) return fallback;
    std::int64_t at = std::max<std::int64_t>(need_integer(runtime, value, "an end of a slice"), -length - 1);
    if (at < 0) at += length;
    return std::clamp(at, low, high);
  };
  cut.start = bounded(start, cut.step > 0 ? low : high);
  cut.stop = bounded(stop, cut.step > 0 ? high : low);
  Range range;
  range.start = cut.start;
  range.stop = cut.stop;
  range.step = cut.step;
  cut.count = range.count();
  return cut;
}

}  // namespace

// As in the reference environment: Python's attributes first, then items.
Value attribute_of(Runtime& runtime, const Value& value, const std::string& name) {
  if (const auto found = python_attribute(runtime, value, name)) return *found;
  if (const auto found = python_item(runtime, value, Value::text(name))) return *found;
  return missing(runtime, value, name);
}

// Items first, then attributes: {}['items'] is a method.
Value item_of(Runtime& runtime, const Value& value, const Value& key) {
  if (const auto found = python_item(runtime, value, key)) return *found;
  if (key.is(Kind::kString)) {
    if (const auto found = python_attribute(runtime, value, key.as_text())) return *found;
    return missing(runtime, value, key.as_text());
  }
  return missing(runtime, value, key.is_integral() ? std::to_string(key.as_integer()) : type_name(key));
}

Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step) {
  need_defined(runtime, value);
  const bool sliced =
      value.is(Kind::kString) || value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange);
  if (!sliced) runtime.refuse("{} cannot be sliced", type_name(value));
  if (value.is(Kind::kString)) runtime.charge(value.as_text().size() / 8);
  const Cut cut = cut_of(runtime, start, stop, step, *length_of(value));
  const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(cut.start + i * cut.step); };
  if (value.is(Kind::kRange)) {
    const Range& old = value.object<Range>();
    auto range = std::make_shared<Range>();
    range->start = old.start + cut.start * old.step;
    range->stop = old.start + cut.stop * old.step;
    range->step = old.step * cut.step;
    return {Kind::kRange, std::move(range)};
  }
  if (value.is(Kind::kString)) {
    const std::string& text = value.as_text();
    if (cut.step == 1 || cut.count == 0) {
      const std::size_t begin = byte_of_point(text, cut.count == 0 ? 0 : at(0));
      const auto points = static_cast<std::size_t>(cut.count);
      return runtime.text(text.substr(begin, byte_of_point(std::string_view(text).substr(begin), points)));
    }
    const auto points = points_of(text);
    std::string result;
    for (std::int64_t i = 0; i < cut.count; ++i) result += points[at(i)];
    return runtime.text(std::move(result));
  }
  const Values& old = value.object<Sequence>().items;
  Values items;
  for (std::int64_t i = 0; i < cut.count; ++i) items.push_back(old[at(i)]);
  return value.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}
}  // namespace magister::jinja
