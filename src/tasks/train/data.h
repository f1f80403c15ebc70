// The samples of a training as planning wrote them into its working file, read back by number in any order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/train/batch_plan.h"
#include "magister/train/trainer.h"

namespace magister {

class TrainingData {
 public:
  // Reads lengths and marks of all samples. file is kept by reference. Throws Error(kData) for offsets that go back. Local.
  TrainingData(const ResultsFile& file, std::uint64_t num_samples, bool assistant_only);

  // Tokens of each sample; 0 where there is nothing to learn.
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  // Tokens that are learnt from.
  std::uint64_t num_labels(const Samples& samples) const;
  MicroBatch micro_batch(const Samples& samples) const;
  std::string key(std::uint64_t sample) const;  // safe to print

 private:
  const ResultsFile& file_;
  bool assistant_only_;
  std::vector<std::uint64_t> offset_;
  std::vector<std::uint32_t> lengths_, labels_;
};

}  // namespace magister
