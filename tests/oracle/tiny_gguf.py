"""Writes a transformers model as a GGUF file with chosen tensor types, through the `gguf` package.

Returns the weights as a reader must see them (rounded by the chosen types, in Hugging Face's order of rows), so that a
reference model can be made of them. Q6_K, which the package only reads, is packed here and read back by the package.
"""
import math

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import tiny_tokenizer

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.gate": "ffn_gate_inp", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "mlp.router": "ffn_gate_inp", "self_attn.sinks": "attn_sinks",
}
# Layers with norms on what their blocks add.
OUTPUT_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                "post_feedforward_layernorm": "post_ffw_norm"}
GLM4_NORMS = {"post_self_attn_layernorm": "post_attention_norm", "post_attention_layernorm": "ffn_norm", "post_mlp_layernorm": "post_ffw_norm"}
ARCHITECTURES = {"gemma3_text": "gemma3", "olmo3": "olmo2", "cohere": "command-r", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss",
                 "gpt_neox": "gptneox"}  # others are model_type
TURNED = ("llama", "mixtral", "smollm3", "granite")   # whose rows of q and k the converter turns
EXPERTS = {"gate_up_proj": ("ffn_gate_exps", "ffn_up_exps"), "down_proj": ("ffn_down_exps",)}  # [experts, outputs, inputs] each
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BY_THE_PACKAGE = {"gpt2": gguf.MODEL_ARCH.GPT2, "gpt_neox": gguf.MODEL_ARCH.GPTNEOX}  # whose names gguf's own table gives


def gpt_oss_parts(name, values):
    """{GGUF name below the layer: array} of a tensor of all experts, whose gates and ups stand in turn and whose weights are [experts, inputs, outputs]."""
    stem, bias = name.rsplit(".", 1)[1].removesuffix("_bias"), name.endswith("_bias")
    kind, names = "bias" if bias else "weight", {"gate_up_proj": ("ffn_gate_exps", "ffn_up_exps"), "down_proj": ("ffn_down_exps",)}[stem]
    rows = values if bias else values.swapaxes(1, 2)
    return {f"{part}.{kind}": np.ascontiguousarray(rows[:, i::len(names)]) for i, part in enumerate(names)}


def gpt_oss_joined(name, parts):
    """The inverse."""
    rows = np.stack(parts, 2)  # [experts, outputs, gate or up, ...]
    rows = rows.reshape(rows.shape[0], -1, *rows.shape[3:])
    return rows if name.endswith("_bias") else np.ascontiguousarray(rows.swapaxes(1, 2))


def gguf_name(name, architecture, norms_on_output):
    stem, kind = name.rsplit(".", 1)
    if architecture in BY_THE_PACKAGE:
        return f"{gguf.get_tensor_name_map(BY_THE_PACKAGE[architecture], 100).get_name(stem)}.{kind}"
    if stem in OTHER_NAMES:
        return f"{OTHER_NAMES[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    if architecture == "gpt_oss":
        norms_on_output = True  # as converters name the norm before the experts
    norms = GLM4_NORMS if architecture == "glm4" else OUTPUT_NORMS if norms_on_output else {}
    names = {**LAYER_NAMES, **norms}
    return f"blk.{layer}.{names[rest]}.{kind}"


def to_pairs(rows, heads):
    """Rows of q or k (or of their biases) from halves [heads, 2, E/2] to interleaved pairs [heads, E/2, 2]."""
    shape = rows.shape
    return np.ascontiguousarray(rows.reshape(heads, 2, shape[0] // heads // 2, -1).swapaxes(1, 2)).reshape(shape)


def to_halves(rows, heads):
    """The inverse of to_pairs."""
    shape = rows.shape
    return np.ascontiguousarray(rows.reshape(heads, shape[0] // heads // 2, 2, -1).swapaxes(1, 2)).reshape(shape)


def as_converted(name, values, config):
    """As llama.cpp's converters store them: GPT-2's products as [out, in]; rows of q, of k and of v of all heads behind each other. Its own inverse
    for the first; `as_saved` of the second."""
    if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return np.ascontiguousarray(values.T)
    if ".query_key_value." in name:
        heads = config.num_attention_heads
        return np.ascontiguousarray(values.reshape(heads, 3, values.shape[0] // heads // 3, -1).swapaxes(0, 1)).reshape(values.shape)
    return values


def as_saved(name, values, config):
    if ".query_key_value." in name:
        heads = config.num_attention_heads
        return np.ascontiguousarray(values.reshape(3, heads, values.shape[0] // heads // 3, -1).swapaxes(0, 1)).reshape(values.shape)
    return as_converted(name, values, config)


def pack_q6_k(values):
    """[rows, n * 256] f32 -> bytes [rows, n * 210]: 16 scales a block, six bits a value, after the format's layout."""
    rows = values.shape[0]
    blocks = values.reshape(-1, 16, 16)
    scale = np.abs(blocks).max(axis=2) / 31.0
    d = (scale.max(axis=1) / 127.0).astype(np.float16)
    d32 = np.maximum(d.astype(np.float32), 1e-8)
    scales = np.clip(np.round(scale / d32[:, None]), -128, 127).astype(np.int8)
    step = d32[:, None, None] * np.maximum(scales, 1)[:, :, None].astype(np.float32)
    six = (np.clip(np.round(blocks / step), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # block, half, quarter
    low = ((six[:, :, :2] & 15) | ((six[:, :, 2:] & 15) << 4)).reshape(-1, 128)
    high = sum((six[:, :, quarter] >> 4) << (2 * quarter) for quarter in range(4)).astype(np.uint8).reshape(-1, 64)
    packed = np.concatenate([low, high, scales.view(np.uint8), d[:, None].view(np.uint8)], axis=1)
    return packed.reshape(rows, -1)


def encode(values, kind):
    """(array for the writer, values as a reader sees them)."""
    packed = pack_q6_k(values) if kind == Type.Q6_K else gguf.quants.quantize(values, kind)
    seen = gguf.quants.dequantize(packed, kind).reshape(values.shape).astype(np.float32)
    limit = {Type.F32: 0, Type.F16: 1e-3, Type.BF16: 1e-2, Type.Q8_0: 2e-2, Type.Q6_K: 6e-2, Type.MXFP4: 0.3}.get(kind, 0.2)
    assert np.abs(seen - values).max() <= limit * max(1e-6, np.abs(values).max()), (kind, np.abs(seen - values).max())
    return packed, seen


def write_header(writer, config, tokenizer):
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(4 * config.hidden_size if config.model_type == "gpt2" else config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    write_tokenizer(writer, tokenizer)
    if config.model_type == "gpt2":
        return writer.add_layer_norm_eps(config.layer_norm_epsilon)
    if config.model_type == "gpt_neox":
        writer.add_parallel_residual(config.use_parallel_residual)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head_dim * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if hasattr(config, "layer_norm_eps"):
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key, add in (("attn_logit_softcapping", writer.add_attn_logit_softcapping),
                     ("final_logit_softcapping", writer.add_final_logit_softcapping),
                     ("attention_multiplier", writer.add_attention_scale), ("embedding_multiplier", writer.add_embedding_scale),
                     ("residual_multiplier", writer.add_residual_scale), ("logits_scaling", writer.add_logit_scale), ("logit_scale", writer.add_logit_scale)):
        if getattr(config, key, None) is not None:
            add(getattr(config, key))
    if "sliding_attention" in (getattr(config, "layer_types", None) or []):
        writer.add_sliding_window(config.sliding_window)
        if config.model_type == "olmo3":  # as the converter does; of other families readers know the pattern
            writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if getattr(config, "num_experts_per_tok", None) is not None:
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        if getattr(config, "moe_intermediate_size", None) is not None:
            writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        if config.model_type == "gpt_oss":
            writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_attn_factors(rope["attention_factor"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if rope["rope_type"] == "longrope":  # no rope.scaling.type
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(config.original_max_position_embeddings)))
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
        writer.add_sliding_window(config.sliding_window or 0)


def write_tokenizer(writer, tokenizer):
    tokens, merges, kinds = tiny_tokenizer.gguf_lists(tokenizer)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(tiny_tokenizer.BOS))
    writer.add_eos_token_id(tokens.index(tiny_tokenizer.EOS))
    writer.add_add_bos_token(False)


def rope_divisors(model):
    """llama3 scaling as GGUF holds it: plain frequencies over scaled ones, [E/2] f32."""
    config = model.config
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    plain = (1.0 / np.float32(config.rope_parameters["rope_theta"]) ** exponent).astype(np.float32)
    return plain / model.model.rotary_emb.inv_freq.numpy()


def write_gguf(path, architecture, model, tokenizer, kinds):
    """kinds: tensor types that the matrices take in turn. Returns {Hugging Face name: f32 array as a reader sees it}."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), ARCHITECTURES.get(architecture, architecture))
    write_header(writer, config, tokenizer)
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(model))
    norms_on_output = any("post_feedforward_layernorm" in name for name, _ in model.named_parameters())
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    seen, matrices = {}, 0
    for name, parameter in model.named_parameters():  # in Hugging Face's files a tensor an expert, in memory and in GGUF one of all
        if ".experts." not in name:
            continue
        kind = kinds[matrices % len(kinds)]
        matrices += 1
        if architecture == "gpt_oss":
            read_parts = []
            for stem, part in gpt_oss_parts(name, parameter.detach().numpy().astype(np.float32)).items():
                packed, read = encode(part, Type.F32 if stem.endswith("bias") else kind)
                writer.add_tensor(f"blk.{name.split('.')[2]}.{stem}", packed, raw_dtype=Type.F32 if stem.endswith("bias") else kind)
                read_parts.append(read)
            seen[name] = gpt_oss_joined(name, read_parts)
            continue
        parts = EXPERTS[name.rsplit(".", 1)[1]]
        read_parts = []
        for stem, part in zip(parts, np.split(parameter.detach().numpy().astype(np.float32), len(parts), axis=1), strict=True):
            packed, read = encode(np.ascontiguousarray(part), kind)
            writer.add_tensor(f"blk.{name.split('.')[2]}.{stem}.weight", packed, raw_dtype=kind)
            read_parts.append(read)
        seen[name] = np.concatenate(read_parts, axis=1)
    for name, parameter in model.named_parameters():  # a tied head is not named twice
        if ".experts." in name:
            continue
        values = parameter.detach().numpy().astype(np.float32)
        turned = architecture in TURNED and name.split(".")[-2] in heads
        plus_one = architecture.startswith("gemma") and "norm" in name  # files hold what norms multiply by
        if plus_one:
            values = values + np.float32(1)
        if turned:
            values = to_pairs(values, heads[name.split(".")[-2]])
        values = as_converted(name, values, config)
        kind = Type.F32
        if values.ndim == 2 and not name.endswith(("mlp.gate.weight", "mlp.router.weight")):  # routers stay F32
            kind = kinds[matrices % len(kinds)]
            matrices += 1
        packed, read = encode(values, kind)
        writer.add_tensor(gguf_name(name + (".weight" if name.endswith("sinks") else ""), architecture, norms_on_output), packed, raw_dtype=kind)
        seen[name] = to_halves(read, heads[name.split(".")[-2]]) if turned else read - np.float32(1) if plus_one else as_saved(name, read, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen
