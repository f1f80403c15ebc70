// WeightSource: reads one shard's slices of a model's weights from its file straight into the tensors that stay.
// Quantised and 16-bit storage is converted on the way; memory above the weights is one attention head's rows a thread at
// most, and where a QuantScheme makes codes one linear layer in f32, with the columns that o_proj and down_proj read beyond
// their slice.
// Legend: D hidden, E head_dim, h and k this shard's query and KV heads, f its MLP columns, v its vocabulary rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"

namespace magister {

class StagedUpload;
class ThreadPool;
struct RowBlock;  // src/model/cpu/kept_codes.h
struct LayerParameter;

// Norms of a block (attention or MLP): on what it reads and on what it adds to the residual stream. [D] f32, replicated; undefined
// where the model has none there.
struct BlockNorms {
  at::Tensor input_D, output_D;
  bool centred = false;       // a layer norm on what it reads: the row's mean is subtracted first
  at::Tensor input_bias_D{};  // of a layer norm; or undefined
};

// Called before each large tensor is read, on the loading thread: a load of hours shows that it goes on, and ends early by
// throwing.
using LoadHook = std::function<void()>;

// All reads are local and thread-safe: several layers may be loaded at once. Weights of products come in `dtype`
// (kFloat, kBFloat16, kHalf), norms and biases in f32; everything contiguous, CPU. With a scheme that is on, the layers'
// products come quantised and packed: with the file's own codes where all tensors of a product hold codes that the scheme
// keeps, else made from the file's numbers in f32; embeddings and head stay in `dtype`.
class WeightSource {
 public:
  // File, description and pool are kept by reference. The partition is that of tp_rank. The pool's threads share the rows
  // of a product; the bits are the same.
  WeightSource(const TensorFile& file, const ModelDescription& description, const Partition& partition, int tp_rank,
               at::ScalarType dtype, QuantScheme quantization = {}, ThreadPool* pool = nullptr,
               LoadHook before_product = {});

  // From here on tables and products that are not quantised come on upload's device, contiguous; codes and all else stay on the CPU. Kept by
  // reference.
  void send_to(StagedUpload& upload) { upload_ = &upload; }
  // A copy of a contiguous CPU tensor there, by the pool's threads.
  at::Tensor sent(const at::Tensor& host);

  at::Tensor load_embeddings();  // [v, D]
  // [v, D]; the embeddings themselves when tied. Of a classifier all labels.
  at::Tensor load_lm_head(const at::Tensor& embeddings_vD);
  // [positions, D] in `dtype` on tp_rank 0, where they join the embeddings before their sum; undefined elsewhere or where there are none.
  at::Tensor load_positions();
  // A table or vector of an encoder, whole, in f32; undefined where the name is empty.
  at::Tensor load_whole(const std::string& name, at::IntArrayRef shape);
  BlockNorms load_norm();  // the last norm, as of a block's input, times the scale of the logits

  BlockNorms load_attention_norms(std::int64_t layer);
  BlockNorms load_mlp_norms(std::int64_t layer);
  // [E], or this shard's heads times E where the norm is over all of them; undefined where the model has none.
  at::Tensor load_q_norm(std::int64_t layer);
  at::Tensor load_k_norm(std::int64_t layer);
  at::Tensor load_sinks(std::int64_t layer);  // [h], of this shard's heads; undefined where the model has none

  // [(h + 2k) E, D]: rows of q, then k, then v; rotary pairs in halves whatever the file's order. Bias [(h + 2k) E].
  Linear load_qkv_proj(std::int64_t layer);
  // [D, h E]. The product is partial over the shards: only tp_rank 0 gets the bias [D], so that the sum has it once.
  Linear load_o_proj(std::int64_t layer);
  // [2f, D]: rows of gate, then up. Bias [2f]. Of an MLP without a gate [f, D].
  Linear load_gate_up_proj(std::int64_t layer);
  // [D, f], partial as o_proj.
  Linear load_down_proj(std::int64_t layer);

  // Of a layer with experts: [experts, D] f32, replicated; and an expert's products as those above, f its columns of this shard.
  Linear load_router(std::int64_t layer);
  Linear load_expert_gate_up_proj(std::int64_t layer, std::int64_t expert);
  Linear load_expert_down_proj(std::int64_t layer, std::int64_t expert);

  // After all loads: a weight of the file that nothing has read is refused by name (Error(kData)).
  void verify_all_used() const;
  // Bytes of the tensors handed out so far; tied embeddings count once.
  std::uint64_t loaded_bytes() const;

 private:
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype);
  // Where tables and plain products stay.
  at::Tensor allocate_table(at::IntArrayRef shape);
  at::Tensor load_table(const std::string& name, IndexRange rows);
  // [N, columns of the whole tensors' `width`], of blocks that cover N. Without a bias.
  Linear load_product(const std::vector<RowBlock>& blocks, std::int64_t N, IndexRange columns, std::uint64_t width);
  void read(const std::string& name, IndexRange rows, IndexRange columns, at::Tensor out);
  // is_sent: out_NK stands where send_to() says.
  void read_blocks(const std::vector<RowBlock>& blocks, IndexRange columns, const at::Tensor& out_NK, bool is_sent);
  void read_block(const RowBlock& block, IndexRange columns, const at::Tensor& out_RK);
  // At most, of one part that a thread reads.
  std::int64_t rows_of_part(const at::Tensor& out_NK, bool is_sent) const;
  Linear load_partial(const std::string& name, IndexRange columns, std::uint64_t width, const std::string& bias);
  // Rows of heads of a product's weight; of the MLP's columns.
  void add_heads(std::vector<RowBlock>& blocks, std::int64_t layer, std::string TensorNames::Layer::* weight,
                 IndexRange heads, bool rotary) const;
  // Rows of an expert's weight that become outputs from `output` on.
  RowBlock expert_rows(std::int64_t layer, const LayerParameter& row, IndexRange rows, std::int64_t output) const;
  // Entries of an expert's bias into out [range].
  void read_expert_bias(std::int64_t layer, const LayerParameter& row, IndexRange range, const at::Tensor& out);
  RowBlock mlp_rows(std::int64_t layer, std::string TensorNames::Layer::* weight, std::int64_t output) const;
  // Where the weight begins in the tensor of its name; a head's rows of it.
  std::uint64_t first_row(std::int64_t layer, std::string TensorNames::Layer::* weight) const;
  std::uint64_t head_row(std::uint64_t first, std::uint64_t head) const;
  void read_head_bias(std::int64_t layer, std::string TensorNames::Layer::* bias, IndexRange heads,
                      const at::Tensor& out, bool rotary);
  at::Tensor load_vector(const std::string& name, IndexRange range);
  at::Tensor load_norm_weight(const std::string& name, IndexRange range);
  const TensorNames::Layer& names_of(std::int64_t layer) const;

  const TensorFile& file_;
  const ModelDescription& description_;
  Partition partition_;
  int tp_rank_;
  at::ScalarType dtype_;
  QuantScheme quantization_;
  ThreadPool* pool_;
  StagedUpload* upload_ = nullptr;
  LoadHook before_product_;
  mutable std::mutex mutex_;  // of the two below
  std::set<std::string> used_;
  std::uint64_t loaded_bytes_ = 0;
};

// Bytes of one shard's weights in memory, exactly what WeightSource hands out. Local, reads nothing but the order of groups.
// Without a file no codes are kept.
std::uint64_t weight_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_rank, int tp_size,
                           const QuantScheme& quantization = {});
std::uint64_t weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                           int tp_rank, int tp_size, const QuantScheme& quantization);
// The largest shard's.
std::uint64_t model_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_size,
                          const QuantScheme& quantization = {});

// The layers' products, four a layer or, with experts, two and two an expert: how many keep the file's codes, and how many are quantised while loading. Local.
struct QuantizedProducts {
  std::int64_t kept = 0, made = 0;
};
QuantizedProducts quantized_products(const ModelDescription& description, const TensorFile& file,
                                     const QuantScheme& quantization);

}  // namespace magister
