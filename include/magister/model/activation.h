// The activation function of an MLP, between its two products: act(gate) * up, or act(up) in an MLP without a gate.
#pragma once

namespace magister {

// kSilu: x * sigmoid(x). kGelu: x * Phi(x), where Phi is the normal distribution function. kGeluTanh is Hugging Face's
// gelu_pytorch_tanh and gelu_new: x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)). Source: Hendrycks & Gimpel, arXiv
// 1606.08415. kRelu: max(x, 0). kRelu2: its square (Nemotron).
enum class Activation { kSilu, kGeluTanh, kGelu, kRelu, kRelu2 };
inline constexpr int kNumActivations = 5;
inline constexpr float kGeluTanhScale = 1.5957691216057308f, kGeluTanhCubic = 0.044715f;

}  // namespace magister
