"""A run's log tells which rank had which device and how much memory it took at most, its results do not; history adds up GPU hours."""
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

from tiny_world import EXPERIMENT, PROGRAM, World

PLAYED = {"MAGISTER_GPUS_ON_HOST": "4096,4096,4096,4096"}
TWO = EXPERIMENT.replace("layout: {{devices: cpu}}\n", "") + """  - task: teacher_logits
    name: other
    dataset: {{path: {data}, key: id}}
    max_length: 512
    unit_tokens: 64
"""


class DeviceRecord(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(pathlib.Path(cls.scratch.name), records=20, text=TWO, results=("teacher.h5", "other.h5"))

    def done(self, name, ranks, *arguments, **environment):
        """-> [events]"""
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return [json.loads(line) for line in (self.world.folder / "runs" / name / "run.jsonl").read_text().splitlines()]

    def history(self, name, *arguments):
        return subprocess.run([PROGRAM, "history", str(self.world.folder / "runs" / name), *arguments], env=self.world.environment, capture_output=True, text=True, check=True).stdout

    def test_gpus(self):
        """Played by the host: two ranks drive two each, in groups of one; with tasks in turn, and at once, where a rank is another one in its part of the job."""
        for name, arguments in (("turn", ("run.at_once=1",)), ("once", ("run.at_once=2",))):
            events = self.done(name, 2, "layout.gpus_per_group=1", *arguments, **PLAYED)
            starts = {event["task"]: event for event in events if event["event"] == "start"}
            rows = [(row["rank"], row["index"]) for event in starts.values() for row in event["devices"]]
            self.assertEqual(set(rows), {(0, 0), (0, 1), (1, 2), (1, 3)}, (name, rows))
            self.assertEqual(len(rows), 8 if name == "turn" else 4, self.said)
            for event in starts.values():
                for row in event["devices"]:
                    self.assertEqual(list(row), ["rank", "host", "group", "shard", "device", "index", "uuid", "pci"])
                    self.assertEqual((row["uuid"][-2:], row["pci"], row["device"]), (f"-{row['index']}", f"0000:0{row['index']}:00.0", "emulated on the host"))
            for rank in (0, 1):
                log = (self.world.folder / f"runs/{name}/logs/rank-{rank:04d}.log").read_text()
                self.assertIn(f"shard 0 of 1: cuda:{2 * rank} emulated on the host", log)
                self.assertIn(f", PCI 0000:0{2 * rank}:00.0", log)
                self.assertIn("here at most ", log)
            (start,) = json.loads(self.history(name, "--json"))["starts"]
            self.assertEqual(start["gpus"], 4)
            self.assertAlmostEqual(start["gpu_hours"], 4 * start["seconds"] / 3600)
            header, row = (line.split() for line in self.history(name).splitlines())
            self.assertEqual(header[-2:], ["GPU-HOURS", "PEAK"])
            self.assertEqual((row[-3], row[-1]), (f"{start['gpu_hours']:.2f}", "MiB"))

    def test_memory(self):
        """Of the host, as the kernel counts it: of each task, and of the run at least that; not more than the system saw of the children."""
        events = self.done("memory", 2, "layout.devices=cpu", "run.at_once=1")
        of_tasks = [event for event in events if event["event"] == "memory"]
        (end,) = (event for event in events if event["event"] == "end")
        self.assertEqual([event["task"] for event in of_tasks], ["teacher", "other"])
        most = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        for event in (*of_tasks, end):
            self.assertEqual([row["rank"] for row in event["peak_memory"]], [0, 1])
            for row in event["peak_memory"]:
                self.assertEqual((list(row), row["gpus"]), (["rank", "host", "host_bytes", "gpus"], []))
                self.assertGreater(row["host_bytes"], 20e6)
                self.assertLessEqual(row["host_bytes"], most)
        for rank in (0, 1):
            self.assertGreaterEqual(end["peak_memory"][rank]["host_bytes"], max(event["peak_memory"][rank]["host_bytes"] for event in of_tasks))
        start = next(event for event in events if event["event"] == "start")
        self.assertEqual([(row["rank"], row["device"].split(" (")[0], "uuid" in row) for row in start["devices"]], [(0, "cpu shard 0", False), (1, "cpu shard 0", False)])
        self.assertRegex(self.said, r"teacher: at most [\d.]+ [MG]iB of host memory on rank [01]")
        (past,) = json.loads(self.history("memory", "--json"))["starts"]
        self.assertEqual((past["gpus"], past["gpu_hours"]), (0, 0))
        self.assertEqual(past["peak_host_bytes"], max(row["host_bytes"] for row in end["peak_memory"]))
        self.assertNotIn("peak_gpu_bytes", past)

    def test_results_do_not_tell(self):
        """Other ranks, devices and memory: the same bytes."""
        names = ("teacher.h5", "other.h5")
        folder = self.world.folder / "runs/same"
        self.done("same", 1, "layout.gpus_per_group=1", **PLAYED)
        one = [(folder / name).read_bytes() for name in names]
        self.world.forget("same")
        self.done("same", 2, "layout.gpus_per_group=1", **PLAYED)
        self.assertEqual([(folder / name).read_bytes() for name in names], one)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
