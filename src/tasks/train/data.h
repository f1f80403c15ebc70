// The samples of a training as planning wrote them into its working file, read back by number in any order; of a distillation with the
// teacher's rows, which stay in the teacher's file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/train/batch_plan.h"
#include "magister/train/teacher_rows.h"
#include "magister/train/trainer.h"
#include "tasks/train/config.h"

namespace magister {

// Tokens of a sample that are learnt from; of a reward model, which reads one number of it, and of a prompt all. assistant: its marks, where the
// task has some.
std::uint32_t learnt_tokens(const TrainConfig& config, std::uint64_t length, std::span<const std::uint8_t> assistant);
// Samples that a step takes or leaves together.
std::uint64_t samples_an_item(const TrainConfig& config);
// Throws Error(kData) with what to do where no item has anything to learn from. num_items, longest: of all samples. teacher: the file of a
// distillation. Local.
void check_learns(const TrainConfig& config, std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t longest,
                  const std::string& teacher);

// Items are what a step takes global_batch of: samples of the file, or pairs of two, 2i and 2i + 1.
class TrainingData {
 public:
  // Reads lengths and marks of all samples. teacher: may be null; its samples are these, by their numbers, where they were not cut. file and
  // teacher are kept by reference. pad_token_id: of a reward model, the token that no reward is read from. Throws Error(kData) for offsets
  // that go back. Local.
  TrainingData(const ResultsFile& file, std::uint64_t num_samples, const TrainConfig& config, TeacherFile* teacher,
               TokenId pad_token_id);

  std::uint64_t num_items() const { return items_.size(); }
  // Tokens of each item; 0 where there is nothing to learn: of pairs, from one of the two.
  const std::vector<std::uint32_t>& lengths() const { return items_; }
  // Tokens that are learnt from.
  std::uint64_t num_labels(const Samples& items) const;
  // Tokens and labels; what fills in the teacher's rows reads them when it is called, sample by sample.
  MicroBatch micro_batch(const Samples& items) const;
  std::string key(std::uint64_t item) const;  // safe to print
  // Of one sample, all that the file has.
  std::vector<TokenId> tokens(std::uint64_t sample) const;

  // Of pairs, before micro_batch(): by sample what the reference model says of it, by pair the margin; empty: 0.
  void set_references(std::vector<double> logprobs) { references_ = std::move(logprobs); }
  void set_margins(std::vector<double> margins) { margins_ = std::move(margins); }
  // Of a value model, before micro_batch(), by sample.
  void set_labels(std::vector<double> labels) { value_labels_ = std::move(labels); }

 private:
  bool of_pairs() const { return objective_ == Objective::kDpo || objective_ == Objective::kReward; }
  std::uint64_t per_item() const { return per_item_; }
  void add_pairs(const Samples& items, MicroBatch& batch) const;
  void add_values(const Samples& samples, MicroBatch& batch) const;
  std::vector<std::int64_t> marked_rows(std::uint64_t sample) const;

  const ResultsFile& file_;
  Objective objective_;
  std::uint64_t per_item_;
  bool marked_;
  TeacherFile* teacher_;
  TokenId pad_token_id_;
  std::vector<std::uint64_t> offset_;
  std::vector<std::uint32_t> lengths_, labels_;  // by sample
  std::vector<std::uint32_t> items_;
  std::vector<double> references_, margins_, value_labels_;
};

// Of pair `number` of a batch - sequences 2i and 2i + 1 - the rows that rewards are read from. pad_token_id: -1: none.
Pair pair_of(const TrainBatch& tokens, std::size_t number, TokenId pad_token_id);
// The teacher's rows of these samples' first tokens, so many of each, one after the other. Any thread.
void read_teacher_rows(TeacherFile& teacher, const Samples& samples, const std::vector<std::uint32_t>& lengths,
                       HeadLossTargets& targets);

}  // namespace magister
