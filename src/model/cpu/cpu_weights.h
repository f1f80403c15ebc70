// What a Transformer holds: the shard's weights by layer, its partition, and the rotary tables of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/gpu_model.h"

namespace magister {

// cos and sin for every packed token. A sequence has the common table, or its own where dynamic scaling depends on its
// length; the rows point into the tables held here.
struct RopeTables {
  std::vector<at::Tensor> tables;  // [positions, E/2] f32: cos, sin, cos, sin, ...
  RopeRows rows;
  std::int64_t half = 0;
  at::Tensor gather_cos() const;  // [T, E/2]
  at::Tensor gather_sin() const;
};

struct TransformerLayers {
  ModelConfig config;
  Partition partition;
  Linear embedding;  // [v, D]: the head's when tied, else plain
  at::Tensor norm_D;
  LmHead lm_head;
  std::vector<DecoderLayer> decoder;
  std::uint64_t weight_bytes = 0;
  ProcessGroup* group = nullptr;
  ThreadPool* pool = nullptr;
  std::unique_ptr<gpu::GpuModel> gpu;  // then embedding, norm and decoder are there and not here

  RopeTables rope_tables(const PackedBatch& batch) const;
};

LayerShape shape_of(const ModelConfig& config, const Partition& partition, std::int64_t layer);

// Throws Error(kConfig): the keys that stand in a cache would have to turn with every token.
void refuse_dynamic_rope_with_cache(const PackedBatch& batch, const ModelConfig& config, std::int64_t length);

TransformerLayers load_layers(const ModelDescription& description, const TensorFile& file, int tp_rank, int tp_size,
                              at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                              const LoadHook& hook);

// The same onto a GPU (or, on a host queue, into CPU tensors that the kernels work on).
TransformerLayers load_layers_on_gpu(const ModelDescription& description, const TensorFile& file, ProcessGroup& group,
                                     at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                                     const gpu::Queue& queue, const LoadHook& hook);
TransformerLayers random_layers_on_gpu(const ModelConfig& config, ProcessGroup& group, at::ScalarType dtype,
                                       const QuantScheme& quantization, const gpu::Queue& queue);

}  // namespace magister
