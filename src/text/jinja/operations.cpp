// Truth, equality, order and iteration.
#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

bool is_sequence(const Value& value) { return value.is(Kind::kList) || value.is(Kind::kTuple); }
const Values& items(const Value& value) { return value.object<Sequence>().items; }

// Compares an int with a float without losing the int's last bits. Returns -1, 0 or 1; 2 if one is not a number.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer();
  const auto x = static_cast<long double>(a.as_real()), y = static_cast<long double>(b.as_real());
  const long double left = a.is_integral() ? static_cast<long double>(a.as_integer()) : x;
  const long double right = b.is_integral() ? static_cast<long double>(b.as_integer()) : y;
  if (std::isnan(left) || std::isnan(right)) return 2;
  return left < right ? -1 : left > right;
}

// At least one of the two is beyond 64 bits. A whole float is compared by its digits too.
bool equal_big_integers(const Value& a, const Value& b) {
  const auto digits = [](const Value& value) -> std::string {
    if (value.is(Kind::kBigInt)) return value.as_text();
    const bool is_finite = value.is(Kind::kFloat) && std::isfinite(value.as_real());
    return is_finite ? fmt::format("{:.0f}", value.as_real()) : "";
  };
  return digits(a) == digits(b);
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find_in_dict(runtime, b, key);
    if (other == nullptr || !equal(runtime, value, *other)) return false;
  }
  return true;
}

// In Python the keys and items of dicts are sets; the values are not.
bool equal_sets(Runtime& runtime, const Value& a, const Value& b) {
  const View &x = a.object<View>(), &y = b.object<View>();
  if (x.part == View::Part::kValues || y.part == View::Part::kValues || length_of(a) != length_of(b)) return false;
  const Values all = items_of(runtime, a);
  return std::all_of(all.begin(), all.end(), [&](const Value& one) { return contains(runtime, b, one); });
}

Value view_item(Runtime& runtime, const View& view, const std::pair<Value, Value>& entry) {
  if (view.part == View::Part::kKeys) return entry.first;
  if (view.part == View::Part::kValues) return entry.second;
  return runtime.tuple({entry.first, entry.second});
}

}  // namespace

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_integer() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kCallable:
    case Kind::kLoop:
      return true;
    default:
      return length_of(value).value_or(1) != 0;
  }
}

std::optional<std::int64_t> length_of(const Value& value) {
  const auto size = [](const auto& container) { return static_cast<std::int64_t>(container.size()); };
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<std::int64_t>(count_points(value.as_text()));
    case Kind::kList:
    case Kind::kTuple:
      return size(items(value));
    case Kind::kDict:
      return size(value.object<Dict>().entries);
    case Kind::kView:
      return size(value.object<View>().dict.object<Dict>().entries);
    case Kind::kRange:
      return value.object<Range>().count();
    case Kind::kLoop:
      return size(value.object<LoopState>().items);
    default:
      return std::nullopt;
  }
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) return equal_big_integers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      runtime.charge(a.as_text().size() / 64);
      return a.as_text() == b.as_text();
    case Kind::kList:
    case Kind::kTuple:
      if (a.pointer() == b.pointer()) return true;
      return std::equal(items(a).begin(), items(a).end(), items(b).begin(), items(b).end(),
                        [&](const Value& x, const Value& y) { return equal(runtime, x, y); });
    case Kind::kDict:
      return a.pointer() == b.pointer() || equal_dicts(runtime, a.object<Dict>(), b.object<Dict>());
    case Kind::kRange: {
      const Range &x = a.object<Range>(), &y = b.object<Range>();
      if (x.count() != y.count()) return false;
      return x.count() == 0 || (x.start == y.start && (x.count() == 1 || x.step == y.step));
    }
    case Kind::kView:
      return a.pointer() == b.pointer() || equal_sets(runtime, a, b);
    default:
      return a.pointer() == b.pointer();
  }
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge(1);
  need_defined(runtime, a);
  need_defined(runtime, b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    runtime.charge(std::min(a.as_text().size(), b.as_text().size()) / 64);
    return a.as_text() < b.as_text();  // UTF-8 bytes sort in the order of code points
  }
  if (is_sequence(a) && a.kind() == b.kind()) {
    const Values &x = items(a), &y = items(b);
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(runtime, x[i], y[i])) return less(runtime, x[i], y[i]);
    }
    return x.size() < y.size();
  }
  runtime.refuse("{} and {} have no order", type_name(a), type_name(b));
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kCallable:
      return false;
    default:
      return true;
  }
}

Values items_of(Runtime& runtime, const Value& value) {
  Values result;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString:
      runtime.charge(1 + value.as_text().size());
      for (const std::string_view point : points_of(value.as_text())) result.push_back(Value::text(std::string(point)));
      break;
    case Kind::kList:
    case Kind::kTuple:
      result = items(value);
      break;
    case Kind::kDict:
      for (const auto& [key, ignored] : value.object<Dict>().entries) result.push_back(key);
      break;
    case Kind::kView: {
      const View& view = value.object<View>();
      for (const auto& entry : view.dict.object<Dict>().entries) result.push_back(view_item(runtime, view, entry));
      break;
    }
    case Kind::kRange: {
      const Range& range = value.object<Range>();
      for (std::int64_t i = 0; i < range.count(); ++i) result.push_back(Value::integer(range.start + i * range.step));
      break;
    }
    case Kind::kIterator: {
      auto& iterator = value.object<Iterator>();
      result.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    default:
      runtime.refuse("{} cannot be walked through", type_name(value));
  }
  runtime.charge(1 + result.size());
  return result;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is(Kind::kString)) {
    need_defined(runtime, item);
    if (!item.is(Kind::kString)) runtime.refuse("only a str can be searched for in a str, not {}", type_name(item));
    runtime.charge(1 + container.as_text().size() / 64);
    return find(container.as_text(), item.as_text()) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) {
    need_hashable(runtime, item);
    return find_in_dict(runtime, container.object<Dict>(), item) != nullptr;
  }
  if (container.is(Kind::kList) || container.is(Kind::kTuple)) {
    return std::any_of(items(container).begin(), items(container).end(),
                       [&](const Value& one) { return equal(runtime, one, item); });
  }
  for (const Value& one : items_of(runtime, container)) {
    if (equal(runtime, one, item)) return true;
  }
  return false;
}

void need_defined(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::kUndefined)) return;
  runtime.refuse_text(value.has_object() ? value.as_text() : "an undefined value is used");
}

void need_hashable(Runtime& runtime, const Value& key) {
  const bool is_set = key.is(Kind::kView) && key.object<View>().part != View::Part::kValues;
  if (key.is(Kind::kList) || key.is(Kind::kDict) || is_set)
    runtime.refuse("{} cannot be a key (unhashable)", type_name(key));
  if (key.is(Kind::kTuple)) {
    for (const Value& part : items(key)) need_hashable(runtime, part);
  }
}

const Value* find_in_dict(Runtime& runtime, const Dict& dict, const Value& key) {
  if (key.is(Kind::kString)) {
    const auto found = dict.texts.find(key.as_text());
    return found == dict.texts.end() ? nullptr : &dict.entries[found->second].second;
  }
  if (dict.texts.size() == dict.entries.size()) return nullptr;
  for (const auto& [other, value] : dict.entries) {
    if (equal(runtime, other, key)) return &value;
  }
  return nullptr;
}

std::int64_t need_integer(Runtime& runtime, const Value& value, std::string_view what) {
  need_defined(runtime, value);
  if (!value.is_integral()) runtime.refuse("{} is not int but {}", what, type_name(value));
  return value.as_integer();
}

const std::string& need_text(Runtime& runtime, const Value& value, std::string_view what) {
  need_defined(runtime, value);
  if (!value.is(Kind::kString)) runtime.refuse("{} is not str but {}", what, type_name(value));
  return value.as_text();
}
}  // namespace magister::jinja
