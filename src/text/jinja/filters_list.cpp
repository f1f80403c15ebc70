// Filters over lists and dicts.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"

namespace magister::jinja {
namespace {

Value lower_if_text(Runtime& runtime, const Value& value) {
  return value.is(Kind::kString) ? runtime.text(lower(value.as_text())) : value;
}

// Follows attribute="a.b.0" part by part, starting at an item; an int is an index.
Value follow(Runtime& runtime, Value value, const Value& path, const Value* fallback) {
  std::vector<Value> parts;
  if (path.is(Kind::kString)) {
    const std::string dot = ".";
    for (const std::string_view part : split(path.as_text(), &dot, -1)) {
      const bool number =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts.push_back(number ? Value::integer(std::stoll(std::string(part))) : Value::text(std::string(part)));
    }
  } else if (!path.is(Kind::kNone)) {
    parts.push_back(Value::integer(need_integer(runtime, path, "attribute")));
  }
  for (const Value& part : parts) {
    value = item_of(runtime, value, part);
    if (value.is(Kind::kUndefined) && fallback != nullptr) value = *fallback;
  }
  return value;
}

using Key = std::pair<Value, Value>;  // sort key, item
std::vector<Key> keyed(Runtime& runtime, const Value& input, const Value* attribute, bool case_sensitive) {
  std::vector<Key> keys;
  for (const Value& item : items_of(runtime, input)) {
    Value key = attribute == nullptr ? item : follow(runtime, item, *attribute, nullptr);
    keys.emplace_back(case_sensitive ? key : lower_if_text(runtime, key), item);
  }
  return keys;
}

// attribute="a,b.c": the first attribute decides, then the next.
std::vector<Key> keyed_by_several(Runtime& runtime, const Value& input, const std::string& attributes,
                                  bool case_sensitive) {
  const std::string comma = ",";
  const std::vector<std::string_view> names = split(attributes, &comma, -1);
  std::vector<Key> keys;
  for (const Value& item : items_of(runtime, input)) {
    Values parts;
    for (const std::string_view name : names) {
      const Value part = follow(runtime, item, Value::text(std::string(name)), nullptr);
      parts.push_back(case_sensitive ? part : lower_if_text(runtime, part));
    }
    keys.emplace_back(runtime.list(std::move(parts)), item);
  }
  return keys;
}

// With an inconsistent order (nan) std::sort may leave the list's bounds; a merge sort never does. Jinja's sort
// compares lists of one key each, where equal keys need no order (none and none); groupby and dictsort compare the keys
// themselves.
enum class Order { kOfKeys, kOfListsOfKeys };
void stable_sort_keys(Runtime& runtime, std::vector<Key>& keys, bool reverse, Order order) {
  const auto before = [&](const Key& a, const Key& b) {
    const Value &left = reverse ? b.first : a.first, &right = reverse ? a.first : b.first;
    return !(order == Order::kOfListsOfKeys && equal(runtime, left, right)) && less(runtime, left, right);
  };
  std::stable_sort(keys.begin(), keys.end(), before);
}

bool flag(const Value* value) { return value != nullptr && truthy(*value); }
const Value* unless_none(const Value* value) { return value == nullptr || value->is(Kind::kNone) ? nullptr : value; }

Value join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter join", arguments, {"d", "attribute"});
  const std::string between = given[0] == nullptr ? "" : str_of(runtime, *given[0]);
  std::string result;
  bool first = true;
  for (const Value& item : items_of(runtime, input)) {
    if (!first) result += between;
    first = false;
    const Value part = unless_none(given[1]) == nullptr ? item : follow(runtime, item, *given[1], nullptr);
    need_written(runtime, part);
    result += str_of(runtime, part);
    runtime.charge_text(result.size() > runtime.options().max_bytes ? result.size() : 0);
  }
  return runtime.text(std::move(result));
}

Value items_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter items", arguments, {});
  if (input.is(Kind::kUndefined)) return runtime.iterator({});
  if (!input.is(Kind::kDict)) runtime.refuse("only a dict has items, not {}", type_name(input));
  Values pairs;
  for (const auto& [key, value] : input.object<Dict>().entries) pairs.push_back(runtime.tuple({key, value}));
  return runtime.iterator(std::move(pairs));
}

Value dict_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given[1] == nullptr ? "key" : need_text(runtime, *given[1], "by");
  if (by != "key" && by != "value") runtime.refuse("dictsort sorts by key or by value");
  need_defined(runtime, input);
  if (!input.is(Kind::kDict)) runtime.refuse("only a dict can be sorted by its keys, not {}", type_name(input));
  std::vector<Key> keys;
  for (const auto& [key, value] : input.object<Dict>().entries) {
    const Value& what = by == "key" ? key : value;
    keys.emplace_back(flag(given[0]) ? what : lower_if_text(runtime, what), runtime.tuple({key, value}));
  }
  stable_sort_keys(runtime, keys, flag(given[2]), Order::kOfKeys);
  Values sorted;
  for (Key& key : keys) sorted.push_back(std::move(key.second));
  return runtime.list(std::move(sorted));
}

Value sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Value* attribute = unless_none(given[2]);
  const bool several =
      attribute != nullptr && attribute->is(Kind::kString) && attribute->as_text().find(',') != std::string::npos;
  auto keys = several ? keyed_by_several(runtime, input, attribute->as_text(), flag(given[1]))
                      : keyed(runtime, input, attribute, flag(given[1]));
  stable_sort_keys(runtime, keys, flag(given[0]), Order::kOfListsOfKeys);
  Values sorted;
  for (Key& key : keys) sorted.push_back(std::move(key.second));
  return runtime.list(std::move(sorted));
}

Value unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter unique", arguments, {"case_sensitive", "attribute"});
  DictBuilder seen(runtime);
  const Value dict = seen.done();
  Values kept;
  for (const auto& [key, item] : keyed(runtime, input, unless_none(given[1]), flag(given[0]))) {
    need_hashable(runtime, key);
    if (find_in_dict(runtime, dict.object<Dict>(), key) != nullptr) continue;
    seen.set(key, Value::none());
    kept.push_back(item);
  }
  return runtime.iterator(std::move(kept));
}

Value extreme(Runtime& runtime, const Value& input, const Arguments& arguments, bool largest) {
  const Bound given = bind_arguments(runtime, "the filters min and max", arguments, {"case_sensitive", "attribute"});
  const auto keys = keyed(runtime, input, unless_none(given[1]), flag(given[0]));
  if (keys.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Key* best = keys.data();
  for (const Key& key : keys) {
    if (largest ? less(runtime, best->first, key.first) : less(runtime, key.first, best->first)) best = &key;
  }
  return best->second;
}

// Groups neighbours with equal keys in the sorted list. The key shown is that of the group's first item, in its own
// case.
Value group_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given =
      bind_arguments(runtime, "the filter groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = unless_none(given[1]);
  std::vector<Key> keys;
  for (const Value& item : items_of(runtime, input)) {
    const Value key = follow(runtime, item, *given[0], fallback);
    keys.emplace_back(flag(given[2]) ? key : lower_if_text(runtime, key), item);
  }
  stable_sort_keys(runtime, keys, false, Order::kOfKeys);
  Values groups;
  for (std::size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
    Values items;
    for (; end < keys.size() && equal(runtime, keys[begin].first, keys[end].first); ++end)
      items.push_back(keys[end].second);
    groups.push_back(runtime.group(follow(runtime, keys[begin].second, *given[0], fallback), std::move(items)));
  }
  return runtime.list(std::move(groups));
}

Value sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter sum", arguments, {"attribute", "start"});
  Value total = given[1] == nullptr ? Value::integer(0) : *given[1];
  if (total.is(Kind::kString)) runtime.refuse("sum of texts is not possible");
  for (const Value& item : items_of(runtime, input)) {
    total = arithmetic(runtime, "+", total,
                       unless_none(given[0]) == nullptr ? item : follow(runtime, item, *given[0], nullptr));
  }
  return total;
}

Value list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter list", arguments, {});
  return runtime.list(items_of(runtime, input));
}

Value first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter first", arguments, {});
  if (input.is(Kind::kIterator)) {  // takes one item and leaves the rest
    auto& iterator = input.object<Iterator>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  if (input.is(Kind::kString) || input.is(Kind::kList)) {
    const Value found = item_of(runtime, input, Value::integer(0));
    return found.is(Kind::kUndefined) && *length_of(input) == 0 ? Value::undefined("No first item, sequence was empty.")
                                                                : found;
  }
  const Values all = items_of(runtime, input);
  return all.empty() ? Value::undefined("No first item, sequence was empty.") : all.front();
}

void need_reversible(Runtime& runtime, const Value& input) {
  need_defined(runtime, input);
  if (input.is(Kind::kIterator) || input.is(Kind::kLoop)) runtime.refuse("a {} has no last item", type_name(input));
}

Value last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter last", arguments, {});
  if (input.is(Kind::kUndefined)) return Value::undefined("No last item, sequence was empty.");
  need_reversible(runtime, input);
  const Values all = items_of(runtime, input);
  return all.empty() ? Value::undefined("No last item, sequence was empty.") : all.back();
}

Value reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter reverse", arguments, {});
  need_defined(runtime, input);
  Values all = items_of(runtime, input);
  std::reverse(all.begin(), all.end());
  if (!input.is(Kind::kString)) return runtime.iterator(std::move(all));
  std::string text;
  for (const Value& point : all) text += point.as_text();
  return runtime.text(std::move(text));
}

Value batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = need_integer(runtime, *given[0], "linecount");
  if (size < 1 || size > kMaxRange) runtime.refuse("batches of {}", size);
  Values batches, one;
  for (const Value& item : items_of(runtime, input)) {
    if (static_cast<std::int64_t>(one.size()) == size) batches.push_back(runtime.list(std::exchange(one, {})));
    one.push_back(item);
  }
  if (!one.empty()) {
    if (unless_none(given[1]) != nullptr) one.resize(static_cast<std::size_t>(size), *given[1]);
    batches.push_back(runtime.list(std::move(one)));
  }
  return runtime.iterator(std::move(batches));
}

Value map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  Values mapped;
  if (!truthy(input)) return runtime.iterator({});  // null and undefined count as empty
  if (arguments.positional.empty()) {
    const Bound given = bind_arguments(runtime, "the filter map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : items_of(runtime, input)) mapped.push_back(follow(runtime, item, *given[0], given[1]));
    return runtime.iterator(std::move(mapped));
  }
  const std::string& name = need_text(runtime, arguments.positional[0], "the filter's name in map");
  const Filter filter = find_filter(name);
  if (filter == nullptr) runtime.refuse("the filter \"{}\" is not known here", name);
  const Arguments rest = {{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : items_of(runtime, input)) mapped.push_back(filter(runtime, item, rest));
  return runtime.iterator(std::move(mapped));
}

template <bool keep, bool by_attribute>
Value choose(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!truthy(input)) return runtime.iterator({});  // null and undefined count as empty
  constexpr std::size_t skipped = by_attribute ? 1 : 0;
  const Values& given = arguments.positional;
  if (given.size() < skipped) runtime.refuse("selectattr and rejectattr need an attribute");
  Test test = nullptr;
  Arguments rest;
  if (given.size() > skipped) {
    const std::string& name = need_text(runtime, given[skipped], "the test's name");
    test = find_test(name);
    if (test == nullptr) runtime.refuse("the test \"{}\" is not known here", name);
    rest = {{given.begin() + skipped + 1, given.end()}, arguments.named};
  }
  Values kept;
  for (const Value& item : items_of(runtime, input)) {
    const Value value = by_attribute ? follow(runtime, item, given[0], nullptr) : item;
    if ((test == nullptr ? truthy(value) : test(runtime, value, rest)) == keep) kept.push_back(item);
  }
  return runtime.iterator(std::move(kept));
}

Value attr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter attr", arguments, {"name"}, 1);
  const std::string& name = need_text(runtime, *given[0], "name");
  // Looks up attributes only, no items: the attributes of a dict are its methods.
  if (input.is(Kind::kDict) && method_state(Kind::kDict, name) == MethodState::kNone)
    return Value::undefined("no attribute " + name.substr(0, 100));
  return attribute_of(runtime, input, name);
}

}  // namespace

std::vector<NamedFilter> list_filters() {
  return {{"join", join},
          {"items", items_filter},
          {"dictsort", dict_sort},
          {"sort", sort},
          {"groupby", group_by},
          {"unique", unique},
          {"min", [](Runtime& r, const Value& v, const Arguments& a) { return extreme(r, v, a, false); }},
          {"max", [](Runtime& r, const Value& v, const Arguments& a) { return extreme(r, v, a, true); }},
          {"sum", sum},
          {"list", list},
          {"first", first},
          {"last", last},
          {"reverse", reverse},
          {"batch", batch},
          {"map", map},
          {"select", choose<true, false>},
          {"reject", choose<false, false>},
          {"selectattr", choose<true, true>},
          {"rejectattr", choose<false, true>},
          {"attr", attr}};
}
}  // namespace magister::jinja
