// Gemma 3n's config.json: the defaults of transformers' class, MLPs of several sizes, faults, tensors that are not
// read, and ids that are not text.
#include <gtest/gtest.h>

#include "model/config_folder.h"

namespace magister {
namespace gemma3n_config_test {

class Gemma3nConfig : public Folder {
 protected:
  // Two layers that share no keys.
  static json small(const char* patch = "{}") {
    json source = base_config("gemma3n_text");
    source.merge_patch(json::parse(R"({"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 4,
      "vocab_size_per_layer_input": 60, "laurel_rank": 3, "altup_num_inputs": 2, "layer_types": null})"));
    source.merge_patch(json::parse(patch));
    return source;
  }
};

TEST_F(Gemma3nConfig, HasTheDefaultsOfItsClass) {
  json source = base_config("gemma3n_text");
  for (const char* key : {"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size",
                          "vocab_size", "rope_theta", "tie_word_embeddings"})
    source.erase(key);
  source["intermediate_size"] = std::vector<int>(35, 8192);
  source["intermediate_size"][34] = 12288;  // parts of a larger model have MLPs of several sizes
  const ModelConfig config = describe(source);
  EXPECT_EQ(config.num_hidden_layers, 35);
  EXPECT_EQ(config.per_layer_vocab, 262144);
  EXPECT_EQ(config.per_layer_width, 256);
  EXPECT_EQ(config.gate_sparsity_of(9), 0.95);
  EXPECT_EQ(config.gate_sparsity_of(10), 0);
  EXPECT_EQ(config.altup->inputs, 4);
  EXPECT_TRUE(config.altup->scales_corrected);
  EXPECT_EQ(config.altup->coef_clip, 120.0);
  source["altup_coef_clip"] = nullptr;
  EXPECT_EQ(describe(source).altup->coef_clip, 0.0);
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_TRUE(config.tie_word_embeddings && config.slides(3) && !config.slides(4));
  EXPECT_EQ(config.kv_layer(34), 19);
  EXPECT_EQ(config.kv_layer(33), 18);
  EXPECT_EQ(config.final_logit_softcapping, 30.0);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.sliding_rope->theta, 1e4);
  EXPECT_EQ(config.intermediate_size, 4096);
  EXPECT_EQ(config.mlp_widths_of(0), 2);
  EXPECT_EQ(config.mlp_widths_of(34), 3);
}

TEST_F(Gemma3nConfig, FaultsAreNamed) {
  const auto refused = [&](const char* patch, const std::vector<std::string>& words) {
    expect_refused([&] { describe(small(patch)); }, words);
  };
  refused(R"({"activation_sparsity_pattern": [0.5]})", {"activation_sparsity_pattern has 1 numbers", "2 layers"});
  refused(R"({"activation_sparsity_pattern": [0.5, 1.0]})", {"activation_sparsity_pattern is 1.0"});
  refused(R"({"activation_sparsity_pattern": 0.5})", {"a list of numbers"});
  refused(R"({"intermediate_size": [8, 8, 8]})", {"intermediate_size has 3 numbers", "2 layers"});
  refused(R"({"altup_active_idx": 2})", {"altup_active_idx is 2"});
  refused(R"({"num_kv_shared_layers": 2})", {"num_kv_shared_layers is 2"});
  refused(R"({"num_kv_shared_layers": 1, "layer_types": ["sliding_attention", "full_attention"]})",
          {"layer 1 shares the keys"});
  refused(R"({"hidden_activation": "gelu"})", {"hidden_activation is \"gelu\""});
  json llama = base_config("llama");
  llama["intermediate_size"] = {8, 8};
  expect_refused([&] { describe(llama); }, {"intermediate_size is"});
}

// Published files hold keys and values of layers that read those of others.
TEST_F(Gemma3nConfig, UnusedKeysOfSharedLayersAreNotRead) {
  const json source = small(R"({"num_kv_shared_layers": 1, "layer_types": ["full_attention", "full_attention"]})");
  const ModelDescription description = describe_with_tensors(source, [](MemoryTensorFile& file) {
    file.add("model.layers.1.self_attn.k_proj.weight", {12, 24});
    file.add("model.layers.1.self_attn.k_norm.weight", {6});
  });
  EXPECT_TRUE(description.names.layers[1].k_proj.empty());
}

// In the model of images, sounds and texts; vocab_offset is that of the encoders' tables.
TEST_F(Gemma3nConfig, IdsOfImagesAreKnown) {
  json outer = json::parse(R"({"model_type": "gemma3n", "architectures": ["Gemma3nForConditionalGeneration"],
    "vision_config": {"vocab_offset": 50}, "audio_config": {"vocab_offset": 55}})");
  outer["text_config"] = small();
  outer["text_config"].erase("architectures");
  EXPECT_EQ(describe(outer).first_other_id, 50);
  outer.erase("vision_config");
  EXPECT_EQ(describe(outer).first_other_id, 55);
  EXPECT_EQ(describe(small()).first_other_id, 0);
}

}  // namespace gemma3n_config_test
}  // namespace magister
