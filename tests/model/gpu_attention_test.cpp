// Attention over pages on the host, thread by thread, against a softmax in double over the gathered keys; a row's bits
// are the same alone, among other rows and in a longer launch. The cases: paged_cache.h.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "model/gpu/attention.h"
#include "model/gpu/grouped_attention.h"
#include "model/paged_cache.h"

namespace magister::gpu {
namespace gpu_attention_test {

using Case = AttentionCase;
template <typename A>
using Cache = PagedCache<A>;

class Attention : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { set_host_order(GetParam().order); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }

  template <typename A>
  void check(double limit, const typename Cache<A>::Compute& compute = paged_attention<A>) {
    const Case& c = GetParam();
    at::manual_seed(11);
    const Cache<A> cache(c, {1, 48, 193, 401}, 10);
    // Several rows of one sequence, ends of pages and of chunks, and a row without keys.
    const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3},
                                    visible_R = {1, 48, 47, 193, 401, 192, 97, 0};
    const auto R = static_cast<std::int64_t>(sequence_R.size());
    const at::Tensor qkv = at::randn({R, (c.H + 2 * c.K) * c.E}).to(Cache<A>::kType);
    const at::Tensor out = cache.attend(qkv, sequence_R, visible_R, attention_chunks(401), {}, compute);
    for (std::int64_t r = 0; r + 1 < R; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const at::Tensor q = qkv[r].narrow(0, 0, c.H * c.E).view({c.H, c.E});
      const at::Tensor wanted = cache.wanted(q, static_cast<std::size_t>(sequence_R[i]), visible_R[i]);
      const double error = (out[r].to(at::kDouble) - wanted).abs().max().template item<double>();
      EXPECT_LE(error, limit * wanted.abs().max().template item<double>()) << r;
      if (r % 2 == 0) continue;
      const int more = attention_chunks(visible_R[i]) + 1;
      const at::Tensor alone =
          cache.attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]}, more, {}, compute);
      EXPECT_TRUE(at::equal(alone[0], out[r])) << r;
    }
    EXPECT_TRUE(at::equal(out[R - 1], at::zeros_like(out[R - 1])));
  }
};

// f32: sums in another order; bf16: the result keeps 8 bits.
TEST_P(Attention, OfFloatsIsThatOfDoubles) { check<float>(2e-6); }
TEST_P(Attention, OfBf16IsThatOfDoubles) { check<Bf16>(4e-3); }
TEST_P(Attention, OfBf16ByThePlainKernelIsThatOfDoubles) { check<Bf16>(4e-3, plain_paged_attention<Bf16>); }

INSTANTIATE_TEST_SUITE_P(All, Attention, testing::ValuesIn(attention_cases()), attention_name);

}  // namespace gpu_attention_test
}  // namespace magister::gpu
