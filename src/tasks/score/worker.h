// The worker that computes scores on a shard: the logits of the head for each sequence of the units of the group.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "magister/run/shard_worker.h"
#include "magister/run/unit_writer.h"
#include "tasks/score/config.h"

namespace magister {

// Further columns of a unit, in addition to its scores; called on one thread per rank.
using MoreColumns = std::function<std::vector<ColumnBytes>(const Unit&)>;

// config is kept by reference. Collective over the group.
std::unique_ptr<ShardWorker> make_score_worker(ShardContext shard, const ScoreConfig& config, MoreColumns more);

}  // namespace magister
