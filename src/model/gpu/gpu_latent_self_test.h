// Latent attention of a layer on a GPU for plain code, with which the self-test compares it.
#pragma once

#include "model/cpu/attention.h"
#include "model/gpu/gpu_indexer.h"

namespace magister::gpu {

// Fills `latent` and `indexer` with f32 weights on the layer's device.
void add_plain_latents(const GpuLayer& layer, AttentionWeights& weights, const Queue& queue);

// The keys that the rows of a pass without a cache have chosen, by sequence: rounding may decide which of two keys is
// chosen, so plain code sees the same.
KeysAndValues seen_keys(const PackedBatch& batch, const SparseRows& sparse);

}  // namespace magister::gpu
