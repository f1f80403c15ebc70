// Walks the tree once with the names that are bound at each place. A name that is set anywhere counts as bound
// everywhere (except for names of loops and parameters), because a macro may read a name that is set after it. A name
// that is really absent shows up when the template runs (Renderer::name()).
#include "text/jinja/names.h"

#include <algorithm>
#include <set>

namespace magister::jinja {
namespace {

bool is_default(const Expression& e) {
  return e.kind == ExpressionKind::kFilter && (e.name == "default" || e.name == "d");
}
bool is_existence_test(const Expression& e) {
  return e.kind == ExpressionKind::kTest && (e.name == "defined" || e.name == "undefined");
}

// none, "", 0, [] and, for `x | length >= 1`, 1: a comparison with one of these tests whether there is anything.
bool is_empty_constant(const Expression& e, const std::string& by) {
  if (e.kind == ExpressionKind::kList || e.kind == ExpressionKind::kDict) return e.parts.empty();
  if (e.kind != ExpressionKind::kConstant) return false;
  if (e.constant.is(Kind::kNone)) return true;
  if (e.constant.is(Kind::kString)) return e.constant.as_text().empty();
  const bool ordered = by == ">=" || by == "<";
  return e.constant.is(Kind::kInt) && (e.constant.as_integer() == 0 || (ordered && e.constant.as_integer() == 1));
}

class Walk {
 public:
  std::vector<TemplateName> run(const Block& program) {
    collect_set_names(program);
    block(program);
    return std::move(found_);
  }

 private:
  using Names = std::vector<std::string>;

  void collect_targets(const Expression& target, Names& names) const {
    if (target.kind == ExpressionKind::kName) names.push_back(target.name);
    for (const ExpressionPtr& part : target.parts) collect_targets(*part, names);
  }

  void collect_set_names(const Block& statements) {
    for (const auto& statement : statements) {
      const bool sets = statement->kind == StatementKind::kSet || statement->kind == StatementKind::kSetBlock;
      if (sets) collect_targets(*statement->targets[0], set_anywhere_);
      if (statement->kind == StatementKind::kMacro) set_anywhere_.push_back(statement->macro->name);
      if (statement->macro != nullptr) collect_set_names(statement->macro->body);
      for (const Block& body : statement->bodies) collect_set_names(body);
    }
  }

  bool is_bound(const std::string& name) const {
    return std::find(bound_.begin(), bound_.end(), name) != bound_.end() ||
           std::find(set_anywhere_.begin(), set_anywhere_.end(), name) != set_anywhere_.end() || is_function(name);
  }

  TemplateName* use(const Expression& name) {
    if (is_bound(name.name)) return nullptr;
    const auto at =
        std::find_if(found_.begin(), found_.end(), [&](const TemplateName& one) { return one.name == name.name; });
    if (at != found_.end()) return &*at;
    found_.push_back({name.name, name.place.line, name.place.column, false, false});
    return &found_.back();
  }

  template <typename Body>
  void with_names(const Names& names, const Body& body) {
    const std::size_t before = bound_.size();
    bound_.insert(bound_.end(), names.begin(), names.end());
    body();
    bound_.resize(before);
  }

  void block(const Block& statements) {
    for (const auto& statement : statements) visit(*statement);
  }

  void visit(const Statement& s) {
    switch (s.kind) {
      case StatementKind::kIf:
        for (const ExpressionPtr& condition : s.expressions) truth(*condition);
        for (const Block& body : s.bodies) block(body);
        return;
      case StatementKind::kFor:
        return loop(s);
      case StatementKind::kMacro:
        return macro(*s.macro);
      case StatementKind::kCallBlock:
        visit(*s.expressions[0]);
        return macro(*s.macro);
      case StatementKind::kWith: {
        Names names;
        for (const ExpressionPtr& value : s.expressions) visit(*value);
        for (const ExpressionPtr& target : s.targets) collect_targets(*target, names);
        return with_names(names, [&] { block(s.bodies[0]); });
      }
      default:
        for (const ExpressionPtr& value : s.expressions) {
          if (value != nullptr) visit(*value);
        }
        for (const Block& body : s.bodies) block(body);
    }
  }

  void loop(const Statement& s) {
    // The else of a loop handles the empty list.
    s.bodies[1].empty() ? visit(*s.expressions[0]) : truth(*s.expressions[0]);
    Names names;
    collect_targets(*s.targets[0], names);
    with_names(names, [&] {
      if (s.expressions[1] != nullptr) truth(*s.expressions[1]);
      with_names({"loop"}, [&] { block(s.bodies[0]); });
    });
    block(s.bodies[1]);
  }

  void macro(const MacroBody& body) {
    Names names = {"varargs", "kwargs", "caller"};
    for (const Parameter& parameter : body.parameters) names.push_back(parameter.name);
    with_names(names, [&] {
      for (const Parameter& parameter : body.parameters) {
        if (parameter.fallback != nullptr) visit(*parameter.fallback);
      }
      block(body.body);
    });
  }

  void visit(const CallArguments& given) {
    for (const ExpressionPtr& value : given.positional) visit(*value);
    for (const auto& [name, value] : given.named) visit(*value);
    if (given.list != nullptr) visit(*given.list);
    if (given.dict != nullptr) visit(*given.dict);
  }

  void visit(const Expression& e) {
    switch (e.kind) {
      case ExpressionKind::kName:
        use(e);
        return;
      case ExpressionKind::kAnd:
      case ExpressionKind::kOr:
      case ExpressionKind::kNot:
      case ExpressionKind::kTest:
      case ExpressionKind::kCompare:
        return truth(e);
      case ExpressionKind::kCondition:
        truth(*e.parts[0]);
        visit(*e.parts[1]);
        if (e.parts[2] != nullptr) visit(*e.parts[2]);
        return;
      default:
        break;
    }
    if (is_default(e)) note_default(e);
    for (const ExpressionPtr& part : e.parts) {
      if (part != nullptr) visit(*part);
    }
    if (e.arguments != nullptr) visit(*e.arguments);
  }

  void note_default(const Expression& e) {
    if (e.parts[0] == nullptr || e.parts[0]->kind != ExpressionKind::kName) return;
    TemplateName* const name = use(*e.parts[0]);
    if (name == nullptr) return;
    name->tested_for_absence = true;
    name->tested_for_emptiness = name->tested_for_emptiness || e.arguments->positional.size() > 1 ||
                                 std::any_of(e.arguments->named.begin(), e.arguments->named.end(),
                                             [](const auto& one) { return one.first == "boolean"; });
  }

  // Visits an expression whose truth decides: the names in it count as tested.
  void truth(const Expression& e) {
    switch (e.kind) {
      case ExpressionKind::kName:
        if (TemplateName* const name = use(e)) name->tested_for_emptiness = true;
        return;
      case ExpressionKind::kAnd:
      case ExpressionKind::kOr:
      case ExpressionKind::kNot:
        for (const ExpressionPtr& part : e.parts) truth(*part);
        return;
      case ExpressionKind::kFilter:
        if (e.parts[0] == nullptr || is_default(e)) return visit(e);
        truth(*e.parts[0]);
        return visit(*e.arguments);
      case ExpressionKind::kCall:  // x.strip()
        if (e.parts[0]->kind == ExpressionKind::kAttribute) {
          truth(*e.parts[0]->parts[0]);
          return visit(*e.arguments);
        }
        return visit(e);
      case ExpressionKind::kTest:
        return test(e);
      case ExpressionKind::kCompare:
        return compare(e);
      default:
        return visit(e);
    }
  }

  void test(const Expression& e) {
    visit(*e.arguments);
    if (!is_existence_test(e)) return truth(*e.parts[0]);
    visit(*e.parts[0]);
    if (e.parts[0]->kind != ExpressionKind::kName) return;
    if (TemplateName* const name = use(*e.parts[0])) name->tested_for_absence = true;
  }

  void compare(const Expression& e) {
    const bool with_nothing = std::any_of(e.operators.begin(), e.operators.end(), [&](const std::string& by) {
      return std::any_of(e.parts.begin(), e.parts.end(),
                         [&](const ExpressionPtr& part) { return is_empty_constant(*part, by); });
    });
    for (const ExpressionPtr& part : e.parts) with_nothing ? truth(*part) : visit(*part);
  }

  Names bound_, set_anywhere_;
  std::vector<TemplateName> found_;
};

}  // namespace

std::vector<TemplateName> free_names(const Block& program) { return Walk().run(program); }

}  // namespace magister::jinja
