// A table of config.json files and GGUF headers that must be refused with the fault's name and value.
// Each case changes one thing of a config that is accepted.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/config_folder.h"

namespace magister {
namespace model_config_refused_test {

struct Refusal {
  const char* name;
  const char* type;
  const char* patch;  // merged into the base config; null removes a key
  std::vector<std::string> words;
};
void PrintTo(const Refusal& r, std::ostream* out) { *out << r.name; }

class RefusedConfig : public Folder, public testing::WithParamInterface<Refusal> {};

TEST_P(RefusedConfig, NamesTheFault) {
  json source = base_config(GetParam().type);
  source.merge_patch(json::parse(GetParam().patch));
  expect_refused([&] { describe(source); }, GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedConfig,
    testing::Values(
        Refusal{"unknown_model_type", "llama", R"({"model_type": "rwkv"})", {"model_type", "rwkv", "llama, mistral"}},
        Refusal{"no_model_type", "llama", R"({"model_type": null})", {"model_type"}},
        Refusal{"model_type_with_escape", "llama", R"({"model_type": "a\u001b[2Jb"})", {"\\x1B"}},
        Refusal{"classifier_of_tokens",
                "llama",
                R"({"architectures": ["LlamaForTokenClassification"]})",
                {"architectures", "TokenClassification", "LlamaForSequenceClassification"}},
        Refusal{"labels_with_a_gap",
                "llama",
                R"({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "2": "b"}})",
                {"id2label"}},
        Refusal{"no_labels",
                "llama",
                R"({"architectures": ["LlamaForSequenceClassification"], "id2label": {}})",
                {"id2label"}},
        Refusal{"labels_without_number",
                "llama",
                R"({"architectures": ["LlamaForSequenceClassification"], "num_labels": 0})",
                {"num_labels"}},
        Refusal{"no_vocab_size", "llama", R"({"vocab_size": null})", {"vocab_size", "missing"}},
        Refusal{"no_hidden_size", "llama", R"({"hidden_size": null})", {"hidden_size", "missing"}},
        Refusal{"zero_layers", "llama", R"({"num_hidden_layers": 0})", {"num_hidden_layers is 0"}},
        Refusal{"negative_hidden", "llama", R"({"hidden_size": -24})", {"hidden_size is -24"}},
        Refusal{"huge_hidden", "llama", R"({"hidden_size": 99999999999})", {"hidden_size is 99999999999", "1048576"}},
        Refusal{"above_64_bits",
                "llama",
                R"({"vocab_size": 18446744073709551615})",
                {"vocab_size is 18446744073709551615"}},
        Refusal{"real_hidden", "llama", R"({"hidden_size": 24.0})", {"hidden_size is 24.0", "whole number"}},
        Refusal{"text_hidden", "llama", R"({"hidden_size": "24"})", {"hidden_size is \"24\""}},
        Refusal{"true_heads", "llama", R"({"num_attention_heads": true})", {"num_attention_heads is true"}},
        Refusal{"list_vocab", "llama", R"({"vocab_size": [1]})", {"vocab_size is a list"}},
        Refusal{
            "kv_heads_do_not_divide", "llama", R"({"num_key_value_heads": 3})", {"4 attention heads", "3 key/value"}},
        Refusal{"more_kv_heads", "llama", R"({"num_key_value_heads": 8})", {"4 attention heads", "8 key/value"}},
        Refusal{"odd_head_dim", "llama", R"({"head_dim": 5})", {"head size 5"}},
        Refusal{"hidden_over_heads",
                "llama",
                R"({"head_dim": null, "num_attention_heads": 10, "num_key_value_heads": 5})",
                {"head size 0", "24 / 10"}},
        Refusal{"zero_eps", "llama", R"({"rms_norm_eps": 0.0})", {"rms_norm_eps is 0.0"}},
        Refusal{"negative_eps", "llama", R"({"rms_norm_eps": -1e-6})", {"rms_norm_eps is -1e-06"}},
        Refusal{"text_eps", "llama", R"({"rms_norm_eps": "1e-6"})", {"rms_norm_eps is \"1e-6\""}},
        Refusal{"zero_theta", "llama", R"({"rope_theta": 0})", {"rope_theta is 0"}},
        Refusal{"tie_text", "llama", R"({"tie_word_embeddings": "yes"})", {"tie_word_embeddings is \"yes\""}},
        Refusal{"gelu", "llama", R"({"hidden_act": "gelu"})", {"hidden_act", "gelu", "silu"}},
        Refusal{"unknown_rope",
                "llama",
                R"({"rope_scaling": {"rope_type": "su", "factor": 4.0}})",
                {"rope type \"su\" in rope_scaling",
                 "family: default, linear, dynamic, llama3, yarn, proportional; results"}},
        Refusal{"rope_types_with_longrope",
                "phi3",
                R"({"rope_scaling": {"rope_type": "su"}})",
                {"family: default, linear, dynamic, llama3, yarn, longrope; results"}},
        Refusal{"yarn_beta", "llama", R"({"rope_scaling": {"rope_type": "yarn", "beta_fast": 0}})", {"beta_fast is 0"}},
        Refusal{"outer_without_text_config",
                "gemma3",
                R"({"architectures": null})",
                {"text_config is not an object", "gemma3"}},
        Refusal{"outer_classifier",
                "gemma3",
                R"({"architectures": ["Gemma3ForSequenceClassification"], "text_config": {}})",
                {"Gemma3ForSequenceClassification", "Gemma3ForConditionalGeneration"}},
        Refusal{"outer_of_another_text",
                "qwen3_vl",
                R"({"architectures": null, "text_config": {"model_type": "llama"}})",
                {"text_config.model_type is \"llama\"", "qwen3_vl_text"}},
        Refusal{"outer_of_an_unknown_text",
                "mistral3",
                R"({"architectures": null, "text_config": {"model_type": "mamba"}})",
                {"model_type is \"mamba\""}},
        Refusal{
            "outer_of_a_text_with_scaled_logits",
            "llava_next",
            R"({"architectures": null, "text_config": {"model_type": "granite", "vocab_size": 320, "hidden_size": 64,
                   "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "max_position_embeddings": 128, "logits_scaling": 8.0}})",
            {"text_config is a granite whose logits are scaled", "llava_next"}},
        Refusal{"outer_that_looks_ahead",
                "gemma3",
                R"({"architectures": null, "text_config": {"use_bidirectional_attention": true}})",
                {"use_bidirectional_attention is true"}},
        Refusal{"groups_of_one_expert",
                "glm4_moe",
                R"({"architectures": null, "n_routed_experts": 4, "n_group": 4, "topk_group": 2,
                    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8, "partial_rotary_factor": 0.5})",
                {"4 experts in 4 groups"}},
        Refusal{"hunyuan_moe_layers_differ",
                "hunyuan_v1_moe",
                R"({"architectures": null, "num_experts": 4, "moe_topk": [1, 2]})",
                {"moe_topk differs by layer"}},
        Refusal{"longrope", "llama", R"({"rope_scaling": {"type": "longrope", "long_factor": [1]}})", {"longrope"}},
        Refusal{"rope_text", "llama", R"({"rope_scaling": "linear"})", {"rope_scaling is \"linear\"", "an object"}},
        Refusal{"rope_type_number", "llama", R"({"rope_scaling": {"type": 3}})", {"rope_scaling.type is 3"}},
        Refusal{"linear_without_factor",
                "llama",
                R"({"rope_scaling": {"type": "linear"}})",
                {"rope_scaling.factor is missing"}},
        Refusal{"linear_factor_zero",
                "llama",
                R"({"rope_scaling": {"type": "linear", "factor": 0}})",
                {"rope_scaling.factor is 0"}},
        Refusal{
            "llama3_bands_crossed",
            "llama",
            R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 5, "high_freq_factor": 4}})",
            {"low_freq_factor is 5"}},
        Refusal{"llama3_half_given",
                "llama",
                R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
                {"low_freq_factor is missing"}},
        Refusal{"dynamic_head_of_two",
                "llama",
                R"({"head_dim": 2, "rope_scaling": {"rope_type": "dynamic", "factor": 2}})",
                {"head size 2", "dynamic"}},
        Refusal{"rope_by_layer",
                "qwen3",
                R"({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}})",
                {"rope_parameters.full_attention", "differ by layer"}},
        Refusal{"rope_unknown_part",
                "llama",
                R"({"rope_scaling": {"type": "default", "mrope_section": [1, 2]}})",
                {"rope_scaling.mrope_section"}},
        Refusal{"partial_rotary", "llama", R"({"partial_rotary_factor": 0.5})", {"partial_rotary_factor is 0.5"}},
        Refusal{"partial_rotary_inside",
                "llama",
                R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})",
                {"rope_parameters.partial_rotary_factor is 0.5"}},
        Refusal{"quantised",
                "llama",
                R"({"quantization_config": {"quant_method": "quanto", "bits": 4}})",
                {"quantization_config.quant_method is \"quanto\""}},
        Refusal{"softcap", "llama", R"({"attn_logit_softcapping": 50.0})", {"attn_logit_softcapping is 50.0"}},
        Refusal{"logit_softcap", "llama", R"({"final_logit_softcapping": 30.0})", {"final_logit_softcapping is 30.0"}},
        Refusal{"temperature", "llama", R"({"attn_temperature_tuning": true})", {"attn_temperature_tuning is true"}},
        Refusal{"granite_multiplier", "llama", R"({"embedding_multiplier": 12.0})", {"embedding_multiplier is 12.0"}},
        Refusal{"experts", "mistral", R"({"num_local_experts": 8})", {"num_local_experts is 8", "mixture"}},
        Refusal{"more_experts_a_token_than_there_are",
                "mixtral",
                R"({"num_local_experts": 2, "num_experts_per_tok": 3})",
                {"3 experts a token are more than the 2"}},
        Refusal{"no_experts", "mixtral", R"({"num_local_experts": 0})", {"num_local_experts is 0"}},
        Refusal{"width_of_experts_missing", "qwen3_moe", R"({"num_experts": 4})", {"moe_intermediate_size is missing"}},
        Refusal{"dense_layer_beyond_the_last",
                "qwen3_moe",
                R"({"num_experts": 8, "moe_intermediate_size": 8, "mlp_only_layers": [0, 2]})",
                {"mlp_only_layers", "2"}},
        Refusal{"clipped_to_zero", "olmoe", R"({"num_experts": 8, "clip_qkv": 0.0})", {"clip_qkv is 0"}},
        Refusal{
            "attention_by_layer", "gpt2", R"({"scale_attn_by_inverse_layer_idx": true})", {"scale_attn_by_inverse"}},
        Refusal{"uneven_heads", "gpt2", R"({"n_head": 5, "num_attention_heads": null})", {"n_embd is 24 and n_head 5"}},
        Refusal{"two_numbers_of_heads",
                "gpt2",
                R"({"num_attention_heads": 2})",
                {"num_attention_heads is 2", "n_head is 4"}},
        Refusal{"two_numbers_of_positions",
                "gpt2",
                R"({"max_position_embeddings": 5})",
                {"max_position_embeddings is 5", "n_positions is 128"}},
        Refusal{"two_numbers_of_experts",
                "mixtral",
                R"({"num_local_experts": 8, "num_experts": 4})",
                {"num_local_experts is 8", "num_experts is 4"}},
        Refusal{"gpt2_activation", "gpt2", R"({"activation_function": "relu"})", {"activation_function is \"relu\""}},
        Refusal{"neox_activation", "gpt_neox", R"({"hidden_act": "relu"})", {"hidden_act is \"relu\""}},
        Refusal{"neox_theta_by_the_common_key",
                "gpt_neox",
                R"({"rope_theta": 500, "rotary_pct": 1.0})",
                {"rope_theta is 500", "10000"}},
        Refusal{"neox_two_thetas",
                "gpt_neox",
                R"({"rope_theta": 700, "rotary_emb_base": 500, "rotary_pct": 1.0})",
                {"rope_theta is 700", "500", "rotary_emb_base"}},
        Refusal{"neox_two_fractions",
                "gpt_neox",
                R"({"partial_rotary_factor": 0.5, "rotary_pct": 1.0})",
                {"partial_rotary_factor is 0.5", "rotary_pct"}},
        Refusal{"llama_window", "llama", R"({"sliding_window": 4096})", {"sliding_window", "mistral"}},
        Refusal{"llama_layer_types",
                "llama",
                R"({"layer_types": ["full_attention", "sliding_attention"]})",
                {"layer_types", "sliding_attention"}},
        Refusal{"mistral_window_zero", "mistral", R"({"sliding_window": 0})", {"sliding_window is 0"}},
        Refusal{"mistral_mixed_layers",
                "mistral",
                R"({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]})",
                {"layer_types", "full_attention"}},
        Refusal{"qwen_short_layer_types", "qwen2", R"({"layer_types": ["full_attention"]})", {"2 layers have 1 kinds"}},
        Refusal{"qwen_unknown_layer_type",
                "qwen2",
                R"({"layer_types": ["full_attention", "linear_attention"]})",
                {"linear_attention"}},
        Refusal{"qwen_sliding_without_window",
                "qwen3",
                R"({"layer_types": ["full_attention", "sliding_attention"]})",
                {"sliding_attention", "use_sliding_window"}},
        Refusal{"layer_types_text",
                "qwen3",
                R"({"layer_types": "full_attention"})",
                {"layer_types is \"full_attention\"", "list"}},
        Refusal{
            "layer_types_numbers", "qwen3", R"({"layer_types": [1, 2]})", {"layer_types is a list", "list of texts"}},
        Refusal{"gemma_relu", "gemma", R"({"hidden_act": "relu"})", {"hidden_act", "relu"}},
        Refusal{"gemma_silu", "gemma2", R"({"hidden_activation": "silu"})", {"hidden_activation", "silu", "gelu"}},
        Refusal{
            "gemma_has_no_caps", "gemma", R"({"final_logit_softcapping": 30.0})", {"final_logit_softcapping is 30.0"}},
        Refusal{
            "gemma2_cap_negative", "gemma2", R"({"attn_logit_softcapping": -1.0})", {"attn_logit_softcapping is -1.0"}},
        Refusal{
            "gemma2_cap_text", "gemma2", R"({"final_logit_softcapping": "30"})", {"final_logit_softcapping is \"30\""}},
        Refusal{"gemma2_scalar_zero", "gemma2", R"({"query_pre_attn_scalar": 0})", {"query_pre_attn_scalar is 0"}},
        Refusal{"gemma2_layer_type",
                "gemma2",
                R"({"layer_types": ["full_attention", "chunked_attention"]})",
                {"layer_types", "chunked_attention"}},
        Refusal{
            "gemma2_short_layer_types", "gemma2", R"({"layer_types": ["full_attention"]})", {"2 layers have 1 kinds"}},
        Refusal{"gemma2_looks_ahead",
                "gemma2",
                R"({"use_bidirectional_attention": true})",
                {"use_bidirectional_attention is true"}},
        Refusal{"looks_ahead", "llama", R"({"is_causal": false})", {"is_causal is false", "looks ahead"}},
        Refusal{"looks_ahead_by_a_number", "gpt2", R"({"is_causal": 0})", {"is_causal is 0"}},
        Refusal{"experts_look_ahead",
                "qwen3_moe",
                R"({"num_experts": 8, "moe_intermediate_size": 8, "is_causal": false})",
                {"is_causal is false"}},
        Refusal{"gemma3_attention_cap",
                "gemma3_text",
                R"({"attn_logit_softcapping": 50.0})",
                {"attn_logit_softcapping is 50.0"}},
        Refusal{"gemma3_sliding_rope_by_length",
                "gemma3_text",
                R"({"rope_parameters": {"sliding_attention": {"rope_type": "dynamic", "factor": 2.0}}})",
                {"sliding layers", "length"}},
        Refusal{"gemma3_part_of_a_head_in_some_layers",
                "gemma3_text",
                R"({"rope_parameters": {"full_attention": {"rope_type": "default", "partial_rotary_factor": 0.5}}})",
                {"full_attention.partial_rotary_factor is 0.5"}},
        Refusal{"phi3_proportional",
                "phi3",
                R"({"rope_parameters": {"rope_type": "proportional"}})",
                {"rope type \"proportional\""}},
        Refusal{
            "gemma4_sizes_by_layer",
            "gemma4_text",
            R"({"layer_types": null, "num_hidden_layers": 2, "per_layer_config": {"0": {"head_dim": 8}, "1": {"head_dim": 12}}})",
            {"per_layer_config has 2 heads of 8 in layer 0"}},
        Refusal{"gemma4_other_number_by_layer",
                "gemma4_text",
                R"({"per_layer_config": {"1": {"sliding_window": 8}}})",
                {"per_layer_config.1.sliding_window is 8"}},
        Refusal{"gemma4_looks_ahead",
                "gemma4_text",
                R"({"use_bidirectional_attention": "all"})",
                {"use_bidirectional_attention is not \"vision\""}},
        Refusal{"gemma4_shares_keys_of_no_layer",
                "gemma4_text",
                R"({"layer_types": null, "num_hidden_layers": 2, "num_kv_shared_layers": 1})",
                {"layer 1 shares the keys"}},
        Refusal{"gemma4_more_tokens_than_vectors",
                "gemma4_text",
                R"({"vocab_size_per_layer_input": 3})",
                {"vocab_size_per_layer_input is 3"}},
        Refusal{"phi3_more_than_a_head", "phi3", R"({"partial_rotary_factor": 1.5})", {"partial_rotary_factor is 1.5"}},
        Refusal{"phi3_odd_part", "phi3", R"({"partial_rotary_factor": 0.5})", {"3 rotated dimensions of a head of 6"}},
        Refusal{
            "phi3_longrope_without_factors",
            "phi3",
            R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1]}, "original_max_position_embeddings": 64})",
            {"rope_scaling.long_factor is missing"}},
        Refusal{"phi3_longrope_of_another_head",
                "phi3",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]},
                    "original_max_position_embeddings": 64})",
                {"2 short and 2 long", "6 rotated dimensions"}},
        Refusal{"phi3_longrope_of_zero",
                "phi3",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 0], "long_factor": [1, 1, 1]},
                    "original_max_position_embeddings": 64})",
                {"rope_scaling.short_factor is 0"}},
        Refusal{"phi3_longrope_without_original",
                "phi3",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1]}})",
                {"original_max_position_embeddings is missing"}},
        Refusal{"olmo3_yarn_truncate",
                "olmo3",
                R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "truncate": 0}})",
                {"rope_scaling.truncate is 0"}},
        Refusal{"gpt_oss_window", "gpt_oss", R"({"sliding_window": 0})", {"sliding_window is 0"}},
        Refusal{"gpt_oss_no_limit", "gpt_oss", R"({"swiglu_limit": 0})", {"swiglu_limit is 0"}},
        Refusal{"gpt_oss_alpha", "gpt_oss", R"({"swiglu_alpha": "1.7"})", {"swiglu_alpha is \"1.7\""}},
        Refusal{"gpt_oss_layer_types", "gpt_oss", R"({"layer_types": ["sliding_attention"]})", {"kinds of attention"}},
        Refusal{"gpt_oss_two_numbers_a_token",
                "gpt_oss",
                R"({"num_experts_per_tok": 4, "experts_per_token": 2})",
                {"num_experts_per_tok is 4", "experts_per_token is 2"}},
        Refusal{"gpt_oss_experts_a_token",
                "gpt_oss",
                R"({"num_local_experts": 2, "num_experts_per_tok": 3})",
                {"3 experts a token are more than the 2"}},
        Refusal{"gpt_oss_no_experts", "gpt_oss", R"({"num_local_experts": 0})", {"num_local_experts is 0"}},
        Refusal{"olmo3_theta_of_half_the_layers",
                "olmo3",
                R"({"rope_theta": 10000.0})",
                {"rope_theta is 10000", "500000", "sliding_attention"}},
        Refusal{"olmo3_older_type",
                "olmo3",
                R"({"rope_scaling": {"type": "yarn", "factor": 8.0}})",
                {"rope_scaling has type and no rope_type"}},
        Refusal{"gemma3_flat",
                "gemma3_text",
                R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10.0}})",
                {"rope_parameters is not by types of layers"}},
        Refusal{"gemma3_two_objects",
                "gemma3_text",
                R"({"rope_scaling": {"rope_type": "linear", "factor": 8.0},
                    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10.0}}})",
                {"rope_scaling is given together with rope_parameters"}},
        Refusal{
            "gemma3_exact_gelu", "gemma3_text", R"({"hidden_activation": "gelu"})", {"hidden_activation is \"gelu\""}},
        Refusal{"gemma2_exact_gelu", "gemma2", R"({"hidden_activation": "gelu"})", {"hidden_activation is \"gelu\""}},
        Refusal{"gemma3_multimodal_classifier",
                "gemma3_text",
                R"({"architectures": ["Gemma3ForSequenceClassification"]})",
                {"Gemma3ForSequenceClassification", "Gemma3TextForSequenceClassification"}},
        Refusal{"granite_has_no_classifier",
                "granite",
                R"({"architectures": ["GraniteForSequenceClassification"]})",
                {"of this family GraniteForCausalLM run"}},
        Refusal{"cohere_has_no_classifier",
                "cohere",
                R"({"architectures": ["CohereForSequenceClassification"]})",
                {"of this family CohereForCausalLM run"}},
        Refusal{"phi3_longrope_original_inside",
                "phi3",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1],
                                     "original_max_position_embeddings": 64}})",
                {"original_max_position_embeddings is 64 only inside"}},
        Refusal{
            "glm_part_of_nothing", "glm", R"({"partial_rotary_factor": 0.1})", {"of a head of 6 numbers 0 would turn"}},
        Refusal{"smollm3_flags", "smollm3", R"({"no_rope_layers": [1, 2]})", {"no_rope_layers is 2"}},
        Refusal{
            "smollm3_too_few_flags", "smollm3", R"({"no_rope_layers": [1]})", {"2 layers have 1 entries", "rotary"}},
        Refusal{"smollm3_window", "smollm3", R"({"use_sliding_window": true})", {"use_sliding_window is true"}},
        Refusal{"granite_zero", "granite", R"({"residual_multiplier": 0.0})", {"residual_multiplier is 0.0"}},
        Refusal{"granite_text", "granite", R"({"logits_scaling": "8"})", {"logits_scaling is \"8\""}},
        Refusal{"glm4_odd_part", "glm4", R"({"partial_rotary_factor": 0.5})", {"3 rotated dimensions of a head of 6"}},
        Refusal{"cohere_norms_on_q_and_k", "cohere", R"({"use_qk_norm": true})", {"use_qk_norm is true"}},
        Refusal{"cohere_zero_eps", "cohere", R"({"layer_norm_eps": 0.0})", {"layer_norm_eps is 0.0"}},
        Refusal{"cohere_negative_scale", "cohere2", R"({"logit_scale": -1.0})", {"logit_scale is -1.0"}},
        Refusal{"cohere_head_of_its_own", "cohere2", R"({"head_dim": 8})", {"head_dim is 8", "24 / 4"}},
        Refusal{"cohere2_layer_type",
                "cohere2",
                R"({"layer_types": ["full_attention", "chunked_attention"]})",
                {"layer_types", "chunked_attention"}},
        Refusal{"bad_token_id", "llama", R"({"eos_token_id": -7})", {"eos_token_id is -7"}}),
    [](const auto& info) { return info.param.name; });

class Gguf : public Folder {
 protected:
  void make(const std::string& architecture, MemoryTensorFile& file,
            const std::function<void(Metadata&)>& change = {}) {
    Metadata& meta = file.mutable_metadata();
    meta["general.architecture"] = architecture;
    const auto set = [&](const char* key, std::uint64_t value) { meta[architecture + "." + key] = value; };
    set("block_count", 2);
    set("embedding_length", 24);
    set("feed_forward_length", 40);
    set("attention.head_count", 4);
    set("attention.head_count_kv", 2);
    set("context_length", 128);
    set("rope.dimension_count", 6);
    meta[architecture + ".rope.freq_base"] = 500000.0;
    meta[architecture + ".attention.layer_norm_rms_epsilon"] = 1e-5;
    meta["tokenizer.ggml.tokens"] = std::vector<std::string>(64, "x");
    ModelConfig config;
    config.vocab_size = 64;
    config.hidden_size = 24;
    config.intermediate_size = 40;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.tie_word_embeddings = true;
    config.qkv_bias = architecture == "qwen2";
    config.qk_norm = architecture == "qwen3" || architecture == "gemma3";
    if (architecture == "gemma3") config.norm_placement = NormPlacement::kBoth;
    for (const auto& t : expected_tensors(config, gguf_tensor_names(config, Family{}))) file.add(t.name, t.shape);
    if (change) change(meta);
  }
  void refused(const std::function<void(MemoryTensorFile&, Metadata&)>& change, const std::vector<std::string>& words,
               const std::string& architecture = "llama") {
    MemoryTensorFile file;
    make(architecture, file);
    change(file, file.mutable_metadata());
    expect_refused([&] { describe_model("model.gguf", file); }, words);
  }
};

TEST_F(Gguf, Architectures) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    MemoryTensorFile file;
    make(architecture, file);
    const ModelDescription description = describe_model("model.gguf", file);
    EXPECT_EQ(description.config.family, architecture);
    EXPECT_EQ(description.config.head_dim, 6);
    EXPECT_TRUE(description.config.tie_word_embeddings);
    EXPECT_EQ(description.config.qkv_bias, architecture == std::string("qwen2"));
    EXPECT_EQ(description.config.qk_norm, architecture == std::string("qwen3"));
    EXPECT_EQ(description.names.interleaved_rope_rows, architecture == std::string("llama"));
    file.add("output.weight", {64, 24});
    EXPECT_EQ(describe_model("model.gguf", file).names.lm_head, "output.weight");
  }
}

// As llama.cpp: a file without a window, or with one of 0, has no layer that slides, and one rotary base.
TEST_F(Gguf, Gemma3Windows) {
  for (const std::uint64_t window : {0, 1, 8}) {  // 1: the key is not there
    MemoryTensorFile file;
    make("gemma3", file, [&](Metadata& m) {
      if (window != 1) m["gemma3.attention.sliding_window"] = window;
    });
    const ModelConfig config = describe_model("model.gguf", file).config;
    EXPECT_EQ(config.sliding_window, window == 8 ? 8 : 0);
    EXPECT_EQ(config.slides(0), window == 8);
    EXPECT_EQ(config.sliding_rope.has_value(), window == 8);
  }
}

TEST_F(Gguf, RopeScalingAndDivisors) {
  MemoryTensorFile file;
  make("llama", file, [](Metadata& m) {
    m["llama.rope.scaling.type"] = std::string("linear");
    m["llama.rope.scaling.factor"] = 4.0;
  });
  EXPECT_EQ(describe_model("model.gguf", file).config.rope.kind, RopeConfig::Kind::kLinear);
  EXPECT_EQ(describe_model("model.gguf", file).config.rope.factor, 4.0);
  MemoryTensorFile divided;
  make("llama", divided);
  divided.add("rope_freqs.weight", {3});
  divided.values("rope_freqs.weight") = at::tensor({1.0f, 4.0f, 8.0f});
  const RopeConfig rope = describe_model("model.gguf", divided).config.rope;
  EXPECT_EQ(rope.kind, RopeConfig::Kind::kExplicit);
  EXPECT_EQ(rope.frequency_divisors, (std::vector<float>{1, 4, 8}));
}

// LongRoPE's divisors are in two tensors, with the sizes and the attention factor of transformers' class.
TEST_F(Gguf, LongRope) {
  const auto longrope = [](MemoryTensorFile& file, Metadata& m) {
    for (const char* name : {"rope_factors_short.weight", "rope_factors_long.weight"}) {
      file.add(name, {3});
      file.values(name) = at::tensor({1.0f, 2.0f, 3.0f});
    }
    m["phi3.rope.scaling.original_context_length"] = std::uint64_t{32};
    m["phi3.rope.scaling.attn_factor"] = std::sqrt(1.0 + std::log(4.0) / std::log(32.0));
  };
  const auto changed = [&](const std::function<void(MemoryTensorFile&, Metadata&)>& change,
                           const std::vector<std::string>& words) {
    refused(
        [&](MemoryTensorFile& file, Metadata& m) {
          longrope(file, m);
          change(file, m);
        },
        words, "phi3");
  };
  // All is read before a tensor of this family's own is missed.
  changed([](auto&, auto&) {}, {"blk.0.attn_qkv.weight is missing"});
  changed([](auto&, auto& m) { m["phi3.rope.scaling.type"] = std::string("longrope"); },
          {"attn_qkv.weight is missing"});
  changed([](auto&, auto& m) { m.erase("phi3.rope.scaling.attn_factor"); }, {"attn_qkv.weight is missing"});
  changed([](auto& f, auto&) { f.remove("rope_factors_long.weight"); }, {"rope_factors_long.weight", "not both there"});
  changed([](auto&, auto& m) { m["phi3.rope.scaling.attn_factor"] = 1.3; }, {"attn_factor is 1.3", "from 32 to 128"});
  changed([](auto&, auto& m) { m.erase("phi3.rope.scaling.original_context_length"); },
          {"original_context_length is missing"});
  changed([](auto&, auto& m) { m["phi3.rope.dimension_count"] = std::uint64_t{4}; },
          {"rope_factors_short.weight is F32 [3]", "[2]"});
  changed([](auto& f, auto&) { f.values("rope_factors_long.weight") = at::tensor({1.0f, 0.0f, 1.0f}); }, {"holds 0"});
  changed([](auto&, auto& m) { m["phi3.rope.scale_linear"] = 2.0; },
          {"rope_factors_long.weight together with another"});
  refused([](auto&, auto& m) { m["phi3.rope.scaling.attn_factor"] = 1.2; }, {"not both there"}, "phi3");
  refused([](auto&, auto& m) { m["phi3.rope.scaling.type"] = std::string("longrope"); }, {"not both there"}, "phi3");
  refused([](auto&, auto& m) { m["llama.rope.scaling.type"] = std::string("longrope"); }, {"type is \"longrope\""});
  refused([](auto&, auto& m) { m["phi3.rope.scaling.type"] = std::string("yarn"); },
          {"type is \"yarn\" (known in this family: none, linear, longrope; results"}, "phi3");
}

TEST_F(Gguf, RefusedByNameAndValue) {
  const auto neox = [](Metadata& m) {
    m["gptneox.attention.layer_norm_epsilon"] = 1e-5;
    m["gptneox.use_parallel_residual"] = true;
  };
  refused([&](auto&, auto& m) { neox(m); }, {"output_norm.bias is missing"}, "gptneox");
  refused(
      [&](auto&, auto& m) {
        neox(m);
        m.erase("gptneox.use_parallel_residual");
      },
      {"gptneox.use_parallel_residual is missing"}, "gptneox");
  refused(
      [&](auto&, auto& m) {
        neox(m);
        m["gptneox.block_count"] = std::uint64_t{44};
        m["gptneox.embedding_length"] = std::uint64_t{6144};
        m["gptneox.rope.dimension_count"] = std::uint64_t{384};
      },
      {"GPT-NeoX-20B", "tanh"}, "gptneox");
  refused([](auto&, auto& m) { m["gpt2.attention.layer_norm_epsilon"] = 1e-5; }, {"output_norm.bias is missing"},
          "gpt2");

  refused([](auto&, auto& m) { m["general.architecture"] = std::string("mamba"); },
          {"general.architecture", "mamba", "qwen2"});
  refused([](auto&, auto& m) { m["general.architecture"] = std::string(""); }, {"general.architecture"});
  refused([](auto&, auto& m) { m["general.architecture"] = std::uint64_t{3}; }, {"general.architecture is 3"});
  refused([](auto&, auto& m) { m.erase("general.architecture"); }, {"general.architecture is missing"});
  refused([](auto&, auto& m) { m.erase("llama.block_count"); }, {"llama.block_count is missing"});
  refused([](auto&, auto& m) { m["llama.block_count"] = std::uint64_t{0}; }, {"llama.block_count is 0"});
  refused([](auto&, auto& m) { m["llama.attention.causal"] = false; },
          {"llama.attention.causal is false", "looks ahead"});
  refused([](auto&, auto& m) { m["granite.rope.scaling.finetuned"] = false; },
          {"granite.rope.scaling.finetuned is false", "without rotary"}, "granite");
  refused([](auto&, auto& m) { m["llama.block_count"] = UINT64_MAX; }, {"llama.block_count is 18446744073709551615"});
  refused([](auto&, auto& m) { m["llama.block_count"] = 2.0; }, {"llama.block_count is 2"});
  refused([](auto&, auto& m) { m["llama.block_count"] = std::uint64_t{3}; }, {"blk.2.attn_norm.weight is missing"});
  refused([](auto&, auto& m) { m["llama.block_count"] = std::uint64_t{1}; }, {"blk.1.attn_k.weight", "is not used"});
  refused([](auto&, auto& m) { m["llama.feed_forward_length"] = std::vector<std::int64_t>{40, 40}; },
          {"feed_forward_length is a list"});
  refused([](auto&, auto& m) { m["llama.attention.head_count_kv"] = std::uint64_t{3}; }, {"3 key/value"});
  refused([](auto&, auto& m) { m["llama.attention.key_length"] = std::uint64_t{8}; },
          {"rope.dimension_count is 6", "head size 8"});
  refused([](auto&, auto& m) { m["llama.attention.value_length"] = std::uint64_t{8}; },
          {"llama.attention.value_length is 8"});
  refused([](auto&, auto& m) { m["llama.rope.dimension_count"] = std::uint64_t{4}; },
          {"rope.dimension_count is 4", "head size 6"});
  refused([](auto&, auto& m) { m["llama.rope.scaling.type"] = std::string("longrope"); },
          {"rope.scaling.type is \"longrope\" (known in this family: none, linear, yarn; results"});
  refused([](auto&, auto& m) { m["llama.rope.scaling.type"] = std::string("linear"); },
          {"rope.scaling.factor is missing"});
  refused([](auto&, auto& m) { m["llama.attention.layer_norm_rms_epsilon"] = 0.0; }, {"layer_norm_rms_epsilon is 0"});
  refused([](auto&, auto& m) { m["llama.attention.layer_norm_rms_epsilon"] = std::nan(""); },
          {"layer_norm_rms_epsilon is nan"});
  refused([](auto&, auto& m) { m.erase("llama.attention.layer_norm_rms_epsilon"); },
          {"layer_norm_rms_epsilon is missing"});
  refused([](auto&, auto& m) { m["llama.expert_count"] = std::uint64_t{8}; }, {"llama.expert_used_count is missing"});
  refused([](auto&, auto& m) { m["llama.attention.scale"] = 0.5; }, {"llama.attention.scale is 0.5"});
  refused([](auto&, auto& m) { m.erase("tokenizer.ggml.tokens"); }, {"vocab_size", "tokenizer.ggml.tokens"});
  refused([](auto&, auto& m) { m["llama.vocab_size"] = std::uint64_t{65}; },
          {"token_embd.weight is [64, 24]", "[65, 24]"});
  refused([](auto& f, auto&) { f.add("rope_freqs.weight", {4}); }, {"rope_freqs.weight", "[4]", "[3]"});
  refused(
      [](auto& f, auto&) {
        f.add("rope_freqs.weight", {3});
        f.values("rope_freqs.weight") = at::tensor({1.0f, 0.0f, 1.0f});
      },
      {"rope_freqs.weight holds 0"});
  refused([](auto& f, auto&) { f.remove("blk.1.attn_q.bias"); }, {"blk.1.attn_q.bias is missing"}, "qwen2");
  refused([](auto& f, auto&) { f.remove("blk.0.attn_q_norm.weight"); }, {"blk.0.attn_q_norm.weight is missing"},
          "qwen3");
  refused([](auto&, auto& m) { m["qwen2.attention.sliding_window"] = std::uint64_t{8}; }, {"sliding_window is 8"},
          "qwen2");
  refused([](auto&, auto& m) { m["llama.final_logit_softcapping"] = 30.0; }, {"final_logit_softcapping is 30"});
  refused([](auto&, auto& m) { m["granite.residual_scale"] = 0.0; }, {"granite.residual_scale is 0"}, "granite");
}

}  // namespace model_config_refused_test
}  // namespace magister
