// Steps are the file's samples, and their tokens those that they learnt from; a file is checked from its bytes alone.
#include "tasks/train/columns.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kKeyBytes = 12;
constexpr std::uint64_t kUnitSteps = 4096;

ColumnSpec of_steps_column(std::uint64_t steps, const char* path, ColumnType type, const char* comment,
                           const char* units = "") {
  return {path, type, steps, 0, comment, units, ColumnSpec::Extent::kSamples};
}

// A column of f32 that only some objectives have, and what a step says there.
struct CurveColumn {
  const char* path;
  const char* comment;
  float (*value)(const StepRow&);
  const char* units = "";
};

// TRL's names: reward, reward_std, kl, clip_ratio/region_mean, completions/mean_length, completions/clipped_ratio.
const CurveColumn kPolicyColumns[] = {
    {"/train/reward", "mean reward of the texts that the step learnt from",
     [](const StepRow& row) { return row.policy.reward; }},
    {"/train/reward_std", "mean over the prompts of the standard deviation (n - 1) of their texts' rewards",
     [](const StepRow& row) { return row.policy.reward_std; }},
    {"/train/kl",
     "mean over the tokens of k3 between the model and the one that the training began with; 0 where grpo.beta is",
     [](const StepRow& row) { return row.policy.kl; }, "nat"},
    {"/train/clip_ratio", "part of the tokens whose ratio was clipped, so that they have no gradient",
     [](const StepRow& row) { return row.policy.clip_ratio; }},
    {"/train/completion_length", "mean number of tokens of the texts, the end token included",
     [](const StepRow& row) {
       return static_cast<float>(static_cast<double>(row.policy.tokens) / static_cast<double>(row.policy.texts));
     }},
    {"/train/truncated", "part of the texts that grpo.max_new_tokens ended",
     [](const StepRow& row) { return row.policy.truncated; }}};

const CurveColumn kValueColumns[] = {
    {"/train/label", "mean label of the texts that the step learnt from",
     [](const StepRow& row) { return static_cast<float>(row.value.label); }},
    {"/train/value", "mean over the texts of what the model expected of them at their tokens",
     [](const StepRow& row) { return static_cast<float>(row.value.value); }}};

std::vector<ColumnSpec> curve_columns(std::uint64_t steps, std::span<const CurveColumn> curves) {
  std::vector<ColumnSpec> columns;
  for (const CurveColumn& curve : curves)
    columns.push_back(of_steps_column(steps, curve.path, ColumnType::kF32, curve.comment, curve.units));
  return columns;
}

constexpr const char* kRewards[] = {"/train/rewards_chosen", "/train/rewards_rejected", "/train/rewards_accuracy",
                                    "/train/rewards_margin"};

constexpr const char* kHeldOutRewards[] = {"/evaluate/rewards_chosen", "/evaluate/rewards_rejected",
                                           "/evaluate/rewards_accuracy", "/evaluate/rewards_margin"};

// What there is beside a held-out loss.
enum class HeldOutKind { kTokens, kRows, kPairs };

// A divergence has no perplexity.
std::vector<ColumnSpec> evaluation_columns(std::uint64_t count, HeldOutKind kind) {
  constexpr auto kFixed = ColumnSpec::Extent::kFixed;
  std::vector<ColumnSpec> columns = {
      {"/evaluate/step", ColumnType::kU64, count, 0, "steps that were done before this evaluation", "", kFixed},
      {"/evaluate/loss", ColumnType::kF32, count, 0,
       "mean over the tokens of the held-out records, or over their pairs", "nat", kFixed}};
  if (kind == HeldOutKind::kTokens)
    columns.push_back({"/evaluate/perplexity", ColumnType::kF32, count, 0, "exp(loss)", "", kFixed});
  for (const char* const name : kHeldOutRewards) {
    if (kind == HeldOutKind::kPairs)
      columns.push_back({name, ColumnType::kF32, count, 0, "of held-out pairs, as /train has it", "", kFixed});
  }
  return columns;
}

float perplexity_of(float loss) { return static_cast<float>(std::exp(static_cast<double>(loss))); }

// Column `which` of kRewards.
float reward_of(const PairRewards& of, int which) {
  const float chosen = static_cast<float>(of.chosen), rejected = static_cast<float>(of.rejected);
  return which == 0 ? chosen : which == 1 ? rejected : which == 2 ? static_cast<float>(of.accuracy) : chosen - rejected;
}

// TRL's rewards/chosen and so on.
std::vector<ColumnSpec> reward_columns(std::uint64_t steps) {
  constexpr const char* kComments[] = {
      "mean reward of the chosen answers; of DPO beta * (log-probability - the reference's)",
      "mean reward of the rejected answers", "part of the pairs whose chosen answer has the higher reward",
      "rewards_chosen - rewards_rejected"};
  std::vector<ColumnSpec> columns;
  columns.reserve(std::size(kRewards));
  for (std::size_t i = 0; i < std::size(kRewards); ++i)
    columns.push_back(of_steps_column(steps, kRewards[i], ColumnType::kF32, kComments[i]));
  return columns;
}

std::vector<ColumnSpec> train_columns(std::uint64_t steps) {
  using Extent = ColumnSpec::Extent;
  const auto of_steps = [steps](const char* path, ColumnType type, const char* comment, const char* units = "") {
    return of_steps_column(steps, path, type, comment, units);
  };
  return {
      {"/samples/key", ColumnType::kUtf8, steps, kKeyBytes, "the step's number", "", Extent::kSamples},
      of_steps("/samples/source_index", ColumnType::kU64, "the step's number, from 0"),
      {"/samples/offset", ColumnType::kU64, steps + 1, 0,
       "step i learnt from the tokens offset[i] .. offset[i+1] of all that were learnt from", "", Extent::kFixed},
      of_steps("/train/step", ColumnType::kU64, "updates that were tried with this one, from 1"),
      of_steps("/train/loss", ColumnType::kF32,
               "mean over the tokens that the step learnt from, or over its pairs; not finite: the step was skipped",
               "nat"),
      of_steps("/train/lr", ColumnType::kF32, "learning rate of the step"),
      of_steps("/train/grad_norm", ColumnType::kF32,
               "L2 norm of the whole gradient before clipping; not finite: the step was skipped"),
      of_steps("/train/tokens", ColumnType::kU64, "tokens that the step learnt from")};
}

template <typename T, typename Get>
void write_column(ResultsFile& file, const char* path, std::uint64_t count, const Get& get) {
  std::vector<T> values;
  values.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(get(i)));
  file.write(path, 0, std::as_bytes(std::span(values)));
}

}  // namespace

std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations) {
  return 28 * num_evaluations + num_steps * (kKeyBytes + 8 + 8 + 8 + 4 + 4 + 4 + 8 + 24) + 8 +
         (num_steps / kUnitSteps + 1) * 13 + 8;
}

std::vector<float> EvaluationRow::numbers(Objective objective) const {
  if (evaluation_width(objective) == 1) return {static_cast<float>(found.loss)};
  return {static_cast<float>(found.loss), static_cast<float>(found.rewards.chosen),
          static_cast<float>(found.rewards.rejected), static_cast<float>(found.rewards.accuracy)};
}

EvaluationRow EvaluationRow::of(std::uint64_t step, const float* numbers, Objective objective) {
  EvaluationRow row{step, {numbers[0], {}}};
  if (evaluation_width(objective) > 1) row.found.rewards = {numbers[1], numbers[2], numbers[3]};
  return row;
}

namespace {

void write_evaluations(ResultsFile& file, const std::vector<EvaluationRow>& rows, HeldOutKind kind) {
  const std::uint64_t count = rows.size();
  if (count == 0) return;
  const auto loss = [&](std::uint64_t i) { return static_cast<float>(rows[i].found.loss); };
  write_column<std::uint64_t>(file, "/evaluate/step", count, [&](std::uint64_t i) { return rows[i].step; });
  write_column<float>(file, "/evaluate/loss", count, loss);
  if (kind == HeldOutKind::kTokens)
    write_column<float>(file, "/evaluate/perplexity", count, [&](std::uint64_t i) { return perplexity_of(loss(i)); });
  for (int which = 0; kind == HeldOutKind::kPairs && which < 4; ++which) {
    write_column<float>(file, kHeldOutRewards[which], count,
                        [&](std::uint64_t i) { return reward_of(rows[i].found.rewards, which); });
  }
}

}  // namespace

void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         Objective objective, bool distills, const std::vector<EvaluationRow>& evaluations) {
  const std::uint64_t n = steps.size(), units = (n + kUnitSteps - 1) / kUnitSteps;
  std::vector<std::uint64_t> offset = {0};
  for (const StepRow& step : steps) offset.push_back(offset.back() + step.tokens);
  ResultsSpec spec;
  spec.columns = train_columns(n);
  const bool of_pairs = objective == Objective::kDpo || objective == Objective::kReward;
  const bool of_prompts = objective == Objective::kGrpo;
  const std::span<const CurveColumn> curves = of_prompts ? std::span<const CurveColumn>(kPolicyColumns)
                                              : objective == Objective::kValue
                                                  ? std::span<const CurveColumn>(kValueColumns)
                                                  : std::span<const CurveColumn>();
  for (ColumnSpec& column : of_pairs ? reward_columns(n) : curve_columns(n, curves))
    spec.columns.push_back(std::move(column));
  const HeldOutKind held_out = of_pairs ? HeldOutKind::kPairs : distills ? HeldOutKind::kRows : HeldOutKind::kTokens;
  if (!evaluations.empty()) {
    for (ColumnSpec& column : evaluation_columns(evaluations.size(), held_out))
      spec.columns.push_back(std::move(column));
  }
  spec.attributes = attributes;
  spec.attributes.emplace_back("num_samples", n);
  spec.attributes.emplace_back("num_tokens", offset.back());
  spec.num_units = units;
  spec.default_plot_column = "/train/loss";
  ::unlink((path + ".partial").c_str());  // of an attempt that was killed: everything in it is made again
  const Communicator alone;
  ResultsFile file = ResultsFile::create(alone, path, spec);
  std::string keys;
  for (std::uint64_t i = 0; i < n; ++i) {
    std::string key = std::to_string(i + 1);
    key.resize(kKeyBytes, '\0');
    keys += key;
  }
  file.write("/samples/key", 0, std::as_bytes(std::span(keys)));
  file.write("/samples/offset", 0, std::as_bytes(std::span(offset)));
  write_column<std::uint64_t>(file, "/samples/source_index", n, [](std::uint64_t i) { return i; });
  write_column<std::uint64_t>(file, "/train/step", n, [](std::uint64_t i) { return i + 1; });
  write_column<float>(file, "/train/loss", n, [&](std::uint64_t i) { return steps[i].loss; });
  write_column<float>(file, "/train/lr", n, [&](std::uint64_t i) { return steps[i].lr; });
  write_column<float>(file, "/train/grad_norm", n, [&](std::uint64_t i) { return steps[i].grad_norm; });
  write_column<std::uint64_t>(file, "/train/tokens", n, [&](std::uint64_t i) { return steps[i].tokens; });
  for (const CurveColumn& curve : curves)
    write_column<float>(file, curve.path, n, [&](std::uint64_t i) { return curve.value(steps[i]); });
  write_evaluations(file, evaluations, held_out);
  for (int which = 0; of_pairs && which < 4; ++which)
    write_column<float>(file, kRewards[which], n, [&](std::uint64_t i) { return reward_of(steps[i].rewards, which); });
  write_column<std::uint64_t>(file, "/commit/unit_begin", units + 1,
                              [&](std::uint64_t i) { return std::min(n, i * kUnitSteps); });
  file.freeze();
  std::vector<Unit> all;
  for (const std::uint64_t index : file.pending_units()) all.push_back(file.unit(index));
  file.commit(all);
  file.complete(alone);
}

namespace {

bool has_rewards(const ResultsReader& file) { return file.find(kRewards[0]) != nullptr; }
bool has_policy(const ResultsReader& file) { return file.find(kPolicyColumns[0].path) != nullptr; }

// Where a training has evaluated.
std::uint64_t evaluations_of(const ResultsReader& file) {
  const auto* const column = file.find("/evaluate/step");
  return column == nullptr ? 0 : column->num_rows;
}

HeldOutKind held_out_kind(const ResultsReader& file) {
  if (has_rewards(file)) return HeldOutKind::kPairs;
  return file.find("/evaluate/perplexity") == nullptr && file.attribute("objective") != nullptr ? HeldOutKind::kRows
                                                                                                : HeldOutKind::kTokens;
}

bool has_curves(const ResultsReader& file, FaultList& faults) {
  if (!file.complete() && file.find("/tokens/id") != nullptr)
    return false;  // what is learnt from: no steps to have rules
  bool all = true;
  std::vector<ColumnSpec> columns = train_columns(file.num_samples());
  if (has_rewards(file)) {
    for (ColumnSpec& column : reward_columns(file.num_samples())) columns.push_back(std::move(column));
  }
  if (has_policy(file)) {
    for (ColumnSpec& column : curve_columns(file.num_samples(), kPolicyColumns)) columns.push_back(std::move(column));
  }
  if (file.find(kValueColumns[0].path) != nullptr) {
    for (ColumnSpec& column : curve_columns(file.num_samples(), kValueColumns)) columns.push_back(std::move(column));
  }
  if (const std::uint64_t count = evaluations_of(file); count > 0) {
    for (ColumnSpec& column : evaluation_columns(count, held_out_kind(file))) columns.push_back(std::move(column));
  }
  for (const ColumnSpec& wanted : columns) {
    const ColumnSpec* const column = file.find(wanted.path);
    if (column != nullptr && column->type == wanted.type && column->extent == wanted.extent) continue;
    faults.add("dataset {} is missing or of another type", wanted.path);
    all = false;
  }
  return all;
}

// A step that was skipped may have rewards that are not finite.
void check_rewards(const ResultsReader& file, std::span<const char* const> names, std::uint64_t first,
                   std::uint64_t count, const char* what, FaultList& faults) {
  std::vector<std::vector<float>> of;
  for (const char* const name : names) of.push_back(file.rows<float>(name, first, count));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (of[2][i] < 0 || of[2][i] > 1.000001f) faults.add("the accuracy of {} {} is {}", what, first + i + 1, of[2][i]);
    if (std::isfinite(of[3][i]) && of[3][i] != of[0][i] - of[1][i])
      faults.add("the margin of {} {} is {}, and its rewards differ by {}", what, first + i + 1, of[3][i],
                 of[0][i] - of[1][i]);
  }
}

// kl may be not finite where a step was skipped.
void check_policy(const ResultsReader& file, std::uint64_t first, std::uint64_t count, FaultList& faults) {
  const auto column = [&](const char* path) { return file.rows<float>(path, first, count); };
  const auto deviation = column("/train/reward_std"), clipped = column("/train/clip_ratio"),
             truncated = column("/train/truncated"), length = column("/train/completion_length");
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!(deviation[i] >= 0)) faults.add("the deviation of the rewards of step {} is {}", first + i + 1, deviation[i]);
    for (const float part : {clipped[i], truncated[i]}) {
      if (!(part >= 0 && part <= 1.000001f)) faults.add("a part of step {} is {}", first + i + 1, part);
    }
    if (!(length[i] >= 1)) faults.add("the texts of step {} have {} tokens on average", first + i + 1, length[i]);
  }
}

// Losses may be not finite; then their perplexities are not, either.
void check_evaluations(const ResultsReader& file, FaultList& faults) {
  const std::uint64_t count = evaluations_of(file);
  if (count == 0) return;
  const HeldOutKind kind = held_out_kind(file);
  for (const ColumnSpec& wanted : evaluation_columns(count, kind)) {
    const std::uint64_t rows = file.find(wanted.path)->num_rows;
    if (rows == count) continue;
    faults.add("{} has {} rows, and there are {} evaluations", wanted.path, rows, count);
    return;
  }
  const auto step = file.rows<std::uint64_t>("/evaluate/step", 0, count);
  const auto loss = file.rows<float>("/evaluate/loss", 0, count);
  const auto perplexity =
      kind == HeldOutKind::kTokens ? file.rows<float>("/evaluate/perplexity", 0, count) : std::vector<float>();
  if (kind == HeldOutKind::kPairs) check_rewards(file, kHeldOutRewards, 0, count, "evaluation", faults);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (step[i] > file.num_samples() || (i == 0 ? step[i] != 0 : step[i] <= step[i - 1]))
      faults.add("evaluation {} is of step {} of {}", i, step[i], file.num_samples());
    const double expected = std::exp(static_cast<double>(loss[i]));
    if (!perplexity.empty() && std::isfinite(loss[i]) && std::abs(perplexity[i] / expected - 1) > 1e-5 &&
        expected < 1e38)
      faults.add("the perplexity of evaluation {} is {}, and its loss {}", i, perplexity[i], loss[i]);
  }
  if (step.back() != file.num_samples())
    faults.add("the last evaluation is of step {} of {}", step.back(), file.num_samples());
}

void check_steps(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::uint64_t first = unit.samples.begin, count = unit.samples.size();
  const auto step = file.rows<std::uint64_t>("/train/step", first, count);
  const auto tokens = file.rows<std::uint64_t>("/train/tokens", first, count);
  const auto lr = file.rows<float>("/train/lr", first, count);
  const auto offset = file.rows<std::uint64_t>("/samples/offset", first, count + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (step[i] != first + i + 1) faults.add("step {} says that it is step {}", first + i + 1, step[i]);
    if (tokens[i] == 0 || tokens[i] != offset[i + 1] - offset[i])
      faults.add("step {} learnt from {} tokens, and its offsets say {}", first + i + 1, tokens[i],
                 offset[i + 1] - offset[i]);
    if (!(lr[i] >= 0) || !std::isfinite(lr[i])) faults.add("the learning rate of step {} is {}", first + i + 1, lr[i]);
  }
  if (has_rewards(file)) check_rewards(file, kRewards, first, count, "step", faults);
  if (has_policy(file)) check_policy(file, first, count, faults);
}

}  // namespace

const ResultsSchema kTrainSchema = {"magister.train", 1, has_curves, check_evaluations, check_steps};

}  // namespace magister
