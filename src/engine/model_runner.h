// ModelRunner: a scheduler's pass through the model: packed tokens in, the logits of the rows that are asked for out. Holds the cache.
// Legend: R rows that are asked for, V vocabulary, v this shard's part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/scheduler.h"
#include "magister/model/transformer.h"

namespace magister {

class ModelRunner {
 public:
  // model is kept by reference. Local.
  ModelRunner(Transformer& model, std::int64_t num_pages);

  // Copies the pages that the pass asks for, and computes it. [R, V] f32 where the model is, replicated: the last row of each sequence that
  // is computed to its end, in order; undefined when there is none. Collective over the model's group.
  at::Tensor run(const Scheduler::Pass& pass);

  std::uint64_t num_computed_tokens() const { return computed_tokens_; }

 private:
  Transformer& model_;
  KvCache cache_;
  std::vector<std::int64_t> logit_widths_;
  std::uint64_t computed_tokens_ = 0;
};

}  // namespace magister
