// One thread a shard; shard 0 of the group's leader draws units, all shards compute, the leader writes.
#include "tasks/teacher_run.h"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "tasks/shard_threads.h"
#include "tasks/teacher_columns.h"
#include "tasks/unit_writer.h"

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

// One shard's life: weights, self-test, units.
class Shard {
 public:
  Shard(const TeacherRun& run, std::unique_ptr<ProcessGroup> group, bool speaks_for_rank)
      : run_(run), group_(std::move(group)), speaks_(speaks_for_rank),
        times_(speaks_for_rank ? run.times : own_times_), pool_(run.group.threads_per_shard()) {
    const PhaseTimes::Span span(times_, "load");
    if (speaks_) run_.watchdog.enter("load the model");
    model_.emplace(run_.model, run_.weights, *group_, pool_, run_.dtype, run_.quantization);
    model_->self_test();
    reducer_.emplace(model_->lm_head(), *group_, pool_, run_.top_k);
    if (group_->tp_rank() == 0) writer_.emplace(run_.file, run_.tickets);
  }

  void run_units() {
    while (const std::optional<std::uint64_t> index = next_unit()) {
      if (speaks_) run_.watchdog.enter("compute", static_cast<std::int64_t>(*index));
      fail_point("teacher.unit.begin");
      if (!run_unit(run_.file.unit(*index))) break;
    }
    if (writer_) {
      if (speaks_) run_.watchdog.enter("write the last unit");
      writer_->drain();
      run_.unit_finished();
      times_.add("write", writer_->write_seconds());
      times_.add("wait for write", writer_->wait_seconds());
    }
    if (speaks_) run_.watchdog.leave();
  }

 private:
  std::optional<std::uint64_t> next_unit() {
    const PhaseTimes::Span span(times_, "draw");
    return draw_for_group(*group_, run_.tickets, run_.stop_wanted);
  }

  // False when the job wants to stop before the unit is finished: it is dropped, nothing of it was written.
  bool run_unit(const Unit& unit) {
    UnitBatch work;
    {
      const PhaseTimes::Span span(times_, "read");
      work = read_unit(run_.file, unit);
      if (run_.assistant_only) choose_rows(run_.file, unit, work);
    }
    at::Tensor hidden_TD;
    {
      const PhaseTimes::Span span(times_, "compute body");
      // Only a shard alone may stop between layers: several would have to agree at every layer.
      hidden_TD = group_->tp_size() == 1 ? model_->forward(work.batch, run_.stop_wanted) : model_->forward(work.batch);
      if (!hidden_TD.defined()) {
        run_.tickets.request_stop();
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
      run_.unit_finished();
    }
    return true;
  }

  const TeacherRun& run_;
  std::unique_ptr<ProcessGroup> group_;
  bool speaks_;
  PhaseTimes own_times_;  // of the other shards: nobody reads them
  PhaseTimes& times_;
  ThreadPool pool_;
  std::optional<Transformer> model_;
  std::optional<LogitReducer> reducer_;
  std::optional<UnitWriter> writer_;
};

}  // namespace

void run_teacher_units(const TeacherRun& run) {
  run_shards(run.group, [&](std::unique_ptr<ProcessGroup> group, bool first) {
    Shard(run, std::move(group), first).run_units();
  });
}

}  // namespace magister
