"""Verifiers in task score, and task evaluate: values and classes against Python's re on the texts of generate tasks, pass@k and majority@k
against all subsets, Wilson's intervals against scipy; the same bytes on any number of ranks and after kills; no model; bad input is refused.
"""
import csv
import itertools
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import safetensors
from scipy.stats import binomtest

import tiny_world

TEXTS = """  - task: generate
    name: warm
    dataset: {{path: {data}, key: id}}
    max_new_tokens: 6
    max_prompt_length: 512
    n: 6
  - task: generate
    name: hot
    dataset: {{path: {data}, key: id}}
    max_new_tokens: 9
    max_prompt_length: 512
    n: 7
    temperature: 2
"""
SCORES = """  - task: score
    name: warm-scores
    dataset: {{path: {data}, key: id}}
    answers: warm
    score: {{verifier: regex, pattern: '([a-z])', answer: letter}}
  - task: score
    name: hot-scores
    dataset: {{path: {data}, key: id}}
    answers: hot
    score: {{verifier: regex, pattern: '([a-z])', answer: letter}}
"""
EVALUATE = """  - task: evaluate
    scores: [warm-scores, hot-scores]
    evaluate: {{pass_at: [1, 2, 6], majority_at: [1, 3, 5, 6], majority_ties: share, threshold: 0.5,
               curves: [{{name: warm, scores: warm-scores}}, {{name: "hot, \\"2\\"\\n+", scores: [hot-scores]}}]}}
  - task: evaluate
    name: strict
    scores: [warm-scores, hot-scores]
    evaluate: {{majority_at: [4, 6]}}
"""
HOT = 'hot, "2"\n+'  # a curve's name as a table must quote it
HEAD = tiny_world.EXPERIMENT.split("  - task:")[0]
NO_MODEL = HEAD.replace("model: {{path: {model}, dtype: f32}}\n", "") + """  - task: score
    dataset: {{path: {data}, key: id}}
    score: {{verifier: math, answer: solution}}
"""
SHORT = NO_MODEL + """  - task: evaluate
    scores: score
"""


def write_solutions(path):
    own = [{"id": str(i), "completion": f"so {i} + 1 = \\boxed{{{i + 1}}}", "solution": f"#### {i + (i % 3 > 0)}"} for i in range(50)]
    path.write_text("".join(json.dumps(record) + "\n" for record in own))


FILES = ("warm-scores.h5", "hot-scores.h5", "evaluation.h5", "strict.h5", "strict.json", "strict.csv", "evaluation.json")


def texts_of(path):
    with h5py.File(path) as file:
        offsets = file["samples/offset"][:]
        return [text.decode() for text in file["generate/text"][:]], numpy.diff(offsets)


def elected(votes, right, ties):
    """Of one choice of tries: the chance that a right answer is elected."""
    counts = {vote: votes.count(vote) for vote in votes if vote is not None}
    if not counts:
        return 0.0
    best = [vote for vote, count in counts.items() if count == max(counts.values())]
    return sum(vote == right for vote in best) / len(best) if ties == "share" else float(best == [right])


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=40, text=HEAD + TEXTS, results=("warm.h5", "hot.h5"))
        records = [json.loads(line) for line in cls.world.data.read_text().splitlines()]
        cls.records = [dict(record, text=record["text"][:80]) for record in records if record["text"]]
        cls.write(cls.records)
        done = cls.world.run("texts", 2)
        assert done.returncode == 0, done.stderr
        cls.warm, _ = texts_of(cls.world.results("texts").with_name("warm.h5"))
        # An answer that some of the record's texts give; now and then a list of two, or one that none gives.
        for i, record in enumerate(cls.records):
            found = [m.group(1) for m in (re.search("([a-z])", text) for text in cls.warm[6 * i:6 * i + 6]) if m] or ["e"]
            record["letter"] = "9" if i % 7 == 6 else max(found, key=found.count) if i % 3 else f" {found[-1]}\n"
        cls.records[4]["letter"] = ["x", cls.records[4]["letter"], "y"]
        cls.records[5]["letter"] = 5
        cls.write(cls.records)
        cls.world.text, cls.world.names = HEAD + TEXTS + SCORES + EVALUATE, FILES
        cls.reference = cls.world.complete("one", 1)

    @classmethod
    def write(cls, records):
        cls.world.data.write_text("".join(json.dumps(record) + "\n" for record in records))

    def file(self, name, run="one"):
        return h5py.File(self.world.results(run).with_name(name))

    def test_values_classes_and_tokens(self):
        for method, n in (("warm", 6), ("hot", 7)):
            texts, lengths = texts_of(self.world.results("one").with_name(f"{method}.h5"))
            with self.file(f"{method}-scores.h5") as file:
                values, classes, tokens = file["score/value"][:], file["score/answer_class"][:], file["score/num_tokens"][:]
                self.assertEqual([key.decode().rstrip("\0") for key in file["samples/key"][:]], [record["id"] for record in self.records for _ in range(n)])
                self.assertEqual(file.attrs["model_sha256"], b"none")
            self.assertTrue((tokens == lengths).all())
            for i, record in enumerate(self.records):
                letters = record["letter"] if isinstance(record["letter"], list) else [str(record["letter"])]
                found = [m.group(1) if (m := re.search("([a-z])", text)) else None for text in texts[n * i:n * i + n]]
                self.assertEqual(list(values[n * i:n * i + n]), [float(one is not None and one in [letter.strip() for letter in letters]) for one in found])
                self.assertEqual(list(classes[n * i:n * i + n]), [-1 if one is None else found.index(one) for one in found])
            self.assertTrue(0.05 < values.mean() < 0.95, values.mean())
            print(f"{method}: {len(values)} texts, {values.mean():.3f} right, {(classes < 0).mean():.3f} without an answer")

    def test_shares_against_all_subsets(self):
        worst = 0
        for task, passes, votes, ties in (("evaluation", (1, 2, 6), (1, 3, 5, 6), "share"), ("strict", (1,), (4, 6), "wrong")):
            with self.file(f"{task}.h5") as file:
                pass_at, majority, correct = file["evaluate/pass_at"][:], file["evaluate/majority_at"][:], file["evaluate/correct"][:]
                self.assertEqual(json.loads(file.attrs["methods"]), ["warm-scores", "hot-scores"])
            summary = json.loads(self.world.results("one").with_name(f"{task}.json").read_text())
            for m, (method, n) in enumerate((("warm-scores", 6), ("hot-scores", 7))):
                with self.file(f"{method}.h5") as file:
                    values, classes = file["score/value"][:].reshape(-1, n), file["score/answer_class"][:].reshape(-1, n)
                    tokens = file["score/num_tokens"][:].mean()
                self.assertTrue((correct[:, m] == values[:, 0]).all())
                figures = summary["methods"][method]
                for k, of, brute in [(k, ("pass_at", pass_at[:, m * len(passes) + at]), lambda own, votes_, right: float(own.max())) for at, k in enumerate(passes)] + \
                        [(k, ("majority_at", majority[:, m * len(votes) + at]), lambda own, votes_, right: elected(votes_, right, ties)) for at, k in enumerate(votes)]:
                    wanted = []
                    for row, kinds in zip(values, classes):
                        right = next((kind for value, kind in zip(row, kinds) if value == 1), "none")
                        answers = [None if kind < 0 else kind for kind in kinds]
                        every = [brute(row[list(chosen)], [answers[i] for i in chosen], right) for chosen in itertools.combinations(range(n), k)]
                        wanted.append(sum(every) / len(every))
                    worst = max(worst, float(abs(numpy.array(wanted) - of[1]).max()))
                    self.assertLess(abs(numpy.array(wanted) - of[1]).max(), 3e-7, (task, method, of[0], k))
                    share = figures[of[0]][str(k)]
                    self.assertAlmostEqual(share["share"], sum(wanted) / len(wanted), 6)
                    # Wilson's interval for a count that need not be whole, solved anew.
                    p, z, size = share["share"], 1.959963984540054, len(values)
                    for bound in share["wilson95"]:
                        self.assertAlmostEqual((p - bound) ** 2, z * z * bound * (1 - bound) / size, 9) if 0 < bound < 1 else None
                accuracy = figures["accuracy"]
                oracle = binomtest(int(accuracy["count"]), accuracy["of"]).proportion_ci(0.95, "wilson")
                self.assertAlmostEqual(accuracy["wilson95"][0], oracle.low, 9)
                self.assertAlmostEqual(accuracy["wilson95"][1], oracle.high, 9)
                self.assertAlmostEqual(figures["tokens"], tokens, 4)
                self.assertEqual(figures["texts_a_record"], n)
                if 1 in passes:
                    self.assertAlmostEqual(figures["pass_at"]["1"]["share"], values.mean(), 6)
                print(task, method, {of: {k: round(v["share"], 4) for k, v in figures[of].items()} for of in ("pass_at", "majority_at")})
        rows = {row["measure"]: row for row in csv.DictReader(self.world.results("one").with_name("strict.csv").read_text().splitlines())}
        self.assertAlmostEqual(float(rows["methods.warm-scores.majority_at.6"]["value"]), summary["methods"]["warm-scores"]["majority_at"]["6"]["share"], 12)
        print(f"largest difference from all subsets: {worst:.1e}")

    def test_methods_at_equal_cost(self):
        """FLOPs from the checkpoint's shapes and the lengths of the texts; curves read by numpy.interp."""
        with safetensors.safe_open(self.world.model / "model.safetensors", "numpy") as file:
            parameters = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
        methods = json.loads(self.world.results("one").with_name("evaluation.json").read_text())["methods"]
        curves = {}
        for m, (name, n) in enumerate((("warm", 6), ("hot", 7))):
            with self.file(f"{name}.h5") as file:
                flops = 2.0 * parameters * numpy.diff(file["samples/offset"][:]) + 2 * parameters // n * file["generate/prompt_tokens"][:].astype(float)
            with self.file(f"{name}-scores.h5") as file:
                self.assertLess(abs(file["score/flops"][:] / flops - 1).max(), 1e-6)
            with self.file("evaluation.h5") as file:
                self.assertLess(abs(file["evaluate/flops"][:, m] / flops.reshape(-1, n).mean(1) - 1).max(), 1e-6)
            figures = methods[f"{name}-scores"]
            self.assertAlmostEqual(figures["flops"] / flops.mean(), 1, 6)
            points = [(figures["flops"], figures["pass_at"]["1"])] + [(int(k) * figures["flops"], share) for k, share in figures["majority_at"].items() if k != "1"]
            curves[HOT if name == "hot" else name] = [[cost, one["share"], *one["wilson95"]] for cost, one in points]
        evaluation = json.loads(self.world.results("one").with_name("evaluation.json").read_text())
        costs = sorted({point[0] for points in curves.values() for point in points})
        wanted = [cost for cost in costs if all(points[0][0] <= cost <= points[-1][0] for points in curves.values())]
        matched = evaluation["matched"]["flops"]
        self.assertEqual([one["flops"] for one in matched], wanted)
        self.assertGreater(len(wanted), 3)
        for one in matched:
            for name, points in curves.items():
                xs, *ys = zip(*points)
                share = one["curves"][name]
                for got, want in zip((share["share"], *share["wilson95"]), ys):
                    self.assertAlmostEqual(got, numpy.interp(one["flops"], xs, want), 12)
        # Neither is guided: at a KL of 0 each is as it is.
        self.assertEqual([one["guide_kl"] for one in evaluation["matched"]["guide_kl"]], [0.0])
        self.assertEqual(evaluation["matched"]["guide_kl"][0]["curves"][HOT]["share"], methods["hot-scores"]["pass_at"]["1"]["share"])
        self.assertNotIn("matched", json.loads(self.world.results("one").with_name("strict.json").read_text()))
        with open(self.world.results("one").with_name("evaluation.csv"), newline="") as table:
            rows = {row["measure"]: row for row in csv.DictReader(table, strict=True)}
        self.assertAlmostEqual(float(rows["matched.flops.0.curves." + HOT]["value"]), matched[0]["curves"][HOT]["share"], 12)
        picture = self.folder / "flops.svg"
        drawn = subprocess.run([sys.executable, str(tiny_world.ROOT / "scripts/draw_methods.py"), "--over", "flops", str(self.world.results("one").with_name("evaluation.json")), str(picture)],
                               capture_output=True, text=True, check=False)
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        # A point for one text, and one for each number of votes.
        self.assertEqual((picture.read_text().count("<circle"), picture.read_text().count(">warm, 5 votes<")), (8, 1))

    def test_the_same_bytes_on_any_ranks_and_after_kills(self):
        texts = self.world.results("one").parent
        texts.rename(texts.with_name("kept"))
        try:
            self.kill_and_compare()
        finally:
            self.world.forget("one")
            texts.with_name("kept").rename(texts)

    def test_numbers_as_answers_keep_their_digits(self):
        """A double has 17 digits: what stands in the file is compared, written out."""
        cases = [("12345678901234567890123", "12345678901234567890123", 1), ("12345678901234567890123", "12345678901234567000000", 0), ("0.1234567890123456789", "0.1234567890123456789", 1), ("0.1234567890123456789", "0.12345678901234568", 0),
                 ("18446744073709551616", "18446744073709551616", 1), ("1e20", "100000000000000000000", 1), ("100000000000000000000", "100000000000000000000", 1), ("-1.5E+3", "-1500", 1), ("12.5e-3", "0.0125", 1), ("0.05e1", "0.5", 1), ("1.25e1", "12.5", 1),
                 ("0e7", "0", 1), ("1e-99999", "1e-99999", 1), ("1e300", "1" + 300 * "0", 1), ("18.0", "18.0", 1), ("-7", "-7", 1), ("[3, 2e0]", "2", 1), ('"1e3"', "1e3", 1), ('"\\\\\\"5"', '\\"5', 1)]
        folder = self.folder / "digits"
        world = tiny_world.World(folder, records=1, model="none", text=NO_MODEL.replace("verifier: math, answer: solution", "verifier: exact, answer: of.right"), results=("score.h5",))
        world.data.write_text("".join(f'{{"id": "{i}", "n": 1e3, "completion": {json.dumps(completion)}, "of": {{"right": {answer}}}}}\n' for i, (answer, completion, _) in enumerate(cases)))
        world.complete("digits", 1)
        with h5py.File(world.results("digits").with_name("score.h5")) as file:
            self.assertEqual(list(zip(cases, file["score/value"][:])), [(case, float(case[2])) for case in cases])

    def test_answers_by_value(self):
        """The rule math_verify, which `verifier: math` has without one, in a score task and what evaluates it: values, classes of equal answers, why a text was not compared; the same bytes on 1 and 2 ranks."""
        cases = [("$\\frac{1}{2}$", "so it is \\boxed{0.5}", 1), ("$(x+1)^2$", "$x^2+2x+1$", 1), ("#### 1,234", "The answer is 1234.", 1), ("$\\{1,2\\}$", "$2$ and $1$", 1), ("$y=2x+1$", "$2x-y+1=0$", 1), ("$\\frac{1+\\sqrt{5}}{2}$", "2", 0), ("7", "no number", 0),
                 ("$10^{10^{10}}$", "\\boxed{1}", 0), (12345678901234567890123, "It is 12,345,678,901,234,567,890,123.", 1), (12345678901234567890123, "\\boxed{12345678901234567890124}", 0), ([3, 2], "so $x = 2$", 1), ("\\$1,234", "He pays $1,234.00", 1),
                 ("B", "Of 3 the answer is (B).", 1)] * 8
        world = tiny_world.World(self.folder / "by-value", records=1, model="none", text=SHORT, results=("score.h5", "evaluation.h5", "evaluation.json"))
        world.data.write_text("".join(json.dumps({"id": str(i), "completion": text, "solution": gold}) + "\n" for i, (gold, text, _) in enumerate(cases)))
        by_two = world.complete("one", 2)
        world.forget("one")
        self.assertEqual(world.complete("one", 1), by_two)
        with h5py.File(world.results("one").with_name("score.h5")) as file:
            self.assertEqual(list(file["score/value"][:]), [float(value) for *_, value in cases])
            self.assertEqual(list(file["score/answer_class"][:13]), 6 * [0] + [-1] + 6 * [0])
            self.assertEqual(list(file["score/unread"][:]), 8 * [0, 0, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0])
        reasons = {"nothing_found": 8, "not_read": 0, "too_long": 0, "gold_not_read": 0, "not_comparable": 0, "not_computed": 8}
        folder = world.results("one").parent
        self.assertEqual(json.loads((folder / "evaluation.json").read_text())["methods"]["score"]["unread"], reasons)
        (told,) = [event for event in map(json.loads, (folder / "run.jsonl").read_text().splitlines()) if event["event"] == "unread"]
        self.assertEqual({key: told[key] for key in ("task", "compared", *reasons)}, {"task": "score", "compared": 88, **reasons})
        for name in ("score.h5", "evaluation.h5"):
            subprocess.run([tiny_world.PROGRAM, "check", folder / name], check=True, capture_output=True)

    def test_a_rule_of_the_harness_tells_no_reasons(self):
        world = tiny_world.World(self.folder / "by-name", records=1, model="none", text=SHORT.replace("verifier: math,", "verifier: math, rule: gsm8k_flexible,"), results=("score.h5", "evaluation.h5", "evaluation.json"))
        write_solutions(world.data)
        world.complete("one", 1)
        with h5py.File(world.results("one").with_name("score.h5")) as file:
            self.assertNotIn("unread", file["score"])
        self.assertNotIn("unread", json.loads(world.results("one").with_name("evaluation.json").read_text())["methods"]["score"])

    def test_what_stands_beside_the_evaluation_is_missed(self):
        for name in ("evaluation.json", "strict.csv"):
            path = self.world.results("one").with_name(name)
            path.rename(path.with_suffix(".away"))
            try:
                done = self.world.run("one", 1)
            finally:
                path.with_suffix(".away").rename(path)
            self.assertEqual(done.returncode, 74, done.stderr)
            self.assertIn(f"{name}: is not there, though", done.stderr)
            self.assertIn("put it back, or start over with --fresh", done.stderr)
        self.assertEqual(self.world.complete("one", 1), self.reference)

    def test_what_stands_beside_the_evaluation_is_what_it_says(self):
        """Emptied, or a digit of it changed by hand; whole again, it is complete."""
        for name in ("evaluation.json", "strict.csv"):
            path = self.world.results("one").with_name(name)
            content = path.read_bytes()
            for other in (b"", content.replace(b"0.", b"1.", 1)):
                path.write_bytes(other)
                try:
                    done = self.world.run("one", 1)
                finally:
                    path.write_bytes(content)
                self.assertEqual(done.returncode, 65, done.stderr)
                self.assertIn(f"{path}: is not the summary of ", done.stderr)
                self.assertIn("--fresh", done.stderr)
        self.assertEqual(self.world.complete("one", 2), self.reference)

    def kill_and_compare(self):
        self.assertEqual(self.world.complete("one", 3), self.reference)
        self.world.forget("one")
        for point in ("score.verify.record@9:kill", "evaluate.record@5:kill", "evaluate.report@1:kill"):
            done = self.world.run("one", 2, MAGISTER_FAIL_POINT=point)
            self.assertNotEqual(done.returncode, 0, point)
        tiny_world.wait_until(lambda: self.world.run("one", 1).returncode == 0, 30)
        self.assertEqual(self.world.sha256("one"), self.reference)
        for name in ("warm-scores.h5", "evaluation.h5"):
            done = subprocess.run([tiny_world.PROGRAM, "check", str(self.world.results("one").with_name(name))], env=self.world.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_records_without_any_model(self):
        world = tiny_world.World(self.folder / "alone", records=1, model="none", text=NO_MODEL, results=("score.h5",))
        write_solutions(world.data)
        alone = world.complete("a", 1)
        world.forget("a")
        self.assertEqual(world.complete("a", 3), alone)
        with h5py.File(world.results("a")) as file:
            self.assertEqual(list(file["score/value"][:]), [float(i % 3 > 0) for i in range(50)])
        for arguments in (("plan",), ("plan", "--config-only")):
            done = subprocess.run([tiny_world.PROGRAM, *arguments, str(world.experiment("p"))], env=world.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("none", done.stdout)

    def test_slices_are_merged(self):
        world = tiny_world.World(self.folder / "slices", records=1, model="none", text=SHORT, results=("score.h5", "evaluation.h5"))
        write_solutions(world.data)
        world.complete("whole", 1)
        for i in range(3):
            world.complete(f"part{i}", 1, f"tasks.0.slice={i}/3")
        for name, column in (("score", "score/value"), ("evaluation", "evaluate/pass_at")):
            parts = [world.results(f"part{i}").with_name(f"{name}.h5") for i in range(3)]
            done = subprocess.run([tiny_world.PROGRAM, "merge", str(self.folder / f"{name}.h5"), *map(str, parts)], env=world.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with h5py.File(self.folder / f"{name}.h5") as merged, h5py.File(world.results("whole").with_name(f"{name}.h5")) as whole:
                self.assertTrue((merged[column][:] == whole[column][:]).all() and len(merged[column]) == 50)

    def test_bad_input(self):
        v, e = "tasks.2.score.", "tasks.4.evaluate."
        cases = [(78, "did you mean math?", v + "verifier=mth"), (78, "verifier", v + "verifier=f1"), (78, "does not compile", v + "pattern=(a"), (78, "pattern", v + "verifier=exact"), (78, "did you mean pattern", v + "patern=x"),
                 (78, "set verifier: math", v + "rule=boxed"), (78, "did you mean boxed?", v + "verifier=math", v + "rule=boxd"), (78, "a generate task's", v + "completion=x"), (78, "first", v + "match=middle"),
                 (78, "computes without a model", "tasks.2.max_length=5"), (78, "computes without a model", "tasks.2.function=sigmoid"), (78, "computes without a model", "tasks.2.model.path=x"),
                 (65, "did you mean .letter", v + "answer=leter"), (78, "did you mean warm?", "tasks.2.answers=wrm"), (78, "hot-scores comes after this task", "tasks.2.answers=hot-scores"), (78, "did you mean warm-scores?", "tasks.5.scores=warm-score"),
                 (78, "is a generate task", "tasks.5.scores=warm"), (78, "out of range", e + "pass_at=0"), (78, "twice", e + "pass_at=[2,2]"), (78, "has 6 texts a record", e + "pass_at=7"), (78, "has 6 texts a record", e + "majority_at=[7]"),
                 (78, "did you mean", e + "majority_ties=shares"), (78, "majority_at", "tasks.5.evaluate.majority_at=null", "tasks.5.evaluate.majority_ties=share"), (78, "twice", "tasks.4.scores=[warm-scores,warm-scores]"),
                 (78, "scores records 0 to 30, and warm-scores those from 0 to 37 .*give the tasks the same", "tasks.3.dataset.limit=30", "tasks.1.dataset.limit=30"), (78, "records 30 to 36 have a text and are not in these data .*same records", "tasks.2.dataset.limit=30"), (78, "unknown key", e + "pass=1"),
                 (78, "did you mean hot-scores?", e + "curves.1.scores=[hot-score]"), (78, "names two curves", e + "curves.1.name=warm"), (78, "there is none to compare it with", e + "curves=[{name: a, scores: warm-scores}]")]
        faults = 0
        for code, words, *arguments in cases:
            self.world.forget("bad")
            folder = self.world.results("bad").parent
            folder.mkdir(parents=True)
            for name in ("warm.h5",) if "tasks.1.dataset.limit=30" in arguments else ("warm.h5", "hot.h5"):  # written by the same tasks
                (folder / name).write_bytes(self.world.results("one").with_name(name).read_bytes())
            done = self.world.run("bad", 0, *arguments)
            with self.subTest(arguments):
                self.assertEqual(done.returncode, code, done.stderr[-800:])
                self.assertRegex(done.stderr, words)
                self.assertFalse((folder / "evaluation.json").exists())
            faults += 1
        for name, letter, words in (("list", [], "empty list"), ("object", {"a": 1}, "is object"), ("none", None, "is null")):
            self.world.forget("bad")
            self.write([*self.records[:3], {**self.records[3], "letter": letter}, *self.records[4:]])
            done = self.world.run("bad", 0)
            self.assertEqual(done.returncode, 65, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertRegex(done.stderr, r"data\.jsonl:4")
            faults += 1
        self.write(self.records)
        folder, text = self.world.results("bad").parent, self.world.text
        for name in ("warm", "hot", "warm-scores", "hot-scores"):
            (folder / f"{name}.h5").write_bytes(self.world.results("one").with_name(f"{name}.h5").read_bytes())
        with h5py.File(folder / "hot-scores.h5", "r+") as file:  # as of a reward model
            file.attrs["labels"] = numpy.bytes_('["reward"]')
        for name in ("evaluation.h5", "evaluation.json"):
            (folder / name).unlink(missing_ok=True)
        try:
            self.world.text = text.replace(", threshold: 0.5", "")
            done = self.world.run("bad", 0)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn("evaluate.threshold is not given, and hot-scores is scored by a model", done.stderr)
            # A pattern without a group says right or not, and finds no answer to vote for.
            (folder / "warm-scores.h5").unlink()
            self.world.text = text.replace("'([a-z])', answer: letter", "'[a-z]'", 1)
            done = self.world.run("bad", 0)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertRegex(done.stderr, "majority_at is given, and warm-scores is scored by a pattern without a group .*; put the part of score.pattern")
        finally:
            self.world.text = text
        print(f"{faults + 1} faults refused")

    def test_no_records_at_all(self):
        """Data that are empty, or a slice that has none: every task ends, the last of them too, and tells no figures."""
        records = self.world.data.read_bytes()
        try:
            self.world.data.write_text("")
            self.world.text, self.world.names = HEAD + TEXTS + SCORES + EVALUATE, FILES
            done = self.world.run("none", 2)
            again = self.world.run("none", 1)  # what stands beside the results is what they say
        finally:
            self.world.data.write_bytes(records)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        found = json.loads(self.world.results("none").with_name("evaluation.json").read_text())
        self.assertEqual(found["records"], 0)
        for method in found["methods"].values():
            self.assertEqual(method["accuracy"], {"count": 0.0, "of": 0, "share": None, "wilson95": [0.0, 1.0]})
            self.assertIsNone(method["tokens"])
        with open(self.world.results("none").with_name("evaluation.csv"), newline="", encoding="utf-8") as file:
            self.assertEqual({row["value"] for row in csv.DictReader(file) if row["measure"].endswith("accuracy")}, {""})
        self.assertEqual(again.returncode, 0, again.stderr[-2000:])

if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
