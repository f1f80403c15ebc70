// What computes scores on a shard: the model's head at the last token of each sequence of the group's units.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "magister/run/shard_worker.h"
#include "magister/run/unit_writer.h"
#include "tasks/score/config.h"

namespace magister {

// What stands beside a unit's scores; called on one thread a rank.
using MoreColumns = std::function<std::vector<ColumnBytes>(const Unit&)>;

// config is kept by reference. Collective over the group.
std::unique_ptr<ShardWorker> make_score_worker(ShardContext shard, const ScoreConfig& config, MoreColumns more);

}  // namespace magister
