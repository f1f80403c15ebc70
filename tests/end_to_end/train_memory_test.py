"""Task train where memory ends: a micro-batch that does not fit is computed with less kept, and the result is the same, to the bit; where nothing is
left to be given up the message says so.
"""
import json
import os
import pathlib
import resource
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
        words = (tiny_world.WORDS * 40)[:900]
        cls.world.data.write_text("".join(json.dumps({"id": str(i), "text": " ".join(words[i:i + 400])}) + "\n" for i in range(8)))

    def content(self, name):
        return self.world.sha256(name), (self.world.results(name).with_suffix("") / "model.safetensors").read_bytes()

    def train(self, name, ranks, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        return done.returncode, done.stdout + done.stderr

    def test_a_pass_without_memory_is_repeated(self):
        """In the middle of its backward pass, when parts of its gradient stand in what another micro-batch has left."""
        self.assertEqual(self.train("whole", 1)[0], 0)
        whole = self.content("whole")
        twice = f"{POINT}@10:enospc,{POINT}@45:enospc"
        for where, ranks, words in ((f"{POINT}@14:enospc", 0, "layers are computed again"), (f"{POINT}@12/0:enospc", 2, "layers are computed again"),
                                    (twice, 0, "one at a time from here on")):
            with self.subTest(where=where):
                self.world.forget("whole")
                code, lines = self.train("whole", ranks, MAGISTER_FAIL_POINT=where)
                self.assertEqual(code, 0, lines[-3000:])
                self.assertIn(words, lines)
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
        """Of the address space, where a run without checkpointing takes more."""
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
        code, lines, plain = run("plain", 0)
        self.assertEqual(code, 0, lines)
        code, lines, less = run("less", 0, "tasks.0.train.gradient_checkpointing=true")
        self.assertEqual(code, 0, lines)
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
