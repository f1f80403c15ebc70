// `reward`: trains a head with one output, the reward, which is higher for the preferred answer.
#include "tasks/train/objective.h"
#include "tasks/train/objectives/pairs.h"

namespace magister {
namespace {

class OpenReward final : public OpenPairs {
 public:
  using OpenPairs::OpenPairs;

  bool begin_steps(const StepInputs&) override {
    if (!config_.dataset.margin_field.empty())
      margins_ = numbers_of_records([this](const Record& record) { return std::vector{pairs_.margin(record)}; });
    return true;
  }
};

// The key is that of TRL's RewardConfig.
void read_reward_keys(ConfigNode& task, const ExperimentConfig&, TrainConfig& config) {
  ConfigNode node = task.only_if(config.trainer.objective == ObjectiveKind::kReward,
                                 "is given with another objective; set objective: reward, or remove it");
  ConfigNode section = node.section("reward");
  config.trainer.preference.center_rewards_coefficient = section.number("center_rewards_coefficient", 0.0, 0, 1e6);
}

}  // namespace

constinit const Objective kRewardObjective = {
    .kind = ObjectiveKind::kReward,
    .name = "reward",
    .default_lr = 1e-4,
    .items = "pairs",
    .first_token_counts = true,
    .has_margins = true,
    .held_out_curves = &kHeldOutPairCurves,
    .read = read_reward_keys,
    .of_pairs = [](const TrainConfig&) { return true; },
    .head_labels = [](const TrainConfig&) { return std::int64_t{1}; },
    .curves = [](const TrainConfig&) -> const CurveSet& { return kPairCurves; },
    .open = open_as<OpenReward>};

}  // namespace magister
