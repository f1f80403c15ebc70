"""Texts of models whose rotary frequencies depend on the length (LongRoPE, dynamic scaling), beyond the limit: greedy texts and
log-probabilities are those of transformers with the frequencies of one length for all texts, alone, over ranks, shards and the GPU's code;
model.rope_length gives the same frequencies to tasks without a cache; log, plan and identity name the choice.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
from transformers import AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import tiny_world

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

TASK = """name: {name}
seed: 5
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32{rope}}}
layout: {{devices: cpu, shards_per_rank: {shards}}}
tasks:
  - {{task: {task}, dataset: {{path: {data}, key: id, tokens: ids}}, {keys}}}
"""
ANSWERS = "temperature: 0, ignore_eos: true, max_prompt_length: {prompt}, max_new_tokens: 20"
LOGITS = "top_k: 20, max_length: 90"
LENGTHS = (3, 20, 11, 37, 60)
# Model, its limit, and the longest text of the tasks here.
LIMITS = {"phi3_longrope": 24, "llama_dynamic": 32}
tiny_models.VARIANTS["llama_dynamic"] = tiny_models.Variant("llama", {"max_position_embeddings": 32, "rope_parameters": {
    "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}})


class RopeLength(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1)
        cls.models = {name: tiny_models.make(cls.folder, name) for name in LIMITS}
        cls.prompts = tiny_models.sequences(320, LENGTHS)
        cls.data = cls.folder / "prompts.jsonl"
        cls.write_prompts(cls.data, cls.prompts)

    @staticmethod
    def write_prompts(path, prompts):
        path.write_text("".join(json.dumps({"id": f"r{i}", "ids": ids}) + "\n" for i, ids in enumerate(prompts)))

    def command(self, command, name, model, task, keys, ranks=0, shards=1, rope=0, data=None, **environment):
        path = self.folder / f"{name}.yaml"
        path.write_text(TASK.format(name=name, runs=self.folder / "runs", model=self.models[model], shards=shards, data=data or self.data,
                                    task=task, keys=keys, rope=f", rope_length: {rope}" if rope else ""))
        started = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        return subprocess.run([*started, tiny_world.PROGRAM, command, str(path)], env={**self.world.environment, **environment},
                              cwd=self.folder, capture_output=True, text=True, timeout=600)

    def texts(self, name, model, keys, **options):
        done = self.command("run", name, model, "generate", keys, **options)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        with h5py.File(self.folder / "runs" / name / "answers.h5") as file:
            offset = file["samples/offset"][:]
            texts = [(file["tokens/id"][a:b].tolist(), file["generate/logprob"][a:b]) for a, b in zip(offset, offset[1:])]
            return texts, file.attrs.get("rope_length"), done.stdout + done.stderr

    def reference(self, name, length):
        model = AutoModelForCausalLM.from_pretrained(self.models[name], dtype=torch.float32).eval()
        rotary, kind = model.model.rotary_emb, model.config.rope_parameters["rope_type"]
        rotary.rope_type = "default"  # no list and no base is chosen anew
        frequencies, rotary.attention_scaling = ROPE_INIT_FUNCTIONS[kind](model.config, torch.device("cpu"), seq_len=length)
        rotary.register_buffer("inv_freq", frequencies, persistent=False)
        return model

    def compare(self, texts, model, prompts):
        worst = 0.0
        for prompt, (ids, logprobs) in zip(prompts, texts, strict=True):
            with torch.no_grad():
                found = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1].double().log_softmax(-1)
            self.assertEqual(len(ids), 20)
            best = found.max(-1).values.numpy()
            mine = found.gather(1, torch.tensor(ids).unsqueeze(1))[:, 0].numpy()
            worst = max(worst, numpy.abs(mine - logprobs).max(), (best - mine).max())  # the greedy token is the best one
        return worst

    def test_texts_beyond_the_limit(self):
        for model, limit in LIMITS.items():
            keys = ANSWERS.format(prompt=60)
            with self.subTest(model=model):
                texts, written, said = self.texts(f"{model}-one", model, keys)
                self.assertLess(self.compare(texts, self.reference(model, 80), self.prompts), 2e-4)
                self.assertGreater(self.compare(texts, self.reference(model, limit), self.prompts), 0.05)
                self.assertEqual(int(written), 96 if model == "phi3_longrope" else 80)
                self.assertIn("every text has the ", said)
                for name, options in (("ranks", {"ranks": 2}), ("shards", {"shards": 2}), ("gpu", {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
                    others, _, _ = self.texts(f"{model}-{name}", model, keys, **options)
                    self.assertEqual([ids for ids, _ in texts], [ids for ids, _ in others], name)
                plan = self.command("plan", f"{model}-plan", model, "generate", keys)
                self.assertEqual(plan.returncode, 0, plan.stderr)
                self.assertIn("model.rope_length", plan.stdout)

    def test_texts_within_the_limit_are_as_usual(self):
        few = [prompt for prompt in self.prompts if len(prompt) <= 4]
        data = self.folder / "few.jsonl"
        self.write_prompts(data, few)
        for model, limit in LIMITS.items():
            texts, written, _ = self.texts(f"{model}-short", model, ANSWERS.format(prompt=4), data=data)
            self.assertIsNone(written)
            self.assertLess(self.compare(texts, self.reference(model, limit), few), 2e-4)
            # By the key: the frequencies of long texts.
            texts, written, _ = self.texts(f"{model}-key", model, ANSWERS.format(prompt=4), data=data, rope=80)
            self.assertIsNotNone(written)
            self.assertLess(self.compare(texts, self.reference(model, 80), few), 2e-4)

    def test_passes_without_a_cache(self):
        for model, limit in LIMITS.items():
            for rope in (0, 90):
                name = f"{model}-logits-{rope}"
                done = self.command("run", name, model, "teacher_logits", LOGITS, rope=rope)
                self.assertEqual(done.returncode, 0, done.stderr[-2000:])
                with h5py.File(self.folder / "runs" / name / "teacher.h5") as file:
                    offset, found = file["samples/offset"][:], file["teacher/target_logprob"][:]
                worst = 0.0
                for prompt, begin in zip(self.prompts, offset.astype(int)):
                    with torch.no_grad():
                        want = self.reference(model, rope or len(prompt))(torch.tensor([prompt])).logits[0].double().log_softmax(-1)
                    for row, token in enumerate(prompt[1:]):
                        worst = max(worst, abs(float(want[row, token]) - float(found[begin + row])))
                self.assertLess(worst, 2e-4, name)

    def test_refusals(self):
        for model, keys, rope, words in (
                ("phi3_longrope", ANSWERS.format(prompt=60), 24, "that model.rope_length chooses are for 24 positions"),
                ("phi3_longrope", ANSWERS.format(prompt=77), 0, "was made for 96 positions"),
                ("llama_dynamic", ANSWERS.format(prompt=77), 0, "was made for 96 positions"),
                ("llama_dynamic", ANSWERS.format(prompt=60), 70, "that model.rope_length chooses are for 70 positions"),
                ("llama_dynamic", ANSWERS.format(prompt=60), 97, "was made for 96 positions")):
            done = self.command("run", "refused", model, "generate", keys, rope=rope)
            self.assertEqual(done.returncode, 78, (model, rope, done.stderr))
            self.assertIn(words, done.stderr)
        self.models["plain"] = self.world.model
        done = self.command("run", "refused", "plain", "generate", ANSWERS.format(prompt=60), rope=70)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("do not depend on a text's length", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
