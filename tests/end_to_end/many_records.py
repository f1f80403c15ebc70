"""Runs over very many tiny records, and what they cost each rank: peak memory (VmHWM, from /proc, sampled) and seconds.
A module for the test of memory a record and for tests/bench/many_records.py.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import tiny_world


def write_records(path, count, kind):
    """kind "tokens": {"ids": [1, 2, 3]}; "text": {"text": "..."}; lengths 1 to 5, a function of the index."""
    with open(path, "w", encoding="ascii", buffering=1 << 22) as file:
        for begin in range(0, count, 10000):
            for index in range(begin, min(begin + 10000, count)):
                length = 1 + index * 7 % 5
                if kind == "tokens":
                    file.write('{"ids": [%s]}\n' % ", ".join(str(1 + (index + k) % 250) for k in range(length)))
                else:
                    file.write('{"text": "%s"}\n' % " ".join(("the", "of", "unit", "plan", "end")[(index + k) % 5] for k in range(length)))
    return path


def peaks_of(job):
    """Runs to the job's end or until it is stopped -> {process id: peak bytes}."""
    peaks = {}
    while True:
        for process in tiny_world.ranks_of(job):
            try:
                status = pathlib.Path(f"/proc/{process}/status").read_text()
                peaks[process] = 1024 * int(status.split("VmHWM:")[1].split()[0])
            except (OSError, IndexError):
                pass
        yield peaks
        if job.poll() is not None:
            return


class Runs:
    """The task generate with one short text a record: a unit a record, the most units that a data set can have."""

    def __init__(self, folder, model=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model = model or tiny_world.make_model(self.folder / "model")
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
                            "TMPDIR": str(self.folder)}

    def experiment(self, name, data, kind, task="generate", **more):
        field = {"tokens": "ids"} if kind == "tokens" else {"text": "text"}
        keys = {"max_new_tokens": 1, "max_prompt_length": 16, "temperature": 0} if task == "generate" else {"top_k": 1, "unit_tokens": 16, "max_length": 16}
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "output": {"directory": str(self.folder / "runs")}, "layout": {"devices": "cpu"},
                                    "model": {"path": str(self.model), "dtype": "f32"},
                                    "tasks": [{"task": task, "name": "results", "dataset": {"path": str(data), **field}, **keys, **more}]}))
        return path

    def start(self, command, experiment, ranks, *arguments, **environment):
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
        return subprocess.Popen([*launcher, tiny_world.PROGRAM, command, str(experiment), *arguments], env={**self.environment, **environment}, cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def plan(self, experiment, ranks):
        """-> seconds, [peak bytes of each rank]."""
        begin = time.monotonic()
        job = self.start("plan", experiment, ranks)
        for peaks in peaks_of(job):
            time.sleep(0.02)
        self.expect(job, 0)
        return time.monotonic() - begin, sorted(peaks.values())[-ranks:]  # not of a short-lived child

    def run_to_first_units(self, experiment, name, ranks, pause=0.3, **environment):
        """Stops `pause` seconds after the loop began -> seconds until the loop starts, [peak bytes of each rank]."""
        begin, started, log = time.monotonic(), None, self.folder / "runs" / name / "run.jsonl"
        before = log.read_text().count('"event":"start"') if log.exists() else 0
        job = self.start("run", experiment, ranks, **environment)
        for peaks in peaks_of(job):
            time.sleep(0.02)
            if started is None and log.exists() and log.read_text().count('"event":"start"') > before:
                started = time.monotonic() - begin
                deadline = time.monotonic() + pause
            if started is not None and time.monotonic() > deadline:
                for process in tiny_world.ranks_of(job):
                    with contextlib.suppress(ProcessLookupError):  # one told the others, and they have ended
                        os.kill(process, signal.SIGTERM)
                deadline = float("inf")
        self.expect(job, 75)
        return started, sorted(peaks.values())[-ranks:]

    def expect(self, job, code):
        said = job.communicate()[0]
        if job.returncode != code:
            raise RuntimeError(f"exit code {job.returncode}, not {code}:\n{said[-3000:]}")
