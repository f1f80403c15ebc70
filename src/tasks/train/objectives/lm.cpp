// `lm`: learns all tokens of records, which are texts, chats or ids; of chats, if asked, only the tokens of the
// assistant.
#include <cmath>
#include <optional>
#include <utility>

#include "magister/core/error.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/end_tokens.h"
#include "tasks/train/columns.h"
#include "tasks/train/objective.h"
#include "tasks/train/open_objective.h"

namespace magister {
namespace {

class OpenLm final : public OpenObjective {
 public:
  // config.dataset decides the kind of the records. The tokenizer, template and end tokens that are needed become part
  // of the checkpoint's identity. Throws Error(kConfig) if an end token must be appended and the model names none.
  OpenLm(const TrainConfig& config, const TaskInputs& inputs);

  Attributes identity() override { return {}; }
  LearntEnds ends() const override { return {.chats = chat_.has_value(), .appended = eos_}; }
  void add_rules(SampleRules& rules) override {
    rules.tokenizer = tokenizer_;
    // Otherwise the tokens of a text are all there is, and no encoder is needed.
    if (chat_ || eos_ >= 0)
      rules.encode = [this](const Record& record) { return std::vector{encode(record, config_.dataset)}; };
    if (chat_) rules.shown_as = "chat";
  }
  HeldOutSource held_out(const Dataset& records, const DatasetConfig& dataset) override {
    return {records, [this, &dataset](const Record& record) { return std::vector{encode(record, dataset)}; }};
  }

 private:
  // dataset: names the fields of the records to learn or of the held-out records; both are of the same kind. Throws
  // Error(kData) with the place of the record.
  SampleTokens encode(const Record& record, const DatasetConfig& dataset) const;

  const Tokenizer* tokenizer_ = nullptr;  // null: the data set gives ids
  std::optional<ChatPrompts> chat_;
  TokenId eos_ = -1;  // end token of texts; -1: none is appended
};

OpenLm::OpenLm(const TrainConfig& config, const TaskInputs& inputs) : OpenObjective(config, inputs) {
  if (!config_.dataset.tokens_field.empty()) return;
  tokenizer_ = &checkpoint_.tokenizer();
  if (!config_.dataset.messages_field.empty()) {
    chat_.emplace(checkpoint_, config_.dataset);
    checkpoint_.end_tokens();  // they decide the end tokens of the student
  } else if (config_.append_eos) {
    eos_ = text_end_token(checkpoint_);
    MAGISTER_CHECK(eos_ >= 0, ExitCode::kConfig,
                   "{}: train.append_eos is true, but the model names no end token (nothing says where texts end); set "
                   "it to false",
                   config_.name);
  }
}

SampleTokens OpenLm::encode(const Record& record, const DatasetConfig& dataset) const {
  if (tokenizer_ == nullptr) return {record.tokens};
  if (!chat_) {
    std::vector<TokenId> ids;
    tokenizer_->encode(record.text, EncodeOptions{}, ids);
    if (eos_ >= 0 && (ids.empty() || ids.back() != eos_)) ids.push_back(eos_);
    return {std::move(ids)};
  }
  const ChatPrompts::Chat chat = ChatPrompts::chat_of(record, dataset);
  if (!config_.assistant_only) return {chat_->encode(chat, false, record.where)};
  return chat_->encode_marked(chat, record.where, false);
}

constexpr CurveColumn kHeldOutTokens[] = {kHeldOutLossCurve,
                                          {train_column::kHeldOutPerplexity, [](const float* numbers) {
                                             return static_cast<float>(std::exp(static_cast<double>(numbers[0])));
                                           }}};

// A loss may be not finite; then its perplexity is not finite, either.
void check_perplexity(const ResultsReader& file, std::uint64_t first, std::uint64_t count, FaultList& faults) {
  const auto loss = file.rows(train_column::kHeldOutLoss, first, count);
  const auto perplexity = file.rows(train_column::kHeldOutPerplexity, first, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const double expected = std::exp(static_cast<double>(loss[i]));
    if (std::isfinite(loss[i]) && std::abs(perplexity[i] / expected - 1) > 1e-5 && expected < 1e38)
      faults.add("the perplexity of evaluation {} is {}, and its loss {}", first + i, perplexity[i], loss[i]);
  }
}

}  // namespace

constinit const CurveSet kHeldOutTokenCurves = {
    .width = 1,
    .columns = kHeldOutTokens,
    .check = check_perplexity,
    .describe_held_out = [](const Evaluation& found, std::uint64_t num_labels, nlohmann::ordered_json&) {
      return fmt::format(" of {} tokens, perplexity {:.2f}", num_labels, std::exp(found.loss));
    }};

constinit const Objective kLmObjective = {
    .kind = ObjectiveKind::kLm,
    .name = "lm",
    .default_lr = 5e-5,
    .marks = [](const TrainConfig& config) -> const char* {
      return config.assistant_only ? "1: written by the assistant of the chat, and learnt" : nullptr;
    },
    .open = open_as<OpenLm>};

}  // namespace magister
