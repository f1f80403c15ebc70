// When attention uses cuDNN, with which arguments, and when a model refuses it; a few lines replace ATen's call on the
// CPU.
#include "model/gpu/cudnn_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/gpu/gpu_attention.h"
#include "model/random_tensor_file.h"

namespace magister::gpu {
namespace cudnn_attention_test {

enum class Fault { kNone, kNotCausal, kOtherBitsLater, kOtherBitsByPlace, kNotThere, kNotANumber };
Fault fault = Fault::kNone;
std::vector<std::int64_t> lengths;  // of the calls

using Optional = std::optional<at::Tensor>;
using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                          at::Tensor, at::Tensor>;

// q [1, H, L, E], k and v [1, K, L, E], a block of queries at a time.
Result pretended_cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& bias,
                       const Optional& cu_q, const Optional& cu_k, std::int64_t longest_q, std::int64_t longest_k,
                       bool logsumexp, double dropout, bool causal, bool debug_mask, std::optional<double> scale) {
  TORCH_CHECK(fault != Fault::kNotThere, "No available kernel");
  EXPECT_TRUE(causal && !bias && !cu_q && !cu_k && !logsumexp && !debug_mask && dropout == 0);
  const std::int64_t L = q.size(2);
  EXPECT_EQ(longest_q, L);
  EXPECT_EQ(longest_k, L);
  EXPECT_EQ(k.size(2), L);
  EXPECT_EQ(L % kCudnnStep, 0);
  EXPECT_EQ(q.stride(3), 1);
  lengths.push_back(L);
  const auto wide = [&](const at::Tensor& x) {
    return x[0].to(at::kFloat).repeat_interleave(q.size(1) / x.size(1), 0);
  };
  const at::Tensor q_HLE = wide(q), k_HEL = wide(k).transpose(1, 2), v_HLE = wide(v);
  std::vector<at::Tensor> blocks;
  constexpr std::int64_t kBlock = 512;
  for (std::int64_t begin = 0; begin < L; begin += kBlock) {
    const std::int64_t rows = std::min(kBlock, L - begin), keys = begin + rows;
    at::Tensor scores = at::matmul(q_HLE.narrow(1, begin, rows), k_HEL.narrow(2, 0, keys)) * *scale;
    if (fault != Fault::kNotCausal)
      scores.masked_fill_(at::arange(keys).unsqueeze(0) > at::arange(begin, begin + rows).unsqueeze(1), -INFINITY);
    blocks.push_back(at::matmul(at::softmax(scores, -1), v_HLE.narrow(1, 0, keys)));
  }
  at::Tensor out = at::cat(blocks, 1).to(q.scalar_type()).unsqueeze(0);
  const bool moved = fault == Fault::kOtherBitsByPlace && q.storage_offset() % 1000 != 0;
  if (moved || (fault == Fault::kOtherBitsLater && lengths.size() == 5)) out[0][0][7].mul_(1.01);
  if (fault == Fault::kNotANumber) out[0][0][L - 1].fill_(NAN);
  return {out, {}, {}, {}, longest_q, longest_k, {}, {}, {}};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("_cudnn_attention_forward", &pretended_cudnn); }

LayerShape make_shape() {
  LayerShape shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  shape.attention_scale = 0.25f;
  shape.kv_of_head = {0, 0, 1, 1};
  return shape;
}

class CudnnAttention : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    fault = Fault::kNone;
    lengths.clear();
  }
};

at::Tensor attended(const std::vector<std::int64_t>& texts, const LayerShape& shape, const at::Tensor& qkv_TQ,
                    bool with_cudnn) {
  std::vector<std::vector<TokenId>> ids;
  for (const std::int64_t length : texts) ids.emplace_back(static_cast<std::size_t>(length), 1);
  return attend(plan_attention(pack_sequences(ids), {}, at::kCPU, with_cudnn), shape, {qkv_TQ}, false, Queue{});
}

TEST_F(CudnnAttention, LongTextsHaveACallEachAndShortOnesNone) {
  const LayerShape shape = make_shape();
  const std::vector<std::int64_t> texts = {30, 2100, 2048, 40, 2047, 3000};
  const at::Tensor qkv_TQ = at::randn({9265, 128}).to(at::kBFloat16);
  const at::Tensor got = attended(texts, shape, qkv_TQ, true);
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{2304, 2048, 3072}));
  const at::Tensor wanted = attended(texts, shape, qkv_TQ, false);
  EXPECT_EQ(lengths.size(), 3u);
  EXPECT_LE((got.to(at::kFloat) - wanted.to(at::kFloat)).abs().max().item<double>(), 2e-2);
  EXPECT_TRUE(at::equal(got.narrow(0, 0, 30), wanted.narrow(0, 0, 30)));
  EXPECT_TRUE(at::equal(got.narrow(0, 30, 2100), attended({2100}, shape, qkv_TQ.narrow(0, 30, 2100), true)));
}

TEST_F(CudnnAttention, IsNotAskedForWhatItHasNot) {
  const at::Tensor qkv_TQ = at::randn({2048, 128});
  attended({2048}, make_shape(), qkv_TQ, true);
  LayerShape windows = make_shape(), capped = make_shape();
  windows.sliding_window = 64;
  capped.attention_softcap = 30;
  for (const LayerShape& shape : {windows, capped}) attended({2048}, shape, qkv_TQ.to(at::kBFloat16), true);
  // Texts that go on from others' beginnings: which one is whole depends on the neighbours.
  PackedBatch sharing = pack_sequences({std::vector<TokenId>(2048, 1), std::vector<TokenId>(9, 1)}, {0, 100});
  sharing.prefix_of_S = {0, 0};
  const at::Tensor both_TQ = at::randn({2057, 128}).to(at::kBFloat16);
  attend(plan_attention(sharing, {}, at::kCPU, true), make_shape(), {both_TQ}, false, Queue{});
  EXPECT_TRUE(lengths.empty());
}

TEST_F(CudnnAttention, HeadsInUnevenGroupsHaveTheirKeys) {
  LayerShape shape = make_shape();
  shape.kv_of_head = {0, 0, 0, 1};
  const at::Tensor qkv_TQ = at::randn({2048, 128}).to(at::kBFloat16);
  const at::Tensor got = attended({2048}, shape, qkv_TQ, true), wanted = attended({2048}, shape, qkv_TQ, false);
  EXPECT_EQ(lengths.size(), 1u);
  EXPECT_LE((got.to(at::kFloat) - wanted.to(at::kFloat)).abs().max().item<double>(), 2e-2);
}

TEST_F(CudnnAttention, IsTriedBefore) {
  const auto problem = [](Fault with) {
    fault = with;
    lengths.clear();
    const CudnnTrial trial = try_cudnn_attention(make_shape(), at::kBFloat16, at::kCPU, Queue{});
    EXPECT_EQ(trial.of_flash, 0);
    return trial.problem;
  };
  EXPECT_EQ(problem(Fault::kNone), "");
  EXPECT_NE(problem(Fault::kNotCausal).find("from flash attention"), std::string::npos);
  EXPECT_NE(problem(Fault::kNotANumber), "");
  EXPECT_NE(problem(Fault::kOtherBitsLater).find("other bits"), std::string::npos);
  EXPECT_NE(problem(Fault::kOtherBitsByPlace).find("other bits"), std::string::npos);
  EXPECT_NE(problem(Fault::kNotThere).find("No available kernel"), std::string::npos);
}

class ModelWithCudnn : public CudnnAttention {
 protected:
  void SetUp() override {
    CudnnAttention::SetUp();
    ModelConfig& config = description_.config;
    config.family = "llama";
    config.vocab_size = 96;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.max_position_embeddings = 4096;
    description_.names = hf_tensor_names(config);
  }
  Transformer make(at::ScalarType dtype) {
    return {description_, RandomTensorFile(description_), *group_, pool_, dtype, {}, Queue{}};
  }

  ModelDescription description_;
  ThreadPool pool_{1};
  std::unique_ptr<ProcessGroup> group_ = make_single_process_group();
};

TEST_F(ModelWithCudnn, ComputesTheSameRows) {
  Transformer plain = make(at::kBFloat16), with = make(at::kBFloat16);
  with.use_cudnn_attention();
  EXPECT_TRUE(plain.shares_prefixes());
  EXPECT_FALSE(with.shares_prefixes());
  std::vector<std::vector<TokenId>> texts(2);
  for (int i = 0; i < 2050; ++i) texts[1].push_back((i * 37 + i / 7) % 96);
  texts[0] = {3, 5, 8};
  const PackedBatch batch = pack_sequences(texts);
  lengths.clear();
  const at::Tensor wanted = plain.forward(batch).to(at::kFloat).clone();
  EXPECT_TRUE(lengths.empty());
  const at::Tensor got = with.forward(batch).to(at::kFloat).clone();
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{2304, 2304}));  // one a layer
  EXPECT_FALSE(at::equal(got, wanted));
  const double apart = (got - wanted).abs().mean().item<double>(), range = wanted.abs().mean().item<double>();
  EXPECT_LE(apart, 0.01 * range);
  EXPECT_TRUE(at::equal(with.forward(pack_sequences({texts[1]})).to(at::kFloat), got.narrow(0, 3, 2050)));
}

TEST_F(ModelWithCudnn, IsRefusedWithReasons) {
  const auto refusal = [&](Transformer model) -> std::string {
    try {
      model.use_cudnn_attention();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kConfig);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(make(at::kFloat)).find("no layer of this model"), std::string::npos);
  fault = Fault::kNotThere;
  EXPECT_NE(refusal(make(at::kBFloat16)).find("cannot be used on cpu: No available kernel"), std::string::npos);
}

}  // namespace cudnn_attention_test
}  // namespace magister::gpu
