// The router's choice: experts of each token, and tokens of each expert. Inference and training share it.
// Legend: T packed tokens, X experts, k experts per token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace magister {

// The k experts of each token in ascending order, and their weights. The choice depends on the token's own logits only;
// among equal logits the lower expert wins. A NaN logit is chosen last and makes the token's weights NaN.
struct Routes {
  at::Tensor experts_Tk;  // i32
  at::Tensor weights_Tk;  // f32
};
// logits_TX: f32, contiguous, CPU. normed: the probabilities of the chosen experts are divided by their sum.
Routes choose_experts(const at::Tensor& logits_TX, std::int64_t k, bool normed);
// The same for one token; logits: [X].
void choose_experts(const float* logits, std::int64_t num_experts, std::int64_t k, bool normed, std::int32_t* experts,
                    float* weights);

// Tokens by expert: entries [first[x], first[x + 1]) of `entry` are the choices of expert x, as indices into [T, k],
// ascending.
struct ExpertGroups {
  std::vector<std::int64_t> first;   // [X + 1]
  std::vector<std::int32_t> entry;   // [T k]
  std::vector<std::int32_t> row_of;  // [T k], inverse of `entry`
};
// experts_Tk: i32, contiguous, CPU.
ExpertGroups group_by_expert(const at::Tensor& experts_Tk, std::int64_t num_experts);

}  // namespace magister
