// ScoresFile: the results of one score task for the texts of each record, for a task that compares them. Sizes are
// checked on opening, answer classes and reasons on reading. Local.
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
  double mean_guide_kl = -1;               // nats per text; -1: the texts were not guided
  double mean_flops = -1;                  // per text; -1: not known
  UnreadCounts unread{};                   // if reports_unread()
};

class ScoresFile {
 public:
  static const char* const kUnreadColumn;  // path of the column with the reasons

  // Throws Error(kData) if the file is not complete, of another kind, of other records or has several numbers per text.
  ScoresFile(const std::string& path, const Dataset& dataset);

  // Throws Error(kData) on all ranks if the bytes of a unit differ from the committed ones. Collective over world.
  void check(const Communicator& world) const;

  std::uint64_t texts_a_record() const { return texts_; }
  bool has_classes() const { return classes_; }
  bool of_model() const { return of_model_; }
  bool reports_unread() const { return unread_; }
  // Scores of records [begin, end), counted from the slice's first. Throws Error(kData) for invalid classes.
  std::vector<RecordScores> read(IndexRange records) const;

 private:
  ResultsReader file_;
  std::uint64_t texts_ = 1;
  bool classes_ = false, tokens_ = false, guided_ = false, flops_ = false, of_model_ = false, unread_ = false;
};

}  // namespace magister
