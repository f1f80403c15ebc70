// The summary of a judge's run: what its columns say together, beside the labels of the data set; <task>.summary.json and .csv.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "magister/io/dataset/dataset.h"
#include "magister/run/run_log.h"
#include "magister/tasks/generate/record_answers.h"
#include "magister/tasks/judge/prompts.h"
#include "tasks/judge/config.h"

namespace magister {

struct JudgeReport {
  const JudgeConfig& config;
  const JudgePrompts& prompts;
  const Dataset& dataset;
  // Rows of a column of a results file with every unit committed.
  std::function<void(const char* path, std::uint64_t first_row, std::span<std::byte> data)> read;
  std::uint64_t num_samples;
  const RecordAnswers* answers;  // the texts that were judged; null: the records' own answers
  std::string results_path;
  RunLog& log;
  StopPoll poll;  // asked while labels are read
};

// Labels come from the data set again: they are not part of what is computed. Written whole (a new name, then renamed).
// Throws Error(kData) for a label that is not a verdict. False: poll said that the job should stop, nothing was written. Rank 0 alone.
bool write_judge_summary(const JudgeReport& report);

}  // namespace magister
