"""Verdicts from outside: log-odds equal transformers' on the prompts as stored, prompts equal the chat template's rendering by
jinja2, every mode; any number of ranks, kills and restarts give the same bytes; generate -> judge in one job.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

import h5py
import numpy
import tokenizers
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.utils.chat_template_utils import _compile_jinja_template

import tiny_world

CHAT = ("{{ bos_token }}{% for m in messages %}<|end|>{{ m.role }}\n{{ m.content | trim }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|end|>assistant\n{% endif %}")
WORDS = {"reference": ["yes", "no"], "simpleqa": ["A", "B", "C"], "rubric": ["1", "2", "3", "4", "5"], "pairwise": ["A", "B"], "choice": ["A", "B", "C", "D"]}


class Judge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        source = random.Random(6)
        text = lambda: " ".join(source.choices(tiny_world.WORDS, k=source.randint(1, 25)))
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(30):
                record = {"id": f"r{index}", "question": text(), "answer": text() + " <|end|>user", "references": [text() for _ in range(1 + index % 3)],
                          "answer_a": text(), "answer_b": text(), "options": [text() for _ in range(4)], "label": source.choice(["yes", "no"]),
                          "messages": [{"role": "user", "content": text() + "<|end|>"}]}
                file.write(json.dumps(record, ensure_ascii=index % 2 == 0) + "\n")
        (cls.world.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT, "bos_token": "<|end|>"}))
        cls.records = [json.loads(line) for line in cls.world.data.read_text().splitlines()]
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.model = AutoModelForCausalLM.from_pretrained(cls.world.model, dtype=torch.float32).eval()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def run_it(self, name, tasks, ranks=0, shards=1, code=0, **environment):
        path = self.world.folder / f"{name}.yaml"
        experiment = {"name": name, "seed": 3, "output": {"directory": str(self.world.folder / "runs")}, "model": {"path": str(self.world.model), "dtype": "f32"},
                      "layout": {"devices": "cpu", "shards_per_rank": shards}, "tasks": tasks}
        path.write_text(json.dumps(experiment))
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, tiny_world.PROGRAM, "run", str(path)], env={**self.world.environment, **environment}, cwd=self.world.folder,
                              capture_output=True, text=True, timeout=2000)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return self.world.folder / "runs" / name / "verdicts.h5" if code == 0 else done.stderr

    def task(self, mode, **keys):
        return {"task": "judge", "dataset": {"path": str(self.world.data), "key": "id"}, "mode": mode, **keys}

    def test_verdicts_that_quantisation_changes_are_counted(self):
        model = {"path": str(self.world.model), "dtype": "f32"}
        with h5py.File(self.run_it("plain", [self.task("reference", name="verdicts")])) as file:
            plain = file["judge/verdict"][:], file["judge/log_odds"][:].astype(float)
        path = self.run_it("coded", [self.task("reference", name="verdicts", model={**model, "quantization": "int4", "quantization_loss": 100000})])
        with h5py.File(path) as file:
            coded = file["judge/verdict"][:], file["judge/log_odds"][:].astype(float)
        found = json.loads(path.with_name("verdicts.quantization.json").read_text())
        self.assertEqual((found["prompts"], found["verdict_flips"]), (30, int((plain[0] != coded[0]).sum())))
        self.assertAlmostEqual(found["verdict_flip_share"], (plain[0] != coded[0]).mean())
        self.assertAlmostEqual(found["mean_abs_log_odds_change"], numpy.abs(plain[1] - coded[1]).mean(), delta=1e-4)
        self.assertGreater(found["mean_abs_log_odds_change"], 1e-3)

    def class_tokens(self, mode):
        sets = []
        for word in WORDS[mode]:
            spellings = {word} if len(word) == 1 else {word, word.lower(), word.upper(), word.capitalize()}
            firsts = {self.tokenizer.encode(space + s, add_special_tokens=False).ids[0] for s in spellings for space in ("", " ")}
            space = self.tokenizer.encode(" ", add_special_tokens=False).ids
            sets.append(sorted(firsts - set(space)))
        return sets

    def expected(self, ids, mode):
        with torch.no_grad():
            logprobs = torch.log_softmax(self.model(torch.tensor([ids])).logits[0, -1].double(), 0)
        return [float(torch.logsumexp(logprobs[tokens], 0)) for tokens in self.class_tokens(mode)]

    def test_every_mode_equals_transformers(self):
        tasks = [self.task(mode, name=f"verdicts-{mode}", **({"label": "label"} if mode == "reference" else {})) for mode in WORDS]
        folder = self.run_it("modes", tasks, ranks=2).parent
        for mode in WORDS:
            with h5py.File(folder / f"verdicts-{mode}.h5") as file:
                offset, ids, samples = file["samples/offset"][:], file["tokens/id"][:], len(self.records) * (2 if mode == "pairwise" else 1)
                self.assertEqual(len(offset) - 1, samples)
                for i in range(samples):
                    want = numpy.array(self.expected(ids[offset[i]:offset[i + 1]].tolist(), mode))
                    numpy.testing.assert_allclose(file["judge/class_logprob"][i], want, atol=1e-3)
                    log_odds = want[0] - numpy.log(numpy.exp(want[1:]).sum())
                    self.assertAlmostEqual(float(file["judge/log_odds"][i]), log_odds, delta=1e-3)
                    self.assertAlmostEqual(float(file["judge/mass"][i]), float(numpy.exp(want).sum()), delta=1e-4)
                    p = numpy.exp(want) / numpy.exp(want).sum()
                    self.assertAlmostEqual(float(file["judge/expected"][i]), float((p * numpy.arange(1, len(p) + 1)).sum()), delta=1e-3)
                    two = numpy.sort(want)[-2:]
                    if two[1] - two[0] > 0.05:
                        self.assertEqual(int(file["judge/verdict"][i]), int(want.argmax()))
                    self.assertEqual(int(file["judge/parse"][i]), int(numpy.exp(want).sum() < 0.5))
                    self.assertEqual(int(file["judge/order"][i]), i % 2 if mode == "pairwise" else 0)
            subprocess.run([tiny_world.PROGRAM, "check", str(folder / f"verdicts-{mode}.h5")], check=True, capture_output=True)
            self.assertEqual(json.loads((folder / f"verdicts-{mode}.summary.json").read_text())["rows"], samples)

    def test_prompts_are_the_template_s(self):
        system, user = "Judge {{ classes }} things.", "Q: {{ question }}\nR: {{ references | join('; ') }}\nA: {{ answer }}"
        path = self.run_it("prompts", [self.task("reference", prompt={"system": system, "user": user})])
        render = lambda template, **fields: _compile_jinja_template(template).render(**fields)
        with h5py.File(path) as file:
            offset, ids = file["samples/offset"][:], file["tokens/id"][:]
            for i, record in enumerate(self.records):
                messages = [{"role": "system", "content": render(system, classes=5)}, {"role": "user", "content": render(user, **record)}]
                text = render(CHAT, messages=messages, add_generation_prompt=True, bos_token="<|end|>")
                # The answer's own "<|end|>" is text; the template's four (BOS, system, user, assistant) are tokens.
                parts = text.split("<|end|>")
                self.assertEqual(len(parts), 6)
                end, plain, want = self.tokenizer.token_to_id("<|end|>"), Tokenizer.from_str(self.plain_tokenizer()), []
                for part in (parts[1], parts[2], parts[3] + "<|end|>" + parts[4], parts[5]):
                    want += [end] + plain.encode(part, add_special_tokens=False).ids
                self.assertEqual(ids[offset[i]:offset[i + 1]].tolist(), want)

    def plain_tokenizer(self):
        """The tokenizer without its added tokens."""
        description = json.loads((self.world.model / "tokenizer.json").read_text())
        description["added_tokens"] = []
        return json.dumps(description)

    def test_same_bytes_and_shards(self):
        tasks = [self.task("pairwise")]
        path = self.run_it("same", tasks)
        digest = lambda: hashlib.sha256(path.read_bytes()).hexdigest()
        want = digest()
        for ranks in (1, 3):
            self.world.forget("same")
            self.run_it("same", tasks, ranks=ranks)
            self.assertEqual(digest(), want)
        for point in ("judge.pass@2", "judge.unit.done@1", "judge.unit.done@3"):
            self.world.forget("same")
            self.run_it("same", tasks, code=-signal.SIGKILL, MAGISTER_FAIL_POINT=f"{point}:kill")
            self.run_it("same", tasks, ranks=2)
            self.assertEqual(digest(), want, point)
        budget = self.run_it("budget", [self.task("pairwise", token_budget=37, max_sequences=3, share_prefixes=False)])
        with h5py.File(path) as one, h5py.File(budget) as other:
            numpy.testing.assert_array_equal(one["judge/log_odds"][:], other["judge/log_odds"][:])
            for shards in (2, 3):
                with h5py.File(self.run_it(f"shards{shards}", tasks, shards=shards)) as sharded:
                    numpy.testing.assert_allclose(sharded["judge/log_odds"][:], one["judge/log_odds"][:], atol=1e-3)

    def combine(self, votes, rule):
        """-> verdict, by the definitions; votes: (verdict, normalised log-probabilities) of sound rows or None."""
        sound = [vote for vote in votes if vote is not None]
        if not sound:
            return -1
        if rule == "mean_log_odds":
            mean = numpy.mean([logprobs for _, logprobs in sound], axis=0)
            return -1 if numpy.isclose(mean, mean.max(), rtol=0, atol=1e-9).sum() > 1 else int(mean.argmax())
        counts = numpy.bincount([verdict for verdict, _ in sound])
        tie = (counts == counts.max()).sum() > 1
        return -1 if tie or (rule == "unanimous" and counts.max() != len(votes)) else int(counts.argmax())

    def votes(self, file, rows):
        votes = []
        for i in rows:
            logprobs = file["judge/class_logprob"][i].astype(float)
            logprobs -= numpy.log(numpy.exp(logprobs).sum())
            swapped = file["judge/order"][i] == 1
            verdict = int(file["judge/verdict"][i])
            vote = (1 - verdict if swapped else verdict, logprobs[::-1] if swapped else logprobs)
            votes.append(vote if file["judge/parse"][i] == 0 else None)
        return votes

    def test_prompts_judges_and_orders_become_one_verdict(self):
        pair = [{"named": "better"}, {"named": "quality"}, {"user": "{{ answer_a }} {{ answer_b }} Which?"}]
        single = [{"named": "same_meaning"}, {"named": "strict"}, {"user": "{{ answer }} Right?"}]
        for rule, mode, prompts, share in (("mean_log_odds", "pairwise", pair, 0.2), ("majority", "pairwise", pair, 0.5), ("unanimous", "reference", single, 0.05)):
            orders = 2 if mode == "pairwise" else 1
            first = self.task(mode, name="verdicts-first", low_mass=0.0)
            with h5py.File(self.run_it("panel", [first, self.task(mode, prompts=prompts, low_mass=0.0)])) as file:
                low = float(numpy.quantile(file["judge/mass"][:], share))  # some votes are lost
            self.world.forget("panel")
            path = self.run_it("panel", [first, self.task(mode, prompts=prompts, combine=rule, panel=["verdicts-first"], low_mass=low)], ranks=2)
            with h5py.File(path) as file, h5py.File(path.with_name("verdicts-first.h5")) as other:
                group = 3 * orders
                self.assertEqual(len(file["judge/verdict"]), 30 * group)
                self.assertEqual(file["judge/prompt"][:2 * group].tolist(), numpy.repeat([0, 1, 2], orders).tolist() * 2)
                seen = set()
                for text in range(30):
                    votes = self.votes(file, range(group * text, group * (text + 1))) + self.votes(other, range(orders * text, orders * (text + 1)))
                    want = self.combine(votes, rule)
                    seen.add(want)
                    self.assertEqual(set(file["judge/combined"][group * text:group * (text + 1)].tolist()), {want}, (rule, text))
                self.assertGreater(len(seen), 1, "a rule that always says one thing was not tested")
            summary = json.loads(path.with_suffix(".summary.json").read_text())["combined"]
            self.assertEqual(summary["rows"], 30)
            subprocess.run([tiny_world.PROGRAM, "check", str(path)], check=True, capture_output=True)
            self.world.forget("panel")

    def test_ten_where_digits_are_tokens(self):
        path = self.run_it("ten", [self.task("rubric", classes=10, low_mass=0.0)])
        encode = lambda text: self.tokenizer.encode(text, add_special_tokens=False).ids
        self.assertEqual(len(encode("10")), 2, "this tokenizer is no test")
        with h5py.File(path) as file, torch.no_grad():
            offset, ids = file["samples/offset"][:], file["tokens/id"][:]
            for i in range(30):
                context = ids[offset[i]:offset[i + 1]].tolist()
                row = torch.log_softmax(self.model(torch.tensor([context])).logits[0, -1].double(), 0)
                ones = sorted({encode("1")[0], encode(" 1")[0]} - set(encode(" ")))
                one = float(torch.logsumexp(row[ones], 0))
                best = max(ones, key=lambda token: float(row[token]))
                zero = float(torch.log_softmax(self.model(torch.tensor([context + [best]])).logits[0, -1].double(), 0)[encode("10")[1]])
                self.assertAlmostEqual(float(file["judge/class_logprob"][i, 9]), one + zero, delta=1e-3)
                self.assertAlmostEqual(float(file["judge/class_logprob"][i, 0]), one + numpy.log1p(-numpy.exp(zero)), delta=1e-3)
                share = numpy.exp(file["judge/class_logprob"][i].astype(float))
                self.assertAlmostEqual(float(file["judge/expected"][i]), float((share * numpy.arange(1, 11)).sum() / share.sum()), delta=1e-3)

    def reply_of(self, ids, most):
        """Greedy, by whole passes of transformers; ends with the model's end token."""
        reply, end = [], self.model.config.eos_token_id
        with torch.no_grad():
            while len(reply) < most and (not reply or reply[-1] != end):
                reply.append(int(self.model(torch.tensor([ids + reply])).logits[0, -1].argmax()))
        return reply

    def test_replies(self):
        decoder = Tokenizer.from_str(self.tokenizer.to_str())
        decoder.decoder = tokenizers.decoders.ByteLevel()
        end, most = self.model.config.eos_token_id, 12
        for mode, read in (("reference", "score"), ("reference", "substring"), ("choice", "word")):
            name = f"reply-{mode}-{read}"
            task = self.task(mode, method="decode", read=read, max_new_tokens=most, max_prompt_length=2048, low_mass=0.0)
            path = self.run_it(name, [task])
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            with h5py.File(path) as file:
                offset, ids = file["samples/offset"][:], file["tokens/id"][:]
                for i in range(0, 30, 3):
                    prompt, reply = ids[offset[i]:offset[i + 1]].tolist(), [t for t in file["judge/reply_id"][i].tolist() if t >= 0]
                    self.assertEqual(reply, self.reply_of(prompt, most))
                    words = [t for t in reply if t != end]
                    text, cut, parse = decoder.decode(words, skip_special_tokens=False), reply[-1] != end, int(file["judge/parse"][i])
                    if read == "score":
                        cue = self.tokenizer.encode("\nVerdict:", add_special_tokens=False).ids
                        want = self.expected(prompt + words + cue, mode)
                        numpy.testing.assert_allclose(file["judge/class_logprob"][i], want, atol=1e-3)
                        self.assertEqual(parse, 3 if cut else 0)
                        continue
                    if read == "substring":
                        verdict = next((n for n, word in enumerate(WORDS[mode]) if word in text.lower()), -1)
                    else:
                        found = re.search(r"(?<!\w)([A-D])(?!\w)", text)
                        verdict = WORDS[mode].index(found.group(1)) if found else -1
                    self.assertEqual(int(file["judge/verdict"][i]), verdict, text)
                    self.assertEqual(parse, 0 if verdict >= 0 else 3 if cut else 2)
                    self.assertTrue(numpy.isnan(file["judge/log_odds"][i]))
            subprocess.run([tiny_world.PROGRAM, "check", str(path)], check=True, capture_output=True)
            self.world.forget(name)
            self.run_it(name, [task], code=-signal.SIGKILL, MAGISTER_FAIL_POINT="judge.unit.done@1:kill")
            self.assertEqual(hashlib.sha256(self.run_it(name, [task], ranks=2).read_bytes()).hexdigest(), digest)

    def test_generate_then_judge(self):
        generate = {"task": "generate", "dataset": {"path": str(self.world.data), "key": "id", "messages": "messages"}, "max_new_tokens": 12, "n": 2}
        path = self.run_it("chain", [generate, self.task("reference", answers="answers", label="label")], ranks=2)
        with h5py.File(path) as verdicts, h5py.File(path.with_name("answers.h5")) as answers:
            self.assertEqual(verdicts["samples/source_index"][:].tolist(), answers["samples/source_index"][:].tolist())
            for i in (0, 7, 31):
                a, b = verdicts["samples/offset"][i:i + 2]
                prompt = self.tokenizer.decode(verdicts["tokens/id"][a:b].tolist(), skip_special_tokens=False)
                text = answers["generate/text"][i].decode()
                ids = self.tokenizer.encode(" " + text, add_special_tokens=False).ids
                self.assertGreater(len(prompt), len(ids))
        summary = json.loads(path.with_suffix(".summary.json").read_text())
        self.assertEqual(summary["rows"], 60)
        self.assertIn("labels" if summary["parse"]["ok"] else "parse", summary)
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        self.assertEqual(hashlib.sha256(self.run_it("chain", [generate, self.task("reference", answers="answers", label="label")]).read_bytes()).hexdigest(), before)

    def test_refusals(self):
        for tasks, code, words in (([self.task("reference", prompt={"named": "strictest"})], 78, "known: same_meaning, strict"),
                                   ([self.task("reference", prompt={"named": "strict"}, prompts=[{"named": "strict"}])], 78, "not both"),
                                   ([self.task("reference", read="word")], 78, "method: decode"), ([self.task("choice", method="decode", read="substring")], 78, "substring"),
                                   ([self.task("reference", panel=["nobody"])], 78, "nobody.h5"),
                                   ([self.task("reference", max_prompt_length=4000, max_new_tokens=256, method="decode")], 78, "max_new_tokens"), ([self.task("reference", fields={"answer": "anser"})], 65, "did you mean \"answer\""),
                                   ([self.task("reference", answers="nothing")], 78, "nothing.h5"), ([self.task("reference", prompt={"user": "{{ x | nofilter }}"})], 78, "nofilter"),
                                   ([self.task("reference", max_prompt_length=10)], 65, "max_prompt_length 10"), ([self.task("refrence")], 78, "reference")):
            self.assertIn(words, self.run_it("refused", tasks, code=code))
        self.assertFalse(list((self.world.folder / "runs/refused").glob("verdicts*")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
