// `model.decoding: throughput` in a model whose GPU code runs on the host, with a simulated library: its products
// compute decoding passes and logits, also in a graph. Also the refusals.
#include "model/gpu/decode_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/model/pass_memory.h"
#include "magister/parallel/process_group.h"
#include "model/gpu/gpu_backend.h"
#include "model/gpu/gpu_model.h"
#include "model/pretended_algorithms.h"

namespace magister::gpu {
namespace decode_products_test {

ModelConfig config_of_test() {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = 128;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 32;
  config.vocab_size = 96;
  config.intermediate_size = 256;
  config.max_position_embeddings = 512;
  return config;
}

class ThroughputDecoding : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(3); }

  std::shared_ptr<const GpuWeights> weights_of(at::ScalarType dtype, const QuantScheme& scheme = {}) {
    return random_gpu_weights(config_, *group_, dtype, scheme, Queue{});
  }
  // A library with one algorithm for every shape; it records the requested shapes.
  DecodeProducts::Algorithms library(Pretended::Algorithm algorithm) {
    return [this, algorithm](std::int64_t N, std::int64_t K, at::ScalarType type, at::ScalarType out_type, const Queue&,
                             std::int64_t asked_rows) {
      EXPECT_EQ(asked_rows, 256);
      asked_.push_back(std::to_string(N) + "x" + std::to_string(K) + (type == at::kFloat8_e4m3fn ? " fp8" : "") +
                       (out_type == at::kFloat ? " f32" : ""));
      made_.push_back(std::make_shared<Pretended>(std::vector<Pretended::Algorithm>{algorithm}));
      return made_.back();
    };
  }
  std::int64_t products() const {
    std::int64_t count = 0;
    for (const auto& one : made_) count += static_cast<std::int64_t>(one->rows.size());
    return count;
  }

  // The numbers of rows of all products since `before` of them, each once.
  std::set<std::int64_t> rows_since(std::int64_t before) const {
    std::set<std::int64_t> rows;
    for (const auto& one : made_) {
      for (const std::int64_t count : one->rows) {
        if (--before < 0) rows.insert(count);
      }
    }
    return rows;
  }

  // Three prompts in a pass, then three decoding passes of all three; the hidden states of the last, [3, D].
  static at::Tensor decoded(GpuModel& model, const std::vector<std::size_t>& texts = {0, 1, 2}) {
    KvCache cache = model.make_cache(4);
    return decoded(model, cache, texts);
  }
  static at::Tensor decoded(GpuModel& model, KvCache& cache, const std::vector<std::size_t>& texts = {0, 1, 2}) {
    const std::vector<std::vector<TokenId>> prompts = {{5, 9, 11}, {7}, {3, 1, 4, 1, 5}};
    const std::vector<std::vector<std::int32_t>> pages = {{0}, {1}, {2}};
    at::Tensor last;
    for (std::int64_t pass = 0; pass < 4; ++pass) {
      std::vector<std::vector<TokenId>> rows;
      std::vector<std::int64_t> past;
      std::vector<BlockTable> slots;
      for (const std::size_t text : texts) {
        const auto length = static_cast<std::int64_t>(prompts[text].size());
        rows.push_back(pass == 0 ? prompts[text] : std::vector<TokenId>{static_cast<TokenId>(20 + 3 * pass + text)});
        past.push_back(pass == 0 ? 0 : length + pass - 1);
        slots.push_back({pages[text].data(), 0});
      }
      PackedBatch batch = pack_sequences(rows, past);
      if (pass > 0) batch.is_decode_S.assign(texts.size(), 1);
      last = model.forward(batch, slots, &cache).clone();
    }
    return last;
  }

  const std::unique_ptr<ProcessGroup> group_ = make_single_process_group();
  ModelConfig config_ = config_of_test();
  std::vector<std::string> asked_;
  std::vector<std::shared_ptr<Pretended>> made_;
};

TEST_F(ThroughputDecoding, IsWhatRowsOfTextsGoThrough) {
  GpuModel model(weights_of(at::kBFloat16), Queue{}, *group_);
  const at::Tensor ours = decoded(model).to(at::kFloat), logits = model.logits(decoded(model));
  model.use_throughput_decoding(library(good));
  EXPECT_EQ(asked_, (std::vector<std::string>{"256x128", "128x128 f32", "512x128", "128x256 f32", "96x128 f32"}));
  model.use_graphs(false);
  const std::int64_t before = products();
  const at::Tensor eager = decoded(model);
  EXPECT_EQ(products() - before, 3 * 2 * 4) << "three passes of two layers";
  EXPECT_LE((eager.to(at::kFloat) - ours).abs().max().item<double>(), 0.05 * ours.abs().max().item<double>());
  const at::Tensor by_library = model.logits(eager);
  EXPECT_EQ(products() - before, 3 * 2 * 4 + 1);
  EXPECT_LE((by_library - logits).abs().max().item<double>(), 0.05 * logits.abs().max().item<double>());
  EXPECT_TRUE(at::equal(decoded(model, {2}), eager.narrow(0, 2, 1))) << "alone";
  model.use_graphs(true);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(decoded(model), eager)) << "in a graph";
}

// The same with weights in 8-bit floats: a product has the rows of the pass, not those of a tile, with the codes that
// norm and gate give. The other way rounds what joins the residual stream to bf16.
TEST_F(ThroughputDecoding, EightBitFloatsGoThroughIt) {
  for (const std::int64_t mlp : {256, 264}) {  // K = 264 is not a multiple of 16, so that down_proj stays in bf16
    SCOPED_TRACE(mlp);
    config_.intermediate_size = mlp;
    asked_.clear();
    made_.clear();
    GpuModel model(weights_of(at::kFloat8_e4m3fn), Queue{}, *group_);
    const at::Tensor ours = decoded(model).to(at::kFloat);
    model.use_throughput_decoding(library(good));
    const std::string last = mlp == 256 ? "128x256 fp8 f32" : "128x264 f32";
    EXPECT_EQ(asked_, (std::vector<std::string>{"256x128 fp8", "128x128 fp8 f32", std::to_string(2 * mlp) + "x128 fp8",
                                                last, "96x128 f32"}));
    model.use_graphs(false);
    for (const auto& one : made_) one->rows.clear();
    const at::Tensor eager = decoded(model);
    EXPECT_EQ(products(), 3 * 2 * 4) << "three passes of two layers";
    EXPECT_EQ(rows_since(0), std::set<std::int64_t>{3});
    EXPECT_FALSE(at::equal(eager.to(at::kFloat), ours)) << "the products are those of a tile";
    EXPECT_LE((eager.to(at::kFloat) - ours).abs().max().item<double>(), 0.05 * ours.abs().max().item<double>());
    EXPECT_TRUE(at::equal(decoded(model, {2}), eager.narrow(0, 2, 1))) << "alone";
    EXPECT_TRUE(at::equal(decoded(model, {1, 2}), eager.narrow(0, 1, 2))) << "among others";
    model.use_graphs(true);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(decoded(model), eager)) << "in a graph";
  }
}

// The same with weights in codes, which our own kernel multiplies, or the library after they became plain (K = 264 has
// no whole groups): in both ways by the numbers that prompts multiply, so that a text is near what plain weights of
// these numbers write.
TEST_F(ThroughputDecoding, CodesAreMultipliedAsTheyAre) {
  for (const auto& [type, mlp] :
       {std::pair{QuantType::kInt8, 256}, {QuantType::kInt4, 256}, {QuantType::kInt8, 264}, {QuantType::kInt4, 264}}) {
    SCOPED_TRACE(std::to_string(static_cast<int>(type)) + ", " + std::to_string(mlp));
    config_.intermediate_size = mlp;
    asked_.clear();
    made_.clear();
    const std::shared_ptr<const GpuWeights> weights = weights_of(at::kBFloat16, {type, 32});
    auto plain = std::make_shared<GpuWeights>(*weights);
    for (GpuLayer& layer : plain->layers) {
      for (GpuLinear* linear : layer.products()) {
        linear->weight_NK = plain_weight(*linear, at::kBFloat16, Queue{});
        linear->codes_NB.reset();
        linear->scheme = QuantScheme{};
      }
    }
    GpuModel model(weights, Queue{}, *group_), of_plain(plain, Queue{}, *group_);
    const at::Tensor ours = decoded(model).to(at::kFloat);
    model.use_throughput_decoding(library(good));
    EXPECT_EQ(asked_, mlp == 256 ? std::vector<std::string>{"96x128 f32"}
                                 : (std::vector<std::string>{"128x264 f32", "96x128 f32"}));
    model.use_graphs(false);
    const std::int64_t before = products();
    const at::Tensor eager = decoded(model);
    EXPECT_EQ(products() - before, mlp == 256 ? 0 : 3 * 2) << "three passes of two layers";
    of_plain.use_throughput_decoding(library(good));
    const at::Tensor wanted = decoded(of_plain).to(at::kFloat);
    EXPECT_LE((eager.to(at::kFloat) - wanted).abs().max().item<double>(), 0.02 * wanted.abs().max().item<double>());
    EXPECT_FALSE(at::equal(eager.to(at::kFloat), ours)) << "the products are those of few rows";
    EXPECT_LE((eager.to(at::kFloat) - ours).abs().max().item<double>(), 0.05 * ours.abs().max().item<double>());
    EXPECT_TRUE(at::equal(decoded(model, {2}), eager.narrow(0, 2, 1))) << "alone";
    EXPECT_TRUE(at::equal(decoded(model, {1, 2}), eager.narrow(0, 1, 2))) << "among others";
    model.use_graphs(true);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(decoded(model), eager)) << "in a graph";
  }
}

// Pieces of sums, and bf16 numbers of the one weight that has no whole groups.
TEST_F(ThroughputDecoding, TheBuffersForCodesArePlanned) {
  for (const std::int64_t mlp : {256, 264}) {
    config_.intermediate_size = mlp;
    const auto weights = weights_of(at::kBFloat16, {QuantType::kInt8, 32});
    const std::uint64_t bytes = DecodeProducts(*weights, Queue{}, library(good)).num_bytes();
    EXPECT_EQ(bytes, decoding_code_bytes(config_, weights->partition));
    const std::int64_t tiles = mlp == 256 ? 2 : 3, plain = mlp == 256 ? 0 : 2 * 128 * 264;
    EXPECT_EQ(bytes, static_cast<std::uint64_t>((tiles + 131) * 256 * 256 * 4 + plain));
  }
  EXPECT_EQ(DecodeProducts(*weights_of(at::kBFloat16), Queue{}, library(good)).num_bytes(), 0u);
}

// A graph that was recorded before, of the same cache, holds the other products.
TEST_F(ThroughputDecoding, AGraphOfBeforeIsForgotten) {
  GpuModel model(weights_of(at::kBFloat16), Queue{}, *group_);
  KvCache cache = model.make_cache(4);
  decoded(model, cache);
  model.use_throughput_decoding(library([](const ProductFactors& factors, at::Tensor& out) {
    return good(factors, out) && (out.mul_(1.0078125), true);  // within what a product may be off
  }));
  const at::Tensor in_graph = decoded(model, cache);
  model.use_graphs(false);
  EXPECT_TRUE(at::equal(decoded(model, cache), in_graph));
}

TEST_F(ThroughputDecoding, BiasesAreAdded) {
  config_.qkv_bias = true;
  auto weights = std::make_shared<GpuWeights>(GpuWeights::empty(config_, *group_, at::kBFloat16, Queue{}));
  weights->randomize({}, Queue{});
  weights->find_tile_sizes(Queue{});
  for (GpuLayer& layer : weights->layers) layer.qkv_proj.bias_N = at::randn({256});
  GpuModel model(weights, Queue{}, *group_);
  const at::Tensor ours = decoded(model).to(at::kFloat);
  model.use_throughput_decoding(library(good));
  EXPECT_LE((decoded(model).to(at::kFloat) - ours).abs().max().item<double>(), 0.05 * ours.abs().max().item<double>());
}

TEST_F(ThroughputDecoding, WhatItDoesNotTakeIsRefused) {
  const auto refuses = [&](const std::shared_ptr<const GpuWeights>& weights, Pretended::Algorithm algorithm) {
    GpuModel model(weights, Queue{}, *group_);
    try {
      model.use_throughput_decoding(library(algorithm));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kConfig);
      return std::string(error.what());
    }
    return std::string("is taken");
  };
  const auto by_number = [](const ProductFactors& factors, at::Tensor& out) {
    good(factors, out);
    if (factors.x_MK.size(0) > 100) out.mul_(1.01);
    return true;
  };
  EXPECT_NE(refuses(weights_of(at::kBFloat16), by_number).find("no algorithm for 256 x 128"), std::string::npos);
  EXPECT_NE(refuses(weights_of(at::kFloat8_e4m3fn), by_number).find("128 weights in fp8 (from cuBLAS 12.9"),
            std::string::npos);
  const auto without_scales = [](const ProductFactors& factors, at::Tensor& out) {
    return good({factors.x_MK, factors.weight_NK}, out);
  };
  EXPECT_NE(refuses(weights_of(at::kFloat8_e4m3fn), without_scales).find("128 weights in fp8"), std::string::npos);
  EXPECT_EQ(refuses(weights_of(at::kBFloat16, {QuantType::kInt8, 32}), by_number), "is taken");
  config_.intermediate_size = 264;
  EXPECT_NE(refuses(weights_of(at::kBFloat16, {QuantType::kInt8, 32}), by_number).find("no algorithm for 128 x 264"),
            std::string::npos);
  EXPECT_NE(refuses(weights_of(at::kFloat), good).find("they need bf16"), std::string::npos);
  // A head that has none goes on as it was.
  GpuModel model(weights_of(at::kBFloat16), Queue{}, *group_);
  const at::Tensor rows = decoded(model), logits = model.logits(rows);
  model.use_throughput_decoding([&](std::int64_t N, std::int64_t K, at::ScalarType type, at::ScalarType out_type,
                                    const Queue& queue, std::int64_t asked_rows) {
    return N == 96 ? nullptr : library(good)(N, K, type, out_type, queue, asked_rows);
  });
  EXPECT_TRUE(at::equal(model.logits(rows), logits));
}

}  // namespace decode_products_test
}  // namespace magister::gpu
