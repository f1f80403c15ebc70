// Decides which samples a step learns from and how they are divided into micro-batches. The plan depends only on
// lengths, options and seed, never on ranks or threads. Terms are those of Hugging Face's Trainer and TRL: a step takes
// global_batch sequences, or as many as have batch_tokens tokens; with packing a sequence holds several samples, one
// after the other, up to max_length tokens, and no sample sees another.
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
  std::uint64_t global_batch = 8;  // sequences per step
  std::uint64_t batch_tokens = 0;  // instead: sequences of up to this many tokens per step, at least one; 0: off
  std::uint64_t micro_batch = 0;   // sequences at once; 0: chosen by their tokens
  double epochs = 3;
  std::uint64_t steps = 0;  // 0: epochs decide
};

using Samples = std::vector<std::uint64_t>;

// Bounds of an epoch, as far as they are known; no step exceeds them.
struct EpochBounds {
  std::uint64_t longest = 1;  // tokens of a sequence
  std::uint64_t texts = 1;    // that a step computes for each sequence (GRPO)
  std::uint64_t sequences = 1ull << 40, tokens = 1ull << 50;
};
// The largest number of micro-batches in a step.
std::uint64_t most_micro_batches(const BatchOptions& options, const EpochBounds& epoch);

class BatchPlan {
 public:
  // lengths: tokens of every sample; 0: the sample has nothing to learn from and is left out.
  BatchPlan(std::vector<std::uint32_t> lengths, const BatchOptions& options);

  std::uint64_t num_samples() const { return num_samples_; }  // those that take part
  std::uint64_t num_steps() const { return num_steps_; }
  // Returns the samples of each micro-batch of a step. Not const: caches the last epoch.
  std::vector<Samples> micro_batches(std::uint64_t step);
  std::uint64_t epoch_of(std::uint64_t step) const;

 private:
  std::vector<Samples> sequences_of(std::uint64_t epoch) const;
  // First sequence of each step of an epoch, then the end of the last step.
  std::vector<std::uint64_t> steps_of(const std::vector<Samples>& sequences) const;
  std::uint64_t tokens_of(const Samples& samples) const;

  std::vector<std::uint32_t> lengths_;
  BatchOptions options_;
  std::uint64_t num_samples_ = 0, num_steps_ = 0;
  std::vector<std::uint64_t> epoch_begins_;  // first step of each epoch, then the end of the last
  std::optional<std::uint64_t> epoch_;       // the epoch of sequences_
  std::vector<Samples> sequences_;
  std::vector<std::uint64_t> steps_;  // first sequence of each step, then the end
};

}  // namespace magister
