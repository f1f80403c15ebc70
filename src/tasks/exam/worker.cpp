// A unit is one objective; its requests are sequences of the generator (objective_run.h).
#include "tasks/exam/worker.h"

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/sha256.h"
#include "magister/io/whole_file.h"
#include "magister/run/generator_shard.h"
#include "magister/tasks/generate/constraint_config.h"
#include "magister/text/decode_continuation.h"
#include "tasks/exam/duplicate_pairs.h"
#include "tasks/exam/objective_writer.h"
#include "tasks/exam/written_exam.h"

namespace magister {
namespace {

class ExamWorker final : public GeneratorShard {
 public:
  ExamWorker(ShardContext shard, const ExamSetup& setup, const ExamShape& shape)
      : GeneratorShard(std::move(shard)),
        setup_(setup),
        shape_(shape),
        objectives_(setup.objectives),
        rules_{setup.config,
               setup.prompts,
               setup.checks(),
               [&setup](const ItemForm& form) { return setup.constraints.at(form.kind).get(); },
               [&setup](std::span<const TokenId> prompt, std::span<const TokenId> tokens) {
                 return setup.text_of_tokens(prompt, tokens);
               },
               shape.numbers()} {
    start(
        setup_.config, setup_.config.sampling, setup_.config.seed,
        [this](std::uint64_t record, auto, const auto& tokens) {
          return ends_text(setup_.tokenizer, before(record), tokens, setup_.stops);
        },
        setup_.config.max_sequences);
    if (setup_.validator) load_second(setup_.validator->shard_second());
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
    open.run = std::make_unique<ObjectiveRun>(rules_, setup_.topic(record, objectives_.at(record)), prompt);
    if (objectives_[record].text.empty()) {  // the model found none
      finish(record);
      return 0;
    }
    add(open.run->begin());
    return setup_.config.items;
  }

  bool before_units() override;
  void after_units() override;

  // What stands before the text that is written for a record.
  std::vector<TokenId> before(std::uint64_t record) const {
    return record < kObjectiveRecords ? open_.at(record).before
                                      : decode_context(setup_.tokenizer, objective_writer_->prompt_of(record));
  }

  void add(std::vector<GenerationRequest> requests) {
    for (GenerationRequest& request : requests) {
      Generator& generator = second_ && is_check(request) ? *second_ : *generator_;
      generator.add(std::move(request));
    }
  }
  void add_pairs(std::vector<GenerationRequest> requests) {
    for (GenerationRequest& request : requests) (second_ ? *second_ : *generator_).add(std::move(request));
  }

  std::uint64_t take(Generation&& answer) override {
    if (answer.record >= kPairRecords) {
      add_pairs(pair_check_->take(answer));
      return 0;
    }
    if (answer.record >= kObjectiveRecords) {
      add(objective_writer_->take(answer));
      return 0;
    }
    const std::uint64_t record = answer.record;
    ObjectiveRun& run = *open_.at(record).run;
    add(run.take(std::move(answer)));
    if (!run.done()) return 0;
    fail_point("exam.objective.done");
    finish(record);
    return setup_.config.items;
  }

  void finish(std::uint64_t record) {
    const auto found = open_.find(record);
    if (writer_) submit(found->second.unit, rows_of(*found->second.run));
    open_.erase(found);
  }

  std::vector<ColumnBytes> rows_of(const ObjectiveRun& run) const;

  std::uint64_t sample_of(std::uint64_t record, std::uint64_t) const override {
    const auto found = open_.find(record);
    return found == open_.end() ? record % kObjectiveRecords : found->second.unit.samples.begin;
  }

  void before_pass() override {
    watch("write and check items");
    fail_point("exam.pass");
  }

  const ExamSetup& setup_;
  const ExamShape shape_;
  std::vector<ExamObjective> objectives_;  // by record
  const ExamRules rules_;
  std::map<std::uint64_t, Open> open_;  // by record
  std::optional<ObjectiveWriter> objective_writer_;
  std::optional<PairCheck> pair_check_;
};

// Every group writes the whole list, which costs no more time than to wait for another group, and gets the same one.
bool ExamWorker::before_units() {
  if (setup_.config.auto_objectives == 0 || base_.file.pending_units().size() == 0) return true;
  objective_writer_.emplace(setup_);
  add(objective_writer_->begin());
  if (!run_passes()) return false;
  objectives_ = objective_writer_->objectives();
  return true;
}

// The first group asks about all pairs: there are few.
void ExamWorker::after_units() {
  if (group_in_job() != 0 || !wait_for_all_units()) return;
  const WrittenExam exam = read_written_exam(base_.file, setup_, shape_, [] { return false; });
  pair_check_.emplace(exam.versions, setup_.checks(), setup_.config.limits_of_checks.duplicate,
                      setup_.config.max_prompt_length.tokens());
  add_pairs(pair_check_->begin());
  if (!run_passes() || !writer_) return;
  write_whole_file(setup_.pairs_path, pairs_as_text(pair_check_->pairs(), exam.versions));
  fail_point("exam.pairs.written");
}

std::vector<ColumnBytes> ExamWorker::rows_of(const ObjectiveRun& run) const {
  const std::uint64_t rows = shape_.rows(), numbers = shape_.numbers();
  std::vector<TokenId> ids(rows * shape_.slots, 0);
  std::vector<std::uint32_t> lengths(rows, 0), reasons(rows, 0);
  std::vector<std::uint8_t> states(rows, 0);
  std::vector<std::int32_t> bloom(rows, -1), near(rows, -1), passages(shape_.passages, -1);
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
      near[row] = version.near;
    }
  }
  const std::vector<std::size_t>& chunks = run.topic().chunks;
  for (std::size_t i = 0; i < chunks.size(); ++i) passages[i] = static_cast<std::int32_t>(chunks[i]);
  using namespace exam_column;
  std::vector<ColumnBytes> columns = {samples_column(kSlotId, ids),        samples_column(kSlotLength, lengths),
                                      samples_column(kSlotState, states),  samples_column(kSlotReasons, reasons),
                                      samples_column(kSlotBloom, bloom),   samples_column(kSlotNear, near),
                                      samples_column(kSlotNumber, values), samples_column(kPassage, passages)};
  if (shape_.writes_objectives) {
    std::vector<std::uint8_t> text(kObjectiveBytes, 0);
    std::copy(run.topic().text.begin(), run.topic().text.end(), text.begin());
    columns.push_back(samples_column(kWrittenObjective, text));
  }
  return columns;
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
  if (config.auto_objectives == 0) return;
  const ConstraintRule rule{ConstraintRule::Kind::kJsonSchema, objective_schema(), {}, "exam: objectives"};
  objective_constraint = compile_constraint(rule, tokenizer, stops.tokens, checkpoint.config().vocab_size);
  for (const SourceChunk& chunk : chunks) {
    if (chunk.text.size() > longest_chunk.size()) longest_chunk = chunk.text;
  }
}

ExamTopic ExamSetup::topic(std::uint64_t record, const ExamObjective& objective) const {
  ExamTopic topic{record, objective.number, objective.text, {}, {}};
  if (objective.passage) topic.chunks.push_back(*objective.passage);
  for (const ChunkIndex::Hit& hit : index.best(objective.text, num_passages())) {
    if (hit.chunk != objective.passage && topic.chunks.size() < num_passages()) topic.chunks.push_back(hit.chunk);
  }
  for (const std::size_t chunk : topic.chunks) topic.passages.push_back(chunks[chunk].text);
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
          .passages = config.passages,
          .writes_objectives = config.auto_objectives > 0};
}

std::vector<ExamObjective> written_objectives(const ResultsFile& running, const ExamSetup& setup) {
  std::vector<ExamObjective> objectives = setup.objectives;
  std::string text(kObjectiveBytes, '\0');
  std::vector<std::int32_t> passages(setup.config.passages);
  for (std::size_t i = 0; i < objectives.size(); ++i) {
    running.read(exam_column::kWrittenObjective.path, i, std::as_writable_bytes(std::span(text)));
    running.read(exam_column::kPassage.path, i, std::as_writable_bytes(std::span(passages)));
    const auto passage = static_cast<std::size_t>(passages[0]);
    MAGISTER_CHECK(passages[0] >= 0 && passage < setup.chunks.size(), ExitCode::kData,
                   "objective {} has the passage {} of {} (the running file is damaged); start over with --fresh", i,
                   passages[0], setup.chunks.size());
    objectives[i].text = text.substr(0, text.find('\0'));
    objectives[i].passage = passage;
  }
  return objectives;
}

std::unique_ptr<ShardWorker> make_exam_worker(ShardContext shard, const ExamSetup& setup, const ExamShape& shape) {
  return std::make_unique<ExamWorker>(std::move(shard), setup, shape);
}

}  // namespace magister
