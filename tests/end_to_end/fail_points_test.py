"""A kill at every named fail point of the sources, and a disk that is full at a write of rows or flags, on either of two ranks,
early and late; then the same command on another number of ranks gives the uninterrupted run's bytes. The names are read from the
sources, so a new fail point is tested from its first commit.
"""
import re
import subprocess
import sys
import tempfile
import time
import unittest

from tiny_world import CHAIN, ROOT, World


def names():
    found = set()
    for path in (ROOT / "src").rglob("*.cpp"):
        found |= set(re.findall(r'\bfail_point\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    return sorted(found)


class FailPoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        teacher = World(cls.scratch.name, records=60)
        chain = World(cls.scratch.name + "/chain", records=60, model=teacher.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        cls.worlds = {world: world.complete("x", 2) for world in (teacher, chain)}
        cls.teacher, cls.chain = teacher, chain

    def choose(self, name):
        """The experiment that comes by the fail point."""
        self.world = self.chain if name.startswith(("generate.", "judge.", "task.pack.")) else self.teacher
        self.reference = self.worlds[self.world]

    def finish(self, what, ranks):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74."""
        deadline = time.monotonic() + 20
        while (result := self.world.run("x", ranks)).returncode == 74 and time.monotonic() < deadline:
            time.sleep(0.3)
        self.assertEqual(result.returncode, 0, f"after {what}: {result.stderr[-2000:]}")
        self.assertEqual(self.world.sha256("x"), self.reference, f"after {what}")

    def interrupt(self, what):
        """-> whether the point was reached (the run then did not end with 0)."""
        self.world.forget("x")
        try:
            result = self.world.run("x", 2, seconds=60, MAGISTER_FAIL_POINT=what)
        except subprocess.TimeoutExpired:
            self.fail(f"{what}: the job hangs")
        if result.returncode == 0:
            self.assertEqual(self.world.sha256("x"), self.reference, what)
            return False
        self.assertFalse(self.world.results("x").exists() and "complete" not in what and "rename" not in what, what)
        return True

    def test_kill_at_every_point(self):
        self.assertGreater(len(names()), 5)
        kills, reached = 0, set()
        for index, name in enumerate(names()):
            self.choose(name)
            # Ranks draw their units: on a busy machine one may draw all of a small task, each time the other one than was named. Then
            # whichever comes by first.
            for where in ("@1/0", "@1/1", "@3", "@1"):
                if where == "@1" and name in reached:
                    continue
                if self.interrupt(f"{name}{where}:kill"):
                    kills += 1
                    reached.add(name)
                    self.finish(f"{name}{where}", 1 + (index + kills) % 3)
        print(f"{kills} kills at {len(reached)} of {len(names())} fail points")
        self.assertEqual(reached, set(names()), "a fail point that no run reaches tests nothing")

    def test_full_disk_at_a_write(self):
        """The write fails with ENOSPC: exit 74 with the reason, nothing complete; with room again the run goes on."""
        for world in (self.teacher, self.chain):
            self.world, self.reference, reached = world, self.worlds[world], 0
            for where in ("@1/0", "@1/1", "@2", "@9", "@23"):
                world.forget("x")
                result = world.run("x", 2, seconds=60, MAGISTER_FAIL_POINT=f"results.write.data{where}:enospc")
                if result.returncode == 0:
                    continue
                reached += 1
                self.assertEqual(result.returncode, 74, result.stderr)
                self.assertIn("No space left on device", result.stderr)
                self.assertFalse(world.results("x").exists(), where)
                self.finish(f"a full disk, write {where}", 1 + reached % 3)
            self.assertGreater(reached, 2)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
