// The final file of a judge's run: its verdicts as they stand in the running file, and what they are about as texts - the prompts, the replies,
// and the fields of the records that the prompts read - so that the file can be read and exported without model and data.
#pragma once

#include <cstdint>
#include <string>

#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/runtime/stop.h"
#include "magister/tasks/generate/record_answers.h"
#include "magister/tasks/judge/prompts.h"
#include "magister/text/tokenizer.h"
#include "tasks/judge/columns.h"

namespace magister {

struct JudgePack {
  const ResultsFile& running;  // every unit committed
  const JudgeShape& shape;
  const JudgePrompts& prompts;
  const Dataset& dataset;
  const RecordAnswers* answers;  // the texts that were judged; null: the records' own answers
  const Tokenizer& tokenizer;
  StopPoll poll;
};

// Of the final file, before its texts are known: 8 bytes of text for a token of a prompt, half of them the record's own fields again.
std::uint64_t packed_judge_bytes(const JudgeShape& shape, std::uint64_t num_units);

// Writes results_path. root: its attributes in order but for num_samples and num_tokens. A file of an earlier attempt is made again. False: poll
// said that the job should stop. Rank 0 alone.
bool pack_verdicts(const JudgePack& pack, const std::string& results_path, const Attributes& root);

}  // namespace magister
