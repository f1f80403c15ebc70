// GpuModel: the decoder layers of one shard on a GPU: products with cuBLAS over all packed rows, flash attention over
// variable lengths, and one kernel for each step between them. On a host queue the same code runs on CPU tensors,
// kernel by kernel, for tests.
// Legend: T packed tokens, S sequences, D hidden, H query and K KV heads of this shard, E head_dim, F MLP columns of
// this shard, P pages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/device/launch.h"
#include "magister/model/batch.h"
#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/weights.h"
#include "magister/parallel/process_group.h"
#include "model/first_not_finite.h"
#include "model/gpu/decode_products.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_decoder.h"
#include "model/gpu/gpu_indexer.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/prompt_experts.h"

namespace magister::gpu {

// Data of a pass on the device, without the weights.
struct GpuPass {
  const PackedBatch& batch;
  AttentionPlan attention;
  at::Tensor ids_T{}, rope_rows_T{};  // i32
  at::Tensor positions_T{};           // i32, where positions are learned or scale queries; otherwise undefined
  // i64, page * 48 + slot in the page for every token; undefined without a cache.
  at::Tensor slots_T{};
  // Instead of `attention`: where all rows decode among latents, and where an indexer chooses keys.
  LatentKeys latent_keys{};
  std::shared_ptr<SparseRows> sparse{};
  std::vector<at::Tensor> cos_PE2{}, sin_PE2{};  // f32, tables that rope_rows_T indexes, by LayerShape::rope_table
  at::Tensor hidden_TD{};                        // f32: the residual stream
  bool cached = false;
  at::Tensor delta_TD{};      // joins the residual stream next; with several shards f32, and its sum is in flight
  at::Tensor delta_norm_D{};  // the norm on delta_TD, if the block has one
  float delta_factor = 1.0f;  // factor of the stream after delta_TD has joined it
  bool delta_is_sum = false;  // delta_TD is the sum over the shards already
  // Queries, keys and values of layers whose keys later layers read, by their index.
  std::map<std::size_t, at::Tensor> kv_TQ{};
  at::Tensor vectors_TX{};          // f32: the tokens' vectors of all layers; undefined: the model has none
  at::Tensor streams_TAD{};         // f32: all vectors of the stream with AltUp; undefined: hidden_TD is the only one
  at::Tensor read_R{};              // i64: PackedBatch::read_rows; undefined: all rows
  FirstNotFinite* watch = nullptr;  // looks at the stream where layers begin and after the last norm
};

class GpuModel {
 public:
  // weights: complete, with their tile sizes. group is kept by reference.
  GpuModel(std::shared_ptr<const GpuWeights> weights, const Queue& queue, ProcessGroup& group);

  // Hidden states after the last norm, [T, D] in dtype, on the device, replicated. Queued, not finished, when it
  // returns; the next call overwrites them. slots and cache: see Transformer::forward; empty and nullptr without a
  // cache. The bits of a row do not depend on the other sequences of the pass: with a cache, decoding rows
  // (PackedBatch::is_decode_S) go through the decode kernels, and all other products use tiles whose sizes give the
  // same bits. Collective over the group.
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache* cache);
  // See Transformer.
  std::string first_not_finite(const PackedBatch& batch);

  // Compares attention, MLP and head with plain f32 ATen code on the same device. Throws Error(kInternal). Collective
  // over the group.
  void self_test();

  bool takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const;
  // True if a row after attention has the same bits whatever other rows there are: products and kernels are made so,
  // and the sums over the shards may be.
  bool has_rows_of_their_own() const { return group_.sums_are_their_own(); }
  KvCache make_cache(std::int64_t num_pages) const;
  void use_fp8_cache();
  const Queue& queue() const { return queue_; }
  const GpuLinear& head() const { return weights_.head; }
  std::uint64_t weight_bytes() const { return weights_.num_bytes(); }
  void use_graphs(bool on) { decoder_.use_graphs(on); }
  // See Transformer.
  void use_cudnn_attention();
  bool has_cudnn_attention() const { return cudnn_attention_; }
  void use_throughput_decoding(const DecodeProducts::Algorithms& algorithms = lt_algorithms);
  // Logits of decoding rows and of last prompt tokens: [R, D] -> f32 [R, v], without softcap.
  at::Tensor logits(const at::Tensor& hidden_RD) const;

 private:
  void self_test_experts(const GpuLayer& layer, const at::Tensor& normed_TD, double tolerance);
  void self_test_mlp(const GpuLayer& layer, const at::Tensor& block_TD, GpuPass& pass, double tolerance);
  // Splits whole sequences into parts that are computed in turn, so that one part's sum is in flight while the next
  // part is computed.
  std::vector<PackedBatch> parts_of(const PackedBatch& batch, bool cached) const;
  at::Tensor forward_rows(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache* cache,
                          FirstNotFinite* watch = nullptr);
  bool decodes(const PackedBatch& batch, std::int64_t sequence) const;
  at::Tensor decode(const std::vector<GpuDecoder::Row>& rows, KvCache& cache, const at::Tensor& drawn_ids_R);
  GpuPass make_pass(const PackedBatch& batch, const std::vector<BlockTable>& slots);
  void place_rope_rows(GpuPass& pass);
  void embed(GpuPass& pass) const;
  // Adds the pass's delta (if defined) to the residual stream, after waiting for its sum and applying its norm, and
  // returns the input norm of the stream. Without one, returns the stream itself in dtype. The pass then has no delta.
  at::Tensor norm(GpuPass& pass, const BlockNorms& norms) const;
  // Like norm(), in the form that the next product reads: directly in 8-bit floats if that product is in fp8.
  ProductRows norm_for(const GpuLinear& next, GpuPass& pass, const BlockNorms& norms) const;
  // norm_for() the layer's attention. Where an indexer or a router reads the rows, too, they are not in 8-bit floats.
  ProductRows attention_input(const GpuLayer& layer, GpuPass& pass) const;
  void take_delta(GpuPass& pass) const;
  // partial_TD becomes the pass's delta; norms: those of its block; factor: of the stream after it.
  void begin_sum(GpuPass& pass, at::Tensor partial_TD, const BlockNorms& norms, float factor = 1.0f) const;
  // The block of an MLP beside experts: both read the stream, each through a norm of its own, and the sum of their
  // normed outputs joins it next. Collective over the group.
  void run_beside(const GpuLayer& layer, GpuPass& pass) const;
  // Around the blocks, in gpu_stream.cpp. begin_layer() also ends the layer before it; end_stream() ends the last one.
  void begin_stream(GpuPass& pass) const;
  void begin_layer(std::size_t number, GpuPass& pass) const;
  void end_layer(std::size_t number, GpuPass& pass) const;
  void end_stream(GpuPass& pass) const;
  void compute_vectors(GpuPass& pass, const at::Tensor& rows_TD) const;
  at::Tensor correct_stream(const GpuStreamLayer& layer, GpuPass& pass) const;
  // hidden += x + norm(product of x), where x is attention's input.
  void add_laurel(const GpuLayer& layer, GpuPass& pass, const at::Tensor& normed_TD) const;
  // An MLP that lets few gates pass; sums over the shards in its middle.
  at::Tensor sparse_mlp(const GpuLayer& layer, const GpuPass& pass, const ProductRows& normed_TD) const;
  // The first block of a layer: its sum is in flight when it returns. With parallel blocks, what the MLP reads. In the
  // last layer the pass has only the rows that are read from here on, maybe none: then nothing follows.
  ProductRows attention_block(std::size_t number, GpuPass& pass, const KvCache* cache) const;
  void mlp_block(const GpuLayer& layer, GpuPass& pass, const ProductRows& beside) const;
  bool is_last(const GpuLayer& layer) const { return &layer == &weights_.layers.back(); }
  // Outputs of the heads before o_proj: [T, H V]. Undefined in the last layer where none are read.
  at::Tensor attention(const GpuLayer& layer, GpuPass& pass, const ProductRows& normed_TD, const at::Tensor& keys,
                       const at::Tensor& values) const;
  at::Tensor latents_attention(const GpuLayer& layer, const GpuPass& pass, const ProductRows& normed_TD,
                               const at::Tensor& keys, const at::Tensor& values) const;
  at::Tensor mlp(const GpuLayer& layer, const GpuPass& pass, const ProductRows& normed_TD) const;
  // The layer's experts over rows [T, D]. router_TD: the router's input.
  at::Tensor experts(const GpuLayer& layer, const at::Tensor& router_TD, const at::Tensor& normed_TD) const;
  // An MLP, or one expert, over rows [R, D]. small_tiles: use prompt_tiles.
  at::Tensor one_mlp(const GpuLinear& gate_up_proj, const GpuLinear& down_proj, const MlpFunction& function,
                     bool small_tiles, const ProductRows& normed_RD) const;
  at::Tensor multiply(const GpuLinear& linear, const GpuPass& pass, const ProductRows& x_TK) const {
    return product_in_tiles(linear, x_TK, pass.cached ? linear.prompt_tiles : linear.pass_tiles, queue_);
  }

  const std::shared_ptr<const GpuWeights> held_;
  const GpuWeights& weights_;
  Queue queue_;
  ProcessGroup& group_;
  RopeOnDevice rope_{weights_};
  PromptExperts prompt_experts_{weights_};
  std::optional<DecodeProducts> decode_products_;
  GpuDecoder decoder_;
  bool cudnn_attention_ = false, fp8_cache_ = false;
};

}  // namespace magister::gpu
