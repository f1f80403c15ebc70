// WrittenExam: all versions of a finished run, read from its running file, with the order of choices. A function of the
// file and the experiment. Duplicates over the whole exam are duplicate_pairs.h's. Local.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/runtime/stop.h"
#include "tasks/exam/exports.h"
#include "tasks/exam/shuffle.h"
#include "tasks/exam/versions.h"
#include "tasks/exam/worker.h"

namespace magister {

// A version with its objective, complete for the packed file and the exports.
struct ExamVersion {
  std::uint64_t record = 0;
  ItemVersion version;
  ExamItem item;  // choices in the exam's order; only id, kind and objective if the text is no item
  AskedItem asked;
  std::string repeats;  // the id of the item whose words it nearly has; empty: none
};

struct WrittenExam {
  std::vector<ExamObjective> objectives;  // by record
  std::vector<ExamVersion> versions;      // in the order of objectives, items and attempts

  // The accepted items in the order of the exam.
  Exam exam(const std::string& title) const;
};

// Reads the objectives one by one. Throws Error(kData) for a damaged file. Stops early with an empty result if poll
// says so.
WrittenExam read_written_exam(const ResultsFile& running, const ExamSetup& setup, const ExamShape& shape,
                              const StopPoll& poll);

}  // namespace magister
