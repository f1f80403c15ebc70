// Attention over pages on the host, thread by thread, against a softmax in double over the gathered keys; a row's bits alone,
// in company and in a longer launch. What no row may read is NaN in the pages and far outside in the page table.
#include "model/gpu/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace magister::gpu {
namespace {

struct Case {
  int H, K, E, window = 0;
  HostOrder order = HostOrder::kAscending;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return "h" + std::to_string(c.H) + "_k" + std::to_string(c.K) + "_e" + std::to_string(c.E) + "_w" + std::to_string(c.window) +
         (c.order == HostOrder::kDescending ? "_down" : "");
}

// Sequences with their pages strewn over a cache, and rows that ask them.
template <typename A>
struct Cache {
  static constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
  const Case c;
  at::Tensor keys, values, table;               // [P, K, 48, E] twice, [S, width]
  std::vector<at::Tensor> keys_S, values_S;     // [tokens, K, E] as they were put in

  Cache(const Case& shape, const std::vector<std::int64_t>& tokens_S, std::int64_t width) : c(shape) {
    std::int64_t pages = 1;  // page 0 is nobody's
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

  // qkv: [R, (H + 2K) E]. -> [R, H, E]
  at::Tensor attend(const at::Tensor& qkv, const std::vector<std::int32_t>& sequence_R, const std::vector<std::int32_t>& visible_R,
                    int C) const {
    const std::int64_t R = qkv.size(0);
    at::Tensor out = at::full({R, c.H, c.E}, NAN, kType), scratch = at::full({attention_scratch(R, c.H, C, c.E)}, NAN);
    auto* partial = scratch.data_ptr<float>();
    const AttentionArguments<A> arguments{
        static_cast<const A*>(qkv.data_ptr()), qkv.stride(0),
        static_cast<const A*>(keys.data_ptr()), static_cast<const A*>(values.data_ptr()),
        table.data_ptr<std::int32_t>(), sequence_R.data(), visible_R.data(), static_cast<A*>(out.data_ptr()), table.stride(0),
        out.stride(0), partial, partial + R * c.H * C * c.E, static_cast<int>(R), c.H, c.K, c.E, C, c.window, scale()};
    paged_attention(arguments, Queue{});
    return out;
  }

  at::Tensor wanted(const at::Tensor& q_HE, std::size_t sequence, std::int64_t visible) const {
    const std::int64_t low = c.window > 0 ? std::max<std::int64_t>(0, visible - c.window) : 0;
    const auto of_heads = [&](const at::Tensor& x) {
      return x.narrow(0, low, visible - low).to(at::kDouble).transpose(0, 1).repeat_interleave(c.H / c.K, 0);  // [H, keys, E]
    };
    const at::Tensor scores = at::matmul(of_heads(keys_S[sequence]), q_HE.to(at::kDouble).unsqueeze(-1)).squeeze(-1) * scale();
    return at::matmul(at::softmax(scores, -1).unsqueeze(1), of_heads(values_S[sequence])).squeeze(1);
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c.E)); }
};

class Attention : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    set_host_order(GetParam().order);
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }

  template <typename A>
  void check(double limit) {
    const Case& c = GetParam();
    const Cache<A> cache(c, {1, 48, 193, 401}, 10);
    // Several rows of one sequence, ends of pages and of chunks, and a row that is nobody's.
    const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3}, visible_R = {1, 48, 47, 193, 401, 192, 97, 0};
    const auto R = static_cast<std::int64_t>(sequence_R.size());
    const at::Tensor qkv = at::randn({R, (c.H + 2 * c.K) * c.E}).to(Cache<A>::kType);
    const at::Tensor out = cache.attend(qkv, sequence_R, visible_R, attention_chunks(401));
    for (std::int64_t r = 0; r + 1 < R; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const at::Tensor q = qkv[r].narrow(0, 0, c.H * c.E).view({c.H, c.E});
      const at::Tensor wanted = cache.wanted(q, static_cast<std::size_t>(sequence_R[i]), visible_R[i]);
      const double error = (out[r].to(at::kDouble) - wanted).abs().max().template item<double>();
      EXPECT_LE(error, limit * wanted.abs().max().template item<double>()) << r;
      if (r % 2 == 0) continue;
      const int more = attention_chunks(visible_R[i]) + 1;
      const at::Tensor alone = cache.attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]}, more);
      EXPECT_TRUE(at::equal(alone[0], out[r])) << r;
    }
    EXPECT_TRUE(at::equal(out[R - 1], at::zeros_like(out[R - 1])));
  }
};

// f32: sums in another order; bf16: the result keeps 8 bits.
TEST_P(Attention, OfFloatsIsThatOfDoubles) { check<float>(2e-6); }
TEST_P(Attention, OfBf16IsThatOfDoubles) { check<Bf16>(4e-3); }

INSTANTIATE_TEST_SUITE_P(All, Attention,
                         testing::Values(Case{4, 4, 64}, Case{6, 2, 80}, Case{4, 1, 96}, Case{8, 2, 128}, Case{8, 1, 128}, Case{9, 1, 64},
                                         Case{2, 2, 256}, Case{5, 1, 256}, Case{2, 1, 34}, Case{3, 1, 6}, Case{2, 2, 130},
                                         Case{4, 1, 64, 1}, Case{4, 1, 64, 100}, Case{4, 1, 64, 192}, Case{2, 2, 64, 250},
                                         Case{8, 2, 128, 0, HostOrder::kDescending}, Case{5, 1, 80, 100, HostOrder::kDescending},
                                         Case{4, 4, 64, 0, HostOrder::kDescending}),
                         name_of);

}  // namespace
}  // namespace magister::gpu
