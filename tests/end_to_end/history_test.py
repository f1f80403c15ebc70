"""status and history of runs that are at work, killed, stopped, failed and done, against what the files hold and what the test did."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

from tiny_world import CHAIN, PROGRAM, World, left_of, ranks_of, wait_until

LONG = ("tasks.0.max_new_tokens=1000", "tasks.0.n=40", "tasks.0.ignore_eos=true")
SLOW = {"MAGISTER_FAIL_POINT": "generate.pass:slow"}  # a thousand passes of 0.1 s: it is at work, however late it is looked at


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name, records=20, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        cls.runs = cls.world.folder / "runs"

    def ask(self, *arguments, expect=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], env=self.world.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def status(self, name):
        """-> (first line, {task: (kind, state, units)})."""
        first, *lines = self.ask("status", self.runs / name).splitlines()
        lines = lines[:lines.index("")] if "" in lines else lines  # what stands behind is of other starts
        header, *rows = lines[-3:]  # of two tasks; an error stands before them
        self.assertEqual(header.split()[:4], ["TASK", "KIND", "STATE", "UNITS"])
        return first, {row.split()[0]: row for row in rows}

    def at_work(self, name, ranks, *arguments):
        """A run whose first task has begun to compute: its file stands there somewhat earlier."""
        log = self.runs / name / "run.jsonl"
        begun = lambda: log.read_text().count('"event":"start"') if log.exists() else 0
        before = begun()
        process = self.world.start(name, ranks, *arguments, **SLOW)
        wait_until(lambda: begun() > before or process.poll() is not None)
        return process

    def ended(self, process):
        """With all that it started: the rank of an mpirun that was killed writes on for two seconds."""
        process.communicate(timeout=1200)
        wait_until(lambda: not left_of(process))

    def history(self, name=""):
        return json.loads(self.ask("history", self.runs / name, "--json"))["starts"]

    def test_a_run_at_work_and_killed(self):
        process = self.at_work("x", 2, *LONG)
        first, tasks = self.status("x")
        self.assertRegex(first, r"^x: running, start 1 of 1, 2 ranks since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC \(process \d+ on ")
        self.assertRegex(tasks["answers"], r"^answers +generate +running +\d/5 ")
        self.assertRegex(tasks["verdicts"], r"^verdicts +judge +waiting ")
        self.assertEqual(self.history("x")[-1]["state"], "running")
        for pid in ranks_of(process):
            os.kill(pid, signal.SIGKILL)
        self.ended(process)
        first, tasks = self.status("x")
        self.assertRegex(first, "^x: killed, start 1 of 1")
        self.assertRegex(tasks["answers"], r"^answers +generate +resumable +\d/5 ")
        self.assertIn("waiting", tasks["verdicts"])

    def test_killed_and_done(self):
        self.assertNotEqual(self.world.run("y", 2, MAGISTER_FAIL_POINT="judge.unit.done@3:kill").returncode, 0)
        first, tasks = self.status("y")
        self.assertRegex(first, "^y: killed, start 1 of 1")
        self.assertRegex(tasks["answers"], r"done +5/5 \(100\.0 %\)")
        self.assertRegex(tasks["verdicts"], r"resumable +\d/\d+ ")
        self.world.complete("y", 2)
        first, tasks = self.status("y")
        self.assertRegex(first, "^y: done, start 2 of 2")
        self.assertRegex(tasks["verdicts"], r"done +20/20 \(100\.0 %\)")
        killed, done = self.history("y")
        self.assertEqual((killed["state"], killed["tasks_done"], done["state"], done["tasks_done"], done["tasks"]), ("killed", 1, "done", 2, 2))
        computed = sum(json.loads(line)["tokens"] for line in (self.runs / "y/run.jsonl").read_text().splitlines() if '"event":"phases"' in line)
        self.assertEqual(killed["tokens"] + done["tokens"], computed)
        self.assertGreater(computed, 0)

    def test_written_tokens_are_told_apart_from_prompts(self):
        """In the closing line, in run.jsonl and in status: the tokens of the file's texts, beside those of its prompts."""
        done = self.world.run("written", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = done.stdout + done.stderr
        with h5py.File(self.runs / "written/answers.h5") as file:
            written, prompts = len(file["generate/logprob"]), int(sum(file["generate/prompt_tokens"][::4]))
        events = [json.loads(line) for line in (self.runs / "written/run.jsonl").read_text().splitlines()]
        texts, verdicts = (event for event in events if event["event"] == "phases")
        self.assertEqual((texts["tokens"], texts["written_tokens"]), (prompts, written))
        self.assertAlmostEqual(texts["written_tokens_per_second"], written / texts["wall_seconds"])
        self.assertNotIn("written_tokens", verdicts)
        self.assertRegex(said, rf"{written} written tokens in [\d.]+ s: [\d.]+ tokens/s; {prompts} of prompts: [\d.]+ tokens/s")
        _, tasks = self.status("written")
        self.assertRegex(tasks["answers"], rf" {texts['written_tokens_per_second']:.0f} written, prompts {texts['tokens_per_second']:.0f} ")
        self.assertNotIn("written,", tasks["verdicts"])
        (start,) = self.history("written")
        self.assertEqual(start["written_tokens"], written)
        header, row = self.ask("history", self.runs / "written").splitlines()
        at = header.index("TOKENS")
        self.assertEqual(header[at:].split()[:2], ["TOKENS", "WRITTEN"])
        self.assertEqual(row[at:].split()[:2], [str(start["tokens"]), str(written)])

    def test_a_task_s_state_is_that_of_the_newest_start(self):
        """Earlier results stand there while a later start fails, leaves out what needs them, or starts over."""
        self.world.complete("again", 1)
        self.assertEqual(self.world.run("again", 1, "tasks.0.n=3").returncode, 78)
        first, tasks = self.status("again")
        self.assertRegex(first, r"^again: failed \(78\), start 2 of 2")
        self.assertRegex(tasks["answers"], r"^answers +generate +failed \(78\) ")
        self.assertRegex(tasks["verdicts"], r"^verdicts +judge +left out ")
        process = self.at_work("again", 1, "--fresh", *LONG)
        try:
            first, tasks = self.status("again")
            self.assertRegex(first, "^again: running, start 3 of 3")
            self.assertRegex(tasks["answers"], r"^answers +generate +running +\d/5 ")
            self.assertRegex(tasks["verdicts"], r"^verdicts +judge +waiting +- ")
        finally:
            process.kill()
            self.ended(process)
        # Killed before it came to them: they are what they were.
        self.assertRegex(self.status("again")[1]["verdicts"], r"^verdicts +judge +done +20/20 ")
        shutil.rmtree(self.runs / "again")

    def test_stopped_failed_and_done_in_one_table(self):
        self.assertEqual(self.world.run("stop", 2, "--max-wall", "00:00:01", *LONG, **SLOW).returncode, 75)
        self.assertEqual(self.world.run("fail", 1, "tasks.0.dataset.text=absent").returncode, 65)
        self.world.complete("good", 1)
        states = {row["name"]: row for row in self.history() if row["name"] in ("stop", "fail", "good")}
        self.assertEqual({name: row["state"].split(" (")[0] for name, row in states.items()}, {"stop": "stopped", "fail": "failed", "good": "done"})
        self.assertEqual(states["fail"]["state"], "failed (65)")
        self.assertIn("absent", states["fail"]["error"])
        self.assertIn("absent", self.ask("status", self.runs / "fail"))
        header, *rows = self.ask("history", self.runs).splitlines()
        self.assertTrue(header.startswith("STARTED (UTC)"))
        self.assertEqual(rows, sorted(rows), "the earliest first")
        # A moved run and a line that a kill cut in two.
        moved = self.world.folder / "moved"
        shutil.copytree(self.runs / "good", moved)
        with open(moved / "run.jsonl", "a", encoding="utf-8") as log:
            log.write('{"schema":1,"time":"2026-')
        self.assertRegex(self.ask("status", moved), r"answers +generate +done +5/5")

    def test_a_run_that_cannot_be_read_does_not_hide_the_others(self):
        self.world.complete("kept", 1)
        folder = self.world.folder / "several"
        for name in ("kept", "later"):
            (folder / name).mkdir(parents=True)
            (folder / name / "run.jsonl").write_text((self.runs / "kept/run.jsonl").read_text() if name == "kept" else '{"schema":2,"event":"run"}\n')
        done = subprocess.run([PROGRAM, "history", folder], env=self.world.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        header, kept, later = done.stdout.splitlines()
        self.assertRegex(kept, r" kept +1 +done ")
        self.assertRegex(later, r"^- +later +- +unreadable ")
        self.assertIn("later/run.jsonl: events of version 2", done.stderr)
        told = json.loads(self.ask("history", folder, "--json"))
        self.assertEqual([row["name"] for row in told["starts"]], ["kept"])
        ((run, error),) = [(row["run"], row["error"]) for row in told["unreadable"]]
        self.assertEqual(run, str(folder / "later"))
        self.assertIn("events of version 2", error)
        shutil.rmtree(folder / "kept")
        self.assertIn("events of version 2", self.ask("history", folder, expect=65))

    def test_results_that_are_missing_or_damaged_are_not_done(self):
        """The log says that the task ended; the file says more."""
        self.world.complete("hurt", 1)
        path = self.runs / "hurt/answers.h5"
        whole = path.read_bytes()

        def told(state, words, file=path):
            done = subprocess.run([PROGRAM, "status", self.runs / "hurt"], env=self.world.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, rf"(?m)^answers +generate +{state} ")
            self.assertRegex(done.stdout, r"(?m)^verdicts +judge +done +20/20 ")
            self.assertIn(f"{file}: {words}", done.stderr)
            answers, verdicts = json.loads(self.ask("status", self.runs / "hurt", "--json"))["tasks"]
            self.assertEqual((answers["state"], verdicts["state"], "fault" in verdicts), (state, "done", False))
            self.assertIn(f"{file}: {words}", answers["fault"])
        for size in (0, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            told("damaged", "")
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            file.attrs.modify("complete", numpy.uint8(0))
        told("damaged", "is not marked as complete")
        path.unlink()
        told("missing", "is not there")
        partial = path.with_name("answers.h5.partial")
        partial.write_bytes(whole[:len(whole) // 2])
        told("damaged", "", partial)
        partial.unlink()
        path.write_bytes(whole)
        self.assertRegex(self.status("hurt")[1]["answers"], r"done +5/5")

    def test_tokens_of_a_task_that_did_not_end(self):
        """The log of a start that was killed ends with what it last said of its progress."""
        folder = self.world.folder / "cut"
        folder.mkdir()
        (folder / "run.jsonl").write_text('{"schema":1,"event":"run","start":"a","name":"cut","tasks":[{"task":"answers"}]}\n'
                                          '{"schema":1,"event":"progress","start":"a","task":"answers","units_done":1,"units":5,"tokens_done":70,"tokens":350,"written_tokens":9}\n'
                                          '{"schema":1,"event":"progress","start":"a","task":"answers","units_done":2,"units":5,"tokens_done":140,"tokens":350,"written_tokens":18}\n')
        (start,) = json.loads(self.ask("history", folder, "--json"))["starts"]
        self.assertEqual((start["tokens"], start["written_tokens"]), (140, 18))

    def test_what_is_no_run(self):
        empty = self.world.folder / "empty"
        empty.mkdir()
        self.assertIn("no run.jsonl in it", self.ask("history", empty, expect=74))
        self.assertIn("run.jsonl: cannot be read", self.ask("status", empty, expect=74))
        (empty / "run.jsonl").write_text('{"schema":2,"event":"run"}\n')
        self.assertIn("events of version 2", self.ask("history", empty, expect=65))
        (empty / "run.jsonl").write_text("[]\n{}\nnonsense\n")
        self.assertIn("no start of a run", self.ask("status", empty, expect=65))
        (empty / "run.jsonl").write_text('{"schema":1,"event":"run","name":7,"tasks":[3,{"task":"a\\u001b[31m"}]}\n{"event":"start","units":-1}\n')
        self.assertNotIn("\x1b", self.ask("status", empty))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
