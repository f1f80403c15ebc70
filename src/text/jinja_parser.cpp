// Expressions.
#include "text/jinja_parser.h"

#include <algorithm>
#include <cstdlib>

#include "text/jinja_operations.h"

namespace magister::jinja {
namespace {

std::string hint(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near);
}

}  // namespace

Token Parser::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_operator(std::string_view text) { return is_operator(text) ? (take(), true) : false; }
bool Parser::skip_name(std::string_view text) { return is_name(text) ? (take(), true) : false; }

void Parser::unexpected(std::string_view wanted) const {
  const Token& token = now();
  const char* what = token.kind == TokenKind::kEnd        ? "the end of the template"
                     : token.kind == TokenKind::kBlockEnd ? "the end of a block"
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
  const auto look = [&](const ExpressionPtr& part) { highest = part == nullptr ? highest : std::max(highest, part->height); };
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

ExpressionPtr Parser::binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right, std::string name, Place place) {
  auto made = make(kind, place, std::move(name));
  made->parts.push_back(std::move(left));
  made->parts.push_back(std::move(right));
  return finish(std::move(made));
}

ExpressionPtr Parser::expression(bool with_condition) {
  const Deeper deeper(*this);
  ExpressionPtr value = either();
  while (with_condition && is_name("if")) {
    auto made = make(ExpressionKind::kCondition, take().place);
    made->parts.push_back(either());
    made->parts.push_back(std::move(value));
    made->parts.push_back(skip_name("else") ? expression() : nullptr);
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
    const bool ordered = now().kind == TokenKind::kOperator && std::find(kOperators.begin(), kOperators.end(), now().text) != kOperators.end();
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

ExpressionPtr Parser::postfix(ExpressionPtr value) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      value = subscript(std::move(value));
    } else if (is_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr value) {
  const Token token = take();
  if (token.text == "[") return slice_or_item(std::move(value));
  if (now().kind == TokenKind::kName) {
    auto made = make(ExpressionKind::kAttribute, token.place, take().text);
    made->parts.push_back(std::move(value));
    return finish(std::move(made));
  }
  if (now().kind != TokenKind::kInteger) unexpected("a name or a number");
  return binary(ExpressionKind::kItem, std::move(value), literal(), "", token.place);
}

ExpressionPtr Parser::slice_or_item(ExpressionPtr value) {
  const Place place = now().place;
  if (is_operator("]")) unexpected("an index");
  ExpressionPtr first = is_operator(":") ? nullptr : expression();
  if (is_operator(",")) refuse(place, "an index of several parts is not known here");
  if (!is_operator(":")) {
    need_operator("]");
    return binary(ExpressionKind::kItem, std::move(value), std::move(first), "", place);
  }
  auto made = make(ExpressionKind::kSlice, place);
  made->parts.push_back(std::move(value));
  made->parts.push_back(std::move(first));
  for (int i = 0; i < 2; ++i) {
    const bool given = skip_operator(":") && !is_operator(":") && !is_operator("]");
    made->parts.push_back(given ? expression() : nullptr);
  }
  need_operator("]");
  return finish(std::move(made));
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (skip_operator("|")) {
      value = filter(std::move(value));
    } else if (is_name("is")) {
      value = test(std::move(value));
    } else if (is_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::filter(ExpressionPtr input) {
  auto made = make(ExpressionKind::kFilter, now().place, need_name());
  while (skip_operator(".")) made->name += "." + need_name();
  made->filter = find_filter(made->name);
  if (made->filter == nullptr) refuse(made->place, "the filter \"{}\" is not known here{}", made->name, hint(made->name, filter_names()));
  made->parts.push_back(std::move(input));
  made->arguments = is_operator("(") ? call_arguments() : std::make_unique<CallArguments>();
  return finish(std::move(made));
}

ExpressionPtr Parser::test(ExpressionPtr input) {
  const Place place = take().place;
  const bool negated = skip_name("not");
  auto made = make(ExpressionKind::kTest, place, need_name());
  while (skip_operator(".")) made->name += "." + need_name();
  made->test = find_test(made->name);
  if (made->test == nullptr) refuse(place, "the test \"{}\" is not known here{}", made->name, hint(made->name, test_names()));
  made->parts.push_back(std::move(input));
  made->arguments = std::make_unique<CallArguments>();
  const TokenKind kind = now().kind;
  if (is_operator("(")) {
    made->arguments = call_arguments();
  } else if (kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat || is_operator("[") || is_operator("{") ||
             (kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) refuse(now().place, "two tests with \"is\" in a row");
    made->arguments->positional.push_back(postfix(primary()));
  }
  made = finish(std::move(made));
  if (!negated) return made;
  auto inverse = make(ExpressionKind::kNot, place);
  inverse->parts.push_back(std::move(made));
  return finish(std::move(inverse));
}

ExpressionPtr Parser::call(ExpressionPtr callee) {
  if (callee->kind == ExpressionKind::kAttribute && is_unknown_method_everywhere(callee->name)) {
    refuse(callee->place, "the method \"{}\" is not known here", callee->name);
  }
  auto made = make(ExpressionKind::kCall, now().place);
  made->parts.push_back(std::move(callee));
  made->arguments = call_arguments();
  return finish(std::move(made));
}

std::unique_ptr<CallArguments> Parser::call_arguments() {
  const Deeper deeper(*this);
  auto made = std::make_unique<CallArguments>();
  const Place place = now().place;
  const auto need = [&](bool good) {
    if (!good) refuse(place, "arguments in an order that a call does not allow");
  };
  need_operator("(");
  bool first = true;
  while (!is_operator(")")) {
    if (!first) need_operator(",");
    first = false;
    if (is_operator(")")) break;
    if (skip_operator("*")) {
      need(made->list == nullptr && made->dict == nullptr);
      made->list = expression();
    } else if (skip_operator("**")) {
      need(made->dict == nullptr);
      made->dict = expression();
    } else if (now().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
      need(made->dict == nullptr);
      std::string name = take().text;
      take();
      made->named.emplace_back(std::move(name), expression());
    } else {
      need(made->list == nullptr && made->dict == nullptr && made->named.empty());
      made->positional.push_back(expression());
    }
  }
  need_operator(")");
  return made;
}
}  // namespace magister::jinja
