"""Tiny random models of every supported family, made by transformers, and their reference logits in fp32.

usage: tiny_models.py list | make OUT_DIR VARIANT ... | logits MODEL TOKENS.json OUT.npz
A variant becomes OUT_DIR/VARIANT (config.json, safetensors, tokenizer.json) or OUT_DIR/VARIANT.gguf with the folder
OUT_DIR/VARIANT.reference beside it: the same weights as a reader of the GGUF must see them, for transformers.
As a module: variants(), make(), sequences(), reference_logits(), reference_folder().
"""
import argparse
import dataclasses
import json
import os
import pathlib
import sys
import zlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from gguf import GGMLQuantizationType as Type  # noqa: E402

transformers.logging.disable_progress_bar()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import later_families  # noqa: E402
import tiny_gguf  # noqa: E402
import tiny_tokenizer  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
SMALL = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": False, "bos_token_id": 0,
         "eos_token_id": 1, "pad_token_id": None}


@dataclasses.dataclass(frozen=True)
class Variant:
    family: str                     # transformers' model_type
    changes: dict                   # to SMALL
    storage: torch.dtype = torch.float32
    max_shard_size: str = "1GB"     # smaller: several files and an index
    rope_spelling: str = "rope_parameters"  # or "rope_type" / "type": rope_scaling beside rope_theta, as older files have it
    gguf: tuple = ()                # tensor types that the matrices take in turn; empty: safetensors
    outer: str = ""                 # model_type of a model of images and texts around it
    modules_names: bool = False     # saved as transformers' modules hold the weights: experts of a layer in one tensor
    mxfp4: bool = False             # experts as gpt-oss is published: blocks and scales, which transformers reads, too


DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
GEMMA2 = {"head_dim": 16, "num_hidden_layers": 3, "sliding_window": 8, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0,
          "final_logit_softcapping": 4.0, "tie_word_embeddings": True}
GEMMA3 = {"head_dim": 32, "num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8, "query_pre_attn_scalar": 48,
          "tie_word_embeddings": True}
GEMMA4 = {"head_dim": 16, "global_head_dim": 32, "num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8, "hidden_size_per_layer_input": 0,
          "rope_parameters": None}
PER_LAYER = {"hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 320}
# No two sizes are equal, the table of vectors by layer lacks the last ids, and some layers cut off most or half of their gates.
GEMMA3N = {"head_dim": 16, "num_hidden_layers": 6, "layer_types": LAYERS * 2, "sliding_window": 8, "rope_parameters": None,
           "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 300, "num_kv_shared_layers": 3, "laurel_rank": 10, "altup_num_inputs": 3,
           "intermediate_size": [96, 48, 96, 144, 96, 48], "activation_sparsity_pattern": [0.8, 0.0, 0.5, 0.0, 0.9, 0.0], "tie_word_embeddings": True}
GEMMA4_MOE = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 40}
LONGROPE = {"max_position_embeddings": 96, "original_max_position_embeddings": 24, "rope_parameters": {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 24, "short_factor": [1.0, 1.1, 1.3, 1.6],
    "long_factor": [1.5, 2.0, 3.0, 4.0], "partial_rotary_factor": 0.5}}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0, "original_max_position_embeddings": 32}
# The smallest image encoders of models of images and texts; no test gives them an image.
SIGHT = {"hidden_size": 32, "intermediate_size": 32}
LAYERED_SIGHT = {**SIGHT, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
VISION = {"llama4": {**LAYERED_SIGHT, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32, "pixel_shuffle_ratio": 0.5},
          "gemma3": LAYERED_SIGHT, "mistral3": {**LAYERED_SIGHT, "head_dim": 16}, "glm4v": {**SIGHT, "depth": 1, "num_heads": 2, "out_hidden_size": 64},
          "gemma3n": {"hidden_size": 32, "num_labels": 2},
          "gemma4": {**LAYERED_SIGHT, "num_key_value_heads": 2, "head_dim": 16},
          "gemma4_unified": {"mm_embed_dim": 32, "output_proj_dims": 32, "mm_posemb_size": 4, "patch_size": 4, "pooling_kernel_size": 2}, "qwen2_5_vl": {**SIGHT, "depth": 1, "num_heads": 2, "out_hidden_size": 64},
          "qwen3_vl": {**SIGHT, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
          **{name: {**SIGHT, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16} for name in ("qwen3_5", "qwen3_5_moe")}}
# Apertus 1.5 makes ids of images and sounds, which stand behind those of texts.
VISION["apertus1p5"] = {"codebook_size": 12, "embed_dim": 8, "latent_channels": 8, "base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1,
                        "attn_resolutions": []}
DEEP_SIGHT = {**SIGHT, "depth": 1, "num_heads": 2, "out_hidden_size": 64}
VISION.update({"qwen2_vl": {"embed_dim": 32, "depth": 1, "num_heads": 2, "hidden_size": 64}, "exaone4_5": DEEP_SIGHT, "glm46v": DEEP_SIGHT, "glm4v_moe": DEEP_SIGHT,
               "kimi_k25": {**LAYERED_SIGHT, "pos_emb_height": 4, "pos_emb_width": 4}, "internvl": {**LAYERED_SIGHT, "image_size": [28, 28], "patch_size": [14, 14]},
               **{name: LAYERED_SIGHT for name in ("llava", "llava_next", "llava_onevision", "idefics3", "smolvlm")}})
OTHER_KEYS = {"kimi_k25": {"projection_hidden_size": 32}, "apertus1p5": {"image_token_id": 5, "audio_token_id": 6, "image_token_offset": 300, "audio_token_offset": 312}}
SOUND = {"apertus1p5": {"model_type": "wavtokenizer_encoder", "codebook_size": 8, "codebook_dim": 32, "hidden_size": 32, "num_filters": 4}, "gemma3n": {"hidden_size": 32, "conf_num_attention_heads": 2, "conf_num_hidden_layers": 1, "sscp_conv_channel_size": [4, 4]}}
GROUPED = {"n_routed_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "num_hidden_layers": 3, "first_k_dense_replace": 1,
           "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}
# Learned or fixed tables of positions are longer than the longest text.
WITHOUT_GROUPS = {"num_key_value_heads": None, "max_position_embeddings": 160, "rope_parameters": None}
FALCON = {"num_kv_heads": None, "ffn_hidden_size": 96}
GRANITE = {"embedding_multiplier": 12.0, "rms_norm_eps": 0.02, "residual_multiplier": 0.22, "attention_multiplier": 0.11, "logits_scaling": 1.7,
           "num_hidden_layers": 3}
UNEVEN = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 37, "vocab_size": 331}

# Latent attention: no two sizes are equal.
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
# An indexer that chooses 9 keys. With 14 heads, no score is 0 by all of its ReLUs where it could be the last one chosen, and in every text of the
# tests (up to 130 tokens) the last chosen score and the first left out are 2e-5 of the largest apart: rounding turns no choice.
INDEXED = {"index_n_heads": 14, "index_head_dim": 18, "index_topk": 9}
NEOX_UNEVEN = {**UNEVEN, "num_key_value_heads": None}
EXPERTS = {"num_local_experts": 8}  # transformers has it for num_experts, too
# A limit that gates and ups of these weights reach, and waves of which truncation would move the edges.
GPT_OSS = {**EXPERTS, "num_experts_per_tok": 2, "head_dim": 16, "num_hidden_layers": 4, "sliding_window": 8, "swiglu_limit": 1.5, "rope_parameters": {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0, "original_max_position_embeddings": 32,
    "truncate": False}}


LLAMA4 = {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16, "intermediate_size": 40, "intermediate_size_mlp": 72,
          "attention_chunk_size": 9, "floor_scale": 5, "attn_scale": 0.3}


def linear_rope(factor=4.0):
    return {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": factor}}


VARIANTS = {
    "llama": Variant("llama", {}),
    "llama_tied": Variant("llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "llama_sharded": Variant("llama", {"num_hidden_layers": 3}, max_shard_size="100KB"),
    "llama_bf16": Variant("llama", {"tie_word_embeddings": True}, storage=torch.bfloat16),
    "llama_f16": Variant("llama", {}, storage=torch.float16),
    "llama_grouped_9_over_3": Variant("llama", {"hidden_size": 72, "head_dim": 8, "num_attention_heads": 9,
                                                "num_key_value_heads": 3, "intermediate_size": 100, "vocab_size": 331,
                                                "tie_word_embeddings": True}),
    "llama_head_20": Variant("llama", {"hidden_size": 48, "head_dim": 20, "num_attention_heads": 3,
                                       "num_key_value_heads": 1, "intermediate_size": 37}),
    "llama_head_24": Variant("llama", {"head_dim": 24, "num_key_value_heads": 4}),
    "llama_biases": Variant("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3_rope": Variant("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}, rope_spelling="rope_type"),
    "llama3_rope_parameters": Variant("llama", {"rope_parameters": LLAMA3}),
    "llama_linear_rope": Variant("llama", linear_rope(), rope_spelling="type"),
    "llama_dynamic_rope": Variant("llama", {"max_position_embeddings": 24, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}, rope_spelling="type"),
    "mistral_window": Variant("mistral", {"sliding_window": 8}),
    "mistral_no_window": Variant("mistral", {"sliding_window": None, "head_dim": 32}),
    "qwen2": Variant("qwen2", {"tie_word_embeddings": True}),
    "qwen2_windows": Variant("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1,
                                       "num_hidden_layers": 3}),
    "qwen3": Variant("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_bias_windows": Variant("qwen3", {"head_dim": 16, "attention_bias": True, "use_sliding_window": True,
                                            "sliding_window": 5, "max_window_layers": 1}),
    "gemma": Variant("gemma", {"head_dim": 32, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "gemma_uneven": Variant("gemma", {**UNEVEN, "head_dim": 20, "attention_bias": True}),
    "gemma2": Variant("gemma2", GEMMA2),
    "gemma2_heads_of_64": Variant("gemma2", {**GEMMA2, "head_dim": 64}),  # a size that has grouped attention on GPUs
    "gemma2_uneven": Variant("gemma2", {**GEMMA2, **UNEVEN, "head_dim": 20, "attn_logit_softcapping": None, "tie_word_embeddings": False}),
    "gemma3": Variant("gemma3_text", {**GEMMA3, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0}, "sliding_attention": DEFAULT}}),
    "gemma3_uneven": Variant("gemma3_text", {**GEMMA3, **UNEVEN, "head_dim": 20, "final_logit_softcapping": 5.0,
                                             "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5},
                                                                 "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    "phi3": Variant("phi3", {"sliding_window": 8, "tie_word_embeddings": True}),
    "phi3_partial_uneven": Variant("phi3", {**UNEVEN, "num_key_value_heads": 1, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}),
    "phi3_longrope": Variant("phi3", LONGROPE),
    "olmo2": Variant("olmo2", {"attention_bias": True}),
    "olmo3": Variant("olmo3", {"num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8, "rope_parameters": {
        "full_attention": {**LLAMA3}, "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}}),
    "olmo3_yarn": Variant("olmo3", {"num_hidden_layers": 4, "sliding_window": 8, "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0, "attention_factor": 1.2,
                           "original_max_position_embeddings": 32}, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    "smollm3": Variant("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2, "tie_word_embeddings": True}),
    "smollm3_uneven": Variant("smollm3", {**UNEVEN, "no_rope_layers": [0, 1], "attention_bias": True, "mlp_bias": True}),
    "granite": Variant("granite", {**GRANITE, "tie_word_embeddings": True}),
    "granite_uneven": Variant("granite", {**GRANITE, **UNEVEN, "attention_bias": True, "mlp_bias": True}),
    "glm": Variant("glm", {"head_dim": 16}),
    "glm4": Variant("glm4", {"head_dim": 16, "num_hidden_layers": 3}),
    "glm4_uneven": Variant("glm4", {**UNEVEN, "head_dim": 20, "attention_bias": False, "rope_parameters": {
        **DEFAULT, "partial_rotary_factor": 0.6}}),
    "cohere": Variant("cohere", {"tie_word_embeddings": True, "logit_scale": 0.4}),
    "cohere2": Variant("cohere2", {"num_hidden_layers": 4, "sliding_window": 8, "tie_word_embeddings": True, "logit_scale": 0.4}),
    "cohere2_uneven": Variant("cohere2", {**UNEVEN, "num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 9, "attention_bias": True,
                                          "logit_scale": 1.3}),
    "mixtral": Variant("mixtral", {**EXPERTS, "num_experts_per_tok": 2, "sliding_window": 8}),
    "mixtral_uneven": Variant("mixtral", {**UNEVEN, "num_local_experts": 5, "num_experts_per_tok": 3, "tie_word_embeddings": True}),
    "qwen3_moe": Variant("qwen3_moe", {**EXPERTS, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 32, "norm_topk_prob": True,
                                       "num_hidden_layers": 3, "mlp_only_layers": [1]}),
    "qwen3_moe_step": Variant("qwen3_moe", {**EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": 37, "num_hidden_layers": 4,
                                            "decoder_sparse_step": 2, "attention_bias": True, "use_sliding_window": True, "sliding_window": 8}),
    "olmoe": Variant("olmoe", {**EXPERTS, "num_experts_per_tok": 3, "clip_qkv": 0.8}),
    "olmoe_normed": Variant("olmoe", {**EXPERTS, "num_experts_per_tok": 2, "norm_topk_prob": True, "num_key_value_heads": 4}),
    "gpt_oss": Variant("gpt_oss", GPT_OSS),
    "gpt_oss_uneven": Variant("gpt_oss", {**GPT_OSS, **UNEVEN, "head_dim": 20, "num_local_experts": 5, "num_experts_per_tok": 3,
                                          "layer_types": LAYERS, "num_hidden_layers": 3, "swiglu_alpha": 1.3, "swiglu_limit": 0.9,
                                          "attention_bias": False, "rope_parameters": {**GPT_OSS["rope_parameters"], "truncate": True}}),
    "gpt_oss_mxfp4": Variant("gpt_oss", {**GPT_OSS, "swiglu_limit": 7.0}, storage=torch.bfloat16, rope_spelling="rope_type", mxfp4=True),
    "gpt_neox": Variant("gpt_neox", {"num_key_value_heads": None}),
    "gpt_neox_in_turn": Variant("gpt_neox", {**NEOX_UNEVEN, "use_parallel_residual": False, "hidden_act": "gelu_new", "attention_bias": False,
                                             "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}),
    "gpt2": Variant("gpt2", {"max_position_embeddings": 160, "tie_word_embeddings": True}),
    "gpt2_uneven": Variant("gpt2", {**NEOX_UNEVEN, "n_inner": 37, "max_position_embeddings": 130, "activation_function": "gelu"}),
    "ministral": Variant("ministral", {"head_dim": 16, "num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8}),
    "ministral3": Variant("ministral3", {"head_dim": 16, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.3}}),
    "cwm": Variant("cwm", {"head_dim": 16, "num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8, "rope_parameters": LLAMA3}),
    "seed_oss": Variant("seed_oss", {"head_dim": 32, "attention_dropout": 0.0, "residual_dropout": 0.0}),
    "seed_oss_uneven": Variant("seed_oss", {**UNEVEN, "head_dim": 20, "attention_out_bias": True, "mlp_bias": True}),
    "iquestcoder": Variant("iquestcoder", {"head_dim": 32}),
    "internlm3": Variant("internlm3", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    "ernie4_5": Variant("ernie4_5", {"head_dim": 32, "tie_word_embeddings": True}),
    "ernie4_5_uneven": Variant("ernie4_5", {**UNEVEN, "head_dim": 20, "use_bias": True}),
    "helium": Variant("helium", {"head_dim": 16, "attention_bias": True}),
    "exaone4": Variant("exaone4", {"num_hidden_layers": 3, "layer_types": LAYERS, "sliding_window": 8, "rope_parameters": LLAMA3}),
    "exaone4_uneven": Variant("exaone4", {**UNEVEN, "sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "hunyuan": Variant("hunyuan_v1_dense", {"head_dim": 16, "attention_bias": True}),
    "hunyuan_alpha": Variant("hunyuan_v1_dense", {**UNEVEN, "head_dim": 20, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0, "beta_fast": 32, "mscale": 1.0}}),
    "vaultgemma": Variant("vaultgemma", GEMMA2),
    "hyperclovax": Variant("hyperclovax", {"embedding_multiplier": 3.0, "attention_multiplier": 0.11, "logits_scaling": 1.7}),
    "hyperclovax_no_post_norm": Variant("hyperclovax", {**UNEVEN, "use_post_norm": False, "residual_multiplier": 0.5, "attention_bias": True}),
    "granitemoe": Variant("granitemoe", {**GRANITE, "num_local_experts": 8, "num_experts_per_tok": 3}),
    "granitemoe_uneven": Variant("granitemoe", {**UNEVEN, "num_local_experts": 5, "num_experts_per_tok": 2, "tie_word_embeddings": True}),
    "mellum": Variant("mellum", {"num_local_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 32, "num_hidden_layers": 3,
                                 "layer_types": LAYERS, "mlp_layer_types": ["dense", "sparse", "sparse"], "sliding_window": 8, "rope_parameters": {
                                     "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    "flex_olmo": Variant("flex_olmo", {"num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True}),
    "nemotron": Variant("nemotron", {"head_dim": 16, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}),
    "nemotron_uneven": Variant("nemotron", {**UNEVEN, "head_dim": 20, "attention_bias": True, "mlp_bias": True, "rope_parameters": {
        **DEFAULT, "partial_rotary_factor": 0.4}}),
    "arcee": Variant("arcee", {"rope_parameters": YARN}),
    "arcee_uneven": Variant("arcee", {**UNEVEN, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "jais2": Variant("jais2", {}),
    "stablelm": Variant("stablelm", {"use_qkv_bias": True, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.25}}),
    "stablelm_parallel": Variant("stablelm", {**UNEVEN, "use_parallel_residual": True, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}),
    "starcoder2": Variant("starcoder2", {"tie_word_embeddings": True, "sliding_window": 8}),
    "starcoder2_uneven": Variant("starcoder2", {**UNEVEN, "use_bias": False}),
    "falcon": Variant("falcon", {**FALCON, "num_key_value_heads": None, "tie_word_embeddings": True}),
    "falcon_groups": Variant("falcon", {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True, "bias": True}),
    "falcon_one_norm_uneven": Variant("falcon", {**UNEVEN, "num_kv_heads": 3, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1,
                                                 "ffn_hidden_size": 37}),
    "falcon_in_turn": Variant("falcon", {**FALCON, "num_key_value_heads": None, "multi_query": False, "parallel_attn": False, "bias": True}),
    "gpt_bigcode": Variant("gpt_bigcode", {"max_position_embeddings": 160, "tie_word_embeddings": True}),
    "gpt_bigcode_heads": Variant("gpt_bigcode", {**NEOX_UNEVEN, "n_inner": 37, "max_position_embeddings": 130, "multi_query": False}),
    "gpt_neo": Variant("gpt_neo", {"max_position_embeddings": 160, "attention_types": [[["global", "local"], 1]], "window_size": 8,
                                   "tie_word_embeddings": True}),
    "gpt_neo_uneven": Variant("gpt_neo", {**NEOX_UNEVEN, "max_position_embeddings": 130, "attention_types": [[["local"], 2]], "window_size": 9,
                                          "activation_function": "gelu"}),
    "opt": Variant("opt", {"max_position_embeddings": 160, "ffn_dim": 96, "word_embed_proj_dim": 64, "tie_word_embeddings": True}),
    "opt_uneven": Variant("opt", {**NEOX_UNEVEN, "max_position_embeddings": 130, "ffn_dim": 37, "word_embed_proj_dim": 72, "enable_bias": False}),
    "llama_yarn": Variant("llama", {"rope_parameters": YARN}, rope_spelling="type"),
    "gemma3_outer": Variant("gemma3_text", {**GEMMA3, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0}, "sliding_attention": DEFAULT}}, outer="gemma3"),
    "mistral3": Variant("mistral", {"head_dim": 32, "sliding_window": None}, outer="mistral3"),
    "mistral3_of_ministral3": Variant("ministral3", {"head_dim": 16, "tie_word_embeddings": True, "rope_parameters": {
        **YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.3}}, outer="mistral3"),
    "qwen2_5_vl": Variant("qwen2_5_vl_text", {"rope_parameters": {**DEFAULT, "mrope_section": [2, 3, 3]}}, outer="qwen2_5_vl"),
    "qwen3_vl": Variant("qwen3_vl_text", {"head_dim": 32, "tie_word_embeddings": True, "rope_parameters": {
        **DEFAULT, "mrope_section": [8, 4, 4], "mrope_interleaved": True}}, outer="qwen3_vl"),
    "glm4v": Variant("glm4v_text", {"rope_parameters": {**DEFAULT, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}}, outer="glm4v"),
    "qwen2_moe": Variant("qwen2_moe", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "num_hidden_layers": 4,
                                       "shared_expert_intermediate_size": 80, "mlp_only_layers": [1], "use_sliding_window": True, "sliding_window": 8,
                                       "max_window_layers": 3}),
    "qwen2_moe_uneven": Variant("qwen2_moe", {**UNEVEN, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 37, "qkv_bias": False,
                                              "shared_expert_intermediate_size": 37, "norm_topk_prob": True, "tie_word_embeddings": True}),
    "qwen2_moe_fused": Variant("qwen2_moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "num_hidden_layers": 3,
                                             "shared_expert_intermediate_size": 80, "mlp_only_layers": [1]}, modules_names=True),
    "glm4_moe": Variant("glm4_moe", {**GROUPED, "head_dim": 32, "n_shared_experts": 2, "use_qk_norm": True, "attention_bias": True}),
    "glm4_moe_uneven": Variant("glm4_moe", {**UNEVEN, "head_dim": 20, "n_routed_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 37,
                                            "norm_topk_prob": False, "first_k_dense_replace": 0}),
    "dots1": Variant("dots1", {**GROUPED, "n_shared_experts": 1, "sliding_window": 8, "max_window_layers": 2}),
    "dots1_normed": Variant("dots1", {**GROUPED, "n_shared_experts": 2, "norm_topk_prob": True, "attention_bias": True, "sliding_window": None}),
    "ernie4_5_moe": Variant("ernie4_5_moe", {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 40, "num_hidden_layers": 3, "rope_parameters": {
        "rope_type": "default", "rope_theta": 500000.0}}),
    "hunyuan_moe": Variant("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": 3, "head_dim": 16, "attention_bias": True}),
    "minimax_m2": Variant("minimax_m2", {"num_local_experts": 8, "num_experts_per_tok": 3, "head_dim": 32, "rope_parameters": {
        **DEFAULT, "partial_rotary_factor": 0.5}}),
    "minimax_m2_uneven": Variant("minimax_m2", {**UNEVEN, "num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 20}),
    "olmo": Variant("olmo", {"clip_qkv": 0.8, "tie_word_embeddings": True}),
    "olmo_uneven": Variant("olmo", {**UNEVEN, "attention_bias": True}),
    "apertus": Variant("apertus", {"rope_parameters": LLAMA3}),
    "apertus_uneven": Variant("apertus", {**UNEVEN, "attention_bias": True, "tie_word_embeddings": True}),
    "phi": Variant("phi", {"rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}),
    "phi_uneven": Variant("phi", {**UNEVEN, "hidden_act": "gelu", "tie_word_embeddings": True, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.25}}),
    "gptj": Variant("gptj", {**WITHOUT_GROUPS, "rotary_dim": 8}),
    "gptj_uneven": Variant("gptj", {**NEOX_UNEVEN, "max_position_embeddings": 160, "rope_parameters": None, "rotary_dim": 4, "n_inner": 37}),
    "codegen": Variant("codegen", {**WITHOUT_GROUPS, "rotary_dim": 8}),
    "codegen_all_rotated": Variant("codegen", {**WITHOUT_GROUPS, "num_attention_heads": 8, "rotary_dim": 8}),
    "llama4": Variant("llama4_text", {**LLAMA4, "num_hidden_layers": 4, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 3, "rope_parameters": LLAMA3}),
    "llama4_uneven": Variant("llama4_text", {**LLAMA4, **UNEVEN, "head_dim": 20, "num_local_experts": 5, "use_qk_norm": False, "attention_bias": True,
                                             "no_rope_layers": [1, 0], "attn_temperature_tuning": False, "tie_word_embeddings": True}),
    "llama4_outer": Variant("llama4_text", {**LLAMA4, "num_hidden_layers": 4, "no_rope_layer_interval": 2}, outer="llama4"),
    "phimoe": Variant("phimoe", {"num_local_experts": 8, "attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.2}),
    "phimoe_uneven": Variant("phimoe", {**UNEVEN, "num_local_experts": 5, "sliding_window": 8, "router_jitter_noise": 0.05}),
    "cohere2_moe": Variant("cohere2_moe", {"num_experts": 8, "num_experts_per_tok": 3, "head_dim": 16, "num_hidden_layers": 4, "sliding_window": 8,
                                           "num_shared_experts": 2, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
                                           "prefix_dense_intermediate_size": 72, "logit_scale": 0.4, "tie_word_embeddings": True}),
    "cohere2_moe_sigmoid": Variant("cohere2_moe", {**UNEVEN, "head_dim": 20, "num_experts": 5, "num_experts_per_tok": 2, "num_shared_experts": 1,
                                                   "shared_expert_combination_strategy": "sum", "expert_selection_fn": "sigmoid", "sliding_window": 9,
                                                   "rms_norm_eps": 1e-5, "num_hidden_layers": 3, "layer_types": LAYERS, "logit_scale": 1.3}),
    "bloom": Variant("bloom", {"n_layer": 2, "n_head": 4, "tie_word_embeddings": True}),
    "bloom_uneven": Variant("bloom", {"n_layer": 3, "n_head": 6, "hidden_size": 72, "vocab_size": 331, "tie_word_embeddings": False}),
    "mpt": Variant("mpt", {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 160, "max_position_embeddings": 160, "tie_word_embeddings": True}),
    "mpt_clipped_uneven": Variant("mpt", {"d_model": 72, "n_layers": 3, "n_heads": 6, "vocab_size": 331, "max_seq_len": 160, "max_position_embeddings": 160, "tie_word_embeddings": False,
                                          "attn_config": {"clip_qkv": 0.8, "softmax_scale": 0.2}}),
    "falcon_alibi": Variant("falcon", {**FALCON, "num_key_value_heads": None, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}),
    "falcon_alibi_uneven": Variant("falcon", {**UNEVEN, "num_kv_heads": 3, "new_decoder_architecture": True, "ffn_hidden_size": 37, "alibi": True}),
    "persimmon": Variant("persimmon", {"num_key_value_heads": None, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}),
    "persimmon_uneven": Variant("persimmon", {**NEOX_UNEVEN, "qk_layernorm": False, "tie_word_embeddings": True, "rope_parameters": {
        **DEFAULT, "partial_rotary_factor": 0.25}}),
    "deepseek_v2": Variant("deepseek_v2", {**LATENT, **GROUPED, "n_shared_experts": 2, "topk_method": "group_limited_greedy", "attention_bias": True,
                                           "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.5}}),
    "deepseek_v2_lite": Variant("deepseek_v2", {**LATENT, **UNEVEN, "num_key_value_heads": 9, "q_lora_rank": None, "n_routed_experts": 7,
                                                "num_experts_per_tok": 2, "moe_intermediate_size": 37, "first_k_dense_replace": 1}),
    "deepseek_v3": Variant("deepseek_v3", {**LATENT, **GROUPED, "attention_bias": True, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}},
                           rope_spelling="type"),
    "deepseek_v3_uneven": Variant("deepseek_v3", {**LATENT, **UNEVEN, "num_key_value_heads": 9, "q_lora_rank": None, "rope_interleave": False,
                                                  "n_routed_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 37, "n_group": 1,
                                                  "topk_group": 1, "norm_topk_prob": False, "first_k_dense_replace": 0}),
    "deepseek_v32": Variant("deepseek_v32", {**LATENT, **GROUPED, **INDEXED, "attention_bias": True,
                                             "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}}),
    "deepseek_v32_uneven": Variant("deepseek_v32", {**LATENT, **UNEVEN, **INDEXED, "num_key_value_heads": 9, "n_routed_experts": 7, "num_experts_per_tok": 2,
                                                    "moe_intermediate_size": 37, "n_group": 1, "topk_group": 1, "norm_topk_prob": False,
                                                    "first_k_dense_replace": 0}),
    "glm_moe_dsa": Variant("glm_moe_dsa", {**LATENT, **GROUPED, **INDEXED, "num_hidden_layers": 4, "index_topk_freq": 2, "index_skip_topk_offset": 1}),
    "glm_moe_dsa_uneven": Variant("glm_moe_dsa", {**LATENT, **UNEVEN, **INDEXED, "num_hidden_layers": 3, "num_key_value_heads": 9, "n_routed_experts": 7,
                                                  "num_experts_per_tok": 2, "moe_intermediate_size": 37, "first_k_dense_replace": 2, "index_topk_pattern": "FFS"}),
    "glm4_moe_lite": Variant("glm4_moe_lite", {**LATENT, **GROUPED, "v_head_dim": 20, "mlp_layer_types": ["dense", "sparse", "sparse"]}),
    "youtu": Variant("youtu", {**LATENT, "v_head_dim": 24, "tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "llama_proportional": Variant("llama", {"rope_parameters": {"rope_type": "proportional", "rope_theta": 500.0, "factor": 2.0,
                                                               "partial_rotary_factor": 0.7}}),
    "gemma4": Variant("gemma4_text", {**GEMMA4, "tie_word_embeddings": True}),
    "gemma4_keys_are_values": Variant("gemma4_text", {**GEMMA4, **UNEVEN, "head_dim": 20, "global_head_dim": 28, "attention_k_eq_v": True,
                                                      "num_global_key_value_heads": 1, "attention_bias": True, "final_logit_softcapping": 5.0,
                                                      "use_bidirectional_attention": "vision"}),
    "gemma4_shared_keys": Variant("gemma4_text", {**GEMMA4, **PER_LAYER, "num_hidden_layers": 5, "layer_types": [
        "sliding_attention", "full_attention", *LAYERS], "num_kv_shared_layers": 3, "use_double_wide_mlp": True}),
    "gemma4_per_layer": Variant("gemma4_text", {**GEMMA4, **PER_LAYER, "tie_word_embeddings": True}),
    "gemma4_per_layer_uneven": Variant("gemma4_text", {**GEMMA4, **UNEVEN, **PER_LAYER, "head_dim": 20, "num_hidden_layers": 6, "layer_types": LAYERS * 2,
                                                       "num_kv_shared_layers": 3, "vocab_size_per_layer_input": 340}),
    "gemma4_moe": Variant("gemma4_text", {**GEMMA4, **GEMMA4_MOE, "tie_word_embeddings": True}),
    "gemma4_moe_uneven": Variant("gemma4_text", {**GEMMA4, **UNEVEN, **PER_LAYER, "head_dim": 20, **GEMMA4_MOE, "num_experts": 5, "top_k_experts": 2,
                                                 "vocab_size_per_layer_input": 331}),
    "gemma4_outer": Variant("gemma4_text", {**GEMMA4, **PER_LAYER, "tie_word_embeddings": True, "pad_token_id": 0}, outer="gemma4"),
    "gemma3n": Variant("gemma3n_text", GEMMA3N),
    "gemma3n_uneven": Variant("gemma3n_text", {**GEMMA3N, **UNEVEN, "head_dim": 20, "altup_num_inputs": 4, "altup_active_idx": 2, "altup_correct_scale": False,
                                               "intermediate_size": 111, "attention_bias": True, "num_kv_shared_layers": 0,
                                               "tie_word_embeddings": False, "final_logit_softcapping": 5.0}),
    "gemma3n_outer": Variant("gemma3n_text", {**GEMMA3N, "pad_token_id": 0}, outer="gemma3n"),
    "gguf_llama_f32": Variant("llama", {"tie_word_embeddings": True}, gguf=(Type.F32,)),
    "gguf_llama_f16": Variant("llama", {}, gguf=(Type.F16,)),
    "gguf_llama_bf16": Variant("llama", {}, gguf=(Type.BF16,)),
    "gguf_llama_q8_0": Variant("llama", {"tie_word_embeddings": True}, gguf=(Type.Q8_0,)),
    "gguf_llama_q4_0": Variant("llama", {}, gguf=(Type.Q4_0,)),
    "gguf_llama_q4_1": Variant("llama", {"tie_word_embeddings": True, "hidden_size": 96, "num_attention_heads": 6},
                               gguf=(Type.Q4_1,)),
    "gguf_llama_q6_k": Variant("llama", {"hidden_size": 256, "intermediate_size": 512}, gguf=(Type.Q6_K,)),
    "gguf_llama_biases": Variant("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24,
                                           "hidden_size": 96}, gguf=(Type.Q8_0, Type.F32)),
    "gguf_llama3_rope": Variant("llama", {"rope_parameters": LLAMA3}, gguf=(Type.F16,)),
    "gguf_llama_linear_rope": Variant("llama", linear_rope(), gguf=(Type.F32,)),
    "gguf_llama_yarn": Variant("llama", {"rope_parameters": YARN}, gguf=(Type.F32,)),
    "gguf_qwen2_yarn": Variant("qwen2", {"rope_parameters": YARN}, gguf=(Type.F16,)),
    "gguf_qwen3_moe_yarn": Variant("qwen3_moe", {**EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True, "rope_parameters": YARN}, gguf=(Type.F16,)),
    "gguf_qwen2": Variant("qwen2", {}, gguf=(Type.Q8_0,)),
    "gguf_qwen3_mixed": Variant("qwen3", {"head_dim": 32, "tie_word_embeddings": True},
                                gguf=(Type.F32, Type.Q4_0, Type.F16, Type.Q8_0, Type.BF16, Type.Q4_1)),
    "gguf_gemma": Variant("gemma", {"head_dim": 32, "num_key_value_heads": 1, "tie_word_embeddings": True}, gguf=(Type.Q8_0,)),
    "gguf_gemma2": Variant("gemma2", {**GEMMA2, "query_pre_attn_scalar": 16}, gguf=(Type.Q8_0,)),
    "gguf_gemma3": Variant("gemma3_text", {**GEMMA3, "num_hidden_layers": 6, "layer_types": None, "query_pre_attn_scalar": 32, "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": DEFAULT}}, gguf=(Type.F16,)),
    "gguf_phi3_partial": Variant("phi3", {"rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}, gguf=(Type.Q8_0,)),
    "gguf_olmo2": Variant("olmo2", {}, gguf=(Type.Q8_0,)),
    "gguf_olmo3": Variant("olmo3", {"num_hidden_layers": 4, "layer_types": [*LAYERS, "sliding_attention"], "sliding_window": 8, "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0,
                           "attention_factor": 1.1386294361119891, "original_max_position_embeddings": 32},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}, gguf=(Type.F16,)),
    "gguf_glm4": Variant("glm4", {"head_dim": 16, "num_hidden_layers": 3, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}, gguf=(Type.Q8_0,)),
    "gguf_cohere": Variant("cohere", {"tie_word_embeddings": True, "logit_scale": 0.4}, gguf=(Type.Q8_0,)),
    "gguf_cohere2": Variant("cohere2", {"num_hidden_layers": 5, "sliding_window": 8, "tie_word_embeddings": True, "logit_scale": 0.4}, gguf=(Type.F16,)),
    "gguf_llama_mxfp4": Variant("llama", {}, gguf=(Type.MXFP4,)),
    "gguf_smollm3": Variant("smollm3", {"num_hidden_layers": 4, "tie_word_embeddings": True}, gguf=(Type.F16,)),
    "gguf_mixtral": Variant("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, gguf=(Type.Q8_0, Type.Q4_0)),
    "gguf_qwen3_moe": Variant("qwen3_moe", {**EXPERTS, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": True},
                              gguf=(Type.F16,)),
    # llama.cpp knows one limit, and cuts YaRN to whole waves.
    "gguf_gpt_oss": Variant("gpt_oss", {**GPT_OSS, "swiglu_limit": 7.0, "rope_parameters": {**GPT_OSS["rope_parameters"], "truncate": True}},
                            gguf=(Type.MXFP4, Type.Q8_0)),
    "gguf_olmoe": Variant("olmoe", {**EXPERTS, "num_experts_per_tok": 2}, gguf=(Type.Q8_0,)),
    "gguf_phi3_longrope": Variant("phi3", LONGROPE, gguf=(Type.Q8_0,)),
    "gguf_gpt2": Variant("gpt2", {"max_position_embeddings": 160, "tie_word_embeddings": True}, gguf=(Type.Q8_0, Type.F16)),
    "gguf_gpt2_head": Variant("gpt2", {"max_position_embeddings": 130, "tie_word_embeddings": False}, gguf=(Type.F16,)),
    "gguf_gpt_neox": Variant("gpt_neox", {"num_key_value_heads": None}, gguf=(Type.Q8_0,)),
    "gguf_gpt_neox_in_turn": Variant("gpt_neox", {"num_key_value_heads": None, "use_parallel_residual": False, "attention_bias": False,
                                                  "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}, gguf=(Type.F16,)),
    "gguf_granite": Variant("granite", {**GRANITE, "tie_word_embeddings": True}, gguf=(Type.Q8_0,)),
}
VARIANTS.update({name: Variant(family, changes, **(more[0] if more else {}))
                 for name, (family, changes, *more) in later_families.variants(globals()).items()})


def variants():
    return list(VARIANTS)


ONE_MORE = ("gemma", "vaultgemma", "nemotron", "qwen3_next", "qwen3_5")  # their norms' weights stand for 1 + w
PLAIN_NORMS = ("gemma4", "gemma3n")


def fill(model, seed):
    """Random weights by name: large enough that logits vary by several nats and every norm, bias and layer matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("linear_attn.norm.weight"):  # it stands for itself in Qwen 3.5, too
                parameter.copy_(1.0 + 0.2 * noise)
            elif name.endswith(("A_log", "dt_bias")):  # decays from 0.3 to 0.99
                parameter.copy_((-2.0 if name.endswith("A_log") else 0.0) + noise)
            elif ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight"):
                one_more = model.config.model_type.startswith(ONE_MORE) and not model.config.model_type.startswith(PLAIN_NORMS)
                parameter.copy_((0.0 if one_more else 1.0) + 0.2 * noise)
            elif name.endswith(("sinks", "proj_bias")):  # gpt-oss: sinks about as large as scores
                parameter.copy_((1.0 if name.endswith("sinks") else 0.3) * noise)
            elif name.endswith(("experts.gate_up_proj", "experts.down_proj")) and model.config.model_type == "gpt_oss":  # [experts, inputs, outputs]
                parameter.copy_(1.3 * noise / parameter.shape[-2] ** 0.5)
            elif name.endswith("modality_router.weight"):  # its input is divided by the hidden size
                parameter.copy_(0.7 * noise * parameter.shape[-1] ** 0.5)
            elif name.endswith("_coefs.weight"):  # larger ones multiply every rounding
                parameter.copy_(0.25 * noise / parameter.shape[-1] ** 0.5)
            elif name.endswith(("router.scale", "per_expert_scale", "correct_output_scale")):  # factors about 1
                parameter.copy_(1.0 + 0.3 * noise)
            elif name.endswith(".bias"):
                parameter.copy_(0.3 * noise)
            elif any(table in name for table in ("embed_tokens", "lm_head", "embed_in", "embed_out", "wte", "word_embeddings")):
                parameter.copy_(2.4 * noise / parameter.shape[1] ** 0.5)
            elif parameter.dim() == 0:  # a number of an image encoder
                parameter.copy_(noise)
            else:  # of experts stacked as [experts, outputs, inputs], too
                parameter.copy_(1.3 * noise / parameter.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():  # what is added to scores for the choice of experts
            if name.endswith("layer_scalar"):
                buffer.copy_(0.7 + 0.5 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))))
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))))


def text_config(model):
    return model.config.get_text_config()


def num_ids(config):
    """Ids of texts: with a pruned head there are no outputs for those of images and sounds behind them."""
    return getattr(config, "output_vocab_size", None) or config.vocab_size


def use_small_gemma3n_encoder():
    """A product in the place of Gemma 3n's image encoder, for which transformers needs timm."""
    class Encoder(transformers.PreTrainedModel):
        config_class = transformers.Gemma3nVisionConfig

        def __init__(self, config):
            super().__init__(config)
            self.product = torch.nn.Linear(4, config.hidden_size)
            self.post_init()

    transformers.AutoModel.register(transformers.Gemma3nVisionConfig, Encoder, exist_ok=True)


use_small_gemma3n_encoder()


# Llama 4's class of images and texts asks its decoder's outputs for this, which transformers 5.24.0 gives to other outputs alone.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None


def build(variant, seed):
    options = {**SMALL, **variant.changes}
    options.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0})
    if options["rope_parameters"] is None:
        options.pop("rope_parameters")
    else:
        options["rope_parameters"] = dict(options["rope_parameters"])
    if variant.outer:
        others = {**OTHER_KEYS.get(variant.outer, {}), **({"audio_config": SOUND[variant.outer]} if variant.outer in SOUND else {})}
        config = transformers.AutoConfig.for_model(variant.outer, text_config={"model_type": variant.family, **options}, vision_config=VISION[variant.outer],
                                                   **others, tie_word_embeddings=options["tie_word_embeddings"])
        model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
    else:
        config = transformers.AutoConfig.for_model(variant.family, **options)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    fill(model, seed)
    return model


def respell_rope(folder, spelling):
    """config.json as files older than rope_parameters have it."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope[spelling] = rope.pop("rope_type")
    config["rope_scaling"] = rope
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def store_mxfp4(folder, seed):
    """Experts of a saved gpt-oss as random codes with scales by which the weights are as large as fill()'s."""
    path = folder / "model.safetensors"
    tensors, generator = safetensors.torch.load_file(path), torch.Generator().manual_seed(seed)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        tensors[name + "_blocks"] = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
        tensors[name + "_scales"] = torch.randint(121, 125, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def make(out_dir, name, seed=0):
    """Makes the variant below out_dir and returns what an experiment's model.path takes."""
    variant, out_dir = VARIANTS[name], pathlib.Path(out_dir)
    model = build(variant, seed)
    tokenizer = tiny_tokenizer.make_tokenizer(num_ids(text_config(model)))
    folder = out_dir / (f"{name}.reference" if variant.gguf else name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder
    if variant.gguf:
        path = out_dir / f"{name}.gguf"
        seen = tiny_gguf.write_gguf(path, variant.family, model, tokenizer, variant.gguf)
        unset, unknown = model.load_state_dict({key: torch.from_numpy(value) for key, value in seen.items()}, strict=False)
        assert not unknown and set(unset) <= {"lm_head.weight"}, (unset, unknown)  # a tied head follows the embeddings
    model.to(variant.storage).save_pretrained(folder, max_shard_size=variant.max_shard_size, save_original_format=not variant.modules_names)
    tiny_tokenizer.save_tokenizer(tokenizer, folder)
    if variant.mxfp4:
        store_mxfp4(folder, seed)
    if variant.rope_spelling != "rope_parameters":
        respell_rope(folder, variant.rope_spelling)
    return path


def reference_folder(path):
    """The folder that transformers reads for a model made here."""
    path = pathlib.Path(path)
    return path.with_suffix(".reference") if path.suffix == ".gguf" else path


def sequences(vocab_size, lengths=(1, 2, 7, 33, 20, 70), seed=0):
    """Random token ids; some lengths are above every window and every trained length here."""
    generator = np.random.default_rng(seed)
    return [generator.integers(0, vocab_size, length).tolist() for length in lengths]


def load_reference(path):
    """The model in fp32 with eager attention, from its own saved files."""
    folder = reference_folder(path)
    is_outer = "vision_config" in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = transformers.AutoModelForImageTextToText if is_outer else transformers.AutoModelForCausalLM
    # Falcon's eager code adds ALiBi's terms twice.
    attention = "sdpa" if getattr(transformers.AutoConfig.from_pretrained(folder), "alibi", False) else "eager"
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    if any(getattr(model.config, key, None) is not None for key in ("num_experts_per_tok", "moe_topk")):  # the grouped products refuse odd sizes
        model.set_experts_implementation("eager")
    return model.eval()


def reset_rope(model):
    """Dynamic scaling remembers the longest sequence it has seen; every sequence here starts afresh."""
    rotary = getattr(model.base_model, "rotary_emb", None)  # GPT-2 has none
    if not hasattr(rotary, "original_inv_freq"):  # Gemma 3: one for each type of layers, none dynamic
        return
    rotary.inv_freq = rotary.original_inv_freq.clone()
    rotary.max_seq_len_cached = rotary.original_max_seq_len


def reference_logits(path, token_lists, model=None):
    """[length, vocabulary] float32 a sequence, each run alone, by transformers in fp32."""
    model = model if model is not None else load_reference(path)
    out = []
    with torch.no_grad():
        for tokens in token_lists:
            reset_rope(model)
            out.append(model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy())
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    making = commands.add_parser("make")
    making.add_argument("out_dir", type=pathlib.Path)
    making.add_argument("variant", nargs="+", choices=[*VARIANTS, "all"])
    logits = commands.add_parser("logits")
    logits.add_argument("model", type=pathlib.Path)
    logits.add_argument("tokens", type=pathlib.Path, help="JSON: a list of lists of token ids")
    logits.add_argument("out", type=pathlib.Path, help=".npz with arrays s0, s1, ...")
    arguments = parser.parse_args()
    if arguments.command == "list":
        print("\n".join(VARIANTS))
    elif arguments.command == "make":
        for name in variants() if "all" in arguments.variant else arguments.variant:
            print(make(arguments.out_dir, name))
    else:
        token_lists = json.loads(arguments.tokens.read_text(encoding="utf-8"))
        arrays = reference_logits(arguments.model, token_lists)
        np.savez(arguments.out, **{f"s{i}": array for i, array in enumerate(arrays)})


if __name__ == "__main__":
    main()
