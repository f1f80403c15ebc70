// The router's choice: experts of each token, and tokens of each expert. Inference and training share it.
// Legend: T packed tokens, X experts, k experts per token, S shared experts, L numbers of a router's row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/model_config.h"

namespace magister {

// The k experts of each token in ascending order, and their weights. The choice depends on the token's own logits only;
// among equal logits the lower expert wins. A NaN logit is chosen last and makes the token's weights NaN.
struct Routes {
  at::Tensor experts_Tk;  // i32
  at::Tensor weights_Tk;  // f32
};
// A router's rule. Shared experts follow the X others and are every token's.
struct RouterRule {
  std::int64_t experts = 0, per_token = 0;  // X, k
  bool normed = false;                      // the chosen experts' scores are divided by their sum
  RouterConfig config{};
  std::int64_t shared = 0;   // S
  bool shared_gate = false;  // the last logit of a token is that of the shared experts' weight
  std::int64_t logits() const { return experts + (shared_gate ? 1 : 0); }  // L
  std::int64_t routes() const { return per_token + shared; }
};
// logits_TL: f32, contiguous, CPU. choice_bias_X: f32, contiguous, CPU, or undefined. The routes are [T, k + S].
Routes choose_experts(const RouterRule& rule, const at::Tensor& logits_TL, const at::Tensor& choice_bias_X);
// The same for one token. choice_bias: [X] or nullptr.
void choose_experts(const RouterRule& rule, const float* logits, const float* choice_bias, std::int32_t* experts,
                    float* weights);
// The weights of routes that were chosen, as autograd follows them: [T, k + S] f32. experts: i64, as in Routes.
at::Tensor route_weights(const RouterRule& rule, const at::Tensor& logits_TL, const at::Tensor& experts);

// The rule of a softmax without anything else. logits_TX: f32, contiguous, CPU. normed: the probabilities of the chosen
// experts are divided by their sum.
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
