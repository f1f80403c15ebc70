// See values.h. A value is read in the row of a token that has been written (V of the prefix with it), as a guide reads a candidate's.
#include "tasks/train/values.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

ValueConfig read_value(ConfigNode& task, bool applies, const ExperimentConfig& experiment) {
  ConfigNode of_values = task.only_if(
      applies,
      "is given with another objective (only a value model learns from rollouts); set objective: value, or remove it");
  ConfigNode rollouts = of_values.section("rollouts");
  ValueConfig config;
  config.results = rollouts.optional_text("results").value_or("");
  config.task = rollouts.optional_text("task").value_or("");
  rollouts.one_of({"results", "task"});
  if (applies && config.results.empty() == config.task.empty()) {
    rollouts.reject("", "{} (a value model learns from one file of rollouts); give one of them",
                    config.task.empty() ? "neither `results` nor `task` is there" : "`results` and `task` are there");
  }
  config.rollouts_place = rollouts.place(config.task.empty() ? "results" : "task");
  if (config.task.empty()) config.task = experiment.maker_of(config.results);
  ConfigNode section = of_values.section("value");
  const std::string loss = section.choice("loss", {"bce", "preference", "histogram"}, "bce");
  config.loss = loss == "preference"  ? ValueConfig::Loss::kPreference
                : loss == "histogram" ? ValueConfig::Loss::kHistogram
                                      : ValueConfig::Loss::kBce;
  ConfigNode of_bce = section.only_if(
      loss == "bce", "is given with another loss (they have labels of their own); set loss: bce, or remove it");
  config.labels_are_rewards = of_bce.choice("labels", {"reward", "preference"}, "reward") == "reward";
  ConfigNode of_histogram =
      section.only_if(loss == "histogram", "is given with another loss; set loss: histogram, or remove it");
  config.atoms = of_histogram.integer("atoms", 11, 2, 1 << 12);
  ConfigNode of_rewards = section.only_if(loss == "histogram" || (loss == "bce" && config.labels_are_rewards),
                                          "is given with preferences (no reward is learnt); remove it");
  config.min_reward = of_rewards.number("min_reward", 0.0, -1e9, 1e9);
  config.max_reward = of_rewards.number("max_reward", 1.0, -1e9, 1e9);
  config.range_place = section.place("max_reward");
  if (config.max_reward <= config.min_reward) {
    section.reject("max_reward", "{} is not above min_reward = {} (they become the labels 1 and 0); raise it",
                   config.max_reward, config.min_reward);
  }
  section.also_called("atoms", {"num_atoms", "bins", "num_bins"});
  section.also_called("loss", {"loss_type", "value_loss", "cls_type"});
  section.also_called("labels", {"label", "target"});
  return config;
}

namespace {

bool compares(const ValueConfig& config) {
  return config.of_pairs() || (config.loss == ValueConfig::Loss::kBce && !config.labels_are_rewards);
}

}  // namespace

void check_rollouts(const ValueConfig& config, const Task::RecordTexts& texts) {
  MAGISTER_CHECK(!compares(config) || texts.behind_a_cut != 1, ExitCode::kConfig,
                 "{} names {}, which has one continuation a cut (nothing is compared, so there are no preferences); "
                 "write two with `n: 2`, or learn from rewards",
                 config.rollouts_place, printable(config.task));
  if (compares(config) || !texts.rewards) return;
  const auto [least, most] = *texts.rewards;
  MAGISTER_CHECK(
      least >= config.min_reward && most <= config.max_reward, ExitCode::kConfig,
      "{}: rewards are said to be from {} to {}, and the rule of {} gives {} or {} (their labels would not be "
      "between 0 and 1); widen value.min_reward and value.max_reward",
      config.range_place, config.min_reward, config.max_reward, printable(config.task), least, most);
}

ValueEncoder::ValueEncoder(const ValueConfig& config, const std::string& path, std::uint64_t max_length,
                           const TokenizerIdentity& tokenizer)
    : config_(config), max_length_(max_length), file_(path) {
  MAGISTER_CHECK(same_tokenizer(file_.tokenizer(), tokenizer), ExitCode::kData,
                 "{}: was written with another tokenizer than this model has (its tokens mean other texts); name a "
                 "model with the same tokenizer",
                 printable(path, 4096));
  MAGISTER_CHECK(!compares(config_) || file_.shape().n > 1, ExitCode::kData,
                 "{}: has one continuation a cut (nothing is compared, so there are no preferences); write two with "
                 "`n: 2`, or learn from rewards",
                 printable(path, 4096));
}

std::uint64_t ValueEncoder::samples_a_record() const {
  const RolloutShape& shape = file_.shape();
  return shape.cuts * (config_.of_pairs() ? shape.n / 2 * 2 : shape.n);
}

SampleTokens ValueEncoder::sample(const std::vector<TokenId>& prompt, const Rollouts& all, std::size_t i) const {
  const std::vector<TokenId>& text = all.continuations[i].tokens;
  const auto cut = static_cast<std::ptrdiff_t>(all.cut[i / file_.shape().n]);
  std::vector<TokenId> ids = prompt;
  ids.insert(ids.end(), all.roll_in.begin(), all.roll_in.begin() + cut);
  if (ids.empty() || ids.size() + text.size() > max_length_) return {{}, {}};
  std::vector<std::uint8_t> marks(ids.size(), 0);
  marks.resize(ids.size() + text.size(), 1);
  ids.insert(ids.end(), text.begin(), text.end());
  return {std::move(ids), std::move(marks)};
}

std::vector<SampleTokens> ValueEncoder::encode(const Record& record) {
  const Rollouts all = file_.rollouts(record.source_index);
  const std::vector<TokenId> prompt = file_.prompt(record.source_index);
  const std::uint64_t n = file_.shape().n;
  std::vector<SampleTokens> samples;
  if (!config_.of_pairs()) {
    for (std::size_t i = 0; i < all.continuations.size(); ++i) {
      const bool has_label = config_.labels_are_rewards || all.continuations[i].preferred != Preferred::kNotCompared;
      samples.push_back(has_label ? sample(prompt, all, i) : SampleTokens({}, {}));
    }
    return samples;
  }
  for (std::size_t i = 0; i + 1 < all.continuations.size(); ++i) {
    if (i % n % 2 != 0 || i % n + 1 == n) continue;
    const std::size_t winner = all.continuations[i].preferred == Preferred::kWon ? i : i + 1,
                      loser = i + i + 1 - winner;
    SampleTokens won = sample(prompt, all, winner), lost = sample(prompt, all, loser);
    const auto differ = std::mismatch(won.ids.begin(), won.ids.end(), lost.ids.begin(), lost.ids.end());
    const auto place = static_cast<std::size_t>(differ.first - won.ids.begin());
    // Of equal texts, and where one is the other's beginning, no token differs.
    if (place == std::min(won.ids.size(), lost.ids.size())) won = lost = SampleTokens({}, {});
    for (SampleTokens* one : {&won, &lost}) {
      if (one->ids.empty()) continue;
      // What follows is not read.
      one->ids.resize(place + 1);
      one->assistant.assign(place + 1, 0);
      one->assistant[place] = 1;
    }
    samples.push_back(std::move(won));
    samples.push_back(std::move(lost));
  }
  return samples;
}

std::vector<double> ValueEncoder::labels(const Record& record) {
  std::vector<double> labels;
  if (config_.of_pairs()) return labels;
  for (const Continuation& one : file_.rollouts(record.source_index).continuations) {
    if (config_.loss == ValueConfig::Loss::kBce && !config_.labels_are_rewards) {
      labels.push_back(one.preferred == Preferred::kWon ? 1 : 0);
      continue;
    }
    MAGISTER_CHECK(
        one.reward >= config_.min_reward && one.reward <= config_.max_reward, ExitCode::kData,
        "{}: a reward is {}, and {} says that they are from {} to {} (its label would not be between 0 and 1); "
        "widen value.min_reward and value.max_reward",
        record.where, one.reward, config_.range_place, config_.min_reward, config_.max_reward);
    labels.push_back((static_cast<double>(one.reward) - config_.min_reward) /
                     (config_.max_reward - config_.min_reward));
  }
  return labels;
}

}  // namespace magister
