// A guide's candidates in rows on a GPU, with its kernels run on the host, against the processors that change rows on
// the host.
#include "engine/gpu_candidates.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "engine/generating.h"
#include "engine/row_sampler.h"
#include "engine/sequence.h"
#include "magister/engine/guide.h"

namespace magister {
namespace gpu_candidates_test {

constexpr std::int64_t kCandidates = 4;

using CandidatesOnAGpu = Generating;

// Rows with a constraint next to a row without one equal those of the host's processors; some have fewer tokens than
// candidates.
TEST_F(CandidatesOnAGpu, ConstrainedRowsAreReducedWhereTheyAre) {
  std::vector<std::string> bytes;
  for (int i = 0; i < 290; ++i)
    bytes.push_back({static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26)});
  const std::vector<TokenId> ends{299};
  const Constraint many({ConstraintRule::Kind::kRegex, "[a-k]{8}", {}, "test"}, bytes, ends, 300),
      few({ConstraintRule::Kind::kRegex, "(ab|cd)[a-k]{6}", {}, "test"}, bytes, ends, 300);
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  const Transformer model(description_, file_, *group, pool, at::kFloat, {}, gpu::Queue{});
  sampling_.repetition_penalty = 1.3;
  sampling_.logit_bias = {{40, 2.5f}, {26, -1.0f}};
  GeneratorLimits limits{32, 512, 100, true};
  limits.top_logprobs = 3;
  RowSampler sampler(model, limits);
  const auto decoding = std::make_shared<const Decoding>(sampling_, 77);
  sampler.read_guided_rows(kCandidates, model.config().vocab_size);
  std::vector<Sequence> sequences(4);
  const Constraint* const constraints[] = {&many, nullptr, &few, &many};
  at::manual_seed(5);
  const at::Tensor logits_RV = at::randn({4, 300}) * 4, before_RV = logits_RV.clone();
  for (const bool all : {false, true}) {  // with one that is free, and without
    std::vector<Sequence*> asked;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Sequence& one = sequences[i];
      one.request = {i, 0, {}, 8, constraints[i]};
      one.request.decoding = decoding;
      one.tokens = {26, 40, 41, static_cast<TokenId>(7 * i)};
      one.constraint.reset();
      if (constraints[i] != nullptr) one.constraint.emplace(*constraints[i]);
      if (!all || constraints[i] != nullptr) asked.push_back(&one);
    }
    const at::Tensor asked_RV = all ? at::cat({logits_RV.narrow(0, 0, 1), logits_RV.narrow(0, 2, 2)}) : logits_RV;
    const at::Tensor kept_RV = asked_RV.clone();
    const RowSampler::Rows rows = sampler.read(asked, asked_RV);
    EXPECT_TRUE(at::equal(asked_RV, kept_RV)) << "the rows are the model's";
    EXPECT_FALSE(rows.on_host.defined()) << "whole rows have come to the host";
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::span<const float> row_V(kept_RV.const_data_ptr<float>() + 300 * i, 300);
      const std::vector<float> reference_V = sampler.processed(*asked[i], row_V);
      ASSERT_TRUE(rows.rows[i].candidates.has_value()) << i;
      const CandidateRow& found = *rows.rows[i].candidates;
      EXPECT_EQ(found.ids, best_tokens(reference_V, kCandidates)) << i;
      EXPECT_EQ(found.ids.size(), asked[i]->request.constraint == &few ? 2u : 4u);
      std::vector<GuidedToken> guided;
      for (std::size_t c = 0; c < found.ids.size(); ++c) {
        const auto id = static_cast<std::size_t>(found.ids[c]);
        EXPECT_EQ(found.logits[c], reference_V[id]);
        EXPECT_EQ(found.model_logits[c], row_V[id]);
        guided.push_back({found.ids[c], 0.5 * static_cast<double>(c)});
      }
      EXPECT_NEAR(guide_kl(found.logits, found.logsumexp, guided), guide_kl(reference_V, guided), 1e-6);
      std::vector<TokenId> top;
      std::vector<float> logprobs;
      append_most_probable(row_V, 3, top, logprobs);
      EXPECT_EQ(found.top_ids, top);
      for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(found.top_logprobs[k], logprobs[k], 1e-5);
      Sequence other;
      other.request = asked[i]->request;
      other.tokens = asked[i]->tokens;
      if (other.request.constraint != nullptr) other.constraint.emplace(*other.request.constraint);
      std::vector<float> copy_V(row_V.begin(), row_V.end());
      sampler.sample(other, {copy_V, {}, {}}, guided);
      sampler.sample(*asked[i], rows.rows[i], guided);
      EXPECT_EQ(asked[i]->tokens.back(), other.tokens.back());
      EXPECT_NEAR(asked[i]->logprobs.back(), other.logprobs.back(), 1e-5);
      asked[i]->logprobs.clear();
      asked[i]->top_ids.clear();
      asked[i]->top_logprobs.clear();
    }
  }
  EXPECT_TRUE(at::equal(logits_RV, before_RV));
}

// A model with a broken weight gives no numbers: the sums show that, and the other row is the same as alone.
TEST(CandidatesOfRows, ARowWithoutNumbersHasNone) {
  at::manual_seed(6);
  at::Tensor logits_RV = at::randn({2, 300}) * 4;
  logits_RV[0].fill_(std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::uint64_t> all(5, ~std::uint64_t{0});
  for (const bool constrained : {false, true}) {
    const RowHistory history{{}, constrained ? std::span<const std::uint64_t>(all) : std::span<const std::uint64_t>()};
    const std::vector<CandidateRow> rows =
        candidates_on_device(logits_RV.clone(), {history, history}, {}, kCandidates, 0, gpu::Queue{});
    EXPECT_TRUE(rows[0].ids.empty());
    EXPECT_TRUE(std::isnan(rows[0].model_logsumexp));
    const std::span<const float> row_V(logits_RV.const_data_ptr<float>() + 300, 300);
    EXPECT_EQ(rows[1].ids, best_tokens(row_V, kCandidates));
    EXPECT_NEAR(rows[1].model_logsumexp, logits_RV[1].logsumexp(0).item<double>(), 1e-5);
  }
}

}  // namespace gpu_candidates_test
}  // namespace magister
