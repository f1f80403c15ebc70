// The rules of generation_config.json that a checkpoint returns: by the caller's question, not by the first one.
#include "magister/runtime/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "magister/engine/model_rules.h"

namespace magister {
namespace checkpoint_test {

namespace fs = std::filesystem;
using Words = std::vector<std::vector<TokenId>>;

class CheckpointRules : public testing::Test {
 protected:
  CheckpointRules() : folder_(fs::temp_directory_path() / fmt::format("magister_checkpoint_{}", ::getpid())) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json")
        << R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 24,
               "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
               "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "eos_token_id": 2})";
    std::ofstream(folder_ / "generation_config.json")
        << R"({"eos_token_id": 2, "bad_words_ids": [[2], [5]], "min_new_tokens": 3})";
    section_.path = folder_.string();
    section_.random.emplace();
  }
  ~CheckpointRules() override { fs::remove_all(folder_); }

  fs::path folder_;
  ModelSection section_;
};

TEST_F(CheckpointRules, FollowEachCallsQuestion) {
  for (const bool ends_first : {true, false}) {
    Checkpoint checkpoint(section_);
    for (const bool ends_count : {ends_first, !ends_first, ends_first}) {
      const auto rules = checkpoint.rules(ends_count);
      ASSERT_NE(rules, nullptr);
      EXPECT_EQ(rules->bad_words, ends_count ? Words{{5}} : (Words{{2}, {5}})) << "a text must be able to end";
      EXPECT_EQ(rules->end_tokens, ends_count ? std::vector<TokenId>{2} : std::vector<TokenId>{});
    }
  }
}

// Results of tasks that asked one question keep their identity; who asked both depends on both.
TEST_F(CheckpointRules, HashCoversWhatWasAsked) {
  Checkpoint with(section_), without(section_), both(section_), reversed(section_);
  EXPECT_EQ(with.rules_sha256(), "");
  EXPECT_NE(with.rules(true), nullptr);
  EXPECT_NE(without.rules(false), nullptr);
  EXPECT_NE(with.rules_sha256(), without.rules_sha256());
  for (const bool ends_count : {true, false}) {
    both.rules(ends_count);
    reversed.rules(!ends_count);
  }
  EXPECT_EQ(both.rules_sha256(), reversed.rules_sha256());
  EXPECT_NE(both.rules_sha256(), with.rules_sha256());
  EXPECT_NE(both.rules_sha256(), without.rules_sha256());
}

// Apertus 1.5 has embeddings of 64 tokens here, and outputs of 60: bans of the others change nothing. Ids behind all of
// them are faults, and so is a beginning that no text can have.
TEST_F(CheckpointRules, LeaveOutTokensWithoutOutputs) {
  std::ofstream(folder_ / "config.json")
      << R"({"model_type": "apertus1p5_text", "architectures": ["Apertus1p5TextForCausalLM"], "vocab_size": 64,
             "output_vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4,
             "num_key_value_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64, "eos_token_id": 2,
             "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})";
  const auto rules_of = [&](const char* text) {
    std::ofstream(folder_ / "generation_config.json") << text;
    return Checkpoint(section_).rules(true);
  };
  const auto rules = rules_of(R"({"eos_token_id": 2, "suppress_tokens": [5, 60, 63], "bad_words_ids": [[63], [7, 8]],
                                  "sequence_bias": [[[61], 2.0], [[9], 3.0]]})");
  ASSERT_NE(rules, nullptr);
  EXPECT_EQ(rules->suppressed, std::vector<TokenId>{5});
  EXPECT_EQ(rules->bad_words, (Words{{7, 8}}));
  ASSERT_EQ(rules->sequence_bias.size(), 1u);
  EXPECT_EQ(rules->sequence_bias.front().first, std::vector<TokenId>{9});
  EXPECT_THROW(rules_of(R"({"suppress_tokens": [64]})"), Error);
  EXPECT_THROW(rules_of(R"({"forced_bos_token_id": 61})"), Error);
}

}  // namespace checkpoint_test
}  // namespace magister
