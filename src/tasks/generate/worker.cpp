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
    start(config, config.sampling, config.seed, stop(), config.max_sequences, config.top_logprobs);
    if (setup_.guide) guide(*setup_.guide);
  }

 private:
  struct Record {
    Unit unit;
    std::vector<TokenId> before;  // decode_context() of its prompt
    const StopRules* stops = nullptr;
    std::vector<Generation> texts;
    std::uint64_t missing = 0, kept = 0;
  };

  std::uint64_t begin_unit(const Unit& unit) override {
    auto [source, prompt] = prompt_of(unit);
    const std::uint64_t index = setup_.requests ? source - setup_.requests->first_source_index() : 0;
    const std::uint64_t kept = setup_.requests ? setup_.requests->kind(index).settings.texts : shape_.texts;
    const std::uint64_t count = setup_.config.best_of_is_written ? setup_.config.best_of : kept;
    records_[source] = {
        unit, decode_context(setup_.tokenizer, prompt), &setup_.stops_of(index), std::vector<Generation>(count), count,
        kept};
    GenerationRequest request{source, 0, std::move(prompt),
                              static_cast<std::int64_t>(setup_.config.max_new_tokens.tokens()),
                              setup_.constraint.get()};
    if (setup_.requests) obey(*setup_.requests, index, request);
    generator_->add(std::move(request), count);
    return count;
  }

  Generator::Stop stop() {
    return [this](std::uint64_t record, auto, const auto& tokens) {
      const Record& known = records_.at(record);
      return ends_text(setup_.tokenizer, known.before, tokens, *known.stops);
    };
  }

  // The keys of a request instead of the task's. Requests with the same keys and seed share a decoding: a GPU draws
  // their rows together. With a seed of its own a request's draws are the same wherever it is in a file.
  void obey(const RequestTable& requests, std::uint64_t index, GenerationRequest& request) {
    const RequestKind& kind = requests.kind(index);
    request.max_new_tokens = kind.settings.max_new_tokens;
    if (kind.constraint) request.constraint = kind.constraint.get();
    const std::optional<std::uint64_t> seed = requests.seed(index);
    std::weak_ptr<const Decoding>& shared = decodings_[{requests.kind_index(index), seed}];
    request.decoding = shared.lock();
    if (request.decoding) return;
    const auto one_record = seed ? std::optional<std::uint64_t>(0) : std::nullopt;
    request.decoding = std::make_shared<const Decoding>(kind.settings.sampling, seed.value_or(setup_.config.seed),
                                                        stop(), nullptr, one_record);
    shared = request.decoding;
  }

  std::uint64_t take(Generation&& text) override {
    const auto found = records_.find(text.record);
    Record& record = found->second;
    const auto sample = static_cast<std::size_t>(text.sample);
    record.texts[sample] = std::move(text);
    if (--record.missing > 0) return 1;
    fail_point("generate.record.done");
    if (writer_) submit(record.unit, running_rows(best_texts(std::move(record.texts), record.kept), shape_));
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
  // By kind of request and its own seed, while a text is written with it.
  std::map<std::pair<std::uint32_t, std::optional<std::uint64_t>>, std::weak_ptr<const Decoding>> decodings_;
};

}  // namespace

std::unique_ptr<ShardWorker> make_generate_worker(ShardContext shard, const GenerateSetup& setup,
                                                  const GenerateShape& shape) {
  return std::make_unique<GenerateWorker>(std::move(shard), setup, shape);
}

}  // namespace magister
