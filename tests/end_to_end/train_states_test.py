"""Task train while its states are written beside the steps: the same bytes of states and student as where every step waits for them, on CPUs and with the GPU's code
on the host; what fails, hangs or is killed while a state is under way leaves the state before it. Ranks that read free memory differently train in one shape.
"""
import hashlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import tiny_world
from train_test import EXPERIMENT

ON_HOST = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
T = "tasks.0.train."
FRACTION = T + "memory_fraction="


class States(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        # A state of 20 MB: smaller ones are not copied.
        model = tiny_world.make_model(cls.folder / "model", hidden_size=256, intermediate_size=704, num_attention_heads=8, num_key_value_heads=4)
        text = EXPERIMENT.replace("epochs: 2,", "steps: 6,").replace("save_every: 3", "save_every: 2, keep: 9").replace("max_length: 96", "max_length: 24, micro_batch: 1")
        cls.world = tiny_world.World(cls.folder, records=26, text=text, results=("student.h5",), model=model)
        # What the machine has free changes with the tests beside this one: a limit below it stands for all.
        cls.world.environment["SLURM_MEM_PER_NODE"] = "3000"
        cls.world.complete("run", 1)
        cls.states = cls.states_now()
        cls.content = cls.content_now()
        cls.world.forget("run")
        cls.world.complete("run", 1, **ON_HOST)
        cls.states_of_gpus, cls.content_of_gpus = cls.states_now(), cls.content_now()

    def setUp(self):
        """Results and states hold the run's name: all runs have the same one."""
        self.world.forget("run")

    @classmethod
    def content_now(cls):
        return cls.world.sha256("run"), (cls.world.results("run").with_suffix("") / "model.safetensors").read_bytes()

    @classmethod
    def paths(cls):
        return sorted(cls.world.results("run").with_suffix(".checkpoints").glob("*"))

    @classmethod
    def states_now(cls):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in cls.paths()}

    def events(self):
        """-> the steps of the states that the log of the run counts"""
        lines = (self.world.results("run").parent / "run.jsonl").read_text().splitlines()
        return [event["step"] for event in map(json.loads, lines) if event["event"] == "state"]

    def plan(self, *arguments, ranks=1, **environment):
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("plan")), "--ranks", str(ranks), *arguments], env={**self.world.environment, **environment},
                              cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def train(self, ranks, *arguments, code=0, **environment):
        done = self.world.run("run", ranks, *arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return done.stdout + done.stderr

    def too_small_for_a_copy(self, ranks, **environment):
        """-> the key with which a rank has room for all but the copy"""
        found = self.plan(ranks=ranks, **environment)
        self.assertIn("written while the next steps compute", found)
        (line,) = [line for line in found.splitlines() if line.startswith("  host memory" if environment else "  memory per device")]
        parts = re.findall(r"([a-z][a-z ]*[a-z]) ([0-9.]+) ([KMG]iB)", re.split(r"[(:]", line, maxsplit=1)[1])
        megabytes = {part: float(number) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit] for part, number, unit in parts}
        return FRACTION + str((sum(megabytes.values()) - megabytes["copy of a state"] / 2) * ranks / 3000)

    def test_the_same_bytes_whether_steps_wait_or_not(self):
        self.assertEqual(len(self.states), 3)
        expected = {False: (self.states, self.content), True: (self.states_of_gpus, self.content_of_gpus)}
        self.assertNotEqual(*expected.values())  # of other code
        for gpu, ranks, zero, waits in ((False, 1, 1, True), (False, 2, 1, False), (False, 2, 1, True), (False, 3, 0, False),
                                        (True, 1, 1, True), (True, 3, 1, False), (True, 2, 1, True)):
            with self.subTest(gpu=gpu, ranks=ranks, zero=zero, waits=waits):
                self.world.forget("run")
                # A tenth of a second before a state is hashed: steps follow meanwhile.
                environment = {**(ON_HOST if gpu else {}), **({} if waits else {"MAGISTER_FAIL_POINT": "train.save.begin@1:slow"})}
                keys = (self.too_small_for_a_copy(ranks, **environment),) if waits else ()
                text = self.train(ranks, T + f"zero={zero}", *keys, **environment)
                self.assertIn("states: steps wait for them: there is no room for a copy of 1" if waits else "states: written while the next steps compute", text)
                self.assertEqual((self.states_now(), self.content_now()), expected[gpu])
                self.assertEqual(self.events(), [2, 4, 6])
        self.assertNotIn("states  ", self.plan(T + "save_every=6"))  # no step follows

    def finish(self, ranks):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74. -> the log of the last run"""
        tries = []

        def goes_on():
            tries.append(self.world.run("run", ranks))
            return tries[-1].returncode == 0
        tiny_world.wait_until(goes_on, seconds=60, pause=0.3)
        self.assertEqual(self.content_now(), self.content)
        there = self.states_now()
        self.assertEqual({name: there.get(name, digest) for name, digest in self.states.items()}, self.states)
        self.assertEqual([path for path in self.paths() if path.suffix != ".safetensors"], [])
        self.world.forget("run")
        return tries[-1].stdout + tries[-1].stderr

    def test_a_write_that_hangs_stops_no_step_before_the_next_state(self):
        text = self.train(2, "run.watchdog_seconds=4", code=70, MAGISTER_FAIL_POINT="train.save.begin@1:hang")
        self.assertIn("in phase save (unit 4) for ", text)
        self.assertEqual((self.events(), self.states_now()), ([], {}))
        self.assertNotIn("continues after", self.finish(1))

    def test_a_write_that_fails_ends_the_job(self):
        # A state has some seventy writes.
        for point, code, words, after in (("whole_file.write@40/0:enospc", 74, ("No space left on device", "step-00000002.safetensors.creating"), 0),
                                          ("whole_file.write@110/0:enospc", 74, ("No space left on device", "step-00000004.safetensors.creating"), 2),
                                          ("train.save.begin@3/0:throw", 70, ("fail point train.save.begin",), 4)):
            with self.subTest(point=point):
                self.world.forget("run")
                text = self.train(2, code=code, MAGISTER_FAIL_POINT=point)
                for word in words:
                    self.assertIn(word, text)
                there = {name: digest for name, digest in self.states.items() if int(name[5:13]) <= after}
                self.assertEqual(self.states_now(), there)
                self.assertEqual(self.events(), list(range(2, after + 1, 2)))
                self.assertEqual(f"continues after step {after}" in self.finish(1), after > 0)

    def test_kills_and_stops_while_a_state_is_under_way(self):
        for point, after in (("train.save.begin@2:hang,train.step.begin@6:kill", 2), ("train.save.begin@2:kill", 2), ("train.save.done@1:kill", 2), ("whole_file.synced@1:kill", 0)):
            with self.subTest(point=point):
                self.world.forget("run")
                self.assertNotEqual(self.world.run("run", 2, MAGISTER_FAIL_POINT=point).returncode, 0)
                self.assertEqual(f"continues after step {after}" in self.finish(3), after > 0)
        done = self.world.interrupted("train.save.begin@1/0", signal.SIGTERM, "run", 2)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual([f"step-{step:08}.safetensors" for step in self.events()], list(self.states_now()))
        self.assertIn(f"continues after step {self.events()[-1]} of 6", self.finish(1))

    def test_an_error_of_all_ranks_keeps_the_state_and_that_of_one_ends_the_job(self):
        """A state's seventy writes take a tenth of a second each: it is under way when the next step fails."""
        slow = "whole_file.write@3/0:slow"
        for gpu, point, kept in ((False, "train.step.begin@3", [2]), (True, "train.step.begin@3", [2]), (True, "train.step.begin@4", [2]), (False, "train.step.begin@3/0", []), (True, "train.step.begin@4/0", [])):
            with self.subTest(gpu=gpu, point=point):
                self.world.forget("run")
                text = self.train(2, code=70, **(ON_HOST if gpu else {}), MAGISTER_FAIL_POINT=f"{slow},{point}:throw")
                self.assertIn("fail point train.step.begin", text)
                all_states = self.states_of_gpus if gpu else self.states
                self.assertEqual(self.states_now(), {name: digest for name, digest in all_states.items() if int(name[5:13]) in kept})
                self.assertEqual(self.events(), kept)
                if not gpu:
                    self.assertEqual("continues after step 2" in self.finish(1), bool(kept))

    def test_the_log_names_the_shape_that_ranks_train_in(self):
        """The first rank finds its GPU full at one reading of free memory: if that is the agreement's, what ranks exchange goes through the hosts, and no other reading is told."""
        ways = []
        for reading in range(20, 0, -1):
            self.world.forget("run")
            text = self.train(2, **ON_HOST, MAGISTER_FAIL_POINT=f"train.memory.short@{reading}/0:enospc")
            self.assertIn("optimizer: on the GPU", text, reading)
            ways.append("pass through the hosts" in text)
            if ways[-1]:
                break
        self.assertGreater(len(ways), 1)
        self.assertTrue(ways[-1], "no reading was that of the agreement")

    def test_ranks_train_in_the_shape_that_they_agreed_on(self):
        """At one reading of free memory, from the last to the first, a rank finds its GPU full: only where the ranks agree does it change the way, and then on both."""
        one, ways = self.content_of_gpus, []
        for reading in range(20, 0, -1):
            self.world.forget("run")
            text = self.train(2, "run.watchdog_seconds=10", **ON_HOST, MAGISTER_FAIL_POINT=f"train.memory.short@{reading}/1:enospc")
            ways.append("go from GPU to GPU" in text)
            self.assertEqual(self.content_now(), one, reading)
            if not ways[-1]:
                break
        self.assertGreater(len(ways), 1)
        self.assertFalse(ways[-1], "no reading was that of the agreement")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
