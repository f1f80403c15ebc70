// ModelRules: what a model's own generation_config.json bans, forces and biases, whatever a task asks of it: the processors of transformers that
// are no matter of sampling. Source: generation/logits_process.py and _get_logits_processor() of transformers 5.23.
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
  // Added to the logit of a sequence's last token where the others stand at the text's end, prompt included.
  std::vector<std::pair<std::vector<TokenId>, float>> sequence_bias;
  std::vector<std::vector<TokenId>>
      bad_words;  // sequences that are never completed, prompt included; none is an end token alone
  std::int64_t no_repeat_ngram_size = 0;  // none of so many tokens stands twice in prompt and text; 0: off
  std::int64_t min_length = 0;            // tokens of prompt and text before which no end token comes
  std::int64_t min_new_tokens = 0;        // of the text alone; where it is given, min_length says nothing
  std::vector<TokenId> end_tokens;        // that these two bar
  std::optional<TokenId> forced_first;    // behind a prompt of one token (forced_bos_token_id)
  std::vector<TokenId> forced_last;       // one of them, as the last token that a text may have (forced_eos_token_id)
  std::vector<TokenId> suppressed, suppressed_first;  // never; never as a text's first token

  bool empty() const;
  // A line of all of them; two rules with one line let the same texts through.
  std::string canonical_text() const;
};

// Whether the rules may change a row for a text of which so many tokens more are drawn, but not known. Local.
bool rules_apply(const ModelRules& rules, const DecodingState& state, std::size_t unknown = 0);

// The tokens that may come next by the rules and state.allowed, as bits of [(V + 63) / 64] words; empty: all may. Rules that would leave none
// give way: what state.allowed says stays. Local, pure.
std::vector<std::uint64_t> tokens_by_rules(const ModelRules& rules, const DecodingState& state,
                                           std::int64_t vocab_size);

// Tokens and what sequence_bias adds to their logits now, each once. Local, pure.
std::vector<std::pair<TokenId, float>> biases_by_rules(const ModelRules& rules, std::span<const TokenId> history);

// The tokens one of which has to come now; their logits count as equal. Empty: none has to.
std::span<const TokenId> forced_by_rules(const ModelRules& rules, const DecodingState& state);

}  // namespace magister
