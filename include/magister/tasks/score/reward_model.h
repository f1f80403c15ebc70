// A reward model's opinion of texts that a policy has written: a sequence classifier with one label, beside the policy, in f32: on its GPUs, divided
// over them as it is, or on the CPU of every rank that asks.
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

// What is rewarded: records with the texts behind them.
struct RewardedTexts {
  std::string task, key;  // for messages: the task's name, and where the reward stands ("grpo.reward")
  const DatasetConfig& dataset;
  std::uint64_t max_length = 0;  // tokens of prompt and text
  std::string length_place;      // file:line:column and key that says so
  TokenizerIdentity tokenizer;   // of the model that writes them
};

class RewardModel {
 public:
  // Opens and checks the model. gpu: of the policy's shard; a model that GPUs do not compute (an encoder) stands on the CPU all the same.
  // The data set's config, whose records are texts or chats, is kept by reference. Throws Error(kConfig) for a model with other labels than
  // one, with fewer positions than texts.max_length, or without a chat template where records are chats. Collective over the context's
  // world.
  RewardModel(const ModelSection& model, const RewardedTexts& texts, const RunContext& context,
              const std::optional<gpu::Queue>& gpu = {});

  // Its names begin with reward_.
  SideModel& side() { return model_; }
  // Whether all shards of a group compute it together, where they have the policy; else each CPU that asks does, alone.
  bool is_on_gpus() const { return model_.model().gpu.has_value(); }
  // Memory of a device that also holds the policy, itemised.
  MemoryParts memory(int tp_size) const;
  // What Rewarder asks for: the record's text, or its chat. Throws Error(kData) with its place.
  std::string prompt_of(const Record& record) const;

 private:
  friend class Rewarder;
  // prompt: of prompt_of(). Cut in its prompt where prompt and text are longer than the model's positions. Throws Error(kData) where there is
  // no token; where: the record.
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

// The reward model by its keys alone, as it stands beside a policy on GPUs.
SecondModel reward_model_of(const ModelSection& model, std::uint64_t max_length);

// A reward model that is loaded.
class Rewarder {
 public:
  // model, group and pool are kept by reference. Collective over the group, which is alone for a model that is not on GPUs.
  Rewarder(const RewardModel& model, ProcessGroup& group, ThreadPool& pool, const LoadHook& hook = {});

  // Of each text behind the prompt (RewardModel::prompt_of): what task `score` says of both together. Throws Error(kData) where one is
  // not finite; where: the record, for messages; heartbeat: called before every pass. Collective over the group.
  std::vector<double> rewards(const std::string& prompt, const std::vector<WrittenText>& texts,
                              const std::string& where, const std::function<void()>& heartbeat = {});

 private:
  const RewardModel& source_;
  Transformer model_;
  SequencePasses passes_;
};

}  // namespace magister
