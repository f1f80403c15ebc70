// See reward_model.h.
#include "tasks/train/reward_model.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cmath>

#include "magister/core/error.h"
#include "magister/run/classifier_logits.h"
#include "tasks/train/rewards.h"

namespace magister {
namespace {

constexpr const char* kMessages = "messages";
constexpr const char* kTools = "tools";

ModelSection section_of(const std::string& path) {
  ModelSection section;
  section.path = path;
  section.dtype = "f32";
  return section;
}

ChatPrompts::Chat stored_chat(const std::string& text) {
  const auto both = nlohmann::ordered_json::parse(text);
  return {both[kMessages], both[kTools]};
}

}  // namespace

std::string RewardModel::prompt_of(const Record& record) const {
  if (!chat_) return prompt_text(record, dataset_);
  const ChatPrompts::Chat chat = ChatPrompts::chat_of(record, dataset_);
  return nlohmann::ordered_json{{kMessages, chat.messages}, {kTools, chat.tools}}.dump();
}

RewardModel::RewardModel(const std::string& path, const DatasetConfig& dataset)
    : dataset_(dataset), checkpoint_(section_of(path)) {
  MAGISTER_CHECK(checkpoint_.config().labels.size() == 1, ExitCode::kConfig,
                 "grpo.reward.model: {} has {} labels (a reward is one number); name a reward model "
                 "(...ForSequenceClassification with one label)",
                 printable(path, 4096), checkpoint_.config().labels.size());
  tokenizer_ = &checkpoint_.tokenizer();
  if (!dataset.messages_field.empty()) chat_.emplace(checkpoint_, dataset);
}

Attributes RewardModel::identity(const Communicator& world, const StopPoll& poll) const {
  Attributes attributes;
  for (const auto& [name, value] : checkpoint_.identity(world, poll)) attributes.emplace_back("reward_" + name, value);
  return attributes;
}

std::vector<TokenId> RewardModel::tokens(const std::string& prompt, const std::string& text) const {
  std::vector<TokenId> ids;
  if (!chat_) {
    tokenizer_->encode(prompt + text, EncodeOptions{}, ids);
    return ids;
  }
  ChatPrompts::Chat chat = stored_chat(prompt);
  chat.messages.push_back({{"role", "assistant"}, {"content", text}});
  return chat_->encode(chat, false, "a text of the model");
}

double RewardModel::reward(const std::string& prompt, const std::string& text, const std::string& where,
                           int num_threads) {
  const c10::InferenceMode no_gradients;
  if (!model_) {
    group_ = make_single_process_group();
    pool_ = std::make_unique<ThreadPool>(num_threads);
    model_.emplace(checkpoint_.description(), checkpoint_.file(), *group_, *pool_, at::kFloat);
    model_->self_test();
  }
  const std::vector<TokenId> ids = tokens(prompt, text);
  const std::int64_t most = checkpoint_.config().max_position_embeddings;
  MAGISTER_CHECK(!ids.empty() && (most <= 0 || static_cast<std::int64_t>(ids.size()) <= most), ExitCode::kData,
                 "{}: a text and its prompt have {} tokens of the reward model {}, which was made for 1 to {} (nothing "
                 "says what it "
                 "is worth); lower grpo.max_new_tokens, or name another reward model",
                 where, ids.size(), printable(checkpoint_.path(), 4096), most);
  const double reward = classifier_logits(*model_, {ids})[0][0].item<double>();
  MAGISTER_CHECK(
      std::isfinite(reward), ExitCode::kData,
      "{}: the reward model's number for a text is {} (no advantage can be told from it); look at the weights of {}",
      where, reward, printable(checkpoint_.path(), 4096));
  return reward;
}

}  // namespace magister
