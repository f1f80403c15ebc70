"""Tiny models of the mixtures of 2025 and 2026 and of what else came late, for tiny_models.py, whose named sizes they take."""


def variants(sizes):
    """-> {name: (family, changes[, other fields])}; sizes: tiny_models' names."""
    UNEVEN, GRANITE, LATENT, GROUPED, YARN, DEFAULT, LAYERS, WITHOUT_GROUPS, NEOX_UNEVEN, GEMMA4, LLAMA3 = (sizes[name] for name in (
        "UNEVEN", "GRANITE", "LATENT", "GROUPED", "YARN", "DEFAULT", "LAYERS", "WITHOUT_GROUPS", "NEOX_UNEVEN", "GEMMA4", "LLAMA3"))
    SARVAM = {**GROUPED, "head_dim": 20, "use_qk_norm": True}
    MIMO = {"head_dim": 24, "v_head_dim": 16, "num_key_value_heads": 1, "num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8, "n_routed_experts": 8,
            "num_experts_per_tok": 3, "moe_intermediate_size": 40, "routed_scaling_factor": 1.7, "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.334},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}}
    # Some have shared experts of another width than the others.
    FEW = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "num_hidden_layers": 3, "head_dim": 32}
    ODD_FEW = {**UNEVEN, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 37, "head_dim": 20}
    WINDOWS = {"num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8}
    UNIFIED = {**{key: value for key, value in GEMMA4.items() if key != "hidden_size_per_layer_input"}, "attention_k_eq_v": True,
               "num_global_key_value_heads": 1, "final_logit_softcapping": 5.0}
    # Linear attention: no two sizes are equal, and three of four layers have it. The large eps keeps the norm of a small output from multiplying
    # every rounding.
    DELTA = {"num_hidden_layers": 4, "rms_norm_eps": 0.02, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
             "linear_key_head_dim": 12, "linear_value_head_dim": 20, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}
    ODD_DELTA = {**UNEVEN, **DELTA, "linear_num_key_heads": 3, "linear_num_value_heads": 9, "linear_key_head_dim": 7, "linear_value_head_dim": 18,
                 "linear_conv_kernel_dim": 3, "rms_norm_eps": 0.1}
    DELTA_FEW = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 40}
    MROPE = {**DEFAULT, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    return {
        "qwen3_next": ("qwen3_next", {**DELTA, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56}),
        "qwen3_next_uneven": ("qwen3_next", {**ODD_DELTA, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 37,
                                                    "shared_expert_intermediate_size": 23, "mlp_only_layers": [2], "norm_topk_prob": False}),
        "qwen3_5": ("qwen3_5_text", {**DELTA, "tie_word_embeddings": True}),
        "qwen3_5_uneven": ("qwen3_5_text", {**ODD_DELTA, "layer_types": ["full_attention", "linear_attention", "linear_attention"], "num_hidden_layers": 3}),
        "qwen3_5_vl": ("qwen3_5_text", {**DELTA, "linear_num_key_heads": 4, "rope_parameters": MROPE}, {"outer": "qwen3_5"}),
        # Both kinds of layers have the same sizes, also on a shard.
        "qwen3_5_alike": ("qwen3_5_text", {**DELTA, "layer_types": ["full_attention", "linear_attention"] * 2, "linear_key_head_dim": 16,
                                           "linear_value_head_dim": 16}),
        "qwen3_5_full": ("qwen3_5_text", {**DELTA, "layer_types": ["full_attention"] * 2, "num_hidden_layers": 2}),
        "qwen3_5_moe": ("qwen3_5_moe_text", {**DELTA, **DELTA_FEW, "linear_num_value_heads": 6}),
        "qwen3_5_moe_vl": ("qwen3_5_moe_text", {**DELTA, **DELTA_FEW}, {"outer": "qwen3_5_moe", "modules_names": True}),
        # Groups of two heads in some layers and of three in others, of which a shard may have as many.
        "gemma4_unified": ("gemma4_unified_text", {**UNIFIED, "num_attention_heads": 6, "num_key_value_heads": 3, "num_global_key_value_heads": 2}),
        "gemma4_unified_outer": ("gemma4_unified_text", {**UNIFIED, "tie_word_embeddings": True, "pad_token_id": 0}, {"outer": "gemma4_unified"}),
        "qwen2_moe_other_shared": ("qwen2_moe", {**{key: value for key, value in FEW.items() if key != "head_dim"}, "shared_expert_intermediate_size": 56}),
        "mimo_v2": ("mimo_v2_flash", MIMO),
        "mimo_v2_uneven": ("mimo_v2_flash", {**MIMO, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 37,
                                                    "vocab_size": 331, "head_dim": 20, "v_head_dim": 28, "moe_intermediate_size": 37, "n_group": 2,
                                                    "attention_bias": True, "attention_value_scale": None, "norm_topk_prob": False}),
        "granitemoeshared": ("granitemoeshared", {**GRANITE, "num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 56}),
        "granitemoeshared_uneven": ("granitemoeshared", {**UNEVEN, "num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 74,
                                                                "attention_bias": True, "tie_word_embeddings": True}),
        "granite_swa": ("granite_swa", {**GRANITE, "num_hidden_layers": 4, "sliding_window": 8, "layer_rope_theta": [500.0, 100.0, 0, 100.0]}),
        "granite_swa_uneven": ("granite_swa", {**UNEVEN, **WINDOWS, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
                                                      "layer_rope_theta": [100.0, 100.0, 500.0]}),
        "granitemoe_swa": ("granitemoe_swa", {**GRANITE, **WINDOWS, "num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 40}),
        "exaone_moe": ("exaone_moe", {**FEW, **WINDOWS, "num_experts": 12, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
                                             "num_shared_experts": 2}),
        "exaone_moe_uneven": ("exaone_moe", {**ODD_FEW, "sliding_window": 9, "layer_types": ["full_attention"] * 2,
                                                    "mlp_layer_types": ["sparse", "dense"], "norm_topk_prob": False}),
        "solar_open": ("solar_open", {**FEW, "n_routed_experts": 12, "n_group": 4, "topk_group": 2, "n_shared_experts": 2, "attention_bias": True}),
        "hy_v3": ("hy_v3", {**FEW, "num_shared_experts": 2, "router_scaling_factor": 1.7}),
        "hy_v3_uneven": ("hy_v3", {**ODD_FEW, "attention_bias": True, "mlp_layer_types": ["sparse", "sparse"]}),
        "kolibri1": ("kolibri1", {**FEW, **WINDOWS, "shared_expert_intermediate_size": 56, "norm_topk_prob": True}),
        "kolibri1_uneven": ("kolibri1", {**ODD_FEW, **WINDOWS, "shared_expert_intermediate_size": 37}),
        "flint": ("flint", {**FEW, "num_hidden_layers": 4, "layer_types": [*LAYERS, "sliding_attention"], "sliding_window": 8, "mlp_only_layers": [1],
                                   "shared_expert_intermediate_size": 56}),
        "flint_uneven": ("flint", {**ODD_FEW, **WINDOWS, "mlp_only_layers": [], "shared_expert_intermediate_size": 37, "attention_bias": True,
                                          "norm_topk_prob": False}),
        "afmoe": ("afmoe", {**FEW, **WINDOWS, "num_shared_experts": 2, "route_scale": 1.7, "mup_enabled": True}),
        "afmoe_uneven": ("afmoe", {**ODD_FEW, **WINDOWS, "num_shared_experts": 1, "num_dense_layers": 0, "attention_bias": True}),
        "laguna": ("laguna", {**FEW, **WINDOWS, "shared_expert_intermediate_size": 56, "moe_routed_scaling_factor": 1.7, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}}}),
        "laguna_elements": ("laguna", {**ODD_FEW, "shared_expert_intermediate_size": 37, "gating": "per-element", "attention_bias": True,
                                              "mlp_layer_types": ["sparse", "sparse"], "rope_parameters": {"full_attention": YARN, "sliding_attention": DEFAULT}}),
        "axk1": ("axk1", {**LATENT, **GROUPED, "attention_bias": True, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}}),
        "minicpm3": ("minicpm3", {**LATENT, "scale_emb": 3.0, "scale_depth": 0.9, "dim_model_base": 40, "rms_norm_eps": 0.02, "attention_bias": True}),
        "minicpm3_uneven": ("minicpm3", {**LATENT, **UNEVEN, "num_key_value_heads": 9, "q_lora_rank": None, "v_head_dim": None, "scale_depth": None,
                                                "dim_model_base": None, "tie_word_embeddings": True, "mlp_bias": True}),
        "nanochat": ("nanochat", {"final_logit_softcapping": 4.0}),
        "nanochat_uneven": ("nanochat", {**UNEVEN, "attention_bias": True, "final_logit_softcapping": None, "tie_word_embeddings": True}),
        "aria": ("aria_text", {"moe_num_experts": 8, "moe_topk": 3, "intermediate_size": 40, "attention_bias": True}),
        "aria_uneven": ("aria_text", {**UNEVEN, "moe_num_experts": 5, "moe_topk": 2, "moe_num_shared_experts": 1}),
        "biogpt": ("biogpt", {**WITHOUT_GROUPS, "tie_word_embeddings": True}),
        "biogpt_uneven": ("biogpt", {**NEOX_UNEVEN, "max_position_embeddings": 130, "rope_parameters": None, "scale_embedding": False,
                                            "hidden_act": "gelu_new"}),
        "apertus1p5": ("apertus1p5_text", {"output_vocab_size": 300}),
        "apertus1p5_whole_head": ("apertus1p5_text", {**UNEVEN, "attention_bias": True, "tie_word_embeddings": True}),
        "apertus1p5_outer": ("apertus1p5_text", {"output_vocab_size": 300, "pad_token_id": 0}, {"outer": "apertus1p5"}),
        "qwen2_vl": ("qwen2_vl_text", {"rope_parameters": {**DEFAULT, "mrope_section": [2, 3, 3]}}, {"outer": "qwen2_vl"}),
        "glm46v": ("glm4v_text", {"rope_parameters": {**DEFAULT, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}}, {"outer": "glm46v"}),
        "glm4v_moe": ("glm4v_moe_text", {**GROUPED, "rope_parameters": {**DEFAULT, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}},
                      {"outer": "glm4v_moe"}),
        "kimi_k25": ("deepseek_v3", {**LATENT, **GROUPED}, {"outer": "kimi_k25"}),
        "exaone4_5": ("exaone4", {**WINDOWS, "head_dim": 16}, {"outer": "exaone4_5"}),
        "internvl": ("qwen3", {"head_dim": 32}, {"outer": "internvl"}),
        "llava": ("llama", {}, {"outer": "llava"}),
        "llava_next": ("mistral", {"head_dim": 16, "sliding_window": None}, {"outer": "llava_next"}),
        "llava_onevision": ("qwen2", {"tie_word_embeddings": True}, {"outer": "llava_onevision"}),
        "idefics3": ("llama", {"pad_token_id": 0}, {"outer": "idefics3"}),
        "smolvlm": ("llama", {"pad_token_id": 0, "tie_word_embeddings": True}, {"outer": "smolvlm"}),
        "exaone": ("exaone", {"rope_parameters": LLAMA3}),
        "gguf_exaone": ("exaone", {"rope_parameters": LLAMA3}, {"gguf": (sizes["Type"].Q8_0, sizes["Type"].F16)}),
        "exaone_uneven": ("exaone", {**UNEVEN, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
        "sarvam_moe": ("sarvam_moe", {**SARVAM, "n_shared_experts": 2}),
        "sarvam_moe_uneven": ("sarvam_moe", {**UNEVEN, **SARVAM, "moe_intermediate_size": 37, "attention_bias": True, "use_qk_norm": False,
                                                    "norm_topk_prob": False, "n_group": 1, "topk_group": 1}),
        "sarvam_mla": ("sarvam_mla", {**LATENT, **GROUPED, "q_lora_rank": None, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
        "sarvam_mla_queries": ("sarvam_mla", {**LATENT, **GROUPED, "n_group": 1, "topk_group": 1, "attention_bias": True, "n_shared_experts": 2}),
    }
