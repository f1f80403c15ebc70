// The sampler against its definition: frequencies over many positions compared with the probabilities of plain code.
#include "magister/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "magister/core/error.h"
#include "magister/engine/logits_processor.h"

namespace magister {
namespace sampler_test {

class Sampling : public testing::Test {
 protected:
  // Compares counts over many positions with the probabilities of plain code.
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

TEST_F(Sampling, FollowsTheDistribution) { expect_frequencies({}, softmax({2, 1, 0.5, -1, 0})); }
TEST_F(Sampling, Temperature) { expect_frequencies({.temperature = 0.5}, softmax({4, 2, 1, -2, 0})); }
TEST_F(Sampling, TopK) { expect_frequencies({.top_k = 2}, softmax({2, 1, kOut, kOut, kOut})); }
TEST_F(Sampling, TopP) { expect_frequencies({.top_p = 0.7}, softmax({2, 1, kOut, kOut, kOut})); }
TEST_F(Sampling, MinP) { expect_frequencies({.min_p = 0.2}, softmax({2, 1, 0.5, kOut, kOut})); }
TEST_F(Sampling, MinPAfterTopK) {
  expect_frequencies({.top_k = 4, .min_p = 0.3}, softmax({2, 1, kOut, kOut, kOut}));
  expect_frequencies({.top_k = 2, .min_p = 0.1}, softmax({2, 1, kOut, kOut, kOut}));
}
TEST_F(Sampling, Bias) { expect_frequencies({.logit_bias = {{3, 3.0f}}}, softmax({2, 1, 0.5, 2, 0})); }
TEST_F(Sampling, Penalty) { expect_frequencies({.repetition_penalty = 2.0}, softmax({1, 1, 0.5, -2, 0})); }
TEST_F(Sampling, Mask) {
  const std::vector<std::uint64_t> allowed{0b01010};
  expect_frequencies({}, softmax({kOut, 1, kOut, -1, kOut}), allowed);
}
TEST_F(Sampling, GreedyTakesTheLowestOfEquals) {
  std::vector<float> logits{1.0f, 5.0f, 5.0f};
  EXPECT_EQ(sample_token(logits, {}, LogitsChain({}), {.temperature = 0}, {}).id, 1);
}
TEST_F(Sampling, NothingIsDrawnFromARowThatIsNotFinite) {
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
// The definition by comparisons, one step after the other.
TokenId plainly_drawn(std::vector<float> logits, const SamplingParams& params, const DrawKey& key) {
  for (float& logit : logits) logit = static_cast<float>(logit / params.temperature);
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(params.top_k)));
  const double top = logits[ids[0]];
  const auto mass_of = [&] {
    double sum = 0;
    for (const TokenId id : ids) sum += std::exp(logits[id] - top);
    return sum;
  };
  const double all = mass_of();
  double mass = 0;
  std::size_t count = 0;
  while (count < ids.size() && (count == 0 || mass < params.top_p * all)) mass += std::exp(logits[ids[count++]] - top);
  ids.resize(count);
  std::erase_if(ids, [&](TokenId id) { return std::exp(logits[id] - top) < params.min_p; });
  const double target = keyed_uniform(key) * mass_of();
  double reached = 0;
  for (const TokenId id : ids) {
    reached += std::exp(logits[id] - top);
    if (reached > target) return id;
  }
  return ids.back();
}

// Many equal logits, also 0 and -0, and numbers of which only the last bits differ.
TEST(Sampler, DrawsAsTheDefinitionDoes) {
  for (const float spread : {0.2f, 3.0f, 30.0f}) {
    std::vector<float> logits;
    for (int i = 0; i < 5003; ++i) {
      const double wave = std::sin(i * 12.9898) * std::sin(i * 78.233) * spread;
      logits.push_back(static_cast<float>(i % 3 == 0 ? wave : std::round(wave * 8) / 8));
    }
    for (const SamplingParams& params :
         {SamplingParams{.top_p = 0.9}, SamplingParams{.temperature = 0.7, .top_k = 50, .top_p = 0.8},
          SamplingParams{.top_k = 128}, SamplingParams{.top_k = 129, .min_p = 0.3}, SamplingParams{.top_k = 9000},
          SamplingParams{.temperature = 1.3, .top_p = 0.95, .min_p = 0.05}}) {
      for (std::uint64_t i = 0; i < 200; ++i) {
        const DrawKey key{4, 3, 2, i};
        std::vector<float> row = logits;
        const TokenId drawn = sample_token(row, {}, LogitsChain(params), params, key).id;
        ASSERT_EQ(drawn, plainly_drawn(logits, params, key)) << spread << ", " << params.top_k << ", draw " << i;
      }
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

// Wherever it is in the row: with `>` alone the tokens that follow it would be lost.
TEST(MostProbable, ANaNIsLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(best_tokens(std::vector<float>{nan, 1, 3, nan, 2}, 2), (std::vector<TokenId>{2, 4}));
  EXPECT_EQ(best_tokens(std::vector<float>{1, nan, 3}, 3), (std::vector<TokenId>{2, 0, 1}));
  EXPECT_EQ(best_tokens(std::vector<float>{nan, nan, -3}, 2), (std::vector<TokenId>{2, 0}));
  CandidateRow row;
  row.ids = {4, 2, 9};
  row.logits = row.model_logits = {1, nan, 3};
  const std::vector<GuidedToken> guided = {{4, 0}, {2, 0}, {9, 0}};
  EXPECT_EQ(sample_candidate(row, guided, {.temperature = 0}, {}).id, 9);
  EXPECT_EQ(sample_candidate(row, guided, {.top_p = 0.5}, {}).id, 9);
}

TEST(Sampler, RefusesARowWithoutATokenToDraw) {
  std::vector<float> logits = {1, 2};
  EXPECT_THROW(sample_candidate({}, {}, {}, {}), Error);
  const std::vector<std::uint64_t> none = {0};
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 1}, SamplingParams{.temperature = 0}}) {
    std::vector<float> row = logits;
    EXPECT_THROW(sample_token(row, {{}, none}, LogitsChain(params), params, {}), Error);
  }
}

TEST(Sampler, ATemperatureThatNoFloatHoldsTakesTheBest) {
  for (const float shift : {0.0f, -50.0f}) {
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 1e-40}, SamplingParams{.temperature = 1e-40, .top_p = 0.9}}) {
      std::vector<float> row = {1 + shift, 4 + shift, 2 + shift, 4 + shift};
      EXPECT_EQ(sample_token(row, {}, LogitsChain(params), params, {1, 2, 3, 4}).id, 1);
    }
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

}  // namespace sampler_test
}  // namespace magister
