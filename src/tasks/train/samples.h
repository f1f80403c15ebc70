// The samples of a training as planning wrote them into its working file, read back by number in any order.
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

// Items are what a step takes global_batch of: samples of the file, or pairs of two, 2i and 2i + 1.
class TrainingSamples {
 public:
  // Reads lengths and marks of all samples. file is kept by reference. Throws Error(kData) for offsets that go back.
  // Local.
  TrainingSamples(const ResultsFile& file, std::uint64_t num_samples, const TrainConfig& config);

  std::uint64_t num_items() const { return items_.size(); }
  // Tokens of each item; 0 where there is nothing to learn: of pairs, from one of the two.
  const std::vector<std::uint32_t>& lengths() const { return items_; }
  // Tokens that are learnt from.
  std::uint64_t num_labels(const Samples& items) const;
  // Tokens and labels; of a head that is trained no token has a label.
  MicroBatch micro_batch(const Samples& items) const;
  std::string key(std::uint64_t item) const;  // safe to print
  // Of one sample, all that the file has.
  std::vector<TokenId> tokens(std::uint64_t sample) const;

  // Of one sample, the rows of its tokens that are marked.
  std::vector<std::int64_t> marked_rows(std::uint64_t sample) const;

 private:
  const ResultsFile& file_;
  std::uint64_t per_item_;
  bool has_labels_, marked_;
  std::vector<std::uint64_t> offset_;
  std::vector<std::uint32_t> lengths_, labels_;  // by sample
  std::vector<std::uint32_t> items_;
};

// Row t has a label where token t + 1 is marked, or where nothing is; has_labels: false: none has.
MicroBatch micro_batch_of(std::span<const SampleTokens> sequences, bool has_labels);
// The pairs of a micro-batch - sequences 2i and 2i + 1 - with the rows that rewards are read from (pad_token_id: -1:
// none), their log-probabilities by the reference (by sample; empty: 0) and their margins (by item; empty: 0).
void add_pairs(MicroBatch& batch, const Samples& items, TokenId pad_token_id, std::span<const double> references,
               std::span<const double> margins);

}  // namespace magister
