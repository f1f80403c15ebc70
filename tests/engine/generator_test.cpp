// The generator against complete passes of the model, token by token: budgets, preemption, shared prefixes, shards and
// neighbours change no bit.
#include "magister/engine/generator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "engine/generating.h"
#include "magister/core/error.h"

namespace magister {
namespace generator_test {

TEST_F(Generating, EqualsWholePassesToTheBit) {
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

// Latent attention to 24 chosen keys, whose pages also hold the keys of an indexer; the second layer shares the choice.
class GeneratingFromChosenKeys : public Generating {
 protected:
  void change(ModelConfig& config) override {
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = 12;
    config.rotary_dim = 4;
    config.latent = LatentConfig{.query_rank = 20, .rank = 16, .nope_dim = 8, .rope_dim = 4, .value_dim = 10};
    config.latent->indexer = IndexerConfig{.heads = 5, .head_dim = 8, .top_k = 24, .layer_chooses = {true, false}};
  }
};

TEST_F(GeneratingFromChosenKeys, EqualsWholePassesToTheBit) {
  const Texts want = write_plainly();
  for (const GeneratorLimits& limits :
       {GeneratorLimits{32, 512, 100, true}, GeneratorLimits{32, 512, 100, false}, GeneratorLimits{3, 7, 100, true}})
    expect_equal(write(limits), want);
  Generator::Counts counts;
  expect_equal(write({32, 64, 9, true}, &counts, 3), want);
  EXPECT_GT(counts.cached_tokens, 0u);
  description_.config.latent->indexer->top_k = 4096;
  EXPECT_NE(write({32, 512, 100, true}).at({8, 0}).logprobs, want.at({8, 0}).logprobs) << "the choice does not matter";
}

TEST_F(Generating, GreedyToo) {
  sampling_ = {};
  sampling_.temperature = 0;
  expect_equal(write({8, 64, 60, true}), write_plainly());
}

TEST_F(Generating, PreemptionChangesNothing) {
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

// Rows of prompts and rows of texts multiply codes differently: neither a lack of pages nor what the cache holds may
// decide which a row is.
class GeneratingFromCodes : public Generating {
 protected:
  Transformer load(ProcessGroup& group, ThreadPool& pool) override {
    return {description_, file_, group, pool, at::kFloat, {QuantType::kInt8, 32}};
  }
};

TEST_F(GeneratingFromCodes, NeighboursAndPreemptionChangeNothing) {
  const Texts want = write({32, 512, 100, false});
  for (const GeneratorLimits& limits : {GeneratorLimits{1, 64, 60, true}, {3, 7, 60, true}, {32, 64, 100, true}})
    expect_equal(write(limits), want);
  requests_.clear();
  for (std::uint64_t record = 0; record < 4; ++record)
    requests_.push_back({record, 0, std::vector<TokenId>(40, static_cast<TokenId>(7 * record)), 90});
  stop_after_ = 60;
  Generator::Counts counts;
  const Texts got = write({32, 64, 7, true}, &counts);
  EXPECT_GT(counts.preemptions, 0u);
  expect_equal(got, write({32, 512, 100, false}));
}

// The second prompt is the first with its text, and comes while this text is written: before, when and after the text
// fills a page.
TEST_F(GeneratingFromCodes, APromptThatBeginsWithATextComputesItItself) {
  const std::vector<TokenId> first(40, 11);
  requests_ = {{0, 0, first, 60}};
  stop_after_ = 60;
  const std::vector<TokenId> text = write({32, 512, 100, false}).at({0, 0}).tokens;
  std::vector<TokenId> second = first;
  second.insert(second.end(), text.begin(), text.begin() + 30);
  for (std::int64_t steps = 4; steps < 14; ++steps) {
    requests_ = {{0, 0, first, 60}, {1, 0, {5, 6}, steps}, {2, 0, second, 10}};
    expect_equal(write({2, 512, 100, true}), write({32, 512, 100, false}));
  }
}

// Token i is two letters; texts are words of four letters joined by "zb", and end with token 299.
TEST_F(Generating, ConstrainedTextsAreTheSameUnderPreemptionAndShards) {
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

TEST_F(Generating, SharedPagesAreComputedOnce) {
  Generator::Counts shared, alone;
  write({32, 512, 100, true}, &shared);
  write({32, 512, 100, false}, &alone);
  // Six records and a second sample have two full pages in common: the first of them computes them.
  EXPECT_GE(alone.computed_tokens - shared.computed_tokens, 6u * 96);
  EXPECT_EQ(shared.cached_tokens, alone.computed_tokens - shared.computed_tokens);
  EXPECT_EQ(alone.cached_tokens, 0u);
}

// Prompts that end at a page's border, before and after it: each is computed once for all of its texts, which equal
// texts generated alone.
TEST_F(Generating, TextsOfOnePromptComputeItOnceWhateverItsLength) {
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

TEST_F(Generating, FourHundredTextsOfAPageAreOnePass) {
  requests_ = {{0, 0, std::vector<TokenId>(48, 7), 1}};
  texts_a_prompt_ = 400;
  Generator::Counts counts;
  const Texts texts = write({32, 512, 100, true}, &counts);
  EXPECT_EQ(texts.size(), 400u);
  EXPECT_EQ(counts.passes, 1u);
  EXPECT_EQ(counts.computed_tokens, 48u);
  EXPECT_EQ(counts.cached_tokens, 399u * 48);
}

TEST_F(Generating, TextsOfOnePromptUnderPreemption) {
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

TEST_F(Generating, ShardsWriteTheSame) {
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

TEST_F(Generating, LastRowsOfPrompts) {
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

// Rows of a judge among texts and whole rows, in passes that are cut at any place, on one shard and on two.
TEST_F(Generating, WantedTokensOfLastRows) {
  const std::vector<TokenId> verdicts = {299, 3, 150, 99, 100}, zero = {199};
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (i % 4 == 3) continue;  // a text
    requests_[i].max_new_tokens = 0;
    if (i % 4 != 2) requests_[i].wanted = i % 4 == 0 ? verdicts : zero;
  }
  const auto expect_wanted = [&](const Texts& got, double limit) {
    const auto group = make_single_process_group();
    ThreadPool pool(1);
    Transformer model(description_, file_, *group, pool, at::kFloat);
    double worst = 0;
    for (const GenerationRequest& request : requests_) {
      const Generation& row = got.at({request.record, request.sample});
      EXPECT_EQ(row.wanted_logits.size(), request.wanted.size());
      EXPECT_EQ(row.last_logits_V.empty(), request.max_new_tokens > 0 || !request.wanted.empty());
      if (request.wanted.empty()) continue;
      const at::Tensor hidden_TD = model.forward(pack_sequences({request.prompt}));
      const at::Tensor logits_V = model.logits(hidden_TD.narrow(0, hidden_TD.size(0) - 1, 1).contiguous())[0];
      worst = std::max(worst, std::abs(row.logsumexp - at::logsumexp(logits_V.to(at::kDouble), 0).item<double>()));
      for (std::size_t i = 0; i < request.wanted.size(); ++i)
        worst = std::max(worst, std::abs(row.wanted_logits[i] - logits_V[request.wanted[i]].item<double>()));
    }
    std::printf("largest difference of a logit or of a log-sum-exp: %.1e\n", worst);
    EXPECT_LE(worst, limit);
  };
  const Texts alone = write({4, 50, 60, true});
  expect_wanted(alone, 1e-12);
  for (const auto& [key, text] : write({32, 4096, 100, false})) {
    EXPECT_EQ(alone.at(key).wanted_logits, text.wanted_logits);
    EXPECT_EQ(alone.at(key).logsumexp, text.logsumexp);
    EXPECT_EQ(alone.at(key).tokens, text.tokens);
  }
  auto groups = make_thread_process_groups(2);
  std::vector<Texts> texts(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < groups.size(); ++s)
    threads.emplace_back([&, s] { texts[s] = write({8, 64, 60, true}, *groups[s], 1); });
  for (auto& thread : threads) thread.join();
  expect_wanted(texts[0], 1e-4);
  for (const auto& [key, text] : texts[0]) {
    EXPECT_EQ(text.wanted_logits, texts[1].at(key).wanted_logits);
    EXPECT_EQ(text.logsumexp, texts[1].at(key).logsumexp);
  }
}

// However a row is kept or drawn, one column that is not finite ends it, and the error names whose row it was.
TEST_F(Generating, ARowThatIsNotFiniteIsRefused) {
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
  const std::vector<TokenId> wanted = {1, 2};  // the bad one is none of them
  requests_[0].wanted = wanted;
  EXPECT_EQ(message().substr(0, said.size()), said);
}

// A group of three of which this is the second. all_gather brings the parts that the others would send.
class GroupOfThree final : public ProcessGroup {
 public:
  explicit GroupOfThree(std::vector<at::Tensor> parts) : ProcessGroup(1, 3), parts_(std::move(parts)) {}
  std::string backend() const override { return "test"; }
  void all_reduce_sum(at::Tensor&) override { ++exchanges; }
  at::Tensor all_gather(const at::Tensor& shard) override {
    ++exchanges;
    EXPECT_TRUE(at::equal(shard, parts_[1]));
    return at::cat(parts_, 0);
  }
  at::Tensor reduce_scatter(const at::Tensor& tensor) override { return tensor; }
  void broadcast(at::Tensor&, int) override {}
  void barrier() override {}
  int exchanges = 0;

 private:
  std::vector<at::Tensor> parts_;
};

TEST_F(Generating, LogitsOfUnevenPartsAreGatheredInOneExchange) {
  const at::Tensor whole_RV = at::randn({4, 10});
  const std::vector<std::int64_t> widths = {4, 3, 3};
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t width : widths) {
    parts.push_back(at::constant_pad_nd(whole_RV.narrow(1, begin, width), {0, 4 - width}));
    begin += width;
  }
  GroupOfThree group(parts);
  EXPECT_TRUE(at::equal(gather_logits(whole_RV.narrow(1, 4, 3), widths, group), whole_RV));
  EXPECT_EQ(group.exchanges, 1) << "widths are known before the first pass";
  ModelConfig config = description_.config;
  config.vocab_size = 301;
  config.num_attention_heads = config.num_key_value_heads = 6;
  EXPECT_EQ(logit_widths(config, 1), std::vector<std::int64_t>{301});
  std::int64_t sum = 0;
  for (const std::int64_t width : logit_widths(config, 2)) sum += width;
  EXPECT_EQ(sum, 301);
}

TEST_F(Generating, RefusesWhatNeverFits) {
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

}  // namespace generator_test
}  // namespace magister
