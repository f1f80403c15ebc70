// GpuDecoder: passes in which every sequence has one row (decoding), in bf16. Every place that a pass works in stays from pass to
// pass, so that a pass is one CUDA graph: inputs go to the device in one copy, and then some hundred kernels run by one launch. The sums of
// several shards are kernels, too (PeerSums), or else there is a graph for each part between two sums. Products of 8-bit floats are cuBLAS's, of a whole tile whatever the number of rows.
// A row's bits do not depend on its neighbours nor on their number.
// Legend: R rows, filled up to a bucket's; D hidden; S slots; C chunks of 192 keys.
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
#include "model/gpu/decoder_places.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

class GpuDecoder {
 public:
  // All by reference; they outlive it.
  GpuDecoder(const GpuWeights& weights, RopeOnDevice& rope, ProcessGroup& group, const Queue& queue);
  ~GpuDecoder();

  // Whether the model's heads and type are those of the decode kernels.
  bool works() const { return works_; }

  struct Row {
    TokenId id = 0;
    std::int64_t past = 0;  // tokens of its sequence in the cache
    BlockTable slots;
  };
  // At most kGpuDecodingRows. -> hidden states after the last norm, [R, D] bf16 on the device, overwritten by the next call.
  // Queued, not finished. Collective over the group.
  // drawn_ids_R: i32, on the device, in place of the rows' ids; or undefined.
  at::Tensor forward(const std::vector<Row>& rows, KvCache& cache, const at::Tensor& drawn_ids_R = {});

  // Off: kernels one by one. On by default, unless MAGISTER_CUDA_GRAPHS=0; never where shards add in the middle of a part, as
  // norms over all heads do, and sums are no kernels. On the host a graph is a list of the same kernels.
  void use_graphs(bool on) { graphs_ = on; }
  // Products of plain weights are these from now on; they outlive it.
  void use_products(const DecodeProducts& products);
  // Makes what sums in kernels need, where they work; the first pass else does. Collective over the group.
  void find_peer_sums();
  // Of all places so far, on the device; gpu_decoding_bytes() is their plan.
  std::uint64_t num_bytes() const;

 private:
  struct Memory;
  struct Places;  // of a bucket
  Places& places_of(std::int64_t rows, std::int64_t chunks);
  void fill_inputs(Places& places, const std::vector<Row>& rows, std::int64_t trash_slot);
  void run(Places& places, KvCache& cache);
  void capture(Places& places, KvCache& cache);
  void launch_graphs(Places& places);
  // Collective over the group.
  void queue_pass(Places& places, KvCache& cache, const Queue& queue);
  // Of a pass of so many rows: whether its sums are kernels, or there are none.
  bool sums_are_kernels(std::int64_t rows) const;
  void queue_sum(at::Tensor& partial, const Queue& queue);
  // Local. -> what the shards add behind it, nullptr after the last part.
  at::Tensor* queue_part(std::int64_t part, Places& places, KvCache& cache, const Queue& queue);
  std::int64_t num_parts() const;
  void queue_embeddings(Places& places, const Queue& queue);
  void queue_attention(Places& places, const GpuLayer& layer, const ProductRows& normed_RD, const at::Tensor& keys,
                       const at::Tensor& values, const Queue& queue);
  void queue_mlp(Places& places, const GpuLayer& layer, const Queue& queue);
  void queue_product(const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN, const Queue& queue);
  // of: the norms of the block whose output joins the residual stream, nullptr before the first.
  void queue_norm(Places& places, const BlockNorms* of, const at::Tensor& weight_D, const Queue& queue);
  // The same as the product that reads it wants it: in 8-bit floats at once where that is in fp8.
  ProductRows queue_norm_for(const GpuLinear& next, Places& places, const BlockNorms* of, const at::Tensor& weight_D,
                             const Queue& queue);
  // Where it leaves them.
  ProductRows normed_rows(const GpuLinear& next, const Places& places) const;
  void queue_norm_on_delta(Places& places, const BlockNorms* of, const Queue& queue);

  const GpuWeights& weights_;
  RopeOnDevice& rope_;
  ProcessGroup& group_;
  Queue queue_;
  bool works_ = false, graphs_ = true, whole_parts_ = true, may_record_ = true;
  PeerSums* peer_sums_ = nullptr;  // the group's
  const DecodeProducts* products_ = nullptr;
  std::vector<at::Tensor> work_;          // [kGpuDecodingRows, ...]: passes of all sizes work in the first rows
  at::Tensor partial_;                    // sums of attention's chunks, as large as a pass has needed
  std::uint64_t partial_generation_ = 0;  // how often they were made
  Fp8Places fp8_;                         // of a model in fp8
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Places>> places_;
};

}  // namespace magister::gpu
