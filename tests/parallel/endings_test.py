"""Ways in which a job ends: exit codes, messages and times of jobs started for nothing else (endings.cpp)."""
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import beside  # noqa: E402

PROGRAM = sys.argv.pop(1)
LAUNCH = ["mpirun", "--oversubscribe", "--allow-run-as-root"]


def job(ending, ranks=2, mca=(), launcher=True, limit=1200):
    """Returns exit code, standard output, standard error and seconds."""
    command = [*LAUNCH, *mca, "-np", str(ranks), PROGRAM, ending] if launcher else [PROGRAM, ending]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_COMM_", "PMIX_", "SLURM_")) or k.startswith("PMIX_MCA_")}
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


class Endings(unittest.TestCase):
    def test_clean(self):
        code, out, err, _ = job("clean")
        self.assertEqual((code, sorted(out.splitlines())), (0, ["rank 0 of 2", "rank 1 of 2"]), err)

    def test_components_stay_after_the_end(self):
        code, out, err, _ = job("components", ranks=1)
        self.assertEqual((code, out), (0, "rank 0 of 1\n1\n"), err)

    def test_an_end_that_hangs_in_mpi_is_an_end(self):
        """A job whose work is done must not hold its nodes for ever: half a minute after all ranks have come it ends with its own exit code."""
        code, out, err, seconds = job("hang", launcher=False)
        self.assertEqual((code, out), (75, "rank 0 of 1\n"), err)
        self.assertGreater(seconds, 29)

    def test_an_end_of_two_ranks_that_hangs_in_mpi_is_an_end(self):
        code, out, err, _ = job("hang")
        self.assertEqual(sorted(out.splitlines())[-2:], ["rank 0 of 2", "rank 1 of 2"], err)
        self.assertNotEqual(code, 0, err)

    def test_without_a_launcher(self):
        code, out, err, _ = job("clean", launcher=False)
        self.assertEqual((code, out), (0, "rank 0 of 1\n"), err)

    def test_abort_gives_its_exit_code_and_ends_all(self):
        for ending, expected in [("abort", 74), ("abort-thread", 65), ("abort-twice", 78), ("abort-before", 78)]:
            for launcher in (True, False):
                with self.subTest(ending=ending, launcher=launcher):
                    code, out, err, seconds = job(ending, launcher=launcher)
                    self.assertEqual(code, expected, out + err)
                    self.assertLess(seconds, 100)

    def test_an_exception_past_the_session_does_not_wait_for_the_others(self):
        code, _, err, seconds = job("throw")
        self.assertEqual(code, 65, err)
        self.assertIn("this rank's own error", err)
        self.assertLess(seconds, 100)

    def test_a_killed_rank_ends_the_job(self):
        code, _, err, seconds = job("die")
        self.assertNotEqual(code, 0, err)
        self.assertLess(seconds, 100)

    def test_a_stalled_rank_is_named(self):
        code, _, err, seconds = job("stall")
        self.assertEqual(code, 70, err)
        self.assertRegex(err, r"rank 1 on \S+ has been in phase compute \(unit 5\) for \d+\.\d s, "
                              r"longer than its deadline of 0\.3 s")
        self.assertLess(seconds, 100)

    def test_a_stopped_peer_is_noticed(self):
        code, _, err, seconds = job("stop")
        self.assertEqual(code, 70, err)
        self.assertRegex(err, r"rank 0 on \S+ has been in phase waiting for the other ranks")
        self.assertLess(seconds, 150)

    def test_a_stopped_rank_that_answers_for_the_others_is_noticed(self):
        over_tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "osc", "pt2pt"]  # counters by messages
        for mca in ([], over_tcp):
            code, _, err, seconds = job("stop-asked", 2, mca)
            self.assertEqual(code, 70, err)
            self.assertRegex(err, r"rank 1 on \S+ has been in phase waiting for the other ranks for .* and no rank has reported progress in the last 0\.5 s")
            self.assertLess(seconds, 150)

    def test_a_suspended_job_goes_on(self):
        code, out, err, _ = job("suspend", launcher=False)
        self.assertEqual((code, out), (0, "awake\n"), err)

    def test_tickets_with_every_kind_of_counters(self):
        over_tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        for ranks, mca, kind in [(3, [], "window"), (1, [], "local"),
                                 (3, [*over_tcp, "--mca", "osc", "rdma"], "messages"),
                                 (3, [*over_tcp, "--mca", "osc", "pt2pt"], "messages")]:
            with self.subTest(ranks=ranks, mca=mca):
                code, out, err, seconds = job("tickets", ranks, mca)
                self.assertEqual((code, out), (0, f"counters: {kind}\ntickets: right\n"), err)


if __name__ == "__main__":
    beside.main(at_once=4)
