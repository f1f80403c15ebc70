"""Several tasks of an experiment at once, over parts of the world: the same bytes as one after the other, also after kills; tasks that fail, and
what needs them; `needs`."""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py

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

    def test_a_second_start_ends_before_any_of_its_tasks_begins(self):
        """The first waits in its first task; the second gets none of the others, and starts of other tasks go on beside it."""
        texts = [TEXTS % (name, "{data}", "") for name in ("first", "second", "third")]
        for ranks, head in ((1, IN_TURN), (2, HEAD)):
            self.world.forget("twice")
            self.world.text = head + texts[0] + texts[1]
            self.assertEqual(self.world.run("twice", ranks).returncode, 0)
            whole = self.files("twice")
            self.world.forget("twice")
            process = self.world.start("twice", ranks, MAGISTER_FAIL_POINT="generate.pass@2:stop")
            try:
                tiny_world.wait_until(lambda: tiny_world.stopped_ranks(process) or process.poll() is not None)
                # The other rank may be on its way: it stops where it is, so that no file of the first start comes or goes from here on.
                for pid in tiny_world.ranks_of(process):
                    os.kill(pid, signal.SIGSTOP)
                tiny_world.wait_until(lambda: tiny_world.stopped_ranks(process) == tiny_world.ranks_of(process))
                before = [path.name for path in self.world.results("twice").parent.glob("*") if ".lock" not in path.name]
                second = self.world.run("twice", 1)
                self.assertEqual(second.returncode, 74, second.stderr)
                self.assertIn("another run holds it", second.stderr)
                self.assertEqual([path.name for path in self.world.results("twice").parent.glob("*") if ".lock" not in path.name], before)
                self.assertEqual(len(self.events("twice", "run")), 1, "the first run's log is its own")
                self.world.text = head + texts[2]
                self.assertEqual(self.world.run("twice", 1).returncode, 0, "no task of the first start")
                self.two_starts(("running", "done"))
            finally:
                _, errors = tiny_world.let_go(process)
            self.assertEqual(process.returncode, 0, errors)
            files = self.files("twice")
            self.assertTrue(files.pop("third.h5"))
            self.two_starts(("done", "done"))
            self.assertEqual(files, whole)
            self.assertEqual(list(self.world.results("twice").parent.glob("*.lock")), [])

    def two_starts(self, states):
        """Each of the two has its own events, whichever wrote last."""
        folder = str(self.world.results("twice").parent)
        ask = lambda *arguments: subprocess.run([tiny_world.PROGRAM, *arguments], capture_output=True, text=True, check=True).stdout
        starts = json.loads(ask("history", folder, "--json"))["starts"]
        self.assertEqual([(start["state"], start["tasks"], start["tasks_done"]) for start in starts],
                         [(states[0], 2, 2 if states[0] == "done" else 0), (states[1], 1, 1)])
        lines = ask("status", folder).splitlines()
        self.assertEqual([line.split(",")[0] for line in lines if line.startswith("twice: ")], [f"twice: {state}" for state in states if state == "running"] + ["twice: done"])
        rows = {line.split()[0]: line.split()[2] for line in lines if " generate " in line}
        self.assertEqual(rows.pop("third"), "done")
        # All results of the folder are shown. At once, or one after the other; "resumable": its file is there, and it has not begun to compute.
        known = {"running", "waiting", "to"} if states[0] == "running" else {"done"}
        self.assertEqual((set(rows), set(rows.values()) - known, "running" in rows.values()), ({"first", "second"}, set(), states[0] == "running"))
        ids = [event["start"] for event in self.events("twice", "run")]
        self.assertEqual((len(set(ids)), {event["start"] for event in self.events("twice", "task_end")} - set(ids)), (2, set()))

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

    def test_tasks_without_a_model_on_a_part_of_one_rank(self):
        """Two verifiers beside each other, each on one rank of two, then the evaluation of both: the bytes of one rank, also with a model of two shards a rank."""
        sums = self.folder / "sums.jsonl"
        sums.write_text("".join(json.dumps({"id": i, "answer": str(i), "completion": f"It is {i + i % 2}."}) + "\n" for i in range(20)))
        names, score = self.world.names, "  - {{task: score, name: %s, dataset: {{path: %s}}, score: {{verifier: %s}}}}\n"
        tasks = score % ("exact", sums, "exact") + score % ("numbers", sums, "math") + "  - {{task: evaluate, scores: [exact, numbers]}}\n"
        try:
            self.world.names = ("evaluation.h5",)
            for name, head in (("verified", HEAD), ("verified_shards", HEAD.replace("devices: cpu", "devices: cpu, shards_per_rank: 2"))):
                self.world.text = head + tasks
                self.world.complete(name, 1)
                whole = self.files(name)
                self.assertEqual(len(whole), 3)
                self.world.forget(name)
                self.world.complete(name, 2)
                self.assertEqual(self.files(name), whole)
                ranks = {event["task"]: event["ranks"] for event in self.events(name, "task")}
                self.assertEqual(ranks, {"exact": 1, "numbers": 1, "evaluation": 2})
        finally:
            self.world.names = names

    def by_names_or_paths(self, name, by_path):
        """Every key that takes what another task writes."""
        made = f"{self.folder}/runs/{name}/"
        results = lambda task: f'"{made}{task}.h5"' if by_path else task
        file = lambda task: f'{{{{results: "{made}{task}.h5"}}}}' if by_path else f"{{{{task: {task}}}}}"
        model = lambda task: f'{{{{path: "{made}{task}"}}}}' if by_path else f"{{{{task: {task}}}}}"
        adapted = f'{{{{path: {{model}}, adapter: "{made}lora"}}}}' if by_path else model("lora")
        short = "train: {{steps: 1, global_batch: 2, max_length: 512%s}}"
        data = "dataset: {{path: {data}, limit: 3}}"
        self.world.text = HEAD + "".join("  - {{task: " + task + "}}\n" for task in (
            f"teacher_logits, {data}, max_length: 64",
            f"train, name: student, objective: distill, teacher: {file('teacher')}, " + short % f", evaluate: {{{{teacher: {file('teacher')}}}}}",
            f"generate, name: texts, model: {model('student')}, {data}, max_new_tokens: 4",
            f"train, name: lora, {data}, " + short % ", adapter: {{rank: 2}}",
            f"generate, name: lora-texts, model: {adapted}, {data}, max_new_tokens: 4",
            f"train, name: worth, objective: reward, dataset: {{{{path: {self.folder}/pairs.jsonl}}}}, " + short % "",
            f"rollout, name: rolls, {data}, max_new_tokens: 4, cuts: 1, reward: {{{{model: {model('worth')}}}}}",
            f"train, name: value, objective: value, rollouts: {file('rolls')}, value: {{{{min_reward: -100, max_reward: 100}}}}, " + short % "",
            f"generate, name: guided, {data}, max_new_tokens: 4, guide: {{{{model: {model('value')}, candidates: 3}}}}",
            f"judge, name: first, {data}, answers: {results('texts')}, mode: simpleqa, prompt: {{{{user: hello}}}}",
            f"judge, name: second, {data}, answers: {results('texts')}, panel: [{results('first')}], mode: simpleqa, prompt: {{{{user: hi}}}}",
            f'score, name: right, {data.replace("limit", "key: id, limit")}, answers: {results("guided")}, score: {{{{verifier: regex, pattern: "."}}}}',
            f"evaluate, scores: [{results('right')}]",
            # Data have no name.
            f'train, name: again, dataset: {{{{path: ["{made}texts.h5", "{made}lora-*.h5"], tokens: tokens}}}}, ' + short % f', evaluate: {{{{dataset: {{{{path: "{made}lora-texts.h5", tokens: tokens}}}}}}}}'))
        self.world.names = ("evaluation.h5",)

    def contents(self, name):
        """All but attributes, which hold the experiment's text."""
        found = {}
        for path in sorted(self.world.results(name).parent.glob("*.h5")):
            with h5py.File(path) as file:
                file.visititems(lambda key, item: found.update({f"{path.stem}/{key}": item[()].tobytes()}) if isinstance(item, h5py.Dataset) and not key.startswith("commit") and "text" not in key else None)
        return {**found, **{key: digest for key, digest in self.files(name).items() if key.endswith(".safetensors") and "previous" not in key}}

    def test_paths_name_what_earlier_tasks_make(self):
        """Where nothing stands yet, by one command, over one rank and two; `--fresh` by one command, too; the results are those of tasks that name others."""
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps({"prompt": "plan", "chosen": f" unit {i}", "rejected": " of"}) + "\n" for i in range(3)))
        needs, names = {}, self.world.names
        try:
            for name, by_path in (("named", False), ("paths", True)):
                self.by_names_or_paths(name, by_path)
                done = subprocess.run([tiny_world.PROGRAM, "plan", "--ranks", "2", str(self.world.experiment(name))], env=self.world.environment, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                needs[name] = re.findall(r"^task (\S+).*\n  needs +(.*)$", done.stdout, re.MULTILINE)
                self.assertFalse(self.world.results(name).parent.exists())
            self.assertEqual(needs["paths"], needs["named"])
            self.assertEqual(len(needs["paths"]), 11)
            self.by_names_or_paths("named", False)
            self.world.complete("named", 1)
            named = self.contents("named")
            self.by_names_or_paths("paths", True)
            self.world.complete("paths", 2)
            self.assertEqual(self.contents("paths"), named)
            done = self.world.run("paths", 1)
            self.assertEqual((done.returncode, done.stderr.count("is complete already")), (0, 14), done.stderr)
            # Another teacher changes all that comes from it.
            self.assertEqual(self.world.run("paths", 1, "tasks.0.top_k=3").returncode, 78)
            for overrides in (("tasks.0.top_k=3",), ()):
                self.world.complete("paths", 1, "--fresh", *overrides)
                self.assertEqual(self.contents("paths") == named, not overrides)
        finally:
            self.world.names = names

    def test_a_path_through_a_link_to_what_an_earlier_task_makes(self):
        """The output folder through a link and the path without it, and the other way round; also by a pattern."""
        runs, link = self.folder / "runs", self.folder / "link"
        runs.mkdir(exist_ok=True)
        link.symlink_to(runs)
        for output, path in ((link, f"{runs}/linked/first.h5"), (runs, f"{link}/linked/first.h5"), (link, f"{runs}/linked/fir*.h5"), (link, f"{link}/lin*/first.h5"), (link, f"{self.folder}/li*/linked/first.h5"), (link, f"{runs}/other/first.h5")):
            with self.subTest(path):
                self.world.text = HEAD.replace("{runs}", str(output)) + TEXTS % ("first", "{data}", "") + TEXTS % ("second", f'"{path}"', "")
                done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("linked"))], env=self.world.environment, capture_output=True, text=True, check=False)
                self.assertEqual(re.findall(r"^task (\S+).*\n  needs +(.*)$", done.stdout, re.MULTILINE), [] if "other" in path else [("second", "first")], done.stderr)

    def test_a_path_of_a_task_that_failed(self):
        bad = self.folder / "bad-path.jsonl"
        bad.write_text('{"text": "one"}\n{"text": 3}\n')
        path = f'{self.folder}/runs/bad_path/%s'
        self.world.text = HEAD + TEXTS % ("bad", bad, "") + "".join(TEXTS % (name, "{data}", more) for name, more in (("good", ""), ("more", ""))) + (
            "  - {{task: score, name: third, dataset: {{path: {data}, limit: 4, key: id}}, answers: " + f'"{path % "bad.h5"}"' + ", score: {{verifier: regex, pattern: x}}}}\n")
        for ranks in (0, 2):
            done = self.world.run("bad_path", ranks)
            self.assertEqual(done.returncode, 65, done.stderr)
            self.assertRegex(done.stderr, "third: is left out, for it needs bad .which has failed.")
            self.world.forget("bad_path")

    def test_needs(self):
        texts = HEAD + TEXTS % ("one", "{data}", ", needs: [%s]") + TEXTS % ("two", "{data}", "")
        for needs, message in (("two", "two comes after this task"), ("one", "one is this task itself"), ("nobody", "no task before this one is named nobody")):
            self.world.text = texts % needs
            done = self.world.run("needs", 0)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn(f"tasks.0.needs: {message}", done.stderr)
        self.world.text = HEAD + TEXTS % ("one", "{data}", "") + TEXTS % ("two", "{data}", ", needs: onee")
        done = self.world.run("needs", 0)
        self.assertIn("tasks.1.needs: no task before this one is named onee (this task would wait for it forever); did you mean one?", done.stderr)
        # It says when, not what: results stay those of the task.
        self.world.text = HEAD + TEXTS % ("one", "{data}", "") + TEXTS % ("two", "{data}", "")
        self.assertEqual(self.world.run("needs", 0).returncode, 0)
        self.world.text = HEAD + TEXTS % ("one", "{data}", "") + TEXTS % ("two", "{data}", ", needs: one")
        done = self.world.run("needs", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("two.h5 is complete already", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
