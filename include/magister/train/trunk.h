// The differentiable forward of a decoder up to its last norm, from the same config, parameter table and rotary tables as the inference
// forward, out of operations that autograd follows: ATen's, and a few of our own that do more in one pass (src/train/fused_ops.h,
// trained_linear.h). The layers' graphs are kept one by one: backward runs a layer at a time and frees
// what it has used, and with `recompute` (gradient checkpointing by layer) a layer keeps only its input and runs again - with equal bits.
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

// Sequences one after the other, no padding; attention sees its own sequence alone.
struct TrainBatch {
  at::Tensor token_ids_T;                // i64, CPU
  std::vector<std::int64_t> cu_seqlens;  // S + 1
};

struct SequencePlan;  // src/train/gpu_attention.h

// Whatever changes the bits of a GPU's passes (kernels, roundings, chunks of the head) changes this: it is a part of a training's identity there.
inline constexpr const char* kGpuPasses = "2";

struct TrunkOptions {
  bool recompute = false;  // gradient checkpointing by layer
  // The layers' products have both operands in bf16 and sums in f32. On CPUs all else is f32, attention's products, too; in a GPU's code what only
  // products and attention read is bf16 (decision 049).
  bool bf16 = false;
  bool gpu_code = false;  // a GPU's operations (src/train/gpu_ops.h); without them the weights are on the CPU
};

class TrunkPass {
 public:
  // layout, flat and batch are kept by reference until backward() is done. Computes where flat is. On the calling thread, whose ATen threads should be one, for
  // bits that do not depend on their number. lora: an adapter beside the model's weights, which then have no gradient. Local, any thread.
  TrunkPass(const ParameterLayout& layout, const at::Tensor& flat, const TrainBatch& batch, const TrunkOptions& options,
            std::optional<LoraWeights> lora = std::nullopt);

  // After the last norm, [T, D] f32, without a graph, where flat is; so are the gradients of backward().
  const at::Tensor& hidden_TD() const { return hidden_TD_; }
  // Puts the gradients of the layers and the last norm, or those of the adapter, and adds that of the embeddings to embedding_gradient_VD,
  // f32, unless it is undefined. Once.
  void backward(const at::Tensor& hidden_gradient_TD, at::Tensor& embedding_gradient_VD, MicroGradient& gradient);

 private:
  struct Kept {
    at::Tensor input_TD, output_TD;      // a leaf, and what was made of it; output undefined: to be recomputed
    std::vector<at::Tensor> parameters;  // leaves
    std::vector<at::Tensor> factors;     // leaves, of the adapter: A and B of each pair in turn
  };
  Kept run_layer(std::size_t layer, const at::Tensor& input_TD, bool with_graph) const;
  const std::vector<std::size_t>& parameters_of(std::size_t layer) const;
  at::Tensor layer_output(std::size_t layer, const Kept& kept) const;
  // Of the trained leaves of a layer, in their order.
  void put_gradients(std::size_t layer, std::span<const at::Tensor> gradients, MicroGradient& gradient) const;

  const ParameterLayout& layout_;
  const at::Tensor& flat_;
  const TrainBatch& batch_;
  TrunkOptions options_;
  std::optional<LoraWeights> lora_;
  at::Tensor token_ids_T_;                         // where flat is
  at::Tensor positions_T_;                         // i64, likewise, where the model has a table of them
  std::shared_ptr<const SequencePlan> sequences_;  // of a GPU's code
  std::vector<RopeTable> rope_;  // likewise; [T, R/2] rows for every packed token, by number of the rotary table
  std::vector<Kept> kept_;       // by layer, and the last norm
  at::Tensor hidden_TD_;
};

// Upper bound of the memory that a pass of so many tokens keeps between forward and backward, with what a layer's operations make beside it while
// they run.
struct TrunkKeeps {
  bool recompute = false, bf16 = false;
  bool adapted = false;  // LoRA's factors read the inputs of products, too, in f32
};
std::uint64_t trunk_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t longest,
                          const TrunkKeeps& keeps);
// The same of a GPU's code, in which bf16 halves most of it.
std::uint64_t gpu_trunk_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t longest, bool recompute,
                              bool bf16);

}  // namespace magister
