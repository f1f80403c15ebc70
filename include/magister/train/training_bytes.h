// Memory of a training's rank, for plans: on the host, and on its GPU if that computes the passes. Upper bounds, from
// the numbers of the model alone.
#pragma once

#include <cstdint>

#include "magister/core/memory_parts.h"
#include "magister/model/model_config.h"

namespace magister {

struct TrainingShape {
  std::int64_t adapter = 0;  // numbers of the adapter, if only that has gradients and moments; 0: the model is trained
  bool recompute = false;
  std::int64_t tokens = 0, longest = 0;  // of the largest micro-batch, and of a sequence in it
  std::uint64_t own_micro_batches = 0;   // per step, at most
  int ranks = 1;
  int num_threads = 1;            // micro-batches at once
  int sharing = 1;                // ranks that divide the optimizer
  int with_weights = 1;           // ranks of a host that share the model's weights
  bool sums_on_gpu = false;       // GPU: its rank's own micro-batches are added up there
  bool optimizer_on_gpu = false;  // trained weights and moments are on the GPU
  bool gpus_exchange = false;     // the ranks' gradients are added on the GPUs, see TrainerOptions
  bool bf16 = false;
  bool copies_states = false;  // the host has a copy of a state while it is written, see StateWriter
  bool writes_states = true;   // the first rank; on GPUs the others copy their part of divided moments
};

// Weights and moments of a state.
std::uint64_t state_bytes(const ModelConfig& config, const TrainingShape& shape);
// Host memory that is needed wherever passes are computed: weights, from which a GPU with the optimizer gets its own,
// and gradients and optimizer if they are not on a GPU.
MemoryParts host_training_bytes(const ModelConfig& config, const TrainingShape& shape);
// The same with activations: all that a rank on CPUs needs.
MemoryParts training_bytes(const ModelConfig& config, const TrainingShape& shape);
// On the GPU of a rank: the weights, the optimizer if it is there, gradients that are added up there or on their way to
// the host, activations.
MemoryParts gpu_training_bytes(const ModelConfig& config, const TrainingShape& shape);

}  // namespace magister
