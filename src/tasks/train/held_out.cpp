// See held_out.h. Micro-batches are consecutive records of the data set, so the composition of a micro-batch does not
// depend on the number of ranks.
#include "tasks/train/held_out.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/parallel/gathered.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/samples.h"

namespace magister {
namespace {

constexpr std::uint64_t kEvaluatedTokens = 1024;  // tokens of a micro-batch, as in BatchPlan
constexpr std::size_t kEvaluatedAtOnce = 16;      // micro-batches between two checks for a request to stop

}  // namespace

std::uint64_t num_evaluations(std::uint64_t step, std::uint64_t every, std::uint64_t steps) {
  return 1 + step / every + (step == steps && step % every != 0 ? 1 : 0);
}

std::uint64_t step_of_evaluation(std::uint64_t index, std::uint64_t every, std::uint64_t steps) {
  return std::min(index * every, steps);
}

std::vector<float> Evaluation::numbers(std::int64_t width) const {
  std::vector<float> all = {static_cast<float>(loss), static_cast<float>(rewards.chosen),
                            static_cast<float>(rewards.rejected), static_cast<float>(rewards.accuracy)};
  all.resize(static_cast<std::size_t>(width));
  return all;
}

namespace {

// True: the sample has a token to predict. A reward model can learn from every answer that is not empty.
bool has_target(const SampleTokens& sample, bool of_rewards) {
  if (of_rewards) return !sample.ids.empty();
  const auto from = sample.assistant.begin() + (sample.ids.empty() ? 0 : 1);
  return std::any_of(from, sample.assistant.end(), [](std::uint8_t mark) { return mark != 0; });
}

}  // namespace

HeldOut::HeldOut(const Communicator& world, const TrainConfig& config, const HeldOutSource& source)
    : world_(world), config_(config), read_teacher_(source.read_teacher), pad_token_id_(source.pad_token_id) {
  const IndexRange all = source.dataset.records();
  const IndexRange own = micro_batches_of(all.size(), world.rank(), world.size());
  const bool of_rewards = config.of_head();
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> learnt;
  std::vector<std::uint64_t> lengths;
  Samples records;
  std::vector<double> margins;
  source.dataset.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    std::vector<SampleTokens> samples = source.encode(record);
    bool whole = true;
    for (SampleTokens& sample : samples) {
      if (sample.ids.size() > config.batches.max_length) sample.ids.resize(config.batches.max_length);
      for (const TokenId id : sample.ids) {
        MAGISTER_CHECK(
            id >= 0 && id < source.vocab_size, ExitCode::kData,
            "{}: token id {} is outside of the model's vocabulary of {} (it has no embedding or no output); these ids "
            "are another tokenizer's",
            record.where, id, source.vocab_size);
      }
      sample.assistant.resize(sample.ids.size(), sample.assistant.empty() ? 1 : 0);
      whole = whole && has_target(sample, of_rewards);
    }
    if (!whole) return;
    for (const SampleTokens& sample : samples) {
      ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
      learnt.insert(learnt.end(), sample.assistant.begin(), sample.assistant.end());
      lengths.push_back(sample.ids.size());
    }
    records.push_back(record.source_index);
    if (source.margin) margins.push_back(source.margin(record));
  });
  ids_ = gathered(world, ids);
  learnt_ = gathered(world, learnt);
  offset_ = {0};
  for (const std::uint64_t length : gathered(world, lengths)) offset_.push_back(offset_.back() + length);
  records_ = gathered(world, records);
  margins_ = gathered(world, margins);
  MAGISTER_CHECK(offset_.size() > 1, ExitCode::kData,
                 "{}: none of the {} records of train.evaluate.{} has {} (there is no held-out loss); check the data "
                 "set, or remove train.evaluate",
                 config.name, all.size(), source.key,
                 config.of_pairs() ? "two answers that fit into train.max_length" : "a token to predict");
  make_batches();
}

void HeldOut::make_batches() {
  const std::uint64_t most = config_.batches.micro_batch, n = per_item();
  for (std::uint64_t sample = 0; sample + 1 < offset_.size(); ++sample) {
    for (std::uint64_t t = offset_[sample]; t < offset_[sample + 1]; ++t) num_labels_ += has_label(sample, t) ? 1 : 0;
  }
  for (std::uint64_t item = 0; item < num_items(); ++item) {
    const bool fits = !batches_.empty() &&
                      (most > 0 ? batches_.back().size() < most
                                : offset_[(item + 1) * n] - offset_[batches_.back().begin * n] <= kEvaluatedTokens);
    if (fits) {
      batches_.back().end = item + 1;
    } else {
      batches_.push_back({item, item + 1});
    }
  }
}

MicroBatch HeldOut::micro_batch(const IndexRange& items) const {
  const std::uint64_t n = per_item();
  std::vector<SampleTokens> sequences;
  std::vector<std::uint32_t> lengths;
  for (std::uint64_t sample = items.begin * n; sample < items.end * n; ++sample) {
    const auto begin = static_cast<std::ptrdiff_t>(offset_[sample]),
               end = static_cast<std::ptrdiff_t>(offset_[sample + 1]);
    sequences.emplace_back(std::vector(ids_.begin() + begin, ids_.begin() + end),
                           std::vector(learnt_.begin() + begin, learnt_.begin() + end));
    lengths.push_back(static_cast<std::uint32_t>(end - begin));
  }
  MicroBatch batch = micro_batch_of(sequences, !config_.of_head());
  if (config_.of_pairs()) {
    Samples pairs(items.size());
    std::iota(pairs.begin(), pairs.end(), items.begin);
    add_pairs(batch, pairs, pad_token_id_, references_, margins_);
  }
  if (read_teacher_) {
    Samples samples(records_.begin() + static_cast<std::ptrdiff_t>(items.begin),
                    records_.begin() + static_cast<std::ptrdiff_t>(items.end));
    batch.read_teacher = [this, samples = std::move(samples), lengths = std::move(lengths)](HeadLossTargets& targets) {
      read_teacher_(samples, lengths, targets);
    };
  }
  return batch;
}

bool HeldOut::for_own(const std::function<bool()>& stop,
                      const std::function<void(std::span<const MicroBatch>)>& visit) const {
  const IndexRange own = micro_batches_of(batches_.size(), world_.rank(), world_.size());
  const std::uint64_t most = world_.max(own.size());
  for (std::uint64_t done = 0; done < most; done += kEvaluatedAtOnce) {
    if (stop()) return false;
    std::vector<MicroBatch> batches;
    for (std::uint64_t i = own.begin + done; i < std::min(own.end, own.begin + done + kEvaluatedAtOnce); ++i)
      batches.push_back(micro_batch(batches_[i]));
    visit(batches);
  }
  return true;
}

bool HeldOut::compare(Trainer& trainer, const std::function<bool()>& stop, const std::function<void()>& heartbeat) {
  std::vector<double> sums;
  const bool all = for_own(stop, [&](std::span<const MicroBatch> batches) {
    for (const std::vector<double>& of_batch : trainer.sequence_logprobs(batches, heartbeat))
      sums.insert(sums.end(), of_batch.begin(), of_batch.end());
  });
  if (all) references_ = gathered(world_, sums);
  return all;
}

std::optional<Evaluation> HeldOut::evaluate(Trainer& trainer, const std::function<bool()>& stop,
                                            const std::function<void()>& heartbeat) const {
  fail_point("train.evaluate.begin");
  std::vector<HeldOutSums> sums;  // of each micro-batch, in order
  const bool all = for_own(stop, [&](std::span<const MicroBatch> batches) {
    const std::vector<HeldOutSums> some = trainer.losses(batches, heartbeat);
    sums.insert(sums.end(), some.begin(), some.end());
  });
  if (!all) return std::nullopt;
  const double count = static_cast<double>(config_.of_pairs() ? num_items() : num_labels_);
  Evaluation mean;
  for (const HeldOutSums& sum : gathered(world_, sums)) {
    mean.loss += sum.loss;
    mean.rewards.chosen += sum.rewards.chosen;
    mean.rewards.rejected += sum.rewards.rejected;
    mean.rewards.accuracy += sum.rewards.accuracy;
  }
  return Evaluation{mean.loss / count,
                    {mean.rewards.chosen / count, mean.rewards.rejected / count, mean.rewards.accuracy / count}};
}

}  // namespace magister
