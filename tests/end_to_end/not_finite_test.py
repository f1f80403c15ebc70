"""Weights with NaN or infinity, wherever they stand: no task calls a row of them a result. Exit code 65, a message that names record, row and
layer, and of the unit nothing committed; units whose rows are sound may stand.
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
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tiny_world import PROGRAM, make_model

NAN, INF = float("nan"), float("inf")
HEAD = """name: {name}
output: {{directory: {folder}/runs}}
model: {{path: {model}, dtype: {dtype}}}
layout: {{devices: {devices}, shards_per_rank: {shards}}}
tasks:
"""
DATA = "dataset: {{path: {data}, key: id}}"
TASKS = {
    "teacher": f"  - task: teacher_logits\n    {DATA}\n    max_length: 128\n    top_k: 8\n    unit_tokens: 32\n",
    "whole": f"  - task: teacher_logits\n    {DATA}\n    max_length: 128\n    top_k: 300\n    unit_tokens: 32\n",
    "greedy": f"  - task: generate\n    {DATA}\n    max_new_tokens: 4\n    temperature: 0\n",
    "sampled": f"  - task: generate\n    {DATA}\n    max_new_tokens: 4\n    top_p: 0.9\n    n: 3\n",
    "kept": f"  - task: generate\n    {DATA}\n    max_new_tokens: 4\n    top_logprobs: 3\n",
    "choice": f"  - task: generate\n    {DATA}\n    max_new_tokens: 8\n    constraint: {{{{choice: [maybe so, never]}}}}\n",
    "judge": f"  - task: judge\n    {DATA}\n    mode: simpleqa\n    prompt: {{{{user: \"{{{{{{{{ text }}}}}}}}\"}}}}\n",
}
RESULTS = {"teacher": "teacher_logits", "whole": "teacher_logits", "judge": "judge"}
MARK = "Ω"  # its first byte is a token that no other record has


def spoil(name, where, value):
    def change(weights):
        weights[name][where] = value
    return change


# name, what is spoiled, what the message says of the place
FAULTS = [
    ("late layer", spoil("model.layers.1.mlp.down_proj.weight", (3, 5), NAN), "layer 1"),
    ("first layer", spoil("model.layers.0.self_attn.q_proj.weight", (0, 0), NAN), "layer 0"),
    ("late queries", spoil("model.layers.1.self_attn.q_proj.weight", (5, 0), NAN), "layer 1"),
    ("late keys", spoil("model.layers.1.self_attn.k_proj.weight", (5, 0), INF), "layer 1"),
    ("layer with infinity", spoil("model.layers.1.self_attn.o_proj.weight", (2, 2), INF), "layer 1"),
    ("last norm", spoil("model.norm.weight", 7, NAN), "the last norm"),
    ("head row", spoil("lm_head.weight", 300, NAN), "the head"),
    ("head number", spoil("lm_head.weight", (17, 4), INF), "the head"),
    ("head number below", spoil("lm_head.weight", (17, 4), -INF), "the head"),
]


class NotFinite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="not-finite-"))
        cls.good = make_model(cls.folder / "good")
        cls.data = cls.folder / "data.jsonl"
        texts = [f"plan unit shard logit {i} the café and others repeat" for i in range(12)]
        texts[7] = "plan " + MARK + " unit"
        cls.data.write_text("".join(json.dumps({"id": f"q-{i}", "text": text}) + "\n" for i, text in enumerate(texts)), encoding="utf-8")
        cls.models = {name: cls.spoiled(name.replace(" ", "-"), change) for name, change, _ in FAULTS}
        mark = Tokenizer.from_file(str(cls.good / "tokenizer.json")).encode(MARK).ids[0]
        cls.models["one token"] = cls.spoiled("one-token", spoil("model.embed_tokens.weight", mark, NAN))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def spoiled(cls, name, change):
        folder = cls.folder / name
        shutil.copytree(cls.good, folder)
        weights = {key: value.clone() for key, value in load_file(folder / "model.safetensors").items()}
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def run_it(self, task, model, shards=1, ranks=0, dtype="f32", devices="cpu", **environment):
        name = f"{task}-{model.name}-{shards}-{dtype}-{len(environment)}"
        path = self.folder / f"{name}.yaml"
        path.write_text((HEAD + TASKS[task]).format(name=name, folder=self.folder, model=model, dtype=dtype, data=self.data, shards=shards,
                                                    devices=devices))
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, PROGRAM, "run", str(path)], capture_output=True, text=True, cwd=self.folder,
                              env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        return done, self.folder / "runs" / name

    def committed(self, runs):
        """Units that a partial file calls done -> samples in them."""
        samples = []
        for path in runs.glob("*.partial"):
            with h5py.File(path) as file:
                done, begin = file["commit/done"][:], file["commit/unit_begin"][:]
                for unit in done.nonzero()[0]:
                    samples += range(int(begin[unit]), int(begin[unit + 1]))
        return samples

    def refused(self, task, model, place, record, none=True, **how):
        done, runs = self.run_it(task, model, **how)
        said = f"{task} {model.name} {how}: {done.returncode}\n{done.stderr[-1500:]}"
        self.assertEqual(done.returncode, 65, said)
        self.assertFalse(list(runs.glob("*.h5")), said)
        self.assertRegex(done.stderr, r"record \d+ \(key \"q-\d+\"\), row \d+: .*not finite", said)
        if record is not None:
            self.assertIn(f'record {record} (key "q-{record}")', done.stderr, said)
        self.assertIn(f"first in {place};", done.stderr, said)
        samples = self.committed(runs)
        self.assertEqual(samples, [] if none else [s for s in samples if s != record], said)

    def test_good_weights_pass(self):
        for task in TASKS:
            done, _ = self.run_it(task, self.good)
            self.assertEqual(done.returncode, 0, f"{task}\n{done.stderr[-1500:]}")

    def test_no_task_calls_them_results(self):
        for name, _, place in FAULTS:
            for task in ("teacher", "greedy", "judge") if name != "late layer" else TASKS:
                with self.subTest(f"{name}: {task}"):
                    self.refused(task, self.models[name], place, None)

    def test_one_column_in_every_way_of_keeping_and_drawing(self):
        for task in TASKS:
            with self.subTest(task):
                self.refused(task, self.models["head row"], "the head", None)

    def test_one_token_spoils_the_record_that_has_it(self):
        for task in ("teacher", "greedy", "judge"):
            with self.subTest(task):
                self.refused(task, self.models["one token"], "the embeddings", 7, none=False)

    def test_shards_and_ranks(self):
        for task in ("teacher", "sampled", "judge"):
            with self.subTest(task):
                self.refused(task, self.models["head row"], "the head", None, shards=3)
                self.refused(task, self.models["late layer"], "layer 1", None, ranks=2)

    def test_other_types(self):
        for dtype in ("bf16", "f16"):
            with self.subTest(dtype):
                self.refused("teacher", self.models["late layer"], "layer 1", None, dtype=dtype)
                self.refused("greedy", self.models["head row"], "the head", None, dtype=dtype)

    def test_the_code_of_gpus(self):
        on_gpu = {"devices": "auto", "MAGISTER_GPU_CODE_ON_HOST": "1"}
        for name, _, place in FAULTS:
            for task in ("teacher", "greedy", "sampled", "judge") if name in ("late layer", "head row") else ("teacher",):
                with self.subTest(f"{name}: {task}"):
                    self.refused(task, self.models[name], place, None, **on_gpu)
        self.refused("teacher", self.models["late queries"], "layer 1", None, shards=2, **on_gpu)
        self.refused("teacher", self.models["one token"], "the embeddings", 7, none=False, **on_gpu)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
