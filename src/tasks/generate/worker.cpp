// A unit is one record; its texts are sequences of the generator.
#include "tasks/generate/worker.h"

#include <algorithm>
#include <map>

#include "magister/core/fail_point.h"
#include "magister/text/decode_continuation.h"

namespace magister {
namespace {

// The `count` texts of a record with the highest mean log-probability, the best first; of equal ones the lower sample
// first. If there are exactly `count` texts, they keep their order.
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
  GenerateWorker(ShardContext shard, const GenerateSetup& setup, const GenerateShape& shape)
      : GeneratorShard(std::move(shard)), setup_(setup), shape_(shape) {
    const GenerateConfig& config = setup_.config;
    start(
        config, config.sampling, config.seed,
        [this](std::uint64_t record, auto, const auto& tokens) {
          return ends_text(setup_.tokenizer, records_.at(record).before, tokens, setup_.stops);
        },
        config.max_sequences, config.top_logprobs);
    if (setup_.guide) guide(*setup_.guide);
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
    const std::uint64_t count = setup_.config.best_of;
    records_[source] = {unit, decode_context(setup_.tokenizer, prompt), std::vector<Generation>(count), count};
    generator_->add({source, 0, std::move(prompt), static_cast<std::int64_t>(setup_.config.max_new_tokens.tokens()),
                     setup_.constraint.get()},
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
    if (writer_) submit(record.unit, running_rows(best_texts(std::move(record.texts), shape_.texts), shape_));
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

  const GenerateSetup& setup_;
  const GenerateShape shape_;
  std::map<std::uint64_t, Record> records_;  // in flight, by source index
};

}  // namespace

std::unique_ptr<ShardWorker> make_generate_worker(ShardContext shard, const GenerateSetup& setup,
                                                  const GenerateShape& shape) {
  return std::make_unique<GenerateWorker>(std::move(shard), setup, shape);
}

}  // namespace magister
