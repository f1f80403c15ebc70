// Requests that bring a decoding of their own: each text is the one that a generator with this decoding alone would
// write, its tokens are reported as they come, and a cancelled text takes nothing from its neighbours. The tests run on
// the CPU and with the GPU's kernels on the host.
#include "magister/engine/decoding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/generating.h"
#include "magister/core/error.h"

namespace magister {
namespace decoding_test {

using Key = std::pair<std::uint64_t, std::uint64_t>;

// Three ways to draw: what follows the highest logit, hot, and cut to a few tokens with a bias.
std::vector<SamplingParams> three_ways() {
  std::vector<SamplingParams> ways(3);
  ways[0].temperature = 0;
  ways[1].temperature = 1.3;
  ways[2].top_k = 5;
  ways[2].logit_bias = {{17, 2.0F}, {250, -4.0F}};
  return ways;
}

template <typename Base>
class Decodings : public Base {
 protected:
  static Decoding::Stop stop_of(std::size_t way) {
    return [way](auto, auto, const std::vector<TokenId>& tokens) {
      return way == 1 && tokens.size() > 3 && tokens.back() % 11 == 5;
    };
  }

  // way < 3: all requests use this one, which the generator gets. 3: each request brings its own. cancelled: texts that
  // are cancelled after two passes.
  Texts write_in(std::size_t way, const std::vector<Key>& cancelled = {}, std::uint64_t texts_a_prompt = 1) {
    const auto group = make_single_process_group();
    ThreadPool pool(1);
    Transformer model = this->load(*group, pool);
    std::vector<std::shared_ptr<const Decoding>> decodings;
    for (std::size_t i = 0; i < 3; ++i) {
      decodings.push_back(std::make_shared<const Decoding>(
          three_ways()[i], 100 + i, stop_of(i),
          [this](std::uint64_t record, std::uint64_t sample, const SampledToken& token) {
            told_[{record, sample}].push_back(token.id);
          }));
    }
    told_.clear();
    Generator generator(model, {8, 64, 60, true}, decodings[way < 3 ? way : 0]);
    for (GenerationRequest request : this->requests_) {
      if (way == 3) request.decoding = decodings[(request.record + request.sample) % 3];
      generator.add(request, texts_a_prompt);
    }
    Texts texts;
    for (int pass = 0; !generator.idle(); ++pass) {
      generator.step();
      for (Generation& done : generator.take_finished()) texts[{done.record, done.sample}] = std::move(done);
      if (pass != 1) continue;
      for (const auto& [record, sample] : cancelled) {
        EXPECT_EQ(generator.cancel(record, sample), !texts.contains({record, sample}));
        EXPECT_FALSE(generator.cancel(record, sample)) << "it is gone";
      }
    }
    return texts;
  }

  void each_request_has_its_own() {
    std::vector<Texts> alone;
    for (std::size_t way = 0; way < 3; ++way) alone.push_back(write_in(way));
    const Texts mixed = write_in(3);
    ASSERT_EQ(mixed.size(), this->requests_.size());
    for (const auto& [key, text] : mixed) {
      EXPECT_EQ(text.tokens, told_.at(key)) << "reported as they came";
      const Generation& want = alone[(key.first + key.second) % 3].at(key);
      EXPECT_EQ(text.tokens, want.tokens) << key.first;
      EXPECT_EQ(text.logprobs, want.logprobs) << key.first;
      EXPECT_EQ(text.finish_reason, want.finish_reason) << key.first;
    }
    EXPECT_NE(alone[0].at({last_, 0}).tokens, alone[1].at({last_, 0}).tokens) << "the ways differ";
    EXPECT_NE(alone[1].at({last_, 0}).tokens, alone[2].at({last_, 0}).tokens) << "the ways differ";
  }

  void the_others_go_on() {
    const std::vector<Key> gone = {{2, 0}, {3, 0}, {last_, 0}};
    Texts want = write_in(3);
    const Texts got = write_in(3, gone);
    for (const Key& key : gone) {
      if (!got.contains(key)) want.erase(key);
    }
    EXPECT_LT(got.size(), this->requests_.size()) << "nothing was cancelled";
    this->expect_equal(got, want);
  }

  // Cancels the first of four texts of a prompt, which computes it, and the last, which may wait.
  void texts_of_its_prompt_go_on() {
    std::erase_if(this->requests_, [](const GenerationRequest& request) { return request.sample > 0; });
    Texts want = write_in(3, {}, 4);
    const Texts got = write_in(3, {{0, 0}, {last_, 0}, {last_, 3}, {2, 1}}, 4);
    std::erase_if(want, [&](const auto& text) { return !got.contains(text.first); });
    EXPECT_GE(got.size() + 4, 4 * this->requests_.size());
    EXPECT_LT(got.size(), 4 * this->requests_.size()) << "nothing was cancelled";
    this->expect_equal(got, want);
  }

  std::uint64_t last_ = 8;  // the last request's record

 private:
  std::map<Key, std::vector<TokenId>> told_;
};

using OnACpu = Decodings<Generating>;
// Emulated threads are slow: four prompts and short texts.
class OnAGpu : public Decodings<GeneratingOnAGpu> {
 protected:
  void SetUp() override {
    Decodings<GeneratingOnAGpu>::SetUp();
    last_ = 4;
    std::erase_if(requests_,
                  [](const GenerationRequest& one) { return one.record > 4 || one.record == 1 || one.sample > 0; });
    for (GenerationRequest& request : requests_)
      request.max_new_tokens = std::min<std::int64_t>(request.max_new_tokens, 6);
  }
};

TEST_F(OnACpu, EachRequestHasItsOwn) { each_request_has_its_own(); }
TEST_F(OnAGpu, EachRequestHasItsOwn) { each_request_has_its_own(); }
TEST_F(OnACpu, TheOthersGoOnWhenOneIsCancelled) { the_others_go_on(); }
TEST_F(OnAGpu, TheOthersGoOnWhenOneIsCancelled) { the_others_go_on(); }
TEST_F(OnACpu, TextsOfItsPromptGoOn) { texts_of_its_prompt_go_on(); }
TEST_F(OnAGpu, TextsOfItsPromptGoOn) { texts_of_its_prompt_go_on(); }

TEST_F(OnACpu, ABiasOutsideTheVocabularyIsRefusedWithItsRequest) {
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  Transformer model = load(*group, pool);
  Generator generator(model, {8, 64, 60, true}, std::make_shared<const Decoding>(SamplingParams(), 1));
  SamplingParams wrong;
  wrong.logit_bias = {{300, 1.0F}};
  GenerationRequest request = requests_.front();
  request.decoding = std::make_shared<const Decoding>(wrong, 1);
  EXPECT_THROW(generator.add(request), Error);
  EXPECT_TRUE(generator.idle());
}

}  // namespace decoding_test
}  // namespace magister
