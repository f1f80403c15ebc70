// A judge's summary made again from its complete results file: with other labels, or after the first was lost.
#pragma once

#include "magister/run/task.h"
#include "tasks/judge/config.h"

namespace magister {

// Labels may have changed in the data set, and nothing else: where the data's or the answers' bytes are not those that were judged,
// every prompt is made again and compared with the one in the file. Throws Error(kData) for a file that is not complete or was made
// from other prompts. One rank, context.world alone.
void summarize_judge(const RunContext& context, const JudgeConfig& config);

}  // namespace magister
