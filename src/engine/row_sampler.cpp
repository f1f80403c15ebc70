// Processors that change logits run on the host, except for guided rows.
#include "engine/row_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "engine/gpu_candidates.h"
#include "engine/gpu_sampler.h"
#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "magister/engine/model_rules.h"

namespace magister {

RowSampler::RowSampler(const Transformer& model, const GeneratorLimits& limits)
    : model_(model), top_logprobs_(limits.top_logprobs), allowed_vocab_size_(model.config().vocab_size) {
  MAGISTER_CHECK(top_logprobs_ >= 0 && top_logprobs_ <= allowed_vocab_size_, ExitCode::kConfig,
                 "top_logprobs is {} (the vocabulary has {} entries); lower it", top_logprobs_, allowed_vocab_size_);
}

bool RowSampler::Row::is_finite() const {
  if (drawn) return drawn->id >= 0;
  if (candidates) return std::isfinite(candidates->model_logsumexp);
  return std::all_of(logits_V.begin(), logits_V.end(), [](float logit) { return std::isfinite(logit); });
}

DrawKey RowSampler::key_of(const Sequence& sequence, int later) {
  const Decoding& decoding = *sequence.request.decoding;
  return {decoding.seed(), decoding.record_of_draws(sequence.request.record), sequence.request.sample,
          static_cast<std::uint64_t>(sequence.num_tokens() - sequence.num_prompt_tokens() + later)};
}

DecodingState RowSampler::state_of(const Sequence& sequence) {
  DecodingState state{sequence.tokens, {}};
  const GenerationRequest& request = sequence.request;
  state.num_prompt = request.prompt.size() - request.begun;
  state.max_length = request.prompt.size() + static_cast<std::size_t>(request.max_new_tokens);
  return state;
}

bool RowSampler::draws_on_device(const Sequence& sequence, int later) const {
  const DecodingState state = state_of(sequence);
  const Decoding& decoding = *sequence.request.decoding;
  const ModelRules* const rules = decoding.sampling().rules.get();
  return model_.queue() != nullptr && allows_all_rows() && sequence.request.max_new_tokens > 0 &&
         !sequence.constraint && !sequence.request.greedy && top_logprobs_ == 0 &&
         !(reads_guided_rows_ && sequence.request.guided) &&
         !(rules && rules_apply(*rules, state, static_cast<std::size_t>(later))) && !decoding.chain().applies_to(state);
}

bool RowSampler::finds_candidates_on_device(const Sequence& sequence) const {
  const ModelRules* const rules = sequence.request.decoding->sampling().rules.get();
  const bool changes_logits =
      rules && (!rules->sequence_bias.empty() || !forced_by_rules(*rules, state_of(sequence)).empty());
  return model_.queue() != nullptr && reads_guided_rows_ && !changes_logits && sequence.request.guided &&
         sequence.request.max_new_tokens > 0 && std::max(candidates_, top_logprobs_) <= kMostGpuCandidates;
}

struct RowSampler::Alike {
  struct Found {
    std::vector<std::int64_t> rows;
    std::vector<RowHistory> histories;
  };
  const Decoding* decoding;
  std::vector<std::int64_t> drawn;
  std::vector<double> uniforms;  // of the drawn rows
  Found guided, constrained;     // rows of which the device finds candidates
};

namespace {

at::Tensor rows_of(const at::Tensor& logits_RV, const std::vector<std::int64_t>& rows) {
  if (static_cast<std::int64_t>(rows.size()) == logits_RV.size(0)) return logits_RV;
  return logits_RV.index_select(0, upload(at::tensor(rows, at::kLong), logits_RV.device()));
}

}  // namespace

RowSampler::Rows RowSampler::read(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV) const {
  Rows result{std::vector<Row>(sequences.size()), {}};
  std::vector<Alike> all;
  std::vector<std::int64_t> copied;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const bool draws = draws_on_device(sequence), finds = finds_candidates_on_device(sequence);
    if (!draws && !finds) {
      copied.push_back(static_cast<std::int64_t>(i));
      continue;
    }
    const Decoding* const decoding = sequence.request.decoding.get();
    auto alike = std::find_if(all.begin(), all.end(), [&](const Alike& one) { return one.decoding == decoding; });
    if (alike == all.end()) alike = all.insert(all.end(), Alike{decoding, {}, {}, {}, {}});
    if (draws) {
      alike->drawn.push_back(static_cast<std::int64_t>(i));
      alike->uniforms.push_back(keyed_uniform(key_of(sequence)));
      continue;
    }
    const std::span<const std::uint64_t> bits = allowed(sequence);
    Alike::Found& found = bits.empty() ? alike->guided : alike->constrained;
    found.rows.push_back(static_cast<std::int64_t>(i));
    found.histories.push_back({sequence.tokens, bits});
  }
  for (const Alike& alike : all) read_on_device(alike, logits_RV, result);
  if (copied.empty()) return result;
  result.on_host = rows_of(logits_RV, copied).cpu();
  const std::int64_t V = result.on_host.size(1);
  for (std::size_t i = 0; i < copied.size(); ++i) {
    result.rows[static_cast<std::size_t>(copied[i])].logits_V = {
        result.on_host.data_ptr<float>() + static_cast<std::int64_t>(i) * V, static_cast<std::size_t>(V)};
  }
  return result;
}

void RowSampler::read_on_device(const Alike& alike, const at::Tensor& logits_RV, Rows& result) const {
  const SamplingParams& params = alike.decoding->sampling();
  if (!alike.drawn.empty()) {
    const DrawnRows begun =
        draw_rows_on_device(rows_of(logits_RV, alike.drawn), alike.uniforms, params, *model_.queue());
    model_.group().wait_for(begun.copied);
    const std::vector<SampledToken> tokens = begun.tokens();
    for (std::size_t i = 0; i < tokens.size(); ++i)
      result.rows[static_cast<std::size_t>(alike.drawn[i])].drawn = tokens[i];
  }
  for (const Alike::Found* const found : {&alike.guided, &alike.constrained}) {
    if (found->rows.empty()) continue;
    at::Tensor own_RV = rows_of(logits_RV, found->rows).contiguous();
    // They are overwritten.
    if (found == &alike.constrained && own_RV.is_alias_of(logits_RV)) own_RV = own_RV.clone();
    std::vector<CandidateRow> rows =
        candidates_on_device(own_RV, found->histories, params, candidates_, top_logprobs_, *model_.queue());
    for (std::size_t i = 0; i < rows.size(); ++i)
      result.rows[static_cast<std::size_t>(found->rows[i])].candidates = std::move(rows[i]);
  }
}

bool RowSampler::draws_all_on_device(const std::vector<Sequence*>& sequences, int later) const {
  return std::all_of(sequences.begin(), sequences.end(), [&](const Sequence* one) {
    return one->request.decoding == sequences.front()->request.decoding && draws_on_device(*one, later);
  });
}

DrawnRows RowSampler::begin_drawing(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV,
                                    int later) const {
  std::vector<double> uniforms;
  uniforms.reserve(sequences.size());
  for (const Sequence* sequence : sequences) uniforms.push_back(keyed_uniform(key_of(*sequence, later)));
  return draw_rows_on_device(logits_RV, uniforms, sequences.front()->request.decoding->sampling(), *model_.queue());
}

RowSampler::Rows RowSampler::finish_drawing(const DrawnRows& drawn) const {
  model_.group().wait_for(drawn.copied);
  Rows result;
  for (const SampledToken& token : drawn.tokens()) result.rows.push_back({{}, token, {}});
  return result;
}

namespace {

// Clears the bits of tokens from `end` on. Empty words mean that all tokens are allowed.
void keep_below(std::vector<std::uint64_t>& words, std::int64_t end, std::int64_t vocab_size) {
  if (words.empty()) words.assign(static_cast<std::size_t>((vocab_size + 63) / 64), ~std::uint64_t{0});
  for (auto word = static_cast<std::size_t>(end / 64); word < words.size(); ++word) {
    const bool is_first = word == static_cast<std::size_t>(end / 64);
    words[word] &= is_first ? (std::uint64_t{1} << (end % 64)) - 1 : 0;
  }
}

}  // namespace

std::span<const std::uint64_t> RowSampler::allowed(Sequence& sequence) const {
  DecodingState state = state_of(sequence);
  if (sequence.constraint) state.allowed = sequence.constraint->allowed();
  MAGISTER_CHECK(!sequence.constraint || !state.allowed.empty(), ExitCode::kData,
                 "record {}, text {}: after {} tokens no token continues the constraint "
                 "(its grammar leads nowhere from there, or the vocabulary lacks the bytes); fix the constraint",
                 sequence.request.record, sequence.request.sample, sequence.logprobs.size());
  const std::int64_t V = model_.config().vocab_size;
  const ModelRules* const rules = sequence.request.decoding->sampling().rules.get();
  const bool by_rules = rules && rules_apply(*rules, state);
  if (!by_rules && allows_all_rows()) return state.allowed;
  sequence.allowed = by_rules ? tokens_by_rules(*rules, state, V)
                              : std::vector<std::uint64_t>(state.allowed.begin(), state.allowed.end());
  if (allows_all_rows()) return sequence.allowed;
  keep_below(sequence.allowed, allowed_vocab_size_, V);
  const auto any = [](std::uint64_t word) { return word != 0; };
  MAGISTER_CHECK(
      std::any_of(sequence.allowed.begin(), sequence.allowed.end(), any), ExitCode::kData,
      "record {}, text {}: after {} tokens every token that may come next lies outside the {} tokens that the value "
      "model has (none of them could be rated); use a value model with the model's vocabulary, or change the "
      "constraint",
      sequence.request.record, sequence.request.sample, sequence.logprobs.size(), allowed_vocab_size_);
  return sequence.allowed;
}

std::vector<float> RowSampler::processed(Sequence& sequence, std::span<const float> logits_V) const {
  std::vector<float> row_V(logits_V.begin(), logits_V.end());
  DecodingState state = state_of(sequence);
  state.allowed = allowed(sequence);
  sequence.request.decoding->chain().apply(row_V, state);
  return row_V;
}

SampledToken RowSampler::sample(Sequence& sequence, const Row& row, std::span<const GuidedToken> guided) const {
  const Decoding& decoding = *sequence.request.decoding;
  const SamplingParams& params = decoding.sampling(sequence.request.greedy);
  if (row.candidates) {
    const CandidateRow& known = *row.candidates;
    sequence.top_ids.insert(sequence.top_ids.end(), known.top_ids.begin(), known.top_ids.end());
    sequence.top_logprobs.insert(sequence.top_logprobs.end(), known.top_logprobs.begin(), known.top_logprobs.end());
    return append(sequence, sample_candidate(known, guided, params, key_of(sequence)));
  }
  if (top_logprobs_ > 0) {
    append_most_probable(row.logits_V, top_logprobs_, sequence.top_ids, sequence.top_logprobs);
  }
  DecodingState state = state_of(sequence);
  state.guided = guided;
  if (!row.drawn) state.allowed = allowed(sequence);
  return append(sequence,
                row.drawn ? *row.drawn : sample_token(row.logits_V, state, decoding.chain(), params, key_of(sequence)));
}

SampledToken RowSampler::append(Sequence& sequence, const SampledToken& token) const {
  if (sequence.constraint && !sequence.constraint->accept(token.id)) {
    fail(ExitCode::kInternal,
         "record {}, text {}: token {} was allowed and then refused (mask and matcher disagree); report it "
         "with the constraint",
         sequence.request.record, sequence.request.sample, token.id);
  }
  sequence.tokens.push_back(token.id);
  sequence.logprobs.push_back(token.logprob);
  return token;
}

}  // namespace magister
