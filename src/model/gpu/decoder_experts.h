// DecoderExperts: the experts of the layers in decoding passes. The router's choice never leaves the device: a kernel
// sorts the routes by expert, and one launch multiplies the rows of all experts. So a pass with experts is a fixed list
// of kernels, too, and can be one CUDA graph. The bits of a row depend neither on its neighbours nor on their number.
// Legend: R rows of a pass, D hidden, X experts of which a router chooses k for each row, S shared experts, T = k + S,
// L logits of a row, F columns of an expert on this shard, N places of sorted routes: R k, then R for each of S.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "magister/device/launch.h"
#include "model/gpu/expert_products.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

// Sizes that all layers with experts share; all 0 in a model without experts.
struct ExpertWidths {
  std::int64_t hidden = 0, experts = 0, per_token = 0, shared = 0, logits = 0;
  std::int64_t up = 0, mlp = 0;                // of an expert: what its function reads, and F
  std::int64_t shared_up = 0, shared_mlp = 0;  // the same of a shared expert
  bool weighs_inputs = false, beside = false;
  std::int64_t routes() const { return per_token + shared; }
};
ExpertWidths expert_widths(const ModelConfig& config, const Partition& partition);

class DecoderExperts {
 public:
  // A product of a shared expert for the rows of a pass: into out_RN, bf16 or f32.
  using Multiply = std::function<void(const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN)>;

  DecoderExperts() = default;
  // Keeps a reference to `weights`.
  explicit DecoderExperts(const GpuWeights& weights);

  // False if the experts of a layer have weights of several formats, or of one that the kernels do not have.
  bool work() const { return works_; }
  // Allocates the buffers of passes. Must come before the first pass.
  void reserve();

  // The three steps of a layer's experts; each is queued. Logits and choice: router_RD is the router's input, bf16;
  // visible_R: the keys that a row sees, i32, 0 for an idle row, which no expert multiplies.
  void queue_routes(std::size_t layer, const at::Tensor& router_RD, const at::Tensor& visible_R, const Queue& queue);
  // Gate and up of normed_RD, bf16. After this step the input is not read any more.
  void queue_up(std::size_t layer, const at::Tensor& normed_RD, const Multiply& multiply, const Queue& queue);
  // The rest: out_RD, f32, is the sum over each row's experts, partial over the shards; of an idle row, over the shared
  // experts alone.
  void queue_down(std::size_t layer, at::Tensor& out_RD, const Multiply& multiply, const Queue& queue);

  // The output of experts beside an MLP, before both are added: [R, D] f32.
  at::Tensor beside_rows(std::int64_t R) const;
  std::uint64_t num_bytes() const;
  // The bytes that num_bytes() will be.
  static std::uint64_t planned_bytes(const ModelConfig& config, const Partition& partition);

 private:
  struct Layer {
    ExpertProducts up, down;
  };
  at::Tensor rows_of(std::size_t buffer, std::int64_t rows, std::int64_t width) const;
  void multiply_all(const ExpertProducts& products, const at::Tensor& x_NK, std::int64_t x_stride, at::Tensor& out_NM,
                    std::int64_t R, const Queue& queue) const;

  const GpuWeights* weights_ = nullptr;
  ExpertWidths widths_;
  bool works_ = true;
  std::vector<Layer> layers_;     // of all layers; without places where a layer has no experts
  std::vector<at::Tensor> work_;  // [kGpuDecodingRows, ...]; passes of all sizes use the first rows
};

}  // namespace magister::gpu
