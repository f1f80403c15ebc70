"""Groups of several sizes in one job (decision 042): any number of groups of each size, kills and schedules write the same bytes; a row is,
bit for bit, that of a run whose groups all have the size that its unit is given; what cannot be is refused with its place.
"""
import json
import re
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

import tiny_world

MIXED = "layout: {{devices: cpu, gpus_per_group: [2, 1]}}"  # shares in proportion
TEACHER = tiny_world.EXPERIMENT.replace("layout: {{devices: cpu}}", MIXED)
CHAIN = tiny_world.CHAIN.replace("layout: {{devices: cpu}}", MIXED).replace("n: 4", "n: 2\n    top_logprobs: 2")
ROUND = (2, 1, 2)  # sizes of a round's units for shares of 2 and 1


def arrays(path):
    with h5py.File(path) as file:
        found = {}
        file.visititems(lambda name, item: found.update({name: item[:]}) if isinstance(item, h5py.Dataset) and not name.startswith(("commit", "plot")) else None)
        return found, file["commit/unit_begin"][:] if "commit/unit_begin" in file else None


def compare_rows(test, world):
    """Of the run "x" with those of the runs "only-1" and "only-2", whose groups have one size."""
    ours, begins = arrays(world.results("x"))
    uniform = {}
    for size in (1, 2):
        uniform[size], same = arrays(world.results(f"only-{size}"))
        test.assertTrue(numpy.array_equal(begins, same))
    rows = ours["samples/offset"]
    differ = set()
    for unit, (first, last) in enumerate(zip(begins, begins[1:])):
        size = ROUND[unit % len(ROUND)]
        for name, values in ours.items():
            begin, end = (rows[first], rows[last]) if len(values) == rows[-1] else (first, last)
            test.assertEqual(values[begin:end].tobytes(), uniform[size][name][begin:end].tobytes(), f"unit {unit}, {name}")
            if values[begin:end].tobytes() != uniform[3 - size][name][begin:end].tobytes():
                differ.add(size)
    test.assertEqual(differ, {1, 2}, "both sizes have the same bits: nothing was shown")


class MixedGroups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.teacher = tiny_world.World(scratch.name + "/teacher", records=40, text=TEACHER)
        cls.chain = tiny_world.World(scratch.name + "/chain", records=20, model=cls.teacher.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        cls.expected = cls.teacher.complete("x", 3)
        cls.chained = cls.chain.complete("x", 3)


    def with_groups(self, world, name, ranks, *arguments, **environment):
        world.forget(name)
        sha256 = world.complete(name, ranks, *arguments, **environment)
        return sha256, (world.folder / "runs" / name / "run.jsonl").read_text()

    def test_any_number_of_groups(self):
        for world, expected, layouts in ((self.teacher, self.expected, ((4, 1, 2), (5, 2, 1), (6, 2, 2))), (self.chain, self.chained, ((4, 1, 2), (5, 2, 1)))):
            for ranks, of_two, of_one in layouts:
                sha256, log = self.with_groups(world, "x", ranks)
                self.assertEqual(sha256, expected, f"{ranks} ranks")
                self.assertIn('"tp_sizes":[2,1],"tp_shares":[2,1]', log)
                self.assertRegex(log, rf'"size":2,"share":2,"groups":{of_two},.*"size":1,"share":1,"groups":{of_one},')
        self.assertEqual(self.with_groups(self.teacher, "x", 5, "run.schedule=static")[0], self.expected)

    def test_rows_are_those_of_the_size_that_a_unit_is_given(self):
        for size in (1, 2):
            self.teacher.complete(f"only-{size}", size, f"layout.gpus_per_group={size}")
        compare_rows(self, self.teacher)

    def texts(self, name):
        with h5py.File(self.chain.folder / f"runs/{name}/answers.h5") as file:
            offset = file["samples/offset"][:]
            return [(file["tokens/id"][a:b].tolist(), file["generate/logprob"][a:b].tolist(), file["generate/text"][i]) for i, (a, b) in enumerate(zip(offset, offset[1:]))]

    def test_texts_of_each_size(self):
        """A unit of texts is a record, of which two are written."""
        for size in (1, 2):
            self.chain.complete(f"only-{size}", size, f"layout.gpus_per_group={size}")
        ours, uniform = self.texts("x"), {size: self.texts(f"only-{size}") for size in (1, 2)}
        self.assertEqual(len(ours), 5 * 2)
        sizes = [ROUND[text // 2 % len(ROUND)] for text in range(len(ours))]
        for text, size in enumerate(sizes):
            self.assertEqual(ours[text], uniform[size][text], f"text {text}")
        differ = {size for text, size in enumerate(sizes) if ours[text] != uniform[3 - size][text]}
        self.assertEqual(differ, {1, 2}, "both sizes have the same bits: nothing was shown")

    def test_kills_and_other_numbers_of_groups(self):
        for world, expected, point in ((self.teacher, self.expected, "teacher.unit.begin@3:kill"), (self.chain, self.chained, "generate.pass@9:kill")):
            world.forget("x")
            for ranks in (3, 5):
                killed = world.run("x", ranks, MAGISTER_FAIL_POINT=point)
                self.assertNotEqual(killed.returncode, 0)
                self.assertFalse(world.results("x").exists())
            self.assertEqual(world.complete("x", 4), expected)

    def test_a_failed_group_ends_the_job(self):
        """Nobody waits for a size that is gone. The other group of its size, which would draw all of its units if it could, takes a second for each."""
        slow = ",".join(["teacher.unit.begin/2:slow"] * 10)
        result = self.teacher.run("fails", 4, MAGISTER_FAIL_POINT=f"results.commit.synced@2/3:throw,{slow}")
        self.assertNotIn(result.returncode, (0, 75), result.stderr)
        self.assertIn("results.commit.synced", result.stderr)
        self.assertFalse(self.teacher.results("fails").exists())

    def test_a_stalled_group_ends_the_job(self):
        """The only group of its size, while the others are done with their share."""
        result = self.teacher.run("stalled", 3, "run.watchdog_seconds=2", MAGISTER_FAIL_POINT="teacher.unit.begin@2/2:hang")
        self.assertEqual(result.returncode, 70, result.stderr)
        self.assertIn("watchdog", result.stderr)

    def test_identity_tells_shares_and_spellings(self):
        expected = self.teacher.complete("told", 3)
        result = self.teacher.run("told", 3, "layout.shares=[1,1]")
        self.assertEqual(result.returncode, 78, result.stderr)
        self.assertIn("its tp_shares is 2, 1, this run's is 1, 1", result.stderr)
        for changes, words in ((("layout.gpus_per_group=[3,1]",), "its tp_sizes is 2, 1, this run's is 3, 1"), (("layout.gpus_per_group=1",), "its tp_size is absent, this run's is 1")):
            result = self.teacher.run("told", 4, *changes)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(words, result.stderr)
        # Another order and common divisors say the same; so do the shares that are meant where none are given.
        result = self.teacher.run("told", 3, "layout.gpus_per_group=[1,2]", "layout.shares=[3,6]")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("is complete already", result.stderr)
        self.assertEqual(self.teacher.run("told", 3, "layout.shares=[2,1]").returncode, 0)
        self.teacher.forget("told")
        self.assertEqual(self.teacher.complete("told", 3, "layout.gpus_per_group=[1,2]", "layout.shares=[3,6]"), expected, "in another spelling")

    def plan(self, *arguments, code=0):
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.teacher.experiment("planned")), *arguments], cwd=self.teacher.folder,
                              env={**self.teacher.environment, "MAGISTER_ALLOW_SINGLETON": "1"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_plan_tells_sizes(self):
        text = self.plan("--ranks", "5")
        units = int(re.search(r"\n  units +(\d+)", text)[1])
        rounds, rest = divmod(units, 3)
        of_one = rounds + (rest > 1)
        self.assertRegex(text, rf"groups +2 of 2 devices, for {units - of_one} of the units\n  memory per device .*\n  groups +1 of 1 device, for {of_one} of the units\n  memory per device ")
        shards = re.findall(r"\n  group (\d): rank (\d), (\d cpu shards|cpu shard 0 \(.*?\)) on \S+(?: \((.*)\))?\n", text.replace("\n", "\n\n"))
        self.assertEqual([(group, rank, ranks) for group, rank, _, ranks in shards], [("0", "0", "ranks 0 and 1"), ("1", "2", ""), ("2", "3", "ranks 3 and 4")])

    def test_refusals(self):
        for ranks, changes, words in (
                (2, (), "planned.yaml:4:40: layout.gpus_per_group: groups of 2, 1 with shares of 2, 1 on "),
                (2, (), "there would be no group of 1"),
                (1, ("layout.gpus_per_group=[9,1]",), "there would be no group of 9"),
                (3, ("layout.gpus_per_group=[4,2]",), "cannot be divided into such groups"),
                (8, ("layout.gpus_per_group=[7,1]",), "use groups of 1 to "),
                (0, ("layout.gpus_per_group=[2,2]",), "a size is named twice"),
                (0, ("layout.gpus_per_group=[2]",), "a list of 1"),
                (0, ("layout.gpus_per_group=[5,4,3,2,1]",), "a list of 5"),
                (0, ("layout.gpus_per_group=[0,1]",), "layout.gpus_per_group.0"),
                (0, ("layout.shares=[0,1]",), "layout.shares.0"),
                (0, ("layout.shares=[1,1,1]",), "3 shares for 2 sizes"),
                (0, ("layout.gpus_per_group=2", "layout.shares=[1,1]"), "layout.shares: is given and gpus_per_group is no list")):
            result = self.teacher.run("planned", ranks, *changes)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(words, result.stderr)
            self.assertFalse((self.teacher.folder / "runs/planned").joinpath("teacher.h5.partial").exists())

    def test_merged_slices(self):
        """Their units are counted by part, so the whole is no file of a run over all records, and says so."""
        for part in (0, 1):
            self.teacher.complete(f"part-{part}", 3, f"tasks.0.slice={part}/2")
        whole = self.teacher.results("merged")
        whole.parent.mkdir(parents=True)
        for command in (["merge", str(whole), *(str(self.teacher.results(f"part-{part}")) for part in (0, 1))], ["check", str(whole)], ["check", str(self.teacher.results("x"))]):
            done = subprocess.run([tiny_world.PROGRAM, *command], env=self.teacher.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.teacher.run("merged", 3)
        self.assertEqual(result.returncode, 78, result.stderr)
        self.assertIn("its tp_first_units is ", result.stderr)


class MixedGpus(unittest.TestCase):
    """GPUs that the host plays: their layout, memory and code."""

    def test_any_number_of_groups(self):
        def played(*memories):
            return {"MAGISTER_GPUS_ON_HOST": ",".join(map(str, memories))}
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_world.make_model(f"{folder}/model", hidden_size=64, num_attention_heads=8, num_key_value_heads=4)
            world = tiny_world.World(folder, records=9, model=model, text=TEACHER.replace("devices: cpu", "devices: auto"))
            expected = world.complete("x", 3, **played(4096, 4096, 4096))
            world.forget("x")
            killed = world.run("x", 4, MAGISTER_FAIL_POINT="teacher.unit.begin@3:kill", **played(*[4096] * 4))
            self.assertNotEqual(killed.returncode, 0)
            # A group of two has NCCL's buffers, for which the second GPU has no room: it is left to the group of one.
            self.assertEqual(world.complete("x", 3, **played(4096, 100, 4096)), expected)
            plan = subprocess.run([tiny_world.PROGRAM, "plan", "--ranks", "3", str(world.experiment("plan"))], capture_output=True, text=True, check=False,
                                  env={**world.environment, **played(4096, 100, 4096), "MAGISTER_ALLOW_SINGLETON": "1"})
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertEqual(re.findall(r"  group (\d): rank (\d), cuda:([\d,]+) on \S+ \(emulated on the host(.*)\)", plan.stdout), [("0", "0", "0,2", ", ranks 0 and 1"), ("1", "2", "1", "")])
            for size in (1, 2):
                world.complete(f"only-{size}", size, f"layout.gpus_per_group={size}", **played(*[4096] * size))
            compare_rows(self, world)
            for ranks, memories, words in ((1, [4096] * 3, "there would be no group of 2"), (3, (4096, 100, 100), "there would be no group of 2, whose GPUs need 281"), (3, (4096, 1, 4096), "there would be no group of 1, whose GPUs need 4.")):
                result = world.run("refused", ranks, **played(*memories))
                self.assertEqual(result.returncode, 78, result.stderr)
                self.assertIn(words, result.stderr)


class OtherTasks(unittest.TestCase):
    def test_trainings_are_refused_and_verifiers_are_not(self):
        with tempfile.TemporaryDirectory() as folder:
            world = tiny_world.World(folder, records=5, text=TEACHER.split("tasks:")[0] + "tasks:\n  - {{task: train, name: student, dataset: {{path: {data}}}, train: {{steps: 1}}}}\n", results=("student.h5",))
            result = world.run("train", 3)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn("train.yaml:4:40: layout.gpus_per_group: groups of 2, 1, and student is a task of kind train", result.stderr)
            world.data.write_text("".join(json.dumps({"completion": f"#### {i}", "answer": str(i)}) + "\n" for i in range(7)))
            world.text = TEACHER.split("tasks:")[0] + "tasks:\n  - {{task: score, name: student, dataset: {{path: {data}}}, score: {{verifier: exact, completion: completion, answer: answer}}}}\n"
            self.assertEqual(len({tuple(world.complete("scores", ranks)) for ranks in (0, 2)}), 1)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
