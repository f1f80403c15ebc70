"""Texts from outside: greedy texts and log-probabilities equal transformers' generate; any number of ranks, kills, budgets and
restarts give the same bytes; shards write the same texts; stops, samples and refusals are as the experiment says.
"""
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

import h5py
import numpy
import torch
from transformers import AutoModelForCausalLM
from tokenizers import Tokenizer, decoders

import tiny_world

TASK = """name: {name}
seed: 5
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu, shards_per_rank: {shards}}}
tasks:
  - task: generate
    dataset: {{path: {data}, key: id}}
    max_prompt_length: 512
{keys}
"""


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        source = random.Random(4)
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(40):
                words = ["Some words repeat and others do not:"] * (8 if index % 2 else 0) + source.choices(tiny_world.WORDS, k=1 + index)
                file.write(json.dumps({"id": f"r{index}", "text": " ".join(words)}) + "\n")
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.tokenizer.decoder = decoders.ByteLevel()
        cls.reference = AutoModelForCausalLM.from_pretrained(cls.world.model, dtype=torch.float32).eval()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def write(self, name, keys, shards=1):
        path = self.world.folder / f"{name}.yaml"
        keys = "\n".join(f"    {key}: {json.dumps(value)}" for key, value in keys.items())
        path.write_text(TASK.format(name=name, runs=self.world.folder / "runs", model=self.world.model, data=self.world.data, shards=shards, keys=keys))
        return path

    def command(self, path, ranks):
        return [*(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []), tiny_world.PROGRAM, "run", str(path)]

    def run_it(self, name, keys, ranks=0, shards=1, code=0, **environment):
        done = subprocess.run(self.command(self.write(name, keys, shards), ranks), env={**self.world.environment, **environment},
                              cwd=self.world.folder, capture_output=True, text=True, timeout=2000)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return self.results(name) if code == 0 else done.stderr

    def results(self, name):
        return self.world.folder / "runs" / name / "answers.h5"

    def texts(self, path):
        with h5py.File(path) as file:
            offset = file["samples/offset"][:]
            return [(file["tokens/id"][a:b].tolist(), file["generate/logprob"][a:b], file["generate/text"][i].decode(), int(file["generate/finish_reason"][i]))
                    for i, (a, b) in enumerate(zip(offset, offset[1:]))]

    def digest(self, path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def test_greedy_equals_transformers(self):
        path = self.run_it("greedy", {"temperature": 0, "max_new_tokens": 24}, ranks=2)
        records = [json.loads(line) for line in self.world.data.read_text().splitlines()]
        close = 0
        for record, (ids, logprobs, text, reason) in zip(records, self.texts(path), strict=True):
            prompt = self.tokenizer.encode(record["text"]).ids
            with torch.no_grad():
                want = self.reference.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, return_dict_in_generate=True, output_logits=True)
            theirs = want.sequences[0][len(prompt):].tolist()
            for step, (ours, other) in enumerate(zip(ids, theirs)):
                logits = want.logits[step][0].double()
                two = logits.topk(2).values
                if ours != other:
                    self.assertLess(two[0] - two[1], 1e-4, "another token where the best is clear")
                    close += 1
                    break
                self.assertAlmostEqual(float(torch.log_softmax(logits, 0)[ours]), float(logprobs[step]), delta=1e-4)
            else:
                self.assertEqual(len(ids), len(theirs))
                self.assertEqual(text, self.tokenizer.decode(ids).replace("\0", "\ufffd"))  # HDF5's strings end at NUL
                ended = ids[-1] == self.reference.generation_config.eos_token_id
                self.assertEqual(reason, 0 if ended else 1)
        self.assertLess(close, 3)
        subprocess.run([tiny_world.PROGRAM, "check", str(path)], check=True, capture_output=True)

    def test_texts_are_strings_of_any_length(self):
        path = self.run_it("strings", {"max_new_tokens": 30, "n": 2, "ignore_eos": False})
        with h5py.File(path) as file:
            texts, offset, ids = file["generate/text"], file["samples/offset"][:], file["tokens/id"][:]
            self.assertEqual(file.attrs["format_version"], 2)
            kind = h5py.check_string_dtype(texts.dtype)
            self.assertEqual((kind.encoding, kind.length), ("utf-8", None))
            self.assertEqual(texts.id.get_storage_size(), 16 * len(texts), "a descriptor a text, whatever its length")
            want = [self.tokenizer.decode(ids[a:b].tolist()).replace("\0", "\ufffd") for a, b in zip(offset, offset[1:])]
            self.assertEqual(texts.asstr()[:].tolist(), want)
        shown = subprocess.run(["h5dump", "-d", "/generate/text", path], capture_output=True, check=True).stdout
        self.assertIn(b"STRSIZE H5T_VARIABLE", shown)
        self.assertIn(b"CSET H5T_CSET_UTF8", shown)
        lines = subprocess.run([tiny_world.PROGRAM, "export", path, "--to", "jsonl"], capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual([json.loads(line)["text"] for line in lines], want)
        info = json.loads(subprocess.run([tiny_world.PROGRAM, "info", path, "--json"], capture_output=True, text=True, check=True).stdout)
        column = next(one for one in info["datasets"] if one["path"] == "/generate/text")
        self.assertEqual((column["type"], column["shape"], column["text_bytes"]), ("text", [len(want)], sum(len(text.encode()) for text in want)))

    def test_a_nul_in_a_text(self):
        """The token of the byte 0: HDF5's strings would end there."""
        nul = self.tokenizer.token_to_id("\u0100")
        path = self.run_it("nul", {"max_new_tokens": 3, "logit_bias": [{"id": nul, "bias": 1000}]})
        self.assertTrue(all(text[0] == [nul] * 3 and text[2] == "\ufffd" * 3 for text in self.texts(path)))
        subprocess.run([tiny_world.PROGRAM, "check", path], check=True, capture_output=True)

    def test_a_damaged_text_is_found(self):
        path = self.run_it("damaged", {"max_new_tokens": 30})
        sound = path.read_bytes()
        heap = sound.index(b"GCOL")
        length = int.from_bytes(sound[heap + 24:heap + 32], "little")
        self.assertGreater(length, 2)
        for place in (heap + 32, heap + 32 + length - 1, heap + 24, heap + 16, heap):  # bytes of a text, its size, its number, the heap
            path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x15]) + sound[place + 1:])
            done = subprocess.run([tiny_world.PROGRAM, "check", path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 65, f"byte {place - heap} of the heap: {done.stdout}{done.stderr}")
        path.write_bytes(sound)
        subprocess.run([tiny_world.PROGRAM, "check", path], check=True, capture_output=True)

    def test_same_bytes_for_ranks_budgets_and_kills(self):
        keys = {"max_new_tokens": 20, "n": 3, "top_p": 0.95}
        one = self.run_it("same", keys)
        want, texts = self.digest(one), self.texts(one)
        for ranks in (1, 3):
            self.world.forget("same")
            self.assertEqual(self.digest(self.run_it("same", keys, ranks=ranks)), want)
        different = self.texts(self.run_it("small", {**keys, "token_budget": 16, "max_sequences": 2, "share_prefixes": False}, ranks=2))
        for ours, other in zip(texts, different, strict=True):
            self.assertEqual(ours[0], other[0])
            numpy.testing.assert_array_equal(ours[1], other[1])
        self.world.forget("same")
        source, path, kills = random.Random(8), self.write("same", keys), 0
        while kills < 8:
            job = subprocess.Popen(self.command(path, 2), env=self.world.environment, cwd=self.world.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(source.uniform(0.4, 1.1))
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                kills += 1
            job.wait()
            if one.exists():
                self.assertEqual(self.digest(one), want)
                self.world.forget("same")
        self.assertEqual(self.digest(self.run_it("same", keys, ranks=2)), want)
        print(f"{kills} kills")
        for point in ("generate.pass@30", "generate.record.done@7", "generate.record.done@20", "task.pack.begin", "task.pack.done"):
            self.world.forget("same")
            self.run_it("same", keys, code=-signal.SIGKILL, MAGISTER_FAIL_POINT=f"{point}:kill")
            self.assertEqual(self.digest(self.run_it("same", keys, ranks=2)), want, point)
            self.assertEqual([p.name for p in one.parent.glob("answers*")], ["answers.h5"])

    def test_shards_write_the_same_texts(self):
        keys = {"temperature": 0, "max_new_tokens": 12}
        one, three = self.texts(self.run_it("whole", keys)), self.texts(self.run_it("sharded", keys, shards=3))
        same = sum(a[0] == b[0] for a, b in zip(one, three, strict=True))
        self.assertGreaterEqual(same, len(one) - 1)  # sums over shards round otherwise: a tie may fall to the other side
        split = self.texts(self.run_it("over-ranks", keys, ranks=2, shards=1))
        self.assertEqual([t[0] for t in split], [t[0] for t in one])

    def test_stop_texts_and_tokens(self):
        free = self.texts(self.run_it("free", {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True}))
        self.assertTrue(all(len(ids) == 30 and reason == 1 for ids, _, _, reason in free))
        stop = next(text[5:8] for _, _, text, _ in free if len(text) > 12 and text[5:8].isascii() and text[5:8].strip())
        stopped = self.texts(self.run_it("stopped", {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True, "stop": [stop]}))
        hits = 0
        for (ids, _, text, _), (cut_ids, _, cut, reason) in zip(free, stopped, strict=True):
            self.assertEqual(cut_ids, ids[:len(cut_ids)])
            self.assertEqual(cut, text.split(stop)[0])
            self.assertEqual(reason == 0, stop in text)
            hits += stop in text
        self.assertGreater(hits, 0)
        token = free[0][0][4]
        by_token = self.texts(self.run_it("by-token", {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True, "stop_tokens": [token]}))
        for (ids, *_), (cut_ids, *_) in zip(free, by_token, strict=True):
            self.assertEqual(cut_ids, ids[:ids.index(token) + 1] if token in ids else ids)

    def test_a_stop_text_around_special_tokens(self):
        """Many of them inside it: the text ends all the same with the token that completes it."""
        special, a, b = (self.tokenizer.token_to_id(token) for token in ("<|end|>", "a", "b"))
        bias = [{"id": special, "bias": 1000}, {"id": a, "bias": 800}, {"id": b, "bias": 800}]
        texts = self.texts(self.run_it("special", {"temperature": 100, "max_new_tokens": 120, "logit_bias": bias, "stop": ["ab"]}))
        wide = 0
        for ids, _, text, reason in texts:
            whole = self.tokenizer.decode(ids, skip_special_tokens=True)
            self.assertNotIn("ab", self.tokenizer.decode(ids[:-1], skip_special_tokens=True))
            self.assertEqual((whole.removesuffix("ab"), reason == 0), (text, whole.endswith("ab")))
            if reason == 0:
                wide += len(ids) - 1 - max(i for i, token in enumerate(ids) if token == a) > 10
        self.assertGreater(wide, 1)

    def test_almost_no_temperature_is_greedy(self):
        greedy = self.texts(self.run_it("zero", {"temperature": 0, "max_new_tokens": 8}))
        for number, temperature in enumerate((9e-6, 1e-38, 1e-300)):
            found = self.texts(self.run_it(f"cold{number}", {"temperature": temperature, "top_p": 0.9, "max_new_tokens": 8}))
            self.assertEqual([(ids, text) for ids, _, text, _ in found], [(ids, text) for ids, _, text, _ in greedy])

    def test_export_and_samples(self):
        path = self.run_it("samples", {"max_new_tokens": 8, "n": 2})
        lines = [json.loads(line) for line in subprocess.run([tiny_world.PROGRAM, "export", str(path), "--to", "jsonl"], capture_output=True, text=True, check=True).stdout.splitlines()]
        self.assertEqual([(line["key"], line["text_index"]) for line in lines], [(f"r{i}", j) for i in range(40) for j in range(2)])
        for line, (ids, _, text, _) in zip(lines, self.texts(path), strict=True):
            self.assertEqual((line["token_ids"], line["text"]), (ids, text))
        self.assertGreater(sum(a["token_ids"] != b["token_ids"] for a, b in zip(lines[::2], lines[1::2])), 35, "samples of one prompt differ")

    def test_refusals(self):
        for keys, words in (({"temperature": 0, "n": 2}, "would be the same"), ({"stop": [""]}, "the text is empty"), ({"top_p": 0}, "top_p"),
                            ({"max_new_tokens": 4000}, "4096"), ({"stop_tokens": [9999]}, "9999"), ({"max_prompt": 3}, "max_prompt_length")):
            self.assertIn(words, self.run_it("refused", keys, code=78))
        self.assertFalse((self.world.folder / "runs/refused/answers.running.h5.partial").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
