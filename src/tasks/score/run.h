// The compute loop of scores: every shard of this rank runs the model over the units that its group claims.
#pragma once

#include <functional>
#include <vector>

#include "magister/run/shard_model.h"
#include "tasks/score/config.h"

namespace magister {

// What stands beside a unit's scores; called on one thread a group.
using MoreColumns = std::function<std::vector<ColumnBytes>(const Unit&)>;

// Runs until no unit is left or the job stops; committed units stay. config and more are kept by reference. Collective over the group.
void run_score_units(const ModelRun& run, const ScoreConfig& config, const MoreColumns& more);

}  // namespace magister
