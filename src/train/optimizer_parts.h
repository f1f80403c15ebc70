// What the host's optimizer and a GPU's share: the rates of an update, and how the work is cut.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/train/flat_shards.h"
#include "magister/train/optimizer.h"
#include "magister/train/parameters.h"
#include "train/adamw_number.h"

namespace magister {

// Of the update with this number, from 1.
AdamwRates adamw_rates(const OptimizerOptions& options, double lr, double scale, std::uint64_t number);

// Consecutive numbers of one parameter that are the rank's.
struct AdamwTile {
  std::int64_t flat, part;     // where it begins in the weights and in the rank's part
  std::int32_t count, decays;  // decays: 0 or 1
};
// What is the rank's of a bucket, in tiles of at most `most` numbers; all buckets one after the other are all that is the rank's. Padding is in none.
std::vector<AdamwTile> adamw_tiles(const FlatLayout& layout, const FlatShards& shards, int rank, std::int64_t bucket,
                                   std::int64_t most);

}  // namespace magister
