"""kill -9 of one rank, of all ranks or of mpirun at random moments, then the same command on another number of ranks until
the run is complete: the file is the uninterrupted run's, byte for byte. Between kills the .partial file opens, what its
flags call done is what the reference holds, and nothing that was done is lost.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

from tiny_world import World, ranks_of

KILLS = int(os.environ.get("MAGISTER_TEST_KILLS", "34"))  # together with the fail points' file: more than 60 in the suite
SEED = int(os.environ.get("MAGISTER_TEST_SEED", "20240229"))


class Kills(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name, records=500)
        begin = time.monotonic()
        cls.reference = cls.world.complete("x", 2)
        cls.duration = time.monotonic() - begin
        cls.expected = cls.world.results("x").rename(cls.world.folder / "reference.h5")
        cls.world.forget("x")

    def kill_once(self, source, ranks):
        """-> (exit code, whether the kill came before the end)."""
        process = self.world.start("x", ranks)
        time.sleep(source.uniform(0.0, self.duration * 1.1))
        if process.poll() is not None:
            process.communicate()
            return process.returncode, False
        victims = ranks_of(process)
        kind = source.choice(["one", "all", "mpirun"])
        targets = [process.pid] if kind == "mpirun" or not victims else victims if kind == "all" else [source.choice(victims)]
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            process.communicate(timeout=1200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.fail(f"{kind} of {ranks} ranks was killed and the job hangs")
        return process.returncode, True

    def done_units(self):
        """Units that a .partial calls done, each compared with the reference; None where there is no .partial (any more)."""
        try:
            partial = h5py.File(self.world.results("x").with_suffix(".h5.partial"), "r")
        except FileNotFoundError:
            return None
        with partial as file, h5py.File(self.expected, "r") as reference:
            done = set(numpy.flatnonzero(file["commit/done"][:] == 1).tolist())
            begin, offset = reference["commit/unit_begin"][:], reference["samples/offset"][:]
            for unit in done:
                rows = slice(offset[begin[unit]], offset[begin[unit + 1]])
                for name in ("tokens/id", "teacher/top_id", "teacher/top_logprob", "teacher/target_logprob", "teacher/entropy"):
                    numpy.testing.assert_array_equal(file[name][rows], reference[name][rows], f"unit {unit} {name}")
                self.assertEqual(file["commit/crc32c"][unit], reference["commit/crc32c"][unit])
        return done

    def test_random_kills(self):
        source = random.Random(SEED)
        kills = rounds = 0
        while kills < KILLS:
            self.world.forget("x")
            done = set()
            for _ in range(12):
                ranks = source.choice([1, 2, 3, 4])
                code, killed = self.kill_once(source, ranks)
                if not killed:
                    self.assertEqual(code, 0)
                    break
                kills += 1
                # In this order: the orphans of a killed mpirun may complete the file meanwhile.
                now = self.done_units()
                if now is None:
                    now = done if self.world.results("x").exists() else set()
                self.assertLessEqual(done, now, "a committed unit was lost")
                done = now
            # Orphans of a killed mpirun live on for some seconds: the lock waits for them or says who holds it.
            for _ in range(20):
                result = self.world.run("x", source.choice([1, 2, 4]))
                if result.returncode != 74:
                    break
                time.sleep(0.5)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(self.world.sha256("x"), self.reference, f"seed {SEED}, round {rounds}")
            rounds += 1
        print(f"{kills} kills in {rounds} rounds, seed {SEED}")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
