// The loss of records that are held out, which Hugging Face's Trainer calls eval_loss: before the first step, every so
// many steps and after the last; of pairs with the rewards that TRL reports. The same bits on any number of ranks and
// threads.
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

// Evaluations that are due when `step` of all `steps` are done.
std::uint64_t num_evaluations(std::uint64_t step, std::uint64_t every, std::uint64_t steps);
// Number of steps that were done at evaluation `index`.
std::uint64_t step_of_evaluation(std::uint64_t index, std::uint64_t every, std::uint64_t steps);

// Means over all labels, or over the pairs.
struct Evaluation {
  double loss = 0;  // nat
  PairRewards rewards;
  // As TrainingCurves keeps them: the loss, of pairs the mean rewards of chosen and rejected answers and the accuracy,
  // too.
  std::vector<float> numbers(std::int64_t width) const;
};

// Where held-out records come from; all kept by reference.
struct HeldOutSource {
  const Dataset& dataset;
  // One sample a record, or of pairs two, first the chosen answer's. Throws Error(kData) with the record's place.
  std::function<std::vector<SampleTokens>(const Record&)> encode;
  std::function<double(const Record&)> margin{};  // of pairs
  // Of a distillation, whose samples the records are: the teacher's rows of the samples' first tokens, so many of each.
  // Any thread.
  std::function<void(const Samples& samples, const std::vector<std::uint32_t>& lengths, HeadLossTargets& targets)>
      read_teacher{};
  const char* key = "dataset";  // of train.evaluate, which names them
  std::int64_t vocab_size = 0;
  TokenId pad_token_id = -1;  // of a reward model, that no reward is read from
};

class HeldOut {
 public:
  // Every rank encodes its part of the records, and all hold all tokens: 5 bytes a token. Longer records are cut at
  // max_length, as those that are learnt. config and world are kept by reference, and what the source's read_teacher
  // refers to. Throws Error(kData) where no record has something to predict, and for ids beyond the vocabulary.
  // Collective over world.
  HeldOut(const Communicator& world, const TrainConfig& config, const HeldOutSource& source);

  // Of DPO, once and with the weights that the training begins with: what those say of every answer. False: the job was
  // asked to stop (agreed by all ranks). Collective over world.
  bool compare(Trainer& trainer, const std::function<bool()>& stop, const std::function<void()>& heartbeat);
  // nullopt: the job was asked to stop, likewise. heartbeat: any thread. Collective over world.
  std::optional<Evaluation> evaluate(Trainer& trainer, const std::function<bool()>& stop,
                                     const std::function<void()>& heartbeat) const;
  std::uint64_t num_labels() const { return num_labels_; }
  // On every rank.
  std::uint64_t num_bytes() const { return 5 * ids_.size() + 8 * offset_.size(); }

 private:
  std::uint64_t per_item() const { return config_.samples_an_item(); }
  std::uint64_t num_items() const { return (offset_.size() - 1) / per_item(); }
  bool has_label(std::uint64_t sample, std::uint64_t token) const {
    return token > offset_[sample] && learnt_[token] != 0;
  }
  void make_batches();
  MicroBatch micro_batch(const IndexRange& items) const;
  // This rank's micro-batches, some at a time, in order. False: asked to stop.
  bool for_own(const std::function<bool()>& stop, const std::function<void(std::span<const MicroBatch>)>& visit) const;

  const Communicator& world_;
  const TrainConfig& config_;
  decltype(HeldOutSource::read_teacher) read_teacher_;
  TokenId pad_token_id_;
  std::vector<TokenId> ids_;
  std::vector<std::uint8_t> learnt_;   // by token
  std::vector<std::uint64_t> offset_;  // of samples that have a label
  Samples records_;                    // by item, numbers in the data set
  std::vector<double> margins_;        // of pairs
  std::vector<double> references_;     // of DPO, by sample
  std::uint64_t num_labels_ = 0;
  std::vector<IndexRange> batches_;  // of items: a function of their lengths alone
};

}  // namespace magister
