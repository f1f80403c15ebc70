// The parser's state and its functions; parser.cpp reads sums, products and powers, parser_commands.cpp commands and
// brackets.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/math/lexer.h"
#include "text/math/parser.h"
#include "text/math/tree.h"

namespace magister::math {

struct Fault {
  std::string why;
  bool too_long = false;
};

// Letters and digits of the text, in lower case.
std::string word_name(std::string_view text);

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  TreePtr whole();

 private:
  class Deeper {
   public:
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kMaxDepth) throw Fault{"brackets or powers more than 200 deep", true};
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;

   private:
    int& depth_;
  };

  // At the end this stays on the last token, kEnd, even if a reader has stepped past it.
  const Token& now() const { return tokens_[std::min(at_, tokens_.size() - 1)]; }
  const Token& next(std::size_t ahead = 1) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool is(std::string_view sign) const { return now().type == TokenType::kSign && now().text == sign; }
  bool is_command(std::string_view name) const { return now().type == TokenType::kCommand && now().text == name; }
  bool take(std::string_view sign) {
    if (!is(sign)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view sign) {
    if (!take(sign)) throw Fault{"\"" + std::string(sign) + "\" is missing"};
  }

  TreePtr list();
  TreePtr relation();
  TreePtr unions();
  TreePtr sum();
  TreePtr product();
  TreePtr juxtaposed();
  bool unit_follows(const std::vector<TreePtr>& factors);
  bool starts_factor() const;
  bool whole_number_at(std::size_t at) const;
  bool fraction_of_numbers_follows() const;
  TreePtr factor();
  TreePtr power_of(TreePtr base);
  TreePtr primary();
  TreePtr number();
  TreePtr letter();
  TreePtr command();
  TreePtr function(const std::string& name);
  TreePtr folded(const std::string& name);
  TreePtr matrix();
  TreePtr bracketed();
  TreePtr braced();
  TreePtr absolute();
  TreePtr argument();
  std::string subscript();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int bars_ = 0;
  bool in_matrix_ = false;
  std::vector<std::string> bound_;  // index variables of the surrounding sums
};

}  // namespace magister::math
