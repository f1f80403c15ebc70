// Masks compared with independent answers: prefixes of the choices by hand, and where that is impossible every single
// token tried on a fresh matcher. Also the refusals.
#include "magister/engine/constraint.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>

#include "magister/core/error.h"

namespace magister {
namespace constraint_test {

using Kind = ConstraintRule::Kind;

// A byte-level vocabulary with some longer tokens (one begins in the middle of a character), a hole, two special tokens
// and padding up to 300.
class Masks : public testing::Test {
 protected:
  static constexpr TokenId kEnd = 256, kSpecial = 257, kHole = 258;
  static constexpr std::int64_t kVocab = 300;
  Masks() {
    for (int byte = 0; byte < 256; ++byte) tokens_.push_back(std::string(1, static_cast<char>(byte)));
    tokens_.insert(tokens_.end(), {"", "", "", "ab", "ba", "abc", "\": ", ", ", "{\"", "tr", "true", "12", "\xA9 x",
                                   "ca", "caf\xC3", "aa"});
  }
  std::unique_ptr<Constraint> compile(Kind kind, const std::string& text, std::vector<std::string> choices = {}) {
    const std::vector<TokenId> ends{kEnd};
    return std::make_unique<Constraint>(ConstraintRule{kind, text, std::move(choices), "constraint.test"}, tokens_,
                                        ends, kVocab);
  }
  static bool has(std::span<const std::uint64_t> mask, TokenId id) {
    const auto i = static_cast<std::size_t>(id);
    return !mask.empty() && (mask[i / 64] >> (i % 64) & 1) != 0;
  }
  std::string message(Kind kind, const std::string& text, std::vector<std::string> choices = {}) {
    try {
      compile(kind, text, std::move(choices));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kConfig);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "accepted";
  }

  // A text of at most max_tokens by uniform draws from the masks; every mask is compared with trying each token.
  std::string walk(const Constraint& constraint, std::uint32_t seed, std::size_t max_tokens, bool* finished = nullptr) {
    std::minstd_rand draw(seed);
    ConstraintState state(constraint);
    std::vector<TokenId> written;
    std::string text;
    while (!state.finished() && written.size() < max_tokens) {
      const auto mask = state.allowed();
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < kVocab; ++id) {
        ConstraintState other(constraint);
        for (const TokenId token : written) EXPECT_TRUE(other.accept(token));
        const bool real =
            id < static_cast<TokenId>(tokens_.size()) && (id == kEnd || !tokens_[static_cast<std::size_t>(id)].empty());
        EXPECT_EQ(has(mask, id), real && other.accept(id)) << "token " << id << " after \"" << text << "\"";
        if (has(mask, id)) allowed.push_back(id);
      }
      EXPECT_FALSE(allowed.empty());
      if (allowed.empty()) return text;
      const TokenId next = allowed[draw() % allowed.size()];
      EXPECT_TRUE(state.accept(next));
      written.push_back(next);
      if (next != kEnd) text += tokens_[static_cast<std::size_t>(next)];
    }
    if (finished != nullptr) *finished = state.finished();
    return text;
  }

  std::vector<std::string> tokens_;
};

TEST_F(Masks, ChoicesAllowThePrefixesOfWhatIsLeft) {
  const std::vector<std::string> choices{"ab", "abc", "ba\n\"\\", "caf\xC3\xA9 x", "\xE6\x95\xB0"};
  const auto constraint = compile(Kind::kChoice, "", choices);
  // Every token sequence that is possible, by hand.
  int states = 0;
  const auto visit = [&](const auto& self, const std::vector<TokenId>& written, const std::string& text) -> void {
    ++states;
    ConstraintState state(*constraint);
    for (const TokenId token : written) ASSERT_TRUE(state.accept(token));
    const auto mask = state.allowed();
    for (TokenId id = 0; id < kVocab; ++id) {
      const std::string longer =
          text + (id < static_cast<TokenId>(tokens_.size()) ? tokens_[static_cast<std::size_t>(id)] : "");
      bool want = id == kEnd && std::find(choices.begin(), choices.end(), text) != choices.end();
      for (const std::string& choice : choices) want |= longer.size() > text.size() && choice.starts_with(longer);
      ASSERT_EQ(has(mask, id), want) << "token " << id << " after \"" << text << "\"";
      if (!want || id == kEnd) continue;
      std::vector<TokenId> next = written;
      next.push_back(id);
      self(self, next, longer);
    }
  };
  visit(visit, {}, "");
  EXPECT_GT(states, 20);
}

// Digits after an escaped character are the text's own.
TEST_F(Masks, ChoicesAreWrittenAsTheyStand) {
  const std::vector<std::string> choices = {
      "a\nb",  "a\tf",    std::string("x\x01") + "beef", std::string("\x7F") + "00",       "say \"no\"",   "a\\nb",
      "\\x41", "\\u0041", "\xF0\x9F\x98\x80 2",          std::string("caf\xC3\xA9") + "a", "[a-b]{2} | #", "\x1F"};
  for (const std::string& choice : choices) {
    const auto constraint = compile(Kind::kChoice, "", {choice});
    bool finished = false;
    EXPECT_EQ(walk(*constraint, 1, choice.size() + 1, &finished), choice);
    EXPECT_TRUE(finished) << choice;
  }
}

TEST_F(Masks, TryingEveryTokenGivesTheSameMask) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items":
    {"type": "integer"}, "maxItems": 2}, "ab": {"enum": ["caf\u00e9 x", 12, null]}}, "required": ["a", "b", "ab"]})";
  for (const auto& constraint :
       {compile(Kind::kJsonSchema, schema), compile(Kind::kRegex, "(ab|ba)+[^a]?caf. x|[0-9]{1,3}"),
        compile(Kind::kGrammar, "root ::= \"(\" root \")\" | \"ab\"")}) {
    for (std::uint32_t seed = 1; seed < 5; ++seed) walk(*constraint, seed, 24);
  }
}

TEST_F(Masks, CompleteTextsEndAndNothingElse) {
  const auto constraint = compile(Kind::kRegex, "ab");
  ConstraintState state(*constraint);
  EXPECT_FALSE(state.accept(kEnd)) << "not complete yet";
  EXPECT_FALSE(state.accept('b'));
  EXPECT_TRUE(state.accept(259));
  EXPECT_FALSE(state.finished());
  const auto mask = state.allowed();
  for (TokenId id = 0; id < kVocab; ++id) EXPECT_EQ(has(mask, id), id == kEnd);
  EXPECT_TRUE(state.accept(kEnd));
  EXPECT_TRUE(state.finished());
}

TEST_F(Masks, SpecialTokensHolesAndPaddingAreNeverAllowed) {
  const auto anything = compile(Kind::kRegex, ".*");
  ConstraintState state(*anything);
  const auto mask = state.allowed();
  for (TokenId id = kSpecial; id <= kHole; ++id) EXPECT_FALSE(has(mask, id));
  for (TokenId id = static_cast<TokenId>(tokens_.size()); id < kVocab; ++id) EXPECT_FALSE(has(mask, id));
  EXPECT_TRUE(has(mask, 'a') && has(mask, 259) && has(mask, kEnd));
  EXPECT_FALSE(has(mask, '\n')) << "a dot is not a line end, as in Python";
  EXPECT_FALSE(has(mask, 0xFF)) << "no character begins with this byte";
  const auto two_dots = compile(Kind::kRegex, "[.]\\.a");
  ConstraintState dots(*two_dots);
  EXPECT_TRUE(dots.accept('.') && dots.accept('.') && dots.accept('a') && dots.accept(kEnd));
}

TEST_F(Masks, TextsAreUtf8) {
  tokens_.insert(tokens_.end(), {"\xED\xA0\x80", "\xED\x9F", "a\xED", "\xA0\x80", "\x9F\xBF"});
  const auto constraint = compile(Kind::kRegex, "[^b]*");
  const TokenId first = static_cast<TokenId>(tokens_.size()) - 5;
  for (const TokenId lead : {static_cast<TokenId>(0xED), static_cast<TokenId>(first + 2)}) {
    ConstraintState state(*constraint);
    EXPECT_FALSE(has(state.allowed(), first)) << "a surrogate";
    EXPECT_TRUE(has(state.allowed(), first + 1));
    ASSERT_TRUE(state.accept(lead));
    for (TokenId id = 0; id < 256; ++id) EXPECT_EQ(has(state.allowed(), id), id >= 0x80 && id < 0xA0);
    EXPECT_FALSE(has(state.allowed(), first + 3));
    EXPECT_TRUE(has(state.allowed(), first + 4));
    EXPECT_FALSE(state.accept(0xA0));
    EXPECT_TRUE(state.accept(first + 4));
  }
  for (const auto& [lead, least, most] : std::vector<std::array<int, 3>>{{0xC3, 0x80, 0xBF},
                                                                         {0xE0, 0xA0, 0xBF},
                                                                         {0xE1, 0x80, 0xBF},
                                                                         {0xF0, 0x90, 0xBF},
                                                                         {0xF1, 0x80, 0xBF},
                                                                         {0xF4, 0x80, 0x8F}}) {
    ConstraintState state(*constraint);
    ASSERT_TRUE(state.accept(lead));
    for (TokenId id = 0; id < 256; ++id)
      EXPECT_EQ(has(state.allowed(), id), id >= least && id <= most) << lead << " " << id;
  }
  ConstraintState state(*constraint);
  for (const TokenId id : {0x00, 0x80, 0xBF, 0xC0, 0xC1, 0xF5, 0xFF}) EXPECT_FALSE(has(state.allowed(), id));
}

TEST_F(Masks, ADeadEndIsAnEmptyMask) {
  const auto constraint = compile(Kind::kGrammar, "root ::= \"a\" dead\ndead ::= dead \"x\"");
  ConstraintState state(*constraint);
  if (state.allowed().empty()) return;
  ASSERT_TRUE(state.accept('a'));
  EXPECT_TRUE(state.allowed().empty());
}

TEST_F(Masks, RefusesWhatIsNoRule) {
  EXPECT_NE(message(Kind::kRegex, "(ab").find("parenthesis"), std::string::npos);
  EXPECT_NE(message(Kind::kRegex, "a(?=b)").find("Lookahead"), std::string::npos);
  EXPECT_NE(message(Kind::kRegex, "a^b").find("ignored"), std::string::npos);
  EXPECT_NE(message(Kind::kRegex, "[^]]a").find("begins a class"), std::string::npos);
  EXPECT_NE(message(Kind::kJsonSchema, "{\"type\": \"objekt\"}"), "accepted");
  EXPECT_NE(message(Kind::kJsonSchema, "{\"type\": "), "accepted");
  EXPECT_NE(message(Kind::kJsonSchema, "{\"type\": \"number\", \"multipleOf\": 0.1}").find("multipleOf"),
            std::string::npos);
  EXPECT_NE(message(Kind::kGrammar, "root ::= other"), "accepted");
  EXPECT_NE(message(Kind::kGrammar, "start ::= \"a\""), "accepted");
  EXPECT_NE(message(Kind::kGrammar, "root ::= root \"a\"").find("no token may begin"), std::string::npos);
  const ConstraintRule rule{Kind::kRegex, "a", {}, "constraint.regex"};
  EXPECT_THROW(Constraint(rule, tokens_, {}, kVocab), Error) << "nothing could end it";
}

}  // namespace constraint_test
}  // namespace magister
