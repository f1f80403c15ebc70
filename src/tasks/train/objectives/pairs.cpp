// See pairs.h. TRL calls the curves rewards/chosen, rewards/rejected, rewards/accuracies and rewards/margins.
#include "tasks/train/objectives/pairs.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "magister/core/error.h"
#include "tasks/train/columns.h"
#include "tasks/train/curves.h"

namespace magister {

namespace {

PairRules rules_of(const TrainConfig& config, const DatasetConfig& dataset) {
  return {config.trainer.objective, dataset, config.batches.max_length, config.truncation, config.append_eos};
}

}  // namespace

// The pad token must be read before the identity is made.
OpenPairs::OpenPairs(const TrainConfig& config, const TaskInputs& inputs)
    : OpenObjective(config, inputs),
      pairs_(checkpoint_, rules_of(config, config.dataset)),
      pad_token_id_(reward_pad_token(checkpoint_, config)) {}

void OpenPairs::add_rules(SampleRules& rules) {
  rules.tokenizer = &checkpoint_.tokenizer();
  rules.group_samples = 2;
  rules.unit_tokens = 16384;  // a stop is possible between units while the reference is evaluated
  rules.encode = [this](const Record& record) { return pairs_.encode(record); };
}

MicroBatch OpenPairs::micro_batch(const TrainingSamples& samples, const Samples& items) const {
  MicroBatch batch = OpenObjective::micro_batch(samples, items);
  add_pairs(batch, items, pad_token_id_, references_, margins_);
  return batch;
}

HeldOutSource OpenPairs::held_out(const Dataset& records, const DatasetConfig& dataset) {
  const auto pairs = std::make_shared<PairEncoder>(checkpoint_, rules_of(config_, dataset));
  // Every rank encodes a record, since the template and the end tokens become part of the identity.
  const std::uint64_t first = records.records().begin;
  records.for_each({first, first + 1}, [&](Record&& record) { pairs->encode(record); });
  HeldOutSource source{records, [pairs](const Record& record) { return pairs->encode(record); }};
  if (!dataset.margin_field.empty()) source.margin = [pairs](const Record& record) { return pairs->margin(record); };
  return source;
}

namespace {

float chosen_of(const float* rewards) { return rewards[0]; }
float rejected_of(const float* rewards) { return rewards[1]; }
float accuracy_of(const float* rewards) { return rewards[2]; }
float margin_of(const float* rewards) { return rewards[0] - rewards[1]; }

constexpr CurveColumn kPairColumns[] = {{train_column::kRewardsChosen, chosen_of},
                                        {train_column::kRewardsRejected, rejected_of},
                                        {train_column::kRewardsAccuracy, accuracy_of},
                                        {train_column::kRewardsMargin, margin_of}};

// The numbers follow the loss.
constexpr CurveColumn kHeldOutPairColumns[] = {
    kHeldOutLossCurve,
    {train_column::kHeldOutRewardsChosen, [](const float* numbers) { return chosen_of(numbers + 1); }},
    {train_column::kHeldOutRewardsRejected, [](const float* numbers) { return rejected_of(numbers + 1); }},
    {train_column::kHeldOutRewardsAccuracy, [](const float* numbers) { return accuracy_of(numbers + 1); }},
    {train_column::kHeldOutRewardsMargin, [](const float* numbers) { return margin_of(numbers + 1); }}};

// The rewards of a skipped step may be not finite.
void check_rewards(const ResultsReader& file, std::span<const CurveColumn> columns, std::uint64_t first,
                   std::uint64_t count, const char* what, FaultList& faults) {
  std::vector<std::vector<float>> of;
  for (const CurveColumn& curve : columns) of.push_back(file.rows(curve.column, first, count));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (of[2][i] < 0 || of[2][i] > 1.000001f) faults.add("the accuracy of {} {} is {}", what, first + i + 1, of[2][i]);
    if (std::isfinite(of[3][i]) && of[3][i] != of[0][i] - of[1][i])
      faults.add("the margin of {} {} is {}, and its rewards differ by {}", what, first + i + 1, of[3][i],
                 of[0][i] - of[1][i]);
  }
}

std::vector<float> rewards_of(const StepResult& result) {
  return {static_cast<float>(result.rewards.chosen), static_cast<float>(result.rewards.rejected),
          static_cast<float>(result.rewards.accuracy)};
}

std::string describe_rewards(const StepResult& result) {
  return fmt::format("rewards {:.4f} chosen, {:.4f} rejected, accuracy {:.2f}", result.rewards.chosen,
                     result.rewards.rejected, result.rewards.accuracy);
}

// TRL calls these eval_rewards/accuracies and eval_rewards/margins, and for reward models eval_accuracy and
// eval_margin.
std::string describe_held_out_rewards(const Evaluation& found, std::uint64_t, nlohmann::ordered_json& event) {
  const double margin = found.rewards.chosen - found.rewards.rejected;
  event["eval_accuracy"] = found.rewards.accuracy;
  event["eval_margin"] = margin;
  return fmt::format(", accuracy {:.3f}, margin {:.4f}", found.rewards.accuracy, margin);
}

}  // namespace

constinit const CurveSet kPairCurves = {
    .width = 3,
    .columns = kPairColumns,
    .check = [](const ResultsReader& file, std::uint64_t first, std::uint64_t count,
                FaultList& faults) { check_rewards(file, kPairColumns, first, count, "step", faults); },
    .numbers = rewards_of,
    .describe = describe_rewards};

constinit const CurveSet kHeldOutPairCurves = {
    .width = 4,
    .columns = kHeldOutPairColumns,
    .check =
        [](const ResultsReader& file, std::uint64_t first, std::uint64_t count, FaultList& faults) {
          check_rewards(file, std::span(kHeldOutPairColumns).subspan(1), first, count, "evaluation", faults);
        },
    .describe_held_out = describe_held_out_rewards};

}  // namespace magister
