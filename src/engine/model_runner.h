// ModelRunner: a scheduler's pass through the model: packed tokens in, the logits of the rows that are asked for out, or what is wanted of
// them. Holds the cache.
// Legend: R rows that are asked for, V vocabulary, v this shard's part.
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
  // model is kept by reference. Local.
  ModelRunner(Transformer& model, std::int64_t num_pages);

  // The last row of each sequence that is computed to its end, in order.
  struct Rows {
    at::Tensor
        logits_RV;  // f32 where the model is, replicated: of those whose whole row is asked for; undefined when there is none
    std::vector<WantedRow> wanted;  // of the others
  };
  // Copies the pages that the pass asks for, and computes it. In halves, one after the other, where a device of the group has no memory
  // for all at once: rows have the same bits. Collective over the model's group.
  Rows run(const Scheduler::Pass& pass);

  // A token of each text that is drawn and has not come to the host: ids_R, i32, on the device. -> [R, V]; undefined where there is no memory for
  // it, and nothing of it was kept then. Collective likewise.
  at::Tensor run_ahead(const std::vector<Sequence*>& texts, const at::Tensor& ids_R);

  std::uint64_t num_computed_tokens() const { return computed_tokens_; }

  // Tokens of a sequence that are computed in one pass of the model.
  struct Piece {
    const Sequence* sequence = nullptr;
    std::int64_t first = 0, count = 0;
  };

 private:
  // Rows of a pass or of a part of it, the whole ones part by part.
  struct Parts {
    std::vector<at::Tensor> logits;
    std::vector<WantedRow> wanted;
  };
  // Appends the rows that are asked for.
  void compute(const std::vector<Piece>& pieces, Parts& parts);
  void compute_at_once(const std::vector<Piece>& pieces, Parts& parts);
  void read_rows(const at::Tensor& hidden_RD, const std::vector<const Sequence*>& sequences, Parts& parts);

  PassMemory::Size size_of(const std::vector<Piece>& pieces) const;

  Transformer& model_;
  PassMemory memory_;
  KvCache cache_;
  std::vector<std::int64_t> logit_widths_;
  std::uint64_t computed_tokens_ = 0;
  std::int64_t most_tokens_ = std::numeric_limits<std::int64_t>::max();  // of a pass, as far as is known
};

}  // namespace magister
