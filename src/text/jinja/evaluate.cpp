// Expressions and calls.
#include <fmt/ranges.h>

#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/render.h"

namespace magister::jinja {
namespace {

bool asks_for_existence(const Expression& e) {
  if (e.kind == ExpressionKind::kFilter) return e.name == "default" || e.name == "d";
  return e.kind == ExpressionKind::kTest && (e.name == "defined" || e.name == "undefined");
}

// strict: refuses value[key] or value.key if absent. Loops and namespaces are exempt: the template knows what they
// have.
void refuse_absent_part(const Runtime& runtime, const Value& value, const std::string& key) {
  std::vector<std::string> known;
  if (value.is(Kind::kDict)) {
    for (const auto& [name, ignored] : value.object<Dict>().entries) {
      if (name.is(Kind::kString)) known.push_back(name.as_text());
    }
  } else if (!value.is(Kind::kList) && !value.is(Kind::kTuple) && !value.is(Kind::kString)) {
    return;
  }
  const std::string near = nearest_name(key, known);
  const std::string has =
      known.empty() ? fmt::format("a {}", type_name(value)) : fmt::format("it has {}", fmt::join(known, ", "));
  runtime.refuse_field(fmt::format("there is no \"{}\" in {}", key, has),
                       fmt::format("{}complete the record, or let the template test for it: {{% if x.y is defined %}}",
                                   near.empty() ? "" : fmt::format("did you mean \"{}\"? else ", near)));
}

std::string key_text(const Value& key) {
  return key.is(Kind::kString) ? key.as_text() : key.is_integral() ? std::to_string(key.as_integer()) : type_name(key);
}

}  // namespace

Value Renderer::evaluate(const Expression& expression, const ScopePtr& scope) {
  runtime_.charge(1);
  ++runtime_.nesting;
  runtime_.place = expression.place;
  runtime_.need_nesting();
  Value value = evaluate_kind(expression, scope);
  --runtime_.nesting;
  return value;
}

Value Renderer::evaluate_kind(const Expression& e, const ScopePtr& scope) {
  const auto part = [&](std::size_t i) { return evaluate(*e.parts[i], scope); };
  const bool may_be_absent = std::exchange(may_be_absent_, false) || variables_ == nullptr;
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.constant;
    case ExpressionKind::kName:
      return name(e, scope);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
    case ExpressionKind::kDict:
      return container(e, scope);
    case ExpressionKind::kSlice:
      return slice(e, scope);
    case ExpressionKind::kCall:
      return call(e, scope, nullptr);
    case ExpressionKind::kFilter:
      return filtered(e, scope, nullptr);
    case ExpressionKind::kCompare:
      return compare(e, scope);
    case ExpressionKind::kConcat:
      return concat(e, scope);
    case ExpressionKind::kNot:
      return Value::boolean(!truthy(part(0)));
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      Value left = part(0);
      return truthy(left) == (e.kind == ExpressionKind::kOr) ? left : part(1);
    }
    case ExpressionKind::kCondition:
      if (truthy(part(0))) return part(1);
      return e.parts[2] != nullptr
                 ? part(2)
                 : Value::undefined("the inline if-expression evaluated to false and no else section was defined");
    default:
      break;
  }
  may_be_absent_ = asks_for_existence(e);
  const Value first = part(0);
  Value second;
  if (e.kind == ExpressionKind::kItem || e.kind == ExpressionKind::kArithmetic) second = part(1);
  Arguments given;
  if (e.kind == ExpressionKind::kTest) given = arguments(*e.arguments, scope);
  runtime_.place = e.place;
  switch (e.kind) {
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem: {
      const bool by_name = e.kind == ExpressionKind::kAttribute;
      Value found = by_name ? attribute_of(runtime_, first, e.name) : item_of(runtime_, first, second);
      if (!may_be_absent && found.is(Kind::kUndefined))
        refuse_absent_part(runtime_, first, by_name ? e.name : key_text(second));
      return found;
    }
    case ExpressionKind::kArithmetic:
      return arithmetic(runtime_, e.name, first, second);
    case ExpressionKind::kSign:
      return negate(runtime_, first, e.name == "-");
    case ExpressionKind::kTest:
      if (e.test == nullptr) runtime_.refuse("{}", e.unknown);
      return Value::boolean(e.test(runtime_, first, given));
    default:
      runtime_.refuse("an expression of an unknown kind");
  }
}

Value Renderer::name(const Expression& expression, const ScopePtr& scope) {
  std::size_t names = 0;  // a scope is searched name by name
  for (const Scope* one = scope.get(); one != nullptr; one = one->parent.get()) names += one->names.size();
  runtime_.charge(names / 64);
  if (const Value* found = scope->find(expression.name)) {
    if (variables_ != nullptr && variables_->find(expression.name) == found) need_content(expression.name, *found);
    return *found;
  }
  if (is_function(expression.name)) {
    auto function = std::make_shared<Callable>();
    function->name = expression.name;
    return {Kind::kCallable, std::move(function)};
  }
  if (expression.name == "cycler" || expression.name == "joiner" || expression.name == "lipsum") {
    runtime_.refuse("the function \"{}\" is not known here", expression.name);
  }
  return undefined_name(expression.name);
}

Value Renderer::undefined_name(const std::string& name) {
  const auto use =
      std::find_if(names_.begin(), names_.end(), [&](const TemplateName& one) { return one.name == name; });
  if (variables_ == nullptr || (use != names_.end() && use->tested_for_absence))
    return Value::undefined(fmt::format("'{}' is undefined", name));
  std::vector<std::string> known;
  known.reserve(variables_->names.size());
  for (const auto& [other, ignored] : variables_->names) known.emplace_back(other);
  const std::string near = nearest_name(name, known);
  runtime_.refuse_field(fmt::format("there is no field \"{}\" (there are {})", name, fmt::join(known, ", ")),
                        fmt::format("{}complete the record, or let the template test for it: {{% if {} is defined %}}",
                                    near.empty() ? "" : fmt::format("did you mean \"{}\"? else ", near), name));
}

// strict: refuses a variable that is null or empty, unless the template tests it for that.
void Renderer::need_content(const std::string& name, const Value& value) {
  const auto use =
      std::find_if(names_.begin(), names_.end(), [&](const TemplateName& one) { return one.name == name; });
  if (use == names_.end() || use->tested_for_emptiness) return;
  const bool text = value.is(Kind::kString);
  const auto& allowed = runtime_.options().may_be_empty;
  if (text && std::find(allowed.begin(), allowed.end(), name) != allowed.end()) return;
  const std::optional<std::int64_t> length =
      text ? std::optional<std::int64_t>(value.as_text().size()) : length_of(value);
  if (!value.is(Kind::kNone) && length.value_or(1) > 0) return;
  runtime_.refuse_field(fmt::format("the field \"{}\" is {}", name,
                                    value.is(Kind::kNone)   ? "null"
                                    : text                  ? "an empty text"
                                    : value.is(Kind::kDict) ? "an empty object"
                                                            : "an empty list"),
                        fmt::format("complete the record, or let the template test for it: {{% if {} %}}", name));
}

Value Renderer::container(const Expression& expression, const ScopePtr& scope) {
  if (expression.kind == ExpressionKind::kDict) {
    DictBuilder dict(runtime_);
    for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
      const Value key = evaluate(*expression.parts[i], scope);
      dict.set(key, evaluate(*expression.parts[i + 1], scope));
    }
    return dict.done();
  }
  Values items;
  for (const ExpressionPtr& part : expression.parts) items.push_back(evaluate(*part, scope));
  return expression.kind == ExpressionKind::kList ? runtime_.list(std::move(items)) : runtime_.tuple(std::move(items));
}

Value Renderer::slice(const Expression& expression, const ScopePtr& scope) {
  Values parts;
  for (const ExpressionPtr& part : expression.parts)
    parts.push_back(part == nullptr ? Value::none() : evaluate(*part, scope));
  runtime_.place = expression.place;
  return slice_of(runtime_, parts[0], parts[1], parts[2], parts[3]);
}

Value Renderer::compare(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1], scope);
    runtime_.place = expression.place;
    const std::string& by = expression.operators[i];
    bool holds = false;
    if (by == "==" || by == "!=") {
      holds = equal(runtime_, left, right) == (by == "==");
    } else if (by == "in" || by == "not in") {
      holds = contains(runtime_, right, left) == (by == "in");
    } else if (by == "<" || by == ">") {
      holds = by == "<" ? less(runtime_, left, right) : less(runtime_, right, left);
    } else {
      holds = (by == "<=" ? less(runtime_, left, right) : less(runtime_, right, left)) || equal(runtime_, left, right);
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Renderer::concat(const Expression& expression, const ScopePtr& scope) {
  std::string text;
  for (const ExpressionPtr& part : expression.parts) {
    const Value value = evaluate(*part, scope);
    text += str_of(runtime_, value);
    runtime_.charge_text(text.size() > runtime_.options().max_bytes ? text.size() : 0);
  }
  return runtime_.text(std::move(text));
}

// body: the input of a chain of filters that has none, the text of its block.
Value Renderer::filtered(const Expression& expression, const ScopePtr& scope, const Value* body) {
  const Expression* inner = expression.parts[0].get();
  Value input;
  if (inner == nullptr) {
    MAGISTER_CHECK(body != nullptr, ExitCode::kInternal, "a chain of filters has no input (the parser made it so)");
    input = *body;
  } else {
    may_be_absent_ = inner->kind != ExpressionKind::kFilter && asks_for_existence(expression);
    input = inner->kind == ExpressionKind::kFilter ? filtered(*inner, scope, body) : evaluate(*inner, scope);
  }
  const Arguments given = arguments(*expression.arguments, scope);
  runtime_.place = expression.place;
  if (expression.filter == nullptr) runtime_.refuse("{}", expression.unknown);
  return expression.filter(runtime_, input, given);
}

Arguments Renderer::arguments(const CallArguments& given, const ScopePtr& scope) {
  Arguments result;
  for (const ExpressionPtr& value : given.positional) result.positional.push_back(evaluate(*value, scope));
  if (given.list != nullptr) {
    for (Value& value : items_of(runtime_, evaluate(*given.list, scope))) result.positional.push_back(std::move(value));
  }
  for (const auto& [name, value] : given.named) result.named.emplace_back(name, evaluate(*value, scope));
  if (given.dict != nullptr) {
    const Value dict = evaluate(*given.dict, scope);
    if (!dict.is(Kind::kDict)) runtime_.refuse("** needs a dict, not {}", type_name(dict));
    for (const auto& [key, value] : dict.object<Dict>().entries) {
      result.named.emplace_back(need_text(runtime_, key, "a name in **"), value);
    }
  }
  return result;
}

Value Renderer::call(const Expression& expression, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*expression.parts[0], scope);
  Arguments given = arguments(*expression.arguments, scope);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  runtime_.place = expression.place;
  need_defined(runtime_, callee);
  if (!callee.is(Kind::kCallable)) runtime_.refuse("a {} cannot be called", type_name(callee));
  const auto& function = callee.object<Callable>();
  if (function.sort == Callable::Sort::kMethod) return call_method(runtime_, function, given);
  if (function.sort == Callable::Sort::kFunction) return call_function(runtime_, function.name, given);
  return call_macro(static_cast<const Macro&>(function), std::move(given));
}

Value Renderer::call_macro(const Macro& macro, Arguments given) {
  const ScopePtr home = macro.scope.lock();
  if (home == nullptr) runtime_.refuse("the macro \"{}\" is called outside of the block that holds it", macro.name);
  const MacroBody& body = *macro.body;
  const ScopePtr scope = inside(home);
  bind_macro(macro, given, scope);
  // The output of the macro's body is its value.
  Captured inner = captured([&] { execute(body.body, scope); });
  lose(of_macro_.blocks);
  of_macro_ = {};
  if (!inner.blocks.empty()) of_macro_ = inner;
  return Value::text(std::move(inner.text));
}

void Renderer::bind_macro(const Macro& macro, Arguments& given, const ScopePtr& scope) {
  const MacroBody& body = *macro.body;
  const std::size_t count = body.parameters.size();
  runtime_.charge(count * (count + given.named.size()) / 16);
  std::vector<bool> is_used(given.named.size(), false);
  const auto named = [&](std::string_view name) -> const Value* {
    for (std::size_t i = 0; i < given.named.size(); ++i) {
      if (given.named[i].first != name || is_used[i]) continue;
      is_used[i] = true;
      return &given.named[i].second;
    }
    return nullptr;
  };
  const Place place = runtime_.place;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = body.parameters[i];
    if (i < given.positional.size()) {
      scope->set(parameter.name, given.positional[i]);
    } else if (const Value* value = named(parameter.name)) {
      scope->set(parameter.name, *value);
    } else if (parameter.fallback != nullptr) {
      scope->set(parameter.name, evaluate(*parameter.fallback, scope));
    } else {
      scope->set(parameter.name, Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  runtime_.place = place;
  const auto is_caller = [](const auto& name) { return name.first == "caller"; };
  if (body.uses_caller && std::none_of(scope->names.begin(), scope->names.end(), is_caller)) {
    const Value* caller = named("caller");
    scope->set("caller", caller != nullptr ? *caller : Value::undefined("No caller defined"));
  }
  if (body.uses_kwargs) {
    DictBuilder rest(runtime_);
    for (std::size_t i = 0; i < given.named.size(); ++i) {
      if (!is_used[i]) rest.set(Value::text(given.named[i].first), given.named[i].second);
      is_used[i] = true;
    }
    scope->set("kwargs", rest.done());
  }
  for (std::size_t i = 0; i < given.named.size(); ++i) {
    if (!is_used[i])
      runtime_.refuse("the macro \"{}\" takes no \"{}\" or has it already", macro.name, given.named[i].first);
  }
  if (body.uses_varargs) {
    const auto taken = static_cast<std::ptrdiff_t>(std::min(count, given.positional.size()));
    scope->set("varargs", runtime_.tuple({given.positional.begin() + taken, given.positional.end()}));
  } else if (given.positional.size() > count) {
    runtime_.refuse("the macro \"{}\" takes {} arguments, not {}", macro.name, count, given.positional.size());
  }
}
}  // namespace magister::jinja
