// Constrained output: the tokens that may follow so that a text matches a JSON schema, a regular expression, one of
// several texts or a grammar. A Constraint is compiled once per task and vocabulary; a ConstraintState follows one
// text. The mask is a function of the tokens alone, so every shard computes the same mask and none is sent.
// Source: xgrammar (Dong et al., arXiv 2411.15100), linked from .deps/xgrammar; only constraint.cpp uses it.
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
  std::vector<std::string> choices;  // kChoice only: the whole text must be one of them
  std::string name;                  // for messages: "constraint.regex"
  // kJsonSchema only: true if at no position of a text two parts of the schema allow different strings. The lengths of
  // strings can then be counted outside the grammar. Otherwise the grammar counts, which takes a thousand times as long
  // for lengths in the hundreds.
  bool counts_texts = false;
};

class ConstraintState;

// Immutable; shared by all threads of a rank.
class Constraint {
 public:
  // token_bytes: the bytes of token i, for at most V tokens. A token without bytes (special tokens, holes) is never
  // allowed, nor is padding. end_tokens (at least one): the only tokens that may follow a complete text. JSON is
  // written as Python's json.dumps(ensure_ascii=False) writes it: on one line, with ", " and ": ", one spelling per
  // character, and only the schema's properties, in their order.
  // Throws Error(kConfig), with the library's message, for text that is not a schema, expression or grammar, for parts
  // of it that would be ignored, and if no text matches. Texts are always UTF-8 without NUL. Local.
  // Takes some hundredths of a second with SmolLM2's 49,152 tokens, so every rank does it. A mask then takes
  // microseconds, a pass of the model thousands of times as much.
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

// One text in progress. Not thread-safe.
class ConstraintState {
 public:
  explicit ConstraintState(const Constraint& constraint);  // keeps a reference
  ConstraintState(ConstraintState&&) noexcept;
  ~ConstraintState();

  // The tokens that may come next, in the form that sample_token() takes: bit i % 64 of word i / 64 for token i, [(V +
  // 63) / 64] words. Valid until the next call. Empty if no token may: the vocabulary lacks the bytes, or the grammar
  // has a dead end.
  std::span<const std::uint64_t> allowed();
  // Returns false and changes nothing if the token is not allowed.
  bool accept(TokenId token);
  // True after the end token of a complete text; then no other function may be called.
  bool finished() const;

 private:
  struct Matcher;
  std::unique_ptr<Matcher> matcher_;
};

}  // namespace magister
