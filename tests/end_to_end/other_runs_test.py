"""Results of another run by their path or its folder, as answers, panel, scores and rows to learn from; and status of a folder with several
tasks' results and of a training that was stopped, against what the files hold.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import h5py
import numpy
from safetensors import safe_open

import tiny_world

HEAD = tiny_world.CHAIN.split("tasks:")[0]
JUDGE = tiny_world.CHAIN[tiny_world.CHAIN.index("  - task: judge"):]
AGAIN = HEAD + "tasks:\n" + JUDGE.replace("answers: answers", "answers: \"{answers}\"")
SCORE = """  - task: score
    name: {task}
    dataset: {{path: {data}, key: id, limit: 5}}
    answers: {answers}
    score: {{verifier: exact, answer: text}}
"""
TRAIN = HEAD + """tasks:
  - task: train
    name: student
    objective: lm
    dataset: {{path: {data}}}
    train: {{max_length: 64, global_batch: 8, steps: 15, save_every: 2, optimizer: {{lr: 1.0e-3}}}}
"""


class OtherRuns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=20, text=tiny_world.CHAIN, results=("answers.h5", "verdicts.h5"))
        cls.world.complete("run-42", 1)

    def run_text(self, name, text, *arguments, command="run", **keys):
        path = self.folder / f"{name}.yaml"
        path.write_text(text.format(name=name, runs="runs", model=self.world.model, data=self.world.data, **keys))
        return subprocess.run([tiny_world.PROGRAM, command, path, *arguments], cwd=self.folder, env=self.world.environment, capture_output=True, text=True)

    def good(self, *arguments, **keys):
        done = self.run_text(*arguments, **keys)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def refused(self, done, *words):
        self.assertEqual(done.returncode, 78, done.stderr[-3000:])
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn(".h5.h5", done.stderr)

    def column(self, run, file, name):
        with h5py.File(self.folder / "runs" / run / file) as results:
            return results[name][:]

    def test_answers_of_another_run_by_path_and_by_folder(self):
        shutil.copytree(self.folder / "runs/run-42", self.folder / "node/run-42")
        for number, answers in enumerate(("runs/run-42/answers.h5", "runs/run-42", "./runs/run-42/", self.folder / "runs/run-42/answers.h5", "node/run-42")):
            with self.subTest(answers=answers):
                self.good(f"again{number}", AGAIN, answers=answers)
                for name in ("judge/verdict", "judge/log_odds", "samples/key"):
                    numpy.testing.assert_array_equal(self.column(f"again{number}", "verdicts.h5", name), self.column("run-42", "verdicts.h5", name))
        # The same by a copy is complete already, and its summary is made again from it.
        done = self.run_text("again0", AGAIN, answers="node/run-42/answers.h5")
        self.assertIn("is complete already", done.stderr)
        self.good("again0", AGAIN, command="summarize", answers="node/run-42")
        self.assertEqual(self.run_text("again0", AGAIN, command="plan", answers="runs/run-42").returncode, 0)

    def test_what_is_no_such_run_is_told(self):
        self.refused(self.run_text("none", AGAIN, answers="runs/run-43/samples.h5"), "answers names runs/run-43/samples.h5, which does not exist", "or that run's folder")
        self.refused(self.run_text("none", AGAIN, answers="greedy"), "no generate task of that name", "name the results file of another run by its path")
        self.refused(self.run_text("none", AGAIN, answers="run-42"), "answers names run-42, which is the name of another run", "; write runs/run-42\n")
        self.refused(self.run_text("none", AGAIN, answers="runs/run-42/verdicts.h5"), "holds no complete results of a generate task")
        empty = self.folder / "runs/empty"
        empty.mkdir(parents=True)
        self.refused(self.run_text("none", AGAIN, answers="runs/empty"), "which holds no complete results of a generate task")
        shutil.copy(self.folder / "runs/run-42/answers.h5", empty / "greedy.h5")
        shutil.copy(self.folder / "runs/run-42/answers.h5", empty / "samples.h5")
        self.refused(self.run_text("none", AGAIN, answers="runs/empty"), "several generate tasks", "runs/empty/greedy.h5, runs/empty/samples.h5")
        (empty / "samples.h5").rename(empty / "samples.h5.partial")
        self.refused(self.run_text("none", AGAIN, answers="runs/empty/samples.h5"), "is not complete")

    def test_panel_and_scores_of_other_runs(self):
        panel = "    panel: [runs/run-42/verdicts.h5, node2/verdicts.h5]\n"
        shutil.copytree(self.folder / "runs/run-42", self.folder / "node2")
        self.good("panel", AGAIN + panel, answers="runs/run-42")
        with h5py.File(self.folder / "runs/panel/verdicts.h5") as file:
            self.assertEqual({name for name in file.attrs if name.startswith("panel_sha256")}, {"panel_sha256_verdicts", "panel_sha256_verdicts-2"})
            self.assertEqual(len(file["judge/combined"]), 20)
        scores = HEAD + "tasks:\n" + SCORE
        self.good("scored", scores, task="exact", answers="runs/run-42")
        evaluate = scores + "  - {{task: evaluate, scores: [exact, runs/scored/exact.h5]}}\n"
        self.good("compared", evaluate, task="exact", answers="runs/run-42/answers.h5")
        summary = json.loads((self.folder / "runs/compared/evaluation.json").read_text())
        self.assertEqual(list(summary["methods"]), ["exact", "scored.exact"])
        self.assertEqual(summary["methods"]["exact"], summary["methods"]["scored.exact"])
        first = scores + "  - {{task: evaluate, scores: [runs/scored/exact.h5, exact]}}\n"
        self.refused(self.run_text("first", first, task="exact", answers="runs/run-42"), "is no task of this experiment")

    def test_a_teacher_by_its_run_s_folder(self):
        self.good("taught", tiny_world.EXPERIMENT)
        student = HEAD + "tasks:\n  - {{task: train, name: s, objective: distill, teacher: {{results: runs/taught}}, train: {{steps: 1}}}}\n"
        self.good("learns", student)
        self.assertTrue((self.folder / "runs/learns/s/model.safetensors").exists())

    def status(self, run, *options):
        return subprocess.run([tiny_world.PROGRAM, "status", self.folder / "runs" / run, *options], capture_output=True, text=True, check=True).stdout

    def test_status_shows_all_results_of_the_folder(self):
        self.world.complete("several", 1)
        self.good("several", AGAIN.replace("- task: judge", "- task: judge\n    name: second"), answers="answers")
        shutil.copy(self.folder / "runs/several/verdicts.h5", self.folder / "runs/several/merged.h5")
        first, *lines = self.status("several").splitlines()
        self.assertRegex(first, "^several: done, start 2 of 2")
        rows = {line.split()[0]: line for line in lines if line and not line.startswith(("TASK", "of other"))}
        self.assertEqual(list(rows), ["second", "answers", "verdicts", "merged"])
        self.assertRegex(rows["answers"], r"^answers +generate +done +5/5 \(100\.0 %\)")
        self.assertRegex(rows["verdicts"], r"^verdicts +judge +done +20/20 ")
        self.assertRegex(rows["merged"], r"^merged +judge +done ")
        told = json.loads(self.status("several", "--json"))
        self.assertEqual((told["name"], told["state"], told["start"], told["starts_at_work"]), ("several", "done", 2, []))
        self.assertEqual([(task["task"], task["state"], task.get("start")) for task in told["tasks"]],
                         [("second", "done", 2), ("answers", "done", 1), ("verdicts", "done", 1), ("merged", "done", None)])
        # A start that finds everything there still knows how many units there were.
        self.world.complete("several", 1)
        rows = {line.split()[0]: line for line in self.status("several").splitlines() if line}
        self.assertRegex(rows["verdicts"], r"^verdicts +judge +done +20/20 ")

    def test_results_that_a_refused_start_leaves_alone(self):
        """A key that differs ends a start before its tasks begin: what stands there is shown beside it, and history has its exit code on any number of ranks."""
        self.world.complete("kept", 1)
        for ranks in (1, 2):
            self.refused(self.world.run("kept", ranks, "tasks.0.temperature=0.5"), "tasks.0.temperature is")
            first, error, *lines = self.status("kept").splitlines()
            self.assertRegex(first, rf"^kept: failed \(78\), start {ranks + 1} of {ranks + 1}")
            self.assertIn("tasks.0.temperature is", error)
            head, rest = "\n".join(lines).split("\n\nof other starts\n")
            self.assertRegex(head, r"\nanswers +generate +failed \(78\) +- +- ")
            self.assertRegex(rest, r"\nanswers +generate +done +5/5 \(100\.0 %\)")
            self.assertRegex(rest, r"\nverdicts +judge +done +20/20 \(100\.0 %\)")
            told = json.loads(self.status("kept", "--json"))
            self.assertEqual(told["state"], "failed (78)")
            self.assertEqual({(task["task"], task["state"], task["start"]) for task in told["tasks"]} & {("answers", "done", 1), ("verdicts", "done", 1), ("answers", "failed (78)", ranks + 1)},
                             {("answers", "done", 1), ("verdicts", "done", 1), ("answers", "failed (78)", ranks + 1)})
        history = subprocess.run([tiny_world.PROGRAM, "history", self.folder / "runs/kept"], capture_output=True, text=True, check=True).stdout
        self.assertEqual([line.split()[4] for line in history.splitlines()[1:]], ["done", "failed", "failed"])
        # One that is put aside stands nowhere afterwards.
        self.world.complete("kept", 1, "--fresh")
        self.assertNotIn("of other starts", self.status("kept"))

    def test_status_says_what_was_meant(self):
        for given, words in (("run-42", "did you mean runs/run-42?"), ("runs", "name one of the runs in it, which magister history runs lists"), ("nothing", "name a run's folder, output.directory/name")):
            done = subprocess.run([tiny_world.PROGRAM, "status", given], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 74, done.stderr)
            self.assertIn(words, done.stderr)

    def test_plan_says_what_is_not_known_yet(self):
        """Of a task that reads what an earlier one writes no unit and no byte is known: 0 would be wrong. Nor is a key named that the task has not."""
        done = self.run_text("chained", tiny_world.CHAIN, command="plan")
        self.assertEqual(done.returncode, 0, done.stderr)
        answers, verdicts = done.stdout.split("task verdicts ")
        self.assertRegex(answers, r"units +5\n +results +\d")
        self.assertNotRegex(verdicts, r"(?m)^  (tokens|units|results) ")
        self.assertRegex(verdicts, r"records +5\n(.*\n)* +lengths +unknown until the tasks before this one have run; so are units and bytes")
        self.assertNotIn("longer than max_length", done.stdout)

    def test_status_of_a_stopped_training(self):
        world = tiny_world.World(self.folder / "training", records=40, text=TRAIN, results=("student.h5",))
        done = world.interrupted("train.step.begin@8", signal.SIGTERM, "t", 1)
        self.assertEqual(done.returncode, 75, done.stderr)
        states = sorted((world.folder / "runs/t/student.checkpoints").iterdir())
        step = int(states[-1].stem.split("-")[1])
        self.assertGreaterEqual(step, 4)
        self.assertIn(f"student: stopped cleanly, {15 - step} of 15 steps to do; run the same command again", done.stderr)
        with safe_open(states[-1], "pt") as state:
            loss = state.get_tensor("train.loss")[-1].item()

        def row(*options):
            return subprocess.run([tiny_world.PROGRAM, "status", world.folder / "runs/t", *options], capture_output=True, text=True, check=True).stdout
        self.assertRegex(row(), rf"student +train +resumable +{step}/15 \([\d.]+ %\) .* {loss:.4f} ")
        (task,) = json.loads(row("--json"))["tasks"]
        self.assertEqual((task["state"], task["units_done"], task["units"]), ("resumable", step, 15))
        self.assertAlmostEqual(task["loss"], loss, delta=1e-6)
        self.assertGreater(task["tokens_per_second"], 0)
        # Without the log's words, as an earlier build wrote it: what the states say.
        log = world.folder / "runs/t/run.jsonl"
        kept = log.read_text()
        log.write_text("".join(line + "\n" for line in kept.splitlines() if '"event":"step' not in line and '"event":"state"' not in line))
        self.assertRegex(row(), rf"student +train +resumable +{step} .* {loss:.4f} ")
        log.write_text(kept)
        world.complete("t", 1)
        self.assertRegex(row(), r"student +train +done +15/15 \(100\.0 %\) ")
        with h5py.File(world.results("t")) as file:
            last, tokens = file["train/loss"][-1], file["train/tokens"][:]
        # What both starts have read, step by step: the records' tokens would be another number.
        phases = [event for event in map(json.loads, log.read_text().splitlines()) if event["event"] == "phases"]
        self.assertEqual([event["tokens"] for event in phases], [tokens[:step].sum(), tokens[step:].sum()])
        self.assertEqual([event["groups"] for event in phases], [[], []])  # all of them work at every step
        self.assertRegex(row(), rf" {last:.4f} ")
        world.complete("t", 1)  # "is complete already"
        self.assertRegex(row(), rf"student +train +done +15/15 \(100\.0 %\) .* {last:.4f} ")

    def test_tokens_of_a_training_at_work_and_killed(self):
        world = tiny_world.World(self.folder / "counted", records=40, text=TRAIN, results=("student.h5",))
        world.complete("t", 1)
        with h5py.File(world.results("t")) as file:
            learnt = file["train/tokens"][:7].sum()
        world.forget("t")

        def starts(command):
            told = json.loads(subprocess.run([tiny_world.PROGRAM, command, world.folder / "runs/t", "--json"], capture_output=True, text=True, check=True).stdout)
            return told if command == "status" else told["starts"][-1]
        process = world.start("t", 2, "--verbose", MAGISTER_FAIL_POINT="train.step.begin@8/0:stop")
        tiny_world.wait_until(lambda: tiny_world.stopped_ranks(process) or process.poll() is not None)
        at_work = [starts(command) for command in ("status", "history")]
        for pid in tiny_world.ranks_of(process):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        tiny_world.wait_until(lambda: not tiny_world.left_of(process))
        killed = [starts(command) for command in ("status", "history")]
        self.assertEqual([(start["state"], start["tokens"]) for start in at_work + killed], [("running", learnt)] * 2 + [("killed", learnt)] * 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
