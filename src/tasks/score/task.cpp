// Task score: the logits of a sequence classifier or a reward model for each record, one number per label. verify.cpp
// has the scores by a rule.
// Source: transformers' *ForSequenceClassification (GenericForSequenceClassification): the head reads the last token
// that is not padding.
#include "magister/run/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/length_key.h"
#include "tasks/score/answers.h"
#include "tasks/score/columns.h"
#include "tasks/score/config.h"
#include "tasks/score/verify.h"
#include "tasks/score/worker.h"

namespace magister {
namespace {

class ScoreJob final : public TaskJob {
 public:
  ScoreJob(const ScoreConfig& config, const TaskInputs& inputs);

  Awaited awaited() const override { return {.results = answers_ && !answers_->exist()}; }
  void open_results() override {
    if (answers_) answers_->open();
  }
  Attributes identity() override;
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    return make_score_worker(std::move(shard), config_, [this](const Unit& unit) { return of_answers(unit); });
  }

 private:
  void keep_added(SampleRules& rules) const;
  std::vector<SampleTokens> encode(const Record& record) const;
  std::vector<ColumnBytes> of_answers(const Unit& unit) const;
  void refuse_types(const std::vector<TokenId>& ids, const std::string& where) const;

  const ScoreConfig& config_;
  const Dataset& dataset_;
  const ModelConfig& model_;
  const Tokenizer* tokenizer_ = nullptr;  // null: the data set gives ids
  std::optional<ChatPrompts> chat_;       // set if the records hold chats
  std::optional<ScoredAnswers> answers_;  // texts of a generate task, which follow the prompts of the records
  bool cuts_begins_ = false;
};

ScoreJob::ScoreJob(const ScoreConfig& config, const TaskInputs& inputs)
    : config_(config), dataset_(inputs.dataset), model_(inputs.checkpoint.config()) {
  const std::uint64_t positions = positions_of(model_).whole;
  MAGISTER_CHECK(positions == 0 || config_.max_length.tokens() <= positions, ExitCode::kConfig,
                 "{} is {}, but the model was made for {} positions (scores of longer texts would be meaningless); "
                 "choose at most {}",
                 config_.length_place, config_.max_length.tokens(), positions, positions);
  MAGISTER_CHECK(config_.function != ScoreFunction::kSoftmax || model_.labels.size() > 1, ExitCode::kConfig,
                 "{} is softmax, but the model has one label (every score would be 1); choose none or sigmoid",
                 config_.function_place);
  MAGISTER_CHECK(config_.model.quantization_loss == 0, ExitCode::kConfig,
                 "{}: model.quantization_loss compares distributions over a vocabulary (this model gives {} numbers); "
                 "remove it, and compare the scores of two runs",
                 config_.name, model_.labels.size());
  MAGISTER_CHECK(config_.answers.empty() || config_.dataset.tokens_field.empty(), ExitCode::kConfig,
                 "{}: dataset.tokens gives ids (the texts of {} follow prompts that are texts or chats); name the "
                 "field of the prompts' text",
                 config_.name, printable(config_.answers));
  if (config_.dataset.tokens_field.empty()) {
    tokenizer_ = &inputs.checkpoint.tokenizer();
    cuts_begins_ = inputs.checkpoint.cuts_begins();
  }
  if (!config_.dataset.messages_field.empty()) chat_.emplace(inputs.checkpoint, config_.dataset);
  if (!config_.answers.empty()) answers_.emplace(config_, inputs);
}

Attributes ScoreJob::identity() {
  Attributes attributes = {{"labels", nlohmann::json(model_.labels).dump()}};
  if (cuts_begins_) attributes.push_back({"truncation_side", "left"});
  if (answers_) {
    for (auto& attribute : answers_->identity()) attributes.push_back(std::move(attribute));
  }
  return attributes;
}

TaskResults ScoreJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns = score_columns(plan.num_samples, plan.num_tokens, plan.key_bytes, model_.labels.size());
  if (answers_) {
    for (ColumnSpec& column : answers_->specs(plan.num_samples)) results.columns.push_back(std::move(column));
  }
  results.default_plot_column = score_column::kValue.path;
  results.notes = {{"labels", fmt::format("{}", fmt::join(model_.labels, ", "))}};
  return results;
}

// The head reads the last token. So if a text is cut, the tokens that the tokenizer adds around it are kept, as in the
// truncation of transformers.
void ScoreJob::keep_added(SampleRules& rules) const {
  rules.cuts_begins = cuts_begins_;
  if (tokenizer_ == nullptr || chat_) return;
  const AddedEnds ends = added_ends(*tokenizer_);
  rules.kept_head = static_cast<std::uint32_t>(ends.before.size());
  rules.kept_tail = ends.after.size();
  const std::uint64_t added = rules.kept_tail + (cuts_begins_ ? rules.kept_head : 0);
  MAGISTER_CHECK(
      config_.max_length.tokens() > added, ExitCode::kConfig,
      "{} is {}, and the tokenizer adds {} tokens {} every text (nothing of the text would be left); raise it",
      config_.length_place, config_.max_length.tokens(), added, cuts_begins_ ? "to" : "behind");
}

// The second text of a pair has tokens of type 1, and this task gives all tokens type 0.
void ScoreJob::refuse_types(const std::vector<TokenId>& ids, const std::string& where) const {
  if (!model_.encoder || model_.encoder->token_types < 2 || ids.empty()) return;
  MAGISTER_CHECK(std::count(ids.begin(), ids.end(), ids.back()) == 1, ExitCode::kData,
                 "{}: its last token, {}, is inside, too, as between the texts of a pair (this model's tokens have "
                 "types, and all would get the first: the score would not be the model's); score pairs with a model "
                 "without types, such as DistilBERT or DeBERTa-v3",
                 where, ids.back());
}

SampleRules ScoreJob::rules() {
  SampleRules rules;
  keep_added(rules);
  rules.max_length = config_.max_length.tokens();
  rules.overflow = config_.overflow;
  rules.unit_tokens = config_.unit_tokens;
  rules.vocab_size = model_.vocab_size;
  rules.tokenizer = tokenizer_;
  rules.min_length = 1;
  if (chat_ || answers_) rules.shown_as = "text";
  if (answers_) rules.group_samples = answers_->texts_a_record();
  if (chat_ || answers_) rules.encode = [this](const Record& record) { return encode(record); };
  return rules;
}

// The samples of a record: its chat, or its prompt with each generated text, encoded as one text.
std::vector<SampleTokens> ScoreJob::encode(const Record& record) const {
  std::vector<SampleTokens> samples;
  const auto add = [&](std::vector<TokenId> ids) {
    if (chat_) refuse_types(ids, record.where);
    samples.push_back({std::move(ids)});
  };
  if (!answers_) {
    add(chat_->encode(ChatPrompts::chat_of(record, config_.dataset), false, record.where));
    return samples;
  }
  for (const WrittenText& answer : answers_->written(record)) {
    add(chat_ ? chat_->encode_answered(ChatPrompts::chat_of(record, config_.dataset), answer.text, record.where)
              : encode_written(*tokenizer_, prompt_text(record, config_.dataset), answer, answers_->tokenizer()));
  }
  return samples;
}

std::vector<ColumnBytes> ScoreJob::of_answers(const Unit& unit) const {
  std::vector<ColumnBytes> columns;
  if (!answers_) return columns;
  ScoredAnswers::Columns found;
  for_records_of(unit, answers_->texts_a_record(), dataset_,
                 [&](const Record& record, IndexRange texts) { answers_->add(record, texts, found); });
  answers_->append(found, columns);
  return columns;
}

class Score final : public Task {
 public:
  explicit Score(ScoreConfig config)
      : Task("score", config.name, config.model, config.dataset,
             {.head = TaskTraits::Head::kLabels, .needs = {config.answers}}),
        config_(std::move(config)) {}

  Notes fit_lengths(const Positions& own, const PositionsOf&) override {
    Notes notes;
    fit_length(config_.max_length, own.whole, notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits&) const override {
    if (config_.verifier) return {};
    return {.tokens = config_.unit_tokens, .row_bytes = config_.unit_tokens * sizeof(float)};
  }
  RecordTexts record_texts(const RunContext& context) const override {
    RecordTexts own{1, !config_.verifier, config_.verifier && Verifier(config_.verifier->rule.options).extracts()};
    if (config_.answers.empty()) return own;
    const auto maker = std::find_if(context.earlier_tasks.begin(), context.earlier_tasks.end(),
                                    [&](const Task* task) { return task->name() == config_.answers; });
    own.texts = maker == context.earlier_tasks.end() ? 0 : (*maker)->record_texts(context).texts;
    return own;
  }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    if (config_.verifier) return make_verifier_job(config_, inputs);
    return std::make_unique<ScoreJob>(config_, inputs);
  }

 private:
  ScoreConfig config_;
};

}  // namespace

TaskKind score_task() { return {.name = "score", .read = read_as<Score, read_score_config>, .schema = &kScoreSchema}; }

}  // namespace magister
