// MLPs and experts of every kind in passes of the GPU's code on the host: an MLP's function against ATen's, and whole
// models, which have nothing else than Llama, against the passes of CPUs.
#include "model/gpu/gpu_mlp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <limits>
#include <ostream>
#include <thread>

#include "magister/model/plain_activation.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace gpu_mlp_test {

// [T, 2F] or [T, F] -> [T, F], by the rule of ModelConfig.
at::Tensor plain(const gpu::MlpFunction& function, const at::Tensor& up_TN) {
  if (function.xielu) {
    const at::Tensor &x = up_TN, half = x * 0.5;
    return at::where(x > 0, x.square() * function.alpha_p + half,
                     (at::expm1(x.clamp_max(-1e-6)) - x) * function.alpha_n + half);
  }
  if (!function.gated) return activated(up_TN, function.activation);
  const auto halves = up_TN.chunk(2, 1);
  if (const double limit = function.swiglu_limit; limit > 0) {
    const at::Tensor gate = halves[0].clamp_max(limit), up = halves[1].clamp(-limit, limit);
    return gate * at::sigmoid(gate * function.swiglu_alpha) * (up + 1);
  }
  return activated(halves[0], function.activation) * halves[1];
}

std::vector<gpu::MlpFunction> functions() {
  std::vector<gpu::MlpFunction> all = {{.gated = false, .xielu = true, .alpha_p = 0.8f, .alpha_n = 0.7f},
                                       {.swiglu_alpha = 1.7f, .swiglu_limit = 2.0f}};
  for (int i = 0; i < kNumActivations; ++i) {
    for (const bool gated : {false, true}) all.push_back({.activation = static_cast<Activation>(i), .gated = gated});
  }
  return all;
}

TEST(GpuMlp, FunctionsAreThoseOfAten) {
  at::manual_seed(7);
  constexpr std::int64_t T = 3;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const gpu::MlpFunction& function : functions()) {
      for (const std::int64_t F : {2104, 21}) {  // two blocks a row, the second short; number by number
        at::Tensor up_TN = (at::randn({T, function.gated ? 2 * F : F}) * 3).to(type);
        up_TN[1].narrow(0, 0, 9).mul_(30);
        up_TN[2][0] = std::numeric_limits<float>::quiet_NaN();
        const gpu::ProductRows out{at::empty({T, F}, type)};
        gpu::activate(function, up_TN, out, gpu::Queue{});
        const at::Tensor wanted_TF = plain(function, up_TN.to(at::kFloat));
        const double limit = type == at::kFloat ? 4e-6 : 4e-3;
        EXPECT_TRUE(at::allclose(out.x_MK.to(at::kFloat), wanted_TF, limit, limit, /*equal_nan=*/true))
            << F << ": activation " << static_cast<int>(function.activation) << (function.gated ? " with a gate" : "")
            << (function.xielu ? ", xIELU" : "");
      }
    }
  }
}

using Change = std::function<void(ModelConfig&)>;
struct Block {
  const char* name;
  Change change;
};
std::ostream& operator<<(std::ostream& out, const Block& block) { return out << block.name; }

void add_experts(ModelConfig& config) {
  config.num_experts = 6;
  config.num_experts_per_tok = 3;
  config.moe_intermediate_size = 40;
}

std::vector<Block> blocks() {
  const auto without_gate = [](Activation activation) -> Change {
    return [activation](ModelConfig& config) {
      config.gated_mlp = false;
      config.activation = activation;
      config.mlp_bias = true;
    };
  };
  const auto with_experts = [](const Change& more) -> Change {
    return [more](ModelConfig& config) {
      add_experts(config);
      more(config);
    };
  };
  using Scores = RouterConfig::Scores;
  return {
      {"relu2", without_gate(Activation::kRelu2)},
      {"relu", without_gate(Activation::kRelu)},
      {"gelu", without_gate(Activation::kGelu)},
      {"gelu_tanh_parallel",
       [](ModelConfig& config) {
         config.gated_mlp = false;
         config.activation = Activation::kGeluTanh;
         config.parallel_residual = true;
         config.norm_kind = NormKind::kLayer;
       }},
      {"gelu_with_gate", [](ModelConfig& config) { config.activation = Activation::kGelu; }},
      {"xielu",
       [](ModelConfig& config) {
         config.gated_mlp = false;
         config.xielu = true;
       }},
      {"groups_and_shared", with_experts([](ModelConfig& config) {
         config.layer_is_sparse = {false, true, true};
         config.norm_topk_prob = true;
         config.num_shared_experts = 2;
         config.router = {.scores = Scores::kSigmoid,
                          .choice_bias = true,
                          .groups = 3,
                          .chosen_groups = 2,
                          .scaling = 1.7,
                          .least_sum = 1e-20};
       })},
      {"shared_with_gate", with_experts([](ModelConfig& config) {
         config.num_shared_experts = 1;
         config.shared_expert_gate = true;
         config.shared_intermediate_size = 56;
       })},
      {"limits_and_biases", with_experts([](ModelConfig& config) {
         config.expert_bias = true;
         config.norm_topk_prob = true;
         config.swiglu_alpha = 1.702;
         config.swiglu_limit = 1.0;
       })},
      {"weights_of_inputs", with_experts([](ModelConfig& config) {
         config.num_shared_experts = 1;
         config.router = {.scores = Scores::kSigmoid, .weighs_inputs = true};
       })},
      {"sparse_mixer", with_experts([](ModelConfig& config) {
         config.num_experts_per_tok = 2;
         config.router = {.scores = Scores::kSparseMixer, .margin = 0.01};
       })},
      {"parallel_experts", with_experts([](ModelConfig& config) {
         config.parallel_residual = true;
         config.layer_is_sparse = {false, true, true};
         config.num_shared_experts = 1;
         config.router = {.scores = Scores::kSigmoid, .scaling = 0.5, .shared_weight = 0.5};
       })},
      {"mlp_beside_experts", with_experts([](ModelConfig& config) {
         config.dense_beside_experts = true;
         config.norm_topk_prob = true;
         config.norm_placement = NormPlacement::kBoth;
         config.activation = Activation::kGeluTanh;
       })},
      {"norm_of_experts", with_experts([](ModelConfig& config) {
         config.sparse_norm = true;
         config.layer_is_sparse = {true, false, true};
       })},
  };
}

class GpuBlocks : public testing::TestWithParam<Block> {
 protected:
  void SetUp() override {
    at::manual_seed(15);
    ModelConfig& config = description_.config = small_llama();
    config.hidden_size = 96;
    config.intermediate_size = 112;
    config.num_hidden_layers = 3;
    GetParam().change(config);
    description_.names = hf_tensor_names(config);
    add_random_weights(file_, description_, 0.12);
  }

  struct Hidden {
    at::Tensor whole_TD, decoded_RD;  // of a packed prompt; of its last tokens, written one after the other
  };
  static constexpr std::int64_t kPrompt = 12, kWritten = 3;
  Hidden run(int shards, at::ScalarType dtype, bool gpu_code, const QuantScheme& scheme = {}) {
    auto groups = make_thread_process_groups(shards);
    std::vector<Hidden> of_shard(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        ThreadPool pool(1);
        Transformer model = gpu_code ? Transformer(description_, file_, *groups[s], pool, dtype, scheme, gpu::Queue{})
                                     : Transformer(description_, file_, *groups[s], pool, dtype, scheme);
        model.self_test();
        // Two sequences: a pass of several shards works in two halves.
        of_shard[s].whole_TD = model.forward(pack_sequences({prompt_, other_})).to(at::kFloat).clone();
        if (!gpu_code) return;
        KvCache cache = model.make_cache(2);
        const std::vector<std::int32_t> pages = {1};
        std::vector<at::Tensor> rows;
        for (std::int64_t past = 0, end = kPrompt - kWritten; end <= kPrompt; past = end++) {
          PackedBatch batch = pack_sequences({{prompt_.begin() + past, prompt_.begin() + end}}, {past});
          batch.is_decode_S = {past > 0};
          const at::Tensor hidden_TD = model.forward(batch, {{pages.data(), 0}}, cache).to(at::kFloat).clone();
          if (past > 0) rows.push_back(hidden_TD);
        }
        of_shard[s].decoded_RD = at::cat(rows);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return of_shard[0];
  }

  // Relative distance of the row in the middle: in bf16 few rows have other experts than in f32.
  static double apart(const at::Tensor& got_TD, const at::Tensor& wanted_TD) {
    return ((got_TD - wanted_TD).norm(2, 1) / wanted_TD.norm(2, 1)).median().item<double>();
  }
  // The larger distance of both.
  static double apart(const Hidden& got, const at::Tensor& wanted_TD) {
    return std::max(apart(got.whole_TD, wanted_TD),
                    apart(got.decoded_RD, wanted_TD.narrow(0, kPrompt - kWritten, kWritten)));
  }
  // The largest of any number, relative to the largest number.
  static double most_apart(const Hidden& got, const at::Tensor& wanted_TD) {
    const auto most = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a - b).abs().max() / b.abs().max()).item<double>();
    };
    return std::max(most(got.whole_TD, wanted_TD),
                    most(got.decoded_RD, wanted_TD.narrow(0, kPrompt - kWritten, kWritten)));
  }

  ModelDescription description_;
  MemoryTensorFile file_;
  const std::vector<TokenId> prompt_ = {5, 90, 17, 33, 2, 64, 71, 8, 12, 45, 3, 77}, other_ = {81, 6, 28, 50};
};

TEST_P(GpuBlocks, PassesAreThoseOfCpus) {
  const at::Tensor wanted_TD = run(1, at::kFloat, false).whole_TD;
  for (const int shards : {1, 2, 3}) EXPECT_LT(most_apart(run(shards, at::kFloat, true), wanted_TD), 1e-5) << shards;
  const double one = apart(run(1, at::kBFloat16, true), wanted_TD), two = apart(run(2, at::kBFloat16, true), wanted_TD),
               fp8 = apart(run(1, at::kFloat8_e4m3fn, true), wanted_TD);
  const QuantScheme scheme{QuantType::kInt8, 32};
  const double codes = most_apart(run(1, at::kFloat, true, scheme), run(1, at::kFloat, false, scheme).whole_TD);
  std::printf("%s in bf16: %.2e, %.2e on two shards; fp8: %.2e; codes: %.2e\n", GetParam().name, one, two, fp8, codes);
  EXPECT_LT(std::max(one, two), 0.1);
  EXPECT_LT(fp8, 0.5);
  EXPECT_LT(codes, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuBlocks, testing::ValuesIn(blocks()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace gpu_mlp_test
}  // namespace magister
