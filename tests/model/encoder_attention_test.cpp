// Attention of encoders: the kernel for GPUs on the host against plain ATen code in f64, over sequences that end within
// and at the border of a tile, heads of many sizes and both terms of distances; and the vectors of distances at the
// edges of their buckets.
#include "model/encoder_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "magister/model/transformer.h"
#include "model/gpu/encoder_attention_kernel.h"
#include "model/gpu/gpu_encoder.h"

namespace magister {
namespace encoder_attention_test {

using Lengths = std::vector<std::size_t>;

struct Case {
  std::int64_t H, E;
  bool content_to_position, position_to_content;
  Lengths lengths;

  EncoderConfig encoder() const {
    EncoderConfig encoder;
    if (!content_to_position && !position_to_content) return encoder;
    encoder.relative_span = encoder.position_buckets = 16;
    encoder.max_relative_positions = 512;
    encoder.content_to_position = content_to_position;
    encoder.position_to_content = position_to_content;
    return encoder;
  }
};

PackedBatch batch_of(const Lengths& lengths) {
  std::vector<std::vector<TokenId>> texts;
  for (const std::size_t length : lengths) texts.emplace_back(length);
  return pack_sequences(texts);
}

// qkv_TX and the products of the vectors, [N, 2 D]; every term decides some scores.
struct Numbers {
  explicit Numbers(const Case& one) {
    at::manual_seed(7);
    const std::int64_t T = batch_of(one.lengths).num_tokens(), D = one.H * one.E;
    qkv_TX = at::randn({T, 3 * D});
    relative_NX = at::randn({2 * one.encoder().relative_span, 2 * D});
  }
  at::Tensor qkv_TX, relative_NX;
};

at::Tensor by_kernel(const Case& one, const Numbers& numbers) {
  const EncoderConfig encoder = one.encoder();
  const at::Tensor blocks_B3 = gpu::encoder_blocks(batch_of(one.lengths));
  constexpr std::int64_t kReach = 640;
  at::Tensor context_TD = at::full({numbers.qkv_TX.size(0), one.H * one.E}, NAN);
  gpu::EncoderAttentionArguments arguments{numbers.qkv_TX.const_data_ptr<float>(),
                                           static_cast<const gpu::EncoderBlock*>(blocks_B3.const_data_ptr()),
                                           context_TD.data_ptr<float>(),
                                           static_cast<int>(blocks_B3.size(0)),
                                           static_cast<int>(one.H),
                                           static_cast<int>(one.E),
                                           static_cast<float>(attention_scale(encoder, one.E))};
  if (encoder.relative_span == 0) {
    gpu::start(gpu::EncoderAttention<false>{arguments}, gpu::Queue{});
    return context_TD;
  }
  const at::Tensor vectors = vectors_of(encoder, at::arange(1 - kReach, kReach, at::kLong)).to(at::kInt);
  arguments.relative_NX = numbers.relative_NX.const_data_ptr<float>();
  arguments.vectors = vectors.const_data_ptr<std::int32_t>() + kReach - 1;
  arguments.content_to_position = encoder.content_to_position;
  arguments.position_to_content = encoder.position_to_content;
  gpu::start(gpu::EncoderAttention<true>{arguments}, gpu::Queue{});
  return context_TD;
}

at::Tensor plain(const Case& one, const Numbers& numbers) {
  const auto heads_of = [&](const at::Tensor& x_RX, std::int64_t which) {
    const std::int64_t D = one.H * one.E;
    return x_RX.narrow(1, which * D, D).reshape({-1, one.H, one.E}).transpose(0, 1).to(at::kDouble);
  };
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const std::size_t tokens : one.lengths) {
    const auto L = static_cast<std::int64_t>(tokens);
    const at::Tensor qkv_LX = numbers.qkv_TX.narrow(0, begin, L);
    EncoderHeads heads{heads_of(qkv_LX, 0), heads_of(qkv_LX, 1), heads_of(qkv_LX, 2), {}, {}};
    if (one.encoder().relative_span > 0) {
      heads.distance_q_NE = heads_of(numbers.relative_NX, 0);
      heads.distance_k_NE = heads_of(numbers.relative_NX, 1);
    }
    parts.push_back(encoder_attention(one.encoder(), heads, vectors_between(one.encoder(), L))
                        .transpose(0, 1)
                        .reshape({L, one.H * one.E}));
    begin += L;
  }
  return at::cat(parts);
}

// Heads of 10 and 15 numbers come one number at a time, those of 72 and 136 have several parts of outputs, and 32 and
// 64 are whole slices. 600 tokens pass all edges of buckets.
const std::vector<Case> kCases = {{1, 64, false, false, {1, 63, 64, 65, 130}},
                                  {3, 10, false, false, {70, 5}},
                                  {1, 136, false, false, {66, 2}},
                                  {2, 64, true, true, {65, 1, 128, 40}},
                                  {1, 32, true, true, {600}},
                                  {2, 15, true, true, {67, 3}},
                                  {1, 72, true, true, {2, 90}},
                                  {2, 12, true, false, {129, 7}},
                                  {2, 12, false, true, {129, 7}}};

TEST(EncoderAttention, IsThatOfPlainCode) {
  double most = 0;
  for (const Case& one : kCases) {
    const Numbers numbers(one);
    const at::Tensor wanted_TD = plain(one, numbers);
    for (const gpu::HostOrder order : {gpu::HostOrder::kAscending, gpu::HostOrder::kDescending}) {
      gpu::set_host_order(order);
      const at::Tensor got_TD = by_kernel(one, numbers);
      gpu::set_host_order(gpu::HostOrder::kAscending);
      const double difference = (got_TD - wanted_TD).abs().max().item<double>();
      EXPECT_LT(difference, 3.5e-6) << one.H << " heads of " << one.E;  // NaN fails, too
      most = std::max(most, difference);
    }
  }
  std::printf("largest difference %.1e of outputs of size 1\n", most);
}

TEST(EncoderAttention, NeighboursDoNotChangeABit) {
  for (const Case& one : {kCases[0], kCases[3]}) {
    const Numbers numbers(one);
    const at::Tensor all_TD = by_kernel(one, numbers);
    std::int64_t begin = 0;
    for (const std::size_t tokens : one.lengths) {
      const auto L = static_cast<std::int64_t>(tokens);
      const Case alone{one.H, one.E, one.content_to_position, one.position_to_content, {tokens}};
      Numbers own = numbers;
      own.qkv_TX = numbers.qkv_TX.narrow(0, begin, L).clone();
      EXPECT_TRUE(at::equal(by_kernel(alone, own), all_TD.narrow(0, begin, L))) << tokens << " tokens";
      // Not even one that is not a number.
      Numbers spoilt = numbers;
      spoilt.qkv_TX = at::full_like(numbers.qkv_TX, NAN);
      spoilt.qkv_TX.narrow(0, begin, L).copy_(own.qkv_TX);
      EXPECT_TRUE(at::equal(by_kernel(one, spoilt).narrow(0, begin, L), all_TD.narrow(0, begin, L)));
      begin += L;
    }
  }
}

// A key that is not a number leaves no row of its text finite.
TEST(EncoderAttention, KeepsWhatIsNotFinite) {
  const Case one{1, 64, true, true, {70, 66}};
  Numbers numbers(one);
  numbers.qkv_TX[69][64] = NAN;  // a key
  const at::Tensor finite_T = by_kernel(one, numbers).isfinite().all(1);
  EXPECT_FALSE(finite_T.narrow(0, 0, 70).any().item<bool>());
  EXPECT_TRUE(finite_T.narrow(0, 70, 66).all().item<bool>());
}

// As make_log_bucket_position() of transformers has them, 16 more and within 0 and 31.
TEST(EncoderAttention, DistancesHaveTheVectorsOfTransformers) {
  const EncoderConfig encoder = kCases[3].encoder();
  const at::Tensor distance = at::tensor({0,  1,  -1, 8,   -8,  9,   14,  15,  -14,  -15,  26,  27,   47,
                                          48, 86, 87, -87, 155, 156, 282, 283, -282, -283, 511, 4000, -4000},
                                         at::kLong),
                   wanted = at::tensor({16, 17, 15, 24, 8,  25, 25, 26, 7, 6, 26, 27, 27,
                                        28, 28, 29, 3,  29, 30, 30, 31, 2, 1, 31, 31, 0},
                                       at::kLong);
  EXPECT_TRUE(at::equal(vectors_of(encoder, distance), wanted)) << vectors_of(encoder, distance);
  const at::Tensor between_LL = vectors_between(encoder, 300);
  EXPECT_EQ(between_LL[299][12].item<std::int64_t>(), 31);
  EXPECT_EQ(between_LL[12][299].item<std::int64_t>(), 1);
  EXPECT_EQ(between_LL[290][8].item<std::int64_t>(), 30);
  EXPECT_FALSE(vectors_between(EncoderConfig{}, 7).defined());
}

TEST(EncoderAttention, BlocksAreCountedFromTheirSequence) {
  const at::Tensor wanted_B3 = at::tensor({0, 65, 0, 0, 65, 64, 65, 1, 0, 66, 64, 0}, at::kInt).view({4, 3});
  EXPECT_TRUE(at::equal(gpu::encoder_blocks(batch_of({65, 1, 0, 64})), wanted_B3));
}

}  // namespace encoder_attention_test
}  // namespace magister
