"""LoRA adapters against PEFT: `model.adapter` gives the log-probabilities of PEFT's model on whole models and shards, in any number type;
what PEFT can write and is not merged here is refused by name.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import tiny_world
from parity_test import reference_columns, worst_difference

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

PROBE = os.environ.get("IO_PROBE") or str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/io_probe")
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def make_adapter(folder, model, seed, scale=0.1, **config):
    """An adapter with random numbers in both factors -> the model with it."""
    adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), peft.LoraConfig(task_type="CAUSAL_LM", **config))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(scale * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)
    return adapted.eval()


class Adapter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=6)
        cls.plain = cls.folder / "plain"
        cls.adapted = make_adapter(cls.plain, cls.world.model, 1, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])

    def setUp(self):
        self.model = self.world.model

    def tearDown(self):
        self.world.model = self.model

    def columns(self, name, ranks, *arguments):
        self.world.complete(name, ranks, *arguments)
        with h5py.File(self.world.results(name)) as file:
            return {key: column[:] for key, column in file["teacher"].items()}

    def compare(self, name, adapted, tolerance, ranks, *arguments, **environment):
        self.world.forget(name)
        self.world.complete(name, ranks, "tasks.0.top_k=20", *arguments, **environment)
        with h5py.File(self.world.results(name)) as file:
            offset, columns, all_ids = file["samples/offset"][:].astype(int), {key: file[f"teacher/{key}"][:] for key in file["teacher"]}, file["tokens/id"][:]
            self.assertEqual("adapter_sha256" in file.attrs, any("model.adapter" in argument for argument in arguments))
        worst = without = 0.0
        for begin, end in zip(offset[:-1], offset[1:]):
            if end == begin:
                continue
            found, ids = {key: column[begin:end] for key, column in columns.items()}, all_ids[begin:end].astype(numpy.int64)
            worst = max(worst, worst_difference(found, reference_columns(adapted, ids, 20), tolerance))
            with adapted.disable_adapter():
                without = max(without, worst_difference(found, reference_columns(adapted, ids, 20), tolerance))
        print(f"{name}: worst difference {worst:.1e}, without the adapter {without:.1e}")
        self.assertLessEqual(worst, tolerance)
        self.assertGreater(without, 50 * tolerance)

    def test_log_probs_are_peft_s(self):
        self.compare("plain", self.adapted, 1e-4, 0, f"model.adapter={self.plain}")
        linear = self.folder / "linear"
        adapted = make_adapter(linear, self.world.model, 2, 0.05, r=8, lora_alpha=4, target_modules="all-linear", use_rslora=True)
        self.compare("linear", adapted, 1e-4, 2, f"model.adapter={linear}")
        for shards in (2, 3):
            self.compare(f"shards-{shards}", adapted, 1e-4, 0, f"model.adapter={linear}", f"layout.shards_per_rank={shards}")
        # A GPU's code, on the host.
        self.compare("gpu-code", adapted, 1e-4, 0, f"model.adapter={linear}", "tasks.0.dataset.limit=3", MAGISTER_GPU_CODE_ON_HOST="1")
        # Rounded and quantised are the merged weights: the same as from a file that PEFT merged.
        merged = self.folder / "merged"
        adapted.merge_and_unload().save_pretrained(merged)
        shutil.copy(self.world.model / "tokenizer.json", merged)
        for name, *arguments in (("bf16", "model.dtype=bf16"), ("int8", "model.quantization=int8")):
            ours, other = (self.columns(f"{name}-{kind}", 0, *arguments, one) for kind, one in (("ours", f"model.adapter={linear}"), ("peft", f"model.path={merged}")))
            apart = float(numpy.nanmax(numpy.abs(ours["target_logprob"] - other["target_logprob"])))
            print(f"{name}: {apart:.1e}")
            self.assertLess(apart, 0.02)

    def test_files_that_fuse_layers(self):
        """Phi-3's q, k and v are one layer with one pair of factors; its shards take three parts of B's rows."""
        tokenizer = self.world.model / "tokenizer.json"
        self.world.model = tiny_models.make(self.folder, "phi3_partial_uneven")
        shutil.copy(tokenizer, self.world.model)
        fused = self.folder / "fused"
        adapted = make_adapter(fused, self.world.model, 4, r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])
        for shards in (1, 2):
            self.compare(f"fused-{shards}", adapted, 1e-4, 0, f"model.adapter={fused}", f"layout.shards_per_rank={shards}", "tasks.0.max_length=64")

    def test_shards_merge_the_same_bits(self):
        threads = self.columns("threads", 0, f"model.adapter={self.plain}", "layout.shards_per_rank=2")
        ranks = self.columns("ranks", 2, f"model.adapter={self.plain}", "layout.gpus_per_group=2")
        for key, column in threads.items():
            numpy.testing.assert_array_equal(column, ranks[key], key)

    def test_another_adapter_is_another_experiment(self):
        adapter = self.folder / "changing"
        shutil.copytree(self.plain, adapter)
        self.world.complete("identity", 0, f"model.adapter={adapter}")
        with h5py.File(self.world.results("identity")) as file:
            first = file.attrs["model_sha256"], file.attrs["adapter_sha256"]
        config = json.loads((adapter / CONFIG).read_text())
        (adapter / CONFIG).write_text(json.dumps({**config, "lora_alpha": 9}))
        done = self.world.run("identity", 0, f"model.adapter={adapter}")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.world.forget("identity")
        self.world.complete("identity", 0, f"model.adapter={adapter}")
        with h5py.File(self.world.results("identity")) as file:
            self.assertTrue(all(file.attrs[key] != value for key, value in zip(("model_sha256", "adapter_sha256"), first)))

    def refused(self, code, words, adapter, *overrides):
        done = self.world.run("refused", 0, f"model.adapter={adapter}", *overrides)
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse((self.folder / "runs/refused").exists() and list((self.folder / "runs/refused").glob("*.h5*")))

    def changed(self, config=(), weights=None):
        """A copy of the plain adapter; weights changes the tensors in place."""
        adapter = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "bad"
        shutil.copytree(self.plain, adapter)
        values = json.loads((adapter / CONFIG).read_text())
        values.update(config)
        (adapter / CONFIG).write_text(json.dumps(values))
        if weights is not None:
            tensors = load_file(adapter / WEIGHTS)
            weights(tensors)
            save_file(tensors, adapter / WEIGHTS)
        return adapter

    def all_refused(self, cases):
        """(code, words, folder), by one process that opens as the program does; the plain adapter comes first and last."""
        cases = [(0, (str(self.plain),), self.plain), *cases, (0, (str(self.plain),), self.plain)]
        done = subprocess.run([PROBE, "merged", str(self.world.model)], input="".join(f"{folder}\n" for _, _, folder in cases), capture_output=True, text=True, check=True)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        for line, (code, words, folder) in zip(lines, cases):
            with self.subTest(words=words):
                self.assertEqual(line.split(" ")[0], str(code), line)
                self.assertIn(str(folder), line)
                if code != 0:
                    self.assertRegex(line, r"\(.+\); ")
                for word in words:
                    self.assertIn(word, line)

    def test_configs_that_are_refused(self):
        merge = "merge_and_unload"
        cases = [(65, (CONFIG, *words), self.changed(config)) for config, *words in (
            ({"use_dora": True}, "use_dora is true", merge), ({"modules_to_save": ["lm_head"]}, 'modules_to_save is ["lm_head"]', merge), ({"bias": "lora_only"}, 'bias is "lora_only"', merge),
            ({"lora_bias": True}, "lora_bias is true"), ({"lora_alpha": 0}, "lora_alpha is 0", "change nothing"), ({"lora_alpha": "8"}, 'lora_alpha is "8"'), ({"lora_alpha": None}, "lora_alpha is null"),
            ({"fan_in_fan_out": True}, "fan_in_fan_out is true"), ({"peft_type": "IA3"}, 'peft_type is "IA3"', merge), ({"peft_type": None}, "peft_type is null"), ({"r": 0}, "r is 0"),
            ({"r": -4}, "r is -4"), ({"r": 4.5}, "r is 4.5"), ({"r": 5}, WEIGHTS, "has rank 4", "says r: 5"), ({"rank_pattern": {"q_proj": 2}}, WEIGHTS, "says 2 for model.layers.0.self_attn.q_proj"),
            ({"alpha_pattern": {"q_proj": "2"}}, "alpha_pattern is"), ({"target_modules": ["q_proj", "k_proj"]}, "target_modules names k_proj", "layers.0.self_attn.k_proj"),
            ({"target_modules": ["q_proj", "v_proj", 5]}, "target_modules is", "names of layers"), ({"init_lora_weights": "pissa"}, 'init_lora_weights is "pissa"'), ({"use_rslora": "yes"}, "use_rslora is"),
            ({"use_what_comes_next": 3}, "use_what_comes_next is 3"), ({"trainable_token_indices": [1]}, "trainable_token_indices is [1]"), ({"layer_replication": [[0, 1]]}, "layer_replication"))]
        for text, words in ((b"{", "is not JSON"), (b"\xff", "is not JSON"), (b"[]", "the whole is []"), (b"[" * 100000 + b"]" * 100000, "nested deeper than 32")):
            cases.append((65, (CONFIG, words), self.changed()))
            (cases[-1][2] / CONFIG).write_bytes(text)
        self.all_refused(cases)
        self.refused(65, ("use_dora is true", merge), cases[0][2])

    def test_weights_that_are_refused(self):
        name = "base_model.model.model.layers.1.self_attn.q_proj.lora_{}.weight"

        def put(key, value):
            return lambda tensors: tensors.update({key: value})

        def rename(old, new):
            return lambda tensors: tensors.update({new: tensors.pop(old)})

        def spoil(tensors):
            tensors[name.format("B")][3, 1] = float("nan")

        def third_layer(tensors):
            tensors.update({name.format(factor).replace("layers.1", "layers.2"): tensors[name.format(factor)].clone() for factor in "AB"})
        cases = [(65, (WEIGHTS, *words), self.changed({}, weights)) for weights, *words in (
            (lambda tensors: tensors.pop(name.format("B")), "q_proj.lora_A.weight has no lora_B"), (lambda tensors: tensors.pop(name.format("A")), "q_proj.lora_B.weight has no lora_A"),
            (lambda tensors: [tensors.pop(name.format(factor)) for factor in "AB"], CONFIG + ": target_modules names q_proj", "model.layers.1.self_attn.q_proj"),
            (third_layer, "layers.2", "does not have"), (put(name.format("A"), torch.zeros(4, 47)), "[4, 47] does not fit", "q_proj.weight [48, 48]"),
            (put(name.format("B"), torch.zeros(40, 4)), "[40, 4] does not fit"), (put(name.format("A"), torch.zeros(3, 48)), "has rank 3", "says r: 4"),
            (put(name.format("A"), torch.zeros(4 * 48)), "a factor is a matrix"), (put(name.format("A"), torch.zeros(4, 48, dtype=torch.int32)), "is I32"),
            (rename(name.format("A"), name.format("A")[:-len(".weight")] + ".default.weight"), "is no factor of a linear layer"),
            (put(name.format("A")[len("base_model."):], torch.zeros(4, 48)), "is no factor of a linear layer"),
            (put("base_model.model.lm_head.weight", torch.zeros(320, 48)), "base_model.model.lm_head.weight is no factor", "merge_and_unload"),
            (put("base_model.model.model.embed_tokens.lora_embedding_A", torch.zeros(4, 320)), "lora_embedding_A is no factor"),
            (put(name.format("A").replace("q_proj", "norm"), torch.zeros(4, 48)), "norm.lora_A.weight has no lora_B"), (spoil, name.format("B"), "not finite"),
            (lambda tensors: tensors.clear(), "holds no tensors"))]
        cut, gone, pickle = self.changed(), self.changed(), self.changed()
        whole = (cut / WEIGHTS).read_bytes()
        (cut / WEIGHTS).write_bytes(whole[:-4])
        (gone / WEIGHTS).unlink()
        (pickle / WEIGHTS).rename(pickle / "adapter_model.bin")
        self.all_refused([*cases, (65, (WEIGHTS,), cut), (74, (WEIGHTS, "no such file"), gone), (65, ("adapter_model.bin: is a pickle", "save the adapter again"), pickle),
                          (74, (CONFIG, "no such file"), self.folder / "nothing")])
        self.refused(74, (CONFIG, "no such file"), self.folder / "nothing")

    def test_models_that_take_no_adapter(self):
        self.world.model = tiny_world.SMOLLM2
        self.refused(78, ("is a GGUF file", "name the folder"), self.plain)
        other = self.folder / "other"
        make_adapter(other, tiny_world.make_model(self.folder / "wide", hidden_size=96), 5, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
        self.world.model = self.model
        self.all_refused([(65, ("of another model: ", str(self.folder / "wide")), other)])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
