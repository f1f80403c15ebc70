// The common part of DPO and reward models: records with two answers to a prompt, of which one is preferred.
#pragma once

#include <vector>

#include "tasks/train/open_objective.h"
#include "tasks/train/preference_pairs.h"

namespace magister {

class OpenPairs : public OpenObjective {
 public:
  OpenPairs(const TrainConfig& config, const TaskInputs& inputs);

  LearntEnds ends() const override { return {.chats = pairs_.has_chats(), .appended = pairs_.appended()}; }
  void add_rules(SampleRules& rules) override;
  HeldOutSource held_out(const Dataset& records, const DatasetConfig& dataset) override;

 protected:
  MicroBatch micro_batch(const TrainingSamples& samples, const Samples& items) const override;

  PairEncoder pairs_;
  std::vector<double> references_;  // by sample: log-probabilities by the reference; empty: 0
  std::vector<double> margins_;     // by item; empty: 0

 private:
  TokenId pad_token_id_;
};

}  // namespace magister
