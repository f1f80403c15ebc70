// Task teacher_logits: data set -> tokens -> units -> hidden states -> reduced logits -> rows of one results file.
// columns.h and worker.h have the columns and the computation.
#include "magister/run/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "magister/core/error.h"
#include "magister/runtime/added_ends.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/length_key.h"
#include "tasks/teacher_logits/columns.h"
#include "tasks/teacher_logits/config.h"
#include "tasks/teacher_logits/export_padded.h"
#include "tasks/teacher_logits/worker.h"

namespace magister {
namespace {

class TeacherJob final : public TaskJob {
 public:
  TeacherJob(const TeacherLogitsConfig& config, const TaskInputs& inputs);

  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  // The size of the vocabulary, which a student must match, and the encoding of the rows.
  Attributes identity() override {
    Attributes all = {{"vocab_size", static_cast<std::uint64_t>(model_.vocab_size)}};
    const Attributes stored = encoding().attributes();
    all.insert(all.end(), stored.begin(), stored.end());
    const auto& [before, after] = window_ends_;  // windows of an earlier version had no such tokens
    if (!before.empty() || !after.empty())
      all.emplace_back("window_tokens", fmt::format("{} text {}", fmt::join(before, " "), fmt::join(after, " ")));
    return all;
  }
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    return make_teacher_worker(std::move(shard), config_, encoding());
  }

 private:
  std::vector<SampleTokens> encode_chat(const Record& record) const;
  void check_turns(const SamplePlan& plan) const;
  TeacherEncoding encoding() const {
    return {
        config_.encoding, config_.top_k, config_.tail_draws,
        config_.encoding == TeacherEncoding::Kind::kPlain ? 0 : id_bits(static_cast<std::uint64_t>(model_.vocab_size))};
  }

  const TeacherLogitsConfig& config_;
  const ModelConfig& model_;
  const Tokenizer* tokenizer_ = nullptr;  // null: the data set gives ids
  std::optional<ChatPrompts> chat_;       // set if the records hold chats
  AddedEnds window_ends_;                 // tokens around each window of a text; a chat template adds its own
};

TeacherJob::TeacherJob(const TeacherLogitsConfig& config, const TaskInputs& inputs)
    : config_(config), model_(inputs.checkpoint.config()) {
  MAGISTER_CHECK(config_.top_k <= static_cast<std::uint64_t>(model_.vocab_size), ExitCode::kConfig,
                 "{} is {}, but the vocabulary has {} entries (no more can be kept); choose 1 to {}",
                 config_.top_k_place, config_.top_k, model_.vocab_size, model_.vocab_size);
  const std::uint64_t positions = positions_of(model_).whole;
  MAGISTER_CHECK(positions == 0 || config_.max_length.tokens() <= positions, ExitCode::kConfig,
                 "{} is {}, but the model was made for {} positions (rows beyond them would be "
                 "meaningless); choose at most {}",
                 config_.length_place, config_.max_length.tokens(), positions, positions);
  MAGISTER_CHECK(config_.stride <= config_.max_length.tokens(), ExitCode::kConfig,
                 "{} is {}, and max_length {}, as the model has positions (tokens between two windows would be lost); "
                 "choose at most that",
                 config_.stride_place, config_.stride, config_.max_length.tokens());
  MAGISTER_CHECK(config_.encoding != TeacherEncoding::Kind::kSampled ||
                     config_.top_k < static_cast<std::uint64_t>(model_.vocab_size),
                 ExitCode::kConfig,
                 "{} is {}, all of the vocabulary (no token is left to be drawn); choose fewer, or `encoding: compact`",
                 config_.top_k_place, config_.top_k);
  if (config_.dataset.tokens_field.empty()) tokenizer_ = &inputs.checkpoint.tokenizer();
  if (!config_.dataset.messages_field.empty()) chat_.emplace(inputs.checkpoint, config_.dataset);
  if (config_.overflow != Overflow::kWindow || tokenizer_ == nullptr || chat_) return;
  window_ends_ = added_ends(*tokenizer_);
  const std::size_t added = window_ends_.before.size() + window_ends_.after.size();
  MAGISTER_CHECK(
      config_.max_length.tokens() > added, ExitCode::kConfig,
      "{} is {}, and the tokenizer adds {} tokens to every window (nothing of the text would be left); raise it",
      config_.length_place, config_.max_length.tokens(), added);
}

std::vector<SampleTokens> TeacherJob::encode_chat(const Record& record) const {
  const ChatPrompts::Chat chat = ChatPrompts::chat_of(record, config_.dataset);
  if (!config_.assistant_only) return {chat_->encode(chat, false, record.where)};
  return {chat_->encode_marked(chat, record.where, true)};
}

void TeacherJob::check_turns(const SamplePlan& plan) const {
  MAGISTER_CHECK(plan.num_turns_left_out == 0 || plan.num_items > 0, ExitCode::kData,
                 "{}: the chat template writes none of the {} turns of the assistant as the model would write them "
                 "(`score: assistant` would score nothing); use `score: all`, or name a template with generation "
                 "blocks with model.chat_template",
                 config_.name, plan.num_turns_left_out);
}

SampleRules TeacherJob::rules() {
  SampleRules rules;
  rules.max_length = config_.max_length.tokens();
  rules.stride = config_.stride == 0 ? config_.max_length.tokens() : config_.stride;
  rules.overflow = config_.overflow;
  rules.unit_tokens = config_.unit_tokens;
  rules.vocab_size = model_.vocab_size;
  rules.tokenizer = tokenizer_;
  rules.window_ends = window_ends_;
  rules.check = [this](const SamplePlan& plan) { check_turns(plan); };
  if (chat_) {
    rules.shown_as = "chat";
    rules.marks_assistant = config_.assistant_only;
    if (config_.assistant_only)
      rules.takes_part = [](std::span<const TokenId>, std::span<const std::uint8_t> assistant) {
        return !assistant.empty() && std::find(assistant.begin() + 1, assistant.end(), 1) != assistant.end();
      };
    rules.encode = [this](const Record& record) { return encode_chat(record); };
  }
  return rules;
}

TaskResults TeacherJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns = teacher_columns(
      {plan.num_samples, plan.num_tokens, plan.key_bytes, encoding(), config_.logprob_f16, config_.assistant_only});
  results.default_plot_column = teacher_column::kEntropy.path;
  results.made_smaller_by = "top_k";
  return results;
}

class TeacherLogits final : public Task {
 public:
  explicit TeacherLogits(TeacherLogitsConfig config)
      : Task("teacher_logits", config.name, config.model, config.dataset,
             {.announced = {{"encoding", std::string(encoding_name(config.encoding))}}}),
        config_(std::move(config)) {}

  Notes fit_lengths(const Positions& own, const PositionsOf&) override {
    Notes notes;
    fit_length(config_.max_length, own.whole, notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits&) const override {
    return {.tokens = config_.unit_tokens, .row_bytes = config_.unit_tokens * (config_.top_k + 20) * 8 * 2};
  }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<TeacherJob>(config_, inputs);
  }

 private:
  TeacherLogitsConfig config_;
};

constexpr ExportFormat kTeacherFormats[] = {{"padded-hdf5", false, export_padded}};

}  // namespace

TaskKind teacher_logits_task() {
  return {.name = "teacher_logits",
          .read = read_as<TeacherLogits, read_teacher_logits_config>,
          .schema = &kTeacherLogitsSchema,
          .draws = true,
          .exports = kTeacherFormats};
}

}  // namespace magister
