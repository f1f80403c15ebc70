// GpuWeights: the weights of one shard on its device, read from files, or random for benchmarks.
// Legend: D hidden, v this shard's part of the vocabulary, E head_dim, P positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "magister/core/error.h"
#include "magister/model/batch.h"
#include "magister/model/layer_shape.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/weights.h"
#include "magister/parallel/process_group.h"
#include "model/gpu/gpu_linear.h"
#include "model/gpu/gpu_stream.h"
#include "model/gpu/score_blocks.h"

namespace magister::gpu {

// One expert of a layer, sliced like an MLP.
struct GpuExpert {
  GpuLinear gate_up_proj, down_proj;
};

// The norms of an MLP beside experts (see ModelConfig::dense_beside_experts); [D] f32. The MLP's input norm is that of
// the block.
struct GpuBeside {
  at::Tensor output_D, experts_output_D, experts_input_D, router_input_D;
  bool is_on() const { return output_D.defined(); }
};

// The indexer of a layer that chooses keys, whole on every shard; see IndexerWeights.
struct GpuIndexer {
  GpuLinear q_proj, k_proj, head_proj;
  at::Tensor norm_E, norm_bias_E;  // f32, of the keys' layer norm
};

// The second products of latent attention, for the heads of this shard; see LatentWeights.
struct GpuLatent {
  GpuLinear q_up_proj;    // [H E, query_rank]; without outputs where queries are one product
  GpuLinear up_proj;      // [H (nope_dim + value_dim), rank], never codes: a head's keys, then its values
  at::Tensor key_up_HCN;  // its keys, transposed: [H, rank, nope_dim]; only where kernels attend among latents
  std::optional<GpuIndexer> indexer;
};

struct GpuLayer {
  BlockNorms attention_norms, mlp_norms;
  at::Tensor q_norm, k_norm;  // as in AttentionWeights
  at::Tensor q_norm_bias{}, k_norm_bias{};
  bool norms_values = false;                            // each head of v is divided by its root mean square
  float factor = 1.0f;                                  // of the residual stream, after the layer
  GpuLinear qkv_proj, o_proj, gate_up_proj, down_proj;  // sharded as on the CPU
  GpuLinear attention_gate{};                           // as in AttentionWeights; without outputs where there is none
  ScoreTerms scores{};
  // The layer whose keys and values this one reads, and whether later layers read this one's.
  std::size_t kv_layer = 0;
  bool lends_kv = false;
  Xielu xielu;
  // Only in a layer with experts, which has gate_up_proj and down_proj only where `beside` is on. The router is
  // replicated. Shared experts are the last ones.
  GpuLinear router;
  at::Tensor choice_bias_X, expert_scales_X;  // as in ExpertsWeights
  std::vector<GpuExpert> experts;
  GpuBeside beside;
  bool mlp_shares_norm = false;     // the MLP reads attention's normed input
  std::optional<GpuLatent> latent;  // qkv_proj, q_norm and k_norm are then those of the short vectors
  GpuStreamLayer around;
  LayerShape shape;

  bool has_gate() const { return attention_gate.outputs > 0; }
  // The product whose form of input attention's norm gives. One that is not in fp8 needs plain rows, and those in fp8
  // also take these: products whose sizes are not multiples of 16 stay as they are, and so does a router.
  const GpuLinear& first_product() const {
    if (has_gate() && !attention_gate.fp8_NK.defined()) return attention_gate;
    return mlp_shares_norm && !gate_up_proj.fp8_NK.defined() ? gate_up_proj : qkv_proj;
  }
  // Every product of this layer, without the router's.
  std::vector<GpuLinear*> products();
  std::vector<const GpuLinear*> products() const;
};

struct GpuWeights {
  ModelConfig config;
  Partition partition;
  at::ScalarType dtype = at::kBFloat16;  // of activations and plain weights: kBFloat16 or kFloat
  bool fp8 = false;                      // the layers' products are in 8-bit floats
  bool float_sums = false;               // several shards sum in f32
  bool mxfp4 = false;                    // routed experts keep MXFP4's numbers as codes (gpu_mxfp4.h)
  at::Device device = at::kCPU;
  at::Tensor embedding_vD;
  at::Tensor positions_PD{};    // learned positions, in dtype; only on the first shard
  BlockNorms embedding_norm{};  // as an input norm; without weights where the model has none
  BlockNorms norm{};            // the last one, as an input norm
  GpuLinear head;
  GpuStreamEnds ends;
  std::vector<GpuLayer> layers;

  // Sets everything that is known before weights are read. dtype: kBFloat16 or kFloat; kFloat8_e4m3fn: products in
  // 8-bit floats, activations in bf16.
  static GpuWeights empty(const ModelConfig& config, const ProcessGroup& group, at::ScalarType dtype,
                          const Queue& queue);

  float embedding_scale() const { return embedding_multiplier(config, dtype); }
  // True if a layer's MLP reads attention's normed input.
  bool shares_norms() const { return config.parallel_residual && !config.parallel_norms; }
  // A layer with its shape and all that follows from the config.
  GpuLayer begin_layer(std::int64_t layer, const at::Tensor& sinks_H) const;
  // Reads this shard's weights from the source, which sends to `device`.
  void load(WeightSource& source, bool tied, const Queue& queue);
  // Normal numbers with standard deviation 1 / sqrt(inputs), or codes and scales with that deviation; made on the
  // device. Only for measuring speed.
  void randomize(const QuantScheme& scheme, const Queue& queue);
  // Sets whether products return f32 or the activations' dtype, and finds the tile sizes, once for each shape of the
  // layers' products.
  void find_tile_sizes(const Queue& queue);
  std::uint64_t num_bytes() const;
  bool has_codes() const;
};

// Rotary tables on the device, [P, R/2], by LayerShape::rope_table. They grow on demand, by kStep positions.
class RopeOnDevice {
 public:
  static constexpr std::int64_t kStep = 4096;
  explicit RopeOnDevice(const GpuWeights& weights) : weights_(weights) {}
  // Makes the tables cover at least `positions` positions.
  void reach(std::int64_t positions);
  std::int64_t positions() const { return cos_.empty() ? 0 : cos_[0].size(0); }
  const at::Tensor& cos(std::size_t table) const { return cos_[table]; }
  const at::Tensor& sin(std::size_t table) const { return sin_[table]; }
  // Number of times that the tables were made. New tables may have the addresses of old ones.
  std::uint64_t generation() const { return generation_; }

 private:
  const GpuWeights& weights_;
  std::vector<at::Tensor> cos_, sin_;
  std::uint64_t generation_ = 0;
};

// hidden = (hidden + delta) * factor if there is a delta (f32 or A), and out = norm(hidden) with the input norm of
// `norms`; without one out = hidden. Queued.
template <typename A>
void add_norm(const GpuWeights& weights, const at::Tensor& hidden_TD, const at::Tensor& delta_TD,
              const BlockNorms& norms, const at::Tensor& out_TD, const Queue& queue, float factor = 1.0f);

// The first kernels of a pass: embeddings, this shard's part of their sum, and the norm on that sum, if there is one.
// hidden_TD: f32. positions_T: i32, needed only for learned positions. Queued.
void embed_rows(const GpuWeights& weights, const at::Tensor& ids_T, const at::Tensor& positions_T,
                const at::Tensor& hidden_TD, const Queue& queue);
void norm_embeddings(const GpuWeights& weights, const at::Tensor& hidden_TD, const Queue& queue);

// Calls body(A()) with the C++ type of dtype.
template <typename Body>
void with_type(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kBFloat16) return body(Bf16());
  MAGISTER_ASSERT(dtype == at::kFloat);
  body(float());
}

// The tensor on the device, or undefined where it is undefined.
inline at::Tensor on_device(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() ? tensor.to(device) : tensor;
}

template <typename A>
A* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<A*>(tensor.data_ptr()) : nullptr;
}

}  // namespace magister::gpu
