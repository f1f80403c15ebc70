// What a text that a policy has written is worth: a verifier's 1 or 0, a reward model's number, or a judge's grade.
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
  VerifierConfig rule;                     // of the verifier
  std::optional<ModelSection> model;       // instead: a reward model
  std::optional<JudgeRewardConfig> judge;  // instead: a judge
  bool is_verified() const { return !model && !judge; }
  bool has_answers() const { return !rule.answer_field.empty(); }
  bool reads_fields() const { return has_answers() || judge; }  // of the records
};

// The keys of a section `reward`. applies: without a reward it is a fault.
RewardConfig read_reward(ConfigNode node, bool applies, const ExperimentConfig& experiment);

// Positions for a prompt with a text, of a reward model; 0: none. A judge's own lengths become what its model allows.
std::uint64_t positions_of_reward(const RewardConfig& reward, const PositionsOf& of);
void fit_judge(RewardConfig& reward, const PositionsOf& of, Notes& notes);

struct TextRewards {
  std::vector<double> values;
  std::vector<Unread> unread;  // why a verifier did not compare them; empty: it is no such verifier (tells_unread())
};

class TextReward {
 public:
  // All is kept by reference but for the names. Throws Error(kConfig) for a model that cannot be used. Collective over the
  // context's world.
  // gpu: of the policy's shard.
  TextReward(const RewardConfig& config, const RewardedTexts& texts, const RunContext& context,
             const std::optional<gpu::Queue>& gpu = {});

  // What rewards of a record's texts need of it: its answers, its prompt for another model, or nothing. Throws Error(kData) with its place.
  std::vector<std::string> needed(const Record& record) const;
  RewardModel* model() const { return model_.get(); }  // null: a verifier or a judge
  // The model that rewards, or the judge's; null: a verifier.
  SideModel* side() const { return model_ ? &model_->side() : judge_ ? &judge_->side() : nullptr; }
  bool is_placeholder() const { return side() != nullptr && side()->is_placeholder(); }
  // What the model that rewards, where there is one, adds to the identity, and its memory by part. The first is collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  MemoryParts memory(int tp_size) const;
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names) {
    if (side() != nullptr) side()->keep_weights(store, identity, names);
  }
  // Throws Error(kConfig) for a field that no record has. Local: reads some records.
  void check_fields(const Dataset& dataset) const;
  // Of texts of one record, finite. needed: of the record; where: the record, for messages; a reward model is loaded with the first ones. Not
  // of a model on GPUs, which a Rewarder of the group computes; heartbeat as there. Local, one thread at a time.
  TextRewards rewards(const std::vector<std::string>& needed, const std::vector<WrittenText>& texts,
                      const std::string& where, int num_threads, const std::function<void()>& heartbeat = {});
  bool tells_unread() const { return verifier_ && verifier_->tells_unread(); }

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
