"""Configs, shards of weights and rotary tables of every tiny model against transformers, gguf and numpy.

The reference is what transformers itself makes of the same files; GGUF files are read back by the gguf package and by
transformers' own GGUF reader (which settles the order of interleaved rotary rows). Ends with damaged files by name, and
with SmolLM2: its weights against gguf's dequantisation, and peak memory of loading.
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "support")]
import tiny_models  # noqa: E402  (sets the hub to offline before transformers comes in)

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from gguf_reading import read_gguf  # noqa: E402
from probe_cases import run_case  # noqa: E402

PROBE = os.environ.get("MODEL_PROBE") or str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/model/model_probe")
LENGTHS = (1, 30, 70, 5000)
SMOLLM2 = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
failures = []


def check(good, message):
    if not good:
        failures.append(message)
        print("FAILS:", message)


def probe(*arguments):
    return run_case([PROBE, *map(str, arguments)], text=True)


def expected_config(model):
    """What the probe must have read, from transformers' own config and modules."""
    config, layer = model.config, model.model.layers[0]
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    sliding = config.model_type == "mistral" and config.sliding_window or "sliding_attention" in kinds
    fields = {name: getattr(config, name) for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")}
    fields.update(
        family=config.model_type, head_dim=layer.self_attn.head_dim, qkv_bias=layer.self_attn.q_proj.bias is not None,
        o_bias=layer.self_attn.o_proj.bias is not None, mlp_bias=layer.mlp.down_proj.bias is not None,
        qk_norm=hasattr(layer.self_attn, "q_norm"), sliding_window=config.sliding_window if sliding else 0,
        layer_is_sliding=[kind == "sliding_attention" for kind in kinds] if "sliding_attention" in kinds else [],
        num_parameters=sum(p.numel() for p in model.parameters()))
    return fields


def expected_shard(model, shard, rank):
    """{name: array} as the shard must hold it, by slicing the model's own weights."""
    state = {name: value.detach().float().numpy() for name, value in model.state_dict().items()}
    E = model.model.layers[0].self_attn.head_dim
    q, k = (slice(*(bound * E for bound in shard[key])) for key in ("heads", "kv_heads"))
    f, v = slice(*shard["mlp"]), slice(*shard["vocab"])
    out = {"embed": state["model.embed_tokens.weight"][v], "lm_head": state["lm_head.weight"][v],
           "norm": state["model.norm.weight"]}
    for i in range(model.config.num_hidden_layers):
        layer = f"model.layers.{i}."
        attention, mlp = layer + "self_attn.", layer + "mlp."
        for kind, suffix in (("weight", ""), ("bias", ".bias")):
            if attention + "q_proj." + kind in state:
                out[f"{i}.qkv{suffix}"] = np.concatenate([state[attention + "q_proj." + kind][q],
                                                          state[attention + "k_proj." + kind][k],
                                                          state[attention + "v_proj." + kind][k]])
            if mlp + "gate_proj." + kind in state:
                out[f"{i}.gate_up{suffix}"] = np.concatenate([state[mlp + "gate_proj." + kind][f],
                                                              state[mlp + "up_proj." + kind][f]])
        out[f"{i}.o"] = state[attention + "o_proj.weight"][:, q]
        out[f"{i}.down"] = state[mlp + "down_proj.weight"][:, f]
        for short, name in (("o", attention + "o_proj.bias"), ("down", mlp + "down_proj.bias")):
            if name in state and rank == 0:
                out[f"{i}.{short}.bias"] = state[name]
        for short, name in (("input_layernorm", layer), ("post_attention_layernorm", layer), ("q_norm", attention),
                            ("k_norm", attention)):
            if f"{name}{short}.weight" in state:
                out[f"{i}.{short}"] = state[f"{name}{short}.weight"]
    return out


def compare_shard(label, folder, rank, expected, tolerance):
    found = {path.name[len(f"{rank}."):-len(".f32")]: path for path in folder.glob(f"{rank}.*.f32")}
    check(set(found) == set(expected), f"{label}: tensors {sorted(set(found) ^ set(expected))} are on one side only")
    worst = 0.0
    for name in set(found) & set(expected):
        values = np.fromfile(found[name], dtype=np.float32)
        if values.size != expected[name].size:
            check(False, f"{label}: {name} has {values.size} values, not {expected[name].size}")
            continue
        scale = np.abs(expected[name]).max()
        worst = max(worst, float(np.abs(values.reshape(expected[name].shape) - expected[name]).max() / scale))
    check(worst <= tolerance, f"{label}: weights differ by {worst:.3g} of their range")
    return worst


def compare_rope(label, folder, model):
    worst = 0.0
    for length in LENGTHS:
        tiny_models.reset_rope(model)
        turned = model.base_model.rotary_emb(torch.zeros(1, dtype=torch.float32), torch.arange(length)[None])
        cos, sin = (turned.real, turned.imag) if torch.is_tensor(turned) else turned
        if model.config.model_type == "nanochat":  # it turns the other way, in another place
            sin = -sin
        for name, table in (("cos", cos), ("sin", sin)):
            # Cohere's stands pair by pair, the others' in halves.
            pairs = model.config.model_type.startswith("cohere")
            once = model.config.model_type == "gpt_oss" or torch.is_tensor(turned)  # the two halves are not written twice
            expected = (table[0] if once else table[0, :, ::2] if pairs else table[0, :, : table.shape[-1] // 2]).numpy()
            found = np.fromfile(folder / f"{name}.{length}.f32", dtype=np.float32).reshape(expected.shape)
            worst = max(worst, float(np.abs(found - expected).max()))
    # rope_freqs.weight holds quotients rounded to f32, which divide once more: a last bit of a slow wave.
    limit = 1e-4 if "gguf_llama3" in label else 1e-6
    check(worst <= limit, f"{label}: rotary tables differ by {worst:.3g}")
    return worst


# Names and fields of the others differ; families_test.py compares what they compute.
LIKE_LLAMA = ("llama", "mistral", "qwen2", "qwen3", "ministral", "cwm", "seed_oss", "iquestcoder", "internlm3")


def num_text_parameters(model):
    """Of a model of images and texts those of its text decoder and head; a tied head counts once, and a router's bias that transformers has as a buffer."""
    decoder = next((name for name in ("language_model", "text_model") if hasattr(getattr(model, "model", None), name)), None)
    if decoder:
        parts = [getattr(model.model, decoder), model.lm_head]
    else:
        parts = [getattr(model, "language_model", model)]  # Llama 4's has its head
    tensors = {p for part in parts for p in part.parameters()} | {b for name, b in model.named_buffers() if name.endswith(("e_score_correction_bias", "layer_scalar")) and "vision" not in name and "audio" not in name}
    return sum(tensor.numel() for tensor in tensors)


def check_sizes(name, work):
    """Parameters, bytes of the shards' weights as planned and as loaded, rotary tables."""
    path = tiny_models.make(work, name)
    model = tiny_models.load_reference(path)
    out = work / f"{name}.dump"
    out.mkdir()
    done = probe(path, out, "x1", "x2", "x3", *(f"@{n}" for n in LENGTHS), "f32")
    check(done.returncode == 0, f"{name}: exit code {done.returncode}: {done.stderr.strip()}")
    for folder in out.glob("x*"):
        found = json.loads((folder / "config.json").read_text())
        wanted = num_text_parameters(model)
        check(found["num_parameters"] == wanted, f"{name}: {found['num_parameters']} parameters, not {wanted}")
        for shard in found["shards"]:
            check(shard["loaded_bytes"] == shard["weight_bytes"], f"{name}: bytes of a shard of {folder.name}: {shard}")
    # Granite's classes with windows have one embedding for each base, and one that is not used.
    ropes = getattr(model.config, "rope_parameters", None) or {}
    has_one = hasattr(model.base_model, "rotary_emb") and not hasattr(model.base_model, "rotary_embs")
    rope = compare_rope(name, out, model) if has_one and ropes and not any(isinstance(value, dict) for value in ropes.values()) else None
    print(f"{name:26s} rotary tables differ by {'-' if rope is None else f'{rope:.2g}'}")


def check_variant(name, work):
    if tiny_models.VARIANTS[name].family not in LIKE_LLAMA or tiny_models.VARIANTS[name].outer:
        return check_sizes(name, work)
    path = tiny_models.make(work, name)
    model = tiny_models.load_reference(path)
    expected = expected_config(model)
    if path.suffix == ".gguf" and name.startswith("gguf_llama"):
        expected["family"] = "llama"
    sizes = [size for size in (1, 2, 3) if size <= model.config.num_attention_heads]
    work = work / f"{name}.dump"
    work.mkdir()
    done = probe(path, work, *(f"x{size}" for size in sizes), *(f"@{length}" for length in LENGTHS), "f32")
    check(done.returncode == 0, f"{name}: exit code {done.returncode}: {done.stderr.strip()}")
    if done.returncode != 0:
        return
    for size in sizes:
        out = work / f"x{size}"
        found = json.loads((out / "config.json").read_text())
        shards = found.pop("shards")
        for key, value in expected.items():
            got = found[key]
            same = abs(got - value) <= 1e-6 * abs(value) if key == "rms_norm_eps" else got == value
            check(same, f"{name}: {key} is {got}, transformers has {value}")
        worst = 0.0
        for rank, shard in enumerate(shards):
            check(shard["loaded_bytes"] == shard["weight_bytes"], f"{name}: bytes of shard {rank} of {size}: {shard}")
            tolerance = 1e-6 if path.suffix == ".gguf" else 0.0
            worst = max(worst, compare_shard(f"{name} shard {rank}/{size}", out, rank,
                                             expected_shard(model, shard, rank), tolerance))
        if size == 1:
            rope = compare_rope(name, work, model)
            print(f"{name:26s} weights differ by {worst:.2g}, rotary tables by {rope:.2g}")


def check_rounding(work):
    """16-bit weights are torch's rounding of the stored values."""
    path = work / "llama_biases"
    model = tiny_models.load_reference(path)
    for dtype, kind in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        out = work / f"rounded.{dtype}"
        out.mkdir()
        check(probe(path, out, "x1", dtype).returncode == 0, f"llama_biases in {dtype} is not read")
        found = np.fromfile(out / "x1/0.1.o.f32", dtype=np.float32)
        rounded = model.model.layers[1].self_attn.o_proj.weight.detach().to(kind).float().numpy()
        check(np.array_equal(found, rounded.ravel()), f"o_proj in {dtype} is not the rounded weight")
        bias = np.fromfile(out / "x1/0.1.o.bias.f32", dtype=np.float32)
        check(np.array_equal(bias, model.model.layers[1].self_attn.o_proj.bias.detach().numpy()), "a bias was rounded")


def check_gguf_convention(work):
    """transformers' own GGUF reader gives the weights of our reference folders: names, row order, types."""
    for name in ("gguf_llama_f32", "gguf_llama_q8_0", "gguf_qwen2", "gguf_qwen3_mixed", "gguf_gemma2"):
        # Its config reader knows no head size of Qwen3's GGUF files; only the tensors are compared here.
        config = transformers.AutoConfig.from_pretrained(work / f"{name}.reference")
        read = transformers.AutoModelForCausalLM.from_pretrained(work, gguf_file=f"{name}.gguf", config=config,
                                                                 dtype=torch.float32)
        reference = tiny_models.load_reference(work / f"{name}.gguf").state_dict()
        for key, value in read.state_dict().items():
            check(torch.allclose(value, reference[key], atol=1e-6), f"{name}: {key} differs from transformers' GGUF reader")


def check_damage(work):
    """Files that contradict themselves: exit code 65 and the fault's name."""
    def refused(label, change, words, base="llama"):
        folder = work / f"damaged.{label}"
        folder.mkdir()
        config = json.loads((work / base / "config.json").read_text())
        tensors = {name: value.clone() for name, value in tiny_models.load_reference(work / base).state_dict().items()}
        change(config, tensors)
        from safetensors.torch import save_file
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        done = probe("--describe", folder)
        check(done.returncode == 65, f"{label}: exit code {done.returncode}: {done.stderr.strip()}")
        check(done.stderr.count("\n") == 1, f"{label}: not one message: {done.stderr}")
        for word in words:
            check(word in done.stderr, f"{label}: {word!r} is not in: {done.stderr.strip()}")

    up, norm = "model.layers.1.mlp.up_proj.weight", "model.norm.weight"
    refused("missing", lambda c, t: t.pop(up), [up, "missing"])
    refused("unused", lambda c, t: t.update({"model.layers.0.extra": torch.zeros(3)}), ["model.layers.0.extra", "[3]"])
    refused("shape", lambda c, t: t.update({up: torch.zeros(95, 64)}), [up, "[95, 64]", "[96, 64]"])
    refused("vocab", lambda c, t: c.update(vocab_size=321), ["embed_tokens", "[320, 64]", "[321, 64]"])
    refused("layers", lambda c, t: c.update(num_hidden_layers=1), ["model.layers.1.", "is not used"])
    refused("more_layers", lambda c, t: c.update(num_hidden_layers=3), ["model.layers.2.", "missing"])
    refused("kv", lambda c, t: c.update(num_key_value_heads=4), ["k_proj", "[32, 64]", "[64, 64]"])
    refused("rank", lambda c, t: t.update({norm: torch.zeros(1, 64)}), [norm, "[1, 64]"])
    refused("integers", lambda c, t: t.update({norm: torch.zeros(64, dtype=torch.int8)}), [norm, "I8"])
    refused("quantised", lambda c, t: c.update(quantization_config={"quant_method": "awq"}), ["quantization_config"])
    refused("no_bias", lambda c, t: c.update(attention_bias=True), ["q_proj.bias", "missing"])
    refused("other_family", lambda c, t: c.update(model_type="mamba"), ["model_type", "mamba"])
    refused("tied_but_untied", lambda c, t: (c.update(tie_word_embeddings=False), t.pop("lm_head.weight")), ["lm_head.weight", "missing"])


def check_quantised(work):
    """A checkpoint in int8 by output: what the shards hold is what they hold of the same numbers stored in f32."""
    from safetensors.torch import save_file
    config = json.loads((work / "llama/config.json").read_text())
    tensors = {name: value.clone() for name, value in tiny_models.load_reference(work / "llama").state_dict().items()}
    stored, numbers = {}, {}
    for name, value in tensors.items():
        if not name.endswith("_proj.weight"):
            stored[name] = numbers[name] = value
            continue
        scale = value.abs().amax(1, keepdim=True) / 127
        codes = (value / scale).round().to(torch.int8)
        stored |= {name: codes, name + "_scale": scale}
        numbers[name] = codes.float() * scale
    quantization = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}
    written = {}
    for label, content, more in (("codes", stored, {"quantization_config": quantization}), ("numbers", numbers, {})):
        folder, out = work / f"quantised.{label}", work / f"quantised.{label}.out"
        folder.mkdir(), out.mkdir()
        save_file(content, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**config, **more}))
        done = probe(folder, out, "x1", "x2", "f32")
        check(done.returncode == 0, f"quantised {label}: {done.stderr}")
        written[label] = {path.relative_to(out): path.read_bytes() for path in sorted(out.rglob("*.f32"))}
    check(len(written["codes"]) > 10 and written["codes"] == written["numbers"], "a quantised checkpoint's shards differ from its numbers'")


def check_smollm2(work):
    out = work / "smollm2"
    out.mkdir()
    done = probe(SMOLLM2, out, "x1", "f32")
    check(done.returncode == 0, f"SmolLM2: {done.stderr}")
    config = json.loads((out / "x1/config.json").read_text())
    check((config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (9, 3, 64), f"SmolLM2: {config}")
    stored = {tensor.name: tensor for tensor in read_gguf(SMOLLM2).tensors}
    check(config["num_parameters"] == sum(int(t.n_elements) for t in stored.values()), f"SmolLM2: {config['num_parameters']}")

    def plain(name):
        return gguf.quants.dequantize(stored[name].data, stored[name].tensor_type).astype(np.float32)
    qkv = np.concatenate([tiny_models.tiny_gguf.to_halves(plain("blk.29.attn_q.weight"), 9),
                          tiny_models.tiny_gguf.to_halves(plain("blk.29.attn_k.weight"), 3), plain("blk.29.attn_v.weight")])
    for file, expected in (("29.qkv", qkv), ("embed", plain("token_embd.weight")), ("3.down", plain("blk.3.ffn_down.weight"))):
        found = np.fromfile(out / f"x1/0.{file}.f32", dtype=np.float32).reshape(expected.shape)
        worst = float(np.abs(found - expected).max())
        check(worst <= 1e-6 * np.abs(expected).max(), f"SmolLM2 {file} differs by {worst:.3g}")
    measured = json.loads(probe("--measure", SMOLLM2, "f32").stdout)
    ratio = measured["peak_growth_bytes"] / measured["loaded_bytes"]
    print(f"SmolLM2: {measured['loaded_bytes'] / 1e6:.0f} MB of weights, peak memory of loading {ratio:.3f} times that")
    check(0.9 < ratio < 1.25, f"loading SmolLM2 takes {ratio:.3f} times its weights")


def main():
    with tempfile.TemporaryDirectory(prefix="magister_model_oracle_") as folder:
        work = pathlib.Path(folder)
        for name in tiny_models.variants():
            check_variant(name, work)
        check_rounding(work)
        check_gguf_convention(work)
        check_damage(work)
        check_quantised(work)
        check_smollm2(work)
    print(f"{len(tiny_models.variants())} models, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
