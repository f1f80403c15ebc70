// Transformer: one shard of a model that runs packed batches. The fast path is tiled and allocates no [T, V] tensor.
// The slow reference implementation (forward_reference) is the oracle of the tests. Training has a forward pass of its
// own (train/trunk.h).
// Legend: T packed tokens, D hidden, V vocabulary, v this shard's part of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "magister/core/types.h"
#include "magister/device/launch.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/kv_pages.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/weight_store.h"
#include "magister/model/weights.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {

namespace gpu {
struct FixedProduct;  // src/model/gpu/fixed_product.h
}

// Rows of logits that exist on a GPU at a time: 525 MB of f32 for a vocabulary of 128,256, and as many blocks of the
// reduction as 132 multiprocessors run at once.
constexpr std::int64_t kLogitRows = 1024;

// A shard's slice of the output head: rows [vocab.begin, vocab.end) of the vocabulary.
struct LmHead {
  Linear projection;  // [v, D], packed; when tied, it is also the embedding table
  IndexRange vocab;
  std::int64_t vocab_size = 0;
  // Set for a model on a GPU: projection is then plain, and hidden states stay on the device.
  std::optional<gpu::Queue> queue{};
  double softcap = 0;  // logits become softcap * tanh(logits / softcap); 0: none
  // Set for a model on a GPU whose library has an algorithm that gives each row its own bits, for at most kLogitRows
  // rows.
  std::shared_ptr<const gpu::FixedProduct> fixed{};

  // Applies the softcap in place to contiguous logits; for heads on CPUs only.
  void cap(float* logits, std::int64_t count) const;
  // Applies the softcap in place, on the device of the logits.
  at::Tensor capped(const at::Tensor& logits) const;
};

class ModelBackend;  // src/model/model_backend.h: the part that differs between CPUs and GPUs

class Transformer {
 public:
  // Reads this shard's slices of the weights. `group` and `pool` are kept by reference. Local (reads files only).
  // dtype: kFloat, kBFloat16 or kHalf for weights of products; norms stay f32. If quantization is on, the layers'
  // weights are quantised while loading, and `dtype` is that of embeddings and head. kept: a store that may hold the
  // weights already, and that keeps them.
  Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group, ThreadPool& pool,
              at::ScalarType dtype, const QuantScheme& quantization = {}, const LoadHook& hook = {},
              const KeptWeights& kept = {});
  // The same on a GPU that this thread has opened (open_gpu). dtype: see resolve_gpu_dtype. A host queue runs the GPU's
  // code on the CPU, for tests.
  Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group, ThreadPool& pool,
              at::ScalarType dtype, const QuantScheme& quantization, const gpu::Queue& queue, const LoadHook& hook = {},
              const KeptWeights& kept = {});
  // Random weights with the shapes of a config, on a GPU: for measuring speed without a checkpoint.
  Transformer(const ModelConfig& config, ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
              const QuantScheme& quantization, const gpu::Queue& queue);
  ~Transformer();
  Transformer(Transformer&&) noexcept;

  // Hidden states after the last norm, [T, D], or [R, D] of PackedBatch::read_rows, replicated over the group: f32 on
  // the CPU; on a GPU in the activations' dtype, on the device, and only queued. Returns an undefined tensor if
  // should_stop() returned true between two layers (on a GPU it is asked once, before the pass, because passes are
  // queued as a whole). Every shard asks it, and all must get the same answer.
  // Collective over the group.
  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop = {});
  // The same with a KV cache: the first batch.past_S[s] tokens of sequence s are in its slots already, and this call
  // adds the batch's tokens. Bits are those of forward() over whole sequences; they depend neither on how a sequence
  // was cut into passes nor on its neighbours. On a GPU this holds among passes with a cache only, and the next call
  // overwrites the result.
  // Collective over the group.
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache);
  // An empty cache for this shard: num_pages pages of 48 tokens in every layer.
  // num_texts: places for states of linear attention (BlockTable::place).
  KvCache make_cache(std::int64_t num_pages, std::int64_t num_texts = 1) const;
  // Logits of this shard's part of the vocabulary for a few rows: [R, D] -> [R, v], f32, on the device of the hidden
  // states. The bits of a row do not depend on the other rows. Local.
  at::Tensor logits(const at::Tensor& hidden_RD) const;
  // The same as forward() without a cache, by plain ATen code in the weights' dtype. CPU models only. Collective over
  // the group.
  at::Tensor forward_reference(const PackedBatch& batch);

  // The place where a forward pass over the batch first gives NaN or infinity, for messages: "the embeddings", "layer
  // 7", "the last norm", or "the head" if all these are finite. Collective over the group.
  std::string first_not_finite(const PackedBatch& batch);

  // Compares each fast path in use with plain code on one small random block (layer 0 and the head's product). Throws
  // Error(kInternal) with the path and the largest difference. Where plain code gives NaN or infinity, the fast path
  // must too: faulty weights are reported by the pass that uses them. Collective over the group on a GPU, local on a
  // CPU.
  void self_test();

  // Switches CUDA graphs of decoding passes on a GPU; they are on unless MAGISTER_CUDA_GRAPHS=0.
  void use_cuda_graphs(bool on);

  // From now on, attention of sequences of 2,048 tokens or more in passes without a cache goes through cuDNN, one
  // sequence per call (src/model/gpu/cudnn_attention.h). Passes then share no prefixes. It is tried first: throws
  // Error(kConfig) where ATen or the device does not support this model, or where a row would depend on its neighbours.
  // GPU models only. Local.
  void use_cudnn_attention();

  // From now on, products of decoding rows go through cuBLASLt (src/model/gpu/decode_products.h): faster for many texts
  // at once, slower for a few, and with other last bits. Throws Error(kConfig) where the model or the library does not
  // support it. GPU models only. Local.
  void use_throughput_decoding();

  // From now on, make_cache() makes pages of 8-bit floats: a key or value of a KV head is rounded by itself, to e4m3
  // times a power of two, and prompts of passes with such a cache attend to the rounded ones, too. Passes without a
  // cache do not change. Throws Error(kConfig) where check_kv_codes() does. GPU models only. Local.
  void use_fp8_cache();

  const LmHead& lm_head() const;
  // The queue of a model on a GPU: forward() returns before queued passes are done. Null on the CPU.
  const gpu::Queue* queue() const;
  // True if prompt rows and decoding rows go through different kernels. If so, a token must be recomputed the way it
  // was generated.
  bool separates_prefill() const;
  // True if a decoding pass of `rows` texts, the longest with `tokens` tokens, may use PackedBatch::drawn_ids_T.
  bool takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const;
  // True if passes without a cache accept batches of pack_sharing() and give the bits of whole sequences. Decoders on
  // CPUs do. On a GPU, models do whose order of attention's sums does not depend on the number of queries: those in
  // bf16 with flash attention, and those with capped scores, which are summed in double. All shards return the same.
  bool shares_prefixes() const;
  const ModelConfig& config() const;
  ThreadPool& pool() const { return *pool_; }
  ProcessGroup& group() const { return *group_; }
  // Bytes of this shard's weights in memory.
  std::uint64_t weight_bytes() const;
  // True if a model on a GPU holds quantised codes. Passes of many rows then widen them, one product
  // or a slice of experts at a time.
  bool has_codes() const;
  // True if the layers of a model on a GPU multiply 8-bit floats.
  bool multiplies_fp8() const;
  // Floating-point operations of products and attention for a batch of the whole model, without the head. A multiply
  // and an add count as two. Attention counts visible keys within the batch only.
  double forward_flops(const PackedBatch& batch) const;
  double head_flops(std::int64_t num_rows) const;

 private:
  std::unique_ptr<ModelBackend> backend_;
  ProcessGroup* group_;
  ThreadPool* pool_;
};

// Logits of a head's part of the vocabulary: hidden states after the last norm [R, D] -> [R, v] f32, on the device of
// the hidden states. On a GPU a row's bits depend on R unless `fixed` is set and R <= kLogitRows. Local.
at::Tensor logits_of(const LmHead& head, const at::Tensor& hidden_RD, ThreadPool& pool);

// Packs sequences of token ids one after the other. past_S as in PackedBatch; the positions of a sequence start at its
// past.
PackedBatch pack_sequences(const std::vector<std::vector<TokenId>>& sequences, std::vector<std::int64_t> past_S = {});

// Bytes of a page of 48 tokens over all layers of a shard, with f32 numbers; other dtypes need their share of it.
std::uint64_t kv_page_bytes(const ModelConfig& config, const Partition& partition);
// Bytes of the states of one text in a cache (DeltaStates) on a CPU; 0: the model has none.
std::uint64_t delta_state_bytes(const ModelConfig& config, const Partition& partition);

// Upper bound of the bytes of work memory of a forward pass on one shard of a CPU.
std::uint64_t activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                               int num_threads);

// The same on a GPU, where a pass runs as a whole. factors: the type in which the layers multiply, of the activations
// or 8-bit floats. Attention and MLP use the same memory, so the larger of the two counts. sequence_tokens: of the
// longest sequence with keys in a cache; 0: no cache.
std::uint64_t gpu_activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                   std::int64_t sequence_tokens, at::ScalarType factors);

// Bytes of the keys and values that prompts gather out of the pages of a cache, one layer at a time. sequence_tokens:
// of the longest sequence.
std::uint64_t gpu_gathered_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                 std::int64_t sequence_tokens, at::ScalarType dtype);

// Bytes of the rotary tables on a GPU: those that stay, and those of a pass in which the longest sequence needs its
// own. sequence_tokens: of the longest sequence, with its keys in a cache.
std::uint64_t gpu_rotary_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t sequence_tokens);

// Bytes of decoding passes: their buffers, their inputs for every number of rows and keys, and attention's partial
// sums. 0 on all tp_size shards if the decoding kernels do not support the heads of one of them.
std::uint64_t gpu_decoding_bytes(const ModelConfig& config, const Partition& partition, int tp_size,
                                 std::int64_t sequence_tokens, at::ScalarType dtype);

// A part of this model that passes on GPUs do not compute; empty: none.
std::string missing_on_gpus(const ModelConfig& config);
// Throws Error(kConfig) that names this part.
void check_gpu_computes(const ModelConfig& config);

// auto: bf16 where bf16 products are faster on this CPU (see cpu_prefers_bf16), f32 elsewhere.
at::ScalarType resolve_cpu_dtype(const std::string& name);
// auto: bf16; fp8: kFloat8_e4m3fn. Throws Error(kConfig) for f16 and unknown names.
at::ScalarType resolve_gpu_dtype(const std::string& name);
// Dtype of activations, tables, keys and values: bf16 where products are in fp8.
inline at::ScalarType activation_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn ? at::kBFloat16 : dtype;
}
// Texts that one decoding pass on a GPU extends: the most rows that its kernels take, and that cuBLAS multiplies in one
// tile of fp8.
constexpr std::int64_t kGpuDecodingRows = 256;

}  // namespace magister
