"""Greedy texts of families that are not Llama's layers, written by the whole program through its cache: transformers' ids, on one shard and
on 2 or 3, and by the GPU's code run on the host. Every forward pass of all families: tests/model/families_test.py.
"""
import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import h5py
import torch
from tokenizers import Tokenizer

import tiny_world

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

TASK = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu, shards_per_rank: {shards}}}
tasks:
  - task: generate
    dataset: {{path: {data}, key: id}}
    temperature: 0
    max_prompt_length: 64
    max_new_tokens: {tokens}
    ignore_eos: true
"""
TOKENS = 64
VARIANTS = ("gemma2", "gemma3", "phi3", "olmo3", "smollm3", "granite", "glm4", "cohere2", "mixtral", "qwen3_moe", "gpt_oss_mxfp4",
            "gpt_neox", "gpt2", "exaone4", "granitemoe", "ministral3", "hunyuan", "falcon_groups", "opt", "gemma3_outer", "qwen2_5_vl", "glm4_moe", "ernie4_5_moe", "apertus",
            "cohere2_moe_sigmoid", "phimoe", "persimmon", "nanochat", "biogpt", "qwen2_moe_other_shared", "exaone_moe", "hy_v3", "kolibri1", "aria", "deepseek_v3", "axk1", "minicpm3",
            "deepseek_v32", "glm_moe_dsa", "llama4_outer", "bloom", "mpt", "falcon_alibi", "mimo_v2", "granite_swa", "granitemoe_swa", "flint", "afmoe", "laguna",
            "gemma4_shared_keys", "gemma4_moe", "gemma3n", "gemma4_unified_outer", "qwen3_next", "qwen3_5", "qwen3_5_moe_vl")
ON_CPUS = ("qwen3_next", "qwen3_5", "qwen3_5_moe_vl")  # linear attention
OVER_THREE = ("gemma", "olmo2", "olmoe", "glm", "cohere")
# A head that is the embeddings writes its last token again: they are large beside what random layers add.
tiny_models.VARIANTS.update({name: dataclasses.replace(tiny_models.VARIANTS[name], changes={
    **tiny_models.VARIANTS[name].changes, "tie_word_embeddings": False}) for name in (*VARIANTS, *OVER_THREE)})


def greedy(model, prompt, written):
    """The best id behind the prompt and behind each written token, and the gap to the second best. While both agree these are the ids
    that the model writes greedily: one pass shows as much as one for each token."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + written[:-1]]), use_cache=False).logits[0, len(prompt) - 1:].double()
    best = logits.topk(2)
    return best.indices[:, 0].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist()


class Families(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.world = tiny_world.World(self.folder / "world", records=1)
        source = random.Random(4)
        texts = [" ".join(source.choices(tiny_world.WORDS, k=words)) for words in (1, 3, 5, 8, 11)]
        (self.folder / "data.jsonl").write_text("".join(json.dumps({"id": f"r{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
        self.texts = texts

    def start(self, name, model, shards, **environment):
        path = self.folder / f"{name}.yaml"
        path.write_text(TASK.format(name=name, runs=self.folder / "runs", model=model, data=self.folder / "data.jsonl", shards=shards, tokens=TOKENS))
        return subprocess.run([tiny_world.PROGRAM, "run", str(path)], env={**self.world.environment, **environment}, capture_output=True, text=True)

    def ids(self, name, model, shards, **environment):
        done = self.start(name, model, shards, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        with h5py.File(self.folder / "runs" / name / "answers.h5") as file:
            offset, tokens = file["samples/offset"][:], file["tokens/id"][:]
        return [tokens[a:b].tolist() for a, b in zip(offset, offset[1:])]

    def test_greedy_ids_are_those_of_transformers(self):
        for variant in (*VARIANTS, *OVER_THREE):
            model = tiny_models.make(self.folder, variant)
            reference, tokenizer = tiny_models.load_reference(model), Tokenizer.from_file(str(model / "tokenizer.json"))
            prompts = [tokenizer.encode(text).ids for text in self.texts]
            on_gpus = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
            runs = {"one": (1, {}), "gpu": (1, on_gpus)}
            if variant in ON_CPUS:
                runs.pop("gpu")
            if variant in OVER_THREE:
                runs.pop("one")
            runs["more"] = (3 if variant in OVER_THREE else 2, {})
            for name, (shards, environment) in runs.items():
                with self.subTest(variant=variant, run=name):
                    for prompt, ours in zip(prompts, self.ids(f"{variant}_{name}", model, shards, **environment), strict=True):
                        self.assertEqual(len(ours), TOKENS)
                        theirs, gaps = greedy(reference, prompt, ours)
                        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(theirs))
                        self.assertTrue(same == len(theirs) or gaps[same] < 1e-4, f"token {same} of {ours} and {theirs}")
                        self.assertGreater(len(set(theirs)), 1, "a text of one token shows little")

    def test_a_place_is_used_again(self):
        """States of texts: by two at a time, each text, and each of two texts of one prompt, is what it is alone."""
        model = tiny_models.make(self.folder, "qwen3_next")
        long = " ".join(self.texts[:4])  # over a page
        texts = [f"{long} {word}" for word in ("a", "b", "c")]
        (self.folder / "data.jsonl").write_text("".join(json.dumps({"id": f"s{i}", "text": text}) + "\n" for i, text in enumerate(self.texts + texts)))
        keys = "    n: 2\n    temperature: 1\n"
        found = []
        for name, more in (("two", "    max_sequences: 2\n"), ("all", "    max_sequences: 16\n"), ("budget", "    max_sequences: 3\n    token_budget: 7\n")):
            path = self.folder / f"{name}.yaml"
            path.write_text(TASK.format(name=name, runs=self.folder / "runs", model=model, data=self.folder / "data.jsonl", shards=1, tokens=24)
                            .replace("    temperature: 0\n", keys + more).replace("max_prompt_length: 64", "max_prompt_length: 104"))
            done = subprocess.run([tiny_world.PROGRAM, "run", str(path)], env=self.world.environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            with h5py.File(self.folder / "runs" / name / "answers.h5") as file:
                found.append((file["tokens/id"][:].tolist(), file["generate/logprob"][:].tolist()))
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])
        tokenizer, reference = Tokenizer.from_file(str(model / "tokenizer.json")), tiny_models.load_reference(model)
        prompt = tokenizer.encode(texts[-1]).ids
        self.assertGreater(len(prompt), 48)
        for last in (slice(-48, -24), slice(-24, None)):
            written, logprobs = found[0][0][last], torch.tensor(found[0][1][last])
            with torch.no_grad():
                rows = reference(torch.tensor([prompt + written[:-1]]), use_cache=False).logits[0, len(prompt) - 1:].log_softmax(-1)
            self.assertLess((rows.gather(1, torch.tensor(written)[:, None])[:, 0] - logprobs).abs().max().item(), 1e-4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
