// What a shard on a CPU holds: its weights by layer, its partition, and the rotary tables of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "model/cpu/decoder_layer.h"

namespace magister {

// cos and sin for every packed token. A sequence has the common table, or its own where scaling depends on its
// length; the rows point into the tables held here.
struct RopeTables {
  std::vector<at::Tensor> tables;  // [positions, R/2] f32, R = rotary_dim: cos, sin, cos, sin, ...
  std::vector<RopeRows> rows;      // by LayerShape::rope_table
  std::int64_t half = 0;
  at::Tensor gather_cos(const LayerShape& shape) const;  // [T, R/2]
  at::Tensor gather_sin(const LayerShape& shape) const;
};

struct CpuWeights {
  ModelConfig config;
  Partition partition;
  Linear embedding;  // [v, D]: the head's when tied, else plain
  Linear positions;  // [positions, D], plain, of shard 0 of a model that learned them; else undefined
  BlockNorms norm;   // the last one, as of a block's input
  LmHead lm_head;
  std::vector<DecoderLayer> decoder;
  std::uint64_t num_bytes = 0;

  RopeTables rope_tables(const PackedBatch& batch) const;
  float embedding_scale() const { return embedding_multiplier(config, embedding.dtype()); }
};

// dtype and quantization: see Transformer. Local (reads files only).
CpuWeights load_cpu_weights(const ModelDescription& description, const TensorFile& file, int tp_rank, int tp_size,
                            at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                            const LoadHook& hook);

}  // namespace magister
