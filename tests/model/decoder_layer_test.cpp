// The tiled blocks of a decoder layer against plain ATen code: odd shapes, grouped heads, windows, biases, norms,
// activations.
#include "model/cpu/decoder_layer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>

#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/transformer.h"

namespace magister {
namespace decoder_layer_test {

struct Case {
  const char* name;
  std::int64_t heads, kv_heads, head_dim, mlp, window;
  bool bias, qk_norm;
  std::vector<std::int64_t> lengths;
  bool norm_on_input = true;
  Activation activation = Activation::kSilu;
  float softcap = 0;
  std::int64_t rotary_dim = -1;  // -1: all of the head
  bool norm_of_all_heads = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Layer : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    const Case& c = GetParam();
    LayerShape shape;
    shape.hidden_size = 40;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.head_dim;
    shape.rotary_dim = c.rotary_dim < 0 ? c.head_dim : c.rotary_dim;
    shape.attention_softcap = c.softcap;
    shape.mlp = c.mlp;
    shape.sliding_window = c.window;
    shape.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    for (std::int64_t h = 0; h < c.heads; ++h) shape.kv_of_head.push_back(h * c.kv_heads / c.heads);
    shape.activation = c.activation;
    AttentionWeights attention;
    FeedForwardWeights mlp;
    if (c.norm_on_input) {
      attention.norms.input_D = at::randn({40}).abs();
      mlp.norms.input_D = at::randn({40}).abs();
    }
    const auto linear = [&](std::int64_t out, std::int64_t in) {
      return pack({at::randn({out, in}) * 0.3, c.bias ? at::randn({out}) : at::Tensor{}});
    };
    attention.qkv_proj = linear(shape.qkv_features(), 40);
    attention.o_proj = linear(40, c.heads * c.head_dim);
    mlp.gate_up_proj = linear(2 * c.mlp, 40);
    mlp.down_proj = linear(40, c.mlp);
    if (c.qk_norm) {
      attention.q_norm = at::randn({c.head_dim * (c.norm_of_all_heads ? c.heads : 1)}).abs();
      attention.k_norm = at::randn({c.head_dim * (c.norm_of_all_heads ? c.kv_heads : 1)}).abs();
    }
    layer_ = std::make_unique<DecoderLayer>(DecoderLayer{{shape, attention}, FeedForward(shape, mlp)});
    std::vector<std::vector<TokenId>> sequences;
    for (const std::int64_t length : c.lengths) sequences.emplace_back(static_cast<std::size_t>(length), 0);
    batch_ = pack_sequences(sequences);
    hidden_TD_ = at::randn({batch_.num_tokens(), 40});
    const std::int64_t half = shape.rotary_dim / 2;
    cos_ = at::randn({batch_.num_tokens(), half});
    sin_ = at::randn({batch_.num_tokens(), half});
    for (std::int64_t t = 0; t < batch_.num_tokens(); ++t) {
      rope_.cos.push_back(cos_.const_data_ptr<float>() + t * half);
      rope_.sin.push_back(sin_.const_data_ptr<float>() + t * half);
    }
  }

  at::Tensor fast_attention() {
    const std::int64_t T = batch_.num_tokens();
    const BatchPages pages(batch_);
    LayerBuffers buffers(batch_, pages.sequences, layer_->shape(), 1);
    KvPages kv(layer_->shape().kv_heads, pages.num_pages(), layer_->shape().head_dim);
    buffers.scratch.fill_(std::numeric_limits<float>::quiet_NaN());  // nothing stale may be read
    at::Tensor out_TD = at::empty({T, 40});
    for (std::int64_t begin = 0; begin < T; begin += LayerBuffers::kTileRows) {
      const std::int64_t end = std::min(begin + LayerBuffers::kTileRows, T);
      layer_->attention.project_qkv(hidden_TD_.const_data_ptr<float>(), batch_, begin, end, rope_, kv, buffers, 0);
    }
    for (const auto& tile : attention_tiles(batch_, layer_->shape())) layer_->attention.attend(tile, kv, buffers, 0);
    for (std::int64_t begin = 0; begin < T; begin += LayerBuffers::kTileRows) {
      const std::int64_t end = std::min(begin + LayerBuffers::kTileRows, T);
      layer_->attention.project_output(begin, end, buffers, out_TD.data_ptr<float>(), false);
    }
    return out_TD;
  }

  std::unique_ptr<DecoderLayer> layer_;
  PackedBatch batch_;
  at::Tensor hidden_TD_, cos_, sin_;
  RopeRows rope_;
};

TEST_P(Layer, AttentionEqualsPlainCode) {
  const at::Tensor plain = layer_->attention.reference(hidden_TD_, batch_, cos_, sin_);
  EXPECT_LE((fast_attention() - plain).abs().max().item<double>(), 2e-4);
}

// A sequence's bits depend neither on its neighbours in the batch nor on where its pages begin.
TEST_P(Layer, ASequencesBitsAreItsOwn) {
  const at::Tensor together_TD = fast_attention();
  const PackedBatch whole = batch_;
  const at::Tensor hidden_TD = hidden_TD_;
  const RopeRows rope = rope_;
  for (std::int64_t s = 0; s < whole.num_sequences(); ++s) {
    const std::int64_t begin = whole.cu_seqlens[s], length = whole.cu_seqlens[s + 1] - begin;
    batch_ = pack_sequences({std::vector<TokenId>(static_cast<std::size_t>(length), 0)});
    hidden_TD_ = hidden_TD.narrow(0, begin, length);
    rope_.cos.assign(rope.cos.begin() + begin, rope.cos.begin() + begin + length);
    rope_.sin.assign(rope.sin.begin() + begin, rope.sin.begin() + begin + length);
    ASSERT_TRUE(at::equal(fast_attention(), together_TD.narrow(0, begin, length))) << "sequence " << s;
  }
}

TEST_P(Layer, MlpEqualsPlainCodeAndAccumulates) {
  const std::int64_t T = std::min<std::int64_t>(batch_.num_tokens(), LayerBuffers::kTileRows);
  const at::Tensor hidden = hidden_TD_.narrow(0, 0, T).contiguous();
  LayerBuffers buffers(batch_, {}, layer_->shape(), 1);
  at::Tensor out = at::ones({T, 40});
  layer_->feed_forward()->run(hidden.const_data_ptr<float>(), 0, T, buffers, 0, out.data_ptr<float>(), true);
  EXPECT_LE((out - 1.0 - layer_->mlp_reference(hidden)).abs().max().item<double>(), 2e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Layer,
    testing::Values(
        Case{"one_token", 2, 1, 16, 32, 0, false, false, {1}},
        Case{"grouped_9_over_3", 9, 3, 64, 96, 0, false, false, {5, 300, 1, 2}},
        Case{"odd_head_and_mlp", 3, 3, 20, 37, 0, false, false, {33, 129}},
        Case{"biases", 4, 2, 24, 64, 0, true, false, {60, 7}}, Case{"qk_norm", 4, 2, 32, 64, 0, false, true, {60, 7}},
        Case{"long_over_key_blocks", 2, 1, 32, 32, 0, false, false, {1100}},
        Case{"window_3", 2, 2, 16, 32, 3, false, false, {50, 2}},
        Case{"window_over_key_blocks", 2, 2, 16, 32, 600, false, false, {1400}},
        Case{"window_1", 2, 2, 16, 32, 1, false, false, {200}},
        Case{"no_norm_gelu", 4, 2, 24, 64, 0, true, false, {60, 7}, false, Activation::kGeluTanh},
        Case{"capped", 4, 2, 24, 64, 9, true, false, {600, 7}, true, Activation::kSilu, 2.0f},
        Case{"a_part_turns", 4, 2, 24, 64, 0, true, true, {60, 7}, true, Activation::kSilu, 0, 14},
        Case{"nothing_turns", 4, 2, 24, 64, 0, true, false, {60, 7}, true, Activation::kSilu, 0, 0},
        Case{"norm_of_all_heads", 4, 2, 24, 64, 0, true, true, {60, 7}, true, Activation::kSilu, 0, -1, true}),
    [](const auto& info) { return info.param.name; });

// A clamp makes a small number of NaN, and attention would hide it.
TEST(CpuKernels, NaNAndInfinityStayVisible) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const CpuKernels* kernels : cpu_kernels_here()) {
    for (const std::int64_t n : {5, 16, 33}) {
      for (const float fault : {nan, -nan, std::bit_cast<float>(0x7f800001u), infinity}) {
        for (const std::int64_t place : {std::int64_t{0}, n - 1}) {
          at::Tensor scores = at::randn({n});
          scores[place] = fault;
          float maximum = -infinity, sum = 0;
          kernels->softmax_step(scores.data_ptr<float>(), n, 0, n, 1.0f, &maximum, &sum);
          EXPECT_TRUE(std::isnan(sum)) << kernels->name << " " << n << " " << fault;
          at::Tensor gate_up = at::ones({2 * n}), out = at::zeros({n});
          at::Tensor capped = at::ones({n});
          capped[place] = fault;
          kernels->softcap(capped.data_ptr<float>(), n, 1.0f, 3.0f);
          EXPECT_EQ(std::isnan(capped[place].item<float>()), std::isnan(fault)) << kernels->name;
          gate_up[place] = fault;
          for (const auto activate : kernels->activate) {
            activate(gate_up.const_data_ptr<float>(), 2 * n, out.data_ptr<float>(), n, 1, n);
            EXPECT_FALSE(std::isfinite(out[place].item<float>())) << kernels->name;
          }
        }
      }
      SoftmaxState state;
      at::Tensor logits = at::randn({n});
      logits[n - 1] = nan;
      kernels->logsumexp_step(logits.const_data_ptr<float>(), n, &state);
      EXPECT_TRUE(std::isnan(state.sum));
    }
  }
}

// The candidates of a row are sought 64 numbers at a time.
TEST(CpuKernels, ANaNHidesNoNeighbourAboveAThreshold) {
  constexpr std::int64_t kN = 150;
  for (const CpuKernels* kernels : cpu_kernels_here()) {
    for (const float threshold : {-std::numeric_limits<float>::infinity(), 0.5f}) {
      for (std::int64_t bad = 0; bad < kN; ++bad) {
        for (const std::int64_t step : {1, 16, 64}) {
          const std::int64_t large = (bad + step) % kN;
          at::Tensor logits = at::full({kN}, -1.0f);
          logits[bad] = std::numeric_limits<float>::quiet_NaN();
          logits[large] = 2.0f;
          std::vector<std::int32_t> found(kN), wanted;
          for (std::int64_t i = 0; i < kN; ++i) {
            if (i == large || (i != bad && threshold < 0)) wanted.push_back(static_cast<std::int32_t>(i));
          }
          found.resize(
              static_cast<std::size_t>(kernels->above(logits.const_data_ptr<float>(), kN, threshold, found.data())));
          EXPECT_EQ(found, wanted) << kernels->name << ": NaN at " << bad << ", large at " << large;
        }
      }
    }
  }
}

// Every build that this CPU can run, against double precision.
TEST(CpuKernels, EveryBuildAgreesWithAten) {
  std::vector<const CpuKernels*> builds{&cpu_kernels_avx2()};
  if (cpu_kernels_avx512() != nullptr) builds.push_back(cpu_kernels_avx512());
  at::manual_seed(1);
  for (const std::int64_t n : {1, 15, 16, 17, 100, 1000}) {
    const at::Tensor x = at::randn({n}) * 20;
    for (const CpuKernels* kernels : builds) {
      SoftmaxState state;
      kernels->logsumexp_step(x.const_data_ptr<float>(), n / 2, &state);
      kernels->logsumexp_step(x.const_data_ptr<float>() + n / 2, n - n / 2, &state);
      EXPECT_NEAR(state.maximum + std::log(state.sum), at::logsumexp(x.to(at::kDouble), {0}).item<double>(), 2e-6 * 60);
      at::Tensor scores = x.clone();
      float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
      kernels->softmax_step(scores.data_ptr<float>(), n, 0, n, 1.0f, &maximum, &sum);
      EXPECT_LE((scores / sum - at::softmax(x, 0)).abs().max().item<double>(), 2e-6);
      at::Tensor capped = x.clone();
      kernels->softcap(capped.data_ptr<float>(), n, 0.3f, 5.0f);
      const at::Tensor wanted = at::tanh(x.to(at::kDouble) * 0.3f / 5.0) * 5.0;
      EXPECT_LE(((capped - wanted) / wanted).abs().max().item<double>(), 1e-6) << kernels->name;
      std::vector<std::int32_t> found(static_cast<std::size_t>(n));
      const std::int64_t count = kernels->above(x.const_data_ptr<float>(), n, 5.0f, found.data());
      EXPECT_EQ(count, (x > 5.0).sum().item<std::int64_t>());
      at::Tensor back = at::empty({n});
      std::vector<std::uint16_t> half(static_cast<std::size_t>(n));
      kernels->to_bf16(x.const_data_ptr<float>(), half.data(), n);
      kernels->from_bf16(half.data(), back.data_ptr<float>(), n);
      EXPECT_TRUE(at::equal(back, x.to(at::kBFloat16).to(at::kFloat)));
    }
  }
}

}  // namespace decoder_layer_test
}  // namespace magister
