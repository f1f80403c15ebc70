// Columns of the results file of a training, in which a sample is a step, and the rules that `check` tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "tasks/train/curves.h"

namespace magister {

// [N] for N steps. Further curves are of one objective, or of several.
namespace train_column {
inline constexpr Column<std::uint64_t> kStep{"/train/step", "updates that were tried with this one, from 1"};
inline constexpr Column<float> kLoss{
    "/train/loss",
    "mean over the tokens that the step learnt from, or over its pairs; not finite: the step was skipped", "nat"};
inline constexpr Column<float> kLr{"/train/lr", "learning rate of the step"};
inline constexpr Column<float> kGradNorm{
    "/train/grad_norm", "L2 norm of the whole gradient before clipping; not finite: the step was skipped"};
inline constexpr Column<std::uint64_t> kTokens{"/train/tokens", "tokens that the step learnt from"};

inline constexpr Column<float> kRewardsChosen{
    "/train/rewards_chosen", "mean reward of the chosen answers; of DPO beta * (log-probability - the reference's)"};
inline constexpr Column<float> kRewardsRejected{"/train/rewards_rejected", "mean reward of the rejected answers"};
inline constexpr Column<float> kRewardsAccuracy{"/train/rewards_accuracy",
                                                "part of the pairs whose chosen answer has the higher reward"};
inline constexpr Column<float> kRewardsMargin{"/train/rewards_margin", "rewards_chosen - rewards_rejected"};

// TRL calls these curves reward, reward_std, kl, clip_ratio/region_mean, completions/mean_length and
// completions/clipped_ratio.
inline constexpr Column<float> kReward{"/train/reward", "mean reward of the texts that the step learnt from"};
inline constexpr Column<float> kRewardStd{
    "/train/reward_std", "mean over the prompts of the standard deviation (n - 1) of their texts' rewards"};
inline constexpr Column<float> kKl{
    "/train/kl",
    "mean over the tokens of k3 between the model and the one that the training began with; 0 where grpo.beta is",
    "nat"};
inline constexpr Column<float> kClipRatio{"/train/clip_ratio",
                                          "part of the tokens whose ratio was clipped, so that they have no gradient"};
inline constexpr Column<float> kCompletionLength{"/train/completion_length",
                                                 "mean number of tokens of the texts, the end token included"};
inline constexpr Column<float> kTruncated{"/train/truncated", "part of the texts that grpo.max_new_tokens ended"};

inline constexpr Column<float> kLabel{"/train/label", "mean label of the texts that the step learnt from"};
inline constexpr Column<float> kValue{"/train/value",
                                      "mean over the texts of what the model expected of them at their tokens"};

// [E] for E evaluations on held-out records.
inline constexpr ColumnSpec::Extent kFixed = ColumnSpec::Extent::kFixed;
inline constexpr Column<std::uint64_t> kHeldOutStep{"/evaluate/step", "steps that were done before this evaluation", "",
                                                    kFixed};
inline constexpr Column<float> kHeldOutLoss{
    "/evaluate/loss", "mean over the tokens of the held-out records, or over their pairs", "nat", kFixed};
inline constexpr Column<float> kHeldOutPerplexity{"/evaluate/perplexity", "exp(loss)", "", kFixed};
inline constexpr const char* kAsTraining = "of held-out pairs, as /train has it";
inline constexpr Column<float> kHeldOutRewardsChosen{"/evaluate/rewards_chosen", kAsTraining, "", kFixed};
inline constexpr Column<float> kHeldOutRewardsRejected{"/evaluate/rewards_rejected", kAsTraining, "", kFixed};
inline constexpr Column<float> kHeldOutRewardsAccuracy{"/evaluate/rewards_accuracy", kAsTraining, "", kFixed};
inline constexpr Column<float> kHeldOutRewardsMargin{"/evaluate/rewards_margin", kAsTraining, "", kFixed};
}  // namespace train_column

// The first curve of every objective that has held-out records.
inline constexpr CurveColumn kHeldOutLossCurve = {train_column::kHeldOutLoss,
                                                  [](const float* numbers) { return numbers[0]; }};

struct StepRow {
  float loss = 0, lr = 0, grad_norm = 0;
  std::uint64_t tokens = 0;
  const float* numbers = nullptr;  // the values of the objective's curves
};
struct EvaluationRow {
  std::uint64_t step = 0;          // steps done before this evaluation
  const float* numbers = nullptr;  // the values of the objective's held-out curves
};
// Upper bound of the file's size, in bytes.
std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations);
// Writes the whole file. attributes: without num_samples and num_tokens, which are added here. Local, one rank.
void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         const CurveSet& of_steps, const std::vector<EvaluationRow>& evaluations,
                         const CurveSet& of_held_out);

extern const ResultsSchema kTrainSchema;

}  // namespace magister
