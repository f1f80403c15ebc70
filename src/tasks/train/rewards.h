// What a text of GRPO is worth: a verifier's 1 or 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/text/verifier.h"
#include "tasks/train/rollouts.h"

namespace magister {

class RewardFunction {
 public:
  // config is kept by reference. Throws Error(kConfig) for an expression that cannot be used.
  explicit RewardFunction(const RewardConfig& config);

  // Empty where the reward compares with none. Throws Error(kData) with the record's place.
  std::string answer(const Record& record) const;
  // Of all records, in order; every rank reads its part. Before rewards(). Collective over world.
  void read_answers(const Communicator& world, const Dataset& records);
  // One of each text, finite. Local.
  std::vector<double> rewards(const std::vector<RolloutText>& texts, const Tokenizer& tokenizer) const;

 private:
  const RewardConfig& config_;
  std::optional<Verifier> verifier_;
  std::vector<std::string> answers_;  // by prompt
};

}  // namespace magister
