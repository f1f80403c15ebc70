// Reads the samples of a training, by number and in any order, from the working file that the planning wrote.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/runtime/sample_tokens.h"
#include "magister/train/batch_plan.h"
#include "magister/train/trainer.h"
#include "tasks/train/config.h"

namespace magister {

// An item is a sample of the file, or the pair of samples 2i and 2i + 1. A step takes global_batch items.
class TrainingSamples {
 public:
  // Reads lengths and marks of all samples. file is kept by reference. Throws Error(kData) for offsets that decrease.
  // Local.
  TrainingSamples(const ResultsFile& file, std::uint64_t num_samples, const TrainConfig& config);

  std::uint64_t num_items() const { return items_.size(); }
  // Number of tokens of each item; 0: nothing to learn from, in a pair from one of the two.
  const std::vector<std::uint32_t>& lengths() const { return items_; }
  // Number of tokens that are learnt.
  std::uint64_t num_labels(const Samples& items) const;
  // Tokens and labels; no token has a label if a head of labels is trained.
  MicroBatch micro_batch(const Samples& items) const;
  std::string key(std::uint64_t item) const;  // safe to print
  // The tokens of a sample; none if it has nothing to learn from.
  std::vector<TokenId> tokens(std::uint64_t sample) const;

  // The rows (from 0) of the marked tokens of a sample.
  std::vector<std::int64_t> marked_rows(std::uint64_t sample) const;

 private:
  const ResultsFile& file_;
  std::uint64_t per_item_;
  bool has_labels_, marked_;
  std::vector<std::uint64_t> offset_;
  std::vector<std::uint32_t> lengths_, labels_;  // by sample
  std::vector<std::uint32_t> items_;
};

// Row t has a label if token t + 1 is marked or no token is. has_labels: false: no row has one.
MicroBatch micro_batch_of(std::span<const SampleTokens> sequences, bool has_labels);
// Adds the pairs of a micro-batch, sequences 2i and 2i + 1: the rows that rewards are read from (pad_token_id: -1:
// none), their log-probabilities by the reference (by sample; empty: 0) and their margins (by item; empty: 0).
void add_pairs(MicroBatch& batch, const Samples& items, TokenId pad_token_id, std::span<const double> references,
               std::span<const double> margins);

}  // namespace magister
