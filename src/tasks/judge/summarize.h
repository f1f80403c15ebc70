// Writes a judge's summary again from its complete results file: with other labels, or after the first one was lost.
#pragma once

#include "magister/run/task.h"
#include "tasks/judge/config.h"

namespace magister {

// Only labels may have changed in the data set. If the bytes of the data or of the answers differ from those that were
// judged, every prompt is made again and compared with the file's. Throws Error(kData) if the file is not complete or
// was made from other prompts. One rank: context.world is this rank alone.
void summarize_judge(const RunContext& context, const JudgeConfig& config);

}  // namespace magister
