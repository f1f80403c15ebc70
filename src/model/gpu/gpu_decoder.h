// GpuDecoder: passes in which every sequence has one row (decoding), in bf16. All buffers of a pass are kept from pass
// to pass, so that a pass is one CUDA graph: the inputs are copied to the device at once, and one launch runs some
// hundred kernels. With several shards the sums are kernels, too (PeerSums), or each part between two sums is a graph.
// Products of 8-bit floats are cuBLAS products of a whole tile, whatever the number of rows, unless DecodeProducts has
// an algorithm for any number; routed experts have GroupedProduct. The bits of a row depend neither on its neighbours
// nor on their number.
// Legend: R rows, padded to a bucket; D hidden; S slots; C chunks of 192 keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "magister/model/kv_pages.h"
#include "magister/parallel/process_group.h"
#include "model/gpu/decode_products.h"
#include "model/gpu/decoder_experts.h"
#include "model/gpu/decoder_places.h"
#include "model/gpu/gpu_latent.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

class GpuDecoder {
 public:
  // All are kept by reference and must outlive the decoder.
  GpuDecoder(const GpuWeights& weights, RopeOnDevice& rope, ProcessGroup& group, const Queue& queue);
  ~GpuDecoder();

  // True if the decode kernels support the model's heads and dtype.
  bool works() const { return works_; }

  struct Row {
    TokenId id = 0;
    std::int64_t past = 0;  // tokens of its sequence that are in the cache
    BlockTable slots;
  };
  // At most kGpuDecodingRows rows. Returns the hidden states after the last norm, [R, D] bf16 on the device; the next
  // call overwrites them. Queued, not finished. drawn_ids_R: i32 on the device, instead of the rows' ids; or undefined.
  // Collective over the group.
  at::Tensor forward(const std::vector<Row>& rows, KvCache& cache, const at::Tensor& drawn_ids_R = {});

  // Off: kernels are started one by one. On by default, unless MAGISTER_CUDA_GRAPHS=0. Graphs are never used where
  // shards sum in the middle of a part, as norms over all heads or of an MLP beside experts do, and these sums are not
  // kernels. On the host a graph is a list of the same kernels.
  void use_graphs(bool on) { graphs_ = on; }
  // From now on, the layers' products use these; they must outlive the decoder.
  void use_products(const DecodeProducts& products);
  // Prepares sums in kernels if they work here; otherwise the first pass does. Collective over the group.
  void find_peer_sums();
  // Bytes of all buffers so far, on the device; gpu_decoding_bytes() plans them.
  std::uint64_t num_bytes() const;

 private:
  struct Memory;
  struct Places;  // buffers of one bucket
  Places& places_of(std::int64_t rows, std::int64_t chunks);
  void fill_inputs(Places& places, const std::vector<Row>& rows, std::int64_t trash_slot);
  void run(Places& places, KvCache& cache);
  void capture(Places& places, KvCache& cache);
  void launch_graphs(Places& places);
  // Collective over the group.
  void queue_pass(Places& places, KvCache& cache, const Queue& queue);
  // True if the sums of a pass with this number of rows are kernels, or there are none.
  bool sums_are_kernels(std::int64_t rows) const;
  void queue_sum(at::Tensor& partial, const Queue& queue);
  // Returns the tensor that the shards sum after this part; nullptr after the last part, and after a part that has
  // summed in its middle, which only whole passes have.
  at::Tensor* queue_part(std::int64_t part, Places& places, KvCache& cache, const Queue& queue);
  std::int64_t num_parts() const;
  void queue_attention(Places& places, const GpuLayer& layer, const ProductRows& normed_RD, const KvCache& cache,
                       const Queue& queue);
  void queue_latents(Places& places, const GpuLayer& layer, const ProductRows& normed_RD, const at::Tensor& pages,
                     const Queue& queue);
  // Gate, up and their function. Returns the rows that the last product of the MLP reads.
  ProductRows queue_up(Places& places, const GpuLayer& layer, const ProductRows& normed_RD, const Queue& queue);
  // Layer i after attention. Returns what queue_part() does.
  at::Tensor* queue_second_block(std::size_t i, Places& places, const Queue& queue);
  // An MLP beside experts. Collective over the group.
  at::Tensor* queue_beside(std::size_t i, Places& places, const Queue& queue);
  // next: a hint of what the next product of the pass reads.
  void queue_product(const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN, const Queue& queue,
                     const NextWeight& next = {});
  // The hints for the products behind this layer's attention and behind layer i.
  NextWeight after_attention(const GpuLayer& layer) const;
  NextWeight after_layer(std::size_t i) const;
  // The product of q, k and v with the rotation, and that of gate and up with the gate, each in one kernel with the
  // same bits (paired_product.h). They return false, and queue nothing, where the layer or the pass is none for them.
  bool queue_rotated_product(const Places& places, const GpuLayer& layer, const ProductRows& normed_RD,
                             const at::Tensor& qkv_RQ, const KvCache& cache, const Queue& queue) const;
  bool queue_gate_product(const GpuLayer& layer, const ProductRows& normed_RD, const at::Tensor& middle_RF,
                          const Queue& queue) const;
  // The rows in the form that the weight reads. Converts them to 8-bit floats if the kernel before did not.
  ProductRows rows_for(const GpuLinear& linear, const ProductRows& x_RK, const Queue& queue) const;
  // The block whose output joins the residual stream: its norms, and the factor of the stream afterwards. of: nullptr
  // where nothing joins.
  struct Joins {
    const BlockNorms* of = nullptr;
    float factor = 1.0f;
  };
  // Adds the output of a block to the residual stream, and queues the input norm `norms` of the stream.
  void queue_norm(Places& places, const Joins& joins, const BlockNorms& norms, const Queue& queue);
  // Like queue_norm(), in the form that the next product reads: directly in 8-bit floats if that product is in fp8.
  ProductRows queue_norm_for(const GpuLinear& next, Places& places, const Joins& joins, const BlockNorms& norms,
                             const Queue& queue);
  // The buffer into which queue_norm_for() writes.
  ProductRows normed_rows(const GpuLinear& next, const Places& places) const;
  void queue_norm_on_delta(Places& places, const BlockNorms* of, const Queue& queue);

  const GpuWeights& weights_;
  RopeOnDevice& rope_;
  ProcessGroup& group_;
  Queue queue_;
  bool works_ = false, graphs_ = true, whole_parts_ = true, may_record_ = true;
  PeerSums* peer_sums_ = nullptr;  // owned by the group
  const DecodeProducts* products_ = nullptr;
  RowWidths widths_;
  std::vector<at::Tensor> work_;          // [kGpuDecodingRows, ...]; passes of all sizes use the first rows
  at::Tensor partial_;                    // sums of attention's chunks, as large as any pass has needed
  std::uint64_t partial_generation_ = 0;  // number of times that partial_ was allocated
  Fp8Places fp8_;                         // only for a model in fp8
  LatentPlaces latent_;                   // only for a model with latent attention
  DecoderExperts experts_;                // only for a model with experts
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Places>> places_;
};

}  // namespace magister::gpu
