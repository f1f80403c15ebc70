// Pages of keys and values in 8-bit floats: the kernels that write, gather and read them, thread by thread on the host,
// against ATen's own rounding and a softmax in double over what the codes mean. Whole models: kv_codes_model_test.cpp.
#include "magister/model/kv_codes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "magister/core/error.h"
#include "magister/model/transformer.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_weights.h"
#include "model/paged_cache.h"

namespace magister::gpu {
namespace kv_codes_test {

constexpr std::int64_t kTokens = 70, K = 2, kPages = 3;

// Heads without a rotation: keys and values go into their pages as they are.
struct Placed {
  at::Tensor qkv_TQ, keys, values;
};
Placed placed(at::Tensor qkv_TQ, std::int64_t H, std::int64_t E, std::int64_t V) {
  Placed out{std::move(qkv_TQ), at::zeros({kPages, K, 48, E + 1}, at::kByte),
             at::zeros({kPages, K, 48, V + 1}, at::kByte)};
  const at::Tensor rows = at::zeros({kTokens}, at::kInt), slots = at::arange(kTokens) + 31;
  const RotateHeads<Bf16> kernel{data<Bf16>(out.qkv_TQ),
                                 nullptr,
                                 nullptr,
                                 data<std::int32_t>(rows),
                                 nullptr,
                                 nullptr,
                                 data<Bf16>(out.keys),
                                 data<Bf16>(out.values),
                                 data<std::int64_t>(slots),
                                 H,
                                 K,
                                 E,
                                 0,
                                 1e-5f,
                                 V,
                                 true};
  launch(kernel, kernel.shape(kTokens), Queue{});
  return out;
}

class PlacedCodes : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  void SetUp() override { at::manual_seed(3); }
};

// Numbers of all sizes that bf16 has, zeros, vectors of one size, and vectors at the border of a power of two.
TEST_P(PlacedCodes, AreThoseOfAtenAndRoundTheRow) {
  const auto [E, V] = GetParam();
  const std::int64_t H = 3, keys_at = H * E, values_at = (H + K) * E;
  at::Tensor given_TQ = at::randn({kTokens, (H + K) * E + K * V});
  given_TQ.mul_(at::exp2(at::randint(-20, 20, given_TQ.sizes(), at::kFloat)));
  given_TQ.narrow(0, 10, 40).normal_().mul_(at::exp2(at::randint(-100, 100, {40, 1}, at::kFloat)));
  given_TQ[3].zero_();
  given_TQ[4].fill_(448.0f);
  given_TQ[5].fill_(449.0f);
  given_TQ[6].fill_(1e-38f);
  given_TQ = given_TQ.to(at::kBFloat16);
  const Placed out = placed(given_TQ.clone(), H, E, V);
  EXPECT_TRUE(at::equal(out.qkv_TQ.narrow(1, 0, keys_at), given_TQ.narrow(1, 0, keys_at))) << "queries changed";
  const auto vectors = [&](const at::Tensor& of, bool value) {
    return of.narrow(1, value ? values_at : keys_at, K * (value ? V : E)).view({kTokens, K, -1});
  };
  for (const bool value : {false, true}) {
    at::Tensor wanted = at::zeros_like(value ? out.values : out.keys);
    for (std::int64_t t = 0; t < kTokens; ++t)
      put_codes(wanted[(t + 31) / 48], (t + 31) % 48, coded(vectors(given_TQ, value)[t]));
    EXPECT_TRUE(at::equal(value ? out.values : out.keys, wanted)) << (value ? "values" : "keys");
    const at::Tensor rounded = vectors(out.qkv_TQ, value), meant = coded(vectors(given_TQ, value)).values;
    EXPECT_TRUE(at::equal(rounded, meant)) << "the row is not rounded";
  }
  // Prompts gather these numbers, in any order.
  const at::Tensor order = at::randperm(kTokens, at::kLong);
  const auto [keys_NKE, values_NKV] = gathered_keys(out.keys, out.values, order + 31, Queue{});
  EXPECT_TRUE(at::equal(keys_NKE, vectors(out.qkv_TQ, false).index_select(0, order)));
  EXPECT_TRUE(at::equal(values_NKV, vectors(out.qkv_TQ, true).index_select(0, order)));
}

INSTANTIATE_TEST_SUITE_P(All, PlacedCodes,
                         testing::Values(std::pair{64, 64}, std::pair{8, 8}, std::pair{80, 48}, std::pair{256, 128},
                                         std::pair{512, 512}));

// A pass reports numbers that are not finite, so codes must not hide them.
TEST(PlacedFaults, AreNotFinite) {
  for (const float fault : {INFINITY, -INFINITY, NAN}) {
    at::Tensor qkv_TQ = at::randn({kTokens, 3 * K * 16}).to(at::kBFloat16);
    qkv_TQ[20].narrow(0, K * 16 + 5, 1).fill_(fault);
    const Placed out = placed(qkv_TQ, K, 16, 16);
    const at::Tensor keys = gathered_keys(out.keys, out.values, at::arange(kTokens) + 31, Queue{}).first;
    EXPECT_FALSE(keys[20][0].isfinite().any().item<bool>());
    EXPECT_EQ(keys.isfinite().logical_not().sum().item<std::int64_t>(), 16);
  }
}

// The cases of bf16 pages whose heads are multiples of eight.
class AttentionOverCodes : public testing::TestWithParam<AttentionCase> {};
TEST_P(AttentionOverCodes, IsThatOfDoubles) {
  const AttentionCase& c = GetParam();
  at::manual_seed(11);
  set_host_order(c.order);
  const PagedCache<Bf16> cache(c, {1, 48, 193, 401}, 10, true);
  const std::vector<std::int32_t> sequence_R = {0, 1, 1, 2, 3, 2, 3, 3}, visible_R = {1, 48, 47, 193, 401, 192, 97, 0};
  const auto R = static_cast<std::int64_t>(sequence_R.size());
  const at::Tensor qkv = at::randn({R, (c.H + 2 * c.K) * c.E}).to(at::kBFloat16);
  const at::Tensor out = cache.attend(qkv, sequence_R, visible_R, attention_chunks(401));
  for (std::int64_t r = 0; r + 1 < R; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const at::Tensor q = qkv[r].narrow(0, 0, c.H * c.E).view({c.H, c.E});
    const at::Tensor wanted = cache.wanted(q, static_cast<std::size_t>(sequence_R[i]), visible_R[i]);
    const double error = (out[r].to(at::kDouble) - wanted).abs().max().item<double>();
    EXPECT_LE(error, 4e-3 * wanted.abs().max().item<double>()) << r;
    if (r % 2 == 0) continue;
    const at::Tensor alone =
        cache.attend(qkv.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]}, attention_chunks(visible_R[i]) + 1);
    EXPECT_TRUE(at::equal(alone[0], out[r])) << r;
  }
  EXPECT_TRUE(at::equal(out[R - 1], at::zeros_like(out[R - 1])));
  set_host_order(HostOrder::kAscending);
}
INSTANTIATE_TEST_SUITE_P(All, AttentionOverCodes, testing::ValuesIn(cases_of_codes()), attention_name);

ModelConfig small() {
  ModelConfig config;
  config.family = "llama";
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.vocab_size = 96;
  return config;
}

TEST(CodePageBytes, AreAByteANumberAndAByteAVector) {
  const ModelConfig config = small();
  const Partition all = partition_for(config, 0, 1), half = partition_for(config, 1, 2);
  EXPECT_EQ(gpu_page_bytes(config, all, at::kBFloat16, false), 48u * 3 * 2 * 2 * 16 * 2);
  EXPECT_EQ(gpu_page_bytes(config, all, at::kFloat, false), 48u * 3 * 2 * 2 * 16 * 4);
  EXPECT_EQ(gpu_page_bytes(config, all, at::kBFloat16, true), 48u * 3 * 2 * 2 * 17);
  EXPECT_EQ(gpu_page_bytes(config, half, at::kFloat8_e4m3fn, true), 48u * 3 * 2 * 1 * 17);
}

std::string refusal(const ModelConfig& config, at::ScalarType dtype) {
  try {
    check_kv_codes(config, dtype);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    return error.what();
  }
  return "";
}
TEST(CodePageRefusals, NameWhatHasNoCodes) {
  ModelConfig config = small();
  EXPECT_EQ(refusal(config, at::kBFloat16) + refusal(config, at::kFloat8_e4m3fn), "");
  EXPECT_NE(refusal(config, at::kFloat).find("rounded from bf16"), std::string::npos);
  config.head_dim = 20;
  EXPECT_NE(refusal(config, at::kBFloat16).find("keys of 20 and values of 20"), std::string::npos);
  config.head_dim = 16;
  config.latent.emplace();
  EXPECT_NE(refusal(config, at::kBFloat16).find("latent"), std::string::npos);
}

}  // namespace kv_codes_test
}  // namespace magister::gpu
