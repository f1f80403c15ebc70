// Shared by the tests of the generator: a tiny Llama in memory, requests of many lengths, and texts by one complete
// forward pass per token.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "magister/engine/generator.h"
#include "magister/engine/logits_processor.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"

namespace magister {

using Texts = std::map<std::pair<std::uint64_t, std::uint64_t>, Generation>;

class Generating : public testing::Test {
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
    change(config);
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

  virtual void change(ModelConfig&) {}  // for tests of another model

  bool stops(const std::vector<TokenId>& tokens) const {
    return tokens.size() > stop_after_ && tokens.back() % stop_every_ == 5;
  }
  std::size_t stop_after_ = 0;
  TokenId stop_every_ = 37;
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

// The GPU's code in bf16, its kernels run on the host. Rows of texts and of prompts have kernels of their own there.
class GeneratingOnAGpu : public Generating {
 protected:
  Transformer load(ProcessGroup& group, ThreadPool& pool) override {
    return {description_, file_, group, pool, dtype_, quantization_, gpu::Queue{}};
  }
  at::ScalarType dtype_ = at::kBFloat16;
  QuantScheme quantization_{};
};

}  // namespace magister
