// The final file of a judge's run: the verdicts of the running file and, as text, the prompts, the replies, and the
// fields of the records that the prompts read. The file can be read and exported without model and data.
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

// Estimated size of the final file before its texts are known: 8 bytes of text per prompt token, half of them for the
// record's fields, and 4 per reply token.
std::uint64_t packed_judge_bytes(const JudgeShape& shape, std::uint64_t num_units);

// Writes results_path. root: its attributes in order, without num_samples and num_tokens. Overwrites the file of an
// earlier attempt. Returns false if poll said that the job should stop. Rank 0 only.
bool pack_verdicts(const JudgePack& pack, const std::string& results_path, const Attributes& root);

}  // namespace magister
