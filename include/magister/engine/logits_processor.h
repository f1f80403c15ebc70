// LogitsProcessor: one step between a model's logits and the draw of a token: a bias, a penalty, a mask. A new way to change what is
// drawn is one of these in the chain. Legend: V vocabulary.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/guide.h"
#include "magister/engine/sampler.h"

namespace magister {

// What is known of the sequence whose next token is drawn.
struct DecodingState {
  std::span<const TokenId> history;  // prompt and text so far
  std::span<const std::uint64_t>
      allowed;                            // empty, or a bit per token (bit i of word i / 64): nothing else may come out
  std::span<const GuidedToken> guided{};  // empty, or what is added to these tokens' logits: nothing else may come out
  std::size_t num_prompt = 0;             // of the history, that are no text yet
  std::size_t max_length = 0;             // that the history has when the text has all tokens that it may have
};

// The logit of a token that may not come out.
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  // False: this sequence's logits stay as they are.
  virtual bool applies_to(const DecodingState& state) const { return true; }
  // Changes a row in place. Local, pure: the same row gives the same bits on every shard.
  virtual void apply(std::span<float> logits_V, const DecodingState& state) const = 0;
};

// Processors in their order: that of transformers, biases (the model's own, then the task's), repetition penalty, mask, forced tokens; then what a
// guide adds. What the model's rules ban is in the mask (tokens_by_rules).
class LogitsChain {
 public:
  // Those that the parameters ask for, the mask of allowed tokens, and the guide.
  explicit LogitsChain(const SamplingParams& params);
  // After all others.
  void append(std::unique_ptr<LogitsProcessor> processor) { processors_.push_back(std::move(processor)); }
  bool applies_to(const DecodingState& state) const;
  void apply(std::span<float> logits_V, const DecodingState& state) const;

 private:
  std::vector<std::unique_ptr<LogitsProcessor>> processors_;
};

}  // namespace magister
