"""What a model's generation_config.json bans, forces and biases is kept to as transformers keeps to it: greedy texts are those of generate() on the same
folder, drawn ones keep to its processors, on the GPU's path, in rollouts, in a judge's replies and in a policy's texts, too. What it says of sampling
is the task's to say, and `plan` tells.
"""
import json
import pathlib
import random
import subprocess
import tempfile
import unittest

import h5py
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, GenerationConfig

import tiny_world

HEAD = """name: {name}
seed: 5
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: {devices}}}
tasks:
"""
GENERATE = {"task": "generate", "dataset": {"key": "id"}, "max_prompt_length": 512, "max_new_tokens": 16}
NEW = 16


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1)
        source = random.Random(4)
        cls.records = [" ".join(source.choices(tiny_world.WORDS, k=1 + 2 * index)) for index in range(12)] + ["q"]
        cls.world.data.write_text("".join(json.dumps({"id": f"r{i}", "text": text}) + "\n" for i, text in enumerate(cls.records)))
        tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.prompts = [tokenizer.encode(text).ids for text in cls.records]
        assert len(cls.prompts[-1]) == 1
        cls.file = cls.world.model / "generation_config.json"
        cls.reference = AutoModelForCausalLM.from_pretrained(cls.world.model, dtype=torch.float32).eval()
        cls.file.unlink(missing_ok=True)
        # Tokens that this model likes to write, so that every rule has something to say.
        texts = [cls.generate(prompt, GenerationConfig(eos_token_id=None))[0] for prompt in cls.prompts]
        count = {}
        for text in texts:
            for token in text:
                count[token] = count.get(token, 0) + 1
        cls.liked = sorted(count, key=lambda token: (-count[token], token))
        cls.pairs = [list(text[i:i + 2]) for text in texts for i in (0, 3, 6)]
        cls.first = sorted({text[0] for text in texts})
        cls.last = sorted({text[2] for text in texts})[:4]

    @classmethod
    def generate(cls, prompt, config):
        with torch.no_grad():
            made = cls.reference.generate(torch.tensor([prompt]), generation_config=config, max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True,
                                          output_scores=True, pad_token_id=0)
        return made.sequences[0][len(prompt):].tolist(), made.scores

    def cases(self):
        ends = {"eos_token_id": self.last}
        liked = self.liked
        return {
            "suppress": {**ends, "suppress_tokens": liked[:20]},
            "begin": {**ends, "begin_suppress_tokens": self.first},
            "bad": {**ends, "bad_words_ids": [*self.pairs, [liked[0]], [self.last[0]], [5, 6, 7]]},
            "ngram": {"eos_token_id": None, "no_repeat_ngram_size": 2},
            "unigram": {"eos_token_id": None, "no_repeat_ngram_size": 1},
            "new": {**ends, "min_new_tokens": 9},
            "length": {**ends, "min_length": 30},
            "both": {**ends, "min_length": 40, "min_new_tokens": 2},
            "bias": {**ends, "sequence_bias": [[[liked[3]], -6.5], [[liked[7]], 3.0], [self.pairs[0], -9.0], [self.pairs[1], -4.25], [[liked[3]], -3.0]]},
            "forced": {"eos_token_id": None, "forced_eos_token_id": [7, 3], "forced_bos_token_id": 11, "begin_suppress_tokens": self.first},
            "all": {**ends, "suppress_tokens": liked[:4], "begin_suppress_tokens": self.first[:2], "bad_words_ids": self.pairs[:9], "no_repeat_ngram_size": 3,
                    "min_new_tokens": 5, "sequence_bias": [[[liked[5]], 2.5]], "forced_eos_token_id": 2},
        }

    def command(self, name, task, verb="run", devices="cpu"):
        path = self.folder / f"{name}.yaml"
        task = {**task, "dataset": {"path": str(self.world.data), **task.get("dataset", {})}}
        path.write_text(HEAD.format(name=name, runs=self.folder / "runs", model=self.world.model, devices=devices) + f"  - {json.dumps(task)}\n")
        return [tiny_world.PROGRAM, verb, str(path)]

    def start(self, name, task, code=0, verb="run", devices="cpu", **environment):
        done = subprocess.run(self.command(name, task, verb, devices), env={**self.world.environment, **environment}, cwd=self.folder, capture_output=True, text=True,
                              timeout=600)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return done

    def write(self, **keys):
        self.file.write_text(json.dumps(keys))
        return GenerationConfig(**keys)

    def texts(self, name):
        with h5py.File(self.folder / "runs" / name / "answers.h5") as file:
            offset, ids = file["samples/offset"][:], file["tokens/id"][:].tolist()
        return [ids[a:b] for a, b in zip(offset, offset[1:])]

    def masks(self, config, prompt, text):
        """Of each token of the text: what transformers' processors leave of the model's logits before it."""
        config = GenerationConfig(**{**config.to_dict(), "max_new_tokens": NEW, "max_length": len(prompt) + NEW})
        if config.min_new_tokens is not None:
            config.min_length = 0
        self.reference._prepare_special_tokens(config, True)
        processors = self.reference._get_logits_processor(config, input_ids_seq_length=len(prompt), device="cpu", model_kwargs={})
        ids = torch.tensor([prompt + text])
        with torch.no_grad():
            logits = self.reference(ids).logits
        return [processors(ids[:, :len(prompt) + i], logits[:, len(prompt) + i - 1].clone())[0] for i in range(len(text))]

    def compare_greedy(self, config, texts):
        close = 0
        for prompt, ours in zip(self.prompts, texts, strict=True):
            theirs, scores = self.generate(prompt, config)
            for step, (one, other) in enumerate(zip(ours, theirs)):
                if one != other:
                    two = scores[step][0].double().topk(2).values
                    self.assertLess(two[0] - two[1], 1e-3, f"step {step}: {one} and not {other}")
                    close += 1
                    break
            else:
                self.assertEqual(len(ours), len(theirs))
        self.assertLess(close, 2)

    def test_greedy_texts_are_transformers(self):
        for name, keys in self.cases().items():
            with self.subTest(name):
                config = self.write(**keys)
                plain = GenerationConfig(eos_token_id=keys["eos_token_id"])
                self.assertTrue(any(self.generate(prompt, config)[0] != self.generate(prompt, plain)[0] for prompt in self.prompts), "the rule says nothing")
                self.start(f"greedy-{name}", {**GENERATE, "temperature": 0})
                self.compare_greedy(config, self.texts(f"greedy-{name}"))

    def test_the_gpu_s_path(self):
        for name in ("suppress", "begin", "new", "ngram", "bias", "forced", "all"):
            with self.subTest(name):
                config = self.write(**self.cases()[name])
                self.start(f"gpu-{name}", {**GENERATE, "temperature": 0}, devices="auto", MAGISTER_GPU_CODE_ON_HOST="1")
                self.compare_greedy(config, self.texts(f"gpu-{name}"))

    def test_draws_keep_to_the_processors(self):
        for name, keys in self.cases().items():
            config = self.write(**keys)
            for device, environment in (("cpu", {}), ("auto", {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
                self.start(f"drawn-{name}-{device}", {**GENERATE, "temperature": 2.0, "n": 3}, devices=device, **environment)
                texts = self.texts(f"drawn-{name}-{device}")
                for index, text in enumerate(texts):
                    for step, row in enumerate(self.masks(config, self.prompts[index // 3], text)):
                        self.assertTrue(torch.isfinite(row[text[step]]), f"{name}: text {index}, token {step}")
                self.assertGreater(len({tuple(text) for text in texts}), len(texts) // 2)

    def test_rollouts(self):
        """A continuation's text begins with its roll-in: what counts from a text's beginning counts from there."""
        config = self.write(eos_token_id=self.liked[:60], min_new_tokens=6, begin_suppress_tokens=self.first, suppress_tokens=self.liked[60:63], forced_eos_token_id=9)
        self.start("rolled", {"task": "rollout", "max_prompt_length": 512, "max_new_tokens": NEW, "cuts": 2, "n": 2, "temperature": 2.0,
                              "reward": {"verifier": "regex", "pattern": "a"}})
        with h5py.File(self.folder / "runs/rolled/rollouts.h5") as file:
            data = {key: file[f"rollout/{key}"][()] for key in ("roll_in_id", "roll_in_length", "cut", "id", "length")}
        late = 0
        for index, prompt in enumerate(self.prompts):
            roll_in = data["roll_in_id"][index, :data["roll_in_length"][index]].tolist()
            texts, slots = [roll_in], data["roll_in_id"].shape[1]
            for i, (ids, length) in enumerate(zip(data["id"][index].reshape(4, slots), data["length"][index].reshape(-1), strict=True)):
                cut = int(data["cut"][index].reshape(-1)[i // 2])
                texts.append(roll_in[:cut] + ids[:length].tolist())
                late += cut > 0 and set(self.first) & set(texts[-1][cut:cut + 1]) != set()
            for text in texts:
                for step, row in enumerate(self.masks(config, prompt, text)):
                    self.assertTrue(torch.isfinite(row[text[step]]), f"record {index}, token {step} of {text}")
        self.assertGreater(late, 0, "what no text begins with may stand behind a cut")

    def test_a_constraint_comes_first(self):
        """Bans say which of the constraint's texts are written, and give way where they would leave none."""
        self.write(eos_token_id=0, suppress_tokens=list(range(1, 320)), min_new_tokens=12)
        self.start("constrained", {**GENERATE, "constraint": {"choice": ["yes", "no"]}})
        with h5py.File(self.folder / "runs/constrained/answers.h5") as file:
            self.assertLessEqual(set(file["generate/text"].asstr()[:]), {"yes", "no"})
            self.assertEqual(set(file["generate/finish_reason"][:]), {0})
        tokenizer = Tokenizer.from_file(str(self.world.model / "tokenizer.json"))
        barred = [i for i in range(1, 320) if "y" in tokenizer.id_to_token(i)]
        self.write(eos_token_id=0, suppress_tokens=barred)
        self.start("constrained-no", {**GENERATE, "constraint": {"choice": ["yes", "no"]}, "n": 4})
        with h5py.File(self.folder / "runs/constrained-no/answers.h5") as file:
            self.assertEqual(set(file["generate/text"].asstr()[:]), {"no"})

    def test_ends_that_end_nothing_are_not_barred(self):
        self.write(eos_token_id=self.last, min_new_tokens=NEW)
        self.start("ignores", {**GENERATE, "temperature": 0, "ignore_eos": True})
        texts = self.texts("ignores")
        self.assertTrue(all(len(text) == NEW for text in texts))
        self.compare_greedy(GenerationConfig(eos_token_id=9999), texts)

    def test_replies_of_judges(self):
        self.write(eos_token_id=self.last, suppress_tokens=self.liked[:20], min_new_tokens=5)
        self.start("judged", {"task": "judge", "mode": "simpleqa", "method": "decode", "max_new_tokens": NEW, "max_prompt_length": 512, "prompt": {"user": "{{ text }}"}})
        with h5py.File(self.folder / "runs/judged/verdicts.h5") as file:
            replies = [[token for token in row if token >= 0] for row in file["judge/reply_id"][:].tolist()]
        self.assertTrue(all(len(reply) >= 6 and not set(reply) & set(self.liked[:20]) for reply in replies), replies)

    def test_plan_says_what_is_not_taken(self):
        self.write(eos_token_id=3, do_sample=True, temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.05, suppress_tokens=[4], typical_p=1.0, num_beams=4,
                   stop_strings=["x"], transformers_version="5.23.0", max_length=20)
        done = self.start("planned", GENERATE, verb="plan")
        line = next(line for line in done.stdout.splitlines() if "generation_config.json" in line)
        for words in ("applied: suppress_tokens", "temperature 0.6", "top_p 0.95", "top_k 20", "repetition_penalty 1.05", "do_sample true"):
            self.assertIn(words, line)
        for words in ("typical_p", "max_length", "transformers_version", "eos_token_id"):
            self.assertNotIn(words, line)
        for words in ("num_beams", "stop_strings", "generation_config.json"):
            self.assertIn(words, next(line for line in done.stderr.splitlines() if "num_beams" in line))
        self.assertIn("not taken", self.start("planned", GENERATE).stderr)
        self.write(eos_token_id=3, temperature=1.0, bad_words_ids=None, suppress_tokens=[])
        self.assertNotIn("generation_config.json", self.start("quiet", GENERATE, verb="plan").stdout)

    def test_rules_are_of_the_identity(self):
        self.write(eos_token_id=3, suppress_tokens=[4])
        self.start("identity", GENERATE)
        self.write(eos_token_id=3, suppress_tokens=[5])
        self.assertIn("generation_rules_sha256", self.start("identity", GENERATE, code=78).stderr)
        self.write(eos_token_id=3, temperature=0.1, suppress_tokens=[4])
        self.assertIn("complete already", self.start("identity", GENERATE).stderr)

    def test_wrong_values_are_refused_by_name(self):
        for keys in ({"suppress_tokens": "4"}, {"suppress_tokens": [320]}, {"suppress_tokens": [-1]}, {"suppress_tokens": [1.5]}, {"bad_words_ids": [4]}, {"bad_words_ids": [[]]},
                     {"bad_words_ids": {"4": 5}}, {"no_repeat_ngram_size": -1}, {"no_repeat_ngram_size": True}, {"min_new_tokens": "5"}, {"min_length": 2.5},
                     {"sequence_bias": {"4": 1.0}}, {"sequence_bias": [[[4]]]}, {"sequence_bias": [[4, 1.0]]}, {"sequence_bias": [[[4], "1"]]}, {"forced_eos_token_id": 999},
                     {"begin_suppress_tokens": [[4]]}, {"forced_bos_token_id": [1]}, {"forced_eos_token_id": [7, 8], "suppress_tokens": [8, 7, 9]}):
            with self.subTest(keys):
                self.write(eos_token_id=3)
                self.file.write_text(json.dumps({"eos_token_id": 3, **keys}))
                words = self.start("refused", GENERATE, code=65).stderr
                self.assertIn("generation_config.json", words)
                self.assertIn(next(iter(keys)), words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
