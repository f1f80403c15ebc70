"""Watches a whole run of magister: its events, the moment of its first unit, and the GPU's memory and load from
nvidia-smi. A run can be ended once it has logged enough, so that no state of gigabytes is written.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_clocks import Sampler


class Samples(Sampler):
    """with Samples() as samples: ...; ten times per second the memory in use and the load of the GPU."""

    def __init__(self):
        super().__init__(("memory.used", "utilization.gpu"), 100)

    def peak(self):
        """Bytes, or None."""
        return max((int(values["memory.used"]) << 20 for _, values in self.samples), default=None)

    def busy(self, begin, end):
        inside = [values["utilization.gpu"] for moment, values in self.samples if begin <= moment <= end]
        return sum(inside) / len(inside) / 100 if len(inside) >= 3 else None


def moment_of(event):
    return datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


class Run:
    """One `magister run`: began, seconds, code, events, said (its standard error), first_unit (seconds since the
    command's start, or None)."""

    def __init__(self, program, folder, experiment, environment=None):
        self.folder, self.first_unit, self.said = folder / "runs" / experiment["name"], None, []
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{experiment['name']}.yaml"
        path.write_text(json.dumps({**experiment, "output": {"directory": str(folder / "runs")}}), encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.command = [str(program), "run", str(path), "--fresh", "-v"]
        self.began = time.time()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                        env={**os.environ, **(environment or {})})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            if " committed: " in line:
                self.first_unit = self.first_unit or time.time() - self.began
            else:
                self.said.append(line.rstrip())

    def events(self, name=None):
        path = self.folder / "run.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # a line that is cut off
        return [event for event in found if name in (None, event["event"])]

    def wait(self, limit, enough=lambda run: False):
        """Waits until the run ends, has logged enough, or the limit is over; -> True for the first two. Afterwards
        no process of it runs."""
        end = self.began + limit
        while self.process.poll() is None and time.time() < end and not enough(self):
            time.sleep(0.02)
        in_time = time.time() < end
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.seconds = time.time() - self.began
        self.reader.join(5)
        return in_time

    def why(self):
        """The last lines of its output, for a report."""
        return f"`magister run` ended with {self.process.returncode}: {' / '.join(self.said[-3:])[-400:]}"

    def phases(self):
        """-> [{"part": phase, "seconds", "share" of the wall seconds}], the longest first; [] for a run that was
        ended."""
        events = self.events("phases")
        return [] if not events else sorted(({"part": phase["phase"], "seconds": phase["max"], "share": phase["max"] / events[-1]["wall_seconds"]}
                                             for phase in events[-1]["phases"]), key=lambda part: -part["seconds"])
