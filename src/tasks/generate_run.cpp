// A shard's life: weights, self-test, then passes of the generator. New records are drawn whenever fewer texts than
// max_sequences are under way, so the batch stays full over the borders of units; a record is committed when its last text
// is there, in whatever order.
#include "tasks/generate_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/engine/generator.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "tasks/results_on_disk.h"
#include "tasks/shard_threads.h"

namespace magister {
namespace {

// Of all texts of a record the `count` with the highest mean log-probability, the best first; of equal ones the lower sample
// first. All of them stay in order when there are no others.
std::vector<Generation> best_texts(std::vector<Generation> texts, std::size_t count) {
  if (texts.size() == count) return texts;
  const auto mean = [](const Generation& text) {
    double sum = 0;
    for (const float logprob : text.logprobs) sum += logprob;
    return sum / static_cast<double>(text.logprobs.size());
  };
  std::stable_sort(texts.begin(), texts.end(), [&](const Generation& a, const Generation& b) { return mean(a) > mean(b); });
  texts.resize(count);
  return texts;
}

class Writer {
 public:
  Writer(const GenerateRun& run, std::unique_ptr<ProcessGroup> group, bool speaks)
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
    const GenerateConfig& config = run_.config;
    const GeneratorLimits limits{static_cast<std::int64_t>(config.max_sequences), static_cast<std::int64_t>(config.token_budget),
                                 run_.num_pages, config.share_prefixes,
                                 static_cast<std::int64_t>(config.top_logprobs)};
    generator_.emplace(*model_, limits, run_.sampling, config.seed, [this](auto, auto, const auto& tokens) { return ends(tokens); });
    if (group_->tp_rank() == 0) writer_.emplace(run_.file, run_.work.tickets);
  }

  void run_units() {
    while (fill() || !generator_->idle()) {
      if (run_.stop_wanted() && group_->tp_size() == 1) {
        run_.work.tickets.request_stop();
        break;  // texts under way are written again, to the same tokens
      }
      if (speaks_) run_.work.watchdog.enter("write texts");
      fail_point("generate.pass");
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
  struct Record {
    Unit unit;
    std::vector<Generation> texts;
    std::uint64_t missing = 0;
  };

  bool ends(const std::vector<TokenId>& tokens) const {
    const StopRules& rules = run_.rules;
    if (std::find(rules.tokens.begin(), rules.tokens.end(), tokens.back()) != rules.tokens.end()) return true;
    if (rules.texts.empty()) return false;
    // A stop text ends in the newest token, so the last tokens are enough: every token has a byte at least, and a few more
    // make up for characters that begin before them.
    std::size_t longest = 0;
    for (const std::string& text : rules.texts) longest = std::max(longest, text.size());
    const std::size_t count = std::min(tokens.size(), longest + 8);
    const std::string text = run_.tokenizer.decode(std::span(tokens).last(count), true);
    return std::any_of(rules.texts.begin(), rules.texts.end(), [&](const std::string& stop) { return text.find(stop) != text.npos; });
  }

  // Draws records while there is room for their texts. False when there are none left. Collective over the group.
  bool fill() {
    const PhaseTimes::Span span(times_, "draw");
    while (!exhausted_ && under_way_ < run_.config.max_sequences) {
      if (const auto index = draw_for_group(*group_, run_.work.tickets, run_.stop_wanted)) {
        add(run_.file.unit(*index));
      } else {
        exhausted_ = true;
      }
    }
    return under_way_ > 0;
  }

  // A unit is one record.
  void add(const Unit& unit) {
    MAGISTER_ASSERT(unit.samples.size() == 1);
    std::uint64_t source = 0;
    run_.file.read("/samples/source_index", unit.samples.begin, std::as_writable_bytes(std::span(&source, 1)));
    std::vector<TokenId> prompt(unit.rows.size());
    run_.file.read("/tokens/id", unit.rows.begin, std::as_writable_bytes(std::span(prompt)));
    Record& record = records_[source];
    const std::uint64_t count = run_.config.best_of;
    record = {unit, std::vector<Generation>(count), count};
    for (std::uint64_t i = 0; i < count; ++i) {
      generator_->add({source, i, prompt, static_cast<std::int64_t>(run_.config.max_new_tokens), run_.constraint});
    }
    under_way_ += count;
  }

  void take_finished() {
    for (Generation& text : generator_->take_finished()) {
      const auto found = records_.find(text.record);
      Record& record = found->second;
      const auto sample = static_cast<std::size_t>(text.sample);
      record.texts[sample] = std::move(text);
      --under_way_;
      if (--record.missing > 0) continue;
      fail_point("generate.record.done");
      if (writer_) {
        writer_->submit(record.unit, running_rows(best_texts(std::move(record.texts), run_.shape.texts), run_.shape));
        run_.work.tell();
      }
      records_.erase(found);
    }
  }

  const GenerateRun& run_;
  std::unique_ptr<ProcessGroup> group_;
  bool speaks_;
  PhaseTimes own_times_;  // of the other shards: nobody reads them
  PhaseTimes& times_;
  ThreadPool pool_;
  std::optional<Transformer> model_;
  std::optional<Generator> generator_;
  std::optional<UnitWriter> writer_;
  std::map<std::uint64_t, Record> records_;  // under way, by source index
  std::uint64_t under_way_ = 0;              // texts
  bool exhausted_ = false;
};

}  // namespace

std::int64_t num_cache_pages(const ModelConfig& model, int tp_size, const GenerateConfig& config, std::uint64_t longest_prompt) {
  const auto pages_for = [](std::uint64_t tokens) { return (tokens + KvPages::kSlots - 1) / KvPages::kSlots; };
  const std::uint64_t a_text = pages_for(longest_prompt + config.max_new_tokens) + 1;
  const std::uint64_t page_bytes = kv_page_bytes(model, partition_for(model, 0, tp_size));
  const std::uint64_t affordable = memory_share_bytes() / std::max<std::uint64_t>(page_bytes, 1);
  return static_cast<std::int64_t>(std::max(a_text + 1, std::min(a_text * config.max_sequences, affordable)));
}

void run_generate_units(const GenerateRun& run) {
  run_shards(run.group, [&](std::unique_ptr<ProcessGroup> group, bool first) { Writer(run, std::move(group), first).run_units(); });
}

}  // namespace magister
