// A unit is one objective; its requests are sequences of the generator (objective_run.h).
#include "tasks/exam/worker.h"

#include <algorithm>
#include <utility>

#include "magister/core/fail_point.h"
#include "magister/core/sha256.h"
#include "magister/run/generator_shard.h"
#include "magister/tasks/generate/constraint_config.h"
#include "magister/text/decode_continuation.h"

namespace magister {
namespace {

class ExamWorker final : public GeneratorShard {
 public:
  ExamWorker(ShardContext shard, const ExamSetup& setup, const ExamShape& shape)
      : GeneratorShard(std::move(shard)),
        setup_(setup),
        shape_(shape),
        rules_{setup.config, setup.prompts,
               [&setup](const ItemForm& form) { return setup.constraints.at(form.kind).get(); },
               [&setup](std::span<const TokenId> prompt, std::span<const TokenId> tokens) {
                 return setup.text_of_tokens(prompt, tokens);
               },
               shape.numbers()} {
    start(
        setup_.config, setup_.config.sampling, setup_.config.seed,
        [this](std::uint64_t record, auto, const auto& tokens) {
          return ends_text(setup_.tokenizer, open_.at(record).before, tokens, setup_.stops);
        },
        setup_.config.max_sequences);
  }

 private:
  struct Open {
    Unit unit;
    std::vector<TokenId> before;  // decode_context() of its first prompt
    std::unique_ptr<ObjectiveRun> run;
  };

  // An objective counts as many requests as it has items, from its beginning to its end.
  std::uint64_t begin_unit(const Unit& unit) override {
    auto [record, prompt] = prompt_of(unit);
    Open& open = open_[record];
    open.unit = unit;
    open.before = decode_context(setup_.tokenizer, prompt);
    open.run = std::make_unique<ObjectiveRun>(rules_, setup_.topic(record, setup_.objectives.at(record)), prompt);
    add(open.run->begin());
    return setup_.config.items;
  }

  void add(std::vector<GenerationRequest> requests) {
    for (GenerationRequest& request : requests) generator_->add(std::move(request));
  }

  std::uint64_t take(Generation&& answer) override {
    const auto found = open_.find(answer.record);
    Open& open = found->second;
    add(open.run->take(std::move(answer)));
    if (!open.run->done()) return 0;
    fail_point("exam.objective.done");
    if (writer_) submit(open.unit, rows_of(*open.run));
    open_.erase(found);
    return setup_.config.items;
  }

  std::vector<ColumnBytes> rows_of(const ObjectiveRun& run) const;

  std::uint64_t sample_of(std::uint64_t record, std::uint64_t) const override {
    return open_.at(record).unit.samples.begin;
  }

  void before_pass() override {
    watch("write and check items");
    fail_point("exam.pass");
  }

  const ExamSetup& setup_;
  const ExamShape shape_;
  const ExamRules rules_;
  std::map<std::uint64_t, Open> open_;  // by record
};

std::vector<ColumnBytes> ExamWorker::rows_of(const ObjectiveRun& run) const {
  const std::uint64_t rows = shape_.rows(), numbers = shape_.numbers();
  std::vector<TokenId> ids(rows * shape_.slots, 0);
  std::vector<std::uint32_t> lengths(rows, 0), reasons(rows, 0);
  std::vector<std::uint8_t> states(rows, 0);
  std::vector<std::int32_t> bloom(rows, -1), passages(shape_.passages, -1);
  std::vector<float> values(rows * numbers, 0.0f);
  for (const std::vector<ItemVersion>& versions : run.items()) {
    for (const ItemVersion& version : versions) {
      const std::uint64_t row = version.item * shape_.versions + version.attempt;
      MAGISTER_ASSERT(version.attempt < shape_.versions && version.tokens.size() <= shape_.slots);
      std::copy(version.tokens.begin(), version.tokens.end(),
                ids.begin() + static_cast<std::ptrdiff_t>(row * shape_.slots));
      std::copy(version.numbers.begin(), version.numbers.end(),
                values.begin() + static_cast<std::ptrdiff_t>(row * numbers));
      lengths[row] = static_cast<std::uint32_t>(version.tokens.size());
      states[row] = static_cast<std::uint8_t>(version.state);
      reasons[row] = version.reasons;
      bloom[row] = version.bloom;
    }
  }
  const std::vector<std::size_t>& chunks = run.topic().chunks;
  for (std::size_t i = 0; i < chunks.size(); ++i) passages[i] = static_cast<std::int32_t>(chunks[i]);
  using namespace exam_column;
  return {samples_column(kSlotId, ids),       samples_column(kSlotLength, lengths),
          samples_column(kSlotState, states), samples_column(kSlotReasons, reasons),
          samples_column(kSlotBloom, bloom),  samples_column(kSlotNumber, values),
          samples_column(kPassage, passages)};
}

std::size_t tokens_in(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special_tokens = false, .special_tokens_in_text = false}).size();
}

}  // namespace

ExamSetup::ExamSetup(ExamConfig exam, Checkpoint& checkpoint)
    : config(std::move(exam)),
      tokenizer(checkpoint.tokenizer()),
      prompts(config, checkpoint),
      chunks(read_source(config.source, config.passage_tokens,
                         [this](std::string_view text) { return tokens_in(tokenizer, text); })),
      index(chunks) {
  stops.constrained = true;
  stops.tokens = checkpoint.end_tokens();
  config.sampling.rules = checkpoint.rules();
  for (const ItemKind kind : config.kinds) {
    if (constraints.contains(kind)) continue;
    const ItemForm form{kind, config.choices, num_passages()};
    const ConstraintRule rule{ConstraintRule::Kind::kJsonSchema, item_schema(form), {}, "exam: items"};
    constraints[kind] = compile_constraint(rule, tokenizer, stops.tokens, checkpoint.config().vocab_size);
  }
}

ExamTopic ExamSetup::topic(std::uint64_t record, const ExamObjective& objective) const {
  ExamTopic topic{record, objective.number, objective.text, {}, {}};
  for (const ChunkIndex::Hit& hit : index.best(objective.text, num_passages())) {
    topic.passages.push_back(chunks[hit.chunk].text);
    topic.chunks.push_back(hit.chunk);
  }
  return topic;
}

std::string ExamSetup::source_sha256() const {
  Sha256 hash;
  for (const SourceChunk& chunk : chunks) hash.update(fmt::format("{} {}\n", chunk.text.size(), chunk.text));
  return hash.hex();
}

ExamShape ExamSetup::shape(std::uint64_t num_objectives, std::uint64_t num_tokens, std::uint64_t key_bytes) const {
  return {.num_objectives = num_objectives,
          .num_tokens = num_tokens,
          .key_bytes = key_bytes,
          .items = config.items,
          .versions = config.bounds.versions(),
          .slots = config.max_new_tokens.tokens(),
          .choices = config.choices,
          .passages = config.passages};
}

std::unique_ptr<ShardWorker> make_exam_worker(ShardContext shard, const ExamSetup& setup, const ExamShape& shape) {
  return std::make_unique<ExamWorker>(std::move(shard), setup, shape);
}

}  // namespace magister
