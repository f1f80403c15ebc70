// Attention of long texts by cuDNN, as ATen offers it: on compute capability 9.0 and newer its kernels are those that use the new tensor cores
// (flash attention 2 does not). cuDNN chooses a kernel by the shapes of a call, so every text has a call of its own, filled up to a step: its
// rows' bits then follow from its own tokens, whatever stands beside it. Source: ATen's native/cudnn/MHA.cpp, build_graph.
// Legend: L tokens of a text, H query and K KV heads of this shard, E head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "magister/device/launch.h"
#include "magister/model/layer_shape.h"

namespace magister::gpu {

// Texts from here on: a call for each of many short ones would leave the device idle between them.
constexpr std::int64_t kLongText = 2048;
// A text is filled up to a multiple. cuDNN plans each new length on the host (tens of milliseconds, once a thread), so there must be few; rows
// that are filled up cost a twelfth at kLongText and less beyond.
constexpr std::int64_t kCudnnStep = 256;

// Whether it is asked for a layer's attention: bf16, all earlier keys, scores without a cap.
bool cudnn_takes(const LayerShape& shape, at::ScalarType dtype);

// q [L, H, E], k and v [L, K, E], bf16, E beside each other -> [L, H, E]; each query sees the keys up to its own. Throws c10::Error where this ATen or
// this device has no cuDNN attention for the shape.
at::Tensor attend_by_cudnn(const at::Tensor& q_LHE, const at::Tensor& k_LKE, const at::Tensor& v_LKE, double scale);

struct CudnnTrial {
  std::string problem;  // empty: it may be used
  double of_flash = 0;  // its time over that of flash attention, for a text of 4,096 tokens; 0 on the host
};
// Texts of several lengths, alone and among others at another place, several times: the same bits, near flash attention's. Local.
CudnnTrial try_cudnn_attention(const LayerShape& shape, at::ScalarType dtype, at::Device device, const Queue& queue);

}  // namespace magister::gpu
