// Whole models with latent attention by the GPU's passes, with the kernels on the host: weights of every kind over
// shards against CPUs, rows that decode with experts beside them, a choice of keys, and memory against its plan.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/gpu/gpu_backend.h"
#include "model/memory_tensor_file.h"
#include "model/planned_pass.h"
#include "model/random_weights_of.h"

namespace magister {
namespace gpu_latent_model_test {

// query_rank 0: queries are one product.
ModelConfig config_of(std::int64_t query_rank, std::int64_t experts = 0) {
  ModelConfig config;
  config.family = "deepseek_v3";
  config.vocab_size = 96;
  config.hidden_size = 64;
  config.intermediate_size = config.moe_intermediate_size = 96;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 6;
  config.latent = LatentConfig{.query_rank = query_rank, .rank = 64, .nope_dim = 32, .rope_dim = 16, .value_dim = 32};
  config.head_dim = 48;
  config.rotary_dim = 16;
  config.max_position_embeddings = 512;
  config.num_experts = experts;
  config.num_experts_per_tok = experts > 0 ? 2 : 0;
  return config;
}

// The same with two heads in one layer.
ModelConfig small_config_of(std::int64_t query_rank) {
  ModelConfig config = config_of(query_rank);
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 2;
  return config;
}

// With an indexer in the first of two layers.
ModelConfig sparse_config() {
  ModelConfig config = config_of(32);
  config.family = "glm_moe_dsa";
  config.latent->indexer =
      IndexerConfig{.heads = 10, .head_dim = 32, .top_k = 7, .rope_pairs = true, .layer_chooses = {true, false}};
  return config;
}

class ModelOfLatents : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(15);
    for (TokenId id = 0; id < 52; ++id) text_.push_back(id * 29 % 96);
  }
  void make(const ModelConfig& config) {
    description_.config = config;
    description_.names = hf_tensor_names(config);
    add_random_weights(file_, description_, 0.16);
  }

  // Rows of a text as a whole, and of its last tokens, written one after the other: alone, and beside a prompt.
  struct Hidden {
    at::Tensor whole_TD, decoded_RD, beside_RD;
  };
  static constexpr std::int64_t kWritten = 3;
  Hidden run_shard(ProcessGroup& group, at::ScalarType dtype, const QuantScheme& scheme, bool gpu_code) const {
    ThreadPool pool(1);
    Transformer model = gpu_code ? Transformer(description_, file_, group, pool, dtype, scheme, gpu::Queue{})
                                 : Transformer(description_, file_, group, pool, dtype, scheme);
    model.self_test();
    Hidden out{model.forward(pack_sequences({text_})).to(at::kFloat).clone(), {}, {}};
    for (const bool beside : {false, true}) {
      KvCache cache = model.make_cache(5);
      const std::vector<std::int32_t> pages = {2, 1}, others = {4};
      const auto size = static_cast<std::int64_t>(text_.size()), first = size - kWritten;
      model.forward(pack_sequences({{text_.begin(), text_.begin() + first}}, {0}), {{pages.data(), 0}}, cache);
      std::vector<at::Tensor> rows;
      for (std::int64_t i = first; i < size; ++i) {
        std::vector<std::vector<TokenId>> tokens = {{text_.begin() + i, text_.begin() + i + 1}};
        std::vector<std::int64_t> past = {i};
        std::vector<BlockTable> slots = {{pages.data(), 0}};
        if (beside) {
          tokens.insert(tokens.begin(), {7, 8, 9});
          past.insert(past.begin(), 0);
          slots.insert(slots.begin(), {others.data(), 0});
        }
        PackedBatch batch = pack_sequences(tokens, past);
        batch.is_decode_S = beside ? std::vector<std::uint8_t>{0, 1} : std::vector<std::uint8_t>{1};
        rows.push_back(model.forward(batch, slots, cache).to(at::kFloat).narrow(0, beside ? 3 : 0, 1).clone());
      }
      (beside ? out.beside_RD : out.decoded_RD) = at::cat(rows);
    }
    return out;
  }
  Hidden run(int shards, at::ScalarType dtype, const QuantScheme& scheme, bool gpu_code) const {
    auto groups = make_thread_process_groups(shards);
    std::vector<Hidden> of_shard(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s)
      threads.emplace_back([&, s] { of_shard[s] = run_shard(*groups[s], dtype, scheme, gpu_code); });
    for (std::thread& thread : threads) thread.join();
    return of_shard[0];
  }
  at::Tensor last_of(const Hidden& hidden) const {
    return hidden.whole_TD.narrow(0, hidden.whole_TD.size(0) - kWritten, kWritten);
  }

  ModelDescription description_;
  MemoryTensorFile file_;
  std::vector<TokenId> text_;
};
using SparseModel = ModelOfLatents;
class LatentModel : public ModelOfLatents, public testing::WithParamInterface<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(QueryRanks, LatentModel, testing::Values(0, 32), testing::PrintToStringParamName());

TEST_P(LatentModel, WeightsOfEveryKindAreNearTheCpus) {
  make(config_of(GetParam()));
  struct Kind {
    at::ScalarType dtype;
    QuantScheme scheme;
    int shards;
    double limit;
  };
  for (const Kind& kind :
       {Kind{at::kFloat, {}, 3, 1e-4}, Kind{at::kBFloat16, {}, 1, 0.03}, Kind{at::kBFloat16, {}, 2, 0.03},
        Kind{at::kFloat8_e4m3fn, {}, 1, 0.3}, Kind{at::kBFloat16, QuantScheme{QuantType::kInt8, 0}, 3, 0.03},
        Kind{at::kBFloat16, QuantScheme{QuantType::kInt4, 32}, 1, 0.03}}) {
    const Hidden cpu = run(1, at::kFloat, kind.scheme, false), gpu = run(kind.shards, kind.dtype, kind.scheme, true);
    const std::array<double, 3> distances = {apart(gpu.whole_TD, cpu.whole_TD), apart(gpu.decoded_RD, last_of(cpu)),
                                             apart(gpu.beside_RD, last_of(cpu))};
    std::printf("%s over %d: %.2e as a whole, %.2e written, %.2e beside a prompt\n", c10::toString(kind.dtype),
                kind.shards, distances[0], distances[1], distances[2]);
    for (const double one : distances) EXPECT_LE(one, kind.limit);
    EXPECT_TRUE(at::equal(gpu.decoded_RD, gpu.beside_RD));
  }
}

// Rows that decode have the bits of a prompt's. Rounding turns choices of keys: 0.24 in bf16 and 0.46 in
// 8-bit floats.
TEST_F(SparseModel, WeightsOfEveryKindAreNearTheCpus) {
  make(sparse_config());
  struct Kind {
    at::ScalarType dtype;
    QuantScheme scheme;
    int shards;
    double limit;
  };
  for (const Kind& kind :
       {Kind{at::kFloat, QuantScheme{QuantType::kInt8, 0}, 3, 1e-5},
        Kind{at::kFloat, QuantScheme{QuantType::kInt4, 32}, 1, 1e-5},
        Kind{at::kBFloat16, QuantScheme{QuantType::kInt4, 32}, 2, 0.5}, Kind{at::kFloat8_e4m3fn, {}, 1, 0.8}}) {
    const Hidden cpu = run(1, at::kFloat, kind.scheme, false), gpu = run(kind.shards, kind.dtype, kind.scheme, true);
    const double whole = apart(gpu.whole_TD, cpu.whole_TD), decoded = apart(gpu.decoded_RD, last_of(cpu));
    std::printf("%s over %d: %.2e as a whole, %.2e written\n", c10::toString(kind.dtype), kind.shards, whole, decoded);
    EXPECT_LE(whole, kind.limit);
    EXPECT_LE(decoded, kind.limit);
    EXPECT_TRUE(at::equal(gpu.decoded_RD, gpu.beside_RD));
    EXPECT_TRUE(at::equal(gpu.decoded_RD, last_of(gpu)));
  }
}

// The choice of experts stays on the device, so the decoder's pass holds such rows, too.
TEST_P(LatentModel, RowsDecodeBesideExperts) {
  make(config_of(GetParam(), 4));
  const Hidden cpu = run(1, at::kFloat, {}, false), gpu = run(2, at::kBFloat16, {}, true);
  // Rounding turns a token's choice of experts now and then.
  EXPECT_LE(apart(gpu.whole_TD, cpu.whole_TD), 0.15);
  EXPECT_LE(apart(gpu.decoded_RD, last_of(cpu)), 0.15);
  EXPECT_TRUE(at::equal(gpu.decoded_RD, gpu.beside_RD));
}

TEST_P(LatentModel, APassTakesNoMoreThanItsPlan) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    // Keys and values of shared prefixes are a third of the plan.
    EXPECT_GE(use_of_a_tokens_plan(small_config_of(GetParam()), dtype, {32, 160}), 0.35)
        << "the plan asks for far more than is used";
  }
}

TEST_P(LatentModel, WeightsTakeWhatIsPlanned) {
  const auto group = make_single_process_group();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kFloat8_e4m3fn}) {
    for (const ModelConfig& config : {config_of(GetParam()), config_of(GetParam(), 4), sparse_config()}) {
      const auto weights = gpu::random_gpu_weights(config, *group, dtype, {}, gpu::Queue{});
      EXPECT_EQ(weights->num_bytes(), weight_bytes(config, dtype, 0, 1, {}, true)) << c10::toString(dtype);
    }
  }
}

TEST_P(LatentModel, DecodingTakesWhatIsPlanned) {
  const auto group = make_single_process_group();
  const ModelConfig config = small_config_of(GetParam());
  for (const bool fp8 : {false, true}) {
    gpu::GpuWeights weights;
    weights.config = config;
    weights.partition = partition_for(config, 0, 1);
    weights.fp8 = fp8;
    weights.randomize({}, gpu::Queue{});
    weights.find_tile_sizes(gpu::Queue{});
    gpu::RopeOnDevice rope(weights);
    gpu::GpuDecoder decoder(weights, rope, *group, gpu::Queue{});
    ASSERT_TRUE(decoder.works());
    KvCache cache;
    cache.num_pages = 8;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      cache.keys.push_back(at::zeros({9, 1, 48, 0}, at::kBFloat16));
      cache.values.push_back(at::zeros({9, 1, 48, 80}, at::kBFloat16));
    }
    const std::vector<std::int32_t> pages = {0, 1, 2, 3, 4, 5, 6, 7};
    for (const std::int64_t past : {383, 3}) {
      for (const std::size_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 65, 97, 129, 161, 193, 225})
        decoder.forward(std::vector<gpu::GpuDecoder::Row>(rows, {1, past, {pages.data(), 0}}), cache);
    }
    EXPECT_EQ(decoder.num_bytes(),
              gpu_decoding_bytes(config, weights.partition, 1, 384, fp8 ? at::kFloat8_e4m3fn : at::kBFloat16));
  }
}

TEST(LatentCache, HoldsOneVectorAToken) {
  const auto group = make_single_process_group();
  const ModelConfig config = config_of(32);
  const gpu::GpuBackend model(gpu::random_gpu_weights(config, *group, at::kBFloat16, {}, gpu::Queue{}), *group,
                              gpu::Queue{});
  KvCache cache = model.make_cache(3);
  std::uint64_t bytes = 0;
  for (const auto* all : {&cache.keys, &cache.values}) {
    for (const at::Tensor& layer : *all) bytes += layer.nbytes();
  }
  EXPECT_EQ(bytes, 4 * kv_page_bytes(config, partition_for(config, 0, 1)) / sizeof(float) * 2);
  cache.values[1][2].fill_(5);
  cache.copy_pages({2}, {0});
  EXPECT_TRUE((cache.values[1][0] == 5).all().item<bool>());
}

}  // namespace gpu_latent_model_test
}  // namespace magister
