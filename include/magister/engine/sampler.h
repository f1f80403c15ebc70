// Sampler: one row of logits becomes the next token. Draws are keyed by (seed, record, sample, position) and never by a
// batch or a rank, so the same text comes out whatever runs beside it. The order of the steps is that of transformers'
// logits processors: bias, repetition penalty, mask, temperature, top-k, top-p, min-p.
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
  double temperature = 1.0;         // 0: greedy, the highest logit, of equal ones the lowest id
  std::int64_t top_k = 0;           // 0: off
  double top_p = 1.0;               // smallest set of the most probable tokens whose mass reaches it
  double min_p = 0.0;               // tokens below min_p * the most probable one's probability are out
  double repetition_penalty = 1.0;  // logits of seen tokens (prompt and text): divided when positive, else multiplied
  std::vector<std::pair<TokenId, float>> logit_bias{};
  std::shared_ptr<const ModelRules> rules{};  // the model's own; null: none
};

// What a draw depends on besides the distribution.
struct DrawKey {
  std::uint64_t seed = 0, record = 0, sample = 0, position = 0;
};

struct SampledToken {
  TokenId id = -1;    // -1: the row is not finite
  float logprob = 0;  // nats, of the model's own distribution: before bias, penalty, temperature and truncation
};

// The `count` tokens with the highest logits, best first, of equal ones the lower id first, without excluded ones: fewer where the row has
// fewer. Local, pure.
std::vector<TokenId> best_tokens(std::span<const float> logits_V, std::int64_t count);

// Log-probabilities of the k most probable tokens of a row, best first, of equal ones the lower id first; k in [1, V].
// Appends to both. Local, pure. Cost with V = 49,152 and k = 20: like reading the row twice.
void append_most_probable(std::span<const float> logits_V, std::int64_t k, std::vector<TokenId>& ids,
                          std::vector<float>& logprobs);

// Uniform in [0, 1), 53 bits, the same on every machine. Source: SplitMix64 (Steele et al., OOPSLA 2014), chained.
double keyed_uniform(const DrawKey& key);

// What a guide and a draw need of a row of which only its best tokens are known.
struct CandidateRow {
  std::vector<TokenId> ids;                   // best first, as bias and penalty leave the row
  std::vector<float> logits, model_logits;    // of these: as they leave it, and the model's own
  double logsumexp = 0, model_logsumexp = 0;  // of the whole row likewise, nats; NaN where a logit is not finite
  std::vector<TokenId> top_ids;               // the model's own most probable tokens, best first, where they are kept
  std::vector<float> top_logprobs;
};

struct GuidedToken;  // guide.h

// sample_token() of a row whose candidates alone may come out, in whose order `guided` is. Local, pure.
SampledToken sample_candidate(const CandidateRow& row, std::span<const GuidedToken> guided,
                              const SamplingParams& params, const DrawKey& key);

struct DecodingState;  // logits_processor.h
class LogitsChain;

// logits_V: of the whole vocabulary; changed on the way, first by the chain, which must leave a token. {-1, NaN} where a logit is NaN or
// infinite: no token may be drawn from such a row. Local, pure.
SampledToken sample_token(std::span<float> logits_V, const DecodingState& state, const LogitsChain& chain,
                          const SamplingParams& params, const DrawKey& key);

}  // namespace magister
