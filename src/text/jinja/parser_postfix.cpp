// Parses the suffixes of a value: attributes, indices, slices, calls, filters and tests.
#include <utility>

#include "text/jinja/operations.h"
#include "text/jinja/parser.h"

namespace magister::jinja {
namespace {

std::string hint(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near);
}

}  // namespace

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
  if (made->filter == nullptr) {
    made->unknown = fmt::format("the filter \"{}\" is not known here{}", made->name, hint(made->name, filter_names()));
    unknown_.emplace_back(made->place, made->unknown);
  }
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
  if (made->test == nullptr) {
    made->unknown = fmt::format("the test \"{}\" is not known here{}", made->name, hint(made->name, test_names()));
    unknown_.emplace_back(place, made->unknown);
  }
  made->parts.push_back(std::move(input));
  made->arguments = std::make_unique<CallArguments>();
  const TokenKind kind = now().kind;
  if (is_operator("(")) {
    made->arguments = call_arguments();
  } else if (kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
             is_operator("[") || is_operator("{") ||
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
