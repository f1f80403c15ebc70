"""jobs/run-and-requeue.sh beside a scontrol that only takes notes: what requeues a job and what does not, by the real program."""
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "end_to_end"))
import tiny_world  # noqa: E402

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
# As Slurm does: the script is ended once its job is requeued.
SCONTROL = """#!/bin/bash
echo "$@" >> "$CALLS"
kill -TERM $PPID
"""


class Requeue(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=800)
        (cls.folder / "bin").mkdir()
        scontrol = cls.folder / "bin/scontrol"
        scontrol.write_text(SCONTROL)
        scontrol.chmod(scontrol.stat().st_mode | stat.S_IXUSR)

    def ended(self, name, ranks, tell, *arguments, **more):
        """A job whose program has begun to compute when tell(script, ids of its ranks) is called -> (exit code, its log, calls of scontrol)."""
        calls = self.folder / f"{name}.calls"
        environment = {**self.world.environment, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CALLS": str(calls), "SLURM_JOB_ID": "17",
                       "MAGISTER_FAIL_POINT": "teacher.unit.begin:slow", "MAGISTER_ALLOW_SINGLETON": "1", **more}
        command = ["bash", str(ROOT / "jobs/run-and-requeue.sh"), *self.world.command(name, ranks, *arguments)]
        log = self.folder / "runs" / name / "run.jsonl"
        with subprocess.Popen(command, env=environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
            if tell:
                tiny_world.wait_until(lambda: job.poll() is not None or (log.exists() and '"event":"start"' in log.read_text()))
                tell(job, tiny_world.ranks_of(job))
            _, said = job.communicate(timeout=600)
        return job.returncode, said, calls.read_text() if calls.exists() else ""

    def test_term_to_the_ranks_alone_is_not_requeued(self):
        """As `scancel --signal=TERM` under srun: the script sees no signal, and 75."""
        for ranks in (0, 2):
            code, said, calls = self.ended(f"ranks{ranks}", ranks, lambda job, ids: os.kill(ids[-1], signal.SIGTERM))
            self.assertEqual((code, calls), (75, ""), said)
            self.assertIn("not requeued after TERM", said)
            self.assertIn('"stopped_by":"signal 15 (Terminated)"', (self.folder / f"runs/ranks{ranks}/run.jsonl").read_text(), "whichever rank was told")

    def test_usr1_and_the_wall_time_are_requeued(self):
        code, said, calls = self.ended("usr1", 2, lambda job, ids: job.send_signal(signal.SIGUSR1))
        self.assertEqual((code, calls), (75, "requeue 17\n"), said)
        code, said, calls = self.ended("rank-usr1", 0, lambda job, ids: os.kill(ids[0], signal.SIGUSR1))
        self.assertEqual((code, calls), (75, "requeue 17\n"), said)
        code, said, calls = self.ended("wall", 0, None, "--max-wall", "00:00:03")
        self.assertEqual((code, calls), (75, "requeue 17\n"), said)

    def test_term_to_the_script_stops_cleanly_and_is_not_requeued(self):
        code, said, calls = self.ended("script", 2, lambda job, ids: job.send_signal(signal.SIGTERM))
        self.assertEqual((code, calls), (75, ""), said)
        self.assertIn("signal TERM: asking magister to stop", said)

    def test_term_to_mpirun_too_is_told_as_it_is(self):
        """As plain `scancel`: mpirun kills its ranks two seconds later, whatever a unit takes."""
        def all_of_them(job, ids):
            children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True).stdout.split()
            for pid in (job.pid, *map(int, children)):
                os.kill(pid, signal.SIGTERM)
        code, said, calls = self.ended("cancel", 2, all_of_them, OMPI_MCA_odls_base_sigkill_timeout="1")
        self.assertEqual(calls, "", said)
        self.assertNotEqual(code, 0)
        self.assertIn("not requeued after TERM", said)
        if code != 75:
            self.assertIn("it ended its ranks before they had stopped", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
