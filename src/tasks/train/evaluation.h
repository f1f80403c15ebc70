// The loss of records that are held out, which Hugging Face's Trainer calls eval_loss: before the first step, every so many steps and after the
// last. The same bits on any number of ranks and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/run/sample_plan.h"
#include "magister/train/trainer.h"
#include "tasks/train/config.h"

namespace magister {

// Evaluations that are due when `step` of all `steps` are done.
std::uint64_t num_evaluations(std::uint64_t step, std::uint64_t every, std::uint64_t steps);
// Number of steps that were done at evaluation `index`.
std::uint64_t step_of_evaluation(std::uint64_t index, std::uint64_t every, std::uint64_t steps);

class HeldOut {
 public:
  // Every rank encodes its part of the records, and all hold all tokens: 5 bytes a token. Longer records are cut at max_length, as those that
  // are learnt. config and world are kept by reference. Throws Error(kData) where no token has a label, and for ids beyond the
  // vocabulary. Collective over world.
  HeldOut(const Communicator& world, const Dataset& dataset, const TrainConfig& config, std::int64_t vocab_size,
          const std::function<SampleTokens(const Record&)>& encode);

  // Mean over all labels, nat. nullopt: the job was asked to stop (agreed by all ranks). alive: any thread. Collective over world.
  std::optional<double> loss(Trainer& trainer, const std::function<bool()>& stop,
                             const std::function<void()>& alive) const;
  std::uint64_t num_labels() const { return num_labels_; }
  // On every rank.
  std::uint64_t num_bytes() const { return 5 * ids_.size() + 8 * offset_.size(); }

 private:
  std::uint64_t labels_of(std::uint64_t sample) const;
  void make_batches();
  MicroBatch micro_batch(const IndexRange& samples) const;

  const Communicator& world_;
  const TrainConfig& config_;
  std::vector<TokenId> ids_;
  std::vector<std::uint8_t> learnt_;   // by token
  std::vector<std::uint64_t> offset_;  // of samples that have a label
  std::uint64_t num_labels_ = 0;
  std::vector<IndexRange> batches_;  // of samples: a function of their lengths alone
};

}  // namespace magister
