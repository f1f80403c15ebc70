// The differentiable forward pass of a decoder up to its last norm, from the same config, parameter table and rotary
// tables as the inference forward. Autograd differentiates its operations: ATen's, and a few of our own that do more in
// one pass (src/train/fused_ops.h, trained_linear.h). Each layer has its own graph: backward runs a layer at a time and
// frees what it has used. With `recompute` (gradient checkpointing by layer) a layer keeps only its input and runs
// again, with equal bits.
// Legend: T packed tokens, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "magister/model/rope.h"
#include "magister/train/lora.h"
#include "magister/train/micro_gradient.h"
#include "magister/train/parameters.h"

namespace magister {

// Sequences one after the other, without padding; attention sees only its own sequence.
struct TrainBatch {
  at::Tensor token_ids_T;                // i64, CPU
  std::vector<std::int64_t> cu_seqlens;  // S + 1
};

struct SequencePlan;  // src/train/gpu_attention.h

// Version of a GPU's passes, part of a training's identity there. It changes with whatever changes their bits (kernels,
// roundings, chunks of the head).
inline constexpr const char* kGpuPasses = "3";

struct TrunkOptions {
  bool recompute = false;  // gradient checkpointing by layer
  // The layers' products have both operands in bf16 and sums in f32. On CPUs everything else is f32, attention's
  // products too; in GPU code everything that only products and attention read is bf16 (decision 049).
  bool bf16 = false;
  bool gpu_code = false;  // a GPU's operations (src/train/gpu_ops.h); without them the weights are on the CPU
  bool learns = false;    // the pass is differentiated: AltUp's coefficients are clipped, as in transformers' training
};

class TrunkPass {
 public:
  // layout, flat and batch are kept by reference until backward() is done. Computes on flat's device and on the calling
  // thread, whose ATen threads should be one, so that the bits do not depend on their number. lora: an adapter for the
  // model's weights, which then have no gradient. Local, any thread.
  TrunkPass(const ParameterLayout& layout, const at::Tensor& flat, const TrainBatch& batch, const TrunkOptions& options,
            std::optional<LoraWeights> lora = std::nullopt);

  // Hidden states after the last norm, [T, D] f32, without a graph, on flat's device; so are the gradients of
  // backward().
  const at::Tensor& hidden_TD() const { return hidden_TD_; }
  // Puts the gradients of the layers and the last norm, or those of the adapter, and adds that of the embeddings to
  // embedding_gradient_VD, f32, unless it is undefined. Call once.
  void backward(const at::Tensor& hidden_gradient_TD, at::Tensor& embedding_gradient_VD, MicroGradient& gradient);

 private:
  // Keys after norm and rotation, and values, of all tokens: [T, KV heads, E].
  struct KeysAndValues {
    at::Tensor k_TKE, v_TKE;
  };
  struct Kept {
    // A leaf, and what the layer made of it; output undefined: to be recomputed. With AltUp the stream after the first
    // layer is [T, A, D].
    at::Tensor input_TD, output_TD;
    std::vector<at::Tensor> parameters;  // leaves
    std::vector<at::Tensor> factors;     // leaves of the adapter: A and B of each pair in turn
    // Keys and values of this layer, if later layers read them; if it reads another's, leaves of those.
    KeysAndValues kv{};
    at::Tensor vectors_TP{};  // a leaf of the tokens' vectors for this layer; undefined: the model has none
  };
  // How the vectors by layer were made of the embeddings; undefined: the model has none.
  struct Vectors {
    at::Tensor input_TD, rows_TX, projection, norm;  // leaves: scaled embeddings, rows of the table, two weights
    at::Tensor output_TNP;
  };
  Vectors make_vectors(const at::Tensor& hidden_TD) const;
  at::Tensor rows_of_vectors() const;  // each token's row of their table; later ids have the first row
  // Puts the gradients of the weights of vectors by layer; returns that of the embeddings.
  at::Tensor put_vectors(const at::Tensor& gradient_TNP, MicroGradient& gradient) const;
  Kept run_layer(std::size_t layer, const at::Tensor& input_TD, bool with_graph);
  const std::vector<std::size_t>& parameters_of(std::size_t layer) const;
  // Sets kept.kv where the layer has keys of its own.
  at::Tensor layer_output(std::size_t layer, Kept& kept);
  // gradients: of the trained leaves of a layer, in their order.
  void put_gradients(std::size_t layer, std::span<const at::Tensor> gradients, MicroGradient& gradient) const;

  const ParameterLayout& layout_;
  const at::Tensor& flat_;
  const TrainBatch& batch_;
  TrunkOptions options_;
  std::optional<LoraWeights> lora_;
  at::Tensor token_ids_T_;  // on flat's device
  at::Tensor positions_T_;  // i64, on flat's device, if the model has a table of positions
  // For GPU code. chunks_: of layers that attend in chunks.
  std::shared_ptr<const SequencePlan> sequences_, chunks_;
  std::vector<RopeTable> rope_;  // on flat's device; [T, R/2] rows for every packed token, by rotary table
  std::vector<Kept> kept_;       // by layer, then the last norm
  // By layer with an indexer: the keys that each query sees, by sequence ([L, L] bool, or undefined: all earlier ones).
  // A layer that is computed again, and the layers after it without an indexer, take them from here.
  std::vector<std::vector<at::Tensor>> visible_;
  Vectors vectors_;
  at::Tensor hidden_TD_;
};

// Upper bound of the memory that a pass over this many tokens keeps between forward and backward, plus what a layer's
// operations use while they run.
struct TrunkKeeps {
  bool recompute = false, bf16 = false;
  bool adapted = false;  // LoRA's factors read the inputs of products too, in f32
};
std::uint64_t trunk_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t longest,
                          const TrunkKeeps& keeps);
// The same for GPU code, in which bf16 halves most of it.
std::uint64_t gpu_trunk_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t longest, bool recompute,
                              bool bf16);

}  // namespace magister
