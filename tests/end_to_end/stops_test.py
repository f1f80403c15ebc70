"""Clean stops, refusals and faults in the middle of a run: signals, wall time, a second run, a full disk, one rank's error,
a rank that stalls, another experiment on the same file. Each with its exit code, its message, and an intact file after.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py

from tiny_world import PROGRAM, World, left_of, let_go, ranks_of, stopped_ranks, wait_until

SLOW = "teacher.unit.begin:slow"  # 0.1 s a unit, of which there are more than a thousand: the run is met in the middle, whoever is late


class Stops(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name, records=1500)
        cls.reference = cls.world.complete("x", 2)
        cls.whole = pathlib.Path(cls.scratch.name) / "whole.h5"
        shutil.copy(cls.world.results("x"), cls.whole)

    def setUp(self):
        self.world.forget("x")

    def partial(self):
        return self.world.results("x").with_suffix(".h5.partial")

    def units_done(self):
        if not self.partial().exists():
            return 0
        with h5py.File(self.partial()) as file:
            return int(file["commit/done"][()].sum())

    def start_and_wait_for_units(self, ranks, *arguments, **environment):
        process = self.world.start("x", ranks, *arguments, **{"MAGISTER_FAIL_POINT": SLOW, **environment})
        wait_until(lambda: process.poll() is not None or self.units_done() > 0)
        self.assertIsNone(process.poll(), "the run ended before it could be stopped; make it slower")
        return process

    def test_signals_stop_cleanly_and_the_same_command_goes_on(self):
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            self.world.forget("x")
            process = self.start_and_wait_for_units(2)
            # mpirun passes USR1 and USR2 on; at TERM it would end its ranks by itself, so that goes to them.
            for pid in ranks_of(process) if number == signal.SIGTERM else [process.pid]:
                with contextlib.suppress(ProcessLookupError):  # one told the others, and they have ended
                    os.kill(pid, number)
            _, message = process.communicate(timeout=1200)
            self.assertEqual(process.returncode, 75, message)
            self.assertIn("run the same command again", message)
            self.assertTrue(self.partial().exists())
            self.assertFalse(self.world.results("x").exists())
            self.assertEqual(self.world.complete("x", 3), self.reference)

    def test_terminated_mpirun_loses_nothing(self):
        process = self.start_and_wait_for_units(2, OMPI_MCA_odls_base_sigkill_timeout="1")  # as users have it
        process.terminate()
        process.communicate(timeout=1200)
        self.assertNotEqual(process.returncode, 0)
        wait_until(lambda: not left_of(process))
        self.assertFalse(self.world.results("x").exists())
        self.assertEqual(self.world.complete("x", 2), self.reference)

    def test_signal_to_one_rank_stops_all(self):
        process = self.start_and_wait_for_units(3)
        os.kill(ranks_of(process)[-1], signal.SIGTERM)
        _, message = process.communicate(timeout=1200)
        self.assertEqual(process.returncode, 75, message)
        self.assertEqual(self.world.complete("x", 1), self.reference)

    def test_a_flagged_unit_is_whole(self):
        """Killed between a commit's steps: the rows and the checksum of every flagged unit are those of the uninterrupted run."""
        with h5py.File(self.whole) as whole:
            rows, checksums = whole["teacher/logsumexp"][()], whole["commit/crc32c"][()]
        for step in ("rows_written", "done_written"):
            self.world.forget("x")
            killed = self.world.run("x", 2, MAGISTER_FAIL_POINT=f"results.commit.{step}@1:kill")
            self.assertNotEqual(killed.returncode, 0)
            with h5py.File(self.partial()) as file:
                done, found = file["commit/done"][()], file["commit/crc32c"][()]
                self.assertGreaterEqual(int(done.sum()), step == "done_written")
                offset, begin = file["samples/offset"][()], file["commit/unit_begin"][()]
                for unit in done.nonzero()[0]:
                    first, last = offset[begin[unit]], offset[begin[unit + 1]]
                    self.assertEqual(file["teacher/logsumexp"][first:last].tobytes(), rows[first:last].tobytes(), f"{step}: unit {unit}")
                    self.assertEqual(found[unit], checksums[unit], f"{step}: unit {unit}")
        self.assertEqual(self.world.complete("x", 2), self.reference)

    def test_check_says_that_it_is_unfinished(self):
        killed = self.world.run("x", 2, MAGISTER_FAIL_POINT="results.commit.done_written@4:kill")
        self.assertNotEqual(killed.returncode, 0)
        with h5py.File(self.partial()) as file:
            done, first = file["commit/done"][()], int(file["commit/done"][()].nonzero()[0][0])
            place = file["teacher/logsumexp"].id.get_offset() + 4 * int(file["samples/offset"][file["commit/unit_begin"][first]])
        how_far = f"is not finished, {int(done.sum())} of {len(done)} units are committed, and "
        check = lambda: subprocess.run([PROGRAM, "check", self.world.results("x")], check=False, capture_output=True, text=True)
        sound = check()
        self.assertEqual((sound.returncode, sound.stdout), (65, ""), sound.stderr)
        self.assertIn(how_far + "what is there is sound", sound.stderr)
        with open(self.partial(), "r+b") as file:
            file.seek(place)
            byte = file.read(1)
            file.seek(place)
            file.write(bytes([byte[0] ^ 1]))
        damaged = check()
        self.assertEqual(damaged.returncode, 65)
        self.assertIn(f"unit {first} (", damaged.stdout)
        self.assertIn(how_far + "the check found faults", damaged.stderr)
        for said in (sound.stderr, damaged.stderr):
            self.assertIn("run the command that made it again", said)
            self.assertNotIn("--fresh", said)

    def test_wall_time(self):
        result = self.world.run("x", 2, "--max-wall", "00:00:01", MAGISTER_FAIL_POINT=SLOW)
        self.assertEqual(result.returncode, 75, result.stderr)
        self.assertEqual(self.world.complete("x", 2), self.reference)

    def test_complete_run_has_nothing_to_do(self):
        self.world.complete("x", 2)
        before = self.world.results("x").stat()
        self.assertEqual(self.world.complete("x", 1), self.reference)
        self.assertEqual(self.world.results("x").stat().st_mtime_ns, before.st_mtime_ns)

    def test_second_run_is_refused_while_the_first_works(self):
        process = self.start_and_wait_for_units(2, MAGISTER_FAIL_POINT="teacher.unit.begin@3/0:hang,teacher.unit.begin/1:slow")
        second = self.world.run("x", 0)
        self.assertEqual(second.returncode, 74, second.stderr)
        self.assertIsNone(process.poll(), "refused, not let in after the first")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        wait_until(lambda: not left_of(process))
        self.assertEqual(self.world.complete("x", 2), self.reference)

    def test_second_run_does_not_disturb_the_first(self):
        process = self.world.start("x", 2, MAGISTER_FAIL_POINT="teacher.unit.begin@3:stop")
        wait_until(lambda: stopped_ranks(process) or process.poll() is not None)
        self.assertEqual(self.world.run("x", 0).returncode, 74)
        _, message = let_go(process)
        self.assertEqual(process.returncode, 0, message)
        self.assertEqual(self.world.sha256("x"), self.reference)

    def test_another_experiment_does_not_touch_the_partial_file(self):
        self.assertNotEqual(self.world.run("x", 2, MAGISTER_FAIL_POINT="results.commit.done_written@4:kill").returncode, 0)
        before = self.partial().read_bytes()
        for change in ("tasks.0.top_k=7", "tasks.0.unit_tokens=65", "tasks.0.max_length=100", "tasks.0.dataset.limit=1400"):
            result = self.world.run("x", 1, change)
            self.assertEqual(result.returncode, 78, f"{change}: {result.stderr}")
            self.assertEqual(self.partial().read_bytes(), before)
        self.assertEqual(self.world.complete("x", 2), self.reference)

    def test_fresh_puts_the_old_result_aside(self):
        self.world.complete("x", 2)
        self.assertEqual(self.world.complete("x", 2, "--fresh"), self.reference)
        kept = [path for path in self.world.results("x").parent.iterdir() if "previous" in path.name]
        self.assertEqual(len(kept), 1)

    def test_error_of_one_rank_ends_the_job(self):
        process = self.world.start("x", 3, MAGISTER_FAIL_POINT="teacher.unit.begin@2/1:throw,teacher.unit.begin@4/0:hang,teacher.unit.begin/2:slow")
        _, message = process.communicate(timeout=1200)  # the watchdog would end it after half an hour, not the error
        self.assertEqual(process.returncode, 70, message)
        ours, mpi = message.find("teacher.unit.begin"), message.find("MPI_ABORT")
        self.assertGreaterEqual(ours, 0, message)
        self.assertTrue(mpi < 0 or ours < mpi, message)  # the reason comes before mpirun's own words
        self.assertEqual(self.world.complete("x", 2), self.reference)

    def test_stalled_rank_is_ended_by_the_watchdog(self):
        for where in ("teacher.unit.begin@2/1:hang,teacher.unit.begin/0:slow", "teacher.unit.computed@1/0:hang,teacher.unit.begin/1:slow"):
            result = self.world.run("x", 2, "run.watchdog_seconds=2", MAGISTER_FAIL_POINT=where)
            self.assertEqual(result.returncode, 70, result.stderr)
            self.assertIn("watchdog", result.stderr)
        self.assertEqual(self.world.complete("x", 2), self.reference)


@unittest.skipIf(os.geteuid() != 0, "a small file system can be mounted by root only")
class FullDisk(unittest.TestCase):
    def test_full_disk_in_the_middle(self):
        with tempfile.TemporaryDirectory() as folder:
            disk = os.path.join(folder, "disk")
            os.mkdir(disk)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", disk], check=True)
            try:
                world = World(disk, records=600)
                reference = world.complete("x", 2)
                world.forget("x")
                # The check of free space passes (the file is sparse), then something else takes the space.
                process = world.start("x", 2, MAGISTER_FAIL_POINT="teacher.unit.begin:slow")  # 0.1 s a unit: it is not done before that
                wait_until(lambda: world.results("x").with_suffix(".h5.partial").exists() or process.poll() is not None)
                with open(os.path.join(disk, "filler"), "wb", buffering=0) as filler:
                    try:
                        while True:
                            filler.write(b"x" * 4096)
                    except OSError:
                        pass
                _, message = process.communicate(timeout=1200)
                self.assertEqual(process.returncode, 74, message)
                self.assertFalse(world.results("x").exists())
                os.remove(os.path.join(disk, "filler"))
                self.assertEqual(world.complete("x", 3), reference)
            finally:
                subprocess.run(["umount", "-l", disk], check=False)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
