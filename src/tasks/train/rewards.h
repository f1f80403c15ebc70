// What a text of GRPO is worth: a verifier's 1 or 0, or a reward model's number.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/run/run_context.h"
#include "magister/text/verifier.h"
#include "tasks/train/config.h"
#include "tasks/train/reward_model.h"
#include "tasks/train/rollouts.h"

namespace magister {

// The text of a record, of the data set's field `text`. Throws Error(kData) with its place.
std::string prompt_text(const Record& record, const DatasetConfig& dataset);

class RewardFunction {
 public:
  // Both are kept by reference. Throws Error(kConfig) for a model that cannot be used.
  RewardFunction(const TrainConfig& config, const RunContext& context);

  // What rewards of a record's texts need of it: its answers, its prompt for another model, or nothing. Throws Error(kData) with its place.
  std::vector<std::string> needed(const Record& record) const;
  const RewardModel* model() const { return model_.get(); }  // null: a verifier
  // Of all records, in order; every rank reads its part. Before rewards(). Collective over world.
  void read_records(const Communicator& world, const Dataset& records);
  // Of one text, finite. Local.
  double reward(const RolloutText& text, const Tokenizer& tokenizer, int num_threads);

 private:
  const RewardConfig& config_;
  std::optional<Verifier> verifier_;
  std::unique_ptr<RewardModel> model_;
  std::vector<std::vector<std::string>> needed_;  // by prompt
};

}  // namespace magister
