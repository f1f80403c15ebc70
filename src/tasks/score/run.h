// The compute loop of scores: every shard of this rank runs the model over the units that its group claims.
#pragma once

#include "magister/run/shard_model.h"
#include "tasks/score/config.h"

namespace magister {

// Runs until no unit is left or the job stops; committed units stay. Collective over the group.
void run_score_units(const ModelRun& run, ScoreFunction function);

}  // namespace magister
