"""Switches of config.json that change a model's results, each turned in a model of every family: the passes of CPUs then give transformers'
log-probabilities with the same config, or the model is refused. use_cache: false changes nothing; scales of a quantised KV cache and parts
that predict several tokens at once are left out and named.
usage: switches_test.py [VARIANT ...]
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "support")]
import tiny_models  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from probe_cases import run_case  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

PROBE = str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/model/families_probe")
TOLERANCE = 2e-4
# Key: values that are tried, but the config's own.
SWITCHES = {
    "use_bidirectional_attention": (True,), "is_causal": (False,), "attn_logit_softcapping": (0.7,), "final_logit_softcapping": (0.7,),
    "attention_bias": (True, False), "qkv_bias": (True, False), "mlp_bias": (True, False), "use_qkv_bias": (True, False), "use_qk_norm": (True, False),
    "qk_layernorm": (True, False), "tie_word_embeddings": (True, False), "use_cache": (False,), "clip_qkv": (0.3,), "logit_scale": (0.3,),
    "logits_scaling": (3.0,), "query_pre_attn_scalar": (7,), "attention_multiplier": (0.3,), "residual_multiplier": (0.4,), "embedding_multiplier": (0.4,),
    "norm_topk_prob": (True, False), "routed_scaling_factor": (0.4,), "hidden_act": ("gelu", "relu"), "use_parallel_residual": (True, False),
    "parallel_attn": (True, False), "use_sliding_window": (True, False), "sliding_window": (3,), "attention_chunk_size": (3,), "attn_scale": (0.5,),
    "attn_temperature_tuning": (True,), "partial_rotary_factor": (0.5,), "rope_theta": (77.0,), "scale_embedding": (True,), "no_rope_layers": ([0, 0, 0, 0],),
    "num_experts_per_tok": (1,), "scale_attn_weights": (False,), "scale_attn_by_inverse_layer_idx": (True,), "use_post_norm": (True, False),
    "attention_value_scale": (0.4, None), "layer_rope_theta": ([0, 0, 0, 0],), "mup_enabled": (True, False), "route_scale": (0.4,),
    "router_scaling_factor": (0.4,), "moe_routed_scaling_factor": (0.4,), "moe_router_logit_softcapping": (2.0,), "gating": ("per-head", "per-element", False),
    "num_attention_heads_per_layer": ([4, 8, 4],), "mlp_layer_types": (["sparse", "sparse", "sparse"],), "scale_emb": (2.0,), "scale_depth": (0.5,),
    "dim_model_base": (20,), "rope_interleave": (False,), "layer_norm_eps": (0.1,)}
# The switches that every family is tried with, whatever its config holds; others only where the config has the key.
ALWAYS = ("use_bidirectional_attention", "is_causal", "attn_logit_softcapping", "final_logit_softcapping", "attention_bias", "tie_word_embeddings",
          "use_cache", "attention_chunk_size")


def variants():
    """The first variant of every family, and that of every model of images and texts."""
    found = {}
    for name, variant in tiny_models.VARIANTS.items():
        if not variant.gguf and not variant.mxfp4:
            found.setdefault((variant.family, variant.outer), name)
    return list(found.values())


def logprobs(logits):
    return torch.as_tensor(logits).double().log_softmax(-1).numpy()


class Model:
    def __init__(self, work, name):
        self.folder, self.turned, self.name = tiny_models.make(work, name), work / "turned", name
        self.config = json.loads((self.folder / "config.json").read_text())
        self.tokens = work / "tokens.json"
        self.lists = tiny_models.sequences(320, (9,))
        self.tokens.write_text(json.dumps(self.lists))
        shutil.copytree(self.folder, self.turned, copy_function=os.link)
        self.own = self.found(self.config)

    def places(self):
        """The objects of config.json that hold keys: the text decoder's and the outer one."""
        return ("text_config", "") if "text_config" in self.config else ("",)

    def found(self, config, tensors=None):
        """-> log-probabilities, or the message of the refusal; and what was said"""
        path = self.turned / "config.json"
        path.unlink()
        path.write_text(json.dumps(config))
        if tensors is not None:
            (self.turned / "model.safetensors").unlink()
            save_file(tensors, self.turned / "model.safetensors", metadata={"format": "pt"})
        done = run_case([PROBE, self.turned, self.tokens, self.turned, "1c"], text=True)
        if done.returncode != 0:
            return done.stderr
        return logprobs(np.fromfile(self.turned / "fast.1.f32", dtype=np.float32).reshape(len(self.lists[0]), -1))

    def expected(self):
        """-> transformers' log-probabilities, or None where it cannot load the model whole"""
        loader = tiny_models.transformers.AutoModelForImageTextToText if "text_config" in self.config else tiny_models.transformers.AutoModelForCausalLM
        try:
            model, loading = loader.from_pretrained(self.turned, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
            if loading["missing_keys"] or loading["mismatched_keys"] or loading["unexpected_keys"]:
                return None
            with torch.no_grad():
                return logprobs(model.eval()(torch.tensor(self.lists), use_cache=False).logits[0])
        except Exception as error:  # a config that transformers refuses, each class in its own way
            print(f"  {self.name}: transformers: {type(error).__name__}")
            return None

    def check(self, place, key, value):
        """-> how it ended, or a message of failure"""
        config = json.loads(json.dumps(self.config))
        (config[place] if place else config)[key] = value
        found = self.found(config)
        where = f"{self.name}: {place + '.' if place else ''}{key} = {value}"
        if isinstance(found, str):
            return f"FAILS: {where}: is refused: {found}" if key == "use_cache" else "refused"
        expected = self.expected()
        if expected is None:
            return f"FAILS: {where}: transformers cannot load it, and it is not refused"
        worst = np.abs(found - expected).max()
        if not worst <= TOLERANCE:
            return f"FAILS: {where}: differs by {worst:.3g}"
        return "the same" if np.abs(found - self.own).max() <= TOLERANCE else "obeyed"

    def check_parts(self):
        """Tensors of other programs: left out."""
        tensors = load_file(self.turned / "model.safetensors")
        layer = next((name[:name.index("k_proj")] for name in tensors if "self_attn.k_proj.weight" in name), None)
        more = {"mtp.fc.weight": torch.ones(2, 2), "model.mtp_block.0.norm.weight": torch.ones(2)}
        if layer:
            more |= {layer + "k_scale": torch.ones(1), layer + "v_scale": torch.ones(1)}
        found = self.found(self.config, {**tensors, **more})
        good = not isinstance(found, str) and np.array_equal(found, self.own)
        return [] if good else [f"FAILS: {self.name}: with parts of other programs: {found if isinstance(found, str) else 'differs'}"]


def check_variant(name):
    failures, ends = [], {}
    with tempfile.TemporaryDirectory(prefix="magister_switches_") as work:
        model = Model(pathlib.Path(work), name)
        if isinstance(model.own, str):
            return [f"FAILS: {name}: {model.own}"]
        for place in model.places():
            held = model.config[place] if place else model.config
            for key, values in SWITCHES.items():
                if key not in held and key not in ALWAYS:
                    continue
                for value in values:
                    if held.get(key) == value or (place == "" and "text_config" in model.config and key not in ALWAYS):
                        continue
                    end = model.check(place, key, value)
                    if end.startswith("FAILS"):
                        failures.append(end)
                    else:
                        ends.setdefault(end, []).append(key)
        failures += model.check_parts()
    print(f"{name}: " + "; ".join(f"{end}: {', '.join(dict.fromkeys(keys))}" for end, keys in sorted(ends.items())), flush=True)
    return failures


def main():
    names = sys.argv[1:] or variants()
    failures = [failure for name in names for failure in check_variant(name)]
    print("\n".join(failures))
    print(f"{len(names)} models, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
