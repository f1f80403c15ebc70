// Keys and values in pages spread over a cache, and attention over them on a queue's device: shared by the tests on the
// host and on a GPU. Places that no row may read hold NaN in the pages and an index far out of range in the page table.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "magister/device/upload.h"
#include "model/gpu/attention.h"
#include "model/gpu/grouped_attention.h"

namespace magister::gpu {

struct AttentionCase {
  int H, K, E, window = 0;
  HostOrder order = HostOrder::kAscending;
  float softcap = 0;
  int V = 0;  // 0: E
  bool chunked = false, sinks = false, alibi = false, alibi_in_bf16 = false;
};

inline std::string attention_name(const testing::TestParamInfo<AttentionCase>& info) {
  const AttentionCase& c = info.param;
  return "h" + std::to_string(c.H) + "_k" + std::to_string(c.K) + "_e" + std::to_string(c.E) + "_w" +
         std::to_string(c.window) + (c.order == HostOrder::kDescending ? "_down" : "") +
         (c.softcap > 0 ? "_capped" : "") + (c.V > 0 ? "_v" + std::to_string(c.V) : "") +
         (c.chunked ? "_chunked" : "") + (c.sinks ? "_sinks" : "") + (c.alibi ? "_alibi" : "") +
         (c.alibi_in_bf16 ? "_bf16" : "");
}

// Vectors [..., size] as pages of codes hold them, by ATen's own rounding: codes as bytes, the powers of two of their
// scales as bytes [..., 1], and the numbers that they mean, bf16.
struct CodedVectors {
  at::Tensor codes, powers, values;
};
inline CodedVectors coded(const at::Tensor& vectors) {
  const at::Tensor wide = vectors.to(at::kFloat), largest = std::get<0>(wide.abs().max(-1, /*keepdim=*/true));
  const auto [mantissa, exponent] = at::frexp(largest / 448);  // in [0.5, 1)
  const at::Tensor power = at::clamp_min(exponent.to(at::kFloat) - (mantissa == 0.5).to(at::kFloat), -126);
  const at::Tensor scale = at::exp2(at::where(largest == 0, at::full_like(power, -126), power)),
                   codes = (wide / scale).to(at::kFloat8_e4m3fn);
  return {codes.view(at::kByte), (at::log2(scale) + 127).to(at::kByte),
          (codes.to(at::kFloat) * scale).to(at::kBFloat16)};
}
// Writes such vectors [K, size] into slot `slot` of a page [K, 48, size + 1] of records.
inline void put_codes(const at::Tensor& page, std::int64_t slot, const CodedVectors& vectors) {
  const std::int64_t size = vectors.codes.size(-1);
  const at::Tensor records = page.view({page.size(0), -1});
  records.narrow(1, slot * size, size).copy_(vectors.codes);
  records.narrow(1, 48 * size + slot, 1).copy_(vectors.powers);
}

// Sequences with their pages strewn over a cache, and rows that ask them.
template <typename A>
struct PagedCache {
  static constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
  const AttentionCase c;
  const int V;
  const bool codes;
  at::Tensor keys, values, table;            // [P, K, 48, E], [P, K, 48, V], or records of codes; [S, width]
  std::vector<at::Tensor> keys_S, values_S;  // [tokens, K, E or V] as they were put in, or as codes mean them
  at::Tensor sinks_H, slopes_H;

  PagedCache(const AttentionCase& shape, const std::vector<std::int64_t>& tokens_S, std::int64_t width,
             bool of_codes = false)
      : c(shape), V(shape.V > 0 ? shape.V : shape.E), codes(of_codes) {
    std::int64_t pages = 1;  // page 0 belongs to no sequence
    for (const std::int64_t tokens : tokens_S) pages += (tokens + 47) / 48;
    const auto pages_of = [&](int size) {  // bytes of 255: codes of NaN with infinite scales
      return codes ? at::full({pages, c.K, 48, size + 1}, 255, at::kByte)
                   : at::full({pages, c.K, 48, size}, NAN, kType);
    };
    keys = pages_of(c.E);
    values = pages_of(V);
    table = at::full({static_cast<std::int64_t>(tokens_S.size()), width}, 1 << 30, at::kInt);
    const at::Tensor order = at::randperm(pages - 1, at::kLong) + 1;
    std::int64_t next = 0;
    for (std::size_t s = 0; s < tokens_S.size(); ++s) {
      keys_S.push_back(at::randn({tokens_S[s], c.K, c.E}).to(kType));
      values_S.push_back(at::randn({tokens_S[s], c.K, V}).to(kType));
      for (std::int64_t j = 0; j < tokens_S[s]; ++j) {
        if (j % 48 == 0) table[static_cast<std::int64_t>(s)][j / 48] = order[next++].template item<std::int64_t>();
        const std::int64_t page = table[static_cast<std::int64_t>(s)][j / 48].template item<std::int64_t>();
        if (codes) {
          // Vectors of several sizes have several scales.
          const double factor = std::ldexp(1.0, static_cast<int>(j % 7) - 3);
          const CodedVectors key = coded(keys_S[s][j] * factor), value = coded(values_S[s][j] * factor);
          put_codes(keys[page], j % 48, key);
          put_codes(values[page], j % 48, value);
          keys_S[s][j].copy_(key.values);
          values_S[s][j].copy_(value.values);
          continue;
        }
        keys[page].select(1, j % 48).copy_(keys_S[s][j]);
        values[page].select(1, j % 48).copy_(values_S[s][j]);
      }
    }
    if (c.sinks) sinks_H = at::randn({c.H}) * 2 + 3;
    if (c.alibi) slopes_H = at::exp2(-at::arange(1, c.H + 1, at::kFloat));
  }

  // qkv: [R, (H + 2K) E]. -> [R, H, V], on the CPU. compute: paged_attention() or another function that queues it.
  using Compute = std::function<void(const AttentionArguments<A>&, const Queue&)>;
  at::Tensor attend(const at::Tensor& qkv_RQ, const std::vector<std::int32_t>& sequence_R,
                    const std::vector<std::int32_t>& visible_R, int C, const Queue& queue = {},
                    const Compute& compute = paged_attention<A>) const {
    const at::Device device = device_of(queue);
    const at::Tensor qkv = qkv_RQ.to(device), k = keys.to(device), v = values.to(device), pages = table.to(device);
    const at::Tensor sequence = at::tensor(sequence_R, at::kInt).to(device),
                     visible = at::tensor(visible_R, at::kInt).to(device);
    const std::int64_t R = qkv.size(0);
    at::Tensor out = at::full({R, c.H, V}, NAN, qkv.options());
    at::Tensor scratch = at::full({attention_scratch(R, c.H, C, V)}, NAN, qkv.options().dtype(at::kFloat));
    auto* partial = scratch.data_ptr<float>();
    const at::Tensor sinks = sinks_H.defined() ? sinks_H.to(device) : sinks_H,
                     slopes = slopes_H.defined() ? slopes_H.to(device) : slopes_H;
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
                                          partial + R * c.H * C * V,
                                          static_cast<int>(R),
                                          c.H,
                                          c.K,
                                          c.E,
                                          C,
                                          c.window,
                                          scale(),
                                          c.softcap,
                                          c.V,
                                          c.chunked,
                                          c.sinks ? sinks.data_ptr<float>() : nullptr,
                                          c.alibi ? slopes.data_ptr<float>() : nullptr,
                                          c.alibi_in_bf16,
                                          codes};
    compute(arguments, queue);
    return out.cpu();
  }

  at::Tensor wanted(const at::Tensor& q_HE, std::size_t sequence, std::int64_t visible) const {
    const std::int64_t low = c.window == 0 ? 0
                             : c.chunked   ? (visible - 1) / c.window * c.window
                                           : std::max<std::int64_t>(0, visible - c.window);
    const auto of_heads = [&](const at::Tensor& x) {
      return x.narrow(0, low, visible - low)
          .to(at::kDouble)
          .transpose(0, 1)
          .repeat_interleave(c.H / c.K, 0);  // [H, keys, E]
    };
    at::Tensor scores =
        at::matmul(of_heads(keys_S[sequence]), q_HE.to(at::kDouble).unsqueeze(-1)).squeeze(-1) * scale();
    if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
    if (c.alibi) scores = scores + alibi(at::arange(low, visible, at::kFloat), static_cast<double>(visible - 1));
    if (c.sinks) scores = at::cat({scores, sinks_H.to(at::kDouble).unsqueeze(1)}, 1);
    return at::matmul(at::softmax(scores, -1).narrow(1, 0, visible - low).unsqueeze(1), of_heads(values_S[sequence]))
        .squeeze(1);
  }

  // [H, keys]
  at::Tensor alibi(const at::Tensor& keys, double query) const {
    const at::Tensor slopes_H1 = slopes_H.unsqueeze(1);
    if (!c.alibi_in_bf16) return slopes_H1 * (keys - query);
    const auto placed = [&](const at::Tensor& positions) {
      return (slopes_H1.to(at::kBFloat16) * positions.to(at::kBFloat16)).to(at::kFloat);
    };
    return (placed(keys) - placed(at::full({1}, query, at::kFloat))) * scale();
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c.E)); }
};

// GroupedAttention with blocks of `span` chunks.
inline PagedCache<Bf16>::Compute by_blocks_of(int span) {
  return [span](const AttentionArguments<Bf16>& arguments, const Queue& queue) {
    AttentionArguments<Bf16> a = arguments;
    a.V = a.V == 0 ? a.E : a.V;
    grouped_attention(a, span, queue);
  };
}

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
          {5, 1, 80, 100, HostOrder::kDescending, 0.5f},
          {4, 2, 512},
          {9, 1, 320},
          {5, 1, 258, 100, HostOrder::kDescending},
          {.H = 4, .K = 2, .E = 192, .V = 128},
          {.H = 3, .K = 1, .E = 24, .order = HostOrder::kDescending, .V = 128},
          {.H = 4, .K = 4, .E = 34, .window = 100, .V = 6},
          {.H = 4, .K = 1, .E = 64, .window = 48, .chunked = true},
          {.H = 2, .K = 2, .E = 64, .window = 250, .chunked = true},
          {.H = 8, .K = 1, .E = 64, .sinks = true},
          {.H = 4, .K = 2, .E = 64, .window = 100, .softcap = 1.5f, .sinks = true},
          {.H = 6, .K = 6, .E = 32, .alibi = true},
          {.H = 5, .K = 1, .E = 64, .order = HostOrder::kDescending, .alibi = true, .alibi_in_bf16 = true}};
}

// Those whose heads are multiples of eight.
inline std::vector<AttentionCase> cases_of_codes() {
  std::vector<AttentionCase> cases = attention_cases();
  std::erase_if(cases, [](const AttentionCase& c) { return c.E % 8 != 0 || c.V % 8 != 0; });
  return cases;
}

}  // namespace magister::gpu
