"""A disk that is really full: a small file system of its own (a mount that only this test's processes see), filled to the last
byte at the moment that matters. Every command says so with exit code 74, leaves nothing half-written under a final name, and
the same command goes on when there is room. And links where files are to be written: nothing is written through one.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_world import CHAIN, PROGRAM, World, let_go, stopped_ranks, wait_until

CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x4000, 1 << 18


def mount_small_disk(folder, megabytes):
    """A tmpfs in a mount namespace of our own; as a user without rights, in a user namespace where that user is root."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS) != 0:
        if libc.unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "a mount namespace is refused (sysctl kernel.unprivileged_userns_clone, or run as root)")
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    for arguments in ((b"none", b"/", None, MS_REC | MS_PRIVATE, None),
                      (b"tmpfs", str(folder).encode(), b"tmpfs", 0, f"size={megabytes}m".encode())):
        if libc.mount(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "mount")


class FullDisk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        (folder / "runs").mkdir()
        mount_small_disk(folder / "runs", 24)
        cls.addClassCleanup(ctypes.CDLL(None).umount2, str(folder / "runs").encode(), 2)  # MNT_DETACH
        cls.teacher = World(folder, records=60)
        cls.chain = World(folder, records=60, model=cls.teacher.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        cls.filler = folder / "runs/filler"

    def tearDown(self):
        self.make_room()
        for world in (self.teacher, self.chain):
            world.forget("x")

    def fill(self):
        with open(self.filler, "ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        free = os.statvfs(self.filler)
        self.assertEqual(free.f_bavail, 0)

    def make_room(self):
        self.filler.unlink(missing_ok=True)

    def refused(self, result, *words):
        self.assertEqual(result.returncode, 74, result.stderr[-3000:])
        for word in words:
            self.assertIn(word, result.stderr)

    def fill_at(self, world, point, *arguments):
        """The run stops at the fail point, the disk is filled to the last byte, the run goes on. -> its CompletedProcess"""
        job = world.start("x", 1, *arguments, MAGISTER_FAIL_POINT=f"{point}:stop")

        def stopped():
            self.assertIsNone(job.poll(), f"{point} was not reached")
            return stopped_ranks(job)
        wait_until(stopped)
        self.fill()
        output, errors = let_go(job)
        return subprocess.CompletedProcess(job.args, job.returncode, output, errors)

    def test_rows(self):
        reference = self.teacher.complete("x", 2)
        for driver in ("pwrite", "mpio"):
            self.teacher.forget("x")
            result = self.fill_at(self.teacher, "results.commit.rows_written@2", f"output.driver={driver}")
            words = ["No space left on device"] if driver == "pwrite" else ["MPI-IO", "bytes are free"]
            self.refused(result, "teacher.h5.partial", *words)
            self.assertFalse(self.teacher.results("x").exists())
            self.refused(self.teacher.run("x", 2, f"output.driver={driver}"), "free")
            self.make_room()
            self.assertEqual(self.teacher.complete("x", 2), reference)

    def test_while_the_file_is_made(self):
        reference = self.teacher.complete("x", 2)
        for driver in ("pwrite", "mpio"):
            self.teacher.forget("x")
            self.refused(self.fill_at(self.teacher, "results.create.closed", f"output.driver={driver}"), "free")
            self.assertEqual(list(self.teacher.results("x").parent.glob("*.h5*")), [])
            self.make_room()
            self.assertEqual(self.teacher.complete("x", 1), reference)

    def test_the_judges_summary(self):
        """It is written when all is computed: before it was looked at, a full disk left an empty summary and exit code 0, for good."""
        reference = self.chain.complete("x", 1)
        summary = self.chain.results("x").with_name("verdicts.summary.json")
        expected = summary.read_bytes()
        self.assertIn("parse", json.loads(expected))
        self.chain.forget("x")
        self.refused(self.fill_at(self.chain, "whole_file.write"), "verdicts.summary.json", "No space left on device")
        self.assertFalse(summary.exists())
        self.assertFalse(self.chain.results("x").exists(), "verdicts without their summary are not complete")
        self.assertEqual(list(summary.parent.glob("*.creating")), [])
        self.make_room()
        self.assertEqual(self.chain.complete("x", 2), reference)
        self.assertEqual(summary.read_bytes(), expected)

    def test_a_new_run_and_an_export(self):
        self.teacher.complete("x", 1)
        results = self.teacher.results("x")
        self.fill()
        out = results.with_name("rows.jsonl")
        exported = subprocess.run([PROGRAM, "export", results, "--to", "jsonl", "--out", out], capture_output=True, text=True,
                                  env=self.teacher.environment, check=False)
        self.refused(exported, "rows.jsonl", "No space left on device")
        self.assertEqual(list(results.parent.glob("rows.jsonl*")), [])
        self.refused(self.teacher.run("y", 1), "free")
        self.assertEqual(list((results.parent.parent / "y").glob("*.h5*")), [])

    def test_each_kind_of_task_names_what_makes_it_smaller(self):
        self.refused(self.chain.run("x", 1, "tasks.0.max_new_tokens=3000", "tasks.0.n=1000"), "free space, lower max_new_tokens or n, or choose another")
        self.chain.forget("x")
        self.chain.complete("x", 1)
        self.chain.results("x").unlink()
        self.fill()
        os.truncate(self.filler, self.filler.stat().st_size - (1 << 19))  # for tokens that wait, and less than is kept free
        self.refused(self.chain.run("x", 1), "free space, or choose another")
        self.refused(self.teacher.run("z", 1), "free space, lower top_k, or choose another output.directory")
        self.teacher.forget("z")

    def test_links_where_files_are_written(self):
        victim = self.teacher.folder / "victim"
        for name in ("verdicts.summary.json.creating", "run.jsonl", "logs/rank-0000.log", "verdicts.h5.creating", "verdicts.h5.partial",
                     "verdicts.h5", "verdicts.h5.lock"):
            for target in (victim, pathlib.Path("/dev/full")):
                self.chain.forget("x")
                victim.write_text("untouched")
                link = self.chain.results("x").parent / name
                link.parent.mkdir(parents=True)
                link.symlink_to(target)
                self.refused(self.chain.run("x", 1), link.name)
                self.assertEqual(victim.read_text(), "untouched", name)
                self.assertTrue(link.is_symlink(), name)

    def test_the_log_of_the_run(self):
        """Results are worth more than their log: the run goes on, says it once, and its exit code tells."""
        result = self.teacher.run("x", 2, MAGISTER_FAIL_POINT="run_log.write@2:enospc,run_log.write@3:enospc")
        self.refused(result, "2 events could not be written")
        self.assertEqual(result.stderr.count("run.jsonl: cannot be written: No space left on device"), 1)
        self.assertTrue(self.teacher.results("x").exists())
        log = (self.teacher.results("x").parent / "run.jsonl").read_text()
        events = [json.loads(line)["event"] for line in log.splitlines()]
        self.assertEqual((events[0], events[-1]), ("run", "end"))
        self.assertEqual(self.teacher.run("x", 2).returncode, 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
