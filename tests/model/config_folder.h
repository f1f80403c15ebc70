// A folder for one test that takes a config.json, a base config of each family to change, and the form of a refusal.
// Tensors that match a config are in memory (MemoryTensorFile).
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/model/model_config.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"

namespace magister {

using nlohmann::json;

inline json base_config(const std::string& type) {
  json config = json::parse(R"({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": [2, 3], "torch_dtype": "bfloat16",
    "use_cache": true, "attention_dropout": 0.0, "transformers_version": "4.44.0"})");
  config["model_type"] = type;
  const std::map<std::string, const char*> classes = {{"llama", "LlamaForCausalLM"},
                                                      {"mistral", "MistralForCausalLM"},
                                                      {"qwen2", "Qwen2ForCausalLM"},
                                                      {"qwen3", "Qwen3ForCausalLM"},
                                                      {"gemma", "GemmaForCausalLM"},
                                                      {"gemma2", "Gemma2ForCausalLM"},
                                                      {"gemma3_text", "Gemma3ForCausalLM"},
                                                      {"gemma3n_text", "Gemma3nForCausalLM"},
                                                      {"gemma4_text", "Gemma4ForCausalLM"},
                                                      {"phi3", "Phi3ForCausalLM"},
                                                      {"olmo2", "Olmo2ForCausalLM"},
                                                      {"olmo3", "Olmo3ForCausalLM"},
                                                      {"gpt_oss", "GptOssForCausalLM"},
                                                      {"smollm3", "SmolLM3ForCausalLM"},
                                                      {"granite", "GraniteForCausalLM"},
                                                      {"glm", "GlmForCausalLM"},
                                                      {"glm4", "Glm4ForCausalLM"},
                                                      {"cohere", "CohereForCausalLM"},
                                                      {"cohere2", "Cohere2ForCausalLM"},
                                                      {"mixtral", "MixtralForCausalLM"},
                                                      {"qwen3_moe", "Qwen3MoeForCausalLM"},
                                                      {"olmoe", "OlmoeForCausalLM"},
                                                      {"gpt_neox", "GPTNeoXForCausalLM"},
                                                      {"gpt2", "GPT2LMHeadModel"},
                                                      {"gemma3", ""},
                                                      {"qwen3_vl", ""},
                                                      {"mistral3", ""},
                                                      {"llava_next", ""},
                                                      {"qwen2_moe", ""},
                                                      {"glm4_moe", ""},
                                                      {"hunyuan_v1_moe", ""}};  // "": the test gives the class, or none
  config["architectures"] = json::array({classes.at(type)});
  if (type.starts_with("gemma")) config["hidden_act"] = "gelu_pytorch_tanh";
  if (type.starts_with("glm")) config["partial_rotary_factor"] = 0.7;  // 4 numbers of 6
  if (type == "gpt_neox") config.erase("rope_theta");                  // its own name is rotary_emb_base
  if (type == "gpt2")
    config.merge_patch(json::parse(R"({"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 128,
                                     "hidden_act": null, "intermediate_size": null})"));
  return config;
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "." + info->name();
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = std::filesystem::temp_directory_path() / ("magister_model_config_" + name + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = (folder_ / "config.json").string();
    std::ofstream(path) << text;
    return path;
  }
  ModelConfig describe(const json& config) { return describe_config(write(config.dump())).config; }

  // Describes the folder with tensors in memory that suit its config, after `change`.
  ModelDescription describe_with_tensors(const json& config, const std::function<void(MemoryTensorFile&)>& change) {
    const ModelDescription expected = describe_config(write(config.dump()));
    MemoryTensorFile file;
    for (const auto& tensor : expected_tensors(expected.config, expected.names)) file.add(tensor.name, tensor.shape);
    change(file);
    return describe_model(folder_.string(), file);
  }

  template <typename Call>
  static void expect_refused(Call call, const std::vector<std::string>& words) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected a message with " << words.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      const std::string message = error.what();
      for (const std::string& word : words)
        EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos);
      EXPECT_NE(message.find("; "), std::string::npos) << "no advice in: " << message;
    }
  }

  std::filesystem::path folder_;
};

}  // namespace magister
