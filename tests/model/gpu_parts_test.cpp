// Parts of decoder layers, each alone in a small model: the GPU's code on the host gives the logits of the CPU's
// passes, whole and token by token, over 1 to 3 shards. Families have several of these parts at once.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "magister/core/error.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace gpu_parts_test {

struct Part {
  const char* name;
  std::function<void(ModelConfig&)> add;
};

void layer_norms(ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = true;
}
void parallel_norms(ModelConfig& config) {
  layer_norms(config);
  config.parallel_residual = config.parallel_norms = true;
}
void learned_positions(ModelConfig& config) {
  config.learned_positions = true;
  config.max_position_embeddings = 20;
  config.skipped_position_rows = 2;
  config.layer_has_rope.assign(3, false);
}
void query_factors(ModelConfig& config) {
  config.query_scale_beta = 0.6;
  config.query_scale_positions = 3;
  config.query_scale_shift = 1;
}
void layer_norms_of_heads(ModelConfig& config) { config.qk_norm = config.qk_layer_norm = true; }
void biases(ModelConfig& config) { config.qkv_bias = config.o_bias = config.mlp_bias = config.head_bias = true; }

const Part kParts[] = {
    {"norms with biases", layer_norms},
    {"separate norms of parallel blocks", parallel_norms},
    {"one norm with a bias of parallel blocks",
     [](ModelConfig& config) {
       layer_norms(config);
       config.parallel_residual = true;
     }},
    {"separate RMS norms of parallel blocks",
     [](ModelConfig& config) { config.parallel_residual = config.parallel_norms = true; }},
    {"learned positions", learned_positions},
    {"biases", biases},
    {"an RMS norm of the embeddings", [](ModelConfig& config) { config.embedding_norm = true; }},
    {"a layer norm of the embeddings",
     [](ModelConfig& config) {
       layer_norms(config);
       config.embedding_norm = true;
     }},
    {"norms after the rotation", [](ModelConfig& config) { config.qk_norm = config.qk_norm_after_rope = true; }},
    {"norms without weights, in layers that rotate",
     [](ModelConfig& config) {
       config.qk_l2_norm = true;
       config.layer_has_rope = {true, false, true};
     }},
    {"layer norms of heads", layer_norms_of_heads},
    {"a norm of values", [](ModelConfig& config) { config.v_norm = true; }},
    {"a factor of values", [](ModelConfig& config) { config.value_scale = 0.7; }},
    {"a factor of queries", query_factors},
    {"a factor of queries in layers without rotation",
     [](ModelConfig& config) {
       query_factors(config);
       config.query_scale_without_rope = true;
       config.layer_has_rope = {true, false, true};
     }},
    {"rotated parts of several sizes",
     [](ModelConfig& config) {
       config.sliding_window = 5;
       config.layer_is_sliding = {true, false, true};
       config.sliding_rope.emplace().theta = 100.0;
       config.rotary_dim = 6;
       config.sliding_rotary_dim = 12;
     }},
    {"MLPs of several widths", [](ModelConfig& config) { config.mlp_widths = {1, 2, 1}; }},
    {"a factor of a layer", [](ModelConfig& config) { config.layer_scalar = true; }},
};

class GpuParts : public testing::Test {
 protected:
  void make(const std::vector<std::function<void(ModelConfig&)>>& parts) {
    description_ = {};
    file_ = {};
    ModelConfig& config = description_.config;
    config.family = "llama";
    config.vocab_size = 101;
    config.hidden_size = 96;
    config.intermediate_size = 144;
    config.num_hidden_layers = 3;
    config.num_attention_heads = config.num_key_value_heads = 6;
    config.head_dim = 16;
    config.max_position_embeddings = 512;
    config.rms_norm_eps = 1e-3;
    for (const auto& add : parts) add(config);
    description_.names = hf_tensor_names(config);
    for (const ExpectedTensor& tensor : expected_tensors(config, description_.names)) {
      file_.add(tensor.name, tensor.shape);
      at::manual_seed(std::hash<std::string>()(tensor.name));  // a part leaves the other weights as they are
      const bool is_bias = tensor.name.ends_with("bias"), is_vector = tensor.shape.size() == 1;
      const at::Tensor values = is_bias     ? at::randn(tensor.shape) * 0.5
                                : is_vector ? at::rand(tensor.shape) + 0.5
                                            : at::randn(tensor.shape) * 0.15;
      file_.values(tensor.name) = values.to(at::kBFloat16).to(at::kFloat);
    }
  }

  struct Logits {
    at::Tensor whole_TV, decoded_TV;  // decoded: the last tokens one by one, through a cache
  };
  static constexpr std::int64_t kWritten = 4;

  // A pass over two texts, and the same tokens through a cache.
  static Logits logits_of(Transformer& model) {
    const std::vector<std::vector<TokenId>> texts = {{5, 90, 17, 33, 2, 64, 71, 8, 12, 45, 3, 77}, {9, 1, 100, 6, 54}};
    Logits out{model.logits(model.forward(pack_sequences(texts))).clone(), {}};
    KvCache cache = model.make_cache(4);
    const std::vector<std::vector<std::int32_t>> pages = {{2}, {1}};
    std::vector<at::Tensor> of_text(2);
    for (std::int64_t step = 0; step <= kWritten; ++step) {
      std::vector<std::vector<TokenId>> tokens;
      std::vector<std::int64_t> past;
      for (const auto& text : texts) {
        const std::int64_t first = static_cast<std::int64_t>(text.size()) - kWritten;
        past.push_back(step == 0 ? 0 : first + step - 1);
        tokens.emplace_back(text.begin() + past.back(), text.begin() + first + step);
      }
      PackedBatch batch = pack_sequences(tokens, past);
      if (step > 0) batch.is_decode_S.assign(2, 1);
      const at::Tensor rows = model.logits(model.forward(batch, {{pages[0].data(), 0}, {pages[1].data(), 0}}, cache));
      for (std::size_t s = 0; s < 2; ++s) {
        const at::Tensor own = rows.narrow(0, batch.cu_seqlens[s], batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
        of_text[s] = of_text[s].defined() ? at::cat({of_text[s], own}) : own.clone();
      }
    }
    out.decoded_TV = at::cat(of_text);
    return out;
  }

  Logits run(int shards, at::ScalarType dtype, bool gpu_code, const QuantScheme& codes = {}) {
    auto groups = make_thread_process_groups(shards);
    std::vector<Logits> of_shard(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        ThreadPool pool(1);
        Transformer model = gpu_code ? Transformer(description_, file_, *groups[s], pool, dtype, codes, gpu::Queue{})
                                     : Transformer(description_, file_, *groups[s], pool, dtype, codes);
        model.self_test();
        of_shard[s] = logits_of(model);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<at::Tensor> whole, decoded;
    for (const Logits& logits : of_shard) {
      whole.push_back(logits.whole_TV);
      decoded.push_back(logits.decoded_TV);
    }
    return {at::cat(whole, 1), at::cat(decoded, 1)};
  }

  // Relative distances of both passes from those of a CPU.
  void expect_near(const Logits& got, const Logits& wanted, double limit, int shards) {
    const double whole = apart(got.whole_TV, wanted.whole_TV), decoded = apart(got.decoded_TV, wanted.decoded_TV);
    EXPECT_LE(whole, limit) << shards << " shards";
    EXPECT_LE(decoded, limit) << shards << " shards";
  }

  ModelDescription description_;
  MemoryTensorFile file_;
};

TEST_F(GpuParts, GiveTheLogitsOfCpus) {
  make({});
  const at::Tensor without = run(1, at::kFloat, false).whole_TV;
  for (const Part& part : kParts) {
    SCOPED_TRACE(part.name);
    make({part.add});
    const Logits wanted = run(1, at::kFloat, false);
    EXPECT_GT(apart(wanted.whole_TV, without), 0.05) << "the part must matter";
    for (const int shards : {1, 2, 3}) expect_near(run(shards, at::kFloat, true), wanted, 1e-5, shards);
    for (const int shards : {1, 2}) expect_near(run(shards, at::kBFloat16, true), wanted, 0.03, shards);
  }
}

// All that suit each other, with weights as codes, and in 8-bit floats.
TEST_F(GpuParts, GoTogether) {
  make({parallel_norms, learned_positions, biases, query_factors, layer_norms_of_heads, [](ModelConfig& config) {
          config.embedding_norm = config.v_norm = config.layer_scalar = true;
          config.value_scale = 0.7;
        }});
  const Logits wanted = run(1, at::kFloat, false);
  for (const int shards : {1, 2, 3}) expect_near(run(shards, at::kFloat, true), wanted, 1e-5, shards);
  expect_near(run(2, at::kFloat8_e4m3fn, true), wanted, 0.1, 2);
  const QuantScheme codes{QuantType::kInt8, 32};
  const Logits of_codes = run(1, at::kFloat, false, codes);
  for (const int shards : {1, 3}) expect_near(run(shards, at::kFloat, true, codes), of_codes, 2e-4, shards);
  expect_near(run(1, at::kBFloat16, true, codes), of_codes, 0.03, 1);
}

// A product whose sizes are not multiples of 16 stays as it is, while the other one that reads the same norm becomes
// one of 8-bit floats: first the product of gate and up stays, then that of queries, keys and values.
TEST_F(GpuParts, ParallelBlocksShareANormOfWhichOneProductIsInEightBits) {
  for (const bool attention : {false, true}) {
    make({[attention](ModelConfig& config) {
      config.parallel_residual = true;
      (attention ? config.head_dim : config.intermediate_size) = attention ? 12 : 148;
    }});
    expect_near(run(1, at::kFloat8_e4m3fn, true), run(1, at::kFloat, false), 0.3, 1);
  }
}

TEST_F(GpuParts, RefuseATextThatIsLongerThanTheLearnedPositions) {
  make({learned_positions});
  auto groups = make_thread_process_groups(1);
  ThreadPool pool(1);
  Transformer model(description_, file_, *groups[0], pool, at::kFloat, {}, gpu::Queue{});
  EXPECT_NO_THROW(model.forward(pack_sequences({std::vector<TokenId>(20, 3)})));
  EXPECT_THROW(model.forward(pack_sequences({std::vector<TokenId>(21, 3)})), Error);
}

}  // namespace gpu_parts_test
}  // namespace magister
