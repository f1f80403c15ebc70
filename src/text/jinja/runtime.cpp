// Budgets, errors with their place, and the creation of values that can grow.
#include "text/jinja/runtime.h"

#include "text/jinja/operations.h"

namespace magister::jinja {

Runtime::~Runtime() {
  // Breaks cycles. Each namespace is emptied by itself, so a chain of them is never destroyed recursively.
  for (const auto& space : namespaces_) space->attributes.clear();
}

void Runtime::refuse_text(const std::string& problem) const {
  fail(ExitCode::kData,
       "{}:{}:{}: {} (the conversation cannot be written as the template says); fix the template or the conversation",
       source_, place.line, place.column, printable(problem, 400));
}

void Runtime::refuse_field(const std::string& problem, const std::string& advice) const {
  fail(ExitCode::kData, "{}:{}:{}: {} (the prompt would say something else than was meant); {}", source_, place.line,
       place.column, printable(problem, 400), printable(advice, 400));
}

void Runtime::raise(const std::string& message) const {
  throw TemplateRefusal(fmt::format("{}:{}:{}: the template refuses the conversation: {} (the model was trained on "
                                    "others); fix the conversation or use another template",
                                    source_, place.line, place.column, printable(message, 400)),
                        message);
}

void Runtime::charge(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ > options_.max_steps || steps > options_.max_steps) {
    refuse("more than {} steps of work", options_.max_steps);
  }
}

void Runtime::charge_text(std::uint64_t bytes) {
  if (bytes > options_.max_bytes)
    refuse("a text of {} bytes, more than the {} that are allowed", bytes, options_.max_bytes);
  charge(1 + bytes / 64);
}

void Runtime::need_nesting() const {
  if (nesting > kMaxNesting) refuse("nested or recursing deeper than {}", kMaxNesting);
}

int Runtime::depth_over(int depth) const {
  if (depth >= kMaxDepth) refuse("lists or dicts nested deeper than {}", kMaxDepth);
  return depth + 1;
}

Value Runtime::sequence(Kind kind, Values items) {
  charge(1 + items.size());
  auto object = std::make_shared<Sequence>();
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  object->depth = depth_over(depth);
  object->items = std::move(items);
  return {kind, std::move(object)};
}

Value Runtime::group(Value grouper, Values items) {
  Value made = tuple({std::move(grouper), list(std::move(items))});
  made.object<Sequence>().is_group = true;
  return made;
}

Value Runtime::iterator(Values items) {
  charge(1 + items.size());
  auto object = std::make_shared<Iterator>();
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  object->depth = depth_over(depth);
  object->items = std::move(items);
  return {Kind::kIterator, std::move(object)};
}

Value Runtime::text(std::string utf8) {
  charge_text(utf8.size());
  return Value::text(std::move(utf8));
}

Value Runtime::method(const Value& self, std::string name) {
  charge(1);
  auto object = std::make_shared<Callable>();
  object->sort = Callable::Sort::kMethod;
  object->depth = depth_over(self.depth());
  object->name = std::move(name);
  object->self = self;
  return {Kind::kCallable, std::move(object)};
}

Value Runtime::make_namespace() {
  charge(100);  // it is kept until the end
  auto object = std::make_shared<Namespace>();
  namespaces_.push_back(object);
  return {Kind::kNamespace, std::move(object)};
}

void DictBuilder::set(const Value& key, const Value& value) {
  runtime_.charge(4);
  need_hashable(runtime_, key);
  if (const Value* found = find_in_dict(runtime_, *dict_, key)) {
    *const_cast<Value*>(found) = value;
  } else {
    if (key.is(Kind::kString)) dict_->texts.emplace(key.as_text(), dict_->entries.size());
    dict_->entries.emplace_back(key, value);
  }
  const int depth = std::max(key.depth(), value.depth());
  if (depth >= kMaxDepth) runtime_.refuse("lists or dicts nested deeper than {}", kMaxDepth);
  dict_->depth = std::max(dict_->depth, depth + 1);
}

Bound bind_arguments(Runtime& runtime, std::string_view function, const Arguments& arguments,
                     std::initializer_list<const char*> names, std::size_t required) {
  Bound bound;
  bound.values.assign(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    runtime.refuse("{} takes {} arguments, not {}", function, names.size(), arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound.values[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t at = 0;
    while (at < names.size() && name != names.begin()[at]) ++at;
    if (at == names.size()) runtime.refuse("{} has no argument \"{}\"", function, name);
    if (bound.values[at] != nullptr) runtime.refuse("{} gets its argument \"{}\" twice", function, name);
    bound.values[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound.values[i] == nullptr) runtime.refuse("{} needs its argument \"{}\"", function, names.begin()[i]);
  }
  return bound;
}
}  // namespace magister::jinja
