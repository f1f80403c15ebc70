"""One model in the folder that transformers 5 writes and in those that older versions wrote: the same bits by the passes of CPUs, and transformers
reads both alike. Spellings differ in the rotary embedding, dtype, kinds of layers, the place of a text decoder's config and the prefix of its tensors.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "support")]
import tiny_models  # noqa: E402

import numpy as np  # noqa: E402
from probe_cases import run_case  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

PROBE = str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/model/families_probe")


def older_rope(config, spelling="rope_type"):
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope[spelling] = rope.pop("rope_type")
    config["rope_scaling"] = rope


def older_gemma3(config):
    kinds = config.pop("rope_parameters")
    config["rope_theta"], config["rope_local_base_freq"] = kinds["full_attention"].pop("rope_theta"), kinds["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = kinds["full_attention"]
    kinds = config.pop("layer_types")
    config["sliding_window_pattern"] = kinds.index("full_attention") + 1


def older_dtype(config):
    config["torch_dtype"] = config.pop("dtype")


def inside(change):
    return lambda config: change(config["text_config"])


def flat_qwen(config):
    text = config.pop("text_config")
    text.pop("model_type")
    older_rope(text, "type")
    text["rope_scaling"]["type"] = "mrope"
    config.update(text)


def tied_inside(config):
    config["text_config"]["tie_word_embeddings"] = config.pop("tie_word_embeddings")


def renamed(names, architecture):
    def change(config):
        for new, old in names.items():
            config[old] = config.pop(new)
        config["architectures"] = [architecture]
    return change


def deepseek_yarn(config):
    """As Sarvam 105B is published: head_dim is what a server caches of a token."""
    older_rope(config, "type")
    config["rope_scaling"]["type"] = "deepseek_yarn"
    config["head_dim"] = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    config |= {"use_qk_norm": True, "q_head_dim": config["qk_head_dim"], "score_function": "sigmoid"}


def authors_kimi(config):
    config["architectures"] = ["KimiK25ForConditionalGeneration"]
    config["text_config"]["model_type"] = "kimi_k2"


EXAONE = {"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon", "hidden_act": "activation_function"}
SARVAM = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}
NEWEST = {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head.", "vision_tower.": "model.vision_tower.",
          "multi_modal_projector.": "model.multi_modal_projector."}
NEWEST_QWEN = {"model.": "model.language_model.", "visual.": "model.visual."}
# Variant of tiny_models, changes of its config, prefixes of its tensors.
CASES = {
    "llama3": ("llama3_rope_parameters", (older_rope, older_dtype), {}),
    "yarn": ("arcee", (older_rope,), {}),
    "gemma3": ("gemma3", (older_gemma3, older_dtype), {}),
    "gemma3 inside": ("gemma3_outer", (inside(older_gemma3), older_dtype), {}),
    "gemma3, newest names": ("gemma3_outer", (), NEWEST),
    "mistral3, newest names": ("mistral3", (inside(older_rope),), NEWEST),
    "qwen2.5-vl, flat": ("qwen2_5_vl", (flat_qwen,), {}),
    "qwen2.5-vl, newest names": ("qwen2_5_vl", (), NEWEST_QWEN),
    "exaone, as published": ("exaone", (older_rope, older_dtype, renamed(EXAONE, "ExaoneForCausalLM")), {}),
    "sarvam 30b, as published": ("sarvam_moe_uneven", (older_rope, renamed({**SARVAM, "attention_bias": "use_qkv_bias"}, "SarvamMoEForCausalLM")), {}),
    "sarvam 105b, as published": ("sarvam_mla", (deepseek_yarn, renamed(SARVAM, "SarvamMLAForCausalLM")), {}),
    "kimi k2.5, as published": ("kimi_k25", (authors_kimi,), {"language_model.model.blocks.": "language_model.model.layers."}),
    "glm-4.1v, tied inside": ("glm4v_tied", (tied_inside,), {}),
}
tiny_models.VARIANTS["glm4v_tied"] = tiny_models.dataclasses.replace(tiny_models.VARIANTS["glm4v"], changes={
    **tiny_models.VARIANTS["glm4v"].changes, "tie_word_embeddings": True})


# Mixtures whose files hold a tensor per expert; transformers' modules hold one for all.
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "glm4_moe", "dots1", "ernie4_5_moe", "hunyuan_moe", "minimax_m2", "mellum", "flex_olmo", "granitemoe")


def respell(folder, changes, prefixes):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for change in changes:
        change(config)
    path.write_text(json.dumps(config), encoding="utf-8")
    if prefixes:
        tensors = load_file(folder / "model.safetensors")
        named = {next((new + name[len(old):] for old, new in prefixes.items() if name.startswith(old)), name): tensor for name, tensor in tensors.items()}
        assert named.keys() != tensors.keys()
        save_file(named, folder / "model.safetensors", metadata={"format": "pt"})


class Spellings(unittest.TestCase):
    def logits(self, folder, tokens):
        done = run_case([PROBE, folder, tokens, folder, "1c", "2c"], text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(folder / f"fast.{shards}.f32").read_bytes() for shards in (1, 2)]

    def test_the_bits_are_the_same(self):
        lists = tiny_models.sequences(320, (5, 40))
        for case, (variant, changes, prefixes) in CASES.items():
            with self.subTest(case=case), tempfile.TemporaryDirectory(prefix="magister_spellings_") as work:
                work = pathlib.Path(work)
                (work / "tokens.json").write_text(json.dumps(lists))
                new = tiny_models.make(work, variant)
                old = work / "older"
                shutil.copytree(new, old)
                respell(old, changes, prefixes)
                self.assertEqual(self.logits(new, work / "tokens.json"), self.logits(old, work / "tokens.json"))
                for ours, theirs in zip(*(tiny_models.reference_logits(folder, lists) for folder in (new, old)), strict=True):
                    np.testing.assert_array_equal(ours, theirs)

    def test_experts_as_modules_hold_them(self):
        lists = tiny_models.sequences(320, (5, 40))
        for variant in MIXTURES:
            with self.subTest(variant=variant), tempfile.TemporaryDirectory(prefix="magister_spellings_") as work:
                work = pathlib.Path(work)
                (work / "tokens.json").write_text(json.dumps(lists))
                new = tiny_models.make(work, variant)
                fused = work / "fused"
                shutil.copytree(new, fused)
                model = tiny_models.load_reference(new)
                model.save_pretrained(fused, save_original_format=False)
                names = load_file(fused / "model.safetensors")
                self.assertTrue(any(name.endswith(".experts.gate_up_proj") for name in names))
                self.assertFalse(any(name in names for name in load_file(new / "model.safetensors") if ".experts.0." in name))
                self.assertEqual(self.logits(new, work / "tokens.json"), self.logits(fused, work / "tokens.json"))
                for ours, theirs in zip(*(tiny_models.reference_logits(folder, lists) for folder in (new, fused)), strict=True):
                    np.testing.assert_allclose(ours, theirs, atol=1e-5)  # where a tensor stands in memory changes its last bits


if __name__ == "__main__":
    unittest.main(verbosity=2)
