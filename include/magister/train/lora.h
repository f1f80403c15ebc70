// LoRA in training: a linear layer W [out, in] stays as it is and gets two factors A [rank, in] and B [out, rank]; it
// computes W x + scale * B (A x). Only the factors are trained: gradients, moments, sums over ranks and states are
// theirs alone. Names, defaults and first values are those of PEFT's LoraConfig.
// Source: Hu et al., "LoRA", arXiv 2106.09685; the folder: io/checkpoint/lora_adapter.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/checkpoint/lora_adapter.h"
#include "magister/train/parameters.h"

namespace magister {

struct LoraOptions {
  // rank, alpha, rank_stabilized; targets: names of layers ("q_proj", "self_attn.q_proj"), or "all-linear".
  LoraConfig config;
  std::uint64_t seed = 0;
};

class LoraLayout : public FlatLayout {
 public:
  // Without targets: q_proj and v_proj, or the fused layer that contains them in the model's file. Throws
  // Error(kConfig) naming a target that is not a linear layer of the model's layers. Local.
  LoraLayout(const ParameterLayout& model, const LoraOptions& options);

  struct Pair {
    std::size_t parameter = 0;  // index in ParameterLayout::Layer::parameters
    std::size_t a = 0, b = 0;   // indices in all()
  };
  const std::vector<Pair>& pairs(std::size_t layer) const { return layers_[layer]; }
  // The model stores its weights as [in, out], so a change of one is the transpose of B A.
  bool inputs_first() const { return inputs_first_; }
  float scale() const { return static_cast<float>(config_.scale()); }
  // Smallest side of all layers with factors: no product B A has a higher rank.
  std::int64_t smallest_side() const { return smallest_side_; }
  // The config as PEFT writes it, with the names of the layers that have factors.
  const LoraConfig& config() const { return config_; }

  // A is uniform in +-1 / sqrt(in) (kaiming_uniform_ with a = sqrt(5)), each number drawn from seed, factor and
  // position; B is zero. Local.
  at::Tensor first_values() const;

 private:
  LoraConfig config_;
  std::uint64_t seed_;
  bool inputs_first_;  // the model stores its weights as [in, out]
  std::vector<std::vector<Pair>> layers_;
  std::int64_t smallest_side_ = 0;
};

// An adapter's flat tensor with its layout, for a pass.
struct LoraWeights {
  const LoraLayout& layout;
  const at::Tensor& flat;
};

}  // namespace magister
