// LogitsProcessor: one step between a model's logits and the draw of a token: a bias, a penalty, a mask. To change the
// draw in a new way, add a processor to the chain. Legend: V vocabulary.
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

// State of the sequence whose next token is drawn.
struct DecodingState {
  std::span<const TokenId> history;  // prompt and text so far
  std::span<const std::uint64_t>
      allowed;  // empty, or one bit per token (bit i of word i / 64): only these tokens may be drawn
  std::span<const GuidedToken> guided{};  // empty, or tokens with offsets for their logits: only these may be drawn
  std::size_t num_prompt = 0;             // length of the part of the history that is prompt
  std::size_t max_length = 0;             // length of the history when the text is complete by its length
};

// The logit of a token that may not be drawn.
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  // False: this sequence's logits stay unchanged.
  virtual bool applies_to(const DecodingState& state) const { return true; }
  // Changes a row in place. Local, pure: the same row gives the same bits on every shard.
  virtual void apply(std::span<float> logits_V, const DecodingState& state) const = 0;
};

// Processors in the order of transformers: biases (the model's own, then the task's), repetition penalty, mask, forced
// tokens; then the guide's offsets. Bans by the model's rules are part of the mask (tokens_by_rules).
class LogitsChain {
 public:
  // Creates the processors that the parameters ask for, the mask of allowed tokens, and the guide.
  explicit LogitsChain(const SamplingParams& params);
  // Adds a processor after all others.
  void append(std::unique_ptr<LogitsProcessor> processor) { processors_.push_back(std::move(processor)); }
  bool applies_to(const DecodingState& state) const;
  void apply(std::span<float> logits_V, const DecodingState& state) const;

 private:
  std::vector<std::unique_ptr<LogitsProcessor>> processors_;
};

}  // namespace magister
