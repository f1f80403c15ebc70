#include "magister/tasks/rollout/text_reward.h"

#include "magister/core/error.h"
#include "magister/runtime/chat_prompts.h"

namespace magister {
namespace {

// The model is a folder, or the result of an earlier task with objective reward.
void read_reward_model(ConfigNode& node, const ExperimentConfig& experiment, RewardConfig& reward) {
  ConfigNode alone = node.only_if(reward.verifier.empty(),
                                  "is given together with a verifier (a text has one reward); remove one of them");
  std::optional<ConfigNode> section = alone.optional_section("model");
  if (!section) return;
  reward.model = read_reward_model(*section, experiment);
}

void read_judge(ConfigNode& node, const ExperimentConfig& experiment, RewardConfig& reward) {
  ConfigNode alone =
      node.only_if(reward.verifier.empty() && !reward.model,
                   "is given together with a verifier or a model (a text has one reward); remove one of them");
  if (std::optional<ConfigNode> judge = alone.optional_section("judge"))
    reward.judge = read_judge_reward(*judge, experiment);
}

}  // namespace

RewardConfig read_reward(ConfigNode node, bool applies, const ExperimentConfig& experiment) {
  RewardConfig reward;
  const std::string verifier = node.choice("verifier", {"none", "exact", "math", "regex"}, "none");
  reward.verifier = verifier == "none" ? "" : verifier;
  reward.rule = read_verifier_config(node, verifier);
  read_reward_model(node, experiment, reward);
  read_judge(node, experiment, reward);
  if (applies && reward.verifier.empty() && !reward.model && !node.has("judge"))
    node.reject("",
                "no reward (nothing says which texts are better); name a verifier - exact, math or regex -, a model or "
                "a judge");
  node.also_called("model", {"reward_model", "reward_model_path"});
  return reward;
}

std::uint64_t positions_of_reward(const RewardConfig& reward, const PositionsOf& of) {
  return reward.model ? of(*reward.model).whole : 0;
}

void fit_judge(RewardConfig& reward, const PositionsOf& of, Notes& notes) {
  if (!reward.judge || both_written(reward.judge->max_prompt_length, reward.judge->max_new_tokens)) return;
  Notes own;
  fit_lengths(reward.judge->max_prompt_length, reward.judge->max_new_tokens, of(reward.judge->model).cached, own);
  for (auto& [key, words] : own) notes.emplace_back("the judge's " + key, std::move(words));
}

TextReward::TextReward(const RewardConfig& config, const RewardedTexts& texts, const RunContext& context,
                       const std::optional<gpu::Queue>& gpu)
    : config_(config) {
  if (config_.model) {
    model_ = std::make_unique<RewardModel>(*config_.model, texts, context, gpu);
  } else if (config_.judge) {
    judge_ = std::make_unique<JudgeReward>(*config_.judge, context);
  } else {
    verifier_.emplace(config_.rule.options);
  }
}

Attributes TextReward::identity(const Communicator& world, const StopPoll& poll) const {
  return model_ ? side()->identity(world, poll) : judge_ ? judge_->identity(world, poll) : Attributes();
}

MemoryParts TextReward::memory(int tp_size) const {
  return model_ ? model_->memory(tp_size) : judge_ ? judge_->memory() : MemoryParts();
}

void TextReward::check_fields(const Dataset& dataset) const {
  if (judge_) judge_->check_fields(dataset);
}

std::vector<std::string> TextReward::needed(const Record& record) const {
  if (model_) return {model_->prompt_of(record)};
  if (judge_) return {judge_->needed(record)};
  return right_answers(record, config_.rule.answer_field);
}

TextRewards TextReward::rewards(const std::vector<std::string>& needed, const std::vector<WrittenText>& texts,
                                const std::string& where, int num_threads, const std::function<void()>& heartbeat) {
  if (model_) {
    if (!alone_) {
      group_ = make_single_process_group();
      pool_ = std::make_unique<ThreadPool>(num_threads);
      alone_.emplace(*model_, *group_, *pool_);
    }
    return {alone_->rewards(needed.at(0), texts, where, heartbeat), {}};
  }
  if (judge_) {
    std::vector<std::string> answers;
    for (const WrittenText& text : texts) answers.push_back(text.text);
    return {judge_->grades(needed.at(0), answers, where, num_threads, heartbeat), {}};
  }
  TextRewards rewards;
  for (const WrittenText& text : texts) {
    const Judged judged = verified(*verifier_, text.text, needed);
    rewards.values.push_back(judged.score);
    if (verifier_->reports_unread()) rewards.unread.push_back(judged.unread);
  }
  return rewards;
}

}  // namespace magister
