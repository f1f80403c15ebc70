// GroupedAttention and FoldChunks on the GPU, over pages of bf16 and of codes: near their emulation on the host, with
// the same bits in a second run, alone, and for every number of chunks of a block. Besides it prints what they read per
// second beside PagedAttention and CombineChunks, in turns over the same pages; nothing depends on these figures.
#include "model/gpu/grouped_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "magister/device/gpu_stamp.h"
#include "model/paged_cache.h"

namespace magister::gpu {
namespace grouped_attention_test {

using Cache = PagedCache<Bf16>;

class GroupedAttentionOnBoth : public testing::TestWithParam<AttentionCase> {};

void expect_the_hosts(const AttentionCase& c, bool codes) {
  at::manual_seed(11);
  const Cache cache(c, {1, 48, 193, 901}, 20, codes);
  const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3, 3},
                                  visible_R = {1, 48, 47, 193, 901, 192, 97, 0, 400};
  const auto R = static_cast<std::int64_t>(sequence_R.size());
  const at::Tensor qkv = at::randn({R, (c.H + 2 * c.K) * c.E}).to(at::kBFloat16);
  const at::Tensor host = cache.attend(qkv, sequence_R, visible_R, 5),
                   device = cache.attend(qkv, sequence_R, visible_R, 5, gpu_queue());
  EXPECT_LE((device.to(at::kDouble) - host.to(at::kDouble)).abs().max().item<double>(),
            8e-3 * host.to(at::kDouble).abs().max().item<double>());
  for (const int span : {1, 2, 5, 8})
    EXPECT_TRUE(at::equal(cache.attend(qkv, sequence_R, visible_R, 8, gpu_queue(), by_blocks_of(span)), device))
        << span << " chunks a block";
  for (std::int64_t r = 0; r < R; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const at::Tensor alone = cache.attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]},
                                          attention_chunks(visible_R[i]) + 1, gpu_queue());
    EXPECT_TRUE(at::equal(alone[0], device[r])) << visible_R[i] << " keys";
  }
}

TEST_P(GroupedAttentionOnBoth, GroupedAttentionAndFoldChunks) { expect_the_hosts(GetParam(), false); }
TEST_P(GroupedAttentionOnBoth, TheSameOverCodes) { expect_the_hosts(GetParam(), true); }

// One case for each instance of the kernel, windows, sinks and capped scores.
INSTANTIATE_TEST_SUITE_P(All, GroupedAttentionOnBoth,
                         testing::Values(AttentionCase{.H = 4, .K = 2, .E = 64}, AttentionCase{.H = 9, .K = 1, .E = 64},
                                         AttentionCase{.H = 6, .K = 2, .E = 80}, AttentionCase{.H = 4, .K = 1, .E = 96},
                                         AttentionCase{.H = 8, .K = 2, .E = 128},
                                         AttentionCase{.H = 16, .K = 1, .E = 128},
                                         AttentionCase{.H = 4, .K = 2, .E = 192, .V = 128},
                                         AttentionCase{.H = 5, .K = 1, .E = 256},
                                         AttentionCase{.H = 4, .K = 1, .E = 64, .window = 100},
                                         AttentionCase{.H = 4, .K = 1, .E = 128, .window = 250, .chunked = true},
                                         AttentionCase{.H = 8, .K = 1, .E = 64, .window = 128, .sinks = true},
                                         AttentionCase{.H = 4, .K = 2, .E = 256, .softcap = 1.5f}),
                         attention_name);

double milliseconds_of(const std::function<void()>& queue_all) {
  if (gpu_queue().on_host()) {
    const auto begin = std::chrono::steady_clock::now();
    queue_all();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  const GpuStamp begin = GpuStamp::record();
  queue_all();
  return GpuStamp::record().milliseconds_since(begin);
}

// Pages and rows of several layers, so that the L2 cache does not hold what the next launch reads.
struct Layers {
  AttentionCase heads;
  bool codes;
  std::int64_t R, keys, C, pages, layers;
  at::Tensor key_pages, value_pages, qkv, table, sequence_R, visible_R, out, scratch;

  Layers(const AttentionCase& c, bool of_codes, std::int64_t rows, std::int64_t tokens)
      : heads(c),
        codes(of_codes),
        R(rows),
        keys(tokens),
        C(attention_chunks(tokens)),
        pages(rows * ((tokens + 47) / 48)) {
    const auto device = device_of(gpu_queue());
    const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(device);
    layers = gpu_queue().on_host() ? 1 : std::max<std::int64_t>(2, (std::int64_t{1} << 29) / bytes() + 1);
    const auto made = [&] {
      if (!codes) return at::randn({layers, pages, c.K, 48, c.E}, bf16);
      at::Tensor records = at::randint(0, 0x60, {layers, pages, c.K, 48 * (c.E + 1)}, bf16.dtype(at::kByte));
      records.narrow(-1, 48 * c.E, 48).fill_(124);  // scales of 2^-3
      return records;
    };
    key_pages = made();
    value_pages = made();
    qkv = at::randn({R, (c.H + 2 * c.K) * c.E}, bf16);
    table = at::randperm(pages, at::kLong).to(at::kInt).view({R, -1}).to(device);
    sequence_R = at::arange(R, at::kInt).to(device);
    visible_R = at::full({R}, tokens, at::kInt).to(device);
    out = at::empty({R, c.H * c.E}, bf16);
    scratch = at::empty({attention_scratch(R, c.H, C, c.E)}, bf16.dtype(at::kFloat));
  }
  // Bytes of the keys and values of a layer that the rows see.
  std::int64_t bytes() const { return R * keys * heads.K * 2 * (codes ? heads.E + 1 : 2 * heads.E); }
  double milliseconds(const Cache::Compute& compute) const {
    const auto pointer = [](const at::Tensor& x) { return static_cast<Bf16*>(x.data_ptr()); };
    return milliseconds_of([&] {
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        auto* sums = scratch.data_ptr<float>();
        const AttentionArguments<Bf16> a{pointer(qkv),
                                         qkv.stride(0),
                                         pointer(key_pages[layer]),
                                         pointer(value_pages[layer]),
                                         table.data_ptr<std::int32_t>(),
                                         sequence_R.data_ptr<std::int32_t>(),
                                         visible_R.data_ptr<std::int32_t>(),
                                         pointer(out),
                                         table.stride(0),
                                         out.stride(0),
                                         sums,
                                         sums + R * heads.H * C * heads.E,
                                         static_cast<int>(R),
                                         heads.H,
                                         heads.K,
                                         heads.E,
                                         static_cast<int>(C),
                                         0,
                                         0.1f,
                                         0,
                                         0,
                                         false,
                                         nullptr,
                                         nullptr,
                                         false,
                                         codes};
        compute(a, gpu_queue());
      }
    });
  }
};

void print_rates(const AttentionCase& heads, bool codes, std::int64_t R, std::int64_t keys) {
  const bool on_host = gpu_queue().on_host();
  const Layers layers(heads, codes, R, keys);
  std::vector<double> plain, grouped;
  for (int i = 0; i < (on_host ? 1 : 7); ++i) {
    plain.push_back(layers.milliseconds(plain_paged_attention<Bf16>));
    grouped.push_back(layers.milliseconds(paged_attention<Bf16>));
  }
  const auto printed = [&](const char* name, std::vector<double>& ms) {
    std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
    const double each = ms[ms.size() / 2] / static_cast<double>(layers.layers);
    std::printf("   %d heads, %d KV heads of %d numbers, %lld x %lld keys%s, %s: %.2f us a layer, %.0f GB/s\n", heads.H,
                heads.K, heads.E, static_cast<long long>(R), static_cast<long long>(keys), codes ? " in codes" : "",
                name, 1e3 * each, 1e-6 * static_cast<double>(layers.bytes()) / each);
  };
  printed("plain", plain);
  printed("grouped", grouped);
}

TEST(GroupedAttentionRate, BesidePagedAttention) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> many = {{256, 512}, {64, 512},  {32, 512}, {1, 512},
                                                                   {1, 4096},  {32, 4096}, {1, 32768}},
                                                           few = {{2, 60}, {1, 200}};
  for (const AttentionCase& heads : {AttentionCase{32, 8, 128}, AttentionCase{64, 8, 64}, AttentionCase{16, 8, 256}}) {
    for (const auto& [R, keys] : gpu_queue().on_host() ? few : many) {
      for (const bool codes : {false, true}) print_rates(heads, codes, R, keys);
    }
  }
}

}  // namespace grouped_attention_test
}  // namespace magister::gpu
