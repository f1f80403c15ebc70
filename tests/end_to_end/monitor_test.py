"""A run samples itself: the event "usage", the states of ranks that `top` shows, a file for node_exporter, and the same results."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tiny_world import EXPERIMENT, PROGRAM, World

PLAYED = {"MAGISTER_GPUS_ON_HOST": "4096,4096"}
FAKE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/monitor/fake_nvml"
HEALTHY = "utilization 93\nmemory_total 4294967296\nmemory_used 1073741824\ntemperature 61\npower 412500\nenergy 5000\nenergy_step 1000\n"


class Monitor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(pathlib.Path(cls.scratch.name), records=20, text=EXPERIMENT.replace("layout: {{devices: cpu}}\n", ""))
        cls.answers = pathlib.Path(cls.scratch.name) / "answers"

    def test_gpus(self):
        self.answers.write_text(HEALTHY)
        prom = pathlib.Path(self.scratch.name) / "run.prom"
        done = self.world.run("gpus", 2, "layout.gpus_per_group=1", "--metrics", str(prom), **PLAYED, MAGISTER_FAKE_NVML=str(self.answers),
                              LD_LIBRARY_PATH=f"{FAKE}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.world.folder / "runs/gpus"
        events = list(map(json.loads, (folder / "run.jsonl").read_text().splitlines()))
        of_task, usage = (event for event in events if event["event"] == "usage")
        self.assertEqual([rank["rank"] for rank in usage["ranks"]], [0, 1])
        self.assertEqual([[gpu["index"] for gpu in rank["gpus"]] for rank in usage["ranks"]], [[0], [1]])
        for rank in usage["ranks"]:
            self.assertEqual(rank["gpus"][0]["values"]["power_watts"]["p95"], 412.5)
            self.assertGreater(rank["values"]["resident_memory_bytes"]["mean"], 20e6)
        self.assertNotIn("task", usage)
        self.assertEqual(of_task["task"], "teacher")
        self.assertGreater(of_task["energy_joules"], 0)
        self.assertGreaterEqual(usage["energy_joules"], of_task["energy_joules"])
        (tokens,) = (event["tokens"] for event in events if event["event"] == "plan")
        self.assertAlmostEqual(of_task["joules_per_million_tokens"], 1e6 * of_task["energy_joules"] / tokens)
        self.assertRegex(done.stderr, r"teacher: cores a rank \S+ \(\S+ to \S+\), GPU use 93 % \(93 to 93\), 412 W a GPU \(412 to 412\), energy \S+ J, \S+ J per million tokens")
        self.assertRegex(prom.read_text(), r'magister_gpu_power_watts\{run="gpus",rank="[01]",.*\} 412.5\n')
        if shutil.which("promtool"):  # Debian: prometheus
            checked = subprocess.run(["promtool", "check", "metrics"], input=prom.read_text(), capture_output=True, text=True, check=False)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        top = subprocess.run([PROGRAM, "top", str(folder), "--once"], env=self.world.environment, capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in top.splitlines() if re.match(r"[01] ", line)]
        self.assertEqual([row[0] for row in rows], ["0", "1"], top)
        self.assertIn("412 W", top)
        self.assertIn("61 C", top)

    def test_without_the_library(self):
        """The same bytes as with it, and one sentence that says what is missing."""
        done = self.world.run("without", 1, "layout.gpus_per_group=1", **PLAYED, LD_LIBRARY_PATH="")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("GPUs are not watched: "), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
