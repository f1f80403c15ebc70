// Keys and values in pages spread over a cache, and attention over them on a queue's device: shared by the tests on the
// host and on a GPU. Places that no row may read hold NaN in the pages and an index far out of range in the page table.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "magister/device/upload.h"
#include "model/gpu/attention.h"

namespace magister::gpu {

struct AttentionCase {
  int H, K, E, window = 0;
  HostOrder order = HostOrder::kAscending;
  float softcap = 0;
};

inline std::string attention_name(const testing::TestParamInfo<AttentionCase>& info) {
  const AttentionCase& c = info.param;
  return "h" + std::to_string(c.H) + "_k" + std::to_string(c.K) + "_e" + std::to_string(c.E) + "_w" +
         std::to_string(c.window) + (c.order == HostOrder::kDescending ? "_down" : "") +
         (c.softcap > 0 ? "_capped" : "");
}

// Sequences with their pages strewn over a cache, and rows that ask them.
template <typename A>
struct PagedCache {
  static constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
  const AttentionCase c;
  at::Tensor keys, values, table;            // [P, K, 48, E] twice, [S, width]
  std::vector<at::Tensor> keys_S, values_S;  // [tokens, K, E] as they were put in

  PagedCache(const AttentionCase& shape, const std::vector<std::int64_t>& tokens_S, std::int64_t width) : c(shape) {
    std::int64_t pages = 1;  // page 0 belongs to no sequence
    for (const std::int64_t tokens : tokens_S) pages += (tokens + 47) / 48;
    keys = at::full({pages, c.K, 48, c.E}, NAN, kType);
    values = keys.clone();
    table = at::full({static_cast<std::int64_t>(tokens_S.size()), width}, 1 << 30, at::kInt);
    const at::Tensor order = at::randperm(pages - 1, at::kLong) + 1;
    std::int64_t next = 0;
    for (std::size_t s = 0; s < tokens_S.size(); ++s) {
      keys_S.push_back(at::randn({tokens_S[s], c.K, c.E}).to(kType));
      values_S.push_back(at::randn({tokens_S[s], c.K, c.E}).to(kType));
      for (std::int64_t j = 0; j < tokens_S[s]; ++j) {
        if (j % 48 == 0) table[static_cast<std::int64_t>(s)][j / 48] = order[next++].template item<std::int64_t>();
        const std::int64_t page = table[static_cast<std::int64_t>(s)][j / 48].template item<std::int64_t>();
        keys[page].select(1, j % 48).copy_(keys_S[s][j]);
        values[page].select(1, j % 48).copy_(values_S[s][j]);
      }
    }
  }

  // qkv: [R, (H + 2K) E]. -> [R, H, E], on the CPU
  at::Tensor attend(const at::Tensor& qkv_RQ, const std::vector<std::int32_t>& sequence_R,
                    const std::vector<std::int32_t>& visible_R, int C, const Queue& queue = {}) const {
    const at::Device device = device_of(queue);
    const at::Tensor qkv = qkv_RQ.to(device), k = keys.to(device), v = values.to(device), pages = table.to(device);
    const at::Tensor sequence = at::tensor(sequence_R, at::kInt).to(device),
                     visible = at::tensor(visible_R, at::kInt).to(device);
    const std::int64_t R = qkv.size(0);
    at::Tensor out = at::full({R, c.H, c.E}, NAN, qkv.options());
    at::Tensor scratch = at::full({attention_scratch(R, c.H, C, c.E)}, NAN, qkv.options().dtype(at::kFloat));
    auto* partial = scratch.data_ptr<float>();
    const AttentionArguments<A> arguments{static_cast<const A*>(qkv.data_ptr()),
                                          qkv.stride(0),
                                          static_cast<const A*>(k.data_ptr()),
                                          static_cast<const A*>(v.data_ptr()),
                                          pages.data_ptr<std::int32_t>(),
                                          sequence.data_ptr<std::int32_t>(),
                                          visible.data_ptr<std::int32_t>(),
                                          static_cast<A*>(out.data_ptr()),
                                          pages.stride(0),
                                          out.stride(0),
                                          partial,
                                          partial + R * c.H * C * c.E,
                                          static_cast<int>(R),
                                          c.H,
                                          c.K,
                                          c.E,
                                          C,
                                          c.window,
                                          scale(),
                                          c.softcap};
    paged_attention(arguments, queue);
    return out.cpu();
  }

  at::Tensor wanted(const at::Tensor& q_HE, std::size_t sequence, std::int64_t visible) const {
    const std::int64_t low = c.window > 0 ? std::max<std::int64_t>(0, visible - c.window) : 0;
    const auto of_heads = [&](const at::Tensor& x) {
      return x.narrow(0, low, visible - low)
          .to(at::kDouble)
          .transpose(0, 1)
          .repeat_interleave(c.H / c.K, 0);  // [H, keys, E]
    };
    at::Tensor scores =
        at::matmul(of_heads(keys_S[sequence]), q_HE.to(at::kDouble).unsqueeze(-1)).squeeze(-1) * scale();
    if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
    return at::matmul(at::softmax(scores, -1).unsqueeze(1), of_heads(values_S[sequence])).squeeze(1);
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c.E)); }
};

inline std::vector<AttentionCase> attention_cases() {
  return {{4, 4, 64},
          {6, 2, 80},
          {4, 1, 96},
          {8, 2, 128},
          {8, 1, 128},
          {9, 1, 64},
          {2, 2, 256},
          {5, 1, 256},
          {2, 1, 34},
          {3, 1, 6},
          {2, 2, 130},
          {4, 1, 64, 1},
          {4, 1, 64, 100},
          {4, 1, 64, 192},
          {2, 2, 64, 250},
          {8, 2, 128, 0, HostOrder::kDescending},
          {5, 1, 80, 100, HostOrder::kDescending},
          {4, 4, 64, 0, HostOrder::kDescending},
          {4, 2, 256, 0, HostOrder::kAscending, 1.5f},
          {5, 1, 80, 100, HostOrder::kDescending, 0.5f}};
}

}  // namespace magister::gpu
