// Builds trees from tokens. Unknown names are refused before anything runs, except for filters and tests in the
// branches of a condition, which Jinja refuses only if the branch is taken.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace magister::jinja {

// Throws Error(kData) with source:line:column.
Block parse_template(std::string_view template_text, const std::string& source);

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& source) : tokens_(std::move(tokens)), source_(source) {}
  Block run();

 private:
  // parser.cpp: expressions, lowest precedence first.
  ExpressionPtr expression(bool with_condition = true);
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary(bool with_namespace = false);
  ExpressionPtr literal();
  // Several expressions with commas between them form a tuple. stop: a name that ends it.
  enum class Of { kExpressions, kWithoutConditions, kNames, kTargets };
  ExpressionPtr tuple(Of what, std::string_view stop = {}, bool in_parentheses = false);

  ExpressionPtr binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right, std::string name, Place place);
  ExpressionPtr make(ExpressionKind kind, Place place, std::string name = {}) const;
  ExpressionPtr finish(ExpressionPtr made) const;  // sets and bounds its height

  // parser_postfix.cpp
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr slice_or_item(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  ExpressionPtr call(ExpressionPtr callee);
  std::unique_ptr<CallArguments> call_arguments();

  // parser_statements.cpp
  using Words = std::vector<std::string_view>;
  Block block(const Words& ends);  // up to a tag that begins with one of `ends`, which stays the current token
  Block body(const Words& ends);   // from inside a tag: reads the tag's end, then block()
  // Reads the body of a statement that has its own scope: unknown names are refused here.
  Block inner_body(const Words& ends);
  void statement(Block& into);
  void set(Statement& made);
  void for_loop(Statement& made);
  void condition(Statement& made);
  void macro(Statement& made);
  void leave_macro(const MacroBody& inner, MacroBody* outer);
  void call_block(Statement& made);
  void with(Statement& made);
  void signature(MacroBody& macro);
  ExpressionPtr target(bool with_namespace, std::string_view stop = {});
  [[noreturn]] void refuse_statement(const Token& token) const;
  void refuse_unknown(std::size_t first) const;  // those in unknown_ from `first` on

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is_operator(std::string_view text) const { return now().kind == TokenKind::kOperator && now().text == text; }
  bool is_name(std::string_view text) const { return now().kind == TokenKind::kName && now().text == text; }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void need_operator(std::string_view text);
  std::string need_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;
  template <typename... Args>
  [[noreturn]] void refuse(Place place, fmt::format_string<Args...> format, Args&&... args) const {
    refuse_template(source_, place, "{}", fmt::format(format, std::forward<Args>(args)...));
  }

  // Counts the depth of the parser's recursion.
  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxParserDepth)
        parser.refuse(parser.now().place, "a template nested deeper than is known here");
    }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Parser& parser;
  };

  std::vector<Token> tokens_;
  const std::string& source_;
  std::size_t at_ = 0;
  int depth_ = 0;
  // Unknown filters and tests with their error messages; removed again if they are in a branch.
  std::vector<std::pair<Place, std::string>> unknown_;
  int loops_ = 0;               // around the current statement, inside the current macro
  MacroBody* macro_ = nullptr;  // the macro whose body is being read: it notes the use of varargs, kwargs and caller
};
}  // namespace magister::jinja
