// The samples of a training as planning wrote them into its working file, read back by number in any order; of a distillation with the
// teacher's rows, which stay in the teacher's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/train/batch_plan.h"
#include "magister/train/teacher_rows.h"
#include "magister/train/trainer.h"

namespace magister {

class TrainingData {
 public:
  // Reads lengths and marks of all samples. marked: only the tokens are learnt that /tokens/assistant marks. teacher: may be null; its samples
  // are these, by their numbers, where they were not cut. file and teacher are kept by reference. Throws Error(kData) for offsets that go
  // back. Local.
  TrainingData(const ResultsFile& file, std::uint64_t num_samples, bool marked, TeacherFile* teacher);

  // Tokens of each sample; 0 where there is nothing to learn.
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  // Tokens that are learnt from.
  std::uint64_t num_labels(const Samples& samples) const;
  // Tokens and labels; what fills in the teacher's rows reads them when it is called, sample by sample.
  MicroBatch micro_batch(const Samples& samples) const;
  std::string key(std::uint64_t sample) const;  // safe to print

 private:
  void read_teacher(const Samples& samples, HeadLossTargets& targets) const;

  const ResultsFile& file_;
  bool marked_;
  TeacherFile* teacher_;
  std::vector<std::uint64_t> offset_;
  std::vector<std::uint32_t> lengths_, labels_;
};

}  // namespace magister
