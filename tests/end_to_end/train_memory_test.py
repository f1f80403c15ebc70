"""Task train where memory ends: a micro-batch that does not fit is computed with less kept, and the result is the same, to the bit; where nothing is
left to be given up the message says so.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import unittest

import tiny_world
from train_test import EXPERIMENT

POINT = "train.pass.memory"


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        text = EXPERIMENT.replace("epochs: 2, global_batch: 4, max_length: 96", "steps: 2, global_batch: 8, micro_batch: 2, max_length: 256")
        cls.world = tiny_world.World(cls.folder, records=3, text=text, results=("student.h5",), model=tiny_world.make_model(cls.folder / "deep", num_hidden_layers=8, intermediate_size=3072))
        # What the machine has free changes with the tests beside this one, between a plan and its run: a limit below it stands for all.
        cls.world.environment["SLURM_MEM_PER_NODE"] = "3000"
        words = (tiny_world.WORDS * 40)[:900]
        cls.world.data.write_text("".join(json.dumps({"id": str(i), "text": " ".join(words[i:i + 400])}) + "\n" for i in range(8)))

    def content(self, name):
        return self.world.sha256(name), (self.world.results(name).with_suffix("") / "model.safetensors").read_bytes()

    def train(self, name, ranks, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        return done.returncode, done.stdout + done.stderr

    def plan(self, name, *arguments, ranks=1, code=0):
        """-> what `plan` prints, by the first words of its lines"""
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment(name)), "--ranks", str(ranks), *arguments], env=self.world.environment, cwd=self.folder,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return {line[2:20].strip(): line[20:].strip() for line in done.stdout.splitlines() if line.startswith("  ")} if code == 0 else done.stderr

    @staticmethod
    def bytes_of(text):
        number, unit = re.match(r"([0-9.]+) (\w+)", text).groups()
        return float(number) * {unit_name: 1024 ** power for power, unit_name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))}[unit]

    def parts(self, lines):
        return {name: self.bytes_of(size) for name, size in re.findall(r"([a-z][a-z ]*) ([0-9.]+ \w+)", lines["memory per device"].split("(", 1)[1])}

    def on_cores(self, count):
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, set(sorted(cores)[:count]))

    def test_what_memory_fraction_allows(self):
        """Checkpointing is chosen by it, then fewer micro-batches at once; the bits are the same, also when a run goes on with less memory."""
        self.on_cores(1)
        keys = ("tasks.0.train.micro_batch=4",)
        fraction, checkpointing = "tasks.0.train.memory_fraction=", "tasks.0.train.gradient_checkpointing="
        lines = self.plan("allowed", *keys)
        self.assertEqual((lines["checkpointing"], lines["memory allowed"].split(", ")[1]), ("off, chosen", "train.memory_fraction 0.9"))
        whole, least = (self.bytes_of(self.plan("allowed", *keys, checkpointing + value)["memory per device"]) for value in ("false", "true"))
        self.assertLess(least, 0.8 * whole)
        total = self.bytes_of(self.plan("allowed", *keys, fraction + "0.1", checkpointing + "true")["memory allowed"]) / 0.1
        between = fraction + str((whole + least) / 2 / total)
        lines = self.plan("allowed", *keys, between)
        self.assertEqual(lines["memory per device"], self.plan("allowed", *keys, checkpointing + "true")["memory per device"])
        self.assertIn("on, chosen (without it", lines["checkpointing"])
        code, text = self.train("allowed", 0, *keys)
        self.assertEqual((code, "checkpointing: off, chosen" in text), (0, True), text)
        one = self.content("allowed")
        self.world.forget("allowed")
        self.assertNotEqual(self.train("allowed", 0, *keys, MAGISTER_FAIL_POINT="train.step.begin@2:kill")[0], 0)
        code, text = self.train("allowed", 0, *keys, between, "tasks.0.train.zero=0")
        self.assertEqual((code, "checkpointing: on, chosen" in text), (0, True), text)
        self.assertEqual(self.content("allowed"), one)
        # What fits in no way makes no file.
        for words, arguments in (("lower train.micro_batch or train.max_length, use fewer", (fraction + str(least / 2 / total),)),
                                 ("set train.gradient_checkpointing: auto", (between, checkpointing + "false"))):
            self.assertIn(words, self.plan("too-much", *keys, *arguments, code=78))
            code, text = self.train("too-much", 0, *keys, *arguments)
            self.assertEqual((code, words in text), (78, True), text)
            self.assertEqual(list(self.world.results("too-much").parent.glob("*.h5*")), [])
        code, text = self.train("allowed", 0, *keys, fraction + "0")
        self.assertEqual((code, "0 (nothing could be computed)" in text), (78, True), text)

    def test_fewer_at_once(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core")
        self.on_cores(2)
        self.assertEqual(self.train("two", 0, "tasks.0.train.micro_batch=4")[0], 0)
        keys = ("tasks.0.train.micro_batch=4", "tasks.0.train.gradient_checkpointing=true")
        need = self.bytes_of(self.plan("at-once", *keys)["memory per device"])
        total = self.bytes_of(self.plan("at-once", *keys, "tasks.0.train.memory_fraction=0.1")["memory allowed"]) / 0.1
        less = f"tasks.0.train.memory_fraction={0.97 * need / total}"
        self.assertEqual(self.plan("at-once", *keys, less)["at once"], "1 micro-batches instead of 2")
        code, text = self.train("at-once", 0, *keys, less)
        self.assertEqual((code, "at once: 1 micro-batches instead of 2" in text), (0, True), text)
        self.assertEqual(self.content("at-once")[1], self.content("two")[1])

    def test_a_plan_for_ranks_that_are_not_there(self):
        one, four, whole = (self.plan("ranks", *arguments, ranks=ranks) for ranks, arguments in ((1, ()), (4, ()), (4, ("tasks.0.train.zero=0",))))
        self.assertEqual((one["groups"], four["groups"]), ("1, each of 1 device", "4, each of 1 device"))
        for name in ("optimizer", "weights"):
            self.assertAlmostEqual(self.parts(four)[name] / self.parts(one)[name], 0.25, delta=0.01, msg=name)
            self.assertEqual(self.parts(whole)[name], self.parts(one)[name], name)
        self.assertNotIn("gradients of other ranks", one["memory per device"])
        self.assertIn("gradients of other ranks", four["memory per device"])
        self.assertAlmostEqual(self.bytes_of(four["memory allowed"]) / self.bytes_of(one["memory allowed"]), 0.25, delta=0.01)

    def test_nothing_to_learn_makes_no_file(self):
        data, rest = self.folder / "empty.jsonl", (f"tasks.0.dataset.path={self.folder / 'empty.jsonl'}", "tasks.0.train.append_eos=false")
        data.write_text(json.dumps({"id": "a", "text": ""}) + "\n")
        words = "none of the 1 records has a token to learn from"
        self.assertIn(words, self.plan("empty", *rest, code=65))
        for ranks in (0, 2):
            code, text = self.train("empty", ranks, *rest)
            self.assertEqual((code, words in text), (65, True), text)
            self.assertEqual(list(self.world.results("empty").parent.glob("*.h5*")), [])
        data.write_text(json.dumps({"id": "a", "text": "plan unit"}) + "\n")
        self.assertEqual(self.train("empty", 0, *rest)[0], 0)

    def test_a_pass_without_memory_is_repeated(self):
        """In the middle of its backward pass, when parts of its gradient stand in what another micro-batch has left."""
        self.assertEqual(self.train("whole", 1)[0], 0)
        whole = self.content("whole")
        twice = f"{POINT}@10:enospc,{POINT}@45:enospc"
        for where, ranks, words in ((f"{POINT}@14:enospc", 0, "layers are computed again"), (f"{POINT}@12/0:enospc", 2, "layers are computed again"),
                                    (twice, 0, "one at a time from here on")):
            with self.subTest(where=where):
                if where == twice and len(os.sched_getaffinity(0)) < 2:
                    self.skipTest("one core")
                self.world.forget("whole")
                code, lines = self.train("whole", ranks, MAGISTER_FAIL_POINT=where)
                self.assertEqual(code, 0, lines[-3000:])
                self.assertIn(words, lines)
                self.assertEqual(self.content("whole"), whole)
        # Where some of its gradients are in the sum already, a pass is not repeated: they would count twice.
        self.world.forget("whole")
        code, lines = self.train("whole", 1, MAGISTER_FAIL_POINT="train.gradient.give@3:enospc")
        self.assertEqual(code, 78, lines[-3000:])
        self.assertIn("no memory to add a micro-batch's gradients", lines)
        self.assertEqual(self.train("whole", 1)[0], 0)
        self.assertEqual(self.content("whole"), whole)
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # one thread, which has no others beside it
        try:
            code, lines = self.train("none-left", 0, MAGISTER_FAIL_POINT=twice)
        finally:
            os.sched_setaffinity(0, cores)
        self.assertEqual(code, 78, lines[-2000:])
        self.assertIn("lower train.micro_batch or train.max_length", lines)
        self.assertFalse(self.world.results("none-left").exists())

    def test_a_real_limit(self):
        """Of the address space, where a run without checkpointing takes more, whatever its plan says."""
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})

        def run(name, limit, *arguments):
            """-> exit code, output, most bytes of address space"""
            before, peak = resource.getrlimit(resource.RLIMIT_AS), 0
            if limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
            try:
                process = self.world.start(name, 0, "tasks.0.train.micro_batch=4", *arguments)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
            while process.poll() is None:
                try:
                    peak = max([peak] + [int(line.split()[1]) * 1024 for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmPeak")])
                except OSError:
                    break
                time.sleep(0.01)
            out, errors = process.communicate()
            return process.returncode, out + errors, peak
        # How much the allocator reserves differs from run to run by tens of MB: what a run may take is the most, what it needs the least of several.
        plain, less = 0, 1 << 62
        for _ in range(5):
            for name in ("plain", "less"):
                self.world.forget(name)
            code, lines, peak = run("plain", 0)
            self.assertEqual(code, 0, lines)
            plain = max(plain, peak)
            code, lines, peak = run("less", 0, "tasks.0.train.gradient_checkpointing=true")
            self.assertEqual(code, 0, lines)
            less = min(less, peak)
            if plain - less > 80e6:
                break
        print(f"{plain / 1e6:.0f} MB, with checkpointing {less / 1e6:.0f} MB")
        self.assertGreater(plain - less, 80e6)  # the search below goes down by 40 MB; how much the allocator reserves is the machine's matter
        # The allocator reserves less where it gets less, so the limit that bites is found by trying.
        for limit in range(plain, less - 200_000_000, -40_000_000):
            self.world.forget("limited")
            code, lines, _ = run("limited", limit)
            if "layers are computed again in the backward pass from here on" in lines:
                break
        print(f"bites at {limit / 1e6:.0f} MB")
        self.assertIn("layers are computed again in the backward pass from here on", lines)
        self.assertIn("step 2/2", lines)
        if code != 0:  # all steps are done and saved; what malloc keeps is not there for the mapping of the state
            self.assertIn("cannot be mapped", lines)
            self.assertEqual(run("limited", 0)[0], 0)
        self.assertEqual(self.content("limited")[1], self.content("plain")[1])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
