// ModelRunner: runs a scheduler's pass through the model: packed tokens in; out come the logits of the rows that are
// read, or the wanted tokens' logits. Owns the cache.
// Legend: R rows that are read, V vocabulary, v this shard's part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/scheduler.h"
#include "engine/wanted_rows.h"
#include "magister/model/pass_memory.h"
#include "magister/model/transformer.h"

namespace magister {

class ModelRunner {
 public:
  // model is kept by reference. num_texts: most texts in flight. Local.
  ModelRunner(Transformer& model, std::int64_t num_pages, std::int64_t num_texts);

  // The last row of each sequence that is computed to its end, in order.
  struct Rows {
    at::Tensor logits_RV;           // f32 on the model's device, replicated: whole rows; undefined if there are none
    std::vector<WantedRow> wanted;  // for the other rows
  };
  // Copies the pages that the pass names, and computes the pass. If a device of the group has not enough memory, it
  // computes two halves one after the other; rows have the same bits. Collective over the model's group.
  Rows run(const Scheduler::Pass& pass);

  // Computes one token per text that is drawn but not on the host yet: ids_R, i32, on the device -> [R, V]. Undefined
  // if there is not enough memory; nothing was changed then. Collective over the model's group.
  at::Tensor run_ahead(const std::vector<Sequence*>& texts, const at::Tensor& ids_R);

  std::uint64_t num_computed_tokens() const { return computed_tokens_; }

  // Tokens of a sequence that are computed in one pass of the model.
  struct Piece {
    const Sequence* sequence = nullptr;
    std::int64_t first = 0, count = 0;
  };

 private:
  // Rows of a pass or of a part of it; `logits` has one tensor per part.
  struct Parts {
    std::vector<at::Tensor> logits;
    std::vector<WantedRow> wanted;
  };
  // These functions append the rows that are read.
  void compute(const std::vector<Piece>& pieces, Parts& parts);
  void compute_at_once(const std::vector<Piece>& pieces, Parts& parts);
  void read_rows(const at::Tensor& hidden_RD, const std::vector<const Sequence*>& sequences, Parts& parts);

  PassMemory::Size size_of(const std::vector<Piece>& pieces) const;

  Transformer& model_;
  PassMemory memory_;
  KvCache cache_;
  std::vector<std::int64_t> logit_widths_;
  std::uint64_t computed_tokens_ = 0;
  std::int64_t most_tokens_ = std::numeric_limits<std::int64_t>::max();  // per pass; lowered when memory runs out
};

}  // namespace magister
