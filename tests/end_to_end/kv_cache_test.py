"""model.kv_cache: fp8 in whole jobs, with the GPU's kernels on the host: texts and verdicts are the same for 1 and 2 ranks, alone and among
others, with prompts cut into parts, with and without shared beginnings; the key is part of the identity and its default is not; the loss is
measured on the run's own prompts; the plan counts the smaller pages; everything without such pages refuses the key by name.
"""
import json
import re
import subprocess
import tempfile
import unittest

import h5py

from tiny_world import CHAIN, PROGRAM, World, make_model

ON_HOST = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
CODES = ("model.kv_cache=fp8", "model.dtype=bf16")


class KvCache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name, records=16, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        cls.bytes = cls.world.complete("codes", 1, *CODES, **ON_HOST)
        cls.written = cls.columns("codes")

    @classmethod
    def columns(cls, name):
        """Texts, and the verdicts' log-odds."""
        found = {}
        for file in cls.world.names:
            with h5py.File(cls.world.results(name).with_name(file)) as results:
                def keep(path, item):
                    if isinstance(item, h5py.Dataset) and path.startswith(("generate/", "judge/")):
                        found[f"{file}:{path}"] = item[()].tolist() if item.dtype != object else [bytes(value) for value in item[()]]
                results.visititems(keep)
        assert found
        return json.dumps(found, default=str)

    def test_the_same_whoever_computes_beside_whom(self):
        self.world.forget("codes")
        self.assertEqual(self.world.complete("codes", 2, *CODES, **ON_HOST), self.bytes, "2 ranks")
        both = lambda key: [f"tasks.{task}.{key}" for task in (0, 1)]  # noqa: E731
        for name, changes in (("alone", both("max_sequences=1")), ("parts", both("token_budget=16")), ("apart", both("share_prefixes=false"))):
            self.world.complete(name, 1, *CODES, *changes, **ON_HOST)
            self.assertEqual(self.columns(name), self.written, name)

    def test_shards(self):
        self.world.complete("shards", 1, *CODES, "layout.shards_per_rank=3", **ON_HOST)
        self.world.complete("shards-alone", 1, *CODES, "layout.shards_per_rank=3", "tasks.0.max_sequences=1", "tasks.1.max_sequences=1", **ON_HOST)
        self.assertEqual(self.columns("shards-alone"), self.columns("shards"))

    def test_the_key_is_part_of_the_identity_and_its_default_is_not(self):
        plain = self.world.complete("plain", 1, "model.dtype=bf16", **ON_HOST)
        again = self.world.run("plain", 1, "model.dtype=bf16", "model.kv_cache=auto", **ON_HOST)
        self.assertEqual((again.returncode, self.world.sha256("plain")), (0, plain), again.stderr)
        self.assertIn("complete already", again.stderr)
        other = self.world.run("plain", 1, *CODES, **ON_HOST)
        self.assertEqual(other.returncode, 78, other.stderr)
        self.assertIn("model.kv_cache is not given in it and fp8 in this run", other.stderr)
        self.assertNotEqual(self.columns("plain"), self.written, "nothing was rounded")

    def test_the_loss_is_measured_and_printed(self):
        done = self.world.run("loss", 1, *CODES, "model.quantization_loss=4000", **ON_HOST)
        self.assertEqual((done.returncode, self.columns("loss")), (0, self.written), done.stderr)
        self.assertIn("loss of 8-bit pages over", done.stderr)
        for task, prompts in (("answers", False), ("verdicts", True)):
            found = json.loads(self.world.results("loss").with_name(f"{task}.quantization.json").read_text())
            print(f"   {task}: perplexity {found['perplexity_unquantized']:.4f} -> {found['perplexity_quantized']:.4f}, mean KL {found['mean_kl_nats']:.2g} nat")
            self.assertEqual((found["kv_cache"], found["quantization"], "verdict_flips" in found), ("fp8", "none", prompts))
            self.assertLess(1e-4, found["mean_kl_nats"])
            self.assertLess(found["mean_kl_nats"], 0.2)
        # A teacher's passes have no cache, so nothing is lost; its file is that of plain pages but for the key.
        teacher = World(self.scratch.name + "/teacher", records=4, model=self.world.model)
        done = teacher.run("teacher", 1, *CODES, "model.quantization_loss=100", **ON_HOST)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("loses nothing here", done.stderr)
        teacher.complete("without", 1, "model.dtype=bf16", **ON_HOST)
        rows = []
        for name in ("teacher", "without"):
            with h5py.File(teacher.results(name)) as file:
                rows.append(file["teacher/top_logprob"][()].tobytes())
        self.assertEqual(*rows)

    def plan(self, *arguments):
        done = subprocess.run([PROGRAM, "plan", str(self.world.experiment("plan")), *arguments], cwd=self.world.folder, text=True, check=False, timeout=600,
                              capture_output=True, env={**self.world.environment, **ON_HOST, "MAGISTER_ALLOW_SINGLETON": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_plan_counts_smaller_pages(self):
        """Two layers of three KV heads of 8 numbers, key and value: 2 bytes a number, or one and one more a vector."""
        for changes, wanted in ((["model.dtype=bf16"], 192), (CODES, 108)):
            said = self.plan("--config-only", "layout.devices=auto", *changes)
            self.assertEqual(set(re.findall(r"(\d+) bytes per token over all devices", said)), {str(wanted)})

    def test_refusals(self):
        for name, changes, words, environment in (
                ("cpu", CODES, "model.kv_cache: fp8 on CPUs", {}),
                ("f32", ["model.kv_cache=fp8"], "with model.dtype: f32", ON_HOST),
                ("word", ["model.kv_cache=fp9"], "did you mean fp8?", ON_HOST),
                ("vllm", ["model.kv_cache_dtype=fp8"], "did you mean kv_cache?", ON_HOST)):
            refused = self.world.run(f"refused-{name}", 1, *changes, **environment)
            self.assertEqual(refused.returncode, 78, refused.stderr)
            self.assertIn(words, refused.stderr)
            self.assertEqual([*self.world.folder.glob(f"runs/refused-{name}/*.h5*")], [])
        odd = World(self.scratch.name + "/odd", records=4, text=CHAIN, results=("answers.h5", "verdicts.h5"),
                    model=make_model(f"{self.scratch.name}/odd-model", hidden_size=48, num_attention_heads=4, num_key_value_heads=2))
        refused = odd.run("odd", 1, *CODES, **ON_HOST)
        self.assertEqual(refused.returncode, 78, refused.stderr)
        self.assertIn("layer 0 has keys of 12 and values of 12 numbers", refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
