// See parser.h: recursive descent. Adjacent values without a sign are a product that binds tighter than "/": 1/2x is
// 1/(2x).
#include "text/math/parser.h"

#include <algorithm>
#include <cctype>
#include <tuple>

#include "text/math/descent.h"
#include "text/math/lexer_tables.h"

namespace magister::math {

std::string word_name(std::string_view text) {
  std::string name;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

namespace {

bool is_text_separator(const std::string& sign) { return sign == "," || sign == ";" || sign == "and"; }

bool is_relation_sign(const Token& token) {
  static constexpr std::string_view kSigns[] = {"=", "!=", "<", "<=", ">", ">=", "in", "~"};
  return token.type == TokenType::kSign &&
         std::find(std::begin(kSigns), std::end(kSigns), token.text) != std::end(kSigns);
}

}  // namespace

TreePtr Parser::whole() {
  while (is(",") || is(";") || is("=") || is(":") || is("row") || is("&") || is("implies")) ++at_;
  if (now().type == TokenType::kEnd) throw Fault{"nothing in it"};
  TreePtr tree = list();
  if (now().type != TokenType::kEnd) throw Fault{"an unexpected \"" + now().text + "\""};
  return tree;
}

TreePtr Parser::list() {
  std::vector<TreePtr> parts = {relation()};
  while (now().type == TokenType::kSign && is_text_separator(now().text)) {
    while (now().type == TokenType::kSign && (is_text_separator(now().text))) ++at_;
    if (now().type == TokenType::kEnd || is(")") || is("]") || is("}") || is("\\}")) break;
    if (take("dots")) continue;
    parts.push_back(relation());
  }
  return parts.size() == 1 ? parts[0] : tree_of(Kind::kList, std::move(parts));
}

TreePtr Parser::relation() {
  Tree chain;
  chain.kind = Kind::kRelation;
  chain.parts.push_back(unions());
  while (is_relation_sign(now()) || is("&")) {
    if (in_matrix_ && is("&")) break;
    if (take("&")) continue;
    std::string sign = now().text;
    ++at_;
    take("&");
    if (take("=")) sign += "=";
    chain.signs.push_back(sign);
    chain.parts.push_back(unions());
  }
  // "x = 1/3 ~ 0.33": the approximation adds nothing.
  const auto about = std::find(chain.signs.begin(), chain.signs.end(), "~");
  if (about != chain.signs.end()) {
    const auto kept = static_cast<std::size_t>(about - chain.signs.begin());
    if (kept == 0) return chain.parts[1];  // "x ~ 5"
    chain.signs.resize(kept);
    chain.parts.resize(kept + 1);
  }
  if (chain.signs.empty()) return chain.parts[0];
  return std::make_shared<const Tree>(std::move(chain));
}

TreePtr Parser::unions() {
  TreePtr left = sum();
  for (;;) {
    std::string name = is("cup") ? "union" : is("cap") ? "intersection" : is("setminus") ? "difference" : "";
    if (name.empty()) return left;
    ++at_;
    left = named_tree(Kind::kUnion, name, {left, sum()});
  }
}

TreePtr Parser::sum() {
  std::vector<TreePtr> parts;
  for (bool first = true;; first = false) {
    bool negative = false, any = false;
    std::string both;
    while (is("+") || is("-") || is("+-") || is("-+")) {
      if (is("-")) negative = !negative;
      if (is("+-") || is("-+")) both = now().text;
      any = true;
      ++at_;
    }
    if (!first && !any) break;
    TreePtr part = product();
    if (negative)
      part = part->kind == Kind::kNumber ? number_tree(-part->number, part->decimal) : tree_of(Kind::kNegative, {part});
    if (!both.empty()) part = named_tree(Kind::kSigns, both, {part});
    parts.push_back(part);
  }
  return parts.size() == 1 ? parts[0] : tree_of(Kind::kSum, std::move(parts));
}

TreePtr Parser::product() {
  TreePtr left = juxtaposed();
  for (;;) {
    if (is("*")) {
      ++at_;
      const bool negative = take("-");
      TreePtr right = juxtaposed();
      if (negative) right = tree_of(Kind::kNegative, {right});
      left = tree_of(Kind::kProduct, {left, right});
    } else if (is("/") || is(":")) {
      ++at_;
      left = tree_of(Kind::kQuotient, {left, juxtaposed()});
    } else if (is_command("bmod") || is_command("mod")) {
      ++at_;
      left = named_tree(Kind::kCall, "mod", {left, juxtaposed()});
    } else if (is_command("choose")) {
      ++at_;
      left = named_tree(Kind::kCall, "binomial", {left, juxtaposed()});
    } else {
      return left;
    }
  }
}

bool Parser::starts_factor() const {
  if (now().type == TokenType::kNumber || now().type == TokenType::kLetter || now().type == TokenType::kText)
    return true;
  if (now().type == TokenType::kCommand)
    return !is_command("end") && !is_command("bmod") && !is_command("mod") && !is_command("choose") &&
           !is_command("pmod");
  if (is("|")) return bars_ == 0;
  return is("(") || is("[") || is("\\{") || is("{") || is("lfloor") || is("lceil");
}

// Skips a unit after the factors: words, or a short unit at the end.
bool Parser::unit_follows(const std::vector<TreePtr>& factors) {
  if (factors.empty()) return false;
  const std::size_t begin = at_;
  if (now().type == TokenType::kText) {
    for (;;) {
      if (now().type == TokenType::kText ||
          (at_ > begin && now().type == TokenType::kLetter && next().type == TokenType::kEnd)) {
        ++at_;
      } else if (at_ > begin && is("^")) {
        ++at_;
        if (is("{")) {
          while (!is("}") && now().type != TokenType::kEnd) ++at_;
          expect("}");
        } else {
          take("-");
          ++at_;
        }
      } else if ((is("/") || is("*")) && (next().type == TokenType::kText ||
                                          (next().type == TokenType::kLetter && next(2).type == TokenType::kEnd))) {
        at_ += 2;
      } else {
        return true;
      }
    }
  }
  const bool short_unit = now().type == TokenType::kLetter && now().text.size() == 1 &&
                          kShortUnits.find(now().text[0]) != std::string_view::npos;
  if (!short_unit || next().type != TokenType::kEnd || depth_ > 1) return false;
  const bool about_number =
      std::all_of(factors.begin(), factors.end(), [](const TreePtr& one) { return symbols_of(*one).empty(); });
  if (about_number) ++at_;
  return about_number;
}

TreePtr Parser::juxtaposed() {
  const Deeper deeper(depth_);
  std::vector<TreePtr> factors;
  if (take("-")) return tree_of(Kind::kNegative, {juxtaposed()});
  if (take("+")) return juxtaposed();
  if (!starts_factor() && !is("|"))
    throw Fault{now().type == TokenType::kEnd ? "it ends too soon" : "\"" + now().text + "\" instead of a value"};
  while (starts_factor() || (factors.empty() && is("|"))) {
    if (unit_follows(factors)) continue;
    const bool number = now().type == TokenType::kNumber;
    TreePtr part = factor();
    if (number && !factors.empty() && factors.back()->kind == Kind::kNumber &&
        tokens_[at_ - 1].type == TokenType::kNumber && tokens_[at_ - 2].type == TokenType::kNumber)
      throw Fault{"two numbers side by side"};
    factors.push_back(std::move(part));
  }
  return factors.size() == 1 ? factors[0] : tree_of(Kind::kProduct, std::move(factors));
}

TreePtr Parser::factor() { return power_of(primary()); }

TreePtr Parser::power_of(TreePtr base) {
  for (;;) {
    if (is("^") && next().type == TokenType::kSign && next().text == "degree") {
      at_ += 2;
    } else if (is("^") && next().text == "{" && next(2).text == "degree" && next(3).text == "}") {
      at_ += 4;
    } else if (take("degree")) {
    } else if (is("^") && (next().type == TokenType::kText ||
                           (next().text == "{" && next(2).type == TokenType::kText && next(3).text == "}"))) {
      at_ += next().type == TokenType::kText ? 2 : 4;  // 5^{\text{th}}
    } else if (take("^")) {
      const Deeper deeper(depth_);
      const bool negative = !is("{") && take("-");
      TreePtr exponent = is("{") ? braced() : primary();
      if (is("^")) exponent = power_of(exponent);  // 2^3^2
      if (negative) exponent = tree_of(Kind::kNegative, {exponent});
      base = tree_of(Kind::kPower, {base, exponent});
    } else if (take("!")) {
      base = named_tree(Kind::kCall, "factorial", {base});
    } else if (take("%")) {
      base = tree_of(Kind::kPercent, {base});
    } else if (is("'") && base->kind == Kind::kSymbol) {
      ++at_;
      base = named_tree(Kind::kSymbol, base->name + "'");
    } else if (is("_")) {
      const std::string index = subscript();
      if (base->kind == Kind::kSymbol || base->kind == Kind::kConstant)
        base = named_tree(Kind::kSymbol, base->name + "_" + index);
    } else {
      return base;
    }
  }
}

std::string Parser::subscript() {
  expect("_");
  std::string name;
  if (take("{")) {
    for (int open = 1; now().type != TokenType::kEnd; ++at_) {
      open += is("{") ? 1 : is("}") ? -1 : 0;
      if (open == 0) break;
      name += word_name(now().text).empty() ? now().text : word_name(now().text);
    }
    expect("}");
    return name;
  }
  if (now().type == TokenType::kEnd) throw Fault{"an index is missing"};
  name = word_name(now().text);
  ++at_;
  return name;
}

TreePtr Parser::primary() {
  const Deeper deeper(depth_);
  const Token token = now();
  switch (token.type) {
    case TokenType::kNumber:
      return number();
    case TokenType::kLetter:
      return letter();
    case TokenType::kCommand:
      return command();
    case TokenType::kText:
      ++at_;
      return named_tree(Kind::kSymbol, word_name(token.text));
    default:
      break;
  }
  if (is("(") || is("[") || is("\\{")) return bracketed();
  if (is("{")) return braced();
  if (is("|")) return absolute();
  for (const auto& [open, close, name] :
       {std::tuple{"lfloor", "rfloor", "floor"}, std::tuple{"lceil", "rceil", "ceiling"}}) {
    if (!take(open)) continue;
    TreePtr inside = sum();
    expect(close);
    return named_tree(Kind::kCall, name, {inside});
  }
  throw Fault{token.type == TokenType::kEnd ? "it ends too soon" : "\"" + token.text + "\" instead of a value"};
}

Parsed parse_formula(std::string_view text) {
  if (text.size() > kMaxText) return {nullptr, "more than 64 kB of text", true};
  Tokens tokens = tokens_of(text);
  if (!tokens.fault.empty()) return {nullptr, tokens.fault, tokens.too_long};
  try {
    return {Parser(std::move(tokens.all)).whole(), ""};
  } catch (const Fault& fault) {
    return {nullptr, fault.why, fault.too_long};
  }
}

}  // namespace magister::math
