// Constrained output: which tokens may follow so that a text matches a JSON schema, a regular expression, one of several
// texts or a grammar. Constraint is compiled once for a task and vocabulary; ConstraintState walks along one text. The
// mask is a function of the tokens alone, so every shard makes the same one and nobody sends it.
// Source: xgrammar (Dong et al., arXiv 2411.15100), linked from .deps/xgrammar; only constraint.cpp knows it.
// Legend: V vocabulary of the model, padding included.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"

namespace magister {

struct ConstraintRule {
  enum class Kind : std::uint8_t { kJsonSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kRegex;
  std::string text;                  // the schema as JSON, the expression, or the grammar (EBNF, rule "root")
  std::vector<std::string> choices;  // kChoice only: the whole text is one of them
  std::string name;                  // for messages: "constraint.regex"
  // kJsonSchema only: at no place of a text two parts of the schema allow different texts, so that their lengths can be counted outside of the
  // grammar; else the grammar counts, which takes a thousand times as long where lengths are in the hundreds.
  bool counts_texts = false;
};

class ConstraintState;

// Immutable; shared by all threads of a rank.
class Constraint {
 public:
  // token_bytes: the bytes of token i, at most V of them; an empty one (special tokens, holes) is never allowed, nor is
  // padding. end_tokens: what may follow a complete text, nothing else does; at least one. JSON is written as Python's
  // json.dumps(ensure_ascii=False) does: one line, ", " and ": ", one spelling a character, properties in the schema's order and no
  // others.
  // Throws Error(kConfig) in the library's words for what is not a schema, expression or grammar, for parts of it that would
  // be ignored, and where no text matches. Texts are UTF-8 without NUL whatever the rule says. Local.
  // Costs some hundredths of a second with SmolLM2's 49,152 tokens, so every rank does it; a mask then costs microseconds, a pass of the
  // model thousands of times as much.
  Constraint(const ConstraintRule& rule, const std::vector<std::string>& token_bytes,
             std::span<const TokenId> end_tokens, std::int64_t vocab_size);
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

 private:
  friend class ConstraintState;
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

// One in-flight text. Not for several threads at once.
class ConstraintState {
 public:
  explicit ConstraintState(const Constraint& constraint);  // kept by reference
  ConstraintState(ConstraintState&&) noexcept;
  ~ConstraintState();

  // What may come next, as sample_token() takes it: bit i % 64 of word i / 64 for token i, [(V + 63) / 64] words. Valid
  // until the next call. Empty where nothing may: the vocabulary lacks the bytes, or the grammar leads nowhere.
  std::span<const std::uint64_t> allowed();
  // False, and nothing changes, when the token is not allowed.
  bool accept(TokenId token);
  // The text is complete and its end token is there; nothing may be asked any more.
  bool finished() const;

 private:
  struct Matcher;
  std::unique_ptr<Matcher> matcher_;
};

}  // namespace magister
