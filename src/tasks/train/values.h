// What a value model learns from: a file of task rollout, as samples of tokens and a label for each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/sample_plan.h"
#include "magister/run/task.h"
#include "magister/tasks/rollout/rollouts_file.h"
#include "magister/train/value_loss.h"

namespace magister {

struct ValueConfig {
  std::string results,
      task;  // of the rollouts: a path that no earlier task writes, or an earlier task of the experiment
  std::string rollouts_place;  // file:line:column and key
  enum class Loss { kBce, kPreference, kHistogram };
  Loss loss = Loss::kBce;
  std::int64_t atoms = 11;                // of kHistogram: numbers of the head, rewards that are as far apart
  bool labels_are_rewards = true;         // of kBce; else 1 for what won its comparison and 0 for what lost it
  double min_reward = 0, max_reward = 1;  // that become the labels 0 and 1
  std::string range_place;                // file:line:column and key
  bool of_pairs() const { return loss == Loss::kPreference; }
  std::int64_t head_labels() const { return loss == Loss::kHistogram ? atoms : 1; }
};

// The keys `rollouts` and `value` of task train. applies: whether the objective is `value`; every key is read either way.
ValueConfig read_value(ConfigNode& task, bool applies, const ExperimentConfig& experiment);

// What the keys of the rollouts' task say of them, before they are written. Throws Error(kConfig) where the loss cannot learn from them. Local.
void check_rollouts(const ValueConfig& config, const Task::RecordTexts& texts);

class ValueEncoder {
 public:
  // config is kept by reference. Throws as RolloutsFile does, and Error(kData) for another tokenizer or a file without what the loss compares.
  ValueEncoder(const ValueConfig& config, const std::string& path, std::uint64_t max_length,
               const TokenizerIdentity& tokenizer);

  // Every record has as many samples, which are its continuations behind prompt and roll-in up to their cuts; with pairs the winner of each
  // comparison and the loser. The tokens that carry the loss are marked: a continuation's, of a pair the first that differs. A sample of
  // more than max_length tokens, without a label or of a pair of equal texts is empty: it takes no part. Throws Error(kData) with the place.
  std::vector<SampleTokens> encode(const Record& record);
  // By sample of encode(), in [0, 1]; 0 for those that are empty. Throws Error(kData) for rewards outside of min_reward to max_reward.
  std::vector<double> labels(const Record& record);
  std::uint64_t samples_a_record() const;
  const std::string& path() const { return file_.path(); }

 private:
  SampleTokens sample(const std::vector<TokenId>& prompt, const Rollouts& all, std::size_t i) const;

  const ValueConfig& config_;
  std::uint64_t max_length_;
  RolloutsFile file_;
};

}  // namespace magister
