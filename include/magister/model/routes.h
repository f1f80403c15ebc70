// Which experts a token goes to, and which tokens an expert gets: what inference and training have in common of a mixture of experts.
// Legend: T packed tokens, X experts, k experts a token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace magister {

// The k experts of each token in ascending order, and their weights. A choice is a function of the token's own logits: of equal ones the
// lower number wins. A logit that is not a number makes the token's weights so.
struct Routes {
  at::Tensor experts_Tk;  // i32
  at::Tensor weights_Tk;  // f32
};
// logits_TX: f32, contiguous, CPU. normed: the chosen probabilities are divided by their sum.
Routes choose_experts(const at::Tensor& logits_TX, std::int64_t k, bool normed);
// Of one token; logits: [X].
void choose_experts(const float* logits, std::int64_t num_experts, std::int64_t k, bool normed, std::int32_t* experts,
                    float* weights);

// Tokens by expert: entries [first[x], first[x + 1]) of `entry` chose expert x, as places in [T, k], ascending.
struct ExpertGroups {
  std::vector<std::int64_t> first;   // [X + 1]
  std::vector<std::int32_t> entry;   // [T k]
  std::vector<std::int32_t> row_of;  // [T k], the inverse
};
// experts_Tk: i32, contiguous, CPU.
ExpertGroups group_by_expert(const at::Tensor& experts_Tk, std::int64_t num_experts);

}  // namespace magister
