"""Runs jobs/*.sbatch on a Slurm of one node: accepted as they stand, signal and requeue, cancel, arrays with merge.

Scripts and their logic run against a stand-in program whose exit codes the test sets; the array also runs the real
program, whose merged file must hold what one run over everything holds.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

from one_node_slurm import OneNodeSlurm

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import beside  # noqa: E402

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PROGRAM = os.environ["MAGISTER"]
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

# Stands in for build/magister: the first start works until a signal and asks to be resumed, the next one finishes.
STAND_IN = """#!/bin/bash
trap 'echo signalled >> calls.txt; exit 75' USR1 USR2 TERM
echo "start $*" >> calls.txt
[ -f behaviour.sh ] && . ./behaviour.sh
exit 0
"""
ONE_RANK = ["--gres=none", "--ntasks-per-node=1", "--cpus-per-task=1"]


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="magister-jobs-")
        cls.slurm = OneNodeSlurm(pathlib.Path(cls.scratch.name) / "slurm")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.enterClassContext(cls.slurm)

    def workplace(self, program=None):
        """A folder as a user's checkout would be: jobs/, configs/, build/magister."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        shutil.copytree(ROOT / "jobs", folder / "jobs")
        (folder / "configs").symlink_to(ROOT / "configs")
        (folder / ".deps").symlink_to(ROOT / ".deps")
        (folder / "build").mkdir()
        if program:
            (folder / "build/magister").symlink_to(program)
        else:
            (folder / "build/magister").write_text(STAND_IN)
            (folder / "build/magister").chmod(0o755)
        return folder

    def calls(self, folder):
        path = folder / "calls.txt"
        return path.read_text() if path.exists() else ""

    def wait_for_call(self, folder, text, count=1):
        deadline = time.monotonic() + 300
        while self.calls(folder).count(text) < count:
            self.assertLess(time.monotonic(), deadline, self.calls(folder) + self.slurm.run(["squeue"]))
            time.sleep(0.1)

    def logs_of(self, folder):
        return "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))

    def test_scripts_are_accepted(self):
        folder = self.workplace()
        for script, options in {"one-node": [], "many-nodes": ["--nodes=1"], "array": ["--array=0-3"], "merge": []}.items():
            text = self.slurm.run(["sbatch", "--test-only", *options, f"jobs/{script}.sbatch", "x.yaml"], cwd=folder)
            self.assertIn("to start at", text, script)
        refused = self.slurm.run(["sbatch", "--test-only", "--gres=gpu:9", "jobs/one-node.sbatch"], cwd=folder, check=False)
        self.assertIn("not available", refused)

    def test_gpus_of_the_node_and_ranks(self):
        folder = self.workplace()
        (folder / "behaviour.sh").write_text('echo "gpus=$CUDA_VISIBLE_DEVICES size=$OMPI_COMM_WORLD_SIZE" >> calls.txt\n')
        job = self.slurm.submit("--cpus-per-task=1", "jobs/one-node.sbatch", "x.yaml", "seed=1", cwd=folder)
        self.assertEqual(self.slurm.wait(job, FINAL), "COMPLETED", self.logs_of(folder))
        self.assertEqual(self.calls(folder).count("start run x.yaml seed=1"), 4, self.logs_of(folder))
        self.assertEqual(self.calls(folder).count("gpus=0,1,2,3 size=4"), 4, self.calls(folder))
        many = self.workplace()
        job = self.slurm.submit("--nodes=1", "--cpus-per-task=1", "jobs/many-nodes.sbatch", "x.yaml", cwd=many)
        self.assertEqual(self.slurm.wait(job, FINAL), "COMPLETED", self.logs_of(many))
        self.assertEqual(self.calls(many).count("start run x.yaml"), 4, self.logs_of(many))

    def test_signal_before_the_limit_requeues_and_finishes(self):
        folder = self.workplace()
        (folder / "behaviour.sh").write_text("[ \"$(grep -c start calls.txt)\" -gt 1 ] || while true; do sleep 0.1; done\n")
        job = self.slurm.submit(*ONE_RANK, "jobs/one-node.sbatch", "x.yaml", cwd=folder)
        self.wait_for_call(folder, "start")
        self.slurm.run(["scancel", "--batch", "--signal=USR1", job])
        self.wait_for_call(folder, "start", 2)
        self.assertEqual(self.slurm.wait(job, FINAL), "COMPLETED", self.logs_of(folder))
        self.assertEqual(self.slurm.field(job, "Restarts"), "1")
        self.assertEqual(self.calls(folder).count("signalled"), 1)
        self.assertIn("ended with 75", self.logs_of(folder))  # both starts in one log

    def test_cancelled_job_stays_cancelled(self):
        folder = self.workplace()
        (folder / "behaviour.sh").write_text("while true; do sleep 0.1; done\n")
        job = self.slurm.submit(*ONE_RANK, "jobs/one-node.sbatch", "x.yaml", cwd=folder)
        self.wait_for_call(folder, "start")
        self.slurm.run(["scancel", job])
        self.assertEqual(self.slurm.wait(job, FINAL), "CANCELLED")
        self.wait_for_call(folder, "signalled")
        time.sleep(1)
        self.assertEqual(self.slurm.field(job, "JobState"), "CANCELLED")
        self.assertEqual(self.calls(folder).count("start"), 1)

    def test_a_signal_to_the_step_reaches_the_ranks_and_term_is_not_requeued(self):
        """scancel --signal does not go to the batch script: what stopped the ranks is told by the program, which ends with 75 for both."""
        if "pmix" not in self.slurm.run(["srun", "--mpi=list"]):
            self.skipTest("this srun knows no pmix")
        settings = "name=step tasks.0.dataset.limit=40 tasks.0.top_k=8 tasks.0.unit_tokens=64"
        for name, restarts in (("TERM", "0"), ("USR1", "1")):
            folder = self.workplace(PROGRAM)
            script = folder / "jobs/one-node.sbatch"
            script.write_text(script.read_text().replace("mpirun --bind-to none", "srun --mpi=pmix").replace('"$@"', f"configs/array.yaml {settings}"))
            job = self.slurm.submit(*ONE_RANK, "--export=ALL,MAGISTER_FAIL_POINT=teacher.unit.begin:slow", "jobs/one-node.sbatch", cwd=folder)
            log = folder / "runs/step/run.jsonl"
            deadline = time.monotonic() + 300
            while not (log.exists() and '"event":"start"' in log.read_text()):
                self.assertLess(time.monotonic(), deadline, self.logs_of(folder))
                time.sleep(0.05)
            self.slurm.run(["scancel", f"--signal={name}", job])
            state = self.slurm.wait(job, FINAL)
            self.assertEqual(self.slurm.field(job, "Restarts"), restarts, self.logs_of(folder))
            self.assertEqual(state, "FAILED" if name == "TERM" else "COMPLETED", self.logs_of(folder))
            if name == "TERM":
                self.assertEqual(self.slurm.field(job, "ExitCode"), "75:0")
                self.assertIn("not requeued after TERM", self.logs_of(folder))

    def test_other_exit_codes_are_final(self):
        for code in (65, 70, 78):
            folder = self.workplace()
            (folder / "behaviour.sh").write_text(f"exit {code}\n")
            job = self.slurm.submit(*ONE_RANK, "jobs/one-node.sbatch", "x.yaml", cwd=folder)
            self.assertEqual(self.slurm.wait(job, FINAL), "FAILED")
            self.assertEqual(self.slurm.field(job, "ExitCode"), f"{code}:0")
            self.assertEqual(self.calls(folder).count("start"), 1)

    def test_restarts_are_bounded(self):
        folder = self.workplace()
        (folder / "behaviour.sh").write_text("exit 75\n")
        job = self.slurm.submit(*ONE_RANK, "--export=ALL,MAGISTER_MAX_RESTARTS=1", "jobs/one-node.sbatch", "x.yaml", cwd=folder)
        self.wait_for_call(folder, "start", 2)
        self.assertEqual(self.slurm.wait(job, ("FAILED",)), "FAILED")
        self.assertEqual(self.slurm.field(job, "ExitCode"), "75:0")
        self.assertEqual(self.calls(folder).count("start"), 2)

    def submit_array(self, folder, experiment, slices, *options):
        text = self.slurm.run(["jobs/submit-array.sh", experiment, str(slices), *ONE_RANK, *options], cwd=folder)
        words = text.replace(",", " ").split()
        return words[words.index("array") + 1], words[words.index("merge") + 1]

    def test_failed_slice_cancels_the_merge(self):
        folder = self.workplace()
        (folder / "behaviour.sh").write_text('[ "${SLURM_ARRAY_TASK_ID:-}" != 1 ] || exit 65\n')
        array, merge = self.submit_array(folder, "configs/array.yaml", 2)
        self.assertEqual(self.slurm.wait(merge, FINAL), "CANCELLED")
        self.assertIn("name=array-0 tasks.0.slice=0/2", self.calls(folder))
        self.assertIn("name=array-1 tasks.0.slice=1/2", self.calls(folder))
        self.assertNotIn("start merge", self.calls(folder))
        # The slice runs again alone and keeps its place.
        (folder / "behaviour.sh").unlink()
        (folder / "calls.txt").unlink()
        self.slurm.submit(*ONE_RANK, "--array=1", "--export=ALL,SLICES=2", "jobs/array.sbatch", "configs/array.yaml", cwd=folder)
        self.wait_for_call(folder, "tasks.0.slice=1/2")

    def test_real_array_and_merge_hold_what_one_run_holds(self):
        folder = self.workplace(PROGRAM)
        settings = ["tasks.0.dataset.limit=9", "tasks.0.top_k=8", "tasks.0.unit_tokens=64"]
        script = folder / "jobs/array.sbatch"  # the experiment with smaller numbers, by the arguments that users have
        script.write_text(script.read_text().replace('"$@"', " ".join(settings)))
        array, merge = self.submit_array(folder, "configs/array.yaml", 3)
        self.assertEqual(self.slurm.wait(merge, FINAL), "COMPLETED", self.logs_of(folder))
        subprocess.run([PROGRAM, "run", "configs/array.yaml", "name=whole", *settings], cwd=folder, check=True)
        with h5py.File(folder / "runs/array.h5") as merged, h5py.File(folder / "runs/whole/teacher.h5") as whole:
            self.assertEqual(merged.attrs["complete"], 1)
            for name in ("samples/key", "samples/source_index", "samples/offset", "tokens/id", "teacher/top_id"):
                numpy.testing.assert_array_equal(merged[name][:], whole[name][:], name)
            numpy.testing.assert_allclose(merged["teacher/top_logprob"][:], whole["teacher/top_logprob"][:], atol=1e-4)


def cannot_run():
    """-> why there can be no Slurm here, or ""."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing:
        return f"{', '.join(missing)} not found (Debian packages slurmctld, slurmd, slurm-client)"
    if os.geteuid() != 0:
        return "not root (Slurm's daemons and the device files of the made-up GPUs need it)"
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(pathlib.Path(folder) / "null", 0o20666, os.makedev(1, 3))
        except PermissionError:
            return "root may not make device files here (a container without CAP_MKNOD?)"
    return ""


if __name__ == "__main__":
    if reason := cannot_run():
        print(f"skipped: {reason}")
        sys.exit(77)
    beside.main(at_once=4)
