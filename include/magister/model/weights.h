// WeightSource: reads one shard's slices of a model's weights from its file straight into the tensors that stay.
// Quantised and 16-bit storage is converted on the way; memory above the weights is one attention head's rows at most, and
// with a QuantScheme one linear layer in f32, with the columns that o_proj and down_proj read beyond their slice.
// Legend: D hidden, E head_dim, h and k this shard's query and KV heads, f its MLP columns, v its vocabulary rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "magister/io/tensor_file.h"
#include "magister/model/matmul.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"

namespace magister {

// All reads are local and thread-safe: several layers may be loaded at once. Weights of products come in `dtype`
// (kFloat, kBFloat16, kHalf), norms and biases in f32; everything contiguous, CPU. With a scheme that is on, the layers'
// products come quantised and packed, from the file's numbers in f32; embeddings and head stay in `dtype`.
class WeightSource {
 public:
  // File and description are kept by reference. The partition is that of tp_rank.
  WeightSource(const TensorFile& file, const ModelDescription& description, const Partition& partition, int tp_rank,
               at::ScalarType dtype, QuantScheme quantization = {});

  at::Tensor load_embeddings();                                // [v, D]
  at::Tensor load_lm_head(const at::Tensor& embeddings_vD);    // [v, D]; the embeddings themselves when tied
  at::Tensor load_norm();                                      // [D], the last norm

  at::Tensor load_input_layernorm(std::int64_t layer);           // [D]
  at::Tensor load_post_attention_layernorm(std::int64_t layer);  // [D]
  at::Tensor load_q_norm(std::int64_t layer);                    // [E], undefined where the model has none
  at::Tensor load_k_norm(std::int64_t layer);

  // [(h + 2k) E, D]: rows of q, then k, then v; rotary pairs in halves whatever the file's order. Bias [(h + 2k) E].
  Linear load_qkv_proj(std::int64_t layer);
  // [D, h E]. The product is partial over the shards: only tp_rank 0 gets the bias [D], so that the sum has it once.
  Linear load_o_proj(std::int64_t layer);
  // [2f, D]: rows of gate, then up. Bias [2f].
  Linear load_gate_up_proj(std::int64_t layer);
  // [D, f], partial as o_proj.
  Linear load_down_proj(std::int64_t layer);

  // After all loads: a weight of the file that nothing has read is refused by name (Error(kData)).
  void verify_all_used() const;
  // Bytes of the tensors handed out so far; tied embeddings count once.
  std::uint64_t loaded_bytes() const;

 private:
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype);
  // Room for a weight as it is read: it stays, or it is the f32 that is quantised.
  at::Tensor allocate_weight(std::int64_t rows, IndexRange columns);
  Linear finished(Linear plain, IndexRange columns, IndexRange covering);
  // [D, columns of the whole tensor's `width`]
  Linear load_partial(const std::string& name, IndexRange columns, std::uint64_t width, const std::string& bias);
  void read(const std::string& name, IndexRange rows, IndexRange columns, at::Tensor out);
  void read_heads(const std::string& name, IndexRange heads, at::Tensor out, bool rotary);
  void read_head_bias(const std::string& name, IndexRange heads, at::Tensor out, bool rotary);
  at::Tensor load_vector(const std::string& name, IndexRange range);
  const TensorNames::Layer& names_of(std::int64_t layer) const;

  const TensorFile& file_;
  const ModelDescription& description_;
  Partition partition_;
  int tp_rank_;
  at::ScalarType dtype_;
  QuantScheme quantization_;
  mutable std::mutex mutex_;  // of the two below
  std::set<std::string> used_;
  std::uint64_t loaded_bytes_ = 0;
};

// Bytes of one shard's weights in memory, exactly what WeightSource hands out. Local, reads nothing.
std::uint64_t weight_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_rank, int tp_size,
                           const QuantScheme& quantization = {});
// The largest shard's.
std::uint64_t model_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_size, const QuantScheme& quantization = {});

}  // namespace magister
