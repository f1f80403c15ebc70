// The summary of a judge's run: what its columns say together, beside the labels of the data set; <task>.summary.json.
#pragma once

#include <string>

#include "magister/io/dataset.h"
#include "magister/io/results_file.h"
#include "magister/tasks/judge_config.h"
#include "magister/run/run_log.h"
#include "tasks/judge_prompts.h"

namespace magister {

struct JudgeReport {
  const JudgeConfig& config;
  const JudgePrompts& prompts;
  const Dataset& dataset;
  const ResultsFile& file;       // every unit committed
  std::uint64_t num_samples;
  std::string answers_path;      // of the generate task whose texts were judged; empty: the records' own answers
  std::string results_path;
  RunLog& log;
  StopPoll poll;                 // asked while labels are read
};

// Labels come from the data set again: they are no part of what is computed. Written whole (a new name, then renamed).
// Throws Error(kData) for a label that is no verdict. False: poll said that the job should stop, nothing was written. Rank 0 alone.
bool write_judge_summary(const JudgeReport& report);

}  // namespace magister
