// A reward model's opinion of the texts of GRPO: a sequence classifier with one label, beside the policy, in f32 on every rank.
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

namespace magister {

class RewardModel {
 public:
  // Opens and checks the folder at `path`; the weights are read with the first text. dataset is kept by reference: whether records are texts or
  // chats. Throws Error(kConfig) for a model with other labels than one, or without a chat template where records are chats. Local.
  RewardModel(const std::string& path, const DatasetConfig& dataset);

  // model_sha256, tokenizer_sha256 and so on, under names that begin with reward_. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  std::uint64_t weight_bytes() const { return 4 * checkpoint_.config().num_parameters(); }
  // What reward() asks for: the record's text, or its chat. Throws Error(kData) with its place.
  std::string prompt_of(const Record& record) const;
  // prompt: of prompt_of(). With the text behind it: what task `score` says of both together. Throws Error(kData) for a text that is longer
  // than the model's positions, or that it has no finite reward for; where: the record, for messages. Local.
  double reward(const std::string& prompt, const std::string& text, const std::string& where, int num_threads);

 private:
  std::vector<TokenId> tokens(const std::string& prompt, const std::string& text) const;

  const DatasetConfig& dataset_;
  Checkpoint checkpoint_;
  const Tokenizer* tokenizer_ = nullptr;
  std::optional<ChatPrompts> chat_;
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<Transformer> model_;
};

}  // namespace magister
