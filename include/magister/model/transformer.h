// Transformer: one shard of a decoder-only model that runs packed batches. The fast path is tiled and allocates no
// [T, V] tensor; the slow reference implementation (forward_reference) is the oracle of the tests. Training has a forward of its own
// (train/trunk.h).
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

// Rows of logits that stand on a GPU at a time: 525 MB of f32 for a vocabulary of 128,256, and as many blocks of the reduction as 132
// multiprocessors hold at once.
constexpr std::int64_t kLogitRows = 1024;

// The output head's slice of a shard: rows [vocab.begin, vocab.end) of the vocabulary.
struct LmHead {
  Linear projection;  // [v, D], packed; the embedding table as well when tied
  IndexRange vocab;
  std::int64_t vocab_size = 0;
  std::optional<gpu::Queue> queue{};  // of a model on a GPU: projection is plain there, and hidden states stay there
  double softcap = 0;                 // logits become softcap * tanh(logits / softcap); 0: none
  // Of a model on a GPU, where a library has one: an algorithm for kLogitRows rows at most that gives each row its own bits.
  std::shared_ptr<const gpu::FixedProduct> fixed{};

  // In place, contiguous; only for heads of CPUs.
  void cap(float* logits, std::int64_t count) const;
  // In place, where they are.
  at::Tensor capped(const at::Tensor& logits) const;
};

class ModelBackend;  // src/model/model_backend.h: a CPU's, a GPU's

class Transformer {
 public:
  // Reads this shard's slices of the weights. `group` and `pool` are kept by reference. Local (reads files only).
  // dtype: kFloat, kBFloat16 or kHalf for weights of products; norms stay f32. With a quantization that is on, the layers'
  // weights are quantised while loading and `dtype` is that of embeddings and head. kept: where they may stand already, and stay.
  Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group, ThreadPool& pool,
              at::ScalarType dtype, const QuantScheme& quantization = {}, const LoadHook& hook = {},
              const KeptWeights& kept = {});
  // The same on a GPU, where the thread has opened it (open_gpu); dtype: see resolve_gpu_dtype. A host queue runs the GPU's code
  // on the CPU, for tests.
  Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group, ThreadPool& pool,
              at::ScalarType dtype, const QuantScheme& quantization, const gpu::Queue& queue, const LoadHook& hook = {},
              const KeptWeights& kept = {});
  // Random weights of a config's shapes on a GPU, for measuring speed without a checkpoint.
  Transformer(const ModelConfig& config, ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
              const QuantScheme& quantization, const gpu::Queue& queue);
  ~Transformer();
  Transformer(Transformer&&) noexcept;

  // Hidden states after the last norm, [T, D] f32, CPU, replicated over the group; on a GPU in the weights' type, on the device,
  // and only queued. Returns an undefined tensor when should_stop() said yes between two layers (a GPU's passes are queued whole:
  // asked once, before); it is asked on every shard and must answer the same on all of them.
  // Collective over the group.
  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop = {});
  // The same for rows whose sequences go on from a cache: batch.past_S tokens of sequence s stand in its slots already, and
  // this batch's join them. Bits are those of forward() over the whole sequences: they depend neither on how a sequence
  // was cut into passes nor on its neighbours; on a GPU they are those of the same cached passes, and the next call overwrites the result.
  // Collective over the group.
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache);
  // An empty cache for this shard: num_pages pages of 48 tokens in every layer.
  KvCache make_cache(std::int64_t num_pages) const;
  // Logits of this shard's part of the vocabulary for a few rows: [R, D] -> [R, v], f32, where the hidden states are. A row's bits
  // do not depend on the others. Local.
  at::Tensor logits(const at::Tensor& hidden_RD) const;
  // The same by plain ATen code in the weights' dtype. CPU models only. Collective over the group.
  at::Tensor forward_reference(const PackedBatch& batch);

  // Where the first numbers that are not finite come up in a forward pass over the batch: "the embeddings", "layer 7", "the last norm"
  // or, after all of them, "the head"; empty on a GPU, whose passes are not looked into. For messages. Collective over the group.
  std::string first_not_finite(const PackedBatch& batch);

  // Compares each fast path in use with plain code on one small random block (layer 0 and the head's product) and
  // throws Error(kInternal) naming the path and the largest difference. Where plain code gives no finite number the fast path must not,
  // either: weights are judged by the rows that they give. Local.
  void self_test();

  // Of a model on a GPU: whether decoding passes are CUDA graphs (they are, unless MAGISTER_CUDA_GRAPHS=0).
  void use_cuda_graphs(bool on);

  // Attention of texts of 2,048 tokens or more in passes without a cache goes through cuDNN from now on, a text a call (src/model/gpu/cudnn_attention.h);
  // passes then share no beginnings. Tried before: throws Error(kConfig) where ATen or the device has none for this model, or where a row would depend on
  // its neighbours. GPU models only. Local.
  void use_cudnn_attention();

  // Products of rows of texts that are being written go through cuBLASLt from now on (src/model/gpu/decode_products.h): faster for many texts at once,
  // slower for a few, and other last bits. Throws Error(kConfig) where the model or the library does not take it. GPU models only. Local.
  void use_throughput_decoding();

  const LmHead& lm_head() const;
  // Of a model on a device with a queue of its own, whose passes are queued and not yet done when forward() returns; null: on the CPU.
  const gpu::Queue* queue() const;
  // Whether rows of prompts and rows of texts go through different kernels: a token must be computed again the way it was written.
  bool separates_prefill() const;
  // Whether a pass of so many texts, the longest of so many tokens, may have PackedBatch::drawn_ids_T.
  bool takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const;
  // Whether passes without a cache take batches of pack_sharing() with the bits of whole sequences: decoders on CPUs, and on GPUs where the order
  // of attention's sums does not depend on the number of queries, so in bf16 by flash attention, or with capped scores, which are summed in
  // double. Equal on all shards.
  bool shares_prefixes() const;
  const ModelConfig& config() const;
  ThreadPool& pool() const { return *pool_; }
  ProcessGroup& group() const { return *group_; }
  // Bytes of this shard's weights in memory.
  std::uint64_t weight_bytes() const;
  // Of a model on a GPU: whether its layers hold codes, which passes of many rows make plain, a product at a time.
  bool has_codes() const;
  // Floating-point operations of the products and of attention for a batch, whole model, without the head.
  // Multiply and add count as two; attention counts the visible keys only.
  double forward_flops(const PackedBatch& batch) const;
  double head_flops(std::int64_t num_rows) const;

 private:
  std::unique_ptr<ModelBackend> backend_;
  ProcessGroup* group_;
  ThreadPool* pool_;
};

// Logits of a head's part of the vocabulary: hidden states after the last norm [R, D] -> [R, v] f32, where they are. On a GPU their bits
// depend on R. Local.
at::Tensor logits_of(const LmHead& head, const at::Tensor& hidden_RD, ThreadPool& pool);

// Packs sequences of token ids one after the other. past_S as in PackedBatch; positions start there.
PackedBatch pack_sequences(const std::vector<std::vector<TokenId>>& sequences, std::vector<std::int64_t> past_S = {});

// Bytes of a page of 48 tokens over all layers of a shard.
std::uint64_t kv_page_bytes(const ModelConfig& config, const Partition& partition);

// Bytes of work memory of a forward pass on one shard, upper bound.
std::uint64_t activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                               int num_threads);

// The same on a GPU, where a pass runs whole; dtype: of the activations. The largest of attention's and the MLP's part counts.
// sequence_tokens: of the longest sequence whose keys are kept; 0: none are.
std::uint64_t gpu_activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                   std::int64_t sequence_tokens, at::ScalarType dtype);

// The same of the keys and values that prompts with a cache gather out of its pages, a layer at a time. sequence_tokens: of the longest
// sequence.
std::uint64_t gpu_gathered_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                 std::int64_t sequence_tokens, at::ScalarType dtype);

// The same of decoding passes: the places that they work in, their inputs for every number of rows and keys, and attention's sums. 0
// on all tp_size shards alike where one's heads are none that the kernels take.
std::uint64_t gpu_decoding_bytes(const ModelConfig& config, const Partition& partition, int tp_size,
                                 std::int64_t sequence_tokens, at::ScalarType dtype);

// What this model asks for and the passes on GPUs do not compute, in words; empty: nothing. Throws Error(kConfig) naming it.
std::string missing_on_gpus(const ModelConfig& config);
void check_gpu_computes(const ModelConfig& config);

// auto: bf16 where bf16 products are faster on this CPU (see cpu_prefers_bf16), f32 elsewhere.
at::ScalarType resolve_cpu_dtype(const std::string& name);
// auto: bf16; fp8: kFloat8_e4m3fn. Throws Error(kConfig) for f16 and unknown names.
at::ScalarType resolve_gpu_dtype(const std::string& name);
// Of activations, tables, keys and values: bf16 where products are in fp8.
inline at::ScalarType activation_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn ? at::kBFloat16 : dtype;
}
// Texts that a decoding pass on a GPU writes at once: as many rows as its kernels take, and as cuBLAS multiplies in one tile of fp8.
constexpr std::int64_t kGpuDecodingRows = 256;

}  // namespace magister
