// A model for each block that decides what a layer keeps for its backward pass, as changes to a small Llama's
// config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace magister::training_bytes_test {

inline nlohmann::json models_of_blocks() {
  nlohmann::json models = nlohmann::json::parse(R"([
    {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32,
     "intermediate_size": 176, "sliding_window": 64, "swiglu_limit": 7.0},
    {"model_type": "gemma2", "head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32,
     "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    {"model_type": "olmo2"},
    {"model_type": "cohere", "logit_scale": 0.5},
    {"model_type": "gpt_neox", "num_key_value_heads": null},
    {"model_type": "bloom", "n_layer": 4, "n_head": 8},
    {"model_type": "apertus"},
    {"model_type": "nemotron", "head_dim": 32},
    {"model_type": "persimmon", "num_key_value_heads": null},
    {"model_type": "hunyuan_v1_dense", "head_dim": 32},
    {"model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 32,
     "intermediate_size": 176, "intermediate_size_mlp": 704, "attention_chunk_size": 64,
     "interleave_moe_layer_step": 2},
    {"model_type": "gemma4_text", "head_dim": 32, "global_head_dim": 64, "hidden_size_per_layer_input": 0,
     "sliding_window": 64, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
     "moe_intermediate_size": 176},
    {"model_type": "laguna", "head_dim": 32, "sliding_window": 64, "num_experts": 4, "num_experts_per_tok": 2,
     "moe_intermediate_size": 176, "shared_expert_intermediate_size": 176, "gating": "per-element",
     "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    {"model_type": "mimo_v2_flash", "head_dim": 48, "v_head_dim": 32, "sliding_window": 64, "n_routed_experts": 4,
     "num_experts_per_tok": 2, "moe_intermediate_size": 176},
    {"model_type": "qwen3_moe", "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2,
     "moe_intermediate_size": 176}])");
  const nlohmann::json rope = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  for (nlohmann::json& model : models) {
    model["architectures"] = nullptr;
    const std::string type = model["model_type"];
    if (type == "apertus" || type == "nemotron" || type == "persimmon" || type == "hunyuan_v1_dense")
      model["rope_parameters"] = rope;
    if (type == "laguna" || type == "mimo_v2_flash")
      model["rope_parameters"] = {{"full_attention", rope}, {"sliding_attention", rope}};
    if (type == "laguna" || type == "mimo_v2_flash" || type == "gemma4_text")
      model["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  }
  return models;
}

}  // namespace magister::training_bytes_test
