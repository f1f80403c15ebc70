// Passes whose last layer computes only the rows that are read: these have the bits that they have where all rows are
// computed, by the code of CPUs and by that of GPUs on the host, over one and two shards, whole and through a cache.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "magister/model/shared_prefixes.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace read_rows_test {

using Rows = std::vector<std::int64_t>;

struct Model {
  const char* name;
  std::function<void(ModelConfig&)> change;
};

void add_experts(ModelConfig& config) {
  config.num_experts = 6;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 96;
}
void add_latents(ModelConfig& config) {
  config.family = "deepseek_v3";
  config.num_attention_heads = config.num_key_value_heads = 6;
  config.latent = LatentConfig{.query_rank = 32, .rank = 64, .nope_dim = 32, .rope_dim = 16, .value_dim = 32};
  config.head_dim = 48;
  config.rotary_dim = 16;
}

const Model kModels[] = {
    {"llama", [](ModelConfig&) {}},
    {"windows, and norms over all heads",
     [](ModelConfig& config) {
       config.sliding_window = 20;
       config.layer_is_sliding = {true, false, true, true};
       config.qk_norm = config.qk_norm_of_all_heads = true;
     }},
    {"parallel blocks that share a norm", [](ModelConfig& config) { config.parallel_residual = true; }},
    {"parallel blocks with layer norms and biases",
     [](ModelConfig& config) {
       config.norm_kind = NormKind::kLayer;
       config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
       config.parallel_residual = config.parallel_norms = true;
     }},
    {"norms of outputs", [](ModelConfig& config) { config.norm_placement = NormPlacement::kBoth; }},
    {"experts", add_experts},
    {"latents", add_latents},
    {"a choice of keys",
     [](ModelConfig& config) {
       add_latents(config);
       config.family = "glm_moe_dsa";
       config.latent->indexer = IndexerConfig{
           .heads = 10, .head_dim = 32, .top_k = 7, .rope_pairs = true, .layer_chooses = {true, false, true, false}};
     }},
};

// Another group that keeps the numbers of rows of its sums.
class WatchedGroup final : public ProcessGroup {
 public:
  explicit WatchedGroup(ProcessGroup& group) : ProcessGroup(group.tp_rank(), group.tp_size()), group_(group) {}
  std::string backend() const override { return group_.backend(); }
  void all_reduce_sum(at::Tensor& tensor) override {
    rows.push_back(tensor.size(0));
    group_.all_reduce_sum(tensor);
  }
  at::Tensor all_gather(const at::Tensor& shard) override { return group_.all_gather(shard); }
  at::Tensor reduce_scatter(const at::Tensor& tensor) override { return group_.reduce_scatter(tensor); }
  void broadcast(at::Tensor& tensor, int root) override { group_.broadcast(tensor, root); }
  void barrier() override { group_.barrier(); }
  Rows rows;

 private:
  ProcessGroup& group_;
};

class ReadRows : public testing::Test {
 protected:
  void make(const Model& model) {
    at::manual_seed(15);
    file_ = {};
    description_ = {};
    description_.config = small_llama();
    model.change(description_.config);
    description_.names = hf_tensor_names(description_.config);
    add_random_weights(file_, description_, 0.12);
  }

  using Body = std::function<void(Transformer&, WatchedGroup&)>;
  void on_shards(int shards, at::ScalarType dtype, bool gpu_code, const QuantScheme& codes, const Body& body) {
    auto groups = make_thread_process_groups(shards);
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        WatchedGroup group(*groups[s]);
        ThreadPool pool(2);
        Transformer model = gpu_code ? Transformer(description_, file_, group, pool, dtype, codes, gpu::Queue{})
                                     : Transformer(description_, file_, group, pool, dtype, codes);
        body(model, group);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // By both kinds of code; the first two models with all kinds of weights.
  void on_all(const Body& body) {
    for (std::size_t i = 0; i < std::size(kModels); ++i) {
      SCOPED_TRACE(kModels[i].name);
      make(kModels[i]);
      for (const int shards : {1, 2}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) on_shards(shards, dtype, false, {}, body);
        on_shards(shards, at::kBFloat16, true, {}, body);
        if (i > 1) continue;
        on_shards(shards, at::kFloat8_e4m3fn, true, {}, body);
        for (const bool gpu_code : {false, true}) on_shards(shards, at::kFloat, gpu_code, {QuantType::kInt8, 32}, body);
      }
    }
  }

  ModelDescription description_;
  MemoryTensorFile file_;
};

at::Tensor chosen(const at::Tensor& hidden_TD, const Rows& rows) {
  return hidden_TD.index_select(0, at::tensor(rows, at::kLong));
}

void expect_bits(Transformer& model, PackedBatch batch, const std::vector<Rows>& choices) {
  const at::Tensor whole_TD = model.forward(batch).clone();
  for (const Rows& rows : choices) {
    batch.read_rows = rows;
    const at::Tensor hidden_RD = model.forward(batch);
    EXPECT_TRUE(at::equal(hidden_RD, chosen(whole_TD, rows))) << testing::PrintToString(rows);
  }
}

// One text goes over several tiles of queries; the others begin and end inside one.
void expect_bits_of_whole_passes(Transformer& model, WatchedGroup&) {
  const PackedBatch batch = pack_sequences({some_text(70, 1), some_text(5, 2), some_text(1, 3), some_text(20, 4)});
  Rows all(96);
  std::iota(all.begin(), all.end(), 0);
  const Rows last = {69, 74, 75, 95};
  expect_bits(model, batch, {{}, {0}, last, {3, 4, 47, 48, 71, 95}, all});
  if (!model.shares_prefixes()) return;
  std::vector<TokenId> first = some_text(55, 1), second(first.begin(), first.begin() + 50);
  second.insert(second.end(), {5, 9, 11});
  const PackedBatch sharing = pack_sharing({first, second}, {54, 52});
  EXPECT_GT(sharing.past(1), 0);
  expect_bits(model, sharing, {{sharing.cu_seqlens[1] - 1, sharing.cu_seqlens[2] - 1}, {40}});
}

// Two prompts in chunks: none of the rows of the first chunks is read, and of later ones a few. Then texts are written
// beside a third prompt. -> the rows that are read.
std::vector<at::Tensor> through_a_cache(Transformer& model, bool narrows) {
  const std::vector<std::vector<TokenId>> texts = {some_text(90, 1), some_text(64, 2), some_text(50, 3)};
  const std::vector<std::vector<std::int32_t>> pages = {{3, 1}, {2, 0}, {5, 4}};
  KvCache cache = model.make_cache(6);
  std::vector<at::Tensor> out;
  struct Piece {
    std::size_t text;
    std::int64_t from, to;
    bool decodes = false;
  };
  const auto pass = [&](const std::vector<Piece>& pieces, const Rows& rows) {
    std::vector<std::vector<TokenId>> tokens;
    Rows past;
    std::vector<BlockTable> slots;
    std::vector<std::uint8_t> decodes;
    for (const Piece& piece : pieces) {
      tokens.emplace_back(texts[piece.text].begin() + piece.from, texts[piece.text].begin() + piece.to);
      past.push_back(piece.from);
      slots.push_back({pages[piece.text].data(), 0});
      decodes.push_back(piece.decodes);
    }
    PackedBatch batch = pack_sequences(tokens, past);
    batch.is_decode_S = decodes;
    if (narrows) batch.read_rows = rows;
    const at::Tensor hidden = model.forward(batch, slots, cache).clone();
    out.push_back(narrows ? hidden : chosen(hidden, rows));
  };
  pass({{0, 0, 50}}, {});
  pass({{0, 50, 80}, {1, 0, 31}}, {29});
  pass({{0, 80, 81, true}, {1, 31, 62}}, {0, 4, 31});
  pass({{0, 81, 82, true}, {1, 62, 63, true}, {2, 0, 33}}, {0, 1});
  pass({{0, 82, 83, true}, {2, 33, 50}, {1, 63, 64, true}}, {17, 18});
  pass({{0, 83, 84, true}}, {0});
  return out;
}

void expect_bits_through_a_cache(Transformer& model, WatchedGroup&) {
  const std::vector<at::Tensor> wanted = through_a_cache(model, false), got = through_a_cache(model, true);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << "pass " << i;
}

TEST_F(ReadRows, HaveTheBitsOfWholePasses) { on_all(expect_bits_of_whole_passes); }

TEST_F(ReadRows, HaveTheirBitsThroughACache) { on_all(expect_bits_through_a_cache); }

// The sums of the last layer have the rows that are read, and there are none where no row is read.
TEST_F(ReadRows, AreAllThatTheLastLayerComputes) {
  for (const Model& model : {kModels[0], kModels[5]}) {
    SCOPED_TRACE(model.name);
    make(model);
    for (const bool gpu_code : {false, true}) {
      on_shards(2, at::kFloat, gpu_code, {}, [&](Transformer& one, WatchedGroup& group) {
        PackedBatch batch = pack_sequences({some_text(70, 1)});
        const auto sums_of = [&](const std::optional<Rows>& rows) {
          group.rows.clear();
          batch.read_rows = rows;
          one.forward(batch);
          return group.rows;
        };
        EXPECT_EQ(sums_of({}), Rows(9, 70));
        EXPECT_EQ(sums_of(Rows{}), Rows(7, 70));
        EXPECT_EQ(sums_of(Rows{2, 69}), Rows({70, 70, 70, 70, 70, 70, 70, 2, 2}));
      });
    }
  }
}

}  // namespace read_rows_test
}  // namespace magister
