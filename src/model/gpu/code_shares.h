// Who adds what in the products of codes for many texts: all steps of all tiles of a weight, one after the other, are
// cut into equal shares, one for each multiprocessor of an H200. Only the weight's shape decides where, so that a row's
// bits depend neither on the number of rows nor on the device.
// Source: "Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication" (Osama et al., 2023).
#pragma once

#include "model/gpu/product_step.h"

namespace magister::gpu {

// A tile is 256 outputs, a step 64 inputs of a tile. A piece is the sum of the steps of one tile in one share.
struct CodeShares {
  static constexpr int kShares = kMultiprocessors, kOutputs = 256, kInputs = 64;
  int tiles, steps;  // steps of a tile

  static constexpr CodeShares of(std::int64_t N, std::int64_t K) {
    return {static_cast<int>((N + kOutputs - 1) / kOutputs), static_cast<int>((K + kInputs - 1) / kInputs)};
  }
  // Share s has the steps [begin(s), begin(s + 1)) of all tiles; with fewer steps than shares some have none.
  MAGISTER_DEVICE int begin(int share) const {
    return static_cast<int>(static_cast<std::int64_t>(tiles) * steps * share / kShares);
  }
  // The share that has this step.
  MAGISTER_DEVICE int share_of(int step) const {
    const std::int64_t all = static_cast<std::int64_t>(tiles) * steps;
    return static_cast<int>((static_cast<std::int64_t>(step + 1) * kShares + all - 1) / all) - 1;
  }
  // Where the piece of a tile and a share is kept. Both only grow along the steps, so every piece has its own place.
  MAGISTER_DEVICE static int piece(int tile, int share) { return tile + share; }
  constexpr std::int64_t num_pieces() const { return tiles + kShares - 1; }
};

}  // namespace magister::gpu
