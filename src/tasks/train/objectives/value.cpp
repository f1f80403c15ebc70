// `value`: trains a head that predicts, at every token of a rollout, the value of the whole text; or, with pairs, which
// of two texts is better at the first token where they differ. The value in the row of a token is V of the prefix that
// ends with this token, as a guide reads it for a candidate.
#include <algorithm>
#include <optional>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"
#include "magister/tasks/rollout/rollouts_file.h"
#include "tasks/train/columns.h"
#include "tasks/train/objective.h"
#include "tasks/train/open_objective.h"

namespace magister {
namespace {

constexpr const char* kRolloutTask = "rollout";

bool compares(const ValueConfig& config) {
  return config.of_pairs() || (config.loss == ValueOptions::Loss::kBce && !config.labels_are_rewards);
}

// Checks the keys of the rollouts' task before it has run. Throws Error(kConfig) if the loss cannot learn from its
// results. Local.
void check_rollouts(const ValueConfig& config, const ResultsSource& source, const Task::RecordTexts& texts) {
  MAGISTER_CHECK(!compares(config) || texts.per_cut != 1, ExitCode::kConfig,
                 "{} names {}, which has one continuation a cut (nothing is compared, so there are no preferences); "
                 "write two with `n: 2`, or learn from rewards",
                 source.place, printable(source.task));
  if (compares(config) || !texts.rewards) return;
  const auto [least, most] = *texts.rewards;
  MAGISTER_CHECK(
      least >= config.min_reward && most <= config.max_reward, ExitCode::kConfig,
      "{}: rewards are said to be from {} to {}, and the rule of {} gives {} or {} (their labels would not be "
      "between 0 and 1); widen value.min_reward and value.max_reward",
      config.range_place, config.min_reward, config.max_reward, printable(source.task), least, most);
}

class OpenValue final : public OpenObjective {
 public:
  OpenValue(const TrainConfig& config, const TaskInputs& inputs);

  bool inputs_exist() const override { return rollouts_.has_value(); }
  void add_rules(SampleRules& rules) override;
  bool begin_steps(const StepInputs&) override {
    if (!config_.of_pairs()) labels_ = numbers_of_records([this](const Record& record) { return labels(record); });
    return true;
  }

 private:
  void check_task();
  void open_rollouts();
  // Returns the same number of samples for every record. Without pairs a sample is a continuation with its prompt and
  // the roll-in up to its cut; with pairs two samples are the winner and the loser of a comparison. The tokens with a
  // loss are marked: those of a continuation, or in a pair the first one that differs. A sample is empty and takes no
  // part if it has more than max_length tokens or no label, or if the texts of its pair do not differ. Throws
  // Error(kData) with the place.
  std::vector<SampleTokens> encode(const Record& record);
  std::vector<SampleTokens> encode_pairs(const std::vector<TokenId>& prompt, const Rollouts& all) const;
  SampleTokens sample(const std::vector<TokenId>& prompt, const Rollouts& all, std::size_t i) const;
  // The labels of the samples of encode(), in [0, 1]; 0 for continuations that were not compared. Throws Error(kData)
  // for rewards outside min_reward to max_reward.
  std::vector<double> labels(const Record& record);
  MicroBatch micro_batch(const TrainingSamples& samples, const Samples& items) const override;

  const ValueConfig& value_;
  std::optional<RolloutsFile> rollouts_;  // nothing: an earlier task has not written them yet
  std::vector<double> labels_;            // by sample
};

// The pad token must be read before the identity is made.
OpenValue::OpenValue(const TrainConfig& config, const TaskInputs& inputs)
    : OpenObjective(config, inputs), value_(config.value) {
  MAGISTER_CHECK(!checkpoint_.config().encoder, ExitCode::kConfig,
                 "{}: {} is an encoder (it reads what comes after a token, too, so no row is the value of a text's "
                 "beginning); start from a decoder",
                 config_.model.place, printable(checkpoint_.path(), 4096));
  checkpoint_.tokenizer();
  reward_pad_token(checkpoint_, config_);
  inputs.data_is_placeholder ? check_task() : open_rollouts();
}

void OpenValue::open_rollouts() {
  const std::string path = config_.source.path(kRolloutTask, context_);
  rollouts_.emplace(path);
  MAGISTER_CHECK(same_tokenizer(rollouts_->tokenizer(), checkpoint_.tokenizer_identity()), ExitCode::kData,
                 "{}: was written with another tokenizer than this model has (its tokens mean other texts); name a "
                 "model with the same tokenizer",
                 printable(path, 4096));
  MAGISTER_CHECK(!compares(value_) || rollouts_->shape().n > 1, ExitCode::kData,
                 "{}: has one continuation a cut (nothing is compared, so there are no preferences); write two with "
                 "`n: 2`, or learn from rewards",
                 printable(path, 4096));
}

// Checks the task that will write the rollouts: the tokenizer of its model must be that of this model.
void OpenValue::check_task() {
  const ResultsSource& source = config_.source;
  const Task& task = *require_results(context_, source.place, source.task, kRolloutTask);
  check_rollouts(config_.value, source, task.record_texts(context_));
  Checkpoint policy(task.model_section().placeholder());
  MAGISTER_CHECK(same_tokenizer(policy.tokenizer_identity(), checkpoint_.tokenizer_identity()), ExitCode::kConfig,
                 "{} names {}, whose model has another tokenizer (its tokens mean other texts); name a model with the "
                 "same tokenizer",
                 source.place, printable(source.task));
}

void OpenValue::add_rules(SampleRules& rules) {
  rules.tokenizer = &checkpoint_.tokenizer();
  if (!rollouts_) return;
  const RolloutShape& shape = rollouts_->shape();
  rules.group_samples = shape.cuts * (value_.of_pairs() ? shape.n / 2 * 2 : shape.n);
  rules.encode = [this](const Record& record) { return encode(record); };
}

SampleTokens OpenValue::sample(const std::vector<TokenId>& prompt, const Rollouts& all, std::size_t i) const {
  const std::vector<TokenId>& text = all.continuations[i].tokens;
  const auto cut = static_cast<std::ptrdiff_t>(all.cut[i / rollouts_->shape().n]);
  std::vector<TokenId> ids = prompt;
  ids.insert(ids.end(), all.roll_in.begin(), all.roll_in.begin() + cut);
  if (ids.empty() || ids.size() + text.size() > config_.batches.max_length) return {{}, {}};
  std::vector<std::uint8_t> marks(ids.size(), 0);
  marks.resize(ids.size() + text.size(), 1);
  ids.insert(ids.end(), text.begin(), text.end());
  return {std::move(ids), std::move(marks)};
}

std::vector<SampleTokens> OpenValue::encode(const Record& record) {
  const Rollouts all = rollouts_->rollouts(record.source_index);
  const std::vector<TokenId> prompt = rollouts_->prompt(record.source_index);
  if (value_.of_pairs()) return encode_pairs(prompt, all);
  std::vector<SampleTokens> samples;
  for (std::size_t i = 0; i < all.continuations.size(); ++i) {
    const bool has_label = value_.labels_are_rewards || all.continuations[i].preferred != Preferred::kNotCompared;
    samples.push_back(has_label ? sample(prompt, all, i) : SampleTokens({}, {}));
  }
  return samples;
}

std::vector<SampleTokens> OpenValue::encode_pairs(const std::vector<TokenId>& prompt, const Rollouts& all) const {
  const std::uint64_t n = rollouts_->shape().n;
  std::vector<SampleTokens> samples;
  for (std::size_t i = 0; i + 1 < all.continuations.size(); ++i) {
    if (i % n % 2 != 0 || i % n + 1 == n) continue;
    const std::size_t winner = all.continuations[i].preferred == Preferred::kWon ? i : i + 1,
                      loser = i + i + 1 - winner;
    SampleTokens won = sample(prompt, all, winner), lost = sample(prompt, all, loser);
    const auto differ = std::mismatch(won.ids.begin(), won.ids.end(), lost.ids.begin(), lost.ids.end());
    const auto place = static_cast<std::size_t>(differ.first - won.ids.begin());
    // No token differs if the texts are equal or one is the beginning of the other.
    if (place == std::min(won.ids.size(), lost.ids.size())) won = lost = SampleTokens({}, {});
    for (SampleTokens* one : {&won, &lost}) {
      if (one->ids.empty()) continue;
      // The tokens after the first difference are not read.
      one->ids.resize(place + 1);
      one->assistant.assign(place + 1, 0);
      one->assistant[place] = 1;
    }
    samples.push_back(std::move(won));
    samples.push_back(std::move(lost));
  }
  return samples;
}

std::vector<double> OpenValue::labels(const Record& record) {
  std::vector<double> labels;
  for (const Continuation& one : rollouts_->rollouts(record.source_index).continuations) {
    if (compares(value_)) {
      labels.push_back(one.preferred == Preferred::kWon ? 1 : 0);
      continue;
    }
    MAGISTER_CHECK(
        one.reward >= value_.min_reward && one.reward <= value_.max_reward, ExitCode::kData,
        "{}: a reward is {}, and {} says that they are from {} to {} (its label would not be between 0 and 1); "
        "widen value.min_reward and value.max_reward",
        record.where, one.reward, value_.range_place, value_.min_reward, value_.max_reward);
    labels.push_back((static_cast<double>(one.reward) - value_.min_reward) / (value_.max_reward - value_.min_reward));
  }
  return labels;
}

// Every text gets its label, or every pair the rows to compare, at the marked tokens.
MicroBatch OpenValue::micro_batch(const TrainingSamples& samples, const Samples& items) const {
  MicroBatch batch = OpenObjective::micro_batch(samples, items);
  const std::vector<std::int64_t>& begins = batch.tokens.cu_seqlens;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (config_.of_pairs()) {
      Pair& pair = batch.pairs.emplace_back();
      pair.chosen_row = begins[2 * i] + samples.marked_rows(2 * items[i]).at(0);
      pair.rejected_row = begins[2 * i + 1] + samples.marked_rows(2 * items[i] + 1).at(0);
      continue;
    }
    ValueText& text = batch.values.emplace_back(ValueText{samples.marked_rows(items[i]), labels_.at(items[i])});
    for (std::int64_t& row : text.rows) row += begins[i];
  }
  return batch;
}

void read_value_keys(ConfigNode& task, const ExperimentConfig& experiment, TrainConfig& config) {
  using Loss = ValueOptions::Loss;
  const bool is_ours = config.trainer.objective == ObjectiveKind::kValue;
  ConfigNode node = task.only_if(
      is_ours,
      "is given with another objective (only a value model learns from rollouts); set objective: value, or remove it");
  ConfigNode rollouts = node.section("rollouts");
  const ResultsSource source =
      read_results_source(rollouts, is_ours, experiment, "a value model learns from one file of rollouts");
  if (is_ours) config.source = source;
  ValueConfig& value = config.value;
  ConfigNode section = node.section("value");
  const std::string loss = section.choice("loss", {"bce", "preference", "histogram"}, "bce");
  value.loss = loss == "preference" ? Loss::kPreference : loss == "histogram" ? Loss::kHistogram : Loss::kBce;
  config.trainer.value.loss = value.loss;
  ConfigNode of_bce = section.only_if(
      loss == "bce", "is given with another loss (they have labels of their own); set loss: bce, or remove it");
  value.labels_are_rewards = of_bce.choice("labels", {"reward", "preference"}, "reward") == "reward";
  ConfigNode of_histogram =
      section.only_if(loss == "histogram", "is given with another loss; set loss: histogram, or remove it");
  value.atoms = of_histogram.integer("atoms", 11, 2, 1 << 12);
  ConfigNode of_rewards = section.only_if(loss == "histogram" || (loss == "bce" && value.labels_are_rewards),
                                          "is given with preferences (no reward is learnt); remove it");
  value.min_reward = of_rewards.number("min_reward", 0.0, -1e9, 1e9);
  value.max_reward = of_rewards.number("max_reward", 1.0, -1e9, 1e9);
  value.range_place = section.place("max_reward");
  if (value.max_reward <= value.min_reward) {
    section.reject("max_reward", "{} is not above min_reward = {} (they become the labels 1 and 0); raise it",
                   value.max_reward, value.min_reward);
  }
  section.also_called("atoms", {"num_atoms", "bins", "num_bins"});
  section.also_called("loss", {"loss_type", "value_loss", "cls_type"});
  section.also_called("labels", {"label", "target"});
}

constexpr CurveColumn kValueColumns[] = {{train_column::kLabel, [](const float* numbers) { return numbers[0]; }},
                                         {train_column::kValue, [](const float* numbers) { return numbers[1]; }}};

}  // namespace

constinit const CurveSet kValueCurves = {.width = 2, .columns = kValueColumns, .numbers = [](const StepResult& result) {
                                           return std::vector{static_cast<float>(result.value.label),
                                                              static_cast<float>(result.value.value)};
                                         }};

constinit const Objective kValueObjective = {
    .kind = ObjectiveKind::kValue,
    .name = "value",
    .default_lr = 2e-5,
    .items = "texts",
    .learns_from = kRolloutTask,
    .refused = {.dataset = "is given with objective: value (the rollouts hold the tokens); remove it",
                .append_eos = "is given with objective: value (the rollouts hold the tokens as they are); remove it",
                .evaluate = kNothingHeldOut},
    .read = read_value_keys,
    .of_pairs = [](const TrainConfig& config) { return config.value.of_pairs(); },
    .head_labels = [](const TrainConfig& config) { return config.value.head_labels(); },
    .marks = [](const TrainConfig&) { return "1: the value of the text up to it is learnt"; },
    .curves = [](const TrainConfig& config) -> const CurveSet& {
      return config.of_pairs() ? kPairCurves : kValueCurves;
    },
    .open = open_as<OpenValue>};

}  // namespace magister
