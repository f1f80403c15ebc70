"""Several tasks of an experiment at once, over parts of the world: the same bytes as one after the other, also after kills; tasks that fail, and
what needs them; `needs`."""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tiny_world
from groups_test import HEAD, REPEATED, START

IN_TURN = HEAD.replace("tasks:\n", "run: {{at_once: 1}}\ntasks:\n")
TEXTS = "  - {{task: generate, name: %s, dataset: {{path: %s, limit: 4}}, max_new_tokens: 4%s}}\n"


class AtOnce(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = tiny_world.World(scratch.name, records=5, text=REPEATED, results=("model-2.h5",))
        cls.folder = pathlib.Path(scratch.name)

    def files(self, name):
        folder = self.world.results(name).parent
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*"))
                if path.suffix in (".h5", ".safetensors") and ".checkpoints" not in str(path)}

    def events(self, name, event):
        lines = (self.world.results(name).parent / "run.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def test_same_bytes_as_one_after_the_other(self):
        self.world.text = REPEATED
        self.world.complete("same", 1)
        whole = self.files("same")
        for ranks, point in ((2, ""), (3, ""), (2, "generate.pass@9:kill")):
            self.world.forget("same")
            if point:
                self.assertNotEqual(self.world.run("same", ranks, MAGISTER_FAIL_POINT=point).returncode, 0)
            self.world.complete("same", ranks)
            self.assertEqual(self.files("same"), whole, (ranks, point))
        # Two parts of two ranks each, beside each other.
        self.world.forget("same")
        self.world.complete("same", 4, "run.at_once=2")
        self.assertEqual(self.files("same"), whole)
        # The four texts of a round were divided, the trainings had all ranks.
        self.world.forget("same")
        (self.world.results("same").parent / "run.jsonl").unlink(missing_ok=True)
        self.world.complete("same", 2)
        ranks = {event["task"]: event["ranks"] for event in self.events("same", "task")}
        self.assertEqual({name: ranks[name] for name in ("model-0", "texts-1-cool-1", "texts-2-hot-2", "model-2")},
                         {"model-0": 2, "texts-1-cool-1": 1, "texts-2-hot-2": 1, "model-2": 1})

    def test_weights_stay_from_task_to_task(self):
        """The same model again is not read again, in another type it is, and a training takes its place; the texts are those of runs of one task."""
        train = "  - {{task: train, name: model-2, model: {{path: {model}}}, objective: lm, dataset: {{path: {data}, limit: 3}}, train: {{steps: 1, max_length: 32}}}}\n"
        own = ", model: {{path: {model}, dtype: bf16}}"
        texts = [TEXTS % (name, "{data}", more) for name, more in (("one", ""), ("two", ", seed: 7"), ("three", own), ("four", own + ", seed: 8"), ("five", ", seed: 9"))]
        for name, ranks, shards in (("stay", 1, 1), ("stay_two", 2, 1), ("stay_shards", 2, 2)):
            head = IN_TURN.replace("devices: cpu", f"devices: cpu, gpus_per_group: {shards}, shards_per_rank: 1" if shards > 1 else "devices: cpu")
            self.world.text = head + "".join(texts[:4]) + (train if shards == 1 else "") + texts[4]
            done = self.world.run(name, ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            kept = {event["task"]: event.get("weights_kept") for event in self.events(name, "start")}
            self.assertEqual(kept, {"one": False, "two": True, "three": False, "four": True, "five": False, **({"model-2": False} if shards == 1 else {})})
            whole = self.files(name)
            for task in range(5):
                self.world.forget(name)
                self.world.text = head + texts[task]
                done = self.world.run(name, ranks)
                self.assertEqual(done.returncode, 0, done.stderr)
                for file, digest in self.files(name).items():
                    self.assertEqual(digest, whole[file], file)

    def failing(self, name, head, ranks):
        """A task whose data are bad in their middle, one that needs it, one that needs that one, and two that need neither."""
        bad = self.folder / f"{name}.jsonl"
        good = [json.dumps({"text": f"number {i}"}) for i in range(5)]
        bad.write_text("\n".join(good[:2] + ['{"text": 3}'] + good[3:]) + "\n")
        self.world.text = (head + TEXTS % ("first", "{data}", "") + TEXTS % ("bad", bad, "") + TEXTS % ("second", "{data}", ", needs: bad")
                           + TEXTS % ("third", "{data}", ", needs: [first, second]") + TEXTS % ("last", "{data}", ""))
        folder = self.world.results(name).parent
        done = self.world.run(name, ranks)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn(f"{bad}:3", done.stderr)
        self.assertRegex(done.stderr, "second: is left out, for it needs bad .which has failed.")
        self.assertRegex(done.stderr, "third: is left out, for it needs second .which was left out itself.")
        self.assertIn("2 of 5 tasks are done; failed: bad (65); left out, for they need those: second, third", done.stderr)
        self.assertEqual(sorted(path.stem for path in folder.glob("*.h5")), ["first", "last"])
        self.assertEqual({event["task"] for event in self.events(name, "task_skipped")}, {"second", "third"})
        status = subprocess.run([tiny_world.PROGRAM, "status", str(folder)], capture_output=True, text=True, check=False).stdout
        states = {line.split()[0]: line for line in status.splitlines() if " generate " in line}
        for task, state in (("first", "done"), ("bad", "failed (65)"), ("second", "left out"), ("third", "left out"), ("last", "done")):
            self.assertIn(f" {state} ", states[task])
        before = self.files(name)
        bad.write_text("\n".join(good) + "\n")
        done = self.world.run(name, ranks)
        self.assertEqual(done.returncode, 0, done.stderr)
        after = self.files(name)
        self.assertEqual({key: after[key] for key in before}, before)
        self.assertEqual(sorted(path.stem for path in folder.glob("*.h5")), ["bad", "first", "last", "second", "third"])

    def test_a_failed_task_leaves_the_others(self):
        self.failing("in_turn", IN_TURN, 0)
        self.failing("in_turn_2", IN_TURN, 2)
        self.failing("at_once", HEAD, 2)

    def test_an_mpi_without_threads_runs_them_in_turn(self):
        """Every task over both ranks, with a warning; with at_once: 1 there is none."""
        source, library = self.folder / "one_thread.c", self.folder / "one_thread.so"
        source.write_text("int MPI_Query_thread(int *level) { *level = 0; return 0; }\n")  # MPI_THREAD_SINGLE in every MPI
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        texts = "".join(TEXTS % (name, "{data}", "") for name in ("one", "two"))
        for name, head in (("without", HEAD), ("asked", IN_TURN)):
            self.world.text = head + texts
            done = self.world.run(name, 2, LD_PRELOAD=str(library))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("tasks run one after the other" in done.stderr, name == "without", done.stderr)
            self.assertEqual([event["ranks"] for event in self.events(name, "task")], [2, 2])

    def test_needs(self):
        texts = HEAD + TEXTS % ("one", "{data}", ", needs: [%s]") + TEXTS % ("two", "{data}", "")
        for needs, message in (("two", "two comes after this task"), ("one", "one is this task itself"), ("nobody", "no task before this one is named nobody")):
            self.world.text = texts % needs
            done = self.world.run("needs", 0)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn(f"tasks.0.needs: {message}", done.stderr)
        self.world.text = HEAD + TEXTS % ("one", "{data}", "") + TEXTS % ("two", "{data}", ", needs: onee")
        done = self.world.run("needs", 0)
        self.assertIn("tasks.1.needs: no task before this one is named onee (it would be waited for in vain); did you mean one?", done.stderr)
        # It says when, not what: results stay those of the task.
        self.world.text = HEAD + TEXTS % ("one", "{data}", "") + TEXTS % ("two", "{data}", "")
        self.assertEqual(self.world.run("needs", 0).returncode, 0)
        self.world.text = HEAD + TEXTS % ("one", "{data}", "") + TEXTS % ("two", "{data}", ", needs: one")
        done = self.world.run("needs", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("two.h5 is complete already", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
