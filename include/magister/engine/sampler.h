// Sampler: draws the next token from one row of logits. Draws are keyed by (seed, record, sample, position) and never
// by a batch or a rank, so a text does not depend on what runs at the same time. The order of steps is that of the
// logits processors of transformers: bias, repetition penalty, mask, temperature, top-k, top-p, min-p.
// Legend: V vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

struct ModelRules;  // model_rules.h

struct SamplingParams {
  double temperature = 1.0;         // 0: greedy: the highest logit; in a tie the lowest id
  std::int64_t top_k = 0;           // 0: off
  double top_p = 1.0;               // the smallest set of the most probable tokens whose mass reaches it
  double min_p = 0.0;               // removes tokens below min_p * probability of the most probable token
  double repetition_penalty = 1.0;  // divides positive logits of seen tokens (prompt and text), multiplies others
  std::vector<std::pair<TokenId, float>> logit_bias{};
  std::shared_ptr<const ModelRules> rules{};  // the model's own rules; null: none
};

// The key of a draw.
struct DrawKey {
  std::uint64_t seed = 0, record = 0, sample = 0, position = 0;
};

struct SampledToken {
  TokenId id = -1;    // -1: the row is not finite
  float logprob = 0;  // nats, by the model's own distribution: before bias, penalty, temperature and truncation
};

// The `count` tokens with the highest logits, best first; in a tie the lower id first; NaN last. Excluded tokens are
// left out, so the result may have fewer tokens. Local, pure.
std::vector<TokenId> best_tokens(std::span<const float> logits_V, std::int64_t count);

// Appends the k most probable tokens of a row and their log-probabilities, best first; in a tie the lower id first; k
// in [1, V]. Local, pure. Cost with V = 49,152 and k = 20: like reading the row twice.
void append_most_probable(std::span<const float> logits_V, std::int64_t k, std::vector<TokenId>& ids,
                          std::vector<float>& logprobs);

// Uniform in [0, 1), 53 bits, the same on every machine. Source: SplitMix64 (Steele et al., OOPSLA 2014), chained.
double keyed_uniform(const DrawKey& key);

// The data that a guide and a draw need of a row, if only its best tokens are known.
struct CandidateRow {
  std::vector<TokenId> ids;                   // best first, after bias and penalty
  std::vector<float> logits, model_logits;    // of these tokens: after bias and penalty, and the model's own
  double logsumexp = 0, model_logsumexp = 0;  // of the whole row, likewise, nats; NaN if a logit is not finite
  std::vector<TokenId> top_ids;               // the model's own most probable tokens, best first, if they are kept
  std::vector<float> top_logprobs;
};

struct GuidedToken;  // guide.h

// sample_token() for a row of which only the candidates may be drawn; `guided` is in their order. Local, pure.
SampledToken sample_candidate(const CandidateRow& row, std::span<const GuidedToken> guided,
                              const SamplingParams& params, const DrawKey& key);

struct DecodingState;  // logits_processor.h
class LogitsChain;

// logits_V: the whole vocabulary. The row is changed, first by the chain, which must leave a token. Returns {-1, NaN}
// if a logit is NaN or infinite, because no token may be drawn from such a row. Local, pure.
SampledToken sample_token(std::span<float> logits_V, const DecodingState& state, const LogitsChain& chain,
                          const SamplingParams& params, const DrawKey& key);

}  // namespace magister
