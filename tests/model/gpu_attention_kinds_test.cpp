// Layers whose attention differs from Llama's, in whole models with the GPU's kernels on the host, against the same
// models on CPUs: sinks, ALiBi, windows in chunks, sizes of heads and numbers of KV heads by layer, keys of earlier
// layers, keys that are values, narrow values, and gates of outputs. Prompts whole, in parts and with shared
// beginnings, and texts written one token at a time.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/gpu/gpu_attention.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace gpu_attention_kinds_test {

struct Kind {
  std::string name;
  std::function<void(ModelConfig&)> change;
};

// The second and the fourth layer have full attention.
void make_windows(ModelConfig& config, std::int64_t window) {
  config.sliding_window = window;
  config.layer_is_sliding = {true, false, true, false};
}
void turn_nowhere(ModelConfig& config) { config.layer_has_rope.assign(4, false); }
void make_two_kinds(ModelConfig& config) {
  make_windows(config, 9);
  config.full_head_dim = 40;
  config.full_kv_heads = 2;
  config.sliding_rope = config.rope;
  config.rope.theta = 1e6;
}

std::vector<Kind> kinds_of_scores() {
  return {{"sinks", [](ModelConfig& config) { config.attention_sinks = true; }},
          {"sinks_in_windows",
           [](ModelConfig& config) {
             make_windows(config, 9);
             config.attention_sinks = config.sinks_in_windows = true;
             config.attn_logit_softcapping = 3;
           }},
          {"alibi",
           [](ModelConfig& config) {
             turn_nowhere(config);
             config.alibi_max = 8;
             config.max_position_embeddings = 1;
           }},
          {"alibi_in_bf16",
           [](ModelConfig& config) {
             turn_nowhere(config);
             config.alibi_max = 8;
             config.alibi_in_bf16 = true;
           }},
          {"chunked_windows", [](ModelConfig& config) {
             make_windows(config, 9);
             config.chunked_windows = true;
           }}};
}

std::vector<Kind> kinds_of_layers() {
  return {{"narrow_values",
           [](ModelConfig& config) {
             config.value_dim = 8;
             config.rotary_dim = 8;
           }},
          {"wide_values", [](ModelConfig& config) { config.value_dim = 32; }},
          {"grouped_heads",
           [](ModelConfig& config) {
             make_windows(config, 9);
             config.attention_sinks = true;
             config.head_dim = 64;
           }},
          {"heads_by_kind", make_two_kinds},
          {"keys_of_earlier_layers",
           [](ModelConfig& config) {
             make_two_kinds(config);
             config.shared_kv_layers = 2;
             config.qk_norm = true;
           }},
          {"keys_are_values",
           [](ModelConfig& config) {
             make_two_kinds(config);
             config.full_keys_are_values = true;
             config.qk_norm = true;
           }},
          {"wide_heads",
           [](ModelConfig& config) {
             make_two_kinds(config);
             config.full_head_dim = 320;
           }},
          {"gates_by_number", [](ModelConfig& config) { config.attention_gate = AttentionGate::kSigmoid; }},
          {"gates_by_head",
           [](ModelConfig& config) {
             config.attention_gate = AttentionGate::kSoftplus;
             config.gate_by_head = true;
           }},
          {"several_in_uneven_groups", [](ModelConfig& config) {
             make_two_kinds(config);
             config.num_attention_heads = 10;
             config.num_key_value_heads = 5;
             config.head_dim = 8;
             config.shared_kv_layers = 1;
             config.full_keys_are_values = config.attention_sinks = true;
             config.attention_gate = AttentionGate::kSigmoid;
           }}};
}

std::vector<Kind> kinds_named(const std::set<std::string>& names) {
  std::vector<Kind> some = kinds_of_layers();
  std::erase_if(some, [&](const Kind& kind) { return !names.contains(kind.name); });
  return some;
}

class AttentionKinds : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    at::manual_seed(31);
    ModelConfig& config = description_.config = small_llama();
    GetParam().change(config);
    description_.names = hf_tensor_names(config);
    add_random_weights(file_, description_, 0.2);
  }

  // body(model, rank), on each shard.
  void on_shards(int shards, at::ScalarType dtype, bool gpu_code, const std::function<void(Transformer&, int)>& body) {
    const QuantScheme codes = codes_;
    auto groups = make_thread_process_groups(shards);
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        ThreadPool pool(1);
        Transformer model = gpu_code ? Transformer(description_, file_, *groups[s], pool, dtype, codes, gpu::Queue{})
                                     : Transformer(description_, file_, *groups[s], pool, dtype);
        body(model, static_cast<int>(s));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  at::Tensor whole(int shards, at::ScalarType dtype, bool gpu_code) {
    at::Tensor out_TD;
    on_shards(shards, dtype, gpu_code, [&](Transformer& model, int rank) {
      model.self_test();
      const at::Tensor hidden_TD = model.forward(pack_sequences(texts_)).to(at::kFloat).clone();
      if (rank == 0) out_TD = hidden_TD;
    });
    return out_TD;
  }

  // Two parts of each text up to kWritten tokens before its end, then token by token; only these last rows.
  static constexpr std::int64_t kWritten = 4;
  std::vector<at::Tensor> written(int shards, at::ScalarType dtype, bool graphs) {
    std::vector<at::Tensor> rows_S(texts_.size());
    on_shards(shards, dtype, true, [&](Transformer& model, int rank) {
      model.use_cuda_graphs(graphs);
      KvCache cache = model.make_cache(16);
      std::vector<std::vector<std::int32_t>> pages;
      std::int32_t page = 15;
      for (const std::vector<TokenId>& text : texts_) {
        auto& own = pages.emplace_back();
        for (std::size_t i = 0; i < text.size(); i += KvPages::kSlots) own.push_back(page--);
      }
      for (std::int64_t step = -1; step <= kWritten; ++step) {
        std::vector<std::vector<TokenId>> rows;
        std::vector<std::int64_t> past;
        std::vector<BlockTable> slots;
        for (std::size_t s = 0; s < texts_.size(); ++s) {
          const auto prompt = static_cast<std::int64_t>(texts_[s].size()) - kWritten;
          const std::int64_t end = step < 0 ? prompt / 2 : prompt + step, from = step < 0    ? 0
                                                                                 : step == 0 ? prompt / 2
                                                                                             : end - 1;
          rows.emplace_back(texts_[s].begin() + from, texts_[s].begin() + end);
          past.push_back(from);
          slots.push_back({pages[s].data(), 0});
        }
        PackedBatch batch = pack_sequences(rows, past);
        if (step > 0) batch.is_decode_S.assign(rows.size(), 1);
        const at::Tensor hidden_TD = model.forward(batch, slots, cache).to(at::kFloat);
        for (std::size_t s = 0; s < texts_.size() && rank == 0 && step > 0; ++s) {
          const at::Tensor row_1D = hidden_TD.narrow(0, static_cast<std::int64_t>(s), 1).clone();
          rows_S[s] = rows_S[s].defined() ? at::cat({rows_S[s], row_1D}) : row_1D;
        }
      }
    });
    return rows_S;
  }
  // The same rows of a whole pass.
  std::vector<at::Tensor> last_rows(const at::Tensor& hidden_TD) const {
    std::vector<at::Tensor> rows_S;
    std::int64_t end = 0;
    for (const std::vector<TokenId>& text : texts_) {
      end += static_cast<std::int64_t>(text.size());
      rows_S.push_back(hidden_TD.narrow(0, end - kWritten, kWritten));
    }
    return rows_S;
  }

  ModelDescription description_;
  MemoryTensorFile file_;
  QuantScheme codes_{};  // of models that use the GPU's code
  // Over several windows and a page; over a block of queries; shorter than a window.
  std::vector<std::vector<TokenId>> texts_ = {some_text(61, 1), some_text(131, 2), some_text(7, 3)};
};

TEST_P(AttentionKinds, PromptsAreThoseOfCpus) {
  const at::Tensor plain_TD = whole(1, at::kFloat, false);
  for (const int shards : {1, 3}) {
    const double f32 = apart(whole(shards, at::kFloat, true), plain_TD),
                 bf16 = apart(whole(shards, at::kBFloat16, true), plain_TD);
    std::printf("%d shards: %.1e in f32, %.1e in bf16\n", shards, f32, bf16);
    EXPECT_LT(f32, 8e-6);
    EXPECT_LT(bf16, 0.1);
  }
}

TEST_P(AttentionKinds, TextsAreThoseOfPrompts) {
  for (const auto& [shards, dtype] :
       std::vector<std::pair<int, at::ScalarType>>{{1, at::kFloat}, {1, at::kBFloat16}, {3, at::kBFloat16}}) {
    const std::vector<at::Tensor> got = written(shards, dtype, true), wanted = last_rows(whole(shards, dtype, true));
    for (std::size_t s = 0; s < got.size(); ++s)
      EXPECT_LT(apart(got[s], wanted[s]), dtype == at::kFloat ? 3e-6 : 0.06) << shards << " shards, text " << s;
    if (shards > 1 || dtype == at::kFloat) continue;
    const std::vector<at::Tensor> kernel_by_kernel = written(shards, dtype, false);
    for (std::size_t s = 0; s < got.size(); ++s) EXPECT_TRUE(at::equal(kernel_by_kernel[s], got[s])) << "text " << s;
    // A row's bits do not depend on its neighbours.
    const std::vector<std::vector<TokenId>> all = std::exchange(texts_, {texts_[1]});
    EXPECT_TRUE(at::equal(written(shards, dtype, true)[0], got[1])) << "alone";
    texts_ = all;
  }
}

// In 8-bit floats a gate of few numbers is not, and reads other rows than the product beside it.
class EightBits : public AttentionKinds {};
TEST_P(EightBits, AreNearFloats) {
  const at::Tensor plain_TD = whole(1, at::kFloat, false);
  for (const bool fp8 : {false, true}) {
    if (!fp8) codes_ = {QuantType::kInt8, 32};
    const at::ScalarType dtype = fp8 ? at::kFloat8_e4m3fn : at::kBFloat16;
    const at::Tensor got_TD = whole(2, dtype, true);
    const std::vector<at::Tensor> got = written(2, dtype, true), wanted = last_rows(got_TD);
    std::printf("%s: %.1e from f32, written", fp8 ? "fp8" : "codes", apart(got_TD, plain_TD));
    EXPECT_LT(apart(got_TD, plain_TD), fp8 ? 0.5 : 0.1);
    for (std::size_t s = 0; s < got.size(); ++s) {
      std::printf(" %.1e", apart(got[s], wanted[s]));
      EXPECT_LT(apart(got[s], wanted[s]), fp8 ? 0.2 : 0.06) << "text " << s;
    }
    std::printf("\n");
    codes_ = {};
  }
}

// Passes without a cache in which texts share their beginnings give the bits of whole texts.
TEST_P(AttentionKinds, SharedBeginningsHaveEqualBits) {
  std::vector<TokenId> other = texts_[1];
  other.resize(100);
  other.insert(other.end(), {5, 6, 7});
  on_shards(1, at::kBFloat16, true, [&](Transformer& model, int) {
    ASSERT_TRUE(model.shares_prefixes());
    const at::Tensor apart_TD = model.forward(pack_sequences({texts_[1], other})).clone();
    PackedBatch sharing = pack_sequences({texts_[1], {5, 6, 7}}, {0, 100});
    sharing.prefix_of_S = {0, 0};
    const at::Tensor shared_TD = model.forward(sharing);
    const std::int64_t first = static_cast<std::int64_t>(texts_[1].size());
    EXPECT_TRUE(at::equal(shared_TD.narrow(0, 0, first), apart_TD.narrow(0, 0, first)));
    EXPECT_TRUE(at::equal(shared_TD.narrow(0, first, 3), apart_TD.narrow(0, first + 100, 3)));
  });
}

// Rows and heads of any size, and rows of several blocks.
TEST(AttentionRows, KeysAreRepeatedAndOutputsGated) {
  at::manual_seed(5);
  for (const auto& [H, V] : {std::pair{3, 16}, {5, 10}, {20, 128}}) {
    LayerShape shape;
    shape.heads = H;
    shape.kv_heads = 2;
    shape.head_dim = V;
    shape.keys_are_values = true;
    const at::Tensor rows_TN = at::randn({7, (H + 2) * V}), out_TQ = at::empty({7, (H + 4) * V});
    gpu::repeat_keys<float>(shape, rows_TN, out_TQ, gpu::Queue{});
    EXPECT_TRUE(at::equal(out_TQ, at::cat({rows_TN, rows_TN.narrow(1, H * V, 2 * V)}, 1))) << V;
    for (const AttentionGate gate : {AttentionGate::kSigmoid, AttentionGate::kSoftplus}) {
      for (const int each : {1, V}) {
        shape.gate = gate;
        shape.gate_numbers = H * V / each;
        const at::Tensor gate_TG = at::randn({7, shape.gate_numbers}) * 5, before_TA = at::randn({7, H * V}),
                         gated_TA = before_TA.clone();
        gpu::gate_outputs<float>(shape, gate_TG, gated_TA, gpu::Queue{});
        const at::Tensor factor_TG = gate == AttentionGate::kSigmoid ? at::sigmoid(gate_TG) : at::softplus(gate_TG);
        EXPECT_TRUE(at::allclose(gated_TA, before_TA * factor_TG.repeat_interleave(each, 1), 1e-5, 1e-7)) << V;
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Scores, AttentionKinds, testing::ValuesIn(kinds_of_scores()), name_of);
INSTANTIATE_TEST_SUITE_P(Layers, AttentionKinds, testing::ValuesIn(kinds_of_layers()), name_of);
INSTANTIATE_TEST_SUITE_P(Some, EightBits,
                         testing::ValuesIn(kinds_named({"narrow_values", "gates_by_head", "several_in_uneven_groups"})),
                         name_of);

}  // namespace gpu_attention_kinds_test
}  // namespace magister
