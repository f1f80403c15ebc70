// MethodScores: what one score task says about the texts of each record. Every size and range is checked when it is opened. Local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/io/results/reader.h"
#include "magister/parallel/communicator.h"
#include "magister/tasks/score/unread_counts.h"

namespace magister {

struct RecordScores {
  std::vector<float> value;
  std::vector<std::int32_t> answer_class;  // empty: not known
  double mean_tokens = -1;                 // -1: not known
  double mean_guide_kl = -1;               // nats a text; -1: they were not guided
  double mean_flops = -1;                  // a text; -1: not known
  UnreadCounts unread{};                   // where tells_unread()
};

class MethodScores {
 public:
  // Throws Error(kData) for a file that is not complete, of another kind, of other records or with several numbers a text.
  MethodScores(const std::string& path, const Dataset& dataset);

  // Throws Error(kData) on all ranks when the bytes of a unit are not those that were committed. Collective over world.
  void check(const Communicator& world) const;

  std::uint64_t texts_a_record() const { return texts_; }
  bool has_classes() const { return classes_; }
  bool of_model() const { return of_model_; }
  bool tells_unread() const { return unread_; }
  // Of records [begin, end), counted from the slice's first. Throws Error(kData) for classes that are none.
  std::vector<RecordScores> read(IndexRange records) const;

 private:
  ResultsReader file_;
  std::uint64_t texts_ = 1;
  bool classes_ = false, tokens_ = false, guided_ = false, flops_ = false, of_model_ = false, unread_ = false;
};

}  // namespace magister
