// PromptExperts: the routed experts of a layer in passes of prompts, grouped on the device. Where prompt_rule.h says so
// one launch multiplies all experts, gate and up and then down, and the host never waits for the router's choice. Else
// the host reads how many rows each expert has, and a library multiplies one expert after the other. The bits of a row
// do not depend on the other rows. run_experts() (gpu_experts.h) computes the same with the host's sort.
// Legend: T packed tokens, D hidden, F columns of an expert on this shard, X experts of which a router chooses k for
// each token, S shared experts, R = k + S, N = T k routes to chosen experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "model/gpu/decoder_experts.h"
#include "model/gpu/expert_products.h"
#include "model/gpu/gpu_experts.h"

namespace magister::gpu {

class PromptExperts {
 public:
  // An expert over rows [n, D], partial over the shards.
  using Multiply = std::function<at::Tensor(const GpuExpert& expert, const at::Tensor& rows_RD)>;

  // Keeps a reference to `weights`, whose layers must stay where they are. slice_numbers: of the plain weights that
  // codes are converted to at a time, but at least those of one expert.
  explicit PromptExperts(const GpuWeights& weights, std::int64_t slice_numbers = kSliceNumbers);

  // True: one launch multiplies the layer's experts. False: they have a shape for which a library is faster, or several
  // formats.
  bool has(const GpuLayer& layer) const;
  // As run_experts(), but where has() is true `multiply` is only for shared experts, and nothing waits.
  at::Tensor run(const GpuLayer& layer, const at::Tensor& router_TD, const at::Tensor& normed_TD,
                 const Multiply& multiply, const Queue& queue) const;

  // Bytes of a token between router and sum where groups_prompts() holds. number_bytes: of the activations; out_bytes:
  // of a number of the result.
  static std::uint64_t token_bytes(const ExpertWidths& widths, std::uint64_t number_bytes, std::uint64_t out_bytes);
  // Those of a pass and of all layers in addition, where groups_prompts() holds.
  static std::uint64_t fixed_bytes(const ModelConfig& config, const ExpertWidths& widths);
  // Numbers of the largest slice of converted codes.
  static std::uint64_t most_slice_numbers(const ExpertWidths& widths);

  static constexpr std::int64_t kSliceNumbers = std::int64_t{128} << 20;  // 256 MiB of bf16

 private:
  struct Layer {
    ExpertProducts up, down;
  };
  // The sorted routes of a pass: the place of each route, its inverse, the first place of each expert, and the items,
  // [I, 3].
  struct Sorted {
    at::Tensor place_of_TR, route_N, first_X, items_I3;
  };
  Sorted sort(const at::Tensor& experts_TR, const Queue& queue) const;
  GpuExpertGroups groups_of(const Sorted& sorted) const;
  at::Tensor multiply_at_once(const GpuLayer& layer, const at::Tensor& normed_TD, const at::Tensor& weights_TR,
                              const Sorted& sorted, const Multiply& multiply, const Queue& queue) const;
  // The products of all items. route_N: of x's rows; undefined if x has a row for each place.
  void multiply_all(const ExpertProducts& products, const at::Tensor& x, const at::Tensor& route_N,
                    const Sorted& sorted, const at::Tensor& out_NM, const Queue& queue) const;
  template <typename Kernel>
  void multiply_with(const ExpertProducts& products, const at::Tensor& x, const at::Tensor& route_N,
                     const Sorted& sorted, const at::Tensor& out_NM, const Queue& queue) const;
  const Layer& own(const GpuLayer& layer) const;

  const GpuWeights* weights_;
  ExpertWidths widths_;
  std::int64_t slice_numbers_;
  std::vector<Layer> layers_;  // without places where has() is false
};

}  // namespace magister::gpu
