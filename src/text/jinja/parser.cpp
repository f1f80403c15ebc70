// Parses expressions, from the operator of lowest precedence to names and literals.
#include "text/jinja/parser.h"

#include <algorithm>
#include <cstdlib>

namespace magister::jinja {
Token Parser::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_operator(std::string_view text) { return is_operator(text) ? (take(), true) : false; }
bool Parser::skip_name(std::string_view text) { return is_name(text) ? (take(), true) : false; }

void Parser::unexpected(std::string_view wanted) const {
  const Token& token = now();
  const char* what = token.kind == TokenKind::kEnd           ? "the end of the template"
                     : token.kind == TokenKind::kBlockEnd    ? "the end of a block"
                     : token.kind == TokenKind::kVariableEnd ? "the end of an output"
                     : token.kind == TokenKind::kData        ? "text"
                                                             : nullptr;
  if (what != nullptr) refuse(token.place, "{} expected, found {}", wanted, what);
  refuse(token.place, "{} expected, found \"{}\"", wanted, token.text);
}

void Parser::need_operator(std::string_view text) {
  if (!skip_operator(text)) unexpected(fmt::format("\"{}\"", text));
}

std::string Parser::need_name() {
  if (now().kind != TokenKind::kName) unexpected("a name");
  return take().text;
}

ExpressionPtr Parser::make(ExpressionKind kind, Place place, std::string name) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->place = place;
  made->name = std::move(name);
  return made;
}

ExpressionPtr Parser::finish(ExpressionPtr made) const {
  int highest = 0;
  const auto look = [&](const ExpressionPtr& part) {
    highest = part == nullptr ? highest : std::max(highest, part->height);
  };
  for (const ExpressionPtr& part : made->parts) look(part);
  if (made->arguments != nullptr) {
    for (const ExpressionPtr& part : made->arguments->positional) look(part);
    for (const auto& [name, part] : made->arguments->named) look(part);
    look(made->arguments->list);
    look(made->arguments->dict);
  }
  made->height = highest + 1;
  if (made->height > kMaxHeight) refuse(made->place, "an expression nested deeper than {}", kMaxHeight);
  return made;
}

ExpressionPtr Parser::binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right, std::string name,
                             Place place) {
  auto made = make(kind, place, std::move(name));
  made->parts.push_back(std::move(left));
  made->parts.push_back(std::move(right));
  return finish(std::move(made));
}

ExpressionPtr Parser::expression(bool with_condition) {
  const Deeper deeper(*this);
  const std::size_t known = unknown_.size();
  ExpressionPtr value = either();
  while (with_condition && is_name("if")) {
    auto made = make(ExpressionKind::kCondition, take().place);
    made->parts.push_back(either());
    made->parts.push_back(std::move(value));
    made->parts.push_back(skip_name("else") ? expression() : nullptr);
    unknown_.resize(known);
    value = finish(std::move(made));
  }
  return value;
}

ExpressionPtr Parser::either() {
  ExpressionPtr left = both();
  while (is_name("or")) {
    const Place place = take().place;
    left = binary(ExpressionKind::kOr, std::move(left), both(), "or", place);
  }
  return left;
}

ExpressionPtr Parser::both() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    const Place place = take().place;
    left = binary(ExpressionKind::kAnd, std::move(left), negation(), "and", place);
  }
  return left;
}

ExpressionPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  const Deeper deeper(*this);
  auto made = make(ExpressionKind::kNot, take().place);
  made->parts.push_back(negation());
  return finish(std::move(made));
}

ExpressionPtr Parser::comparison() {
  const Place place = now().place;
  auto made = make(ExpressionKind::kCompare, place);
  made->parts.push_back(sum());
  while (true) {
    static const Words kOperators = {"==", "!=", "<", "<=", ">", ">="};
    const bool ordered = now().kind == TokenKind::kOperator &&
                         std::find(kOperators.begin(), kOperators.end(), now().text) != kOperators.end();
    if (ordered || is_name("in")) {
      made->operators.push_back(take().text);
    } else if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      take();
      take();
      made->operators.push_back("not in");
    } else {
      break;
    }
    made->parts.push_back(sum());
  }
  if (made->operators.empty()) return std::move(made->parts[0]);
  return finish(std::move(made));
}

ExpressionPtr Parser::sum() {
  ExpressionPtr left = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token token = take();
    left = binary(ExpressionKind::kArithmetic, std::move(left), concatenation(), token.text, token.place);
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  ExpressionPtr first = product();
  if (!is_operator("~")) return first;
  auto made = make(ExpressionKind::kConcat, now().place);
  made->parts.push_back(std::move(first));
  while (skip_operator("~")) made->parts.push_back(product());
  return finish(std::move(made));
}

ExpressionPtr Parser::product() {
  ExpressionPtr left = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token token = take();
    left = binary(ExpressionKind::kArithmetic, std::move(left), power(), token.text, token.place);
  }
  return left;
}

ExpressionPtr Parser::power() {
  ExpressionPtr left = unary();
  while (is_operator("**")) {
    const Token token = take();
    left = binary(ExpressionKind::kArithmetic, std::move(left), unary(), token.text, token.place);
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filter) {
  const Deeper deeper(*this);
  ExpressionPtr value;
  if (is_operator("-") || is_operator("+")) {
    const Token token = take();
    value = make(ExpressionKind::kSign, token.place, token.text);
    value->parts.push_back(unary(false));
    value = finish(std::move(value));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::primary(bool with_namespace) {
  const Place place = now().place;
  if (now().kind != TokenKind::kName) return literal();
  const std::string name = take().text;
  auto constant = make(ExpressionKind::kConstant, place);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    constant->constant = Value::boolean(name == "true" || name == "True");
    return constant;
  }
  if (name == "none" || name == "None") {
    constant->constant = Value::none();
    return constant;
  }
  if (with_namespace && skip_operator(".")) {
    auto made = make(ExpressionKind::kNamespaceTarget, place, name);
    made->operators.push_back(need_name());
    return made;
  }
  if (macro_ != nullptr) {
    macro_->uses_varargs = macro_->uses_varargs || name == "varargs";
    macro_->uses_kwargs = macro_->uses_kwargs || name == "kwargs";
    macro_->uses_caller = macro_->uses_caller || name == "caller";
  }
  return make(ExpressionKind::kName, place, name);
}

ExpressionPtr Parser::literal() {
  const Deeper deeper(*this);
  const Token token = now();
  auto made = make(ExpressionKind::kConstant, token.place);
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (now().kind == TokenKind::kString) text += take().text;
    made->constant = Value::text(std::move(text));
    return made;
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) {
    take();
    made->constant = token.kind == TokenKind::kFloat ? Value::real(std::strtod(token.text.c_str(), nullptr))
                                                     : Value::integer(std::stoll(token.text));
    return made;
  }
  if (skip_operator("(")) {
    ExpressionPtr inner = tuple(Of::kExpressions, {}, true);
    need_operator(")");
    return inner;
  }
  const bool dict = is_operator("{");
  if (!skip_operator("[") && !skip_operator("{")) unexpected("an expression");
  const std::string_view end = dict ? "}" : "]";
  made->kind = dict ? ExpressionKind::kDict : ExpressionKind::kList;
  while (!is_operator(end)) {
    if (!made->parts.empty()) need_operator(",");
    if (is_operator(end)) break;
    made->parts.push_back(expression());
    if (dict) {
      need_operator(":");
      made->parts.push_back(expression());
    }
  }
  need_operator(end);
  return finish(std::move(made));
}

ExpressionPtr Parser::tuple(Of what, std::string_view stop, bool in_parentheses) {
  const auto at_end = [&] {
    const bool tag_ends = now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd;
    return tag_ends || is_operator(")") || (!stop.empty() && is_name(stop));
  };
  auto made = make(ExpressionKind::kTuple, now().place);
  bool commas = false;
  while (true) {
    if (!made->parts.empty()) need_operator(",");
    if (at_end()) break;
    made->parts.push_back(what == Of::kNames     ? primary()
                          : what == Of::kTargets ? primary(true)
                                                 : expression(what == Of::kExpressions));
    if (!is_operator(",")) break;
    commas = true;
  }
  if (!commas) {
    if (!made->parts.empty()) return std::move(made->parts[0]);
    if (!in_parentheses) unexpected("an expression");
  }
  return finish(std::move(made));
}
}  // namespace magister::jinja
