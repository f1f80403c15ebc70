// Value-guided decoding against closed forms, and against complete passes of both models, token by token: caches,
// pages, neighbours and shards change no bit.
#include "magister/engine/guide.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "engine/generating.h"
#include "engine/row_sampler.h"
#include "magister/core/error.h"

namespace magister {
namespace guide_test {

double offset_of(GuideForm form, double multiplier, const std::vector<float>& values_L) {
  return guide_offset({form, multiplier, 1}, values_L);
}

TEST(GuideOffset, IsWhatTheFormSays) {
  EXPECT_DOUBLE_EQ(offset_of(GuideForm::kLogit, 4, {-1.5f}), -6);
  EXPECT_DOUBLE_EQ(offset_of(GuideForm::kExpectation, 0.25, {3}), 0.75);
  for (const double m : {0.25, 1.0, 4.0, 10.0}) {
    for (const float z : {-30.0f, -3.0f, 0.0f, 0.7f, 12.0f}) {
      const long double p = 1 / (1 + std::exp(-static_cast<long double>(z)));
      const auto want = static_cast<double>(std::log(1 - p + p * std::exp(static_cast<long double>(m))));
      EXPECT_NEAR(offset_of(GuideForm::kBernoulli, m, {z}), want, 1e-14 + 1e-12 * want) << m << " " << z;
    }
    const long double w[] = {std::exp(-1.0L), std::exp(0.5L), std::exp(2.0L)};
    const auto want = static_cast<double>(
        std::log((w[0] + w[1] * std::exp(0.5L * m) + w[2] * std::exp(1.0L * m)) / (w[0] + w[1] + w[2])));
    EXPECT_NEAR(offset_of(GuideForm::kHistogram, m, {-1, 0.5f, 2}), want, 1e-12);
  }
}

TEST(GuideOffset, HoldsItsDigitsWhereNumbersAreLarge) {
  EXPECT_NEAR(offset_of(GuideForm::kBernoulli, 1000, {0}), 1000 - std::log(2.0), 1e-9);
  EXPECT_NEAR(offset_of(GuideForm::kBernoulli, 1e6, {-1e4f}), 1e6 - 1e4, 1e-3);
  EXPECT_NEAR(offset_of(GuideForm::kBernoulli, 4, {1e30f}), 4, 1e-12);
  EXPECT_EQ(offset_of(GuideForm::kBernoulli, 4, {-1e30f}), 0);
  EXPECT_NEAR(offset_of(GuideForm::kBernoulli, 4, {-40}), std::expm1(4.0) * std::exp(-40.0),
              1e-28);  // softplus would say 0
  for (const float z : {0.0f, 3.0f, 1e5f, 1e10f, 1e30f}) {
    EXPECT_NEAR(offset_of(GuideForm::kBernoulli, 1e6, {z}), 1e6 - std::log1p(std::exp(-static_cast<double>(z))), 1e-6)
        << z;
    EXPECT_NEAR(offset_of(GuideForm::kHistogram, 1e6, {z, z}), 1e6 - std::log(2.0), 1e-6) << z;
  }
  EXPECT_TRUE(std::isnan(offset_of(GuideForm::kLogit, 4, {std::numeric_limits<float>::infinity()})));
  EXPECT_TRUE(std::isnan(offset_of(GuideForm::kBernoulli, 4, {std::numeric_limits<float>::quiet_NaN()})));
}

// The star graph of d arms; a reference that learnt the shortcut takes any arm. With the true values the right arm has
// probability e^m / (e^m + d - 1); with oracle win probabilities of pairs of independent texts the form `bernoulli`
// saturates. The numbers were computed without this program.
struct Star {
  int arms;
  GuideForm form;
  double multiplier;
  float right, wrong;
  double want;
};

double guided_probability(const Star& star, double& kl) {
  std::vector<float> logits_V(40, -200.0f);
  std::vector<GuidedToken> tokens;
  for (int arm = 0; arm < star.arms; ++arm) {
    logits_V[static_cast<std::size_t>(7 + arm)] = 1.25f;
    tokens.push_back(
        {static_cast<TokenId>(7 + arm), guide_offset({star.form, star.multiplier, star.arms},
                                                     std::vector<float>{arm == 1 ? star.right : star.wrong})});
  }
  kl = guide_kl(logits_V, tokens);
  LogitsChain(SamplingParams{}).apply(logits_V, {{}, {}, tokens});
  double sum = 0;
  for (const float logit : logits_V) sum += std::exp(static_cast<double>(logit));
  return std::exp(static_cast<double>(logits_V[8])) / sum;
}

TEST(GuidedDistribution, IsTheClosedFormOfTheStarGraph) {
  // P(win | right) and P(win | wrong) against a text of the reference, reward gap 5: a win is drawn with
  // sigmoid(difference).
  const auto win = [](int d, bool right) {
    const double s = 1 / (1 + std::exp(-5.0)), p = 1.0 / d;
    return right ? p * 0.5 + (1 - p) * s : p * (1 - s) + (1 - p) * 0.5;
  };
  const auto logit = [&](int d, bool right) {
    return static_cast<float>(std::log(win(d, right) / (1 - win(d, right))));
  };
  const float r = logit(3, true), w = logit(3, false);
  for (const Star& star :
       {Star{3, GuideForm::kLogit, 1, 1, 0, .576117}, Star{3, GuideForm::kLogit, 4, 1, 0, .964663},
        Star{3, GuideForm::kLogit, 10, 1, 0, .999909}, Star{5, GuideForm::kExpectation, 1, 1, 0, .404610},
        Star{5, GuideForm::kExpectation, 4, 1, 0, .931738}, Star{5, GuideForm::kExpectation, 10, 1, 0, .999818},
        Star{3, GuideForm::kBernoulli, 1, r, w, .434651}, Star{3, GuideForm::kBernoulli, 4, r, w, .544694},
        Star{3, GuideForm::kBernoulli, 10, r, w, .552561}, Star{3, GuideForm::kLogit, 1, r, w, .827445},
        Star{3, GuideForm::kLogit, 4, r, w, .999764}}) {
    double kl = 0;
    const double q = guided_probability(star, kl);
    EXPECT_NEAR(q, star.want, 1e-6) << star.arms << " arms, multiplier " << star.multiplier;
    const double other = (1 - q) / (star.arms - 1);
    EXPECT_NEAR(kl, q * std::log(q * star.arms) + (1 - q) * std::log(other * star.arms), 1e-6);
  }
}

// Offsets of any size: what they have in common cancels, and what is left is the closed form.
TEST(GuideKl, HoldsItsDigitsWhereOffsetsAreLarge) {
  constexpr int kVocabulary = 2000, kCandidates = 320;
  std::vector<float> logits_V(kVocabulary);
  for (int i = 0; i < kVocabulary; ++i) logits_V[static_cast<std::size_t>(i)] = static_cast<float>(i * 37 % 101) / 16;
  long double whole = 0;
  for (const float logit : logits_V) whole += std::exp(static_cast<long double>(logit));
  for (const double large : {0.0, 1.0, 1e5, 1e10, 1e30, -1e30, 1e36}) {
    for (const double step : {0.0, 0.25, 40.0, std::abs(large)}) {
      std::vector<GuidedToken> tokens;
      for (int i = 0; i < kCandidates; ++i) tokens.push_back({static_cast<TokenId>(3 * i), large + step * (i % 3)});
      const long double top = tokens[2].offset;
      long double z = 0, mean = 0;
      for (const GuidedToken& token : tokens) {
        const long double shifted = token.offset - top;
        const long double mass = std::exp(logits_V[static_cast<std::size_t>(token.id)] + shifted) / whole;
        z += mass;
        if (mass > 0) mean += mass * shifted;
      }
      EXPECT_NEAR(guide_kl(logits_V, tokens), static_cast<double>(mean / z - std::log(z)), 1e-6)
          << large << " " << step;
    }
    // All mass on one token: -ln p of it.
    EXPECT_NEAR(guide_kl(logits_V, std::vector<GuidedToken>{{5, large}}),
                static_cast<double>(std::log(whole)) - logits_V[5], 1e-6)
        << large;
  }
}

// Numbers of a diverged value model: a common offset hides nothing of the reference, and the differences decide.
TEST(GuidedDistribution, KeepsTheReferenceWhereOffsetsAreLarge) {
  const std::vector<float> row_V = {0.5f, 1.25f, -3, 2, 0};
  for (const double large : {0.0, 1e5, 1e10, 1e36, -1e36, 3e44, -3e44}) {
    const std::vector<GuidedToken> tokens = {{1, large}, {3, large}, {0, large}, {2, large - std::abs(large) / 4}};
    const std::size_t chosen = large == 0 ? 4 : 3;  // with any weight
    double sum = 0;
    for (std::size_t i = 0; i < chosen; ++i)
      sum += std::exp(static_cast<double>(row_V[static_cast<std::size_t>(tokens[i].id)]));
    std::vector<float> logits_V = row_V;
    LogitsChain(SamplingParams{}).apply(logits_V, {{}, {}, tokens});
    double guided_sum = 0;
    for (const float logit : logits_V) guided_sum += std::exp(static_cast<double>(logit));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto id = static_cast<std::size_t>(tokens[i].id);
      const double want = i < chosen ? std::exp(static_cast<double>(row_V[id])) / sum : 0;
      EXPECT_NEAR(std::exp(static_cast<double>(logits_V[id])) / guided_sum, want, 1e-6) << large << " " << id;
    }
    // The same row as a GPU gives it: shares of 4,000 draws, within four deviations.
    CandidateRow row;
    for (const GuidedToken& token : tokens) {
      row.ids.push_back(token.id);
      row.logits.push_back(row_V[static_cast<std::size_t>(token.id)]);
    }
    row.model_logits = row.logits;
    row.logsumexp = row.model_logsumexp = 0;
    SamplingParams sampling;
    sampling.temperature = 1;
    std::vector<int> drawn(row_V.size(), 0);
    for (std::uint64_t draw = 0; draw < 4000; ++draw)
      ++drawn[static_cast<std::size_t>(sample_candidate(row, tokens, sampling, {5, draw, 0, 0}).id)];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto id = static_cast<std::size_t>(tokens[i].id);
      const double want = i < chosen ? std::exp(static_cast<double>(row_V[id])) / sum : 0;
      EXPECT_NEAR(drawn[id] / 4000.0, want, 4 * std::sqrt(want * (1 - want) / 4000)) << large << " " << id;
    }
  }
}

TEST(BestTokens, LeaveExcludedOnesOut) {
  const std::vector<float> logits_V = {1, kExcluded, 3, 3, -5, kExcluded};
  EXPECT_EQ(best_tokens(logits_V, 2), (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(best_tokens(logits_V, 6), (std::vector<TokenId>{2, 3, 0, 4}));
}

class Guided : public Generating {
 protected:
  void SetUp() override {
    Generating::SetUp();
    ModelConfig& config = value_description_.config;
    config = description_.config;
    config.tie_word_embeddings = false;
    config.num_hidden_layers = 1;
    set_labels(1);
    sampling_.top_p = 0.95;
    guide_.candidates = 6;
    guide_.multiplier = 1.5;
  }
  void set_labels(std::size_t count) {
    ModelConfig& config = value_description_.config;
    config.labels.assign(count, "label");
    value_description_.names = hf_tensor_names(config);
    at::manual_seed(31);
    for (const ExpectedTensor& tensor : expected_tensors(config, value_description_.names)) {
      value_file_.add(tensor.name, tensor.shape);
      value_file_.values(tensor.name) =
          tensor.shape.size() == 1 ? at::ones(tensor.shape) : at::randn(tensor.shape) * 0.25;
    }
  }

  virtual Transformer load_value(ProcessGroup& group, ThreadPool& pool) const {
    return {value_description_, value_file_, group, pool, at::kFloat};
  }

  Texts write_guided(const GeneratorLimits& limits, std::int64_t pages, ProcessGroup& group,
                     Generator::Counts* counts = nullptr) {
    ThreadPool pool(1);
    Transformer model = load(group, pool), value = load_value(group, pool);
    Generator generator(model, limits, sampling_, 77, [this](auto, auto, const auto& tokens) { return stops(tokens); });
    generator.guide({&value, guide_, pages});
    for (const GenerationRequest& request : requests_) generator.add(request, texts_a_prompt_);
    Texts texts;
    while (!generator.idle()) {
      generator.step();
      for (Generation& done : generator.take_finished()) texts[{done.record, done.sample}] = std::move(done);
    }
    if (counts != nullptr) *counts = generator.counts();
    return texts;
  }
  Texts write_guided(const GeneratorLimits& limits, std::int64_t pages, Generator::Counts* counts = nullptr) {
    const auto group = make_single_process_group();
    return write_guided(limits, pages, *group, counts);
  }

  static at::Tensor last_row(Transformer& model, const std::vector<TokenId>& tokens) {
    const at::Tensor hidden_TD = model.forward(pack_sequences({tokens}));
    return model.logits(hidden_TD.narrow(0, hidden_TD.size(0) - 1, 1).contiguous());
  }

  // Both models whole, no cache, a candidate at a time.
  Texts write_guided_plainly() {
    const auto group = make_single_process_group();
    ThreadPool pool(1);
    Transformer model = load(*group, pool), value = load_value(*group, pool);
    const LogitsChain chain(sampling_);
    Texts texts;
    for (const GenerationRequest& request : requests_) {
      for (std::uint64_t sample = request.sample; sample < request.sample + texts_a_prompt_; ++sample) {
        Generation& text = texts[{request.record, sample}];
        std::vector<TokenId> tokens = request.prompt;
        while (static_cast<std::int64_t>(text.tokens.size()) < request.max_new_tokens) {
          at::Tensor logits_1V = last_row(model, tokens), reference_1V = logits_1V.clone();
          const std::span<float> logits_V(logits_1V.data_ptr<float>(), 300),
              reference_V(reference_1V.data_ptr<float>(), 300);
          chain.apply(reference_V, {tokens, {}});
          std::vector<GuidedToken> guided;
          for (const TokenId id : best_tokens(reference_V, guide_.candidates)) {
            std::vector<TokenId> longer = tokens;
            longer.push_back(id);
            const at::Tensor value_1L = last_row(value, longer);
            guided.push_back({id, guide_offset(guide_, {value_1L.const_data_ptr<float>(),
                                                        static_cast<std::size_t>(value_1L.size(1))})});
          }
          text.guide_kl.push_back(static_cast<float>(guide_kl(reference_V, guided)));
          const auto token = sample_token(logits_V, {tokens, {}, guided}, chain, sampling_,
                                          {77, request.record, sample, text.tokens.size()});
          tokens.push_back(token.id);
          text.tokens.push_back(token.id);
          text.logprobs.push_back(token.logprob);
          if (!stops(text.tokens)) continue;
          text.finish_reason = FinishReason::kStop;
          break;
        }
      }
    }
    return texts;
  }

  static void expect_same(const Texts& got, const Texts& want) {
    expect_equal(got, want);
    for (const auto& [key, text] : want)
      EXPECT_EQ(got.at(key).guide_kl, text.guide_kl) << key.first << "." << key.second;
  }

  GuideParams guide_;
  ModelDescription value_description_;
  MemoryTensorFile value_file_;
};

// The GPU's code of both models, its kernels run on the host.
class GuidedOnAGpu : public Guided {
 protected:
  void SetUp() override {
    Guided::SetUp();
    // Emulated threads are slow: two prompts with a beginning in common over page borders, one without, short texts.
    std::erase_if(requests_, [](const GenerationRequest& request) { return request.record > 3; });
    for (GenerationRequest& request : requests_)
      request.max_new_tokens = std::min<std::int64_t>(request.max_new_tokens, 6);
    guide_.candidates = 4;
  }
  Transformer load(ProcessGroup& group, ThreadPool& pool) override {
    if (on_cpu_) return Guided::load(group, pool);
    return {description_, file_, group, pool, dtype_, {}, gpu::Queue{}};
  }
  Transformer load_value(ProcessGroup& group, ThreadPool& pool) const override {
    if (on_cpu_) return Guided::load_value(group, pool);
    return {value_description_, value_file_, group, pool, at::kFloat, {}, gpu::Queue{}};
  }
  at::ScalarType dtype_ = at::kFloat;
  bool on_cpu_ = false;
};

TEST_F(Guided, EqualsBothModelsRunWholeToTheBit) {
  const Texts want = write_guided_plainly();
  double sum = 0;
  for (const auto& [key, text] : want)
    for (const float kl : text.guide_kl) sum += kl;
  EXPECT_GT(sum, 1) << "the guide changes next to nothing here";
  for (const GeneratorLimits& limits :
       {GeneratorLimits{32, 512, 100, true}, GeneratorLimits{1, 1000, 100, false}, GeneratorLimits{3, 7, 100, true}})
    expect_same(write_guided(limits, 200), want);
  EXPECT_NE(write({32, 512, 100, true}).at({3, 0}).tokens, want.at({3, 0}).tokens);
}

TEST_F(GuidedOnAGpu, InF32ItIsTheCpus) {
  const Texts got = write_guided({32, 512, 100, true}, 100);
  on_cpu_ = true;
  const Texts want = write_guided({32, 512, 100, true}, 100);
  double worst = 0;
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [key, text] : want) {
    EXPECT_EQ(got.at(key).tokens, text.tokens) << key.first;
    ASSERT_EQ(got.at(key).guide_kl.size(), text.guide_kl.size());
    for (std::size_t i = 0; i < text.guide_kl.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got.at(key).guide_kl[i]) - text.guide_kl[i]));
  }
  std::printf("largest difference of a KL: %.1e\n", worst);
  EXPECT_LT(worst, 1e-5);
}

TEST_F(Guided, AHistogramAndSeveralTextsAPromptToo) {
  set_labels(11);
  guide_.form = GuideForm::kHistogram;
  guide_.multiplier = 5;
  requests_ = {requests_[2], requests_[6]};
  texts_a_prompt_ = 3;
  Generator::Counts counts;
  expect_same(write_guided({32, 512, 100, true}, 200, &counts), write_guided_plainly());
  // The full pages of a prompt are computed once for its three texts.
  std::uint64_t prompts = 0;
  for (const GenerationRequest& request : requests_) prompts += request.prompt.size();
  EXPECT_LT(counts.guide_tokens, 3 * prompts + counts.written_tokens * static_cast<std::uint64_t>(guide_.candidates));
}

TEST_F(Guided, ACacheThatIsTooSmallForAllChangesNothing) {
  requests_.clear();
  for (std::uint64_t record = 0; record < 4; ++record)
    requests_.push_back({record, 0, std::vector<TokenId>(40, static_cast<TokenId>(7 * record)), 90});
  stop_after_ = 60;
  const Texts want = write_guided_plainly();
  Generator::Counts roomy, tight;
  expect_same(write_guided({32, 64, 60, true}, 200, &roomy), want);
  expect_same(write_guided({32, 64, 7, true}, 9, &tight), want);
  EXPECT_GT(tight.preemptions, 0u);
  EXPECT_GT(tight.guide_tokens, roomy.guide_tokens) << "no text was displaced";
}

TEST_F(GuidedOnAGpu, NeighboursBudgetsAndDisplacedTextsChangeNothing) {
  dtype_ = at::kBFloat16;
  sampling_ = {};  // rows that a device would draw from if nothing guided them
  sampling_.temperature = 0.9;
  Generator::Counts roomy, tight;
  const Texts alone = write_guided({1, 1000, 100, false}, 100, &roomy);
  expect_same(write_guided({32, 512, 100, true}, 100), alone);
  expect_same(write_guided({3, 7, 100, true}, 100), alone);
  // Room for one text and its candidates: each displaces the others, and is computed again from its first token.
  expect_same(write_guided({32, 512, 100, true}, 11, &tight), alone);
  EXPECT_GT(tight.guide_tokens, roomy.guide_tokens) << "no text was displaced";
}

TEST_F(Guided, ShardsChangeNothing) {
  const Texts want = write_guided({8, 64, 60, true}, 120);
  auto groups = make_thread_process_groups(2);
  std::vector<Texts> texts(2);
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < 2; ++s)
    threads.emplace_back([&, s] { texts[s] = write_guided({8, 64, 60, true}, 30, *groups[s]); });
  for (std::thread& thread : threads) thread.join();
  for (const Texts& one : texts) {
    for (const auto& [key, text] : want) EXPECT_EQ(one.at(key).tokens, text.tokens);
  }
  expect_same(texts[0], texts[1]);
}

TEST_F(Guided, WithMultiplierZeroItIsTheReference) {
  guide_.multiplier = 0;
  const Texts got = write_guided({32, 512, 100, true}, 100);
  expect_equal(got, write({32, 512, 100, true}));
  for (const auto& [key, text] : got) EXPECT_TRUE(text.guide_kl.empty());
}

// Token 280 is the only one that begins a text, and the value model has 200 tokens.
TEST_F(Guided, RefusesAConstraintWhoseTokensCannotBeRated) {
  std::vector<std::string> bytes;
  for (int i = 0; i < 290; ++i)
    bytes.push_back({static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26)});
  const std::vector<TokenId> ends{299};
  const Constraint constraint({ConstraintRule::Kind::kRegex, "uk", {}, "test"}, bytes, ends, 300);
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  const Transformer model = load(*group, pool);
  RowSampler sampler(model, {32, 512, 100, true});
  Sequence sequence;
  sequence.request = {4, 2, {}, 8, &constraint};
  sequence.request.decoding = std::make_shared<const Decoding>(sampling_, 77);
  sequence.tokens = {1, 2};
  sequence.constraint.emplace(constraint);
  const std::vector<float> logits_V(300, 0.5f);
  EXPECT_EQ(best_tokens(sampler.processed(sequence, logits_V), 6), std::vector<TokenId>{280});
  sampler.read_guided_rows(6, 200);
  try {
    sampler.processed(sequence, logits_V);
    ADD_FAILURE() << "a row without a token was returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("record 4, text 2: after 0 tokens every token"), std::string::npos)
        << error.what();
  }
}

TEST_F(Guided, RefusesWhatDoesNotFit) {
  const auto refuses = [&](const std::string& words) {
    try {
      write_guided({32, 512, 100, true}, 60);
      ADD_FAILURE() << "was not refused: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  guide_.candidates = 301;
  refuses("301 candidates (the vocabulary has 300 entries)");
  guide_.candidates = 58;
  refuses("they would never fit");
  guide_.candidates = 6;
  guide_.form = GuideForm::kHistogram;
  refuses("gives 1 numbers");
  guide_.form = GuideForm::kLogit;
  guide_.multiplier = -1;
  refuses("multiplier is -1");
  guide_.multiplier = 1;
  value_file_.values("score.weight").fill_(std::numeric_limits<float>::quiet_NaN());
  refuses("is not finite");
}

}  // namespace guide_test
}  // namespace magister
