// The reward of a text that a policy has written: a verifier's 1 or 0, a reward model's output, or a judge's grade.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/run_context.h"
#include "magister/run/side_model.h"
#include "magister/runtime/length_key.h"
#include "magister/runtime/stop.h"
#include "magister/tasks/judge/reward.h"
#include "magister/tasks/score/reward_model.h"
#include "magister/tasks/score/verifier_config.h"
#include "magister/text/verifier.h"

namespace magister {

struct RewardConfig {
  std::string verifier;                    // exact | math | regex: 1 or 0
  VerifierConfig rule;                     // for the verifier
  std::optional<ModelSection> model;       // instead of a verifier: a reward model
  std::optional<JudgeRewardConfig> judge;  // instead of both: a judge
  bool is_verified() const { return !model && !judge; }
  bool has_answers() const { return !rule.answer_field.empty(); }
  bool reads_fields() const { return has_answers() || judge; }  // of the records
};

// The keys of a section `reward`. applies: the task needs a reward, and a section without one is an error.
RewardConfig read_reward(ConfigNode node, bool applies, const ExperimentConfig& experiment);

// The reward model's limit on the positions of a prompt with its text; 0: no reward model. fit_judge() sets a judge's
// `auto` lengths to what its model allows.
std::uint64_t positions_of_reward(const RewardConfig& reward, const PositionsOf& of);
void fit_judge(RewardConfig& reward, const PositionsOf& of, Notes& notes);

struct TextRewards {
  std::vector<double> values;
  std::vector<Unread> unread;  // why a verifier did not compare a text; empty if not reports_unread()
};

class TextReward {
 public:
  // Keeps references to config and context. gpu: that of the policy's shard. Throws Error(kConfig) for a model that
  // cannot be used. Collective over the context's world.
  TextReward(const RewardConfig& config, const RewardedTexts& texts, const RunContext& context,
             const std::optional<gpu::Queue>& gpu = {});

  // The part of a record that rewards of its texts need: its answers, its prompt for another model, or nothing. Throws
  // Error(kData) with the record's place.
  std::vector<std::string> needed(const Record& record) const;
  RewardModel* model() const { return model_.get(); }  // null: a verifier or a judge
  // The reward model or the judge's model; null: a verifier.
  SideModel* side() const { return model_ ? &model_->side() : judge_ ? &judge_->side() : nullptr; }
  bool is_placeholder() const { return side() != nullptr && side()->is_placeholder(); }
  // Attributes that the reward's model adds to the identity (collective over world), and its memory, itemised. Both are
  // empty for a verifier.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  MemoryParts memory(int tp_size) const;
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names) {
    if (side() != nullptr) side()->keep_weights(store, identity, names);
  }
  // For a judge: throws Error(kConfig) for a field that no record has. Reads some records. Local.
  void check_fields(const Dataset& dataset) const;
  // Finite rewards of texts of one record. needed: needed() of the record; where: the record, for messages. The first
  // call loads the reward model or the judge. Not for a reward model on GPUs, which the group's Rewarder computes.
  // heartbeat: see Rewarder. Local, one thread at a time.
  TextRewards rewards(const std::vector<std::string>& needed, const std::vector<WrittenText>& texts,
                      const std::string& where, int num_threads, const std::function<void()>& heartbeat = {});
  bool reports_unread() const { return verifier_ && verifier_->reports_unread(); }

 private:
  const RewardConfig& config_;
  std::optional<Verifier> verifier_;
  std::unique_ptr<RewardModel> model_;
  std::unique_ptr<JudgeReward> judge_;
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<Rewarder> alone_;
};

}  // namespace magister
