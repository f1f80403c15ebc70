// Attention of long texts with cuDNN, as ATen provides it. On compute capability 9.0 and newer its kernels use the new
// tensor core instructions (flash attention 2 does not). cuDNN chooses a kernel by the shapes of a call, so each text
// gets its own call, padded to a multiple of kCudnnStep. The bits of its rows then depend only on its own tokens.
// Source: ATen's native/cudnn/MHA.cpp, build_graph.
// Legend: L tokens of a text, H query heads and K KV heads of this shard, E head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "magister/device/launch.h"
#include "magister/model/layer_shape.h"

namespace magister::gpu {

// The shortest text for cuDNN: with one call for each of many short texts, the device would be idle between the calls.
constexpr std::int64_t kLongText = 2048;
// Texts are padded to a multiple of this. cuDNN plans each new length on the host (tens of milliseconds, once per
// thread), so there must be few lengths. Padding rows cost a twelfth at kLongText, and less for longer texts.
constexpr std::int64_t kCudnnStep = 256;

// True if cuDNN is used for a layer's attention: bf16, no window, no latents, keys and values of one size, and scores
// that need no blocks of their own (score_blocks.h).
bool cudnn_takes(const LayerShape& shape, bool has_sinks, at::ScalarType dtype);

// q [L, H, E], k and v [L, K, E], bf16, contiguous in E -> [L, H, E]. Each query sees the keys up to its own. Throws
// c10::Error if this ATen or device has no cuDNN attention for the shape.
at::Tensor attend_by_cudnn(const at::Tensor& q_LHE, const at::Tensor& k_LKE, const at::Tensor& v_LKE, double scale);

struct CudnnTrial {
  std::string problem;  // empty: it may be used
  double of_flash = 0;  // its time divided by that of flash attention, for a text of 4,096 tokens; 0 on the host
};
// Computes texts of several lengths, alone and between others at another position, several times: the bits must be the
// same, and close to flash attention's numbers. Local.
CudnnTrial try_cudnn_attention(const LayerShape& shape, at::ScalarType dtype, at::Device device, const Queue& queue);

}  // namespace magister::gpu
