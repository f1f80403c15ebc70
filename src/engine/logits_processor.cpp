// The processors that every experiment can use.
#include "magister/engine/logits_processor.h"

#include <algorithm>

#include "magister/engine/model_rules.h"

namespace magister {
namespace {

class LogitBias final : public LogitsProcessor {
 public:
  explicit LogitBias(std::vector<std::pair<TokenId, float>> bias) : bias_(std::move(bias)) {}
  void apply(std::span<float> logits_V, const DecodingState&) const override {
    for (const auto& [id, bias] : bias_) logits_V[static_cast<std::size_t>(id)] += bias;
  }

 private:
  std::vector<std::pair<TokenId, float>> bias_;
};

class SequenceBias final : public LogitsProcessor {
 public:
  explicit SequenceBias(std::shared_ptr<const ModelRules> rules) : rules_(std::move(rules)) {}
  void apply(std::span<float> logits_V, const DecodingState& state) const override {
    for (const auto& [id, bias] : biases_by_rules(*rules_, state.history))
      logits_V[static_cast<std::size_t>(id)] += bias;
  }

 private:
  std::shared_ptr<const ModelRules> rules_;
};

// Forced tokens get equal logits. The mask allows no others, unless it would have allowed none.
class ForcedTokens final : public LogitsProcessor {
 public:
  explicit ForcedTokens(std::shared_ptr<const ModelRules> rules) : rules_(std::move(rules)) {}
  bool applies_to(const DecodingState& state) const override { return !forced_by_rules(*rules_, state).empty(); }
  void apply(std::span<float> logits_V, const DecodingState& state) const override {
    for (const TokenId id : forced_by_rules(*rules_, state)) {
      float& logit = logits_V[static_cast<std::size_t>(id)];
      if (logit != kExcluded) logit = 0;
    }
  }

 private:
  std::shared_ptr<const ModelRules> rules_;
};

class RepetitionPenalty final : public LogitsProcessor {
 public:
  explicit RepetitionPenalty(double penalty) : penalty_(penalty) {}
  void apply(std::span<float> logits_V, const DecodingState& state) const override {
    std::vector<TokenId> seen(state.history.begin(), state.history.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const TokenId id : seen) {
      float& logit = logits_V[static_cast<std::size_t>(id)];
      logit = static_cast<float>(logit > 0 ? logit / penalty_ : logit * penalty_);
    }
  }

 private:
  double penalty_;
};

class AllowedTokens final : public LogitsProcessor {
 public:
  bool applies_to(const DecodingState& state) const override { return !state.allowed.empty(); }
  void apply(std::span<float> logits_V, const DecodingState& state) const override {
    for (std::size_t i = 0; i < logits_V.size(); ++i) {
      if ((state.allowed[i / 64] >> (i % 64) & 1) == 0) logits_V[i] = kExcluded;
    }
  }
};

class GuidedTokens final : public LogitsProcessor {
 public:
  bool applies_to(const DecodingState& state) const override { return !state.guided.empty(); }
  void apply(std::span<float> logits_V, const DecodingState& state) const override {
    std::vector<float> guided;
    guided.reserve(state.guided.size());
    const double top = largest_offset(state.guided);
    for (const auto& [id, offset] : state.guided)
      guided.push_back(static_cast<float>(logits_V[static_cast<std::size_t>(id)] + (offset - top)));
    std::fill(logits_V.begin(), logits_V.end(), kExcluded);
    for (std::size_t i = 0; i < guided.size(); ++i) logits_V[static_cast<std::size_t>(state.guided[i].id)] = guided[i];
  }
};

}  // namespace

LogitsChain::LogitsChain(const SamplingParams& params) {
  const auto& rules = params.rules;
  if (rules && !rules->sequence_bias.empty()) append(std::make_unique<SequenceBias>(rules));
  if (!params.logit_bias.empty()) append(std::make_unique<LogitBias>(params.logit_bias));
  if (params.repetition_penalty != 1.0) append(std::make_unique<RepetitionPenalty>(params.repetition_penalty));
  append(std::make_unique<AllowedTokens>());
  if (rules && (rules->forced_first || !rules->forced_last.empty())) append(std::make_unique<ForcedTokens>(rules));
  append(std::make_unique<GuidedTokens>());
}

bool LogitsChain::applies_to(const DecodingState& state) const {
  return std::any_of(processors_.begin(), processors_.end(),
                     [&](const auto& processor) { return processor->applies_to(state); });
}

void LogitsChain::apply(std::span<float> logits_V, const DecodingState& state) const {
  for (const auto& processor : processors_) {
    if (processor->applies_to(state)) processor->apply(logits_V, state);
  }
}

}  // namespace magister
