// ModelRules: tokens that a model's own generation_config.json bans, forces and biases, independent of the task: the
// logits processors of transformers that are not part of sampling. Source: generation/logits_process.py and
// _get_logits_processor() of transformers 5.24.
// Legend: V vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

struct DecodingState;  // logits_processor.h

struct ModelRules {
  // Bias for the logit of a sequence's last token if the text, prompt included, ends with the tokens before it.
  std::vector<std::pair<std::vector<TokenId>, float>> sequence_bias;
  std::vector<std::vector<TokenId>>
      bad_words;  // sequences that are never completed, prompt included; none is an end token alone
  std::int64_t no_repeat_ngram_size = 0;  // no n-gram of this length occurs twice in prompt and text; 0: off
  std::int64_t min_length = 0;            // no end token before prompt and text have this many tokens
  std::int64_t min_new_tokens = 0;        // the same for the text alone; if it is given, min_length is ignored
  std::vector<TokenId> end_tokens;        // tokens to which the two minimum lengths apply
  std::optional<TokenId> forced_first;    // follows a prompt of one token (forced_bos_token_id)
  std::vector<TokenId> forced_last;  // one of them is the last token of a text with full length (forced_eos_token_id)
  std::vector<TokenId> suppressed, suppressed_first;  // never drawn; never drawn as a text's first token

  bool empty() const;
  // A line with all rules; rules with equal lines allow the same texts.
  std::string canonical_text() const;
};

// Returns whether the rules may change the row of a text after `unknown` further tokens, which are drawn but not known
// yet. Local.
bool rules_apply(const ModelRules& rules, const DecodingState& state, std::size_t unknown = 0);

// The tokens that may come next by the rules and state.allowed, as bits of [(V + 63) / 64] words; empty: all tokens
// may. Rules that would allow no token are ignored: the result is then state.allowed. Local, pure.
std::vector<std::uint64_t> tokens_by_rules(const ModelRules& rules, const DecodingState& state,
                                           std::int64_t vocab_size);

// Tokens with the sums that sequence_bias adds to their logits now, each token once. Local, pure.
std::vector<std::pair<TokenId, float>> biases_by_rules(const ModelRules& rules, std::span<const TokenId> history);

// The tokens of which one must come next; their logits count as equal. Empty: no token is forced.
std::span<const TokenId> forced_by_rules(const ModelRules& rules, const DecodingState& state);

}  // namespace magister
