// Writes the summary of a judge's run, from its columns and the labels of the data set: <task>.summary.json and .csv.
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
  // Reads rows of a column of a results file whose units are all committed.
  std::function<void(const char* path, std::uint64_t first_row, std::span<std::byte> data)> read;
  std::uint64_t num_samples;
  const RecordAnswers* answers;  // the texts that were judged; null: the records' own answers
  std::string results_path;
  RunLog& log;
  StopPoll poll;  // called while labels are read
};

// Reads the labels from the data set again: they are not part of the results. Each file is replaced atomically (written
// under a new name, then renamed). Throws Error(kData) for a label that is not a verdict. Returns false if poll said
// that the job should stop; then nothing was written. Rank 0 only.
bool write_judge_summary(const JudgeReport& report);

}  // namespace magister
