// See evaluation.h. Micro-batches are consecutive samples, so that what a sample is computed beside does not depend on ranks.
#include "tasks/train/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/parallel/gathered.h"
#include "magister/train/gradient_tree.h"

namespace magister {
namespace {

constexpr std::uint64_t kEvaluatedTokens = 1024;  // of a micro-batch, as BatchPlan has it
constexpr std::size_t kEvaluatedAtOnce = 16;      // micro-batches between two looks whether to stop

}  // namespace

std::uint64_t num_evaluations(std::uint64_t step, std::uint64_t every, std::uint64_t steps) {
  return 1 + step / every + (step == steps && step % every != 0 ? 1 : 0);
}

std::uint64_t step_of_evaluation(std::uint64_t index, std::uint64_t every, std::uint64_t steps) {
  return std::min(index * every, steps);
}

HeldOut::HeldOut(const Communicator& world, const Dataset& dataset, const TrainConfig& config, std::int64_t vocab_size,
                 const std::function<SampleTokens(const Record&)>& encode)
    : world_(world), config_(config) {
  const IndexRange all = dataset.records();
  const IndexRange own = micro_batches_of(all.size(), world.rank(), world.size());
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> learnt;
  std::vector<std::uint64_t> lengths;
  dataset.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    SampleTokens sample = encode(record);
    if (sample.ids.size() > config.batches.max_length) sample.ids.resize(config.batches.max_length);
    for (const TokenId id : sample.ids) {
      MAGISTER_CHECK(id >= 0 && id < vocab_size, ExitCode::kData,
                     "{}: token id {} is outside of the model's vocabulary of {} (it has no embedding); these ids are "
                     "another tokenizer's",
                     record.where, id, vocab_size);
    }
    sample.assistant.resize(sample.ids.size(), sample.assistant.empty() ? 1 : 0);
    const auto from = sample.assistant.begin() + (sample.ids.empty() ? 0 : 1);
    if (std::none_of(from, sample.assistant.end(), [](std::uint8_t mark) { return mark != 0; })) return;
    ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
    learnt.insert(learnt.end(), sample.assistant.begin(), sample.assistant.end());
    lengths.push_back(sample.ids.size());
  });
  ids_ = gathered(world, ids);
  learnt_ = gathered(world, learnt);
  offset_ = {0};
  for (const std::uint64_t length : gathered(world, lengths)) offset_.push_back(offset_.back() + length);
  MAGISTER_CHECK(offset_.size() > 1, ExitCode::kData,
                 "{}: none of the {} records of train.evaluate.dataset has a token to predict (there is no held-out "
                 "loss); check the data set, or remove train.evaluate",
                 config.name, all.size());
  make_batches();
}

std::uint64_t HeldOut::labels_of(std::uint64_t sample) const {
  std::uint64_t count = 0;
  for (std::uint64_t t = offset_[sample] + 1; t < offset_[sample + 1]; ++t) count += learnt_[t] != 0 ? 1 : 0;
  return count;
}

void HeldOut::make_batches() {
  const std::uint64_t most = config_.batches.micro_batch;
  for (std::uint64_t sample = 0; sample + 1 < offset_.size(); ++sample) {
    num_labels_ += labels_of(sample);
    const bool fits =
        !batches_.empty() && (most > 0 ? batches_.back().size() < most
                                       : offset_[sample + 1] - offset_[batches_.back().begin] <= kEvaluatedTokens);
    if (fits) {
      batches_.back().end = sample + 1;
    } else {
      batches_.push_back({sample, sample + 1});
    }
  }
}

MicroBatch HeldOut::micro_batch(const IndexRange& samples) const {
  const std::uint64_t first = offset_[samples.begin];
  const auto T = static_cast<std::int64_t>(offset_[samples.end] - first);
  MicroBatch batch;
  batch.tokens.token_ids_T = at::empty({T}, at::kLong);
  batch.targets.labels_T = at::full({T}, -100, at::kLong);
  auto* ids = batch.tokens.token_ids_T.data_ptr<std::int64_t>();
  auto* labels = batch.targets.labels_T.data_ptr<std::int64_t>();
  batch.tokens.cu_seqlens.push_back(0);
  for (std::uint64_t sample = samples.begin; sample < samples.end; ++sample) {
    for (std::uint64_t t = offset_[sample]; t < offset_[sample + 1]; ++t) {
      ids[t - first] = ids_[t];
      if (t > offset_[sample] && learnt_[t] != 0) labels[t - first - 1] = ids_[t];
    }
    batch.tokens.cu_seqlens.push_back(static_cast<std::int64_t>(offset_[sample + 1] - first));
  }
  return batch;
}

std::optional<double> HeldOut::loss(Trainer& trainer, const std::function<bool()>& stop,
                                    const std::function<void()>& alive) const {
  fail_point("train.evaluate.begin");
  const IndexRange own = micro_batches_of(batches_.size(), world_.rank(), world_.size());
  const std::uint64_t most = world_.max(own.size());
  std::vector<double> sums;  // of every sequence, in order
  for (std::uint64_t done = 0; done < most; done += kEvaluatedAtOnce) {
    if (stop()) return std::nullopt;
    std::vector<MicroBatch> batches;
    for (std::uint64_t i = own.begin + done; i < std::min(own.end, own.begin + done + kEvaluatedAtOnce); ++i)
      batches.push_back(micro_batch(batches_[i]));
    for (const std::vector<double>& of_batch : trainer.sequence_logprobs(batches, alive))
      sums.insert(sums.end(), of_batch.begin(), of_batch.end());
  }
  double sum = 0;
  for (const double logprob : gathered(world_, sums)) sum += logprob;
  return -sum / static_cast<double>(num_labels_);
}

}  // namespace magister
