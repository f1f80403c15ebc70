// Which samples a step learns from and how they are cut into micro-batches: a function of lengths, options and seed alone, never of ranks
// or threads. Words as in Hugging Face's Trainer and TRL: a step takes global_batch sequences, or as many as have batch_tokens; with packing a sequence is several samples,
// one after the other, up to max_length tokens, and none of them sees another.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace magister {

struct BatchOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool packing = false;
  std::uint64_t max_length = 1024;
  std::uint64_t global_batch = 8;  // sequences of a step
  std::uint64_t batch_tokens = 0;  // instead: a step takes sequences up to so many tokens, one at least; 0: not
  std::uint64_t micro_batch = 0;   // sequences at once; 0: as many as have a good number of tokens
  double epochs = 3;
  std::uint64_t steps = 0;  // 0: as epochs say
};

using Samples = std::vector<std::uint64_t>;

// Of an epoch, as far as it is known: no step has more.
struct EpochBounds {
  std::uint64_t longest = 1;  // tokens of a sequence
  std::uint64_t texts = 1;    // that a step computes for each sequence (GRPO)
  std::uint64_t sequences = 1ull << 40, tokens = 1ull << 50;
};
// Micro-batches of a step, at most.
std::uint64_t most_micro_batches(const BatchOptions& options, const EpochBounds& epoch);

class BatchPlan {
 public:
  // lengths: tokens of every sample; 0: the sample has nothing to learn from and takes no part.
  BatchPlan(std::vector<std::uint32_t> lengths, const BatchOptions& options);

  std::uint64_t num_samples() const { return num_samples_; }  // that take part
  std::uint64_t num_steps() const { return num_steps_; }
  // The samples of each micro-batch of a step. Not const: keeps the epoch that it has worked out last.
  std::vector<Samples> micro_batches(std::uint64_t step);
  std::uint64_t epoch_of(std::uint64_t step) const;

 private:
  std::vector<Samples> sequences_of(std::uint64_t epoch) const;
  // First sequence of each step of an epoch, and the end of the last.
  std::vector<std::uint64_t> steps_of(const std::vector<Samples>& sequences) const;
  std::uint64_t tokens_of(const Samples& samples) const;

  std::vector<std::uint32_t> lengths_;
  BatchOptions options_;
  std::uint64_t num_samples_ = 0, num_steps_ = 0;
  std::vector<std::uint64_t> epoch_begins_;  // first step of each epoch, and the end of the last
  std::optional<std::uint64_t> epoch_;       // that sequences_ are of
  std::vector<Samples> sequences_;
  std::vector<std::uint64_t> steps_;  // of them
};

}  // namespace magister
