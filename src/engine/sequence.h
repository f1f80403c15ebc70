// Sequence: the state of one text in the generator, from its request to its last token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "magister/engine/constraint.h"
#include "magister/engine/generator.h"
#include "magister/engine/page_pool.h"

namespace magister {

// The prompt of several texts. From its computation until the last text has begun, its pages have an additional owner.
// Each text copies the last page if it is not full, because the first text continues in it.
struct SharedPrompt {
  enum class State { kNone, kScheduled, kComputed } state = State::kNone;
  std::uint64_t waiting = 0;  // texts that have not begun
  std::vector<std::int32_t> pages;
  PagePool::PrefixId prefix = 0;
  std::int64_t prefix_pages = 0;
  at::Tensor logits_1V;  // the last row, on the model's device
};

struct Sequence {
  GenerationRequest request;
  std::shared_ptr<SharedPrompt> prompt;  // shared with other texts; null after this one has begun
  bool leads = false;                    // computes the shared prompt
  std::vector<TokenId> tokens;           // prompt and text
  std::vector<float> logprobs;
  std::vector<TokenId> top_ids;
  std::vector<float> top_logprobs;
  std::vector<float> guide_kl;
  std::vector<std::uint64_t> allowed;  // tokens allowed by the constraint and the model's rules for the current row
  std::optional<ConstraintState> constraint;  // state after the last token, also while the pages are freed
  std::vector<std::int32_t> pages;
  std::int64_t place = -1;     // among the texts in flight, see BlockTable; -1: it has no pages
  std::int64_t computed = 0;   // tokens whose keys and values are in the pages
  std::int64_t scheduled = 0;  // tokens that this pass computes
  std::int64_t cached = 0;     // tokens of the prompt that were not computed again
  PagePool::PrefixId prefix = 0;
  std::int64_t prefix_pages = 0;  // full pages that can be found by their tokens

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t num_prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
};

}  // namespace magister
