// Products of codes with the rows of many texts, on a queue's device, and their cases: shared by the tests on the host
// and on a GPU.
#pragma once

#include "model/gpu/code_product.h"
#include "model/stored_weight.h"

namespace magister::gpu {

// Computes on the queue's device; returns the result on the CPU. Pieces are NaN before.
inline at::Tensor code_product(const Stored& stored, const ProductCase& c, const at::Tensor& x_MK,
                               const at::Tensor& bias_N, bool float_out = true, const Queue& queue = {}) {
  const at::Device device = device_of(queue);
  const Stored s = stored.to(device);
  const at::Tensor x = x_MK.to(device), bias = bias_N.defined() ? bias_N.to(device) : bias_N;
  const at::ScalarType type = float_out ? at::kFloat : at::kBFloat16;
  const std::int64_t M = x.size(0);
  at::Tensor out = at::full({M, c.N}, NAN, x.options().dtype(type)),
             pieces = at::full({code_piece_numbers(M, c.N, c.K)}, NAN, x.options().dtype(at::kFloat));
  const ProductArguments arguments{s.weight,
                                   static_cast<const Bf16*>(x.data_ptr()),
                                   x.stride(0),
                                   bias.defined() ? bias.data_ptr<float>() : nullptr,
                                   out.data_ptr(),
                                   c.N,
                                   static_cast<int>(M),
                                   float_out};
  code_product(arguments, c.bits, c.group, pieces.data_ptr<float>(), queue);
  return out.cpu();
}

// Every kind of codes, with the scales of GPTQ, AWQ, GGUF and our own. Tiles and steps that end early, groups that
// begin on another shard, fewer steps than shares.
inline std::vector<ProductCase> coded_cases() {
  constexpr Offset kMiddle = Offset::kMiddle, kZero = Offset::kZero, kMinimum = Offset::kMinimum;
  constexpr HostOrder kUp = HostOrder::kAscending, kDown = HostOrder::kDescending;
  return {
      {8, 128, 264, 160, 0, kMiddle, false, kUp},    {8, 0, 520, 96, 0, kMiddle, false, kDown},
      {8, 32, 40, 224, 32, kMiddle, false, kUp},     {8, 64, 24, 160, 32, kMiddle, true, kUp},
      {8, 128, 24, 160, 96, kZero, true, kDown},     {8, 0, 24, 96, 0, kMinimum, true, kUp},
      {8, 32, 264, 96, 0, kMinimum, false, kUp, 16}, {4, 128, 264, 160, 0, kMiddle, false, kUp},
      {4, 32, 40, 224, 32, kZero, true, kDown},      {4, 64, 24, 160, 32, kZero, false, kUp, 32},
      {4, 0, 24, 96, 0, kMiddle, true, kUp},         {4, 32, 24, 96, 0, kMinimum, true, kUp},
      {4, 128, 24, 160, 64, kMinimum, true, kUp},
  };
}

}  // namespace magister::gpu
