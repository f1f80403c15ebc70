// A reward model's opinion of texts that a policy has written: a sequence classifier with one label, beside the policy, in f32 on every rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/chat_prompts.h"
#include "magister/run/checkpoint.h"
#include "magister/run/open_model.h"
#include "magister/run/run_context.h"

namespace magister {

// What is rewarded: records with the texts behind them.
struct RewardedTexts {
  std::string task, key;  // for messages: the task's name, and where the reward stands ("grpo.reward")
  const DatasetConfig& dataset;
  std::uint64_t max_length = 0;  // tokens of prompt and text
  std::string length_place;      // file:line:column and key that says so
};

class RewardModel {
 public:
  // Opens and checks the model; the weights are read with the first text. The data set's config, whose records are texts or chats, is
  // kept by reference. Throws Error(kConfig) for a model with other labels than one, with fewer positions than texts.max_length, or without a
  // chat template where records are chats. Collective over the context's world.
  RewardModel(const ModelSection& model, const RewardedTexts& texts, const RunContext& context);

  // model_sha256, tokenizer_sha256 and so on, under names that begin with reward_. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // As TaskJob::keep_weights(), of this model.
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names) {
    names.push_back(model_.keep_weights(store, identity, "reward_"));
  }
  // Whether what the reward model's task starts from was opened in its place.
  bool stands_in() const { return stands_in_; }
  std::uint64_t weight_bytes() const { return 4 * checkpoint_.config().num_parameters(); }
  // What reward() asks for: the record's text, or its chat. Throws Error(kData) with its place.
  std::string prompt_of(const Record& record) const;
  // prompt: of prompt_of(). With the text behind it: what task `score` says of both together. A text that is
  // longer than the model's positions is cut in its prompt. Throws Error(kData) where there is no finite reward; where: the record, for
  // messages. Local.
  double reward(const std::string& prompt, const std::string& text, const std::string& where, int num_threads);

 private:
  std::vector<TokenId> tokens(const std::string& prompt, const std::string& text) const;
  void cut(std::vector<TokenId>& ids, const std::string& where);

  const DatasetConfig& dataset_;
  bool stands_in_ = false;
  Checkpoint checkpoint_;
  OpenModel model_;
  const Tokenizer* tokenizer_ = nullptr;
  std::optional<ChatPrompts> chat_;
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<Transformer> loaded_;
  bool has_cut_ = false;
};

}  // namespace magister
