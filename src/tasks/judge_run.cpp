// Every prompt is one prefill; its last row of logits is the verdict. Prompts share the pages of their common beginning.
#include "tasks/judge_run.h"

#include <ATen/ATen.h>

#include <cstring>
#include <map>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/engine/generator.h"
#include "magister/model/transformer.h"
#include "tasks/shard_threads.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;

template <typename T, typename Get>
std::vector<std::byte> column_of(const std::vector<Verdict>& verdicts, const Get& get) {
  std::vector<std::byte> bytes(verdicts.size() * sizeof(T));
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const T value = get(verdicts[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

std::vector<ColumnBytes> judge_rows(const Unit& unit, const std::vector<Verdict>& verdicts, std::uint64_t orders) {
  std::vector<std::byte> classes, order;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const auto bytes = std::as_bytes(std::span(verdicts[i].class_logprobs));
    classes.insert(classes.end(), bytes.begin(), bytes.end());
    order.push_back(static_cast<std::byte>((unit.samples.begin + i) % orders));
  }
  return {{"/judge/verdict", column_of<std::int32_t>(verdicts, [](const Verdict& v) { return v.verdict; }), true},
          {"/judge/probability", column_of<float>(verdicts, [](const Verdict& v) { return v.probability; }), true},
          {"/judge/log_odds", column_of<float>(verdicts, [](const Verdict& v) { return v.log_odds; }), true},
          {"/judge/margin", column_of<float>(verdicts, [](const Verdict& v) { return v.margin; }), true},
          {"/judge/mass", column_of<float>(verdicts, [](const Verdict& v) { return v.mass; }), true},
          {"/judge/expected", column_of<float>(verdicts, [](const Verdict& v) { return v.expected; }), true},
          {"/judge/class_logprob", std::move(classes), true},
          {"/judge/parse", column_of<std::uint8_t>(verdicts, [](const Verdict& v) { return static_cast<std::uint8_t>(v.parse); }), true},
          {"/judge/order", std::move(order), true}};
}

class Judge {
 public:
  Judge(const JudgeRun& run, std::unique_ptr<ProcessGroup> group, bool speaks)
      : run_(run), group_(std::move(group)), speaks_(speaks), times_(speaks ? run.times : own_times_),
        pool_(run.group.threads_per_shard()) {
    std::optional<QuantizationLoss> loss;
    if (run_.loss) {
      const PhaseTimes::Span measuring(times_, "measure the loss");
      if (speaks_) run_.work.watchdog.enter("measure the loss of quantisation");
      loss.emplace(*run_.loss, run_.model, run_.weights, *group_, pool_);
    }
    {
      const PhaseTimes::Span span(times_, "load");
      if (speaks_) run_.work.watchdog.enter("load the model");
      model_.emplace(run_.model, run_.weights, *group_, pool_, run_.dtype, run_.quantization);
      model_->self_test();
    }
    if (loss) {
      const PhaseTimes::Span measuring(times_, "measure the loss");
      loss->compare(*model_);
    }
    const GeneratorLimits limits{static_cast<std::int64_t>(run_.config.max_sequences), static_cast<std::int64_t>(run_.config.token_budget),
                                 run_.num_pages, run_.config.share_prefixes};
    generator_.emplace(*model_, limits, SamplingParams{}, 0, Generator::Stop{});
    if (group_->tp_rank() == 0) writer_.emplace(run_.file, run_.work.tickets);
  }

  void run_units() {
    while (fill() || !generator_->idle()) {
      if (run_.stop_wanted() && group_->tp_size() == 1) {
        run_.work.tickets.request_stop();
        break;
      }
      if (speaks_) run_.work.watchdog.enter("judge");
      fail_point("judge.pass");
      {
        const PhaseTimes::Span span(times_, "compute");
        generator_->step();
      }
      take_finished();
    }
    if (writer_) {
      writer_->drain();
      run_.work.tell();
      times_.add("write", writer_->write_seconds());
      times_.add("wait for write", writer_->wait_seconds());
    }
    if (speaks_) run_.work.watchdog.leave();
  }

 private:
  struct Open {
    Unit unit;
    std::vector<Verdict> verdicts;
    std::uint64_t missing = 0;
  };

  // Keeps more prompts at hand than one pass takes. Collective over the group.
  bool fill() {
    const PhaseTimes::Span span(times_, "draw");
    while (!exhausted_ && under_way_ < 2 * run_.config.max_sequences) {
      if (const auto index = draw_for_group(*group_, run_.work.tickets, run_.stop_wanted)) {
        add(run_.file.unit(*index));
      } else {
        exhausted_ = true;
      }
    }
    return under_way_ > 0;
  }

  void add(const Unit& unit) {
    std::vector<std::uint64_t> offset(unit.samples.size() + 1);
    run_.file.read("/samples/offset", unit.samples.begin, std::as_writable_bytes(std::span(offset)));
    std::vector<TokenId> ids(unit.rows.size());
    run_.file.read("/tokens/id", unit.rows.begin, std::as_writable_bytes(std::span(ids)));
    open_[unit.index] = {unit, std::vector<Verdict>(unit.samples.size()), unit.samples.size()};
    for (std::size_t i = 0; i < unit.samples.size(); ++i) {
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(offset[i] - unit.rows.begin);
      const auto end = ids.begin() + static_cast<std::ptrdiff_t>(offset[i + 1] - unit.rows.begin);
      generator_->add({unit.index, i, {begin, end}, 0});
    }
    under_way_ += unit.samples.size();
  }

  void take_finished() {
    for (const Generation& done : generator_->take_finished()) {
      const auto found = open_.find(done.record);
      Open& open = found->second;
      open.verdicts[done.sample] = score_verdict(done.last_logits_V, run_.classes, run_.config.low_mass);
      --under_way_;
      if (--open.missing > 0) continue;
      fail_point("judge.unit.done");
      if (writer_) {
        writer_->submit(open.unit, judge_rows(open.unit, open.verdicts, run_.orders));
        run_.work.tell();
      }
      open_.erase(found);
    }
  }

  const JudgeRun& run_;
  std::unique_ptr<ProcessGroup> group_;
  bool speaks_;
  PhaseTimes own_times_;  // of the other shards: nobody reads them
  PhaseTimes& times_;
  ThreadPool pool_;
  std::optional<Transformer> model_;
  std::optional<Generator> generator_;
  std::optional<UnitWriter> writer_;
  std::map<std::uint64_t, Open> open_;  // units under way
  std::uint64_t under_way_ = 0;         // prompts
  bool exhausted_ = false;
};

}  // namespace

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape) {
  const std::uint64_t n = shape.num_samples;
  return {
      {"/samples/key", ColumnType::kUtf8, n, shape.key_bytes, "the record's key, or its index in the data set", "", Extent::kSamples},
      {"/samples/source_index", ColumnType::kU64, n, 0, "position of the record in the data set", "", Extent::kSamples},
      {"/samples/offset", ColumnType::kU64, n + 1, 0, "rows of prompt i are offset[i] .. offset[i+1] of /tokens", "", Extent::kFixed},
      {"/tokens/id", ColumnType::kI32, shape.num_tokens, 0, "the prompts as the judge saw them", "", Extent::kRows},
      {"/judge/verdict", ColumnType::kI32, n, 0, "number of the most probable verdict; names: root attribute verdicts", "", Extent::kSamples},
      {"/judge/probability", ColumnType::kF32, n, 0, "of that verdict among all verdicts", "", Extent::kSamples},
      {"/judge/log_odds", ColumnType::kF32, n, 0, "of the first verdict against all others", "nat", Extent::kSamples},
      {"/judge/margin", ColumnType::kF32, n, 0, "the best verdict over the second", "nat", Extent::kSamples},
      {"/judge/mass", ColumnType::kF32, n, 0, "probability of all verdicts together in the whole distribution", "", Extent::kSamples},
      {"/judge/expected", ColumnType::kF32, n, 0, "sum of (number + 1) * probability among the verdicts: the expected score of a rubric", "", Extent::kSamples},
      {"/judge/class_logprob", ColumnType::kF32, n, shape.classes, "of each verdict in the whole distribution", "nat", Extent::kSamples},
      {"/judge/parse", ColumnType::kU8, n, 0, "0: ok; 1: low_mass, the model wanted to write something else", "", Extent::kSamples},
      {"/judge/order", ColumnType::kU8, n, 0, "of a pair: 0 as given, 1 with the answers exchanged", "", Extent::kSamples},
  };
}

void run_judge_units(const JudgeRun& run) {
  run_shards(run.group, [&](std::unique_ptr<ProcessGroup> group, bool first) { Judge(run, std::move(group), first).run_units(); });
}

}  // namespace magister
