// Small models of random weights on the GPU against the CPU's code in f32: complete passes, passes through a cache
// token by token, quantised weights, and the same bits in every repetition.
#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/upload.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/cpu/quantize.h"
#include "magister/model/transformer.h"
#include "model/gpu/gpu_linear.h"
#include "model/random_tensor_file.h"

namespace magister {
namespace {

// The features that layers can have: grouped heads, norms of q and k, biases, a sliding window; no size is a multiple
// of a tile.
ModelDescription small_model(const std::string& kind) {
  ModelDescription description;
  ModelConfig& config = description.config;
  config.family = kind == "qwen3" ? "qwen3" : "llama";
  config.vocab_size = 1003;
  config.hidden_size = 320;
  config.intermediate_size = 608;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 10;
  config.num_key_value_heads = 2;
  config.head_dim = 64;
  config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-5;
  config.qk_norm = kind == "qwen3";
  config.qkv_bias = kind == "biased";
  config.sliding_window = kind == "window" ? 70 : 0;
  config.tie_word_embeddings = kind == "qwen3";
  description.names = hf_tensor_names(config);
  return description;
}

std::vector<std::vector<TokenId>> texts() {
  std::vector<std::vector<TokenId>> sequences;
  for (const int length : {1, 17, 129, 200, 64}) {
    sequences.emplace_back();
    for (int i = 0; i < length; ++i) sequences.back().push_back((i * 389 + length * 31 + 7) % 1003);
  }
  return sequences;
}

// Approximate deviation of the logits: small enough to keep bf16's error (0.09 at most of 400,000 with a deviation of
// 1) within the limit, and large enough that a wrong row fails.
constexpr float kGain = 0.5f;

struct Model {
  std::unique_ptr<ProcessGroup> group = make_single_process_group();
  ThreadPool pool{2};
  RandomTensorFile file;
  Transformer transformer;

  // Without a queue: on the CPU.
  Model(const ModelDescription& description, at::ScalarType dtype, const QuantScheme& scheme, const gpu::Queue* queue)
      : file(description, kGain),
        transformer(queue == nullptr ? Transformer(description, file, *group, pool, dtype, scheme)
                                     : Transformer(description, file, *group, pool, dtype, scheme, *queue)) {}

  at::Tensor logprobs(const at::Tensor& hidden_TD) { return at::log_softmax(transformer.logits(hidden_TD).cpu(), -1); }
  at::Tensor whole() { return logprobs(transformer.forward(pack_sequences(texts()))); }
};

Model on_gpu(const ModelDescription& description, at::ScalarType dtype, const QuantScheme& scheme = {}) {
  const gpu::Queue queue = gpu::gpu_queue();
  return Model(description, dtype, scheme, &queue);
}

// The CPU's f32 result of a kind, computed once.
const at::Tensor& reference(const std::string& kind, const QuantScheme& scheme = {}) {
  static std::map<std::string, at::Tensor> known;
  at::Tensor& found = known[kind + std::to_string(static_cast<int>(scheme.type)) + "/" + std::to_string(scheme.group)];
  if (!found.defined()) found = Model(small_model(kind), at::kFloat, scheme, nullptr).whole();
  return found;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

double limit_of(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-3 : 0.05; }

using Kind = std::tuple<std::string, at::ScalarType>;
class GpuPasses : public testing::TestWithParam<Kind> {
 protected:
  std::string kind() const { return std::get<0>(GetParam()); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(GpuPasses, SelfTestPasses) { on_gpu(small_model(kind()), dtype()).transformer.self_test(); }

TEST_P(GpuPasses, WholePassesAreTheCpusAndRepeat) {
  Model model = on_gpu(small_model(kind()), dtype());
  const at::Tensor first = model.whole();
  const double difference = largest_difference(first, reference(kind()));
  const char* type = dtype() == at::kFloat ? "f32" : "bf16";
  std::printf("   %s %s: largest difference of a log-probability %.2g\n", kind().c_str(), type, difference);
  EXPECT_LE(difference, limit_of(dtype()));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(model.whole(), first)) << "repetition " << i;
}

// So a unit may be computed in halves where memory runs out, and as whole where it does not.
void expect_texts_alone_have_equal_bits(Model& model) {
  const at::Tensor all_TD = model.transformer.forward(pack_sequences(texts()));
  std::int64_t row = 0;
  for (const std::vector<TokenId>& text : texts()) {
    const auto length = static_cast<std::int64_t>(text.size());
    EXPECT_TRUE(at::equal(model.transformer.forward(pack_sequences({text})), all_TD.narrow(0, row, length)))
        << length << " tokens";
    row += length;
  }
}

TEST_P(GpuPasses, TextsHaveTheBitsThatTheyHaveAlone) {
  Model model = on_gpu(small_model(kind()), dtype());
  expect_texts_alone_have_equal_bits(model);
}

// All texts at once through one cache: 60 % of each in a first pass, then a token a text and pass, then what is left.
// given: the cache, of at least 16 pages, or a new one. sequences: others than all texts.
at::Tensor through_a_cache(Model& model, KvCache* given = nullptr,
                           const std::vector<std::vector<TokenId>>& sequences = texts()) {
  const std::size_t S = sequences.size();
  std::vector<std::vector<std::int32_t>> pages(S);
  std::vector<std::int64_t> done(S, 0), first_row(S, 0);
  std::int32_t num_pages = 0;
  for (std::size_t s = 0; s < S; ++s) {
    if (s > 0) first_row[s] = first_row[s - 1] + static_cast<std::int64_t>(sequences[s - 1].size());
    for (std::size_t j = 0; j < sequences[s].size(); j += KvPages::kSlots)
      pages[s].insert(pages[s].begin(), num_pages++);
  }
  KvCache own;
  if (given == nullptr) own = model.transformer.make_cache(num_pages);
  KvCache& cache = given == nullptr ? own : *given;
  at::Tensor logprobs_TV = at::full({first_row[S - 1] + static_cast<std::int64_t>(sequences[S - 1].size()), 1003}, NAN);
  for (int pass = 0; pass < 8; ++pass) {
    std::vector<std::vector<TokenId>> parts;
    std::vector<BlockTable> slots;
    std::vector<std::int64_t> past, rows;
    for (std::size_t s = 0; s < S; ++s) {
      const auto length = static_cast<std::int64_t>(sequences[s].size());
      const std::int64_t wanted = pass == 0 ? (length * 6 + 9) / 10 : pass == 7 ? length - done[s] : 1;
      const std::int64_t count = std::min(wanted, length - done[s]);
      if (count == 0) continue;
      parts.emplace_back(sequences[s].begin() + done[s], sequences[s].begin() + done[s] + count);
      slots.push_back({pages[s].data(), 0});
      past.push_back(done[s]);
      for (std::int64_t i = 0; i < count; ++i) rows.push_back(first_row[s] + done[s] + i);
      done[s] += count;
    }
    if (parts.empty()) continue;
    PackedBatch batch = pack_sequences(parts, past);
    batch.is_decode_S.assign(parts.size(),
                             pass > 0 && pass < 7);  // single rows through the decode kernels, and on a GPU as a graph
    const at::Tensor hidden = model.transformer.forward(batch, slots, cache);
    logprobs_TV.index_copy_(0, at::tensor(rows, at::kLong), model.logprobs(hidden));
  }
  return logprobs_TV;
}

TEST_P(GpuPasses, CachedDecodingIsTheWholePass) {
  Model model = on_gpu(small_model(kind()), dtype());
  const at::Tensor cached = through_a_cache(model);
  EXPECT_LE(largest_difference(cached, reference(kind())), limit_of(dtype()));
  EXPECT_LE(largest_difference(cached, model.whole()), limit_of(dtype()));
  EXPECT_TRUE(at::equal(through_a_cache(model), cached)) << "a repetition";
}

INSTANTIATE_TEST_SUITE_P(All, GpuPasses,
                         testing::Combine(testing::Values("llama", "qwen3", "biased", "window"),
                                          testing::Values(at::kFloat, at::kBFloat16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) == at::kFloat ? "_f32" : "_bf16");
                         });

// Against the CPU with the same codes, so that only the arithmetic differs. On the GPU the activations are bf16.
TEST(GpuQuantized, Int8AndInt4AreTheCpus) {
  for (const QuantScheme scheme : {QuantScheme{QuantType::kInt8, 0}, QuantScheme{QuantType::kInt8, 32},
                                   QuantScheme{QuantType::kInt4, 32}, QuantScheme{QuantType::kInt4, 128}}) {
    Model model = on_gpu(small_model("llama"), at::kBFloat16, scheme);
    model.transformer.self_test();
    const at::Tensor whole = model.whole();
    EXPECT_LE(largest_difference(whole, reference("llama", scheme)), 0.05)
        << scheme.bits() << " bits in groups of " << scheme.group;
    EXPECT_TRUE(at::equal(model.whole(), whole));
    EXPECT_LE(largest_difference(through_a_cache(model), reference("llama", scheme)), 0.05)
        << scheme.bits() << " bits, cached";
  }
}

// Products of 8-bit floats: 3 bits of mantissa in weights and activations.
TEST(GpuFp8, IsNearTheCpusF32AndRepeats) {
  Model model = on_gpu(small_model("llama"), at::kFloat8_e4m3fn);
  model.transformer.self_test();
  const at::Tensor whole = model.whole();
  const double difference = largest_difference(whole, reference("llama"));
  std::printf("   llama fp8: largest difference of a log-probability %.2g\n", difference);
  EXPECT_LE(difference, 0.4);
  EXPECT_TRUE(at::equal(model.whole(), whole));
  expect_texts_alone_have_equal_bits(model);
  const at::Tensor cached = through_a_cache(model);
  EXPECT_LE(largest_difference(cached, reference("llama")), 0.4);
  EXPECT_TRUE(at::equal(through_a_cache(model), cached));
}

// The products of an 8B model: prints which tile sizes agree, and tests that a row's bits do not depend on others. The
// host uses a 64th of each size.
TEST(GpuTiles, RowsOfLargeProductsHaveTheirOwnBits) {
  const gpu::Queue queue = gpu::gpu_queue();
  const std::int64_t part = queue.on_host() ? 64 : 1;
  for (const auto& [N, K] : {std::pair{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
    gpu::GpuLinear linear;
    linear.outputs = N / part;
    linear.inputs = K / part;
    const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(device_of(queue));
    linear.weight_NK = at::randn({linear.outputs, linear.inputs}, bf16);
    for (const char* kind : {"bf16", "fp8"}) {
      if (kind[0] == 'f') gpu::to_fp8(linear, queue);
      gpu::find_tile_sizes(linear, at::kBFloat16, queue);
      std::printf("   %s, %d x %d: sizes like %d rows: %s; like %d: %s\n", kind, N, K,
                  static_cast<int>(gpu::kPromptTile), fmt::format("{}", fmt::join(linear.prompt_tiles, " ")).c_str(),
                  static_cast<int>(gpu::kPassTile), fmt::format("{}", fmt::join(linear.pass_tiles, " ")).c_str());
      const at::Tensor x_MK = at::randn({5003, linear.inputs}, bf16);
      for (const gpu::TileSizes& sizes : {linear.prompt_tiles, linear.pass_tiles}) {
        const at::Tensor whole = product_in_tiles(linear, x_MK, sizes, queue);
        for (const auto& [first, rows] : {std::pair{0, 1}, {700, 257}, {1, 2048}, {2500, 2503}}) {
          const at::Tensor some = product_in_tiles(linear, x_MK.narrow(0, first, rows), sizes, queue);
          EXPECT_TRUE(at::equal(some, whole.narrow(0, first, rows)))
              << kind << " " << N << " x " << K << ": " << rows << " rows from " << first;
        }
      }
    }
  }
}

// The test that `model.attention: cudnn` makes before cuDNN is used; prints the ratio to flash attention.
TEST(GpuAttention, LongTextsByCudnnHaveTheirOwnBits) {
  const gpu::Queue queue = gpu::gpu_queue();
  if (queue.on_host()) GTEST_SKIP() << "the host has no cuDNN; model/cudnn_attention has a few lines in its place";
  ModelDescription description = small_model("llama");
  description.config.head_dim = 128;
  description.config.max_position_embeddings = 8192;
  Model model = on_gpu(description, at::kBFloat16);
  std::vector<TokenId> text(3000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<TokenId>((i * 37 + i / 7) % 90);
  const at::Tensor by_flash = model.transformer.forward(pack_sequences({{4, 5}, text})).to(at::kFloat);
  try {
    model.transformer.use_cudnn_attention();
  } catch (const Error& error) {
    if (gpu_compute_capability(queue.device) >= 90) throw;  // what it is for
    GTEST_SKIP() << error.what();
  }
  const at::Tensor among = model.transformer.forward(pack_sequences({{4, 5}, text})).to(at::kFloat),
                   alone = model.transformer.forward(pack_sequences({text})).to(at::kFloat);
  EXPECT_TRUE(at::equal(among.narrow(0, 2, 3000), alone));
  EXPECT_LE((among - by_flash).abs().mean().item<double>(), 0.01 * by_flash.abs().mean().item<double>());
}

void expect_decoded_texts_alone_have_equal_bits(Model& model, const at::Tensor& all_TV) {
  std::int64_t row = 0;
  for (const std::vector<TokenId>& text : texts()) {
    const auto length = static_cast<std::int64_t>(text.size());
    EXPECT_TRUE(at::equal(through_a_cache(model, nullptr, {text}), all_TV.narrow(0, row, length)))
        << length << " tokens";
    row += length;
  }
}

TEST(GpuDecoding, TextsHaveTheBitsThatTheyHaveAlone) {
  Model model = on_gpu(small_model("llama"), at::kBFloat16);
  expect_decoded_texts_alone_have_equal_bits(model, through_a_cache(model));
}

// `model.decoding: throughput`: a text's rows have the same bits among other rows and in a graph, and are close to the
// other products.
TEST(GpuDecoding, ForThroughputRowsHaveTheirOwnBits) {
  for (const auto& [dtype, scheme] : {std::pair{at::kBFloat16, QuantScheme{}},
                                      {at::kFloat8_e4m3fn, {}},
                                      {at::kBFloat16, {QuantType::kInt8, 32}},
                                      {at::kBFloat16, {QuantType::kInt4, 32}}}) {
    // The host has no cuBLASLt; model/decode_products has a pretended one in its place.
    if (gpu::gpu_queue().on_host() && !scheme.on()) continue;
    SCOPED_TRACE(std::string(at::toString(dtype)) + (scheme.on() ? ", codes" : ""));
    if (dtype == at::kFloat8_e4m3fn && gpu_compute_capability(gpu::gpu_queue().device) < 90) continue;
    Model model = on_gpu(small_model("llama"), dtype, scheme);
    const at::Tensor before = through_a_cache(model).to(at::kFloat);
    model.transformer.use_throughput_decoding();
    model.transformer.use_cuda_graphs(false);
    const at::Tensor eager = through_a_cache(model);
    EXPECT_FALSE(at::equal(eager.to(at::kFloat), before)) << "the products are the same";
    const bool fp8 = dtype == at::kFloat8_e4m3fn;
    EXPECT_LE((eager.to(at::kFloat) - before).abs().mean().item<double>(),
              (fp8 ? 0.05 : 0.02) * before.abs().mean().item<double>());
    model.transformer.use_cuda_graphs(true);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(through_a_cache(model), eager)) << "pass " << i;
    expect_decoded_texts_alone_have_equal_bits(model, eager);
    if (scheme.on()) continue;
    EXPECT_LE(largest_difference(eager, reference("llama")), fp8 ? 0.4 : limit_of(dtype));
  }
}

// A graph replays the very kernels.
TEST(GpuGraphs, PassesOfAGraphHaveEqualBits) {
  for (const auto& [dtype, scheme] :
       {std::pair{at::kBFloat16, QuantScheme{}}, {at::kBFloat16, {QuantType::kInt4, 32}}, {at::kFloat8_e4m3fn, {}}}) {
    Model model = on_gpu(small_model("llama"), dtype, scheme);
    model.transformer.use_cuda_graphs(false);
    const at::Tensor eager = through_a_cache(model);
    model.transformer.use_cuda_graphs(true);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(through_a_cache(model), eager)) << "pass " << i;
  }
}

// A graph holds pointers: a cache that only begins where the one before began has others in its later layers.
TEST(GpuGraphs, AnotherCacheAtTheSamePlaceIsAnother) {
  Model model = on_gpu(small_model("llama"), at::kBFloat16);
  KvCache first = model.transformer.make_cache(16), second = model.transformer.make_cache(16);
  const at::Tensor wanted = through_a_cache(model, &first);
  second.keys[0] = first.keys[0];
  second.keys[0].zero_();
  for (at::Tensor& values : first.values) values.fill_(NAN);
  EXPECT_TRUE(at::equal(through_a_cache(model, &second), wanted));
}

// The fused head on the device against a whole log_softmax of the same hidden states.
TEST(GpuHead, ReducesAsALogSoftmaxDoes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Model model = on_gpu(small_model("llama"), dtype);
    const PackedBatch batch = pack_sequences(texts());
    const at::Tensor hidden = model.transformer.forward(batch);
    const at::Tensor wanted = model.logprobs(hidden);
    std::vector<TokenId> targets(static_cast<std::size_t>(batch.num_tokens()), 5);
    const LogitReducer reducer(model.transformer.lm_head(), *model.group, model.pool, 20);
    const ReducedLogits kept = reducer.reduce(hidden, targets);
    const at::Tensor best = std::get<0>(at::topk(wanted, 20, -1));
    EXPECT_LE(largest_difference(kept.top_logprob_Tk, best), 2e-5);
    EXPECT_LE(largest_difference(kept.top_logprob_Tk, wanted.gather(1, kept.top_id_Tk.to(at::kLong))), 2e-5);
    EXPECT_LE(largest_difference(kept.target_logprob_T, wanted.select(1, 5)), 2e-5);
    const ReducedLogits part =
        reducer.reduce(hidden.narrow(0, 100, 50), std::span(targets).first(50));  // of another tile
    EXPECT_TRUE(at::equal(part.top_logprob_Tk, kept.top_logprob_Tk.narrow(0, 100, 50)));
    EXPECT_TRUE(at::equal(part.logsumexp_T, kept.logsumexp_T.narrow(0, 100, 50)));
    const ReducedLogits again = reducer.reduce(hidden, targets);
    EXPECT_TRUE(at::equal(again.top_logprob_Tk, kept.top_logprob_Tk) && at::equal(again.top_id_Tk, kept.top_id_Tk));
  }
}

}  // namespace
}  // namespace magister
