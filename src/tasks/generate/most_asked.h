// Reads a batch file for the most that its requests ask for, before model and memory are planned: so no default of the
// task refuses a request.
#pragma once

#include "magister/run/run_context.h"
#include "tasks/generate/config.h"

namespace magister {

// Every rank reads its share of the whole file, slices included, so the numbers are the same for all slices and any
// number of ranks. Values that are refused later, by their lines, count for nothing. Throws Error(kStopped) on every
// rank if the job is asked to stop meanwhile. Collective over context.world.
MostAsked most_asked(const RunContext& context, const GenerateConfig& config);

}  // namespace magister
