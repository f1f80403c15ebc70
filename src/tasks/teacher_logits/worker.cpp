// Each shard has one thread. Shard 0 of the group's leader claims units, all shards compute, and the leader writes. A
// GPU has its next pass queued before the host makes the rows of the previous one; a pass has several units if one does
// not fill it.
#include "tasks/teacher_logits/worker.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/engine/logit_reducer.h"
#include "magister/engine/sampler.h"
#include "magister/engine/tail_sampler.h"
#include "magister/run/not_finite.h"
#include "magister/run/shard_model.h"
#include "magister/run/unit_samples.h"
#include "magister/runtime/sequence_passes.h"
#include "magister/tasks/teacher_logits/pass_budget.h"
#include "tasks/teacher_logits/columns.h"

namespace magister {
namespace {

// Whole sequences of one pass through the model: those of all its units, or a part of them if the device has too little
// memory.
struct Part {
  std::vector<std::vector<TokenId>> sequences;
  std::vector<std::uint8_t> assistant;  // for every token, with
  std::vector<DrawKey> keys;            // for every sequence, if rows are sampled
  std::int64_t num_tokens() const {
    std::int64_t sum = 0;
    for (const auto& sequence : sequences) sum += static_cast<std::int64_t>(sequence.size());
    return sum;
  }
};

Part read_unit(const ResultsFile& file, const Unit& unit, bool assistant_only) {
  Part part;
  part.sequences = sample_tokens(file, unit);
  if (assistant_only) {
    part.assistant.resize(unit.rows.size());
    file.read("/tokens/assistant", unit.rows.begin, std::as_writable_bytes(std::span(part.assistant)));
  }
  return part;
}

void append(Part& part, Part&& more) {
  const auto move_all = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_all(part.sequences, more.sequences);
  move_all(part.assistant, more.assistant);
  move_all(part.keys, more.keys);
}

// The keys of the draws of each sample: its record, and the number of its window in the record. Neither depends on the
// slice of an array job.
std::vector<DrawKey> draw_keys(const ResultsFile& file, const Unit& unit, std::uint64_t seed) {
  const auto record = [&](std::uint64_t sample) {
    std::uint64_t index;
    file.read("/samples/source_index", sample, std::as_writable_bytes(std::span(&index, 1)));
    return index;
  };
  std::vector<DrawKey> keys;
  for (std::uint64_t sample = unit.samples.begin; sample < unit.samples.end; ++sample) {
    DrawKey key{seed, record(sample), 0, 0};
    if (!keys.empty() && keys.back().record == key.record) {
      key.sample = keys.back().sample + 1;
    } else {
      for (std::uint64_t before = sample; keys.empty() && before > 0 && record(before - 1) == key.record; --before)
        ++key.sample;
    }
    keys.push_back(key);
  }
  return keys;
}

// Uniform numbers for the scored rows. chosen: only `rows` (ascending) are scored; else all rows are.
std::vector<double> uniforms_of(const Part& part, const std::vector<std::int64_t>& rows, bool chosen) {
  std::vector<double> uniforms;
  std::int64_t first = 0;
  std::size_t next = 0;
  for (std::size_t s = 0; s < part.sequences.size(); ++s) {
    const auto length = static_cast<std::int64_t>(part.sequences[s].size());
    for (std::int64_t position = 0; position < length; ++position) {
      if (chosen && (next == rows.size() || rows[next] != first + position)) continue;
      ++next;
      DrawKey key = part.keys[s];
      key.position = static_cast<std::uint64_t>(position);
      uniforms.push_back(keyed_uniform(key));
    }
    first += length;
  }
  return uniforms;
}

// The next token of each row; -1 in the last row of a sample.
std::vector<TokenId> targets_of(const Part& part) {
  std::vector<TokenId> targets;
  for (const auto& sequence : part.sequences) {
    if (sequence.empty()) continue;
    targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
    targets.push_back(-1);
  }
  return targets;
}

// Keeps only the targets of rows to score, which are those before a token of the assistant. Returns these rows,
// ascending.
std::vector<std::int64_t> choose_rows(const std::vector<std::uint8_t>& assistant, std::vector<TokenId>& targets) {
  std::vector<std::int64_t> rows;
  for (std::size_t t = 0; t + 1 < assistant.size(); ++t) {
    if (targets[t] < 0 || assistant[t + 1] == 0) continue;
    targets[rows.size()] = targets[t];
    rows.push_back(static_cast<std::int64_t>(t));
  }
  targets.resize(rows.size());
  return rows;
}

Part part_of(const Part& whole, IndexRange sequences) {
  Part part;
  const auto at = [](auto& list, std::uint64_t index) { return list.begin() + static_cast<std::ptrdiff_t>(index); };
  part.sequences.assign(at(whole.sequences, sequences.begin), at(whole.sequences, sequences.end));
  if (!whole.keys.empty()) part.keys.assign(at(whole.keys, sequences.begin), at(whole.keys, sequences.end));
  if (whole.assistant.empty()) return part;
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < sequences.begin; ++i) first += whole.sequences[i].size();
  const auto count = static_cast<std::uint64_t>(part.num_tokens());
  part.assistant.assign(at(whole.assistant, first), at(whole.assistant, first + count));
  return part;
}

// A part whose rows are being computed.
struct Started {
  LogitReducer::Started logits;
  std::vector<std::int64_t> scored;
  at::Tensor hidden_TD;  // hidden_TD and uniforms: only for sampled rows, until the draws are made
  std::vector<double> uniforms;
  std::int64_t num_tokens = 0;
};

class TeacherWorker final : public ShardModel {
 public:
  TeacherWorker(ShardContext shard, const TeacherLogitsConfig& config, const TeacherEncoding& encoding)
      : ShardModel(std::move(shard)),
        config_(config),
        encoding_(encoding),
        passes_(model_, [] { return fail_point("teacher.pass.memory"); }, kLogitRows) {
    reducer_.emplace(model_.lm_head(), group_, pool_, static_cast<std::int64_t>(encoding_.top_k));
    if (samples()) tail_.emplace(model_.lm_head(), group_, pool_, static_cast<std::int64_t>(encoding_.draws));
    if (model_.queue() == nullptr) return;
    const PhaseTimes::Span span(times_, "measure the memory");
    tokens_together_ = passes_.tokens_together(base_.pass);
    // A unit has at most unit_tokens, or one sample that is longer.
    const std::uint64_t most_tokens = std::max(tokens_together_, base_.file.most_rows_of_a_unit());
    passes_.limit(measured_token_budget(model_, *reducer_, static_cast<std::int64_t>(most_tokens)));
  }

  void run_units() override {
    for (auto units = units_of_pass(); !units.empty(); units = units_of_pass()) {
      if (!start_pass(units)) break;
    }
    finish_pass();
    drain();
  }

 private:
  bool samples() const { return encoding_.kind == TeacherEncoding::Kind::kSampled; }

  struct UnitOfPass {
    Unit unit;
    PackedBatch batch;
  };
  // A pass that the GPU computes while the next one is read and queued. On a CPU the rows are made at once.
  struct Pending {
    std::vector<UnitOfPass> units;
    std::vector<Started> parts;
  };

  // Near the end the pending pass is finished first, since its units may be the whole share of this group.
  std::vector<std::uint64_t> units_of_pass() {
    if (pending_ && !may_hold_more(pending_->units.size())) finish_pass();
    return next_units(tokens_together_);
  }

  // False: the job was asked to stop before the pass was finished; its units are dropped, and nothing of them was
  // written.
  bool start_pass(const std::vector<std::uint64_t>& units) {
    unit_ = static_cast<std::int64_t>(units.front());
    watch("compute", unit_);
    Pending next;
    Part whole;
    for (const std::uint64_t index : units) {
      fail_point("teacher.unit.begin");
      const PhaseTimes::Span span(times_, "read");
      const Unit unit = base_.file.unit(index);
      Part part = read_unit(base_.file, unit, config_.assistant_only);
      if (samples()) part.keys = draw_keys(base_.file, unit, config_.seed);
      next.units.push_back({unit, pack_sequences(part.sequences)});
      append(whole, std::move(part));
    }
    if (!compute(whole, next.parts)) {
      base_.work.tickets.request_stop();
      return false;
    }
    finish_pass();
    pending_ = std::move(next);
    if (model_.queue() == nullptr) finish_pass();
    return true;
  }

  // Starts the parts of the pass and adds their pending rows to started. False: the job was asked to stop.
  bool compute(const Part& whole, std::vector<Started>& started) {
    std::vector<std::int64_t> lengths;
    lengths.reserve(whole.sequences.size());
    for (const auto& sequence : whole.sequences) lengths.push_back(static_cast<std::int64_t>(sequence.size()));
    return passes_.run(lengths, [&](IndexRange sequences) {
      std::optional<Started> rows = start(sequences.size() == lengths.size() ? whole : part_of(whole, sequences));
      if (!rows) return false;
      started.push_back(std::move(*rows));
      return true;
    });
  }

  std::optional<Started> start(const Part& part) {
    PackedBatch batch = pack_sequences(part.sequences);
    Started rows;
    rows.num_tokens = batch.num_tokens();
    std::vector<TokenId> targets = targets_of(part);
    if (config_.assistant_only) batch.read_rows = rows.scored = choose_rows(part.assistant, targets);
    at::Tensor hidden_TD;
    {
      const PhaseTimes::Span span(times_, "compute body");
      hidden_TD = model_.forward(batch, [this] {
        fail_point("teacher.layer");
        watch("compute", unit_);  // called between layers: a record may take longer than the watchdog waits
        return stop_agreed();
      });
      if (!hidden_TD.defined()) return std::nullopt;
    }
    const PhaseTimes::Span span(times_, "compute head");
    rows.logits = reducer_->start(hidden_TD, targets);
    if (samples()) {
      rows.hidden_TD = std::move(hidden_TD);
      rows.uniforms = uniforms_of(part, rows.scored, config_.assistant_only);
    }
    return rows;
  }

  void finish_pass() {
    if (!pending_) return;
    std::vector<ReducedLogits> parts;
    std::vector<at::Tensor> draws;
    std::vector<std::uint8_t> scored_T;  // empty: all rows
    if (model_.queue() != nullptr) {
      const PhaseTimes::Span span(times_, "wait for the GPU");
      for (const Started& part : pending_->parts) group_.wait_for(part.logits.ready);
    }
    {
      const PhaseTimes::Span span(times_, "make rows");
      for (const Started& part : pending_->parts) {
        ReducedLogits logits = reducer_->finish(part.logits);
        if (samples()) {
          const at::Tensor drawn = tail_->sample(part.hidden_TD, logits, part.uniforms);
          draws.push_back(config_.assistant_only ? scattered(drawn, part.scored, part.num_tokens, 0) : drawn);
        }
        if (config_.assistant_only) {
          const std::size_t first = scored_T.size();
          scored_T.resize(first + static_cast<std::size_t>(part.num_tokens));
          for (const std::int64_t row : part.scored) scored_T[first + static_cast<std::size_t>(row)] = 1;
        }
        parts.push_back(config_.assistant_only ? scattered(logits, part.scored, part.num_tokens) : std::move(logits));
      }
    }
    write_units(joined(parts), scored_T, draws.empty() ? at::Tensor() : at::cat(draws));
    pending_.reset();
  }

  // Writes the rows of the pass, unit by unit.
  void write_units(const ReducedLogits& rows, std::span<const std::uint8_t> scored_T, const at::Tensor& draws_Td) {
    std::int64_t first = 0;
    for (const UnitOfPass& one : pending_->units) {
      // Set for each unit, since writing may wait until earlier units are on disk.
      watch("write", static_cast<std::int64_t>(one.unit.index));
      fail_point("teacher.unit.computed");
      const std::int64_t count = one.batch.num_tokens();
      const ReducedLogits own = narrowed(rows, first, count);
      const auto own_scored = scored_T.empty()
                                  ? scored_T
                                  : scored_T.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
      if (const std::int64_t bad = first_row_not_finite(own, own_scored); bad >= 0) refuse_row(one, bad);
      if (writer_) {
        writer_->submit(one.unit, rows_of(own, one.batch, own_scored,
                                          draws_Td.defined() ? draws_Td.narrow(0, first, count) : draws_Td));
        base_.work.report_progress();
      }
      first += count;
    }
  }

  std::vector<ColumnBytes> rows_of(const ReducedLogits& own, const PackedBatch& batch,
                                   std::span<const std::uint8_t> scored_T, const at::Tensor& draws_Td) {
    const PhaseTimes::Span span(times_, "make rows");
    return teacher_rows(own, batch, scored_T, encoding_, config_.logprob_f16, draws_Td, &pool_);
  }

  // Every shard finds the same row, so all shards look for the layer together.
  [[noreturn]] void refuse_row(const UnitOfPass& one, std::int64_t row) {
    const PackedBatch& batch = one.batch;
    const auto after = std::upper_bound(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), row);
    const std::int64_t begin = *(after - 1);
    const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
    const std::uint64_t sample =
        one.unit.samples.begin + static_cast<std::uint64_t>(after - batch.cu_seqlens.begin() - 1);
    refuse_not_finite(model_, describe_record(base_.file, sample), static_cast<std::uint64_t>(row - begin),
                      {ids + begin, ids + *after});
  }

  const TeacherLogitsConfig& config_;
  const TeacherEncoding encoding_;
  std::optional<LogitReducer> reducer_;
  std::optional<TailSampler> tail_;  // for sampled rows
  std::optional<Pending> pending_;
  std::int64_t unit_ = -1;             // first unit of the current pass
  std::uint64_t tokens_together_ = 0;  // tokens of a pass of several units; 0 on a CPU
  SequencePasses passes_;
};

}  // namespace

std::unique_ptr<ShardWorker> make_teacher_worker(ShardContext shard, const TeacherLogitsConfig& config,
                                                 const TeacherEncoding& encoding) {
  return std::make_unique<TeacherWorker>(std::move(shard), config, encoding);
}

}  // namespace magister
