"""Whole results files against Hugging Face transformers in fp32: the small real model (from its GGUF file) on the shipped
texts, and the tiny one. Tokens come from the `tokenizers` package, distributions from transformers; h5py reads the file.
A file whose rows are shifted by one must not pass: the test shifts one and looks.
"""
import json
import pathlib
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny_world import ORACLE, ROOT, SMOLLM2, World

sys.path.insert(0, str(ORACLE))
import gguf_reading  # noqa: E402


def reference_columns(model, ids, top_k):
    """Of one sample, in double precision -> dict of arrays."""
    with torch.no_grad():
        logits = model(torch.tensor(ids)[None]).logits[0].double()
        logsumexp = logits.logsumexp(-1)
        logprob = logits - logsumexp[:, None]
        best = logprob.topk(top_k).values.numpy()
        entropy = -torch.einsum("tv,tv->t", logprob.exp(), logprob)
    target = numpy.full(len(ids), numpy.nan)
    target[:-1] = logprob[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    return {"all": logprob.numpy(), "top_logprob": best, "logsumexp": logsumexp.numpy(), "target_logprob": target, "entropy": entropy.numpy(),
            "tail_mass": 1 - numpy.exp(best).sum(1), "gap": best[:, 0] - best[:, 1], "first": logprob.argmax(1).numpy()}


def worst_difference(found, expected, tolerance):
    """Largest |difference| over all columns of a sample; infinite where NaN, ids or order are wrong."""
    worst = 0.0
    for name in ("top_logprob", "logsumexp", "target_logprob", "entropy", "tail_mass"):
        if (numpy.isnan(found[name]) != numpy.isnan(expected[name])).any():
            return numpy.inf
        worst = max(worst, float(numpy.nanmax(numpy.abs(found[name] - expected[name]), initial=0.0)))
    of_ids = numpy.take_along_axis(expected["all"], found["top_id"].astype(numpy.int64), 1)
    worst = max(worst, float(numpy.abs(of_ids - found["top_logprob"]).max()))
    clear = expected["gap"] > 2 * tolerance
    if (found["top_id"][clear, 0] != expected["first"][clear]).any() or (numpy.diff(found["top_logprob"], axis=1) > 0).any():
        return numpy.inf
    return worst


class Parity(unittest.TestCase):
    def compare(self, results, model, tokenize, texts, tolerance):
        with h5py.File(results) as file:
            offset, keys = file["samples/offset"][:].astype(int), list(file["samples/key"].asstr())
            self.assertEqual(keys, [key for key, _ in texts])
            columns = {name: file[f"teacher/{name}"][:] for name in file["teacher"]}
            all_ids = file["tokens/id"][:]
        worst = shifted = 0.0
        for index, (key, text) in enumerate(texts):
            rows = slice(offset[index], offset[index + 1])
            ids = all_ids[rows]
            self.assertEqual(ids.tolist(), tokenize(text), key)
            if len(ids) == 0:
                continue
            expected = reference_columns(model, ids.astype(numpy.int64), columns["top_id"].shape[1])
            found = {name: column[rows] for name, column in columns.items()}
            worst = max(worst, worst_difference(found, expected, tolerance))
            if len(ids) > 2:
                rolled = {name: column if name == "target_logprob" else numpy.roll(column, 1, axis=0) for name, column in found.items()}
                shifted = max(shifted, worst_difference(rolled, expected, tolerance))
        print(f"{len(texts)} samples, worst difference {worst:.2e}, of rows shifted by one {shifted:.2e}")
        self.assertLessEqual(worst, tolerance)
        self.assertGreater(shifted, tolerance)

    def test_small_real_model_on_the_shipped_texts(self):
        records = [json.loads(line) for line in (ROOT / "configs/data/quickstart.jsonl").read_text(encoding="utf-8").splitlines()]
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, records=1, model=SMOLLM2)
            world.complete("smollm2", 2, f"tasks.0.dataset.path={ROOT}/configs/data/quickstart.jsonl",
                           "tasks.0.max_length=2048", "tasks.0.top_k=64", "tasks.0.unit_tokens=2048")
            with gguf_reading.in_memory():
                model = AutoModelForCausalLM.from_pretrained(str(SMOLLM2.parent), gguf_file=SMOLLM2.name, dtype=torch.float32).eval()
                tokenizer = AutoTokenizer.from_pretrained(str(SMOLLM2.parent), gguf_file=SMOLLM2.name).backend_tokenizer
            # transformers drops the Digits step when it converts this file; llama.cpp and the original keep it.
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
            texts = [(record["id"], record["text"]) for record in records]
            self.compare(world.results("smollm2"), model, lambda text: tokenizer.encode(text).ids, texts, 2e-3)

    def test_tiny_model(self):
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder)
            world.complete("tiny", 3, "tasks.0.top_k=20")
            model = AutoModelForCausalLM.from_pretrained(world.model, dtype=torch.float32).eval()
            tokenizer = Tokenizer.from_file(str(world.model / "tokenizer.json"))
            lines = [json.loads(line) for line in pathlib.Path(world.data).read_text(encoding="utf-8").splitlines()]
            texts = [(line["id"], line["text"]) for line in lines]
            self.compare(world.results("tiny"), model, lambda text: tokenizer.encode(text).ids[:512], texts, 1e-4)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
