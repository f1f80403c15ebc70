// One thread a shard; shard 0 of the group's leader draws units, all shards compute, the leader writes.
#include "tasks/teacher_run.h"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/engine/logit_reducer.h"
#include "tasks/shard_threads.h"
#include "tasks/teacher_columns.h"

namespace magister {
namespace {

struct UnitBatch {
  PackedBatch batch;
  std::vector<TokenId> targets;  // the next token of each row, -1 in a sample's last row
  std::vector<std::int64_t> scored;  // with `score: assistant`: rows whose next token is the assistant's, ascending
};

// Keeps the rows that are to be scored, and the targets of these alone.
void choose_rows(const ResultsFile& file, const Unit& unit, UnitBatch& batch) {
  std::vector<std::uint8_t> assistant(unit.rows.size());
  file.read("/tokens/assistant", unit.rows.begin, std::as_writable_bytes(std::span(assistant)));
  std::vector<TokenId> targets;
  for (std::size_t t = 0; t + 1 < assistant.size(); ++t) {
    if (batch.targets[t] < 0 || assistant[t + 1] == 0) continue;
    batch.scored.push_back(static_cast<std::int64_t>(t));
    targets.push_back(batch.targets[t]);
  }
  batch.targets = std::move(targets);
}

UnitBatch read_unit(const ResultsFile& file, const Unit& unit) {
  std::vector<std::uint64_t> offset(unit.samples.size() + 1);
  file.read("/samples/offset", unit.samples.begin, std::as_writable_bytes(std::span(offset)));
  std::vector<TokenId> ids(unit.rows.size());
  file.read("/tokens/id", unit.rows.begin, std::as_writable_bytes(std::span(ids)));
  std::vector<std::vector<TokenId>> sequences;
  UnitBatch result;
  result.targets.assign(ids.size(), -1);
  for (std::size_t i = 0; i + 1 < offset.size(); ++i) {
    MAGISTER_CHECK(offset[i] >= unit.rows.begin && offset[i] <= offset[i + 1] && offset[i + 1] <= unit.rows.end,
                   ExitCode::kData, "sample {} stands at rows {} to {}, outside its unit's rows {} to {} (the offsets of "
                   "the results file are damaged); start over with --fresh", unit.samples.begin + i, offset[i],
                   offset[i + 1], unit.rows.begin, unit.rows.end);
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(offset[i] - unit.rows.begin);
    const auto end = ids.begin() + static_cast<std::ptrdiff_t>(offset[i + 1] - unit.rows.begin);
    sequences.emplace_back(begin, end);
    for (auto row = begin; row != end && row + 1 != end; ++row) {
      result.targets[static_cast<std::size_t>(row - ids.begin())] = row[1];
    }
  }
  result.batch = pack_sequences(sequences);
  return result;
}

class Shard final : public ShardModel {
 public:
  Shard(const TeacherRun& run, std::unique_ptr<ProcessGroup> group, bool first) : ShardModel(run.base, std::move(group), first), run_(run) {
    reducer_.emplace(model_->lm_head(), *group_, pool_, run_.top_k);
  }

  void run_units() {
    while (const std::optional<std::uint64_t> index = next_unit()) {
      watch("compute", static_cast<std::int64_t>(*index));
      fail_point("teacher.unit.begin");
      if (!run_unit(base_.file.unit(*index))) break;
    }
    drain();
  }

 private:
  std::optional<std::uint64_t> next_unit() {
    const PhaseTimes::Span span(times_, "draw");
    return draw_for_group(*group_, base_.work.tickets, base_.stop_wanted);
  }

  // False when the job wants to stop before the unit is finished: it is dropped, nothing of it was written.
  bool run_unit(const Unit& unit) {
    UnitBatch work;
    {
      const PhaseTimes::Span span(times_, "read");
      work = read_unit(base_.file, unit);
      if (run_.assistant_only) choose_rows(base_.file, unit, work);
    }
    at::Tensor hidden_TD;
    {
      const PhaseTimes::Span span(times_, "compute body");
      // Only a shard alone may stop between layers: several would have to agree at every layer.
      hidden_TD = group_->tp_size() == 1 ? model_->forward(work.batch, base_.stop_wanted) : model_->forward(work.batch);
      if (!hidden_TD.defined()) {
        base_.work.tickets.request_stop();
        return false;
      }
    }
    ReducedLogits logits;
    {
      const PhaseTimes::Span span(times_, "compute head");
      if (run_.assistant_only) {
        const at::Tensor rows = at::tensor(work.scored, at::kLong);
        logits = scattered(reducer_->reduce(hidden_TD.index_select(0, rows), work.targets), work.scored, hidden_TD.size(0));
      } else {
        logits = reducer_->reduce(hidden_TD, work.targets);
      }
    }
    fail_point("teacher.unit.computed");
    if (writer_) {
      writer_->submit(unit, teacher_rows(logits, work.batch, run_.half));
      base_.work.tell();
    }
    return true;
  }

  const TeacherRun& run_;
  std::optional<LogitReducer> reducer_;
};

}  // namespace

void run_teacher_units(const TeacherRun& run) {
  run_shards(run.base.group, [&](std::unique_ptr<ProcessGroup> group, bool first) {
    Shard(run, std::move(group), first).run_units();
  });
}

}  // namespace magister
