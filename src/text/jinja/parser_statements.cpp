// Parses statements.
#include <algorithm>

#include "text/jinja/parser.h"

namespace magister::jinja {
namespace {

bool is_target(const Expression& target) {
  if (target.kind == ExpressionKind::kName || target.kind == ExpressionKind::kNamespaceTarget) return true;
  return target.kind == ExpressionKind::kTuple &&
         std::all_of(target.parts.begin(), target.parts.end(),
                     [](const ExpressionPtr& part) { return is_target(*part); });
}

// Jinja's statements for other files or for features that chat templates do not have.
bool is_foreign(std::string_view word) {
  constexpr std::string_view kWords[] = {"extends",    "include", "import", "from", "block",
                                         "autoescape", "trans",   "do",     "debug"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

}  // namespace

Block Parser::run() {
  Block all = block({});
  if (now().kind != TokenKind::kEnd) unexpected("the end of the template");
  refuse_unknown(0);
  return all;
}

Block parse_template(std::string_view template_text, const std::string& source) {
  return Parser(tokenize(template_text, source), source).run();
}

Block Parser::block(const Words& ends) {
  const Deeper deeper(*this);
  Block statements;
  while (now().kind != TokenKind::kEnd) {
    const Token token = take();
    if (token.kind == TokenKind::kBlockBegin) {
      const bool ended =
          now().kind == TokenKind::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end();
      if (ended) return statements;
      statement(statements);
      if (now().kind != TokenKind::kBlockEnd) unexpected("the end of the block");
      take();
      continue;
    }
    auto made = std::make_unique<Statement>();
    made->place = token.place;
    if (token.kind == TokenKind::kData) {
      made->text = token.text;
    } else {
      made->kind = StatementKind::kOutput;
      made->expressions.push_back(tuple(Of::kExpressions));
      if (now().kind != TokenKind::kVariableEnd) unexpected("the end of the output");
      take();
    }
    statements.push_back(std::move(made));
  }
  if (!ends.empty()) unexpected(fmt::format("\"{}\"", ends.back()));
  return statements;
}

Block Parser::body(const Words& ends) {
  skip_operator(":");
  if (now().kind != TokenKind::kBlockEnd) unexpected("the end of the block");
  take();
  return block(ends);
}

Block Parser::inner_body(const Words& ends) {
  const std::size_t known = unknown_.size();
  Block statements = body(ends);
  refuse_unknown(known);
  return statements;
}

void Parser::refuse_unknown(std::size_t first) const {
  if (first < unknown_.size()) refuse(unknown_[first].first, "{}", unknown_[first].second);
}

void Parser::refuse_statement(const Token& token) const {
  if (token.kind != TokenKind::kName) unexpected("a statement");
  if (is_foreign(token.text))
    refuse(token.place, "the statement \"{}\" is not known here (a chat template is one file)", token.text);
  refuse(token.place, "the statement \"{}\" is not known here, or no block is open that it belongs to", token.text);
}

void Parser::statement(Block& into) {
  const Token word = now();
  auto made = std::make_unique<Statement>();
  made->place = word.place;
  if (word.kind != TokenKind::kName) refuse_statement(word);
  take();
  if (word.text == "if") {
    condition(*made);
  } else if (word.text == "for") {
    for_loop(*made);
  } else if (word.text == "set") {
    set(*made);
  } else if (word.text == "macro") {
    macro(*made);
  } else if (word.text == "call") {
    call_block(*made);
  } else if (word.text == "with") {
    with(*made);
  } else if (word.text == "filter") {
    made->kind = StatementKind::kFilterBlock;
    const std::size_t known = unknown_.size();
    made->expressions.push_back(filter(nullptr));
    while (skip_operator("|")) made->expressions[0] = filter(std::move(made->expressions[0]));
    refuse_unknown(known);
    made->bodies.push_back(inner_body({"endfilter"}));
    take();
  } else if (word.text == "generation") {
    made->kind = StatementKind::kGeneration;
    const int loops = std::exchange(loops_, 0);
    made->bodies.push_back(inner_body({"endgeneration"}));
    loops_ = loops;
    take();
  } else if (word.text == "print") {
    made->kind = StatementKind::kOutput;
    while (now().kind != TokenKind::kBlockEnd) {
      if (!made->expressions.empty()) need_operator(",");
      made->expressions.push_back(expression());
    }
  } else if (word.text == "break" || word.text == "continue") {
    if (loops_ == 0) refuse(word.place, "\"{}\" outside of a loop", word.text);
    made->kind = word.text == "break" ? StatementKind::kBreak : StatementKind::kContinue;
  } else {
    refuse_statement(word);
  }
  into.push_back(std::move(made));
}

ExpressionPtr Parser::target(bool with_namespace, std::string_view stop) {
  const Place place = now().place;
  ExpressionPtr made = tuple(with_namespace ? Of::kTargets : Of::kNames, stop);
  if (!is_target(*made)) refuse(place, "nothing can be assigned to this expression");
  return made;
}

void Parser::set(Statement& made) {
  made.kind = StatementKind::kSet;
  made.targets.push_back(target(true));
  if (skip_operator("=")) {
    made.expressions.push_back(tuple(Of::kExpressions));
    return;
  }
  made.kind = StatementKind::kSetBlock;
  const std::size_t known = unknown_.size();
  ExpressionPtr chain;
  while (skip_operator("|")) chain = filter(std::move(chain));
  refuse_unknown(known);
  made.expressions.push_back(std::move(chain));
  made.bodies.push_back(inner_body({"endset"}));
  take();
}

void Parser::condition(Statement& made) {
  made.kind = StatementKind::kIf;
  const std::size_t known = unknown_.size();
  std::string word = "elif";
  while (word == "elif") {
    made.expressions.push_back(tuple(Of::kWithoutConditions));
    made.bodies.push_back(body({"elif", "else", "endif"}));
    word = take().text;
  }
  if (word == "else") {
    made.bodies.push_back(body({"endif"}));
    take();
  }
  unknown_.resize(known);
}

void Parser::for_loop(Statement& made) {
  made.kind = StatementKind::kFor;
  made.targets.push_back(target(false, "in"));
  if (!skip_name("in")) unexpected("\"in\"");
  made.expressions.push_back(tuple(Of::kWithoutConditions, "recursive"));
  const std::size_t known = unknown_.size();
  made.expressions.push_back(skip_name("if") ? expression() : nullptr);
  refuse_unknown(known);
  if (is_name("recursive")) refuse(now().place, "\"recursive\" loops are not known here");
  ++loops_;
  made.bodies.push_back(inner_body({"else", "endfor"}));
  --loops_;
  made.bodies.emplace_back();
  if (take().text == "endfor") return;
  made.bodies.back() = inner_body({"endfor"});
  take();
}

void Parser::signature(MacroBody& macro) {
  need_operator("(");
  const std::size_t known = unknown_.size();
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) need_operator(",");
    const Place place = now().place;
    Parameter parameter;
    parameter.name = need_name();
    if (skip_operator("=")) {
      parameter.fallback = expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      refuse(place, "a parameter without a default after one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  refuse_unknown(known);
  need_operator(")");
}

// Names that an inner body uses count for the outer body too.
void Parser::leave_macro(const MacroBody& inner, MacroBody* outer) {
  macro_ = outer;
  if (outer == nullptr) return;
  outer->uses_varargs = outer->uses_varargs || inner.uses_varargs;
  outer->uses_kwargs = outer->uses_kwargs || inner.uses_kwargs;
  outer->uses_caller = outer->uses_caller || inner.uses_caller;
}

void Parser::macro(Statement& made) {
  made.kind = StatementKind::kMacro;
  made.macro = std::make_unique<MacroBody>();
  made.macro->name = need_name();
  made.text = made.macro->name;
  MacroBody* outer = std::exchange(macro_, made.macro.get());
  const int loops = std::exchange(loops_, 0);
  signature(*made.macro);
  made.macro->body = inner_body({"endmacro"});
  take();
  leave_macro(*made.macro, outer);
  loops_ = loops;
}

void Parser::call_block(Statement& made) {
  made.kind = StatementKind::kCallBlock;
  made.macro = std::make_unique<MacroBody>();
  made.macro->name = "caller";
  if (is_operator("(")) signature(*made.macro);
  const Place place = now().place;
  made.expressions.push_back(expression());
  if (made.expressions[0]->kind != ExpressionKind::kCall) refuse(place, "a call block without a call");
  MacroBody* outer = std::exchange(macro_, made.macro.get());
  const int loops = std::exchange(loops_, 0);
  made.macro->body = inner_body({"endcall"});
  take();
  leave_macro(*made.macro, outer);
  loops_ = loops;
}

void Parser::with(Statement& made) {
  made.kind = StatementKind::kWith;
  while (now().kind != TokenKind::kBlockEnd) {
    if (!made.targets.empty()) need_operator(",");
    made.targets.push_back(tuple(Of::kNames, "="));
    if (!is_target(*made.targets.back())) refuse(made.place, "nothing can be assigned to this expression");
    need_operator("=");
    made.expressions.push_back(expression());
  }
  made.bodies.push_back(inner_body({"endwith"}));
  take();
}
}  // namespace magister::jinja
