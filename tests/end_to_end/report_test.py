"""scripts/report.py on results of the program: its numbers against plain numpy over whole columns, its pages, its refusals.

One run of three tasks (teacher, texts, verdicts with labels) that is killed twice on its way gives partial files, a running one and a log
with resumes. Wilson's interval is the oracle's own: the roots of its quadratic.
"""
import base64
import bisect
import contextlib
import importlib.util
import io
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

import h5py
import matplotlib.image
import numpy

import tiny_world

sys.path.insert(0, str(tiny_world.ROOT / "scripts"))
from report import ReportError, page, results_file, run_log, tasks  # noqa: E402

SCRIPT = tiny_world.ROOT / "scripts/report.py"
NAMES = ["correct", "incorrect", "not_attempted"]
RECORDS, TEXTS = 24, 2
MESSAGE = re.compile(r"^report\.py: \S.* \(.+\); .+\n$")


def call(*arguments, **environment):
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], env={**os.environ, **environment}, capture_output=True,
                          text=True, check=False, timeout=1200)


def loaded_script():
    """scripts/report.py as a module: its package has the same name."""
    spec = importlib.util.spec_from_file_location("report_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def printed(*arguments):
    """What the command prints, in this process: a start of Python and matplotlib takes a second."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        loaded_script().main(list(map(str, arguments)))
    return said.getvalue()


def numbers_of(path):
    return json.loads(printed(path, "--json"))


def wilson(hits, trials):
    """Where the normal approximation's test of share p just rejects: |hits / trials - p| = z sqrt(p (1 - p) / trials)."""
    z, share = statistics.NormalDist().inv_cdf(0.975), hits / trials
    roots = numpy.roots([1 + z * z / trials, -(2 * share + z * z / trials), share * share])
    return sorted(float(root.real) for root in roots)


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        source = random.Random(5)
        cls.labels = [source.randrange(len(NAMES)) for _ in range(RECORDS)]
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for i, label in enumerate(cls.labels):
                text = " ".join(source.choices(tiny_world.WORDS, k=source.randint(1, 60)))
                file.write(json.dumps({"id": f"r$1_{i}$", "text": text, "verdict": NAMES[label]}) + "\n")
        data = {"path": str(cls.world.data), "key": "id"}
        cls.world.text = json.dumps({
            "name": "{name}", "output": {"directory": "{runs}"}, "layout": {"devices": "cpu"}, "model": {"path": "{model}", "dtype": "f32"},
            "tasks": [{"task": "teacher_logits", "name": "teacher", "dataset": data, "max_length": 512, "top_k": 8, "unit_tokens": 64},
                      {"task": "generate", "name": "answers", "dataset": data, "max_new_tokens": 9, "n": TEXTS, "stop": ["a"]},
                      {"task": "judge", "name": "verdicts", "dataset": data, "answers": "answers", "mode": "simpleqa", "label": "verdict",
                       "low_mass": 0.006, "prompt": {"user": "{{ text }} {{ answer }}"}}]}).replace("{", "{{").replace("}", "}}")
        for word in ("name", "runs", "model"):
            cls.world.text = cls.world.text.replace("{{" + word + "}}", "{" + word + "}")
        cls.folder = cls.world.folder / "runs/x"
        cls.parts = pathlib.Path(tempfile.mkdtemp(dir=cls.scratch.name))
        for point, left in (("results.commit.rows_written@4:kill", "teacher.h5.partial"), ("generate.record.done@20:kill", "answers.running.h5.partial")):
            cls.world.run("x", 1, MAGISTER_FAIL_POINT=point)
            shutil.copy(cls.folder / left, cls.parts)
        result = cls.world.run("x", 2)
        assert result.returncode == 0, result.stderr[-3000:]
        answer = call(cls.folder, "--json")
        assert answer.returncode == 0 and answer.stderr == "", answer
        cls.numbers = json.loads(answer.stdout)
        cls.of = {one["task"]: one for one in cls.numbers["tasks"]}

    def copy(self, name, change=None):
        """A results file in a folder of its own, changed by change(file)."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        shutil.copy((self.parts if (self.parts / name).exists() else self.folder) / name, folder)
        if change is not None:
            with h5py.File(folder / name, "r+") as file:
                change(file)
        return folder / name

    def same_histogram(self, one, values, bins=None):
        """values: all of them, as plain numbers; what is not finite is in no bin."""
        sound = sorted(float(value) for value in values if math.isfinite(value))
        self.assertEqual((one["count"], one["not_finite"]), (len(sound), len(values) - len(sound)))
        self.assertEqual((one["min"], one["max"]), (sound[0], sound[-1]))
        self.assertAlmostEqual(one["mean"], math.fsum(sound) / len(sound), delta=1e-12 * max(map(abs, sound)))
        edges, borders = one["edges"], [bisect.bisect_left(sound, edge) for edge in one["edges"]]
        borders[-1] = bisect.bisect_right(sound, edges[-1])
        self.assertEqual(one["counts"], [b - a for a, b in zip(borders, borders[1:])])
        steps = numpy.diff(edges)
        self.assertLess(steps.max() - steps.min(), 1e-6 * steps.max(), "bins of one width")
        self.assertEqual(len(one["counts"]), bins or len(steps))

    def test_teacher(self):
        one = self.of["teacher"]
        with h5py.File(self.folder / "teacher.h5") as file:
            offset, target = file["samples/offset"][:].astype(int), file["teacher/target_logprob"][:].astype(float)
            self.assertEqual((one["committed_samples"], one["committed_tokens"], one["complete"]), (len(offset) - 1, len(target), True))
            self.same_histogram(one["lengths"], [int(b - a) for a, b in zip(offset, offset[1:])])
            self.assertEqual({edge % 1 for edge in one["lengths"]["edges"]}, {0.5}, "a bin is of whole lengths")
            for name in ("entropy", "tail_mass", "target_logprob"):
                self.same_histogram(one[name], file[f"teacher/{name}"][:].tolist(), bins=40)
                self.assertEqual(sum(one[name]["counts"]), one[name]["count"])
        self.assertEqual(one["target_logprob"]["not_finite"], RECORDS, "a sample's last row has no target")
        self.assertAlmostEqual(one["perplexity"] / math.exp(-target[~numpy.isnan(target)].mean()), 1, delta=1e-12)
        self.assertEqual((one["run"], one["model"], one["kind"]), ("x", "model", "teacher_logits"))

    def test_texts(self):
        one = self.of["answers"]
        with h5py.File(self.folder / "answers.h5") as file:
            self.same_histogram(one["lengths"], numpy.diff(file["samples/offset"][:].astype(int)).tolist())
            self.same_histogram(one["logprob"], file["generate/logprob"][:].tolist(), bins=40)
            reasons = file["generate/finish_reason"][:].tolist()
        self.assertEqual(one["finish_reasons"], {"stop": reasons.count(0), "length": reasons.count(1)})
        self.assertTrue(0 < reasons.count(0) < RECORDS * TEXTS == len(reasons), "texts of one length have no unused slots")

    def test_verdicts(self):
        one = self.of["verdicts"]
        summary = json.loads((self.folder / "verdicts.summary.json").read_text())
        self.assertEqual((one["verdicts_from"], one["verdicts"], one["labels"]), ("summary", summary["verdicts"], summary["labels"]))
        alone = numbers_of(self.copy("verdicts.h5"))
        self.assertIsNone(alone["log"], "there is no run.jsonl beside the copy")
        with h5py.File(self.folder / "verdicts.h5") as file:
            parse, verdict, odds = (file[f"judge/{name}"][:].tolist() for name in ("parse", "verdict", "log_odds"))
            self.same_histogram(one["mass"], file["judge/mass"][:].tolist(), bins=40)
        self.assertEqual((one["mass"]["edges"][0], one["mass"]["edges"][-1]), (0, 1))
        self.same_histogram(one["log_odds"], odds, bins=40)
        self.same_histogram(one["log_odds_ok"], [value for value, code in zip(odds, parse) if code == 0], bins=40)
        self.assertTrue(0 < parse.count(0) < len(parse), "rows of both kinds, or nothing shows that low_mass is in no share")
        for shares in (one, alone["tasks"][0]):  # from the summary, and from the columns
            self.assertEqual(list(shares["verdicts"]), NAMES)
            for code, share in enumerate(shares["verdicts"].values()):
                count = sum(v == code and p == 0 for v, p in zip(verdict, parse))
                self.assertEqual((share["count"], share["of"]), (count, parse.count(0)))
                self.assertAlmostEqual(share["share"], count / parse.count(0), delta=1e-15)
                for found, wanted in zip(share["wilson95"], wilson(count, parse.count(0))):
                    self.assertAlmostEqual(found, wanted, delta=1e-9)
        confusion = [[0] * 3 for _ in range(3)]
        for row, (v, p) in enumerate(zip(verdict, parse)):
            confusion[self.labels[row // TEXTS]][v] += p == 0
        self.assertEqual(one["labels"]["confusion_label_by_verdict"], confusion)
        self.assertEqual(alone["tasks"][0]["verdicts_from"], "columns")

    def test_partial_and_running_files_count_committed_units_alone(self):
        with h5py.File(self.parts / "teacher.h5.partial") as file:
            border, done, offset = (file[name][:].astype(int) for name in ("commit/unit_begin", "commit/done", "samples/offset"))
            kept = [s for u in range(len(done)) if done[u] for s in range(border[u], border[u + 1])]
            entropy = [x for s in kept for x in file["teacher/entropy"][offset[s]:offset[s + 1]].tolist()]
        answer = numbers_of(self.parts / "teacher.h5.partial")
        one = answer["tasks"][0]
        self.assertTrue(0 < len(kept) < RECORDS)
        self.assertEqual((answer["complete"], one["complete"], one["samples"]), (False, False, RECORDS))
        self.assertEqual((one["committed_samples"], one["committed_tokens"]), (len(kept), len(entropy)))
        self.same_histogram(one["entropy"], entropy)
        with h5py.File(self.parts / "answers.running.h5.partial") as file:
            used, slots, reason = (file[f"generate/{name}"][:] for name in ("length", "slot_logprob", "finish_reason"))
            done = file["commit/done"][:]
            border = file["commit/unit_begin"][:].astype(int)
        kept = [r for u in range(len(done)) if done[u] for r in range(border[u], border[u + 1])]
        slots = slots.reshape(RECORDS, TEXTS, -1)
        one = numbers_of(self.parts / "answers.running.h5.partial")["tasks"][0]
        self.assertTrue(0 < len(kept) < RECORDS)
        self.assertEqual((one["task"], one["complete"]), ("answers", False))
        self.same_histogram(one["lengths"], [int(used[r, t]) for r in kept for t in range(TEXTS)])
        self.same_histogram(one["logprob"], [float(x) for r in kept for t in range(TEXTS) for x in slots[r, t, :used[r, t]]])
        self.assertEqual(sum(one["finish_reasons"].values()), len(kept) * TEXTS)
        self.assertEqual(one["finish_reasons"]["length"], int(sum(reason[r].sum() for r in kept)))

    def test_pieces_of_any_size_give_the_same_numbers(self):
        """Also with gaps everywhere: every other unit is missing."""
        def gaps(file):
            file.attrs["complete"] = numpy.uint8(0)
            file["commit/done"][::2] = 0
        paths = [self.folder / f"{name}.h5" for name in self.of] + [self.copy("teacher.h5", gaps), *self.parts.iterdir()]
        for path in paths:
            with results_file.ResultsFile(str(path)) as results:
                whole = tasks.numbers_of(results)
                for piece, samples in ((1, 1), (7, 3), (64, 5)):
                    with unittest.mock.patch.object(results_file, "PIECE", piece), unittest.mock.patch.object(results_file, "SAMPLES", samples):
                        found = tasks.numbers_of(results)
                    for (name, value), (_, wanted) in zip(page.flat(found), page.flat(whole), strict=True):
                        self.assertEqual(value, wanted, f"{path}: {name} in pieces of {piece}")
                    counts = [[one["counts"] for one in what.values() if isinstance(one, dict) and "counts" in one] for what in (found, whole)]
                    self.assertEqual(*counts)

    def test_log(self):
        log, events = self.numbers["log"], [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]
        self.assertEqual([start["end"] for start in log["starts"]], ["cut off, or still at work"] * 2 + ["done"])
        self.assertEqual((log["cut_off"], log["resumes"], log["stops"], log["failures"]), (2, 2, 0, 0))
        self.assertEqual(log["hosts"], sorted(set(events[0]["hosts"])))
        phases = [event for event in events if event["event"] == "phases"]
        rates = [one for start in log["starts"] for one in start["tasks"]]
        self.assertEqual([one["task"] for one in rates], [event["task"] for event in phases])
        for one, event in zip(rates, phases):
            by_rank = one["tokens_per_second_by_rank"]
            self.assertEqual([rank["rank"] for rank in by_rank], list(range(event["ranks"])))  # a group is one rank here
            self.assertAlmostEqual(sum(rank["tokens_per_second"] for rank in by_rank), event["tokens"] / event["wall_seconds"])
            self.assertEqual(sum(group["tokens"] for group in event["groups"]), event["tokens"])
            self.assertEqual(one["written_tokens_per_second"], event.get("written_tokens_per_second"))
        self.assertGreater(max(one["written_tokens_per_second"] or 0 for one in rates), 0)
        self.assertEqual(log["starts"][2]["seconds"], events[-1]["seconds"])
        # A stop, a failure, a cut line and another task's start, as the program writes them.
        def line(second, event, **fields):
            return json.dumps({"schema": 1, "time": f"2026-01-01T00:00:{second:02d}.000Z", "event": event, **fields}) + "\n"
        def begin(second, task):
            return line(second, "run", ranks=2, hosts=["b", "a"]) + line(second + 1, "task", task=task)
        lines = (begin(0, "t") + line(2, "end", exit_code=75, stopped_by="signal 15", seconds=2.5) + begin(3, "t")
                 + line(8, "error", message="full") + '{"schema":1,"ti\n[NaN]\n' + begin(9, "u"))
        path = self.world.folder / "hand.jsonl"
        path.write_text(lines)
        found = run_log.run_log(path, ["t"])
        self.assertEqual((found["stops"], found["failures"], found["cut_off"], found["unreadable_lines"]), (1, 1, 0, 2))
        self.assertEqual([start["end"] for start in found["starts"]], ["stopped by signal 15", "failed: full"])
        self.assertEqual((found["wall_seconds"], found["hosts"]), (2.5 + 5, ["a", "b"]))
        self.assertIsNone(run_log.run_log(path, ["v"]))

    def test_the_model_of_a_task(self):
        """The task's own, else the experiment's; a path of another section, or below another key, is none. Fast without a path, too."""
        top = "name: r\nmodel:\n  path: models/first\n  dtype: f32\n"
        self.assertEqual(results_file.model_of(top + "tasks:\n  - task: train\n    name: t\n"), "first")
        self.assertEqual(results_file.model_of(top + "tasks:\n  - task: train\n    model:\n      path: 'models/own/'\n    train:\n      path: other\n"), "own")
        new = "tasks:\n  - task: train\n    model:\n" + "      key: 1\n" * 60 + "      config: configs/student\n      loss:\n        path: no\n    dataset:\n      path: no\n"
        self.assertEqual(results_file.model_of(top + new), "student")
        self.assertEqual(results_file.model_of(new.replace("config:", "other:")), "unknown")

    def test_curves(self):
        """Of a run with GPUs and a training, as the program writes its events: two starts, the second does step 2 again."""
        def line(second, event, **fields):
            return json.dumps({"schema": 1, "time": f"2026-01-01T00:00:{second:02d}.000Z", "event": event, **fields}) + "\n"
        def begin(second):
            return line(second, "run", ranks=2, hosts=["a"]) + line(second, "task", task="t")
        def sample(second, *watts):
            ranks = [{"rank": i, "values": {"cpu_cores": 0.5 + i}, "gpus": [{"uuid": str(i), "values": {"power_watts": power}}]} for i, power in enumerate(watts)]
            return line(second, "monitor", seconds=1, ranks=ranks)
        path = self.world.folder / "curves.jsonl"
        path.write_text(begin(0) + sample(1, 300, 500) + line(2, "step", task="t", step=1, loss=3.0) + line(3, "step", task="t", step=2, loss=2.0)
                        + line(4, "step", task="another", step=1, loss=9.0) + begin(20) + line(21, "step", task="t", step=2, loss=2.5)
                        + line(22, "evaluation", task="t", step=2, eval_loss=2.75) + sample(23, 400, 410)
                        + line(24, "usage", task="t", energy_joules=2000.0, joules_per_million_tokens=5e5)
                        + line(24, "usage", energy_joules=2100.0, ranks="broken") + line(24, "monitor", ranks=[3, {"values": 4, "gpus": [None]}])
                        + line(25, "end", exit_code=0, seconds=5.0))
        log = run_log.run_log(path, ["t"])
        self.assertEqual(log["machines"]["power_watts"], [[1.0, 400.0, 300, 500], [7.0, 405.0, 400, 410]])  # 4 s of work before the second start
        self.assertEqual(log["machines"]["cpu_cores"][0], [1.0, 1.0, 0.5, 1.5])
        self.assertEqual(log["losses"], {"t": {"training": [[1, 3.0], [2, 2.5]], "held out": [[2, 2.75]]}})
        self.assertEqual(log["used"], {"t": {"energy_joules": 2000.0, "joules_per_million_tokens": 5e5}})
        numbers = {**self.numbers, "log": log}
        without = {**self.numbers, "log": {**log, "machines": {}, "losses": {}}}
        self.assertNotEqual(page.drawn(numbers, "png"), page.drawn(without, "png"))
        self.assertEqual(page.energy_lines(log), ["t: 2,000 J, 500,000 J per million tokens"])

    def test_pages(self):
        made = {form: self.world.folder / f"page.{form}" for form in ("png", "pdf", "html")}
        result = call(self.folder, "--out", made["png"])
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{made['png']}\n", ""))
        for form in ("pdf", "html"):
            self.assertEqual(printed(self.folder, "--out", made[form]), f"{made[form]}\n")
        pixels = matplotlib.image.imread(made["png"])
        self.assertGreater((pixels[..., :3].min(axis=2) < 0.9).mean(), 0.02, "an empty page")
        pdf = made["pdf"].read_bytes()
        self.assertTrue(pdf.startswith(b"%PDF-") and pdf.rstrip().endswith(b"%%EOF"))
        self.assertEqual(len(re.findall(rb"/Type /Page\b(?!s)", pdf)), 1, "one page")
        text = made["html"].read_text(encoding="utf-8")
        picture = xml.etree.ElementTree.fromstring(text).find(".//img").get("src")  # stricter than HTML: every element is closed
        self.assertEqual(picture.split(",")[0], "data:image/png;base64")
        self.assertEqual(base64.b64decode(picture.split(",")[1]), made["png"].read_bytes(), "the same page, byte for byte")
        self.assertIn(f"<td>{self.of['teacher']['perplexity']:.6g}</td>", text)
        self.assertIn(f"perplexity {self.of['teacher']['perplexity']:,.0f}<", text)
        path = self.copy("teacher.h5.partial")
        self.assertEqual(printed(path), f"{path}.html\n")
        self.assertIn("PARTIAL: ", path.with_name("teacher.h5.partial.html").read_text(encoding="utf-8"))

    def test_what_is_drawn_are_the_numbers(self):
        figure = page.figure_of(page.matplotlib_parts(), self.numbers)
        steps = [list(patch.get_data().values) for axes in figure.axes for patch in axes.patches if hasattr(patch, "get_data")]
        one = self.of
        drawn = (("teacher", ("lengths", "entropy", "tail_mass", "target_logprob")), ("answers", ("lengths", "logprob")),
                 ("verdicts", ("mass", "log_odds", "log_odds_ok")))
        wanted = [one[task][name] for task, names in drawn for name in names]
        self.assertEqual(steps, [histogram["counts"] for histogram in wanted])
        shares = next(axes for axes in figure.axes if axes.get_xlabel().startswith("share"))
        self.assertEqual([bar.get_width() for bar in shares.patches], [share["share"] for share in one["verdicts"]["verdicts"].values()])
        self.assertEqual([list(line.get_xdata()) for line in shares.lines], [share["wilson95"] for share in one["verdicts"]["verdicts"].values()])
        said = [text.get_text() for text in figure.texts]
        self.assertTrue(any(text.startswith("x: complete") for text in said) and not any("PARTIAL" in text for text in said), said)
        partial = numbers_of(self.parts)
        said = [text.get_text() for text in page.figure_of(page.matplotlib_parts(), partial).texts]
        self.assertEqual(sum("PARTIAL" in text for text in said), 3, said)

    def refused(self, code, *arguments):
        """One message in the program's form -> it."""
        with self.assertRaises(ReportError, msg=arguments) as caught:
            printed(*arguments)
        self.assertEqual(caught.exception.code, code, f"{arguments}: {caught.exception}")
        self.assertRegex(f"report.py: {caught.exception}\n", MESSAGE)
        return str(caught.exception)

    def refused_command(self, code, *arguments, **environment):
        result = call(*arguments, **environment)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result)
        self.assertRegex(result.stderr, MESSAGE)
        return result.stderr

    def test_refusals(self):
        out = self.world.folder / "refused.png"
        foreign, text = self.world.folder / "foreign.h5", self.world.folder / "text.h5"
        with h5py.File(foreign, "w") as file:
            file["x"] = [1.0]
        text.write_text("no HDF5")
        cut = self.copy("teacher.h5")
        cut.write_bytes(cut.read_bytes()[:4000])
        changed = [self.copy(name, lambda file: file[path].__setitem__(row, value)) for name, path, row, value in (
            ("teacher.h5", "samples/offset", 3, 10**9), ("teacher.h5", "commit/done", 1, 0), ("teacher.h5", "commit/unit_begin", 1, 10**6),
            ("teacher.h5", "samples/offset", 2, 0), ("answers.h5", "generate/finish_reason", 0, 9))]
        changed += [self.copy("teacher.h5", lambda file: file.__delitem__("teacher/entropy")),
                    self.copy("teacher.h5", lambda file: file.attrs.__delitem__("num_samples"))]
        empty = tempfile.mkdtemp(dir=self.scratch.name)
        for path in [foreign, text, cut, empty, *changed]:
            self.refused(65, path, "--out", out)
        verdicts = self.copy("verdicts.h5")
        summary = verdicts.with_suffix(".summary.json")
        of_another_run = (self.folder / "verdicts.summary.json").read_text().replace('"count": ', '"count": 1')
        for wrong in ("{", "[]", '{"parse": {}, "verdicts": {"a": 1}}', of_another_run):
            summary.write_text(wrong)
            self.assertIn("summarize", self.refused(65, verdicts, "--out", out))
        self.refused(74, self.world.folder / "nothing.h5", "--out", out)
        self.refused(74, self.folder, "--out", self.world.folder / "nowhere/page.png")
        self.refused(64, self.folder, "--out", "page.txt")
        self.refused_command(64)
        self.refused_command(65, text, "--out", out)
        self.refused(64, self.folder, "--depth", "3")
        self.assertFalse(out.exists())

    def test_a_page_is_written_whole_or_not_at_all(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        (folder / "page.png").write_text("the page before")
        # -B: the first to import matplotlib would write its bytecode, cut at 4 KiB, for every test after it.
        line = f'ulimit -f 4; exec "{sys.executable}" -B "{SCRIPT}" "{self.folder}" --out "{folder}/page.png"'  # files of 4 KiB at most
        result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=1200)
        self.assertEqual(result.returncode, 74, result)
        self.assertRegex(result.stderr.splitlines()[-1] + "\n", MESSAGE)
        self.assertEqual([(path.name, path.read_text()) for path in folder.iterdir()], [("page.png", "the page before")])
        os.link(folder / "page.png", folder / "link.png")  # who has the page before open goes on reading that one
        printed(self.folder, "--out", folder / "page.png")
        self.assertEqual((folder / "link.png").read_text(), "the page before")

    def test_without_matplotlib(self):
        stub = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        (stub / "matplotlib.py").write_text("raise ImportError('no matplotlib here')\n")
        message = self.refused_command(78, self.folder, "--out", self.world.folder / "never.png", PYTHONPATH=str(stub))
        pin = re.search(r"^matplotlib==\S+$", (tiny_world.ROOT / "scripts/requirements/test.in").read_text(), re.MULTILINE).group()
        self.assertIn(f"`python3 -m pip install {pin}`", message)
        self.assertEqual(json.loads(call(self.folder, "--json", PYTHONPATH=str(stub)).stdout), self.numbers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
