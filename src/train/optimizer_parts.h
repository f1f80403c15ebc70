// Shared by the optimizers of host and GPU: the rates of an update, and the division of the work.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/train/flat_shards.h"
#include "magister/train/optimizer.h"
#include "magister/train/parameters.h"
#include "train/adamw_number.h"

namespace magister {

// Rates of the update with this number, from 1.
AdamwRates adamw_rates(const OptimizerOptions& options, double lr, double scale, std::uint64_t number);

// Consecutive numbers of one parameter that belong to the rank.
struct AdamwTile {
  std::int64_t flat, part;     // where it begins in the weights and in the rank's part
  std::int32_t count, decays;  // decays: 0 or 1
};
// Returns the rank's numbers of a bucket in tiles of at most `most` numbers; all buckets in order are all of the rank's
// numbers. No tile contains padding.
std::vector<AdamwTile> adamw_tiles(const FlatLayout& layout, const FlatShards& shards, int rank, std::int64_t bucket,
                                   std::int64_t most);

}  // namespace magister
