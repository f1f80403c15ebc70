// AltUp, Laurel, vectors by layer and sparse gates in the GPU's code on the host: each kernel against the plain code of
// CPUs, and a small model with all of them against a CPU's passes, over shards and with a cache.
#include "model/gpu/gpu_stream.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "magister/device/host_block.h"
#include "magister/model/transformer.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/altup.h"
#include "model/cpu/per_layer_inputs.h"
#include "model/families/family.h"
#include "model/gpu/altup_end_kernels.h"
#include "model/gpu/altup_kernels.h"
#include "model/gpu/gpu_backend.h"
#include "model/gpu/per_layer_kernels.h"
#include "model/memory_tensor_file.h"
#include "model/planned_pass.h"

namespace magister::gpu {
namespace gpu_stream_test {

constexpr float kEps = 1e-6f;
constexpr std::int64_t kTokens = 5;

double apart(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found.to(at::kFloat) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

const float* of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }

struct Sizes {
  std::int64_t A, D, active;
  bool scales;
};

AltUp altup_of(const Sizes& sizes) {
  const auto [A, D, active, scales] = sizes;
  AltUp altup;
  altup.inputs = A;
  altup.active = active;
  altup.router = {at::randn({A, D}) * std::sqrt(static_cast<double>(D)), {}};
  altup.router_norm_D = (at::rand({D}) + 0.5) / static_cast<double>(D);
  altup.prediction_AAA = at::randn({A * A, A}) * 0.3;
  altup.correction_AA = at::randn({A, A}) * 0.3;
  if (scales) altup.scale_D = at::rand({D}) + 0.5;
  return altup;
}

AltUpStep step_of(const AltUp& altup, const at::Tensor& coefficients, std::int64_t D) {
  return {of(altup.router.weight_NK), of(altup.router_norm_D), of(coefficients), altup.inputs, D, altup.active, kEps};
}

class GpuStream : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    set_host_order(GetParam());
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
INSTANTIATE_TEST_SUITE_P(Orders, GpuStream, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

TEST_P(GpuStream, PredictsAndCorrects) {
  for (const Sizes& sizes : {Sizes{4, 2048, 0, true}, {3, 72, 2, true}, {2, 37, 1, false}, {1, 16, 0, false}}) {
    const std::int64_t D = sizes.D;
    const AltUp altup = altup_of(sizes);
    at::Tensor streams_TAD = at::randn({kTokens, sizes.A, D}) * 2, hidden_TD = at::empty({kTokens, D}),
               read_TD = at::empty({kTokens, D});
    const at::Tensor predicted_TAD = altup.plain_predict(streams_TAD, kEps), delta_TD = at::randn({kTokens, D});
    const PredictStream predict{step_of(altup, altup.prediction_AAA, D), streams_TAD.data_ptr<float>(),
                                hidden_TD.data_ptr<float>()};
    launch(predict, predict.shape(kTokens), Queue{});
    EXPECT_LT(apart(streams_TAD, predicted_TAD), 3e-6) << D;
    EXPECT_TRUE(at::equal(hidden_TD, streams_TAD.select(1, sizes.active)));
    const at::Tensor corrected_TAD = altup.plain_correct(streams_TAD, hidden_TD + delta_TD, kEps);
    const CorrectStream<float> correct{
        step_of(altup, altup.correction_AA, D), of(hidden_TD),     of(delta_TD),
        streams_TAD.data_ptr<float>(),          of(altup.scale_D), read_TD.data_ptr<float>()};
    launch(correct, correct.shape(kTokens), Queue{});
    EXPECT_LT(apart(streams_TAD, corrected_TAD), 3e-6) << D;
    EXPECT_LT(apart(read_TD, altup.plain_scaled(corrected_TAD.select(1, sizes.active))), 3e-6) << D;
  }
}

TEST_P(GpuStream, SpreadsAndJoins) {
  for (const Sizes& sizes : {Sizes{4, 2048, 0, false}, {3, 37, 0, false}}) {
    const std::int64_t A = sizes.A, D = sizes.D;
    AltUpEnds ends;
    for (std::int64_t a = 1; a < A; ++a) {
      ends.projections.push_back({at::randn({D, D}), {}});
      ends.unembeddings.push_back({at::randn({D, D}), {}});
    }
    at::Tensor hidden_TD = at::randn({kTokens, D}) * 3, streams_TAD = at::empty({kTokens, A, D});
    hidden_TD[1].fill_(1e-4);  // its products' mean squares are below the least
    std::vector<at::Tensor> products;
    for (const Linear& one : ends.projections) products.push_back(at::mm(hidden_TD, one.weight_NK.t()));
    const at::Tensor product_TX = at::cat(products, 1);
    SpreadStream<float> spread{{{}, (A - 1) * D, A, D}, of(hidden_TD), streams_TAD.data_ptr<float>()};
    for (std::int64_t a = 1; a < A; ++a) spread.ends.products[a - 1] = of(product_TX) + (a - 1) * D;
    launch(spread, spread.shape(kTokens), Queue{});
    const at::Tensor wanted_TAD = ends.plain_spread(hidden_TD);
    EXPECT_LT(apart(streams_TAD, wanted_TAD), 3e-6) << D;
    EXPECT_LT(apart(streams_TAD[1], wanted_TAD[1]), 3e-6) << D;
    streams_TAD.mul_(at::rand_like(streams_TAD) + 0.5);
    JoinStream<float> join{{{}, D, A, D}, of(streams_TAD), hidden_TD.data_ptr<float>()};
    products.clear();
    for (std::int64_t a = 1; a < A; ++a)
      products.push_back(
          at::mm(streams_TAD.select(1, a), ends.unembeddings[static_cast<std::size_t>(a - 1)].weight_NK.t()));
    for (std::size_t i = 0; i < products.size(); ++i) join.ends.products[i] = of(products[i]);
    launch(join, join.shape(kTokens), Queue{});
    EXPECT_LT(apart(hidden_TD, ends.plain_join(streams_TAD)), 3e-6) << D;
  }
}

TEST_P(GpuStream, AddsLaurel) {
  for (const std::int64_t D : {2048, 37}) {
    const Laurel laurel{{at::randn({10, D}) * 0.1, {}}, {at::randn({D, 10}), {}}, at::rand({D}) + 0.5};
    const at::Tensor norm_D = at::rand({D}) + 0.5;
    at::Tensor hidden_TD = at::randn({kTokens, D}) * 2;
    const BlockNorms norms{norm_D, {}};
    const at::Tensor wanted_TD = hidden_TD + laurel.reference(norms, hidden_TD, kEps);
    const at::Tensor normed_TD = norm_D * hidden_TD * at::rsqrt(hidden_TD.square().mean(-1, true) + kEps),
                     product_TD = at::mm(at::mm(normed_TD, laurel.left.weight_NK.t()), laurel.right.weight_NK.t());
    const AddLaurel<float> kernel{hidden_TD.data_ptr<float>(), of(product_TD), of(norm_D), of(laurel.norm_D), D, kEps};
    launch(kernel, kernel.shape(kTokens), Queue{});
    EXPECT_LT(apart(hidden_TD, wanted_TD), 3e-6) << D;
  }
}

// Parts of two shards, which add up to the vectors: the first has the projection, and each some rows of the table.
TEST_P(GpuStream, MakesVectorsByLayer) {
  for (const std::int64_t P : {256, 12}) {
    const std::int64_t N = 10, D = 32, rows = 40;
    const at::Tensor hidden_TD = at::randn({kTokens, D}), table_vX = at::randn({rows, N * P});
    PackedBatch batch = pack_sequences({{3, 39, 0, 57, 20}});  // 57 takes row 0
    PerLayerInputs plain{N, P, {table_vX, {}}, {0, rows}, rows, 3.5f, {at::randn({N * P, D}), {}}, at::rand({P}) + 0.5};
    at::Tensor product_TX = at::mm(hidden_TD, plain.projection.weight_NK.t()), sum_TX = at::zeros({kTokens, N * P});
    for (const std::int64_t first : {0, 17}) {
      const std::int64_t end = first == 0 ? 17 : rows;
      at::Tensor part_TX = at::empty({kTokens, N * P});
      const PerLayerVectors<float> kernel{first == 0 ? of(product_TX) : nullptr,
                                          of(plain.norm_P),
                                          of(table_vX) + first * N * P,
                                          batch.token_ids_T.const_data_ptr<std::int32_t>(),
                                          part_TX.data_ptr<float>(),
                                          N,
                                          P,
                                          first,
                                          end,
                                          rows,
                                          1.0f / std::sqrt(static_cast<float>(D)),
                                          plain.table_scale,
                                          kEps};
      launch(kernel, kernel.shape(kTokens), Queue{});
      sum_TX += part_TX;
    }
    EXPECT_LT(apart(sum_TX, plain.reference(hidden_TD, batch, kEps)), 3e-6) << P;
  }
}

TEST_P(GpuStream, AddsTheProductOfAVector) {
  for (const auto& [P, D] : std::vector<std::pair<std::int64_t, std::int64_t>>{{256, 2048}, {12, 37}}) {
    const LayerTail tail{
        {at::randn({P, D}) * 0.1, {}}, {at::randn({D, P}), {}}, at::rand({D}) + 0.5, 1, Activation::kGeluTanh};
    at::Tensor streams_TAD = at::randn({kTokens, 3, D}), active_TP = at::empty({kTokens, P});
    const at::Tensor vectors_TX = at::randn({kTokens, 4 * P}), read_TD = streams_TAD.select(1, 0).contiguous();
    const at::Tensor addend_TD = tail.reference(read_TD, vectors_TX.narrow(1, 2 * P, P), kEps);
    const at::Tensor wanted_TAD = (streams_TAD + addend_TD.unsqueeze(1) * at::tensor({0.f, 1.f, 1.f}).view({1, 3, 1})) *
                                  at::tensor({1.f, 0.3f, 0.3f}).view({1, 3, 1});
    const at::Tensor gate_TP = at::mm(read_TD, tail.gate.weight_NK.t());
    const GateVectors<float> gates{of(gate_TP), of(vectors_TX) + 2 * P, active_TP.data_ptr<float>(), kTokens, P,
                                   4 * P,       tail.activation};
    start(gates, Queue{});
    const at::Tensor product_TD = at::mm(active_TP, tail.output.weight_NK.t());
    const AddNormed<float> sum{
        of(product_TD), of(tail.norm_D), streams_TAD.data_ptr<float>() + D, D, 2, 3 * D, kEps, 0.3f};
    launch(sum, sum.shape(kTokens), Queue{});
    EXPECT_LT(apart(streams_TAD, wanted_TAD), 1e-5) << D;
  }
}

// Gates of two shards, whose mean and deviation are over both.
TEST_P(GpuStream, PassesFewGates) {
  for (const std::int64_t F : {4096, 37}) {
    at::Tensor gate_up_STF2 = at::randn({2, kTokens, 2 * F}) * 2 + 5, sums_T2 = at::zeros({kTokens, 2}, at::kDouble);
    gate_up_STF2[0][4][3] = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t s = 0; s < 2; ++s) {
      at::Tensor part_T2 = at::empty({kTokens, 2}, at::kDouble);
      const SumGates<float> kernel{of(gate_up_STF2[s]), part_T2.data_ptr<double>(), F};
      launch(kernel, kernel.shape(kTokens), Queue{});
      sums_T2 += part_T2;
    }
    const at::Tensor gates_TX = gate_up_STF2.narrow(2, 0, F).transpose(0, 1).flatten(1);
    const at::Tensor limit_T1 =
        gates_TX.mean(1, true) + at::std(gates_TX, at::IntArrayRef{1}, /*unbiased=*/false, /*keepdim=*/true) * 0.7;
    for (std::int64_t s = 0; s < 2; ++s) {
      at::Tensor out_TF = at::empty({kTokens, F});
      const SparseGate<float> kernel{of(gate_up_STF2[s]),        sums_T2.const_data_ptr<double>(),
                                     out_TF.data_ptr<float>(),   F,
                                     static_cast<double>(2 * F), 0.7,
                                     Activation::kGeluTanh};
      launch(kernel, kernel.shape(kTokens), Queue{});
      const at::Tensor wanted_TF =
          at::gelu(at::relu(gate_up_STF2[s].narrow(1, 0, F) - limit_T1), "tanh") * gate_up_STF2[s].narrow(1, F, F);
      EXPECT_LT(apart(out_TF.narrow(0, 0, 4), wanted_TF.narrow(0, 0, 4)), 1e-5) << F;
      EXPECT_GT((out_TF.narrow(0, 0, 4) == 0).to(at::kFloat).mean().item<double>(), 0.6);
      EXPECT_TRUE(at::isnan(out_TF[4]).all().item<bool>());
    }
  }
}

// Gemma 3n whose attention is one that GPUs compute in any case: no norm of values, no shared keys.
ModelDescription description_of(std::int64_t columns, std::int64_t active) {
  const nlohmann::json config = {{"architectures", {"Gemma3nForCausalLM"}},
                                 {"model_type", "gemma3n_text"},
                                 {"vocab_size", 96},
                                 {"vocab_size_per_layer_input", 80},
                                 {"hidden_size", 48},
                                 {"intermediate_size", columns},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 6},
                                 {"num_key_value_heads", 3},
                                 {"head_dim", 16},
                                 {"max_position_embeddings", 128},
                                 {"num_kv_shared_layers", 0},
                                 {"hidden_size_per_layer_input", 12},
                                 {"laurel_rank", 10},
                                 {"altup_num_inputs", 3},
                                 {"altup_active_idx", active},
                                 {"activation_sparsity_pattern", {0.8, 0.0, 0.5}},
                                 {"sliding_window", 8},
                                 {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}};
  const auto folder = std::filesystem::temp_directory_path() / ("gpu_stream_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump();
  ModelDescription description = describe_config((folder / "config.json").string());
  std::filesystem::remove_all(folder);
  description.config.v_norm = false;
  return description;
}

// Weights whose logits vary; equal in f32 and bf16.
void fill(MemoryTensorFile& file, const ModelDescription& description) {
  for (const ExpectedTensor& tensor : expected_tensors(description.config, description.names)) {
    file.add(tensor.name, tensor.shape);
    const double inputs = static_cast<double>(tensor.shape.back());
    at::Tensor values = at::randn(tensor.shape) / std::sqrt(inputs);
    if (tensor.shape.size() == 1) values = at::rand(tensor.shape) + 0.5;
    if (tensor.name.find("modality_router") != std::string::npos) values *= inputs;
    if (tensor.name.find("_coefs") != std::string::npos) values *= 0.3;
    file.values(tensor.name) = values.to(at::kBFloat16).to(at::kFloat);
  }
}

constexpr std::int64_t kWritten = 3;

struct Hidden {
  at::Tensor whole_TD, written_RD;  // of a prompt and a longer one in a batch, and of the prompt's last rows
};

Hidden run(const ModelDescription& description, const TensorFile& file, int shards, at::ScalarType dtype, bool gpu) {
  const std::vector<TokenId> prompt = {5, 90, 17, 33, 2, 64, 71, 8, 12, 45, 3, 77, 81}, other = {9, 85, 4};
  auto groups = make_thread_process_groups(shards);
  std::vector<Hidden> of_shard(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    threads.emplace_back([&, s] {
      ThreadPool pool(1);
      Transformer model = gpu ? Transformer(description, file, *groups[s], pool, dtype, {}, Queue{})
                              : Transformer(description, file, *groups[s], pool, dtype);
      model.self_test();
      of_shard[s].whole_TD = model.forward(pack_sequences({prompt, other})).to(at::kFloat).clone();
      KvCache cache = model.make_cache(4);
      const std::vector<std::int32_t> pages = {2, 1};
      std::vector<at::Tensor> rows;
      const auto size = static_cast<std::int64_t>(prompt.size());
      for (std::int64_t past = 0; past < size; past = past == 0 ? size - kWritten : past + 1) {
        const std::int64_t end = past == 0 ? size - kWritten : past + 1;
        PackedBatch batch = pack_sequences({{prompt.begin() + past, prompt.begin() + end}}, {past});
        batch.is_decode_S = {past > 0};
        rows.push_back(model.forward(batch, {{pages.data(), 0}}, cache).to(at::kFloat).clone());
      }
      of_shard[s].written_RD = at::cat(rows).narrow(0, size - kWritten, kWritten);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return of_shard[0];
}

TEST(GpuStreamOfAModel, IsThatOfCpus) {
  for (const auto& [columns, active] : std::vector<std::pair<std::int64_t, std::int64_t>>{{96, 0}, {111, 1}}) {
    at::manual_seed(5);
    const ModelDescription description = description_of(columns, active);
    MemoryTensorFile file;
    fill(file, description);
    const Hidden wanted = run(description, file, 1, at::kFloat, false);
    EXPECT_LT(apart(wanted.written_RD, wanted.whole_TD.narrow(0, 13 - kWritten, kWritten)), 1e-5);
    double in_bf16 = 0;
    for (const int shards : {1, 2, 3}) {
      const Hidden found = run(description, file, shards, at::kFloat, true);
      EXPECT_LT(apart(found.whole_TD, wanted.whole_TD), 3e-6) << shards;
      EXPECT_LT(apart(found.written_RD, wanted.written_RD), 3e-6) << shards;
      const Hidden rounded = run(description, file, shards, at::kBFloat16, true);
      for (const double distance :
           {apart(rounded.whole_TD, wanted.whole_TD), apart(rounded.written_RD, wanted.written_RD)})
        in_bf16 = std::max(in_bf16, distance);
      std::printf("%d shards: f32 %.1e, bf16 %.1e\n", shards, apart(found.whole_TD, wanted.whole_TD), in_bf16);
    }
    EXPECT_LT(in_bf16, 5e-2);
  }
}

TEST(GpuStreamOfAModel, TakesNoMoreMemoryThanItsPlan) {
  const ModelConfig config = description_of(384, 0).config;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    // From 512 tokens on, products on the host have one size of tiles.
    const double use = use_of_a_tokens_plan(config, dtype, {256, 768});
    EXPECT_GE(use, 0.5);
    EXPECT_LE(use, 1.0);
  }
}

}  // namespace gpu_stream_test
}  // namespace magister::gpu
