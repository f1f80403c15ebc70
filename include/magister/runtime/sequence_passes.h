// Runs whole sequences of a unit in passes: all in one pass, or in several if the device lacks memory.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/pass_memory.h"
#include "magister/runtime/pass_shape.h"

namespace magister {

class SequencePasses {
 public:
  // Runs the sequences [begin, end) of the unit through the model in one pass; false: the job must stop. With one shard
  // it may throw c10::OutOfMemoryError; several shards compare their memory before (PassMemory), so that all or none of
  // them divide a pass.
  using Pass = std::function<bool(IndexRange)>;

  // Keeps a reference to model. without_memory: a fail point, true acts like a lack of memory. logit_rows: rows of
  // logits in memory at a time.
  SequencePasses(Transformer& model, std::function<bool()> without_memory, std::int64_t logit_rows)
      : model_(model),
        memory_(model, std::move(without_memory)),
        logit_rows_(logit_rows),
        is_root_(model.group().tp_rank() == 0) {}

  // Limits the tokens of a pass that has more than one sequence; a lack of memory lowers the limit further.
  void limit(std::int64_t most_tokens) { most_tokens_ = most_tokens; }

  // Tokens of whole units that may go through the model in one pass. With one shard on a GPU it is as many units as
  // fill the GPU (kFullPass), if its memory suffices and their rows are few bytes (kMostRowBytes); otherwise one unit
  // (unit.tokens). A row's bits do not depend on the other rows there, but a ring of several shards adds in an order
  // that depends on the row's position. Local.
  std::uint64_t tokens_together(const PassShape& unit) const;

  // Tokens that keep a GPU's products busy: with 2,048 the start of some 900 kernels takes a few percent of the time.
  static constexpr std::int64_t kFullPass = 8192;
  // Plans count the rows of one unit; with a thousand kept entries those of a full pass are 130 MB.
  static constexpr std::uint64_t kMostRowBytes = std::uint64_t{256} << 20;

  // Runs passes over sequences of these lengths, in their order. False: the job must stop. Throws Error(kConfig) if the
  // device has no memory for a sequence, which cannot be divided. Collective over the model's group.
  bool run(const std::vector<std::int64_t>& lengths, const Pass& pass) {
    return run(lengths, {0, lengths.size()}, pass);
  }

 private:
  bool run(const std::vector<std::int64_t>& lengths, IndexRange range, const Pass& pass);

  const Transformer& model_;
  PassMemory memory_;
  std::int64_t logit_rows_;
  bool is_root_;  // of the group
  std::int64_t most_tokens_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace magister
