// WeightSource: reads one shard's slices of a model's weights from the file directly into their final tensors.
// Quantised and 16-bit storage is converted while reading. Memory in addition to the weights: for tensors stored as
// rotary pairs or transposed, a copy of the rows that a thread reads; for packed weights, a part of the rows a thread,
// mostly of 256 KiB; and where a QuantScheme makes codes, one linear layer in f32, with the columns that o_proj and
// down_proj read beyond their slice.
// Legend: D hidden, E head_dim, h and k this shard's query and KV heads, f its MLP columns, v its vocabulary rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"

namespace magister {

class HostCopy;
class StagedUpload;
class ThreadPool;
struct RowBlock;  // src/model/cpu/kept_codes.h
struct LayerParameter;

// Norms of a block (attention or MLP): on its input, and on its output before the residual sum. [D] f32, replicated;
// undefined where the model has none.
struct BlockNorms {
  at::Tensor input_D, output_D{};
  bool centred = false;       // the norm on the input is a layer norm: it subtracts the mean of the row first
  at::Tensor input_bias_D{};  // bias of that layer norm, or undefined
};

// The numbers of a layer's xIELU, see ModelConfig::xielu. Source: arXiv 2411.13010 and transformers' XIELUActivation.
struct Xielu {
  static constexpr float kBeta = 0.5f, kLeast = -1e-6f;
  bool is_on = false;
  float alpha_p = 0, alpha_n = 0;
};

// Linear attention has these weights besides its large products, for h value heads and k key heads of a shard; see
// DeltaConfig.
struct DeltaParts {
  Linear steps;               // [2h, D] f32: the product of each head's strength, then that of its decay
  at::Tensor conv_CW;         // f32 [2k key_dim + h value_dim, taps]: channels of queries, keys and values
  at::Tensor rate_H, bias_H;  // f32: a decay is exp(-rate * softplus(product + bias))
  at::Tensor norm_V;          // f32 [value_dim]
};

// Called before each large tensor is read, on the loading thread. A long load reports progress through it, and can be
// stopped if it throws.
using LoadHook = std::function<void()>;

// All reads are local and thread-safe: several layers may be loaded at once. Weights of products have `dtype` (kFloat,
// kBFloat16, kHalf), norms and biases f32. All tensors are contiguous and on the CPU, unless send_to() was called. If
// quantization is on, the layers' products are quantised and packed: with the file's own codes where all tensors of a
// product hold codes that the scheme keeps, else with codes made from the file's numbers in f32. Embeddings and head
// keep `dtype`.
class WeightSource {
 public:
  // File, description and pool are kept by reference. The partition must be that of tp_rank. The pool's threads share
  // the rows of a product; the bits do not depend on their number.
  WeightSource(const TensorFile& file, const ModelDescription& description, const Partition& partition, int tp_rank,
               at::ScalarType dtype, QuantScheme quantization = {}, ThreadPool* pool = nullptr,
               LoadHook before_product = {});

  // From now on, tables and products that are not quantised are stored on upload's device, contiguous. Codes and
  // everything else stay on the CPU. `upload` is kept by reference.
  void send_to(StagedUpload& upload) { upload_ = &upload; }
  // From now on, products that are not quantised are packed for CPUs: rows are read in small parts directly into
  // panels. `copy`: that of the ranks of this host, which fill it together, or nullptr; its wait() follows the last
  // load.
  void pack_products(std::shared_ptr<HostCopy> copy) {
    packs_ = true;
    copy_ = std::move(copy);
  }
  // Copies a contiguous CPU tensor to that device, with the pool's threads.
  at::Tensor sent(const at::Tensor& host);

  at::Tensor load_embeddings();  // [v, D]
  // [v, D]; the embeddings themselves when tied. A classifier's head has all labels.
  at::Tensor load_lm_head(const at::Tensor& embeddings_vD);
  // The same packed; requires pack_products(), and a head of its own.
  Linear load_packed_embeddings();
  Linear load_packed_lm_head();
  at::Tensor load_lm_head_bias();  // [v] f32; undefined where the model has none
  // [positions, D] in `dtype` on tp_rank 0, which adds them to its part of the embeddings before the sum over shards.
  // Undefined on other ranks, and where the model has none.
  at::Tensor load_positions();
  // A whole table or vector of an encoder, in f32; undefined if the name is empty.
  at::Tensor load_whole(const std::string& name, at::IntArrayRef shape);
  BlockNorms load_norm();  // the last norm, as an input norm; its weights include the factor of the logits

  BlockNorms load_embedding_norm();  // as an input norm; without weights where the model has none
  BlockNorms load_attention_norms(std::int64_t layer);
  BlockNorms load_mlp_norms(std::int64_t layer);
  // [E], or this shard's heads times E where the norm is over all heads; of latent attention's short vectors, whole.
  // Undefined where the model has none.
  at::Tensor load_q_norm(std::int64_t layer);
  at::Tensor load_k_norm(std::int64_t layer);
  // [E]; undefined where the norms are not layer norms.
  at::Tensor load_q_norm_bias(std::int64_t layer);
  at::Tensor load_k_norm_bias(std::int64_t layer);
  at::Tensor load_sinks(std::int64_t layer);  // [h], for this shard's heads; undefined where the model has none

  // [(h + 2k) E, D]: rows of q, then k, then v, whose heads may have another number of rows. Rotary pairs are stored as
  // halves, whatever the file's order. Bias [(h + 2k) E].
  Linear load_qkv_proj(std::int64_t layer);
  // For latent attention load_qkv_proj() returns the rows of the queries' short vector (or of this shard's queries
  // where there is none), then those of the latent and of the rotated key. These two follow. Undefined where the model
  // has no such product: [h E, query_rank]. [h (nope_dim + value_dim), rank] f32: a head's keys, then its values.
  Linear load_q_up_proj(std::int64_t layer);
  at::Tensor load_latent_up_proj(std::int64_t layer);
  // The indexer of a layer that chooses keys, whole on every shard: [heads * head_dim, query_rank] and [head_dim, D],
  // rotated rows as halves; the layer norm of its keys; [heads, D] f32, the weights of its heads.
  Linear load_index_q_proj(std::int64_t layer);
  Linear load_index_k_proj(std::int64_t layer);
  BlockNorms load_index_k_norm(std::int64_t layer);
  Linear load_index_weights(std::int64_t layer);
  // In a layer with linear attention load_qkv_proj() returns the rows of queries and keys of the key heads, then those
  // of values; this is the rest.
  DeltaParts load_delta(std::int64_t layer);
  // [D, h E], with latent attention [D, h value_dim]. The product is partial over the shards, so only tp_rank 0 gets
  // the bias [D]: the sum must contain it once.
  Linear load_o_proj(std::int64_t layer);
  // [gate numbers of this shard's heads, D]; undefined where attention's outputs have no gate.
  Linear load_attention_gate(std::int64_t layer);
  // [2f, D]: rows of gate, then up. Bias [2f]. In an MLP without a gate [f, D] and [f].
  Linear load_gate_up_proj(std::int64_t layer);
  Xielu load_xielu(std::int64_t layer);
  // [D, f], partial like load_o_proj().
  Linear load_down_proj(std::int64_t layer);

  // For layers with experts. The router is [experts, D] f32, replicated, with one more row for the weight of shared
  // experts where the model has one. An expert's products are as above, with f its columns on this shard.
  Linear load_router(std::int64_t layer);
  at::Tensor load_choice_bias(std::int64_t layer);  // [experts] f32; undefined where the model has none
  Linear load_expert_gate_up_proj(std::int64_t layer, std::int64_t expert);
  Linear load_expert_down_proj(std::int64_t layer, std::int64_t expert);

  // A whole vector or small matrix of a layer, in f32 and its own shape; undefined where the model has none.
  at::Tensor load_layer_whole(std::int64_t layer, std::string TensorNames::Layer::* name);
  // A whole product of a layer, like the others; undefined where the model has none.
  Linear load_layer_product(std::int64_t layer, std::string TensorNames::Layer::* name);
  // A whole matrix outside the layers, in `dtype`; undefined where the model has none.
  at::Tensor load_matrix(std::string TensorNames::* name);
  // All whole matrices of a kind, in order.
  std::vector<at::Tensor> load_matrices(std::vector<std::string> TensorNames::* kind);
  // This shard's rows of the table of vectors by layer, [rows, layers P] in `dtype`; undefined: the model has none.
  at::Tensor load_per_layer_table();
  // On tp_rank 0, which adds the product to its part of those vectors: its weight [layers P, D] in `dtype`, and the
  // norm [P] of its output. Undefined on other ranks, and where the model has none.
  at::Tensor load_per_layer_projection();
  at::Tensor load_per_layer_norm();

  // Call this after all loads: throws Error(kData) that names a weight of the file which was never read.
  void verify_all_used() const;
  // Bytes of the tensors returned so far; tied embeddings count once.
  std::uint64_t loaded_bytes() const;
  // Those of them that are in the copy of the host.
  std::uint64_t shared_bytes() const;

 private:
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype);
  // In `dtype`, on the device of tables and plain products.
  at::Tensor allocate_table(at::IntArrayRef shape);
  // width: of the table's rows.
  at::Tensor load_table(const std::string& name, IndexRange rows, std::int64_t width);
  // [N, columns] from blocks that cover all N rows. width: columns of the unsharded tensors. Without a bias.
  Linear load_product(const std::vector<RowBlock>& blocks, std::int64_t N, IndexRange columns, std::uint64_t width);
  // The same in panels.
  Linear load_packed(const std::vector<RowBlock>& blocks, std::int64_t N, IndexRange columns);
  // Counts the bytes of panels and calls `fill`; of panels that are in the host's copy on one of its ranks only.
  void fill_panels(bool is_shared, std::uint64_t num_bytes, const std::function<void()>& fill);
  // A tensor of `dtype` for rows on their way into panels, which is used again once it is given back.
  at::Tensor take_part(at::IntArrayRef shape);
  void give_part_back(const at::Tensor& part_RK);
  void read(const std::string& name, IndexRange rows, IndexRange columns, at::Tensor out);
  // is_sent: out_NK is on send_to()'s device.
  void read_blocks(const std::vector<RowBlock>& blocks, IndexRange columns, const at::Tensor& out_NK, bool is_sent);
  void read_block(const RowBlock& block, IndexRange columns, const at::Tensor& out_RK);
  // The rows of a part if the threads divide N rows.
  std::int64_t even_part(std::int64_t N) const;
  // The largest number of rows that one thread reads at once.
  std::int64_t rows_of_part(const at::Tensor& out_NK, bool is_sent) const;
  Linear load_latent_proj(std::int64_t layer);
  Linear load_delta_proj(std::int64_t layer);
  // Appends rows `rows` of a layer's weight, wherever they are in the file's tensor.
  void add_rows(std::vector<RowBlock>& blocks, std::int64_t layer, std::string TensorNames::Layer::* weight,
                IndexRange rows) const;
  // Appends the rows of this shard's query heads, whose last numbers are rotated.
  void add_latent_queries(std::vector<RowBlock>& blocks, const std::string& name) const;
  // Appends the rows of one head of an indexer.
  void add_index_rows(std::vector<RowBlock>& blocks, const std::string& name, std::int64_t head) const;
  Linear load_partial(const std::string& name, IndexRange columns, std::uint64_t width, const std::string& bias);
  // Appends the rows of these heads of a product's weight.
  void add_heads(std::vector<RowBlock>& blocks, std::int64_t layer, std::string TensorNames::Layer::* weight,
                 IndexRange heads, bool rotary) const;
  // Rows of an expert's weight, which become the outputs from `output` on.
  RowBlock expert_rows(std::int64_t layer, const LayerParameter& row, IndexRange rows, std::int64_t output) const;
  // The columns of an expert, or of a shared one, on this shard.
  IndexRange columns_of(std::int64_t expert) const {
    return expert < description_.config.num_experts ? partition_.expert : partition_.shared_expert;
  }
  // Reads entries `range` of an expert's bias into `out`.
  void read_expert_bias(std::int64_t layer, const LayerParameter& row, IndexRange range, const at::Tensor& out);
  // Rows of this shard's MLP columns in a weight, which become the outputs from `output` on.
  RowBlock mlp_rows(std::int64_t layer, std::string TensorNames::Layer::* weight, std::int64_t output) const;
  // The first row of a weight in the file's tensor, which may hold several weights; the first row of one head in it.
  std::uint64_t first_row(std::int64_t layer, std::string TensorNames::Layer::* weight) const;
  // Rows of one head in a weight or bias of q, k or v.
  std::uint64_t head_rows(std::int64_t layer, std::string TensorNames::Layer::* weight) const;
  std::uint64_t head_row(std::int64_t layer, std::uint64_t first, std::uint64_t head) const;
  void read_head_bias(std::int64_t layer, std::string TensorNames::Layer::* bias, IndexRange heads,
                      const at::Tensor& out, bool rotary);
  at::Tensor load_vector(const std::string& name, IndexRange range);
  at::Tensor load_norm_weight(const std::string& name, IndexRange range);
  // Ones where the model's norms have no weights.
  at::Tensor load_input_norm(const std::string& name, IndexRange range);
  const TensorNames::Layer& names_of(std::int64_t layer) const;
  // Returns the part of this layer, because layers may differ in size.
  Partition part_of(std::int64_t layer) const { return layer_partition(description_.config, partition_, layer); }

  const TensorFile& file_;
  const ModelDescription& description_;
  Partition partition_;
  int tp_rank_;
  at::ScalarType dtype_;
  QuantScheme quantization_;
  ThreadPool* pool_;
  StagedUpload* upload_ = nullptr;
  bool packs_ = false;
  std::shared_ptr<HostCopy> copy_;
  LoadHook before_product_;
  mutable std::mutex mutex_;  // guards the four below
  std::vector<at::Tensor> spare_parts_;
  std::set<std::string> used_;
  std::uint64_t loaded_bytes_ = 0;
  std::uint64_t shared_bytes_ = 0;
};

// Bytes of one shard's weights in memory, exactly what WeightSource returns. Local; of the file only the order of
// quantisation groups is read. Without a file, no codes count as kept. on_gpu: a GPU holds them, whose second product
// of latents is in the activations' dtype, in bf16 with a transposed copy of its keys.
std::uint64_t weight_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_rank, int tp_size,
                           const QuantScheme& quantization = {}, bool on_gpu = false);
std::uint64_t weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                           int tp_rank, int tp_size, const QuantScheme& quantization, bool on_gpu = false);
// Bytes of those weights that the ranks of a host have in one copy (HostCopy), of a whole model without codes: all
// products that load_product() returns, the embeddings and the head. 0 for an encoder.
std::uint64_t host_copy_bytes(const ModelConfig& config, at::ScalarType dtype);
// Bytes of the largest shard.
std::uint64_t model_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_size,
                          const QuantScheme& quantization = {}, bool on_gpu = false);

// Products of the layers (four per layer, or, with experts, two and another two per expert): the number that keeps the
// file's codes, and the number that is quantised while loading. Local.
struct QuantizedProducts {
  std::int64_t kept = 0, made = 0;
};
QuantizedProducts quantized_products(const ModelDescription& description, const TensorFile& file,
                                     const QuantScheme& quantization);

}  // namespace magister
