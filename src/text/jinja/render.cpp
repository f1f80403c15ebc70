// Executes statements.
#include "text/jinja/render.h"

#include "text/jinja/format.h"
#include "text/jinja/operations.h"

namespace magister::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->names) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : names) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

ScopePtr Renderer::inside(const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  return inner;
}

RenderedChat Renderer::run(const Block& program, const ScopePtr& variables) {
  if (runtime_.options().strict) variables_ = variables.get();
  execute(program, variables_ == nullptr ? variables : inside(variables));
  lose(of_macro_.blocks);
  for (const GenerationBlock& block : blocks_) result_.generated.push_back(block.span);
  return std::move(result_);
}

void Renderer::print(std::string_view text) {
  runtime_.charge_text(text.size());
  if (out_->size() + text.size() > runtime_.options().max_bytes) {
    runtime_.refuse("the text grows beyond the {} bytes that are allowed", runtime_.options().max_bytes);
  }
  out_->append(text);
}

// Call it after an output that began at `begin`. The blocks of a macro have a place if its text is the whole output.
void Renderer::place_blocks_of_macro(std::size_t begin) {
  if (of_macro_.blocks.empty()) return;
  const Captured inner = std::exchange(of_macro_, {});
  if (std::string_view(*out_).substr(begin) != inner.text) return lose(inner.blocks);
  for (const GenerationBlock& block : inner.blocks)
    blocks_.push_back({{begin + block.span.begin, begin + block.span.end}, block.place});
}

void Renderer::lose(const std::vector<GenerationBlock>& blocks) {
  for (const GenerationBlock& block : blocks) {
    if (block.span.begin < block.span.end && result_.unplaced.empty())
      result_.unplaced = runtime_.source_at(block.place);
  }
}

Renderer::Flow Renderer::execute(const Block& block, const ScopePtr& scope) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, scope);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Renderer::Flow Renderer::execute(const Statement& statement, const ScopePtr& scope) {
  runtime_.place = statement.place;
  runtime_.charge(1);
  ++runtime_.nesting;
  runtime_.need_nesting();
  Flow flow = Flow::kNormal;
  switch (statement.kind) {
    case StatementKind::kData:
      print(statement.text);
      break;
    case StatementKind::kOutput:
      for (const ExpressionPtr& value : statement.expressions) {
        lose(std::exchange(of_macro_, {}).blocks);
        const std::size_t begin = out_->size();
        const Value result = evaluate(*value, scope);
        runtime_.place = value->place;
        const bool may_be_nothing = value->kind == ExpressionKind::kCondition ||
                                    (value->kind == ExpressionKind::kName && scope->find(value->name) == nullptr);
        if (!may_be_nothing) need_written(runtime_, result);
        print(result.is(Kind::kString) ? std::string_view(result.as_text()) : str_of(runtime_, result));
        place_blocks_of_macro(begin);
      }
      break;
    case StatementKind::kIf:
      flow = branch(statement, scope);
      break;
    case StatementKind::kFor:
      flow = loop(statement, scope);
      break;
    case StatementKind::kSet:
      assign(*statement.targets[0], evaluate(*statement.expressions[0], scope), scope);
      break;
    case StatementKind::kSetBlock:
      flow = set_block(statement, scope);
      break;
    case StatementKind::kMacro:
      scope->set(statement.text, macro_value(statement, scope));
      break;
    case StatementKind::kCallBlock: {
      lose(std::exchange(of_macro_, {}).blocks);
      const Value caller = macro_value(statement, scope);
      const std::size_t begin = out_->size();
      print(str_of(runtime_, call(*statement.expressions[0], scope, &caller)));
      place_blocks_of_macro(begin);
      break;
    }
    case StatementKind::kFilterBlock:
      flow = filter_block(statement, scope);
      break;
    case StatementKind::kWith:
      flow = with(statement, scope);
      break;
    case StatementKind::kGeneration:
      generation(statement, scope);
      break;
    case StatementKind::kBreak:
      flow = Flow::kBreak;
      break;
    case StatementKind::kContinue:
      flow = Flow::kContinue;
      break;
  }
  --runtime_.nesting;
  return flow;
}

Renderer::Flow Renderer::branch(const Statement& statement, const ScopePtr& scope) {
  for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
    const bool is_else = i == statement.expressions.size();
    if (is_else || truthy(evaluate(*statement.expressions[i], scope))) return execute(statement.bodies[i], scope);
  }
  return Flow::kNormal;
}

// Returns the items that a loop visits: all, or those that its condition accepts.
Values Renderer::chosen(const Statement& statement, const ScopePtr& scope) {
  const Value source = evaluate(*statement.expressions[0], scope);
  runtime_.place = statement.place;
  Values items = items_of(runtime_, source);
  if (statement.expressions[1] == nullptr) return items;
  Values kept;
  for (Value& item : items) {
    const ScopePtr inner = inside(scope);
    assign(*statement.targets[0], item, inner);
    if (truthy(evaluate(*statement.expressions[1], inner))) kept.push_back(std::move(item));
  }
  return kept;
}

Renderer::Flow Renderer::loop(const Statement& statement, const ScopePtr& scope) {
  auto state = std::make_shared<LoopState>();
  state->items = chosen(statement, scope);
  if (state->items.empty()) return execute(statement.bodies[1], inside(scope));
  for (const Value& item : state->items) state->depth = std::max(state->depth, runtime_.depth_over(item.depth()));
  const Value loop(Kind::kLoop, state);
  for (; state->index < state->items.size(); ++state->index) {
    runtime_.charge(1);
    const ScopePtr inner = inside(scope);
    inner->set("loop", loop);
    assign(*statement.targets[0], state->items[state->index], inner);
    if (execute(statement.bodies[0], inner) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Renderer::Flow Renderer::set_block(const Statement& statement, const ScopePtr& scope) {
  Flow flow = Flow::kNormal;
  Captured inner = captured([&] { flow = execute(statement.bodies[0], inside(scope)); });
  lose(inner.blocks);
  const Value text = Value::text(std::move(inner.text));
  if (flow != Flow::kNormal) return flow;  // break and continue skip the assignment
  const Expression* chain = statement.expressions[0].get();
  assign(*statement.targets[0], chain == nullptr ? text : filtered(*chain, scope, &text), scope);
  return flow;
}

Renderer::Flow Renderer::filter_block(const Statement& statement, const ScopePtr& scope) {
  Flow flow = Flow::kNormal;
  Captured inner = captured([&] { flow = execute(statement.bodies[0], inside(scope)); });
  lose(inner.blocks);
  const Value text = Value::text(std::move(inner.text));
  if (flow == Flow::kNormal)
    print(need_text(runtime_, filtered(*statement.expressions[0], scope, &text), "what a filter block makes"));
  return flow;
}

Renderer::Flow Renderer::with(const Statement& statement, const ScopePtr& scope) {
  const ScopePtr inner = inside(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], evaluate(*statement.expressions[i], scope), inner);
  }
  return execute(statement.bodies[0], inner);
}

void Renderer::generation(const Statement& statement, const ScopePtr& scope) {
  const bool outer = std::exchange(in_generation_, true);
  const std::string text = captured([&] { execute(statement.bodies[0], inside(scope)); }).text;
  in_generation_ = outer;
  const std::size_t begin = out_->size();
  print(text);
  if (!in_generation_) blocks_.push_back({{begin, out_->size()}, statement.place});
}

void Renderer::assign(const Expression& target, const Value& value, const ScopePtr& scope) {
  runtime_.place = target.place;
  if (target.kind == ExpressionKind::kName) {
    scope->set(target.name, value);
  } else if (target.kind == ExpressionKind::kTuple) {
    const Values parts = items_of(runtime_, value);
    if (parts.size() != target.parts.size()) {
      runtime_.refuse("{} values for {} names", parts.size(), target.parts.size());
    }
    for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.parts[i], parts[i], scope);
  } else {
    const Value* space = scope->find(target.name);
    const std::string& attribute = target.operators[0];
    if (space == nullptr || !space->is(Kind::kNamespace))
      runtime_.refuse("\"{}\" is not a namespace, nothing can be set in it", target.name);
    if (attribute.starts_with('_'))
      runtime_.refuse("the attribute \"{}\" of a namespace begins with an underscore", attribute);
    auto& attributes = space->object<Namespace>().attributes;
    runtime_.charge(1 + attributes.size() / 16);
    for (auto& [name, old] : attributes) {
      if (name != attribute) continue;
      old = value;
      return;
    }
    attributes.emplace_back(attribute, value);
  }
}

Value Renderer::macro_value(const Statement& statement, const ScopePtr& scope) {
  auto macro = std::make_shared<Macro>();
  macro->sort = Callable::Sort::kMacro;
  macro->name = statement.macro->name;
  macro->body = statement.macro.get();
  macro->scope = scope;
  return {Kind::kCallable, std::move(macro)};
}
}  // namespace magister::jinja
