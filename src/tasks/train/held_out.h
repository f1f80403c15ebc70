// The loss of held-out records, which Hugging Face's Trainer calls eval_loss: before the first step, every `every`
// steps and after the last step. Pairs also have the rewards that TRL reports. The bits are the same on any number of
// ranks and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/run/sample_plan.h"
#include "magister/train/batch_plan.h"
#include "magister/train/trainer.h"
#include "tasks/train/config.h"

namespace magister {

// Number of evaluations that are due after `step` of `steps` steps.
std::uint64_t num_evaluations(std::uint64_t step, std::uint64_t every, std::uint64_t steps);
// Number of steps done before evaluation `index`.
std::uint64_t step_of_evaluation(std::uint64_t index, std::uint64_t every, std::uint64_t steps);

// Means over all labels, or over all pairs.
struct Evaluation {
  double loss = 0;  // nat
  PairRewards rewards;
  // `width` numbers as TrainingCurves keeps them: the loss, then for pairs the mean rewards of chosen and rejected
  // answers and the accuracy.
  std::vector<float> numbers(std::int64_t width) const;
};

// The source of held-out records. HeldOut reads dataset in its constructor only.
struct HeldOutSource {
  const Dataset& dataset;
  // Returns the sample of a record; for pairs two, first that of the chosen answer. Throws Error(kData) with the place
  // of the record.
  std::function<std::vector<SampleTokens>(const Record&)> encode;
  std::function<double(const Record&)> margin{};  // pairs only
  // Distillation, where each record is a sample of the teacher: reads the teacher's rows for the first lengths[i]
  // tokens of samples[i]. Any thread.
  std::function<void(const Samples& samples, const std::vector<std::uint32_t>& lengths, HeadLossTargets& targets)>
      read_teacher{};
  const char* key = "dataset";  // the key of train.evaluate that names the records
  std::int64_t vocab_size = 0;
  TokenId pad_token_id = -1;  // reward models: no reward is read at this token
};

class HeldOut {
 public:
  // Every rank encodes its share of the records, and every rank holds the tokens of all: 5 bytes per token. Longer
  // records are cut at max_length, as in the training. config and world are kept by reference, and so is everything
  // that read_teacher of the source refers to. Throws Error(kData) if no record has a token to predict, and for ids
  // beyond the vocabulary. Collective over world.
  HeldOut(const Communicator& world, const TrainConfig& config, const HeldOutSource& source);

  // DPO: computes the log-probabilities of all answers by the reference. Call it once, while the trainer has its first
  // weights. False: the job was asked to stop (all ranks agree). Collective over world.
  bool compare(Trainer& trainer, const std::function<bool()>& stop, const std::function<void()>& heartbeat);
  // nullopt: the job was asked to stop (all ranks agree). heartbeat: any thread. Collective over world.
  std::optional<Evaluation> evaluate(Trainer& trainer, const std::function<bool()>& stop,
                                     const std::function<void()>& heartbeat) const;
  std::uint64_t num_labels() const { return num_labels_; }
  // Host memory on every rank.
  std::uint64_t num_bytes() const { return 5 * ids_.size() + 8 * offset_.size(); }

 private:
  std::uint64_t per_item() const { return config_.samples_an_item(); }
  std::uint64_t num_items() const { return (offset_.size() - 1) / per_item(); }
  bool has_label(std::uint64_t sample, std::uint64_t token) const {
    return token > offset_[sample] && learnt_[token] != 0;
  }
  void make_batches();
  MicroBatch micro_batch(const IndexRange& items) const;
  // Calls visit with this rank's micro-batches in order, several at a time. False: the job was asked to stop.
  bool for_own(const std::function<bool()>& stop, const std::function<void(std::span<const MicroBatch>)>& visit) const;

  const Communicator& world_;
  const TrainConfig& config_;
  decltype(HeldOutSource::read_teacher) read_teacher_;
  TokenId pad_token_id_;
  std::vector<TokenId> ids_;
  std::vector<std::uint8_t> learnt_;   // by token
  std::vector<std::uint64_t> offset_;  // of the samples with a label
  Samples records_;                    // by item: the record's number in the data set
  std::vector<double> margins_;        // by pair
  std::vector<double> references_;     // DPO, by sample
  std::uint64_t num_labels_ = 0;
  std::vector<IndexRange> batches_;  // of items; depend on the lengths alone
};

}  // namespace magister
