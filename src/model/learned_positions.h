// The check that every position of a batch has a learned vector, for all backends.
#pragma once

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/model/batch.h"
#include "magister/model/model_config.h"

namespace magister {

// Throws Error(kConfig) for a position that the model has not learned. Every shard calls this, so that all of them
// stop.
inline void check_positions(const ModelConfig& config, const PackedBatch& batch) {
  if (!config.learned_positions || batch.num_tokens() == 0) return;
  const std::int64_t last = batch.positions_T.max().item<std::int64_t>();
  MAGISTER_CHECK(last < config.max_position_embeddings, ExitCode::kConfig,
                 "a sequence of {} tokens is longer than the {} positions that this model has learned (there is no "
                 "vector for a later one); use shorter sequences",
                 last + 1, config.max_position_embeddings);
}

}  // namespace magister
