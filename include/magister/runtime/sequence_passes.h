// Whole sequences of a unit in passes: all at once, or in parts where the device has no memory for so many.
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
  // Sequences [begin, end) of the unit through the model in one pass; false: the job wants to stop. With one shard it may throw
  // c10::OutOfMemoryError; several ask each other before (PassMemory), so that all cut a pass in two or none does.
  using Pass = std::function<bool(IndexRange)>;

  // model is kept by reference; without_memory: a fail point, true as if there were none; logit_rows: that stand at a time.
  SequencePasses(Transformer& model, std::function<bool()> without_memory, std::int64_t logit_rows)
      : model_(model),
        memory_(model, std::move(without_memory)),
        logit_rows_(logit_rows),
        is_root_(model.group().tp_rank() == 0) {}

  // Tokens of a pass, unless one sequence has more; lowered where a pass finds no memory.
  void limit(std::int64_t most_tokens) { most_tokens_ = most_tokens; }

  // Tokens of whole units that may go through the model together: of as many as fill a GPU (kFullPass) where it has room and their rows are few
  // bytes (kMostRowBytes), with one shard; else of one (unit.tokens). A row's bits depend on none of its neighbours there, while a ring of several
  // shards adds in an order that depends on where a row stands. Local.
  std::uint64_t tokens_together(const PassShape& unit) const;

  // Tokens that fill the products of a GPU: of 2,048 the start of some 900 kernels is some percent of the time.
  static constexpr std::int64_t kFullPass = 8192;
  // Plans count the rows of one unit; those of a thousand kept entries are 130 MB for a full pass.
  static constexpr std::uint64_t kMostRowBytes = std::uint64_t{256} << 20;

  // Passes over sequences with so many tokens, in their order. False: the job wants to stop. Throws Error(kConfig) where the device has no
  // memory for what cannot be divided. Collective over the model's group.
  bool run(const std::vector<std::int64_t>& lengths, const Pass& pass) {
    return run(lengths, {0, lengths.size()}, pass);
  }

 private:
  bool run(const std::vector<std::int64_t>& lengths, IndexRange range, const Pass& pass);

  const Transformer& model_;
  PassMemory memory_;
  std::int64_t logit_rows_;
  bool is_root_;  // for the group
  std::int64_t most_tokens_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace magister
