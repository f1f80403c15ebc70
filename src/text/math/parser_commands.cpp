// See descent.h: numbers, letters, commands, matrices and brackets.
#include <algorithm>

#include "text/math/descent.h"
#include "text/math/lexer_tables.h"

namespace magister::math {
namespace {

// `bound`: index variables of sums, for which i and e are not constants.
TreePtr letter_tree(const std::string& letter, const std::vector<std::string>& bound) {
  if (std::find(bound.begin(), bound.end(), word_name(letter)) != bound.end())
    return named_tree(Kind::kSymbol, word_name(letter));
  if (letter == "e" || letter == "E") return named_tree(Kind::kConstant, "e");
  if (letter == "i" || letter == "I") return named_tree(Kind::kConstant, "i");
  return named_tree(Kind::kSymbol, word_name(letter));
}

}  // namespace

bool Parser::whole_number_at(std::size_t at) const {
  return at < tokens_.size() && tokens_[at].type == TokenType::kNumber &&
         tokens_[at].text.find('.') == std::string::npos;
}

// Reports whether a \frac of whole numbers only, in braces or digit by digit, and without a power follows. It looks
// ahead without parsing: to parse a part twice at every level would take exponential time.
bool Parser::fraction_of_numbers_follows() const {
  std::size_t at = at_ + 1, digit = 0;
  const auto sign_at = [&](std::size_t place, std::string_view sign) {
    return place < tokens_.size() && tokens_[place].type == TokenType::kSign && tokens_[place].text == sign;
  };
  for (int part = 0; part < 2; ++part) {
    if (digit == 0 && sign_at(at, "{")) {
      if (!whole_number_at(at + 1) || !sign_at(at + 2, "}")) return false;
      at += 3;
    } else if (!whole_number_at(at)) {
      return false;
    } else if (++digit == tokens_[at].text.size()) {
      ++at;
      digit = 0;
    }
  }
  return digit > 0 || !sign_at(at, "^");
}

TreePtr Parser::number() {
  const Token token = now();
  ++at_;
  const bool decimal = token.text.find('.') != std::string::npos;
  TreePtr whole = number_tree(rational_of(token.text), decimal);
  if (decimal) return whole;
  if (is("_")) {  // the base is not compared
    subscript();
    return whole;
  }
  // Mixed numbers: 2\frac{1}{3}, 2 1/3.
  if (is_command("frac") && fraction_of_numbers_follows()) return tree_of(Kind::kSum, {whole, command()});
  if (now().type == TokenType::kNumber && now().after_space && next().text == "/" &&
      next(2).type == TokenType::kNumber) {
    const Rational over = rational_of(now().text), under = rational_of(next(2).text);
    if (under != 0 && over < under) {
      at_ += 3;
      return tree_of(Kind::kSum, {whole, tree_of(Kind::kQuotient, {number_tree(over), number_tree(under)})});
    }
  }
  return whole;
}

TreePtr Parser::letter() {
  const std::string name = now().text;
  ++at_;
  TreePtr tree = letter_tree(name, bound_);
  if (is("_")) tree = named_tree(Kind::kSymbol, word_name(name) + "_" + subscript());
  while (take("'"))
    tree = named_tree(Kind::kSymbol, (tree->kind == Kind::kConstant ? word_name(name) : tree->name) + "'");
  if (name.size() != 1 || std::string_view("fghFGHPQWpq").find(name[0]) == std::string_view::npos || !is("("))
    return tree;
  // f(x) of letters and numbers only is the value of a function, f(x+1) is a product.
  std::size_t end = at_ + 1;
  std::string call = tree->name + "(";
  bool due = true;
  for (; end < tokens_.size(); ++end) {
    const Token& token = tokens_[end];
    const bool value = token.type == TokenType::kLetter || token.type == TokenType::kNumber;
    if (due ? !value : token.text != "," && token.text != ")") return tree;
    call += token.type == TokenType::kLetter ? word_name(token.text) : token.text;
    if (!due && token.text == ")") break;
    due = !due;
  }
  if (end >= tokens_.size()) return tree;
  at_ = end + 1;
  return named_tree(Kind::kSymbol, call);
}

// Reads one argument of a command: braces, or only the next token, of a number only its first digit.
TreePtr Parser::argument() {
  if (is("{")) return braced();
  if (now().type == TokenType::kNumber && now().text.size() > 1 && now().text.find('.') == std::string::npos) {
    Token& token = tokens_[at_];
    TreePtr digit = number_tree(rational_of(token.text.substr(0, 1)));
    token.text.erase(0, 1);
    return digit;
  }
  if (now().type == TokenType::kNumber) {
    TreePtr whole = number_tree(rational_of(now().text), now().text.find('.') != std::string::npos);
    ++at_;
    return whole;
  }
  return primary();
}

TreePtr Parser::function(const std::string& given) {
  std::string name = given;
  if (name == "exp")
    return tree_of(Kind::kPower, {named_tree(Kind::kConstant, "e"), is("(") || is("{") ? primary() : juxtaposed()});
  TreePtr base, exponent;
  for (bool again = true; again;) {
    again = false;
    if (name == "log" && is("_")) {
      ++at_;
      base = is("{") ? braced() : argument();
      again = true;
    } else if (take("^")) {
      exponent = is("{") ? braced() : argument();
      again = true;
    }
  }
  const bool minus_one = exponent && exponent->kind == Kind::kNumber && exponent->number == -1;
  if (minus_one && (name == "sin" || name == "cos" || name == "tan")) {
    name = "arc" + name;
    exponent = nullptr;
  }
  TreePtr inside;
  if (is("(") || is("{") || is("\\{")) {
    inside = primary();
    if (is("^") && next().text != "degree") inside = power_of(inside);
    while (is("^") || is("degree")) inside = power_of(inside);
  } else {  // the factors that follow, up to the next function
    std::vector<TreePtr> factors;
    const bool negative = take("-");
    while (starts_factor() &&
           !(now().type == TokenType::kCommand &&
             (std::find(kFunctions.begin(), kFunctions.end(), now().text) != kFunctions.end()) && !factors.empty())) {
      if (unit_follows(factors)) continue;
      factors.push_back(factor());
    }
    if (factors.empty()) throw Fault{name + " of nothing"};
    inside = factors.size() == 1 ? factors[0] : tree_of(Kind::kProduct, std::move(factors));
    if ((is("/") || is(":")) && next().type == TokenType::kNumber && name != "ln" && name != "log") {
      ++at_;
      inside = tree_of(Kind::kQuotient, {inside, factor()});
    }
    if (negative) inside = tree_of(Kind::kNegative, {inside});
  }
  std::vector<TreePtr> arguments = {inside};
  if (inside->kind == Kind::kGroup || inside->kind == Kind::kSet) arguments = inside->parts;
  if (name == "lg") {
    name = "log";
    base = number_tree(10);
  }
  if (name == "log") arguments.push_back(base ? base : number_tree(10));
  TreePtr call = named_tree(Kind::kCall, name, std::move(arguments));
  return exponent ? tree_of(Kind::kPower, {call, exponent}) : call;
}

TreePtr Parser::folded(const std::string& name) {
  TreePtr from, to;
  for (bool again = true; again;) {
    again = true;
    if (take("_")) {
      from = is("{") ? braced() : argument();
    } else if (take("^")) {
      to = is("{") ? braced() : argument();
    } else {
      again = false;
    }
  }
  const bool known = from && to && from->kind == Kind::kRelation && from->parts.size() == 2 && from->signs[0] == "=";
  if (!known || (from->parts[0]->kind != Kind::kSymbol && from->parts[0]->kind != Kind::kConstant))
    throw Fault{"a sum without known bounds"};
  const std::string counts = from->parts[0]->name;
  bound_.push_back(counts);
  TreePtr term = product();
  bound_.pop_back();
  return named_tree(Kind::kCall, name == "sum" ? "total" : "multiplied",
                    {named_tree(Kind::kSymbol, counts), from->parts[1], to, std::move(term)});
}

TreePtr Parser::command() {
  const std::string name = now().text;
  ++at_;
  if (name == "frac") {
    TreePtr over = argument();
    return tree_of(Kind::kQuotient, {over, argument()});
  }
  if (name == "binom") {
    TreePtr over = argument();
    return named_tree(Kind::kCall, "binomial", {over, argument()});
  }
  if (name == "sqrt") {
    TreePtr index = number_tree(2);
    if (take("[")) {
      index = sum();
      expect("]");
    }
    TreePtr inside = is("{") ? braced() : argument();
    return named_tree(Kind::kCall, "root", {inside, index});
  }
  if (name == "pi") return named_tree(Kind::kConstant, "pi");
  if (name == "infty") return named_tree(Kind::kConstant, "infinity");
  if (name == "emptyset" || name == "varnothing") return tree_of(Kind::kSet, {});
  if (name == "sum" || name == "prod") return folded(name);
  if (name == "begin") return matrix();
  if (name == "mathbb" || name == "mathcal") {
    TreePtr set = argument();
    static constexpr std::string_view kSets = "rznqc";
    if (name == "mathbb" && set->kind == Kind::kSymbol && set->name.size() == 1 &&
        kSets.find(set->name[0]) != std::string_view::npos)
      return named_tree(Kind::kConstant, "numbers " + set->name);
    return set;
  }
  if (std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end()) return function(name);
  static constexpr std::string_view kMarks[] = {"overline",       "vec",   "hat", "bar",
                                                "overrightarrow", "tilde", "dot", "widehat"};
  if (std::find(std::begin(kMarks), std::end(kMarks), name) != std::end(kMarks)) {
    const bool after_point = at_ >= 2 && tokens_[at_ - 2].type == TokenType::kNumber;
    if (after_point) throw Fault{"a repeating decimal"};
    TreePtr inside = argument();
    if (inside->kind == Kind::kNumber) throw Fault{name + " over a number"};
    return named_tree(Kind::kSymbol, name + " " + text_of(*inside));
  }
  throw Fault{"\\" + name + " is not read"};
}

TreePtr Parser::matrix() {
  expect("{");
  std::string name;
  for (; !is("}") && now().type != TokenType::kEnd; ++at_) name += now().text;
  expect("}");
  const bool determinant = name == "vmatrix";
  if (name == "array" || name == "tabular") {
    if (take("{"))
      while (!take("}") && now().type != TokenType::kEnd) ++at_;
  } else if (!name.ends_with("matrix")) {
    throw Fault{"an environment that is not a matrix"};
  }
  const bool was = std::exchange(in_matrix_, true);
  std::vector<TreePtr> rows;
  std::vector<TreePtr> row;
  const auto end_row = [&] {
    if (!row.empty()) rows.push_back(tree_of(Kind::kList, std::exchange(row, {})));
  };
  while (!is_command("end")) {
    if (now().type == TokenType::kEnd) throw Fault{"a matrix without an end"};
    if (take("row")) {
      end_row();
    } else if (!take("&")) {
      row.push_back(sum());
    }
  }
  end_row();
  in_matrix_ = was;
  ++at_;
  expect("{");
  while (!take("}") && now().type != TokenType::kEnd) ++at_;
  const bool even = std::all_of(rows.begin(), rows.end(),
                                [&](const TreePtr& one) { return one->parts.size() == rows[0]->parts.size(); });
  if (rows.empty() || !even) throw Fault{"a matrix with rows of different lengths"};
  TreePtr made = tree_of(Kind::kMatrix, std::move(rows));
  return determinant ? named_tree(Kind::kCall, "determinant", {made}) : made;
}

TreePtr Parser::bracketed() {
  const int bars = std::exchange(bars_, 0);
  const bool was_matrix = std::exchange(in_matrix_, false);
  const std::string open = now().text;
  ++at_;
  const auto closes = [&] { return open == "\\{" ? is("\\}") : is(")") || is("]"); };
  TreePtr inside;
  if (!closes()) inside = list();
  if (!closes()) throw Fault{"a bracket that does not close"};
  const std::string close = now().text;
  ++at_;
  bars_ = bars;
  in_matrix_ = was_matrix;
  if (open == "\\{") {
    if (!inside) return tree_of(Kind::kSet, {});
    return tree_of(Kind::kSet, inside->kind == Kind::kList ? inside->parts : std::vector<TreePtr>{inside});
  }
  if (!inside) throw Fault{"brackets around nothing"};
  if (inside->kind == Kind::kList) return named_tree(Kind::kGroup, open + close, inside->parts);
  return inside;
}

// {1,2} in plain braces is a set too.
TreePtr Parser::braced() {
  const Deeper deeper(depth_);
  const int bars = std::exchange(bars_, 0);
  expect("{");
  if (is("}")) throw Fault{"braces around nothing"};
  TreePtr inside = list();
  expect("}");
  bars_ = bars;
  return inside->kind == Kind::kList ? tree_of(Kind::kSet, inside->parts) : inside;
}

TreePtr Parser::absolute() {
  expect("|");
  ++bars_;
  TreePtr inside = sum();
  --bars_;
  expect("|");
  return named_tree(Kind::kCall, "abs", {inside});
}

}  // namespace magister::math
