// The generator against the model run whole, token by token: budgets, preemption, shared prefixes, shards and neighbours
// change nothing, to the bit. And the sampler against its definition.
#include "magister/engine/generator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "magister/core/error.h"
#include "magister/engine/logits_processor.h"
#include "magister/engine/page_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"

namespace magister {
namespace {

using Texts = std::map<std::pair<std::uint64_t, std::uint64_t>, Generation>;

class Writing : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(9);
    ModelConfig& config = description_.config;
    config.family = "llama";
    config.vocab_size = 300;
    config.hidden_size = 48;
    config.intermediate_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.max_position_embeddings = 4096;
    config.tie_word_embeddings = true;
    description_.names = hf_tensor_names(config);
    for (const ExpectedTensor& tensor : expected_tensors(config, description_.names)) {
      file_.add(tensor.name, tensor.shape);
      file_.values(tensor.name) = tensor.shape.size() == 1 ? at::ones(tensor.shape) : at::randn(tensor.shape) * 0.25;
    }
    // Prompts of many lengths, several with the same beginning over page borders.
    const auto token = [](std::uint64_t i) { return static_cast<TokenId>((i * 7919 + 31) % 300); };
    for (std::uint64_t record = 0; record < 9; ++record) {
      GenerationRequest request{record, 0, {}, static_cast<std::int64_t>(4 + 3 * record)};
      const std::uint64_t shared = record % 3 == 0 ? 0 : 130;
      for (std::uint64_t i = 0; i < shared; ++i) request.prompt.push_back(token(i));
      for (std::uint64_t i = 0; i < 1 + 17 * record; ++i) request.prompt.push_back(token(1000 * record + i));
      requests_.push_back(request);
      if (record == 4) requests_.push_back({record, 1, request.prompt, 10});  // a second sample of the same prompt
    }
    sampling_.temperature = 0.9;
    sampling_.top_p = 0.95;
    sampling_.repetition_penalty = 1.1;
  }

  bool stops(const std::vector<TokenId>& tokens) const {
    return tokens.size() > stop_after_ && tokens.back() % 37 == 5;
  }
  std::size_t stop_after_ = 0;
  std::uint64_t texts_a_prompt_ = 1;
  std::int64_t top_logprobs_ = 0;

  virtual Transformer load(ProcessGroup& group, ThreadPool& pool) {
    return {description_, file_, group, pool, at::kFloat};
  }

  Texts write(GeneratorLimits limits, ProcessGroup& group, int threads, Generator::Counts* counts = nullptr) {
    limits.top_logprobs = top_logprobs_;
    ThreadPool pool(threads);
    Transformer model = load(group, pool);
    Generator generator(model, limits, sampling_, 77, [this](auto, auto, const auto& tokens) { return stops(tokens); });
    for (const GenerationRequest& request : requests_) generator.add(request, texts_a_prompt_);
    Texts texts;
    while (!generator.idle()) {
      generator.step();
      for (Generation& done : generator.take_finished()) texts[{done.record, done.sample}] = std::move(done);
    }
    if (counts != nullptr) *counts = generator.counts();
    return texts;
  }
  Texts write(const GeneratorLimits& limits, Generator::Counts* counts = nullptr, int threads = 1) {
    const auto group = make_single_process_group();
    return write(limits, *group, threads, counts);
  }

  // One whole forward pass a token, no cache: what every other way must equal.
  Texts write_plainly() {
    const auto group = make_single_process_group();
    ThreadPool pool(1);
    Transformer model(description_, file_, *group, pool, at::kFloat);
    Texts texts;
    for (const GenerationRequest& request : requests_) {
      Generation& text = texts[{request.record, request.sample}];
      std::vector<TokenId> tokens = request.prompt;
      std::optional<ConstraintState> state;
      if (request.constraint != nullptr) state.emplace(*request.constraint);
      while (static_cast<std::int64_t>(text.tokens.size()) < request.max_new_tokens) {
        const at::Tensor hidden_TD = model.forward(pack_sequences({tokens}));
        at::Tensor logits_1V = model.logits(hidden_TD.narrow(0, hidden_TD.size(0) - 1, 1).contiguous());
        const std::span<float> logits_V(logits_1V.data_ptr<float>(), 300);
        if (top_logprobs_ > 0) append_most_probable(logits_V, top_logprobs_, text.top_ids, text.top_logprobs);
        const auto allowed = state ? state->allowed() : std::span<const std::uint64_t>();
        const auto token = sample_token(logits_V, {tokens, allowed}, LogitsChain(sampling_), sampling_,
                                        {77, request.record, request.sample, text.tokens.size()});
        tokens.push_back(token.id);
        if (state) state->accept(token.id);
        text.tokens.push_back(token.id);
        text.logprobs.push_back(token.logprob);
        if (!(state && state->finished()) && !stops(text.tokens)) continue;
        text.finish_reason = FinishReason::kStop;
        break;
      }
    }
    return texts;
  }

  static void expect_equal(const Texts& got, const Texts& want) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [key, text] : want) {
      EXPECT_EQ(got.at(key).tokens, text.tokens) << key.first << "." << key.second;
      EXPECT_EQ(got.at(key).logprobs, text.logprobs) << key.first << "." << key.second;
      EXPECT_EQ(got.at(key).top_ids, text.top_ids);
      EXPECT_EQ(got.at(key).top_logprobs, text.top_logprobs);
      EXPECT_EQ(got.at(key).finish_reason, text.finish_reason);
    }
  }

  ModelDescription description_;
  MemoryTensorFile file_;
  std::vector<GenerationRequest> requests_;
  SamplingParams sampling_;
};

TEST_F(Writing, EqualsWholePassesToTheBit) {
  const Texts want = write_plainly();
  EXPECT_TRUE(std::any_of(want.begin(), want.end(),
                          [](const auto& t) { return t.second.finish_reason == FinishReason::kStop; }));
  EXPECT_TRUE(std::any_of(want.begin(), want.end(),
                          [](const auto& t) { return t.second.finish_reason == FinishReason::kLength; }));
  for (const GeneratorLimits& limits :
       {GeneratorLimits{32, 512, 100, true}, GeneratorLimits{32, 512, 100, false}, GeneratorLimits{1, 1000, 100, true},
        GeneratorLimits{3, 7, 100, true}, GeneratorLimits{32, 100000, 64, true}}) {
    expect_equal(write(limits), want);
  }
  expect_equal(write({32, 512, 100, true}, nullptr, 3), want);
}

TEST_F(Writing, GreedyToo) {
  sampling_ = {};
  sampling_.temperature = 0;
  expect_equal(write({8, 64, 60, true}), write_plainly());
}

TEST_F(Writing, PreemptionChangesNothing) {
  // Four texts that begin on a page each and grow to three, in a cache of seven.
  requests_.clear();
  for (std::uint64_t record = 0; record < 4; ++record) {
    requests_.push_back({record, 0, std::vector<TokenId>(40, static_cast<TokenId>(7 * record)), 90});
  }
  stop_after_ = 60;
  Generator::Counts counts;
  const Texts got = write({32, 64, 7, true}, &counts);
  EXPECT_GT(counts.preemptions, 0u) << "the cache is too large for this test";
  expect_equal(got, write_plainly());
}

// Token i is two letters; texts are words of four letters joined by "zb", and end with token 299.
TEST_F(Writing, ConstrainedTextsAreTheSameUnderPreemptionAndShards) {
  std::vector<std::string> bytes;
  for (int i = 0; i < 290; ++i)
    bytes.push_back({static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26)});
  const std::vector<TokenId> ends{299};
  const Constraint constraint({ConstraintRule::Kind::kRegex, "[a-k]{4}(zb[a-k]{4}){15,25}", {}, "test"}, bytes, ends,
                              300);
  stop_after_ = 1000;
  top_logprobs_ = 3;
  requests_.clear();
  for (std::uint64_t record = 0; record < 6; ++record) {
    requests_.push_back(
        {record, 0, std::vector<TokenId>(40, static_cast<TokenId>(7 * record)), record == 5 ? 20 : 90, &constraint});
  }
  const Texts want = write_plainly();
  for (const auto& [key, text] : want) {
    EXPECT_EQ(text.finish_reason, key.first == 5 ? FinishReason::kLength : FinishReason::kStop);
    EXPECT_EQ(text.tokens.back() == 299, key.first != 5);
    for (std::size_t i = 2; i + 1 < text.tokens.size(); i += 3)
      EXPECT_EQ(bytes[static_cast<std::size_t>(text.tokens[i])], "zb");
    EXPECT_EQ(text.top_ids.size(), 3 * text.tokens.size());
  }
  Generator::Counts counts;
  expect_equal(write({32, 64, 7, true}, &counts), want);
  EXPECT_GT(counts.preemptions, 0u);
  auto groups = make_thread_process_groups(2);
  std::vector<Texts> texts(2);
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < 2; ++s)
    threads.emplace_back([&, s] { texts[s] = write({8, 64, 60, true}, *groups[s], 1); });
  for (auto& thread : threads) thread.join();
  expect_equal(texts[1], texts[0]);
  for (const auto& [key, text] : want) EXPECT_EQ(texts[0].at(key).tokens, text.tokens);
}

// The GPU's code in bf16, its kernels run on the host. Rows of texts and of prompts have kernels of their own there.
class WritingOnAGpu : public Writing {
 protected:
  Transformer load(ProcessGroup& group, ThreadPool& pool) override {
    return {description_, file_, group, pool, dtype_, quantization_, gpu::Queue{}};
  }
  at::ScalarType dtype_ = at::kBFloat16;
  QuantScheme quantization_{};
};

TEST_F(WritingOnAGpu, NeighboursBudgetsAndSharedPagesChangeNothing) {
  // Emulated threads are slow: five prompts, three of them with a beginning in common, and short texts.
  std::erase_if(requests_, [](const GenerationRequest& request) { return request.record > 4 || request.record == 1; });
  for (GenerationRequest& request : requests_)
    request.max_new_tokens = std::min<std::int64_t>(request.max_new_tokens, 5);
  const Texts alone = write({1, 1000, 100, false});
  for (const GeneratorLimits& limits : {GeneratorLimits{32, 512, 100, true}, GeneratorLimits{3, 7, 100, true},
                                        GeneratorLimits{32, 100000, 64, false}}) {
    expect_equal(write(limits), alone);
  }
  const Texts plain = write_plainly();  // the CPU's path in f32
  std::size_t others = 0;
  double worst = 0;
  for (const auto& [key, text] : plain) {
    if (alone.at(key).tokens.front() != text.tokens.front()) {
      ++others;  // a draw at the border of two tokens
      continue;
    }
    worst = std::max(worst, std::abs(static_cast<double>(alone.at(key).logprobs.front()) - text.logprobs.front()));
  }
  std::printf("first tokens: %zu of %zu are others than in f32, largest difference %.4f\n", others, plain.size(),
              worst);
  EXPECT_LE(others, 3u);   // measured 2: bf16 moves a draw over a border once in about ten
  EXPECT_LT(worst, 0.15);  // 48 wide: bf16 rounds coarsely
}

// More texts at once than a decode product takes rows.
TEST_F(WritingOnAGpu, MoreTextsThanAProductTakesChangeNothing) {
  requests_.clear();
  for (std::uint64_t record = 0; record < 66; ++record)
    requests_.push_back({record, 0, {static_cast<TokenId>(record), 9}, 2});
  const std::vector<GenerationRequest> all = requests_;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat8_e4m3fn}) {
    dtype_ = dtype;
    requests_ = all;
    Texts together = write({100, 4096, 100, false});
    EXPECT_EQ(together.size(), 66u);
    const auto few = [](std::uint64_t record) { return record < 2 || (record >= 31 && record < 33) || record >= 63; };
    std::erase_if(requests_, [&](const GenerationRequest& request) { return !few(request.record); });
    std::erase_if(together, [&](const auto& text) { return !few(text.first.first); });
    expect_equal(together, write({1, 4096, 100, false}));
  }
}

TEST_F(WritingOnAGpu, PreemptionChangesNothing) {
  // Three texts that begin on a page each and grow to two, in a cache of four.
  requests_.clear();
  for (std::uint64_t record = 0; record < 3; ++record) {
    requests_.push_back({record, 0, std::vector<TokenId>(44, static_cast<TokenId>(7 * record)), 9});
  }
  stop_after_ = 60;
  quantization_ = {QuantType::kInt4, 32};
  Generator::Counts counts;
  const Texts crowded = write({32, 64, 4, true}, &counts);
  EXPECT_GT(counts.preemptions, 0u) << "the cache is too large for this test";
  expect_equal(crowded, write({1, 64, 4, false}));
}

TEST_F(Writing, SharedPagesAreComputedOnce) {
  Generator::Counts shared, alone;
  write({32, 512, 100, true}, &shared);
  write({32, 512, 100, false}, &alone);
  // Six records and a second sample have two full pages in common: the first of them computes them.
  EXPECT_GE(alone.computed_tokens - shared.computed_tokens, 6u * 96);
  EXPECT_EQ(shared.cached_tokens, alone.computed_tokens - shared.computed_tokens);
  EXPECT_EQ(alone.cached_tokens, 0u);
}

// Prompts that end on a page's border, before and after it: computed once for all of their texts, which are those of texts alone.
TEST_F(Writing, TextsOfOnePromptComputeItOnceWhateverItsLength) {
  const std::vector<GenerationRequest> prompts = [] {
    std::vector<GenerationRequest> all;
    for (const std::uint64_t length : {1, 2, 47, 48, 49, 96, 97, 143}) {
      GenerationRequest request{length, 0, {}, 4};
      for (std::uint64_t i = 0; i < length; ++i)
        request.prompt.push_back(static_cast<TokenId>((length * 101 + i * 7919) % 300));
      all.push_back(request);
    }
    return all;
  }();
  stop_after_ = 1000;
  for (const std::int64_t new_tokens : {1, 4}) {
    requests_.clear();
    std::uint64_t needed = 0;  // tokens: each prompt once, and of every text all but the last
    for (GenerationRequest request : prompts) {
      request.max_new_tokens = new_tokens;
      needed += request.prompt.size() + 7 * static_cast<std::uint64_t>(new_tokens - 1);
      for (std::uint64_t i = 0; i < 7; ++i, ++request.sample) requests_.push_back(request);
    }
    const Texts want = write_plainly();
    std::erase_if(requests_, [](const GenerationRequest& request) { return request.sample > 0; });
    texts_a_prompt_ = 7;
    Generator::Counts counts;
    expect_equal(write({32, 512, 200, true}, &counts), want);
    EXPECT_EQ(counts.computed_tokens, needed);
    EXPECT_EQ(counts.written_tokens, want.size() * static_cast<std::uint64_t>(new_tokens));
    expect_equal(write({3, 5, 200, true}, &counts), want);  // fewer places than texts, prompts in pieces
    EXPECT_EQ(counts.computed_tokens, needed);
    expect_equal(write({32, 512, 5, true}, &counts), want);  // so few pages that prompts are given up
    expect_equal(write({32, 512, 200, false}, &counts), want);
    texts_a_prompt_ = 1;
  }
}

TEST_F(Writing, FourHundredTextsOfAPageAreOnePass) {
  requests_ = {{0, 0, std::vector<TokenId>(48, 7), 1}};
  texts_a_prompt_ = 400;
  Generator::Counts counts;
  const Texts texts = write({32, 512, 100, true}, &counts);
  EXPECT_EQ(texts.size(), 400u);
  EXPECT_EQ(counts.passes, 1u);
  EXPECT_EQ(counts.computed_tokens, 48u);
  EXPECT_EQ(counts.cached_tokens, 399u * 48);
}

TEST_F(Writing, TextsOfOnePromptUnderPreemption) {
  requests_.clear();
  for (std::uint64_t record = 0; record < 2; ++record) {
    for (std::uint64_t sample = 0; sample < 3; ++sample) {
      requests_.push_back({record, sample, std::vector<TokenId>(60, static_cast<TokenId>(7 * record)), 80});
    }
  }
  stop_after_ = 60;
  const Texts want = write_plainly();
  std::erase_if(requests_, [](const GenerationRequest& request) { return request.sample > 0; });
  texts_a_prompt_ = 3;
  Generator::Counts counts;
  expect_equal(write({32, 64, 6, true}, &counts), want);
  EXPECT_GT(counts.preemptions, 0u) << "the cache is too large for this test";
}

// On a GPU the rows of prompts have kernels of their own, and pages are copied where they stand.
TEST_F(WritingOnAGpu, TextsOfOnePromptComputeItOnce) {
  requests_ = {{0, 0, std::vector<TokenId>(48, 7), 3}, {1, 0, std::vector<TokenId>(50, 9), 3}};
  texts_a_prompt_ = 3;
  Generator::Counts counts;
  const Texts together = write({32, 512, 60, true}, &counts);
  EXPECT_EQ(counts.computed_tokens, 48u + 50u + 6 * 2);
  expect_equal(together, write({1, 512, 60, false}));
}

TEST_F(Writing, ShardsWriteTheSame) {
  const Texts want = write_plainly();
  for (const int shards : {2}) {
    auto groups = make_thread_process_groups(shards);
    std::vector<Texts> texts(static_cast<std::size_t>(shards));
    std::vector<std::thread> threads;
    for (int s = 0; s < shards; ++s)
      threads.emplace_back([&, s] { texts[s] = write({8, 64, 60, true}, *groups[s], 1); });
    for (auto& thread : threads) thread.join();
    expect_equal(texts[1], texts[0]);
    // Sums over shards round otherwise; the texts of so few tokens do not differ, the log-probabilities by little.
    for (const auto& [key, text] : want) {
      EXPECT_EQ(texts[0].at(key).tokens, text.tokens);
      for (std::size_t i = 0; i < text.logprobs.size(); ++i)
        EXPECT_NEAR(texts[0].at(key).logprobs[i], text.logprobs[i], 1e-4);
    }
  }
}

TEST_F(Writing, LastRowsOfPrompts) {
  for (auto& request : requests_) request.max_new_tokens = 0;
  const Texts got = write({4, 50, 60, true});
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  Transformer model(description_, file_, *group, pool, at::kFloat);
  for (const auto& request : requests_) {
    const at::Tensor hidden_TD = model.forward(pack_sequences({request.prompt}));
    const at::Tensor logits_1V = model.logits(hidden_TD.narrow(0, hidden_TD.size(0) - 1, 1).contiguous());
    const auto& row = got.at({request.record, request.sample}).last_logits_V;
    EXPECT_TRUE(at::equal(at::tensor(row), logits_1V[0]));
  }
}

// However a row is kept or drawn, one column that is not finite ends it, and the error names whose row it was.
TEST_F(Writing, ARowThatIsNotFiniteIsRefused) {
  file_.values("model.embed_tokens.weight")[250][3] =
      std::numeric_limits<float>::quiet_NaN();  // tied: also row 250 of the head
  requests_ = {{7, 2, {1, 2, 3}, 4}};
  const auto message = [&] {
    try {
      write({4, 64, 60, true});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return std::string(error.what());
    }
    return std::string("none");
  };
  const std::string said = "record 7, text 2, row 2: the model's logits are not finite";
  for (const double temperature : {0.0, 0.9}) {
    sampling_.temperature = temperature;
    EXPECT_EQ(message().substr(0, said.size()), said);
  }
  top_logprobs_ = 3;
  EXPECT_EQ(message().substr(0, said.size()), said);
  top_logprobs_ = 0;
  requests_[0].max_new_tokens = 0;  // a judge's row
  EXPECT_EQ(message().substr(0, said.size()), said);
}

TEST_F(WritingOnAGpu, ARowThatIsNotFiniteIsRefusedWhereItIsDrawn) {
  file_.values("model.embed_tokens.weight")[250][3] = std::numeric_limits<float>::quiet_NaN();
  sampling_.repetition_penalty = 1.0;
  for (const double temperature : {0.0, 0.9}) {
    sampling_.temperature = temperature;
    requests_ = {{7, 2, {1, 2, 3}, 4}};
    EXPECT_THROW(write({4, 64, 60, true}), Error);
  }
}

TEST_F(Writing, RefusesWhatNeverFits) {
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  Transformer model(description_, file_, *group, pool, at::kFloat);
  EXPECT_THROW(Generator(model, {1, 1, 1, true}, sampling_, 0, {}), Error);
  Generator generator(model, {4, 64, 3, true}, sampling_, 0, {});
  EXPECT_THROW(generator.add({0, 0, {}, 5}), Error);
  EXPECT_THROW(generator.add({0, 0, std::vector<TokenId>(140, 1), 5}), Error);
  SamplingParams wrong = sampling_;
  wrong.logit_bias = {{300, 1.0f}};
  EXPECT_THROW(Generator(model, {4, 64, 3, true}, wrong, 0, {}), Error);
}

class Drawing : public testing::Test {
 protected:
  // Counts over many positions beside the probabilities that plain code gives.
  void expect_frequencies(const SamplingParams& params, const std::vector<double>& probabilities,
                          std::span<const std::uint64_t> allowed = {}) {
    std::vector<double> counts(logits_.size(), 0.0);
    constexpr int kDraws = 40000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      std::vector<float> logits = logits_;
      const SampledToken token = sample_token(logits, {history_, allowed}, LogitsChain(params), params, {1, 2, 3, i});
      counts[static_cast<std::size_t>(token.id)] += 1.0 / kDraws;
      ASSERT_NEAR(token.logprob, logits_[token.id] - logsumexp_, 1e-5);
    }
    for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_NEAR(counts[i], probabilities[i], 0.012) << "token " << i;
  }
  std::vector<double> softmax(std::vector<double> logits) {
    double sum = 0;
    for (double& z : logits) sum += z = std::exp(z);
    for (double& z : logits) z /= sum;
    return logits;
  }
  static constexpr double kOut = -1e9;
  std::vector<float> logits_{2.0f, 1.0f, 0.5f, -1.0f, 0.0f};
  double logsumexp_ = std::log(std::exp(2.0) + std::exp(1.0) + std::exp(0.5) + std::exp(-1.0) + 1.0);
  std::vector<TokenId> history_{0, 3, 3};
};

TEST_F(Drawing, FollowsTheDistribution) { expect_frequencies({}, softmax({2, 1, 0.5, -1, 0})); }
TEST_F(Drawing, Temperature) { expect_frequencies({.temperature = 0.5}, softmax({4, 2, 1, -2, 0})); }
TEST_F(Drawing, TopK) { expect_frequencies({.top_k = 2}, softmax({2, 1, kOut, kOut, kOut})); }
TEST_F(Drawing, TopP) { expect_frequencies({.top_p = 0.7}, softmax({2, 1, kOut, kOut, kOut})); }
TEST_F(Drawing, MinP) { expect_frequencies({.min_p = 0.2}, softmax({2, 1, 0.5, kOut, kOut})); }
TEST_F(Drawing, Bias) { expect_frequencies({.logit_bias = {{3, 3.0f}}}, softmax({2, 1, 0.5, 2, 0})); }
TEST_F(Drawing, Penalty) { expect_frequencies({.repetition_penalty = 2.0}, softmax({1, 1, 0.5, -2, 0})); }
TEST_F(Drawing, Mask) {
  const std::vector<std::uint64_t> allowed{0b01010};
  expect_frequencies({}, softmax({kOut, 1, kOut, -1, kOut}), allowed);
}
TEST_F(Drawing, GreedyTakesTheLowestOfEquals) {
  std::vector<float> logits{1.0f, 5.0f, 5.0f};
  EXPECT_EQ(sample_token(logits, {}, LogitsChain({}), {.temperature = 0}, {}).id, 1);
}
TEST_F(Drawing, NothingIsDrawnFromARowThatIsNotFinite) {
  for (const float fault : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    for (const SamplingParams& params : {SamplingParams{.temperature = 0}, SamplingParams{}, SamplingParams{.top_k = 2},
                                         SamplingParams{.top_p = 0.5}}) {
      std::vector<float> logits = logits_;
      logits[3] = fault;
      const SampledToken token = sample_token(logits, {history_, {}}, LogitsChain(params), params, {});
      EXPECT_EQ(token.id, -1);
      EXPECT_TRUE(std::isnan(token.logprob));
    }
  }
}
TEST(MostProbable, EqualsASort) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>(i * 7919 % 101) * 0.1f);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  for (const std::int64_t k : {1, 7, 20, 1000}) {
    std::vector<TokenId> ids{-5};
    std::vector<float> logprobs;
    append_most_probable(logits, k, ids, logprobs);
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(k) + 1);
    EXPECT_TRUE(std::equal(ids.begin() + 1, ids.end(), order.begin()));
    for (std::size_t j = 0; j < logprobs.size(); ++j) EXPECT_NEAR(logprobs[j], logits[order[j]] - std::log(sum), 1e-5);
  }
}

TEST(KeyedUniform, DependsOnEveryPartOfTheKey) {
  const double base = keyed_uniform({1, 2, 3, 4});
  EXPECT_EQ(base, keyed_uniform({1, 2, 3, 4}));
  for (const DrawKey& other :
       {DrawKey{2, 2, 3, 4}, DrawKey{1, 3, 3, 4}, DrawKey{1, 2, 4, 4}, DrawKey{1, 2, 3, 5}, DrawKey{2, 1, 3, 4}}) {
    EXPECT_NE(base, keyed_uniform(other));
  }
}

TEST(PagePool, SharesFindsAndForgets) {
  PagePool pool(3);
  std::vector<TokenId> a(48, 1), b(48, 2);
  const auto first = pool.take();
  const auto prefix = pool.remember(*first, 0, a);
  EXPECT_FALSE(pool.find(0, b));
  EXPECT_FALSE(pool.find(prefix, a));
  const auto found = pool.find(0, a);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->page, *first);
  EXPECT_EQ(found->prefix, prefix);
  pool.release(*first);
  pool.release(*first);
  EXPECT_EQ(pool.num_available(), 3);
  pool.take();
  pool.take();
  EXPECT_TRUE(pool.find(0, a)) << "the remembered page is the last to go";
  pool.release(*first);
  EXPECT_EQ(pool.take(), first);
  EXPECT_FALSE(pool.find(0, a));
  EXPECT_FALSE(pool.take());
}

}  // namespace
}  // namespace magister
