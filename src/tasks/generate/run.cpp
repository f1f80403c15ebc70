// A unit is a record, and its texts are the generator's sequences.
#include "tasks/generate/run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/model/partition.h"
#include "magister/run/generator_shard.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/shard_threads.h"
#include "magister/text/decode_behind.h"

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
  std::stable_sort(texts.begin(), texts.end(),
                   [&](const Generation& a, const Generation& b) { return mean(a) > mean(b); });
  texts.resize(count);
  return texts;
}

class GenerateWorker final : public GeneratorShard {
 public:
  GenerateWorker(const GenerateRun& run, std::unique_ptr<ProcessGroup> group, ShardPlace place)
      : GeneratorShard(run.base, std::move(group), place), run_(run) {
    const GenerateConfig& config = run_.config;
    const GeneratorLimits limits{.max_sequences = static_cast<std::int64_t>(config.max_sequences),
                                 .token_budget = static_cast<std::int64_t>(config.token_budget),
                                 .num_pages = run_.num_pages,
                                 .share_prefixes = config.share_prefixes,
                                 .top_logprobs = static_cast<std::int64_t>(config.top_logprobs)};
    start(
        limits, run_.sampling, config.seed,
        [this](std::uint64_t record, auto, const auto& tokens) {
          return ends_text(run_.tokenizer, records_.at(record).before, tokens, run_.rules);
        },
        config.max_sequences);
    if (run_.guide) guide(*run_.guide);
  }

 private:
  struct Record {
    Unit unit;
    std::vector<TokenId> before;  // decode_context() of its prompt
    std::vector<Generation> texts;
    std::uint64_t missing = 0;
  };

  std::uint64_t begin_unit(const Unit& unit) override {
    auto [source, prompt] = prompt_of(unit);
    const std::uint64_t count = run_.config.best_of;
    records_[source] = {unit, decode_context(run_.tokenizer, prompt), std::vector<Generation>(count), count};
    generator_->add(
        {source, 0, std::move(prompt), static_cast<std::int64_t>(run_.config.max_new_tokens.tokens()), run_.constraint},
        count);
    return count;
  }

  std::uint64_t take(Generation&& text) override {
    const auto found = records_.find(text.record);
    Record& record = found->second;
    const auto sample = static_cast<std::size_t>(text.sample);
    record.texts[sample] = std::move(text);
    if (--record.missing > 0) return 1;
    fail_point("generate.record.done");
    if (writer_) submit(record.unit, running_rows(best_texts(std::move(record.texts), run_.shape.texts), run_.shape));
    records_.erase(found);
    return 1;
  }

  std::uint64_t sample_of(std::uint64_t record, std::uint64_t) const override {
    return records_.at(record).unit.samples.begin;
  }

  void before_pass() override {
    watch("write texts");
    fail_point("generate.pass");
  }

  const GenerateRun& run_;
  std::map<std::uint64_t, Record> records_;  // in flight, by source index
};

}  // namespace

std::int64_t num_cache_pages(const OpenModel& model, int tp_size, const GenerateConfig& config, const PassShape& pass,
                             std::uint64_t longest_prompt) {
  return pages_of_texts(model, tp_size, pass, longest_prompt + config.max_new_tokens.tokens(), config.max_sequences);
}

void run_generate_units(const GenerateRun& run) {
  run_shards(run.base.group, run.base.work.tickets, [&](std::unique_ptr<ProcessGroup> group, ShardPlace place) {
    GenerateWorker(run, std::move(group), place).run_units();
  });
}

}  // namespace magister
