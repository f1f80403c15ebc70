// Sequence: one text on its way through the generator, from its request to its last token.
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

// The prompt of several texts. From its computing until the last of them has begun, its pages have an owner more than the sequences
// that write on; the pages behind it are copied, for the first text goes on in it.
struct SharedPrompt {
  enum class State { kNone, kScheduled, kComputed } state = State::kNone;
  std::uint64_t waiting = 0;  // texts that have not begun
  std::vector<std::int32_t> pages;
  PagePool::PrefixId prefix = 0;
  std::int64_t prefix_pages = 0;
  at::Tensor logits_1V;  // of the last row, where the model has them
};

struct Sequence {
  GenerationRequest request;
  std::shared_ptr<SharedPrompt> prompt;  // with others, until this one has begun
  bool leads = false;                    // computes it
  std::vector<TokenId> tokens;           // prompt and text
  std::vector<float> logprobs;
  std::vector<TokenId> top_ids;
  std::vector<float> top_logprobs;
  std::vector<float> guide_kl;
  std::vector<std::uint64_t> allowed;         // by the constraint and the model's rules, of the row that is read now
  std::optional<ConstraintState> constraint;  // stands after the last token, also while its pages are gone
  std::vector<std::int32_t> pages;
  std::int64_t computed = 0;   // tokens whose keys and values stand in the pages
  std::int64_t scheduled = 0;  // of them, with this pass
  std::int64_t cached = 0;     // of the prompt, that were not computed again
  PagePool::PrefixId prefix = 0;
  std::int64_t prefix_pages = 0;  // full pages that can be found under their tokens

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t num_prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
};

}  // namespace magister
