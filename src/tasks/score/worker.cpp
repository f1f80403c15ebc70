// Each shard has one thread. Only the row that the head reads leaves the layers, so the logits of a unit are a few
// numbers per record.
#include "tasks/score/worker.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/fail_point.h"
#include "magister/run/not_finite.h"
#include "magister/run/shard_model.h"
#include "magister/run/unit_samples.h"
#include "magister/runtime/sequence_passes.h"
#include "magister/tasks/score/classifier_logits.h"
#include "tasks/score/columns.h"

namespace magister {
namespace {

using Sequences = std::vector<std::vector<TokenId>>;

at::Tensor applied(ScoreFunction function, const at::Tensor& logits_SL) {
  switch (function) {
    case ScoreFunction::kSigmoid:
      return logits_SL.sigmoid();
    case ScoreFunction::kSoftmax:
      return logits_SL.softmax(1);
    case ScoreFunction::kNone:
      break;
  }
  return logits_SL;
}

class ScoreWorker final : public ShardModel {
 public:
  ScoreWorker(ShardContext shard, const ScoreConfig& config, MoreColumns more)
      : ShardModel(std::move(shard)),
        config_(config),
        more_(std::move(more)),
        passes_(
            model_, [] { return fail_point("score.pass.memory"); }, 0),
        tokens_together_(passes_.tokens_together(base_.pass)) {
    if (tokens_together_ > base_.pass.tokens) passes_.limit(SequencePasses::kFullPass);
  }

  void run_units() override {
    for (auto units = next_units(tokens_together_); !units.empty(); units = next_units(tokens_together_)) {
      if (run_pass(units)) continue;
      base_.work.tickets.request_stop();
      break;
    }
    drain();
  }

 private:
  // False: the job was asked to stop, and nothing of the units was written.
  bool run_pass(const std::vector<std::uint64_t>& indices) {
    unit_ = static_cast<std::int64_t>(indices.front());
    watch("compute", unit_);
    std::vector<Unit> units;
    Sequences all;
    for (const std::uint64_t index : indices) {
      fail_point("score.unit.begin");
      units.push_back(base_.file.unit(index));
      for (auto& sequence : sample_tokens(base_.file, units.back())) all.push_back(std::move(sequence));
    }
    const at::Tensor logits_SL = compute(all);
    if (!logits_SL.defined()) return false;
    std::size_t first = 0;
    for (const Unit& unit : units) {
      // Set for each unit, since writing waits until the unit before it is on disk.
      watch("write", static_cast<std::int64_t>(unit.index));
      const auto count = static_cast<std::size_t>(unit.samples.size());
      const at::Tensor own_SL = logits_SL.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
      refuse_what_is_not_finite(unit, std::span(all).subspan(first, count), own_SL);
      fail_point("score.unit.computed");
      write(unit, own_SL);
      first += count;
    }
    return true;
  }

  // [sequences, labels] f32 on the CPU; undefined: the job was asked to stop.
  at::Tensor compute(const Sequences& sequences) {
    const PhaseTimes::Span span(times_, "compute");
    std::vector<std::int64_t> lengths;
    for (const auto& sequence : sequences) lengths.push_back(static_cast<std::int64_t>(sequence.size()));
    std::vector<at::Tensor> parts;
    const bool done = passes_.run(lengths, [&](IndexRange range) {
      const auto at = [&](std::uint64_t i) { return sequences.begin() + static_cast<std::ptrdiff_t>(i); };
      const at::Tensor logits_SL = pass({at(range.begin), at(range.end)});
      if (logits_SL.defined()) parts.push_back(logits_SL);
      return logits_SL.defined();
    });
    return done ? at::cat(parts, 0) : at::Tensor();
  }

  at::Tensor pass(const Sequences& sequences) {
    return classifier_logits(model_, sequences, config_.share_prefixes, [this] {
      fail_point("score.layer");
      watch("compute", unit_);  // called between layers: a record may take longer than the watchdog waits
      return stop_agreed();
    });
  }

  // Every shard finds the same record, so all shards look for the layer together.
  void refuse_what_is_not_finite(const Unit& unit, std::span<const std::vector<TokenId>> sequences,
                                 const at::Tensor& logits_SL) {
    const at::Tensor good_S = logits_SL.isfinite().all(1);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (good_S[static_cast<std::int64_t>(i)].item<bool>()) continue;
      refuse_not_finite(model_, describe_record(base_.file, unit.samples.begin + i),
                        static_cast<std::uint64_t>(classifier_token(sequences[i], model_.config())), sequences[i]);
    }
  }

  void write(const Unit& unit, const at::Tensor& logits_SL) {
    if (!writer_) return;
    const at::Tensor value_SL = applied(config_.function, logits_SL).contiguous();
    const auto* bytes = static_cast<const std::byte*>(value_SL.const_data_ptr());
    std::vector<ColumnBytes> columns = {{score_column::kValue.path, {bytes, bytes + value_SL.nbytes()}, true}};
    {
      const std::lock_guard lock(base_.work.one_group);
      for (ColumnBytes& column : more_(unit)) columns.push_back(std::move(column));
    }
    writer_->submit(unit, std::move(columns));
    base_.work.report_progress();
  }

  const ScoreConfig& config_;
  const MoreColumns more_;
  SequencePasses passes_;
  std::uint64_t tokens_together_;  // tokens of a pass of several units
  std::int64_t unit_ = -1;         // first unit of the current pass
};

}  // namespace

std::unique_ptr<ShardWorker> make_score_worker(ShardContext shard, const ScoreConfig& config, MoreColumns more) {
  return std::make_unique<ScoreWorker>(std::move(shard), config, std::move(more));
}

}  // namespace magister
