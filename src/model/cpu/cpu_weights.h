// Weights of one shard on a CPU by layer, its partition, and the rotary tables of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "model/cpu/decoder_layer.h"

namespace magister {

// cos and sin of every packed token. The rows point into the tables held here, which have a row for each position of
// the batch, not for the positions before it. Sequences share a table, but where scaling depends on the length, a long
// sequence has its own.
struct RopeTables {
  std::vector<at::Tensor> tables;  // [positions of the batch, R/2] f32, R = rotary_dim: cos, sin, cos, sin, ...
  std::vector<RopeRows> rows;      // indexed by LayerShape::rope_table
  at::Tensor gather_cos(const LayerShape& shape) const;  // [T, R/2]
  at::Tensor gather_sin(const LayerShape& shape) const;
};

struct CpuWeights {
  ModelConfig config;
  Partition partition;
  Linear embedding;           // [v, D]: the head's panels when tied, else plain
  Linear positions;           // [positions, D], plain, on shard 0 of a model with learned positions; else undefined
  BlockNorms embedding_norm;  // of the embeddings, as an input norm; without weights in most models
  BlockNorms norm;            // the last norm, as an input norm
  LmHead lm_head;
  std::vector<DecoderLayer> decoder;
  PerLayerInputs per_layer;
  AltUpEnds altup_ends;
  // Shapes of layers that differ from the first in size; empty in most models.
  std::vector<LayerShape> other_shapes{};
  // By layer: the number of its pages in a cache, and in a pass without one, where layers of a kind share pages.
  std::vector<std::size_t> cache_places{}, pass_places{};
  bool has_codes = false;                         // some weights are quantised
  std::uint64_t num_bytes = 0, shared_bytes = 0;  // of all, and of those in the host's copy

  RopeTables rope_tables(const PackedBatch& batch) const;
  float embedding_scale() const { return embedding_multiplier(config, embedding.dtype()); }
};

// dtype and quantization: see Transformer. shared: the copy of this shard that the ranks of the host have together, or
// nullptr. Local (reads files only); with `shared` it waits for what other ranks read.
CpuWeights load_cpu_weights(const ModelDescription& description, const TensorFile& file, int tp_rank, int tp_size,
                            at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                            const LoadHook& hook, std::shared_ptr<HostCopy> shared = nullptr);

}  // namespace magister
