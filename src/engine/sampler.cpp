// Sums run in double over ids in ascending order (or over probabilities in descending order, lower id first). The order
// is fixed, so every shard and every machine draws the same token from the same logits.
#include "magister/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"
#include "magister/engine/logits_processor.h"
#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace {

double log_sum_exp(std::span<const float> logits) {
  SoftmaxState state;
  cpu_kernels().logsumexp_step(logits.data(), static_cast<std::int64_t>(logits.size()), &state);
  return state.maximum + std::log(state.sum);
}

// Orders NaN below all numbers, as the GPU's kernels do. With `<` alone a NaN would hide the tokens that follow it.
bool is_lower(float a, float b) { return a < b || (std::isnan(a) && !std::isnan(b)); }

TokenId most_probable(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end(), is_lower) - logits.begin());
}

// The ids that top-k keeps, by descending logit (lower id first). top_k: 0 keeps all that are not excluded.
std::vector<TokenId> kept_tokens(std::span<const float> logits, std::int64_t top_k) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kExcluded) ids.push_back(static_cast<TokenId>(i));
  }
  const auto better = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (top_k > 0 && static_cast<std::size_t>(top_k) < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + top_k, ids.end(), better);
    ids.resize(static_cast<std::size_t>(top_k));
  }
  std::sort(ids.begin(), ids.end(), better);
  return ids;
}

}  // namespace

std::vector<TokenId> best_tokens(std::span<const float> logits_V, std::int64_t count) {
  const auto most = static_cast<std::size_t>(count);
  MAGISTER_ASSERT(count >= 1 && most <= logits_V.size());
  std::vector<TokenId> best;
  best.reserve(most);
  const auto logit = [&](TokenId id) { return logits_V[static_cast<std::size_t>(id)]; };
  for (std::size_t i = 0; i < logits_V.size(); ++i) {  // insertion sort: almost every later token fails here
    if (logits_V[i] == kExcluded || (best.size() == most && !is_lower(logit(best.back()), logits_V[i]))) continue;
    if (best.size() < most) best.push_back(-1);
    std::size_t place = best.size() - 1;
    for (; place > 0 && is_lower(logit(best[place - 1]), logits_V[i]); --place) best[place] = best[place - 1];
    best[place] = static_cast<TokenId>(i);
  }
  return best;
}

void append_most_probable(std::span<const float> logits_V, std::int64_t k, std::vector<TokenId>& ids,
                          std::vector<float>& logprobs) {
  const std::vector<TokenId> best = best_tokens(logits_V, k);
  const double normaliser = log_sum_exp(logits_V);
  for (const TokenId id : best) {
    ids.push_back(id);
    logprobs.push_back(static_cast<float>(logits_V[static_cast<std::size_t>(id)] - normaliser));
  }
}

double keyed_uniform(const DrawKey& key) {
  std::uint64_t state = splitmix64(key.seed);
  for (const std::uint64_t word : {key.record, key.sample, key.position}) state = splitmix64(state ^ word);
  return static_cast<double>(state >> 11) * 0x1.0p-53;
}

namespace {

// Draws from a row after the processors and returns the position of the token. only: ascending positions that may be
// drawn; empty: all that are not excluded.
TokenId drawn_place(std::span<float> logits, std::vector<TokenId> only, const SamplingParams& params,
                    const DrawKey& key) {
  const TokenId best = most_probable(logits);
  MAGISTER_CHECK(std::isfinite(logits[static_cast<std::size_t>(best)]), ExitCode::kInternal,
                 "the best of {} tokens has the logit {} (no token can be drawn); report this with the experiment",
                 logits.size(), logits[static_cast<std::size_t>(best)]);
  if (params.temperature == 0.0) return best;
  for (float& logit : logits) logit = static_cast<float>(logit / params.temperature);
  // Top-p applies to what top-k kept, and min-p to what top-p kept, each renormalised; min-p's bound does not change
  // with that.
  const bool sorts = params.top_k > 0 || params.top_p < 1.0;
  const double top = logits[static_cast<std::size_t>(best)];
  if (std::isinf(top)) return best;  // the temperature is so small that the logits are beyond f32; a GPU does the same
  std::vector<TokenId> ids = std::move(only);
  if (sorts) {
    ids = kept_tokens(logits, params.top_k);
  } else if (ids.empty()) {
    ids.resize(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
  }
  const auto weight = [&](TokenId id) { return std::exp(logits[static_cast<std::size_t>(id)] - top); };
  double total = 0;
  for (const TokenId id : ids) total += weight(id);
  if (params.top_p < 1.0) {
    double mass = 0;
    std::size_t count = 0;
    while (count < ids.size() && (count == 0 || mass < params.top_p * total)) mass += weight(ids[count++]);
    ids.resize(count);
    total = mass;
  }
  if (params.min_p > 0) {
    std::erase_if(ids, [&](TokenId id) { return weight(id) < params.min_p; });
    total = 0;
    for (const TokenId id : ids) total += weight(id);
  }
  const double target = keyed_uniform(key) * total;
  double reached = 0;
  TokenId drawn = best;
  for (const TokenId id : ids) {
    const double w = weight(id);
    if (w == 0) continue;
    drawn = id;
    reached += w;
    if (reached > target) break;
  }
  return drawn;
}

}  // namespace

SampledToken sample_token(std::span<float> logits_V, const DecodingState& state, const LogitsChain& chain,
                          const SamplingParams& params, const DrawKey& key) {
  const double normaliser = log_sum_exp(logits_V);
  if (!std::isfinite(normaliser)) return {-1, std::numeric_limits<float>::quiet_NaN()};
  if (params.temperature == 0.0 && !chain.applies_to(state)) {
    const TokenId id = most_probable(logits_V);
    return {id, static_cast<float>(logits_V[static_cast<std::size_t>(id)] - normaliser)};
  }
  const std::vector<float> raw(logits_V.begin(), logits_V.end());
  chain.apply(logits_V, state);
  std::vector<TokenId> only;  // all other tokens are excluded
  for (const GuidedToken& token : state.guided) only.push_back(token.id);
  std::sort(only.begin(), only.end());
  const TokenId id = drawn_place(logits_V, std::move(only), params, key);
  return {id, static_cast<float>(raw[static_cast<std::size_t>(id)] - normaliser)};
}

// Draws in the order of ids, so that all sums equal those over the whole row.
SampledToken sample_candidate(const CandidateRow& row, std::span<const GuidedToken> guided,
                              const SamplingParams& params, const DrawKey& key) {
  MAGISTER_CHECK(guided.size() == row.ids.size() && !guided.empty(), ExitCode::kInternal,
                 "{} candidates have {} offsets (no token can be drawn); report this with the experiment",
                 row.ids.size(), guided.size());
  std::vector<std::size_t> by_id(guided.size());
  std::iota(by_id.begin(), by_id.end(), 0);
  std::sort(by_id.begin(), by_id.end(), [&](std::size_t a, std::size_t b) { return row.ids[a] < row.ids[b]; });
  std::vector<float> logits;
  const double top = largest_offset(guided);
  for (const std::size_t i : by_id) logits.push_back(static_cast<float>(row.logits[i] + (guided[i].offset - top)));
  const std::size_t drawn = by_id[static_cast<std::size_t>(drawn_place(logits, {}, params, key))];
  return {row.ids[drawn], static_cast<float>(row.model_logits[drawn] - row.model_logsumexp)};
}

}  // namespace magister
