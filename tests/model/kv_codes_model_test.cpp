// Whole models whose cache holds 8-bit floats (model.kv_cache: fp8), with the GPU's kernels on the host. The bits of a
// text do not depend on its neighbours, on the parts of its prompt, on shared pages or on who computed them before; the
// logits beside transformers: kv_cache_test.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "magister/model/kv_codes.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace kv_codes_model_test {

struct Kind {
  std::string name;
  std::function<void(ModelConfig&)> change;
};

void make_two_kinds(ModelConfig& config) {
  config.sliding_window = 9;
  config.layer_is_sliding = {true, false, true, false};
  config.full_head_dim = 40;
  config.full_kv_heads = 2;
  config.sliding_rope = config.rope;
  config.rope.theta = 1e6;
}

std::vector<Kind> kinds() {
  return {{"llama", [](ModelConfig&) {}},
          {"norms_of_heads", [](ModelConfig& config) { config.qk_norm = true; }},
          {"two_kinds_that_share_keys",
           [](ModelConfig& config) {
             make_two_kinds(config);
             config.shared_kv_layers = 2;
             config.full_keys_are_values = true;
           }},
          {"narrow_values_and_sinks",
           [](ModelConfig& config) {
             config.value_dim = 8;
             config.rotary_dim = 8;
             config.attention_sinks = true;
           }},
          {"uneven_over_shards",
           [](ModelConfig& config) {
             config.num_attention_heads = 10;
             config.num_key_value_heads = 5;
             config.head_dim = 8;
           }},
          {"clipped", [](ModelConfig& config) {  // rows that decode are computed as prompts are
             config.qk_norm = config.qk_norm_of_all_heads = true;
             config.clip_qkv = 2;
           }}};
}

// Tokens [from, to) of a text in one pass; decodes: by the decode kernels.
struct Piece {
  std::size_t text;
  std::int64_t from, to;
  bool decodes = false;
};
using Passes = std::vector<std::vector<Piece>>;

class CodePages : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    at::manual_seed(31);
    ModelConfig& config = description_.config = small_llama();
    GetParam().change(config);
    description_.names = hf_tensor_names(config);
    add_random_weights(file_, description_, 0.2);
  }

  struct Setup {
    int shards = 1;
    bool codes = true, graphs = true;
    std::int32_t first_page = 0;                       // the others follow it
    std::function<void(KvCache&, int pass)> before{};  // before a pass
  };
  static constexpr std::int64_t kPages = 24;

  // Hidden rows of all passes, by text.
  std::vector<at::Tensor> run(const Passes& passes, const Setup& setup) {
    return run(passes, setup, own_pages(setup.first_page));
  }
  std::vector<at::Tensor> run(const Passes& passes, const Setup& setup,
                              const std::vector<std::vector<std::int32_t>>& pages) {
    std::vector<at::Tensor> rows_S(texts_.size());
    on_shards(setup.shards, [&](Transformer& model, int rank) {
      if (setup.codes) model.use_fp8_cache();
      model.use_cuda_graphs(setup.graphs);
      KvCache cache = model.make_cache(kPages);
      for (std::size_t p = 0; p < passes.size(); ++p) {
        if (setup.before) setup.before(cache, static_cast<int>(p));
        std::vector<std::vector<TokenId>> ids;
        std::vector<std::int64_t> past;
        std::vector<BlockTable> slots;
        std::vector<std::uint8_t> decodes;
        for (const Piece& piece : passes[p]) {
          const std::vector<TokenId>& text = texts_[piece.text];
          ids.emplace_back(text.begin() + piece.from, text.begin() + piece.to);
          past.push_back(piece.from);
          slots.push_back({pages[piece.text].data(), 0});
          decodes.push_back(piece.decodes);
        }
        PackedBatch batch = pack_sequences(ids, past);
        batch.is_decode_S = decodes;
        const at::Tensor hidden_TD = model.forward(batch, slots, cache).to(at::kFloat).clone();
        std::int64_t row = 0;
        for (const Piece& piece : passes[p]) {
          const at::Tensor part_TD = hidden_TD.narrow(0, row, piece.to - piece.from);
          row += piece.to - piece.from;
          at::Tensor& all = rows_S[piece.text];
          if (rank == 0) all = all.defined() ? at::cat({all, part_TD}) : part_TD;
        }
      }
    });
    return rows_S;
  }
  void on_shards(int shards, const std::function<void(Transformer&, int)>& body) {
    auto groups = make_thread_process_groups(shards);
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        ThreadPool pool(1);
        Transformer model(description_, file_, *groups[s], pool, at::kBFloat16, {}, gpu::Queue{});
        body(model, static_cast<int>(s));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::vector<std::int32_t>> own_pages(std::int32_t page) const {
    std::vector<std::vector<std::int32_t>> pages;
    for (const std::vector<TokenId>& text : texts_) {
      auto& own = pages.emplace_back();
      for (std::size_t i = 0; i < text.size(); i += KvPages::kSlots) own.push_back(page++ % kPages);
    }
    return pages;
  }
  std::int64_t length(std::size_t text) const { return static_cast<std::int64_t>(texts_[text].size()); }

  // Prompts whole up to kWritten tokens before the end of each text, which are then written one by one.
  static constexpr std::int64_t kWritten = 4;
  Passes written(const std::vector<std::size_t>& some) const {
    Passes passes(1 + kWritten);
    for (const std::size_t text : some) {
      const std::int64_t prompt = length(text) - kWritten;
      passes[0].push_back({text, 0, prompt});
      for (std::int64_t i = 0; i < kWritten; ++i)
        passes[static_cast<std::size_t>(1 + i)].push_back({text, prompt + i, prompt + i + 1, true});
    }
    return passes;
  }

  ModelDescription description_;
  MemoryTensorFile file_;
  // Over windows and pages; the last one has the beginning of the second.
  std::vector<std::vector<TokenId>> texts_ = {some_text(61, 1), some_text(131, 2), some_text(7, 3), some_text(120, 4)};
};

TEST_P(CodePages, ATextHasItsBitsAmongOthersAndAgain) {
  for (const int shards : {1, 3}) {
    const std::vector<at::Tensor> all = run(written({0, 1, 2}), {.shards = shards});
    const std::vector<at::Tensor> alone = run(written({1}), {.shards = shards, .graphs = false, .first_page = 17});
    EXPECT_TRUE(at::equal(alone[1], all[1])) << shards << " shards";
    if (shards > 1) {
      const at::Tensor whole = run(written({1}), {})[1];
      EXPECT_LT(apart(all[1], whole), 0.1) << "over shards";
      continue;
    }
    // Computed once more, as after it lost its pages, among others that have already been there.
    Passes again = written({0, 1});
    for (auto& pass : written({1, 2})) again.push_back(pass);
    const at::Tensor twice = run(again, {})[1];
    EXPECT_TRUE(at::equal(twice.narrow(0, 0, length(1)), all[1]));
    EXPECT_TRUE(at::equal(twice.narrow(0, length(1), length(1)), all[1]));
  }
}

TEST_P(CodePages, APromptHasItsBitsHoweverItIsCut) {
  const at::Tensor whole = run({{{1, 0, 131}}}, {})[1];
  EXPECT_TRUE(at::equal(run({{{1, 0, 50}, {0, 0, 10}}, {{1, 50, 51}}, {{0, 10, 61}, {1, 51, 131}}}, {})[1], whole));
  Passes one_by_one;
  for (std::int64_t i = 0; i < 131; i += i < 40 ? 13 : 1)
    one_by_one.push_back({{1, i, std::min<std::int64_t>(131, i < 40 ? i + 13 : i + 1)}});
  EXPECT_TRUE(at::equal(run(one_by_one, {})[1], whole));
}

TEST_P(CodePages, SharedPagesGiveTheBitsOfOwnOnes) {
  std::copy_n(texts_[1].begin(), 100, texts_[3].begin());
  const at::Tensor own = run(written({3}), {})[3];
  // Two whole pages of the second text, and a copy of the third one.
  std::vector<std::vector<std::int32_t>> pages = own_pages(0);
  pages[3] = {pages[1][0], pages[1][1], 20};
  const Passes passes = {
      {{1, 0, 131}}, {{3, 100, 116}}, {{3, 116, 117, true}}, {{3, 117, 118, true}, {1, 130, 131, true}}};
  const Setup copying{.before = [&](KvCache& cache, int pass) {
    if (pass == 1) cache.copy_pages({pages[1][2]}, {20});
  }};
  EXPECT_TRUE(at::equal(run(passes, copying, pages)[3], own.narrow(0, 100, 18)));
}

// Rounding is there, is as small as three bits of mantissa make it, and is the same for prompts and texts.
TEST_P(CodePages, RoundKeysAndValuesOnce) {
  const std::vector<at::Tensor> codes = run(written({0, 1, 2}), {}), plain = run(written({0, 1, 2}), {.codes = false}),
                                prompts = run({{{0, 0, 61}, {1, 0, 131}, {2, 0, 7}}}, {});
  for (std::size_t s = 0; s < 3; ++s) {
    const double rounded = apart(codes[s], plain[s]), ways = apart(codes[s], prompts[s]);
    std::printf("text %zu: %.1e from bf16 pages, %.1e between prompts and texts\n", s, rounded, ways);
    EXPECT_GT(rounded, 0.005);
    EXPECT_LT(rounded, 0.3);
    EXPECT_LT(ways, rounded / 2) << "prompts and texts read other numbers";
  }
}

TEST_P(CodePages, TakeThePlannedMemory) {
  for (const int shards : {1, 2}) {
    on_shards(shards, [&](Transformer& model, int rank) {
      model.use_fp8_cache();
      const KvCache cache = model.make_cache(kPages);
      std::uint64_t bytes = 0;
      for (const auto* all : {&cache.keys, &cache.values}) {
        for (const at::Tensor& layer : *all) bytes += layer.defined() ? layer.nbytes() : 0;
      }
      EXPECT_EQ(bytes,
                (kPages + 1) * gpu_page_bytes(description_.config, partition_for(description_.config, rank, shards),
                                              at::kBFloat16, true));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodePages, testing::ValuesIn(kinds()),
                         [](const testing::TestParamInfo<Kind>& info) { return info.param.name; });

}  // namespace kv_codes_model_test
}  // namespace magister
