"""Summaries of whole judge runs, every key of every file, against scikit-learn, scipy and numpy over the columns of the results; and
that what was judged is what was written: the text of each row stands in its prompt, token for token.

The tiny world's verdicts have little of the whole probability, so low_mass is 0 and every row counts; one run has a low_mass at which
half of the rows do not.
"""
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders

import tiny_world

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import judge_summary  # noqa: E402
from chain_model import make_chain_model  # noqa: E402

NAMES = {"reference": ["yes", "no"], "simpleqa": ["correct", "incorrect", "not_attempted"], "rubric": ["1", "2", "3", "4", "5"],
         "pairwise": ["A", "B"], "choice": ["A", "B", "C", "D"]}
# So small a model looks at its last tokens alone: prompts that end with the record's own text have verdicts that differ.
PROMPTS = {"pairwise": "{{ answer_a }} or {{ answer_b }}", "choice": "{{ question }} {{ options | join(' ') }}"}
RECORDS = 40
PAGE = (pathlib.Path(__file__).resolve().parents[2] / "configs/keys/judge.md").read_text()


class Summaries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        source = random.Random(17)
        text = lambda: " ".join(source.choices(tiny_world.WORDS, k=source.randint(1, 20)))
        cls.labels = {mode: [source.randrange(len(names)) for _ in range(RECORDS)] for mode, names in NAMES.items()}
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for i in range(RECORDS):
                record = {"id": f"r{i}", "text": text(), "question": text(), "answer": text(), "references": [text()], "answer_a": text(),
                          "answer_b": text(), "options": [text() for _ in range(4)]}
                record |= {f"label_{mode}": names[cls.labels[mode][i]] for mode, names in NAMES.items()}
                file.write(json.dumps(record) + "\n")

    def run_it(self, name, tasks, ranks=2):
        path = self.world.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "seed": 3, "output": {"directory": str(self.world.folder / "runs")}, "layout": {"devices": "cpu"},
                                    "model": {"path": str(self.world.model), "dtype": "f32"}, "tasks": tasks}))
        done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), tiny_world.PROGRAM, "run", str(path)],
                              env=self.world.environment, cwd=self.world.folder, capture_output=True, text=True, check=False, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return self.world.folder / "runs" / name

    def task(self, mode, name="verdicts", **keys):
        return {"task": "judge", "name": name, "dataset": {"path": str(self.world.data), "key": "id"}, "mode": mode, "low_mass": 0.0, **keys}

    def compare(self, results, mode, **what):
        """The summary beside a results file is the oracle's -> the summary."""
        found = json.loads(results.with_suffix(".summary.json").read_text())
        self.assertEqual(judge_summary.differences(found, judge_summary.summary(results, mode, NAMES[mode], **what)), [])
        self.compare_table(results, found)
        for name in found:
            self.assertIn(f"`{name}`", PAGE)
        return found

    def compare_table(self, results, summary):
        """Every number of the summary stands in the CSV, read by Python's own reader, and nothing else."""
        with open(results.with_suffix(".summary.csv"), newline="", encoding="utf-8") as file:
            rows = {row["measure"]: row for row in csv.DictReader(file)}
        def numbers(node, path):
            if isinstance(node, dict) and "wilson95" in node:
                return {path: [node["share"], node["count"], node["of"], *node["wilson95"]]}
            if isinstance(node, (dict, list)):
                parts = node.items() if isinstance(node, dict) else enumerate(node)
                return {key: value for name, part in parts for key, value in numbers(part, f"{path}.{name}" if path else str(name)).items()}
            return {path: [node, None, None, None, None]}
        columns = ("value", "count", "of", "wilson95_low", "wilson95_high")
        self.assertEqual({measure: [float(row[c]) if row[c] else None for c in columns] for measure, row in rows.items()}, numbers(summary, ""))

    def test_every_mode(self):
        prompt = lambda mode: {"user": PROMPTS.get(mode, "{{ question }} {{ answer }}")}
        tasks = [self.task(mode, f"verdicts-{mode}", label=f"label_{mode}", prompt=prompt(mode)) for mode in NAMES]
        folder = self.run_it("modes", tasks)
        seen = set()
        for mode in NAMES:
            found = self.compare(folder / f"verdicts-{mode}.h5", mode, labels=self.labels[mode], voices=2 if mode == "pairwise" else 1)
            rows = RECORDS * (2 if mode == "pairwise" else 1)
            self.assertEqual((found["rows"], found["parse"]["ok"]), (rows, rows), "low_mass 0: every row counts")
            self.assertEqual(sum(map(sum, found["labels"]["confusion_label_by_verdict"])), rows)
            self.assertGreater(sum(one["count"] > 0 for one in found["verdicts"].values()), 1, f"{mode}: a judge that says one thing tests nothing")
            seen |= set(found)
        self.assertEqual(seen, {"rows", "parse", "verdicts", "mean_expected_score", "three_way", "pairs", "labels", "combined"})

    def test_rows_of_low_mass_are_in_no_share(self):
        whole = self.run_it("all", [self.task("simpleqa", label="label_simpleqa")]) / "verdicts.h5"
        with h5py.File(whole) as file:
            half = float(numpy.median(file["judge/mass"][:]))
        found = self.compare(self.run_it("half", [self.task("simpleqa", label="label_simpleqa", low_mass=half)]) / "verdicts.h5", "simpleqa",
                             labels=self.labels["simpleqa"])
        self.assertEqual(found["parse"], {"ok": RECORDS // 2, "low_mass": RECORDS // 2, "unparsed": 0, "truncated": 0, "tie": 0})

    def test_replies_have_a_share_of_the_old_rule(self):
        folder = self.run_it("replies", [self.task("reference", method="decode", read="substring", max_new_tokens=40, max_prompt_length=1024)])
        found = self.compare(folder / "verdicts.h5", "reference", compat=True)
        self.assertIn("compat_share_of_yes", found)

    def test_several_prompts(self):
        prompts = [{"named": "same_meaning"}, {"named": "strict"}, {"user": "{{ answer }} Right?"}]
        folder = self.run_it("prompts", [self.task("reference", prompts=prompts, combine="unanimous", label="label_reference")])
        found = self.compare(folder / "verdicts.h5", "reference", labels=self.labels["reference"], voices=3)
        self.assertTrue(0 < found["combined"]["undecided"] < RECORDS)

    def test_written_texts_are_judged_each_in_its_prompt(self):
        data = {"path": str(self.world.data), "key": "id"}
        generate = {"task": "generate", "dataset": {**data, "text": "text"}, "max_new_tokens": 10, "n": 2}
        folder = self.run_it("chain", [generate, self.task("simpleqa", answers="answers", label="label_simpleqa", prompt={"user": "<{{ answer }}>"})])
        tokenizer = Tokenizer.from_file(str(self.world.model / "tokenizer.json"))
        tokenizer.decoder = decoders.ByteLevel()
        with h5py.File(folder / "verdicts.h5") as verdicts, h5py.File(folder / "answers.h5") as answers:
            self.assertEqual(verdicts["samples/source_index"][:].tolist(), answers["samples/source_index"][:].tolist())
            self.assertEqual(verdicts["samples/source_index"][:].tolist(), numpy.repeat(numpy.arange(RECORDS), 2).tolist())
            offset, ids, prompts = verdicts["samples/offset"][:].astype(int), verdicts["tokens/id"][:], []
            for a, b in zip(offset, offset[1:]):
                prompts.append(tokenizer.decode(ids[a:b].tolist(), skip_special_tokens=False))
            texts = [text.decode() for text in answers["generate/text"][:]]
            for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
                self.assertTrue(prompt.endswith(f"<{text}>"), f"row {row}: {text!r} is not in {prompt!r}")
            self.assertGreater(len(set(texts)), RECORDS, "texts that are all the same could be exchanged")
        found = self.compare(folder / "verdicts.h5", "simpleqa", labels=self.labels["simpleqa"], answers=folder / "answers.h5")
        self.assertIsNotNone(found["auroc_of_likelihood"])

    def test_pairs_by_replies(self):
        """Verdicts that are read from replies have no odds: a pair's preference is that of its two replies. This judge writes the letter of the first answer
        behind " plan" and of the second behind " shard"."""
        tokenizer = Tokenizer.from_file(str(self.world.model / "tokenizer.json"))
        last = lambda text: tokenizer.encode(text).ids[-1]
        after = {last("a plan"): tokenizer.token_to_id("A"), last("a shard"): tokenizer.token_to_id("B")}
        end = tokenizer.token_to_id("<|end|>")
        model = make_chain_model(self.world.folder / "letters", self.world.model, 320, {**after, **{letter: end for letter in after.values()}})
        (model / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
        data = self.world.folder / "pairs.jsonl"
        answers = [("a shard", "a plan")] * 5 + [("a plan", "a shard")] * 2
        data.write_text("".join(json.dumps({"id": str(i), "answer_a": a, "answer_b": b}) + "\n" for i, (a, b) in enumerate(answers)))
        self.run_it("letters", [self.task("pairwise", method="decode", read="word", max_new_tokens=4, max_prompt_length=512, model={"path": str(model), "dtype": "f32"}, prompt={"user": PROMPTS["pairwise"]},
                                          dataset={"path": str(data), "key": "id"})])
        found = json.loads((self.world.folder / "runs/letters/verdicts.summary.json").read_text())["pairs"]
        self.assertEqual([(found[key]["count"], found[key]["of"]) for key in ("consistent", "prefers_a")], [(7, 7), (5, 7)])
        self.assertAlmostEqual(found["mean_preference_a"], 5 / 7)

    def test_exact_ties_are_undecided(self):
        """Pairs of one text twice: a judge cannot tell them apart, whatever it prefers, under every rule and over several prompts and judges."""
        records = [json.loads(line) for line in self.world.data.read_text().splitlines()]
        data = self.world.folder / "ties.jsonl"
        for i, record in enumerate(records):
            if i % 2 == 0:
                record["answer_b"] = record["answer_a"]
        data.write_text("".join(json.dumps(record) + "\n" for record in records))
        prompts = [{"user": PROMPTS["pairwise"]}, {"user": "{{ answer_a }}, {{ answer_b }}"}, {"user": "{{ answer_b }}: {{ answer_a }}"}]
        task = lambda name, **keys: {**self.task("pairwise", name=name, **keys), "dataset": {"path": str(data), "key": "id"}}
        tasks = [task("one", prompt=prompts[0]), task("three", prompts=prompts), task("panel", prompts=prompts, panel=["one"]),
                 task("majority", prompt=prompts[0], combine="majority"), task("unanimous", prompt=prompts[0], combine="unanimous")]
        folder = self.run_it("ties", tasks)
        for one in tasks:
            voices = 2 * len(one.get("prompts", [0]))
            found = self.compare(folder / f"{one['name']}.h5", "pairwise", voices=voices)
            with h5py.File(folder / f"{one['name']}.h5") as file:
                combined = file["judge/combined"][::voices]
                self.assertTrue((file["judge/verdict"][:] >= 0).all(), "each order by itself has a verdict")
            self.assertEqual(set(combined[::2].tolist()), {-1}, one["name"])
            if one["name"] in ("one", "three", "panel"):
                self.assertEqual((combined < 0).sum(), RECORDS // 2, "only the ties")
                self.assertEqual((found["combined"]["undecided"], found["combined"]["verdicts"]["A"]["of"]), (RECORDS // 2, RECORDS // 2))
                self.assertEqual((found["pairs"]["undecided"], found["pairs"]["prefers_a"]["of"]), (voices // 2 * RECORDS // 2, voices // 2 * RECORDS // 2))

    def test_a_row_of_equal_verdicts_is_a_tie(self):
        """A judge whose logits are all the same: no letter is the verdict, and none has a share."""
        model = tiny_world.make_model(self.world.folder / "flat")
        weights = load_file(model / "model.safetensors")
        save_file({**weights, "lm_head.weight": 0 * weights["lm_head.weight"]}, model / "model.safetensors", metadata={"format": "pt"})
        own = {"path": str(model), "dtype": "f32"}
        folder = self.run_it("flat", [{**self.task(mode, name=mode), "model": own} for mode in ("choice", "pairwise")]
                             + [{**self.task("choice", name="panel", combine=rule, panel=["choice"]), "model": own, "name": rule}
                                for rule in ("mean_log_odds", "majority", "unanimous")])
        for name, mode in (("choice", "choice"), ("pairwise", "pairwise"), *((rule, "choice") for rule in ("mean_log_odds", "majority", "unanimous"))):
            with h5py.File(folder / f"{name}.h5") as file:
                for column, want in (("verdict", -1), ("parse", 4), ("combined", -1), ("margin", 0)):
                    self.assertEqual(set(file[f"judge/{column}"][:].tolist()), {want}, (name, column))
            summary = json.loads((folder / f"{name}.summary.json").read_text())
            self.assertEqual((summary["parse"]["tie"], summary["verdicts"]["A"]["count"], summary["verdicts"]["A"]["of"]), (RECORDS * (1 + (mode == "pairwise")), 0, 0))
            subprocess.run([tiny_world.PROGRAM, "check", str(folder / f"{name}.h5")], check=True, capture_output=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
