// Activation: what an MLP does between its products, act(gate) * up.
#pragma once

namespace magister {

// kGeluTanh: Hugging Face's gelu_pytorch_tanh and gelu_new. Both are gate * sigmoid(z): of z = gate, or of
// z = 2 sqrt(2 / pi) (gate + 0.044715 gate^3). Source: Hendrycks & Gimpel, arXiv 1606.08415.
enum class Activation { kSilu, kGeluTanh };
inline constexpr int kNumActivations = 2;
inline constexpr float kGeluTanhScale = 1.5957691216057308f, kGeluTanhCubic = 0.044715f;

}  // namespace magister
