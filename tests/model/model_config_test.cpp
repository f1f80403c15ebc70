// The values read from each family's config, files that are not configs, tensors that contradict the config, and a tied
// head in the file. transformers itself also reads the accepted configs in oracle_test.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tuple>

#include "model/config_folder.h"

namespace magister {
namespace model_config_test {

using Config = Folder;

TEST_F(Config, LlamaFields) {
  json source = base_config("llama");
  source["attention_bias"] = true;
  source["mlp_bias"] = true;
  const ModelConfig config = describe(source);
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.head_dim, 6);
  EXPECT_EQ(config.eos_token_id, 2);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias);
  EXPECT_FALSE(config.qk_norm || config.tie_word_embeddings);
  EXPECT_EQ(config.sliding_window, 0);
}

TEST_F(Config, DefaultsWhereKeysAreAbsentOrNull) {
  json source = base_config("llama");
  for (const char* key : {"num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps", "tie_word_embeddings"})
    source.erase(key);
  source["rope_scaling"] = nullptr;
  source["quantization_config"] = nullptr;
  const ModelConfig config = describe(source);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 6);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope.kind, RopeConfig::Kind::kDefault);
}

TEST_F(Config, RopeInItsThreeSpellings) {
  for (const char* spelling : {"type", "rope_type", "rope_parameters"}) {
    json source = base_config("llama");
    const bool newest = spelling == std::string("rope_parameters");
    json rope = {
        {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
    rope[newest ? "rope_type" : spelling] = "llama3";
    if (newest) {
      source.erase("rope_theta");
      rope["rope_theta"] = 500000.0;
    }
    source[newest ? "rope_parameters" : "rope_scaling"] = rope;
    const RopeConfig read = describe(source).rope;
    EXPECT_EQ(read.kind, RopeConfig::Kind::kLlama3) << spelling;
    EXPECT_EQ(read.theta, 500000.0);
    EXPECT_EQ(read.factor, 8.0);
    EXPECT_EQ(read.original_max_position_embeddings, 64);
  }
}

TEST_F(Config, RotaryBaseThatIsNotSaidIsItsClassesOwn) {
  for (const auto& [type, theta] : {std::pair("cohere", 500000.0), std::pair("cohere2", 10000.0),
                                    std::pair("smollm3", 2000000.0), std::pair("llama", 10000.0)}) {
    json source = base_config(type);
    source.erase("rope_theta");
    EXPECT_EQ(describe(source).rope.theta, theta) << type;
  }
}

// As LLaVA is published.
TEST_F(Config, SizesThatATextDecoderLeavesToItsClass) {
  json source = {{"model_type", "llava"}, {"text_config", {{"model_type", "llama"}, {"vocab_size", 32064}}}};
  const ModelConfig llama = describe(source);
  EXPECT_EQ(std::tuple(llama.vocab_size, llama.hidden_size, llama.intermediate_size, llama.num_hidden_layers),
            std::tuple(32064, 4096, 11008, 32));
  EXPECT_EQ(std::tuple(llama.num_attention_heads, llama.num_key_value_heads, llama.max_position_embeddings),
            std::tuple(32, 32, 2048));
  source["text_config"] = {{"model_type", "mistral"}};
  const ModelConfig mistral = describe(source);
  EXPECT_EQ(std::tuple(mistral.intermediate_size, mistral.num_key_value_heads, mistral.max_position_embeddings),
            std::tuple(14336, 8, 131072));
}

// transformers uses YaRN if a config names no type, also for an empty rope_scaling, and the outer number of positions.
TEST_F(Config, GptOssRopeThatIsNotSaid) {
  json source = base_config("gpt_oss");
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) source.erase(key);
  for (const char* part : {"nothing", "rope_scaling"}) {
    if (part == std::string("rope_scaling")) source[part] = json::object();
    source.erase("original_max_position_embeddings");
    EXPECT_EQ(describe(source).rope.kind, RopeConfig::Kind::kYarn) << part;
    EXPECT_EQ(describe(source).rope.original_max_position_embeddings, 4096) << part;
    source["original_max_position_embeddings"] = 64;
    EXPECT_EQ(describe(source).rope.original_max_position_embeddings, 64) << part;
  }
  source.erase("rope_scaling");
  source["rope_parameters"] = json::object();
  EXPECT_EQ(describe(source).rope.kind, RopeConfig::Kind::kDefault);
}

TEST_F(Config, MistralWindow) {
  json source = base_config("mistral");
  EXPECT_EQ(describe(source).sliding_window, 4096);  // transformers' default
  source["sliding_window"] = nullptr;
  EXPECT_EQ(describe(source).sliding_window, 0);
  source["sliding_window"] = 8;
  EXPECT_EQ(describe(source).sliding_window, 8);
  EXPECT_TRUE(describe(source).layer_is_sliding.empty());
}

TEST_F(Config, QwenWindows) {
  for (const char* type : {"qwen2", "qwen3"}) {
    json source = base_config(type);
    source["sliding_window"] = 8;
    source["max_window_layers"] = 1;
    EXPECT_EQ(describe(source).sliding_window, 0);  // not switched on
    source["use_sliding_window"] = true;
    EXPECT_EQ(describe(source).sliding_window, 8);
    EXPECT_EQ(describe(source).layer_is_sliding, (std::vector<bool>{false, true}));
    source["layer_types"] = {"sliding_attention", "full_attention"};
    EXPECT_EQ(describe(source).layer_is_sliding, (std::vector<bool>{true, false}));
    EXPECT_EQ(describe(source).qkv_bias, type == std::string("qwen2"));
    EXPECT_EQ(describe(source).qk_norm, type == std::string("qwen3"));
    EXPECT_FALSE(describe(source).o_bias);
  }
  json source = base_config("qwen3");
  source.erase("head_dim");
  EXPECT_EQ(describe(source).head_dim, 128);
}

TEST_F(Config, FilesThatAreNoConfig) {
  expect_refused([&] { describe_config((folder_ / "absent.json").string()); }, {"absent.json", "not a file"});
  expect_refused([&] { describe_config(folder_.string()); }, {"not a file"});
  expect_refused([&] { describe_config(write("")); }, {"not valid JSON"});
  expect_refused([&] { describe_config(write("{\"a\": 1,")); }, {"not valid JSON"});
  expect_refused([&] { describe_config(write("[1, 2]")); }, {"array", "not an object"});
  expect_refused([&] { describe_config(write(std::string(100000, '['))); }, {"not valid JSON"});
  expect_refused([&] { describe_config(write("{\"model_type\": \"\xff\xfe\"}")); }, {"not valid JSON"});
  expect_refused([&] { describe_config(write(std::string(HfConfig::kMaxBytes + 1, ' '))); }, {"1048577 bytes"});
  const std::string deep =
      "{\"x\": " + std::string(100000, '[') + std::string(100000, ']') + ", \"model_type\": \"y\"}";
  expect_refused([&] { describe_config(write(deep)); }, {"model_type"});
}

TEST_F(Config, TensorsThatContradictTheConfig) {
  const json source = base_config("llama");
  EXPECT_EQ(describe_with_tensors(source, [](auto&) {}).names.layers.size(), 2u);
  const auto refused = [&](const std::function<void(MemoryTensorFile&)>& change,
                           const std::vector<std::string>& words) {
    expect_refused([&] { describe_with_tensors(source, change); }, words);
  };
  refused([](auto& f) { f.remove("model.layers.1.mlp.up_proj.weight"); },
          {"model.layers.1.mlp.up_proj.weight is missing", "[40, 24]"});
  refused([](auto& f) { f.remove("lm_head.weight"); }, {"lm_head.weight is missing"});
  refused([](auto& f) { f.add("model.layers.2.mlp.up_proj.weight", {40, 24}); },
          {"model.layers.2.mlp.up_proj.weight", "is not used"});
  refused([](auto& f) { f.add("model.layers.0.self_attn.q_proj.bias", {24}); }, {"q_proj.bias [24]", "is not used"});
  refused([](auto& f) { f.add("evil\x1b[2J", {1}); }, {"evil\\x1B"});
  refused([](auto& f) { f.add("model.embed_tokens.weight", {65, 24}); },
          {"embed_tokens.weight is [65, 24]", "[64, 24]"});
  refused([](auto& f) { f.add("model.layers.0.self_attn.k_proj.weight", {24, 24}); },
          {"k_proj.weight is [24, 24]", "[12, 24]"});
  refused([](auto& f) { f.add("model.norm.weight", {24, 1}); }, {"model.norm.weight is [24, 1]", "[24]"});
  refused([](auto& f) { f.add("model.norm.weight", {24}, StorageType::kI8); }, {"model.norm.weight is stored as"});
  // Buffers of old files change nothing.
  describe_with_tensors(source, [](auto& f) { f.add("model.layers.0.self_attn.rotary_emb.inv_freq", {3}); });
}

TEST_F(Config, TiedHeadThatIsInTheFile) {
  json source = base_config("llama");
  source["tie_word_embeddings"] = true;
  EXPECT_TRUE(describe_with_tensors(source, [](auto&) {}).config.tie_word_embeddings);
  const ModelDescription same = describe_with_tensors(source, [](auto& f) {
    f.add("lm_head.weight", {64, 24});
    f.values("lm_head.weight") = f.values("model.embed_tokens.weight").clone();
  });
  EXPECT_TRUE(same.config.tie_word_embeddings);
  EXPECT_EQ(same.names.lm_head, "");
  const ModelDescription other = describe_with_tensors(source, [](auto& f) {
    f.add("lm_head.weight", {64, 24});
    f.values("lm_head.weight") = f.values("model.embed_tokens.weight").clone();
    f.values("lm_head.weight")[63][23] += 1;
  });
  EXPECT_FALSE(other.config.tie_word_embeddings);
  EXPECT_EQ(other.names.lm_head, "lm_head.weight");
}

// The spelling of Gemma 3's own files, older than one rotary embedding for each type of layer.
TEST_F(Config, GemmaReadsOldAndNewSpellings) {
  json old = base_config("gemma3_text");
  old.erase("tie_word_embeddings");
  old.merge_patch(json::parse(R"({"num_hidden_layers": 12, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 512, "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 168, "final_logit_softcapping": null})"));
  json now = old;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"})
    now.erase(key);
  now["rope_parameters"] = json::parse(R"({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})");
  for (const ModelConfig& config : {describe(old), describe(now)}) {
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.rope.kind, RopeConfig::Kind::kLinear);
    ASSERT_TRUE(config.sliding_rope);
    EXPECT_EQ(config.sliding_rope->theta, 10000.0);
    EXPECT_EQ(config.sliding_rope->kind, RopeConfig::Kind::kDefault);
    EXPECT_TRUE(config.slides(4) && !config.slides(5) && config.slides(6));
    EXPECT_EQ(config.final_logit_softcapping, 0);
    EXPECT_DOUBLE_EQ(config.attention_multiplier, 1 / std::sqrt(168.0));
    EXPECT_TRUE(config.tie_word_embeddings && config.norm_weights_plus_one && config.qk_norm);
  }
  json gemma = base_config("gemma");  // the files of Gemma 1 say gelu and mean its approximation
  gemma["hidden_act"] = "gelu";
  gemma.erase("head_dim");
  EXPECT_EQ(describe(gemma).activation, Activation::kGeluTanh);
  EXPECT_EQ(describe(gemma).head_dim, 256);
  json gemma2 = base_config("gemma2");
  EXPECT_EQ(describe(gemma2).attn_logit_softcapping, 50.0);
  gemma2["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(describe(gemma2).attn_logit_softcapping, 0.0);
}

// transformers' GPTNeoXConfig: the object, else rotary_emb_base and rotary_pct, else 10000 and 0.25.
TEST_F(Config, GptNeoxRotaryEmbeddingInEachSpelling) {
  const auto read = [&](const char* patch) {
    json source = base_config("gpt_neox");
    source.merge_patch(json::parse(R"({"hidden_size": 64, "head_dim": null, "num_key_value_heads": null})"));
    source.merge_patch(json::parse(patch));
    const ModelConfig config = describe(source);
    return std::pair(config.rope.theta, config.rotary_dim);
  };
  using Read = std::pair<double, std::int64_t>;
  EXPECT_EQ(read("{}"), Read(10000, 4));
  EXPECT_EQ(read(R"({"rotary_emb_base": 300, "rotary_pct": 0.5})"), Read(300, 8));
  EXPECT_EQ(read(R"({"rope_parameters": {"rope_type": "default"}, "rotary_emb_base": 300})"), Read(300, 4));
  EXPECT_EQ(read(R"({"rope_scaling": {"type": "linear", "factor": 2.0}, "rotary_emb_base": 300})"), Read(300, 4));
  EXPECT_EQ(read(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 200, "partial_rotary_factor": 0.5},
                     "rotary_emb_base": 300, "rotary_pct": 1.0})"),
            Read(200, 8));
  EXPECT_EQ(read(R"({"rope_theta": 300, "rotary_emb_base": 300})"), Read(300, 4));
}

// The residual multiplier is contained in the multipliers of the embeddings and of eps.
TEST_F(Config, GraniteDividesTheResidualStream) {
  json source = base_config("granite");
  source.merge_patch(
      json::parse(R"({"embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.5,
                                     "logits_scaling": 8.0})"));
  const ModelConfig config = describe(source);
  EXPECT_DOUBLE_EQ(config.embedding_multiplier, 48.0);
  EXPECT_DOUBLE_EQ(config.rms_norm_eps, 16e-5);
  EXPECT_EQ(config.attention_multiplier, 0.5);
  EXPECT_EQ(config.logit_scale, 0.125);
}

}  // namespace model_config_test
}  // namespace magister
