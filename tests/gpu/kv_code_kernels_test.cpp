// Kernels of pages of 8-bit floats on the GPU against the host: RotateHeads that writes them, GatherCodes, and
// PagedAttention that reads them.
#include "model/gpu/kv_code_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu/both_queues.h"
#include "gpu/gpu_under_test.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gpu_weights.h"
#include "model/paged_cache.h"

namespace magister::gpu::kv_code_kernels_test {
namespace {

using kernels_test::Both;
using kernels_test::on_both;
using kernels_test::Tensors;

// Heads without a rotation, so that both round the same numbers.
TEST(CodePages, RotateHeadsAndGatherCodesHaveEqualBits) {
  at::manual_seed(9);
  constexpr std::int64_t T = 501, P = 12, H = 4, K = 2;
  for (const auto& [E, V] : std::vector<std::array<std::int64_t, 2>>{{64, 64}, {80, 48}, {128, 128}, {512, 256}}) {
    at::Tensor qkv_TQ = at::randn({T, (H + K) * E + K * V});
    qkv_TQ = qkv_TQ.mul(at::exp2(at::randint(-20, 20, qkv_TQ.sizes(), at::kFloat))).to(at::kBFloat16);
    qkv_TQ[7].zero_();
    qkv_TQ[8][H * E] = NAN;
    const Tensors inputs = {qkv_TQ,
                            at::zeros({T}, at::kInt),
                            at::zeros({P, K, 48, E + 1}, at::kByte),
                            at::zeros({P, K, 48, V + 1}, at::kByte),
                            at::randperm(P * 48, at::kLong).narrow(0, 0, T).clone(),
                            at::zeros({T, K, E}, at::kBFloat16),
                            at::zeros({T, K, V}, at::kBFloat16)};
    const Both both = on_both(inputs, [&, E = E, V = V](const Tensors& t, const Queue& queue) {
      const RotateHeads<Bf16> heads{data<Bf16>(t[0]),
                                    nullptr,
                                    nullptr,
                                    data<std::int32_t>(t[1]),
                                    nullptr,
                                    nullptr,
                                    data<Bf16>(t[2]),
                                    data<Bf16>(t[3]),
                                    data<std::int64_t>(t[4]),
                                    H,
                                    K,
                                    E,
                                    0,
                                    1e-6f,
                                    V,
                                    true};
      launch(heads, heads.shape(T), queue);
      const GatherCodes gather{data<std::uint8_t>(t[2]),
                               data<std::uint8_t>(t[3]),
                               data<std::int64_t>(t[4]),
                               data<Bf16>(t[5]),
                               data<Bf16>(t[6]),
                               static_cast<std::uint32_t>(T),
                               static_cast<std::uint32_t>(K),
                               static_cast<std::uint32_t>(E),
                               static_cast<std::uint32_t>(V)};
      launch(gather, gather.shape(), queue);
    });
    for (std::size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(at::equal(both.device[i].view(at::kByte), both.host[i].view(at::kByte))) << E << ", tensor " << i;
  }
}

class AttentionOverCodes : public testing::TestWithParam<AttentionCase> {};
TEST_P(AttentionOverCodes, PagedAttentionIsThatOfTheHost) {
  at::manual_seed(11);
  const AttentionCase& c = GetParam();
  const PagedCache<Bf16> cache(c, {1, 48, 193, 401}, 10, true);
  const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3}, visible_R = {1, 48, 47, 193, 401, 192, 97, 0};
  const auto R = static_cast<std::int64_t>(sequence_R.size());
  const at::Tensor qkv = at::randn({R, (c.H + 2 * c.K) * c.E}).to(at::kBFloat16);
  const at::Tensor host = cache.attend(qkv, sequence_R, visible_R, attention_chunks(401)).to(at::kDouble);
  const at::Tensor device = cache.attend(qkv, sequence_R, visible_R, attention_chunks(401), gpu_queue());
  EXPECT_LE((device.to(at::kDouble) - host).abs().max().item<double>(), 8e-3 * host.abs().max().item<double>());
  for (std::int64_t r = 0; r + 1 < R; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const int more = attention_chunks(visible_R[i]) + 1;
    const at::Tensor alone =
        cache.attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]}, more, gpu_queue());
    EXPECT_TRUE(at::equal(alone[0], device[r])) << r;
  }
}
INSTANTIATE_TEST_SUITE_P(All, AttentionOverCodes, testing::ValuesIn(cases_of_codes()), attention_name);

}  // namespace
}  // namespace magister::gpu::kv_code_kernels_test
