// The device sampler on the host, thread by thread, against sample_token(): equal when greedy; equal for draws, except
// where the uniform lies at a boundary between two tokens, which the definition in double below decides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "engine/gpu/sample_kernel.h"
#include "magister/device/launch.h"
#include "magister/engine/logits_processor.h"
#include "magister/engine/sampler.h"

namespace magister::gpu {
namespace gpu_sampler_test {

struct Rows {
  std::int64_t R, V;
  std::vector<float> logits;
  std::vector<float> row(std::int64_t r) const { return {logits.begin() + r * V, logits.begin() + (r + 1) * V}; }
};

// Normal logits of several widths; every fourth row holds many equal ones.
Rows random_rows(std::int64_t R, std::int64_t V, unsigned seed) {
  Rows rows{R, V, std::vector<float>(static_cast<std::size_t>(R * V))};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t r = 0; r < R; ++r) {
    const float width = 0.1f * static_cast<float>(1 << (r % 7)), step = r % 4 == 3 ? 0.5f : 0.0f;
    for (std::int64_t v = 0; v < V; ++v) {
      const float z = normal(random) * width;
      rows.logits[static_cast<std::size_t>(r * V + v)] = step > 0 ? std::round(z / step) * step : z;
    }
  }
  return rows;
}

DrawKey key_of(std::int64_t r) { return {5, static_cast<std::uint64_t>(r), 0, 9}; }

std::vector<SampledToken> on_device(const Rows& rows, const SamplingParams& params) {
  std::vector<double> uniform(static_cast<std::size_t>(rows.R));
  for (std::int64_t r = 0; r < rows.R; ++r) uniform[static_cast<std::size_t>(r)] = keyed_uniform(key_of(r));
  std::vector<std::int32_t> ids(uniform.size(), -7);
  std::vector<float> logprobs(uniform.size(), NAN);
  const SampleRows kernel{rows.logits.data(), rows.V,
                          uniform.data(),     ids.data(),
                          logprobs.data(),    static_cast<int>(rows.V),
                          params.temperature, static_cast<int>(params.top_k),
                          params.top_p,       params.min_p};
  launch(kernel, kernel.shape(rows.R), Queue{});
  std::vector<SampledToken> tokens;
  for (std::size_t r = 0; r < ids.size(); ++r) tokens.push_back({ids[r], logprobs[r]});
  return tokens;
}

// Tokens that a draw may give, in the order of its running sum, and that sum over the whole.
struct Distribution {
  std::vector<TokenId> ids;
  std::vector<double> until;
  TokenId at(double uniform) const {
    const auto place = std::upper_bound(until.begin(), until.end(), uniform) - until.begin();
    return ids[std::min(static_cast<std::size_t>(place), ids.size() - 1)];
  }
};

Distribution distribution(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<float> x;
  for (const float z : row) x.push_back(static_cast<float>(z / params.temperature));
  const double top = *std::max_element(x.begin(), x.end());
  const auto weight = [&](TokenId id) { return std::exp(x[static_cast<std::size_t>(id)] - top); };
  Distribution result;
  result.ids.resize(row.size());
  std::iota(result.ids.begin(), result.ids.end(), 0);
  std::vector<TokenId>& ids = result.ids;
  if (params.top_k > 0 || params.top_p < 1) {
    const auto better = [&](TokenId a, TokenId b) {
      return x[static_cast<std::size_t>(a)] > x[static_cast<std::size_t>(b)];
    };
    std::stable_sort(ids.begin(), ids.end(), better);
  }
  if (params.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(params.top_k)));
  const auto sum = [&] {
    return std::accumulate(ids.begin(), ids.end(), 0.0, [&](double s, TokenId id) { return s + weight(id); });
  };
  if (params.top_p < 1) {
    const double needed = params.top_p * sum();
    double mass = 0;
    std::size_t count = 0;
    while (count < ids.size() && (count == 0 || mass < needed)) mass += weight(ids[count++]);
    ids.resize(count);
  }
  if (params.min_p > 0) std::erase_if(ids, [&](TokenId id) { return weight(id) < params.min_p; });
  const double total = sum();
  double reached = 0;
  for (const TokenId id : ids) result.until.push_back((reached += weight(id)) / total);
  return result;
}

// How many tokens differ from sample_token()'s; each of them must be at a boundary.
int differing(const Rows& rows, const SamplingParams& params) {
  const std::vector<SampledToken> got = on_device(rows, params);
  int count = 0;
  for (std::int64_t r = 0; r < rows.R; ++r) {
    const SampledToken& token = got[static_cast<std::size_t>(r)];
    std::vector<float> row = rows.row(r);
    const SampledToken wanted = sample_token(row, {}, LogitsChain(params), params, key_of(r));
    if (token.id == wanted.id) {
      EXPECT_NEAR(token.logprob, wanted.logprob, 2e-6f * (1 + std::abs(wanted.logprob))) << r;
      continue;
    }
    ++count;
    if (params.temperature == 0) continue;
    const Distribution exact = distribution(rows.row(r), params);
    const double uniform = keyed_uniform(key_of(r));
    EXPECT_TRUE(exact.at(uniform - 1e-6) == token.id || exact.at(uniform + 1e-6) == token.id)
        << "row " << r << ": " << token.id;
  }
  return count;
}

class Sampler : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override { set_host_order(GetParam()); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
INSTANTIATE_TEST_SUITE_P(Orders, Sampler, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

TEST_P(Sampler, GreedyTakesTheHighestLogitAndOfEqualOnesTheLowestId) {
  EXPECT_EQ(differing(random_rows(100, 333, 1), {.temperature = 0}), 0);
  EXPECT_EQ(differing(random_rows(20, 1000, 2), {.temperature = 0}), 0);
}

TEST_P(Sampler, DrawsAreThoseOfTheCpu) {
  const std::vector<SamplingParams> all = {{},
                                           {.temperature = 0.7},
                                           {.min_p = 0.05},
                                           {.top_k = 1},
                                           {.top_k = 20},
                                           {.top_k = 5000},
                                           {.top_p = 0.9},
                                           {.top_p = 0.001},
                                           {.temperature = 1.3, .top_k = 50, .top_p = 0.95, .min_p = 0.02},
                                           {.temperature = 0.6, .top_p = 0.8, .min_p = 0.1}};
  int count = 0, rows = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    count += differing(random_rows(60, i % 2 == 0 ? 500 : 777, static_cast<unsigned>(10 + i)), all[i]);
    rows += 60;
  }
  EXPECT_LE(count, rows / 1000) << "of " << rows;
}

TEST_P(Sampler, NothingIsDrawnFromARowThatIsNotFinite) {
  for (const float fault : {NAN, INFINITY, -INFINITY}) {
    Rows rows = random_rows(3, 500, 3);
    rows.logits[500 + 333] = fault;  // row 1
    for (const SamplingParams& params : {SamplingParams{.temperature = 0}, SamplingParams{}, SamplingParams{.top_k = 5},
                                         SamplingParams{.top_p = 0.5}}) {
      const std::vector<SampledToken> got = on_device(rows, params);
      EXPECT_EQ(got[1].id, -1);
      EXPECT_TRUE(std::isnan(got[1].logprob));
      for (const std::size_t sound : {0, 2}) EXPECT_TRUE(got[sound].id >= 0 && std::isfinite(got[sound].logprob));
    }
  }
}

// Bins with more candidates than fit: flat rows, rows with two values, and differences of 2^-20 nats.
TEST_P(Sampler, FullBinsAreLookedIntoFinerAndFinerUpToEqualTokens) {
  Rows rows{4, 4000, std::vector<float>(16000, 0.25f)};
  for (int v = 0; v < 4000; ++v) {
    if (v % 3 == 0) rows.logits[static_cast<std::size_t>(4000 + v)] = 0.125f;
    rows.logits[static_cast<std::size_t>(8000 + v)] = 0.25f + static_cast<float>(v * 37 % 4000) * 0x1p-22f;
    rows.logits[static_cast<std::size_t>(12000 + v)] = static_cast<float>(v % 7) * 0x1p-60f;  // below every bin's width
  }
  for (const SamplingParams& params :
       std::vector<SamplingParams>{{}, {.top_k = 3000}, {.top_p = 0.7}, {.top_k = 2500, .top_p = 0.9}}) {
    const std::vector<SampledToken> got = on_device(rows, params);
    for (std::int64_t r = 0; r < 3; ++r) {
      std::vector<float> row = rows.row(r);
      EXPECT_EQ(got[static_cast<std::size_t>(r)].id, sample_token(row, {}, LogitsChain(params), params, key_of(r)).id)
          << r << ": " << params.top_k;
    }
    EXPECT_GE(got[3].id, 0);
    EXPECT_NEAR(got[3].logprob, -std::log(4000.0f), 1e-4f);
  }
}

TEST_P(Sampler, TokensThatAreOutAreNeverDrawn) {
  Rows rows{2, 600, std::vector<float>(1200, -1e30f)};
  rows.logits[77] = 3.0f;
  rows.logits[600 + 5] = rows.logits[600 + 590] = -2.0f;
  for (const SamplingParams& params :
       std::vector<SamplingParams>{{.temperature = 0}, {}, {.top_k = 40}, {.top_p = 0.99}, {.min_p = 0.1}}) {
    EXPECT_EQ(differing(rows, params), 0);
    EXPECT_EQ(on_device(rows, params)[0].id, 77);
  }
}

// The block of a large vocabulary, with rows that keep to 16 bytes and rows that do not.
TEST_P(Sampler, LargeVocabularies) {
  for (const std::int64_t V : {20000, 20001}) {
    for (const SamplingParams& params :
         std::vector<SamplingParams>{{.temperature = 0}, {}, {.top_k = 50, .top_p = 0.9}}) {
      EXPECT_EQ(differing(random_rows(7, V, 3), params), 0);
    }
  }
}

}  // namespace gpu_sampler_test
}  // namespace magister::gpu
