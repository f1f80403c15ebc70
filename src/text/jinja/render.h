// Runs a parsed template over its variables. A Renderer is used for one rendering.
#pragma once

#include <utility>

#include "text/jinja/ast.h"

namespace magister::jinja {

// Names and values of one level. The names are views into the tree or the caller's variables.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> names;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

// A macro refers to the scope that it was defined in but does not own it: scopes hold macros, and a cycle would never
// be freed.
struct Macro : Callable {
  const MacroBody* body = nullptr;
  std::weak_ptr<Scope> scope;
};

class Renderer {
 public:
  // names: the program's free_names().
  Renderer(Runtime& runtime, const std::vector<TemplateName>& names)
      : runtime_(runtime), names_(names), out_(&result_.text) {}
  RenderedChat run(const Block& program, const ScopePtr& variables);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // render.cpp: statements
  Flow execute(const Block& block, const ScopePtr& scope);
  Flow execute(const Statement& statement, const ScopePtr& scope);
  Flow branch(const Statement& statement, const ScopePtr& scope);
  Flow loop(const Statement& statement, const ScopePtr& scope);
  Flow set_block(const Statement& statement, const ScopePtr& scope);
  Flow filter_block(const Statement& statement, const ScopePtr& scope);
  Flow with(const Statement& statement, const ScopePtr& scope);
  void generation(const Statement& statement, const ScopePtr& scope);
  Values chosen(const Statement& statement, const ScopePtr& scope);
  void assign(const Expression& target, const Value& value, const ScopePtr& scope);
  void print(std::string_view text);
  // A generation block in a text: its span there, and its place in the template.
  struct GenerationBlock {
    TextSpan span;
    Place place;
  };
  struct Captured {
    std::string text;
    std::vector<GenerationBlock> blocks;
  };
  // Returns the output of `body` as a text.
  template <typename Body>
  Captured captured(Body body) {
    Captured inner;
    std::string* const outer = std::exchange(out_, &inner.text);
    std::vector<GenerationBlock> outer_blocks = std::exchange(blocks_, {});
    body();
    out_ = outer;
    inner.blocks = std::exchange(blocks_, std::move(outer_blocks));
    return inner;
  }
  void place_blocks_of_macro(std::size_t begin);
  void lose(const std::vector<GenerationBlock>& blocks);
  static ScopePtr inside(const ScopePtr& scope);
  Value macro_value(const Statement& statement, const ScopePtr& scope);

  // evaluate.cpp: expressions
  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value evaluate_kind(const Expression& expression, const ScopePtr& scope);
  Value name(const Expression& expression, const ScopePtr& scope);
  Value undefined_name(const std::string& name);
  void need_content(const std::string& name, const Value& value);
  Value container(const Expression& expression, const ScopePtr& scope);
  Value slice(const Expression& expression, const ScopePtr& scope);
  Value compare(const Expression& expression, const ScopePtr& scope);
  Value concat(const Expression& expression, const ScopePtr& scope);
  Value filtered(const Expression& expression, const ScopePtr& scope, const Value* body);
  Value call(const Expression& expression, const ScopePtr& scope, const Value* caller);
  Value call_macro(const Macro& macro, Arguments arguments);
  void bind_macro(const Macro& macro, Arguments& arguments, const ScopePtr& scope);
  Arguments arguments(const CallArguments& given, const ScopePtr& scope);

  Runtime& runtime_;
  const std::vector<TemplateName>& names_;
  const Scope* variables_ = nullptr;  // strict: the caller's variables, separate from those that the template sets
  bool may_be_absent_ = false;        // the next expression may be absent: a test asks whether it exists
  RenderedChat result_;
  std::string* out_;                     // current target of output: the result or a captured text
  std::vector<GenerationBlock> blocks_;  // in the current target of output
  Captured of_macro_;                    // the text of the last macro, if it has blocks that are not placed yet
  bool in_generation_ = false;           // blocks inside a block do not count
};
}  // namespace magister::jinja
