// Rewards of generated texts by a reward model, a sequence classifier with one label in f32. It is in memory together
// with the policy: divided over the policy's GPUs in the same way, whole on each of them if it is an encoder, or on the
// CPU of every rank that needs it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/run_context.h"
#include "magister/run/side_model.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/memory_plan.h"
#include "magister/runtime/sequence_passes.h"
#include "magister/runtime/stop.h"
#include "magister/runtime/written_text.h"

namespace magister {

// The texts to reward, which follow the prompts of records.
struct RewardedTexts {
  std::string task, key;  // for messages: the name of the task, and the place of the reward ("grpo.reward")
  const DatasetConfig& dataset;
  std::uint64_t max_length = 0;  // tokens of prompt and text together
  std::string length_place;      // file:line:column and key that sets max_length
  TokenizerIdentity tokenizer;   // of the model that generates them
};

class RewardModel {
 public:
  // Opens and checks the model. gpu: that of the policy's shard; a model that GPUs do not support (missing_on_gpus) is
  // on the CPU even so. texts.dataset, whose records are texts or chats, is kept by reference. Throws Error(kConfig)
  // for a model that has not exactly one label, that has fewer positions than texts.max_length, or that has no chat
  // template although records are chats. Collective over the world of the context.
  RewardModel(const ModelSection& model, const RewardedTexts& texts, const RunContext& context,
              const std::optional<gpu::Queue>& gpu = {});

  // The model; the names of its attributes begin with reward_.
  SideModel& side() { return model_; }
  // True: all shards of a group compute it together, on the GPUs of the policy; an encoder each of them alone. False:
  // each rank that needs it computes it alone on its CPU.
  bool is_on_gpus() const { return model_.model().gpu.has_value(); }
  // Memory of a device that also holds the policy, itemised.
  MemoryParts memory(int tp_size) const;
  // The prompt for Rewarder::rewards(): the record's text or its chat. Throws Error(kData) with the place of the
  // record.
  std::string prompt_of(const Record& record) const;

 private:
  friend class Rewarder;
  // prompt: from prompt_of(). Tokens of the prompt are removed if prompt and text have more tokens than the model has
  // positions. Throws Error(kData) if there is no token; where: the record.
  std::vector<TokenId> tokens(const std::string& prompt, const WrittenText& text, const std::string& where) const;
  void cut(std::vector<TokenId>& ids, const std::string& where) const;

  const DatasetConfig& dataset_;
  TokenizerIdentity writer_tokenizer_;
  std::uint64_t max_length_;
  SideModel model_;
  const Tokenizer* tokenizer_ = nullptr;
  std::optional<ChatPrompts> chat_;
  mutable std::atomic<bool> has_cut_ = false;
};

// The reward model as its keys alone describe it, in memory together with a policy on GPUs.
SecondModel reward_model_of(const ModelSection& model, std::uint64_t max_length);

// A loaded reward model.
class Rewarder {
 public:
  // model, group and pool are kept by reference. A model that is not on GPUs needs a group of one shard. An encoder is
  // loaded whole by every shard, which gives each of them the same bits. Collective over the group.
  Rewarder(const RewardModel& model, ProcessGroup& group, ThreadPool& pool, const LoadHook& hook = {});

  // The score of the prompt (RewardModel::prompt_of) with each text, as task `score` computes it. Throws Error(kData)
  // if a score is not finite; where: the record, for messages. heartbeat: called before every pass. Collective over the
  // group.
  std::vector<double> rewards(const std::string& prompt, const std::vector<WrittenText>& texts,
                              const std::string& where, const std::function<void()>& heartbeat = {});

 private:
  const RewardModel& source_;
  std::unique_ptr<ProcessGroup> alone_;  // the group of an encoder
  Transformer model_;
  SequencePasses passes_;
};

}  // namespace magister
