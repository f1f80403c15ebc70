"""scripts/gpu_check.sh --dry-run: every command line of the check runs, with tiny shapes and the GPU's code on the host, so that no typing
error costs a GPU's time; and it fails where an option, a row or a step is wrong.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
BUILD = os.environ["MAGISTER_BUILD_DIR"]
sys.path.insert(0, str(ROOT / "tests/bench"))
import gpu_table


class DryRun(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def check(self, *options, root=ROOT):
        report = self.folder / "gpu_report.md"
        command = [root / "scripts/gpu_check.sh", "--dry-run", "--seconds", 1000, "--build", BUILD, "--report", report, *options]
        begin = time.time()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=1100,
                              env={**os.environ, "MAGISTER_PYTHON": sys.executable})
        print(f"   {' '.join(map(str, options)) or 'all'}: {time.time() - begin:.0f} s", flush=True)
        return done, json.loads(report.with_suffix(".json").read_text()), report.read_text()

    def test_everything_runs(self):
        done, data, text = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        steps = {step["name"]: step for step in data["steps"]}
        self.assertEqual([name for name, step in steps.items() if step["outcome"] != "passed"], [])
        for name in ("layer", "table", "nccl_one_rank", "nccl_two_ranks", "chain", "tasks", "memcheck_kernels", "synccheck_model", "racecheck_model",
                     "model_GpuGraphs", "kernels_Head", "kernels_All_Products"):
            self.assertIn(name, steps)
        self.assertLess(list(steps).index("table"), list(steps).index("chain"))
        names = {measurement.name for part in ("table", "layer") for measurement in gpu_table.measurements(part, gpu_table.TINY)}
        self.assertEqual({result["name"] for result in data["measurements"]}, names)
        self.assertEqual([row["what"] for row in data["rows"] if "value" not in row], [])
        self.assertIn("SM clock", text)
        self.assertIn("### layer_decode_many", text)
        below = [row for row in data["rows"] if row["verdict"].startswith("below the floor")]
        self.assertTrue(below)  # a CPU's figures
        self.assertTrue(all(row["explanation"] for row in below))
        self.assertIn("of the time lost here", text)

    def copy(self):
        """A tree of the check's own files, to break one of them."""
        root = self.folder / "tree"
        for part in ("scripts", "tests/bench", "tests/gpu", "tests/end_to_end", "tests/oracle", "configs/shapes"):
            shutil.copytree(ROOT / part, root / part)
        return root

    def broken(self, path, old, new, *options):
        root = self.copy()
        text = (root / path).read_text()
        self.assertEqual(text.count(old), 1, old)
        (root / path).write_text(text.replace(old, new))
        return self.check(*options, root=root)

    def test_a_broken_option_fails(self):
        done, data, _ = self.broken("tests/bench/gpu_table.py", '"--lengths", "uneven")\n    yield decode("decode_bf16"',
                                    '"--lenghts", "uneven")\n    yield decode("decode_bf16"', "--only", "table")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("prefill_uneven", done.stdout)

    def test_a_broken_step_fails(self):
        done, _, _ = self.broken("scripts/gpu_check.sh", "--kernel-name kernel_substring", "--kernel-names kernel_substring", "--only", "sanitizer")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("unrecognised option '--kernel-names'", done.stdout)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
