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


class Check(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def check(self, *options, root=ROOT):
        report = self.folder / "gpu_report.md"
        command = [root / "scripts/gpu_check.sh", "--dry-run", "--seconds", 3000, "--build", BUILD, "--report", report, *options]
        begin = time.time()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=3500,
                              env={**os.environ, "MAGISTER_PYTHON": sys.executable})
        print(f"   {' '.join(map(str, options)) or 'all'}: {time.time() - begin:.0f} s", flush=True)
        return done, json.loads(report.with_suffix(".json").read_text()), report.read_text()


class DryRun(Check):
    def passes(self, part):
        """-> report of a whole part, every step of which has passed."""
        done, data, text = self.check("--only", part)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([step["name"] for step in data["steps"] if step["outcome"] != "passed"], [])
        return [step["name"] for step in data["steps"]], data, text

    def measured(self, part, data):
        names = [measurement.name for measurement in gpu_table.measurements(part, gpu_table.TINY)]
        self.assertEqual([result["name"] for result in data["measurements"]], names)

    def test_layer(self):
        _, data, text = self.passes("layer")
        self.measured("layer", data)
        self.assertIn("SM clock", text)
        self.assertIn("### layer_decode_many", text)

    def test_table(self):
        _, data, _ = self.passes("table")
        self.measured("table", data)
        self.assertEqual([row["what"] for row in data["rows"] if "value" not in row], [])

    def test_train(self):
        _, data, _ = self.passes("train")
        self.measured("train", data)
        self.assertEqual([row["what"] for row in data["rows"] if "value" not in row], [])
        apart = next(row["value"] for row in data["rows"] if ": loss of the first step" in row["what"])
        self.assertLess(apart, 1e-3, "both sides read the same weights and texts")

    def test_jobs(self):
        _, data, text = self.passes("jobs")
        self.measured("jobs", data)
        self.assertEqual([row["what"] for row in data["rows"] if "value" not in row], [])
        self.assertIn("| make rows |", text)

    def test_parts_of_decoding(self):
        for part, rows in (("decoding", 9), ("kv_cache", 2), ("judge", 1), ("judge_int8", 1)):
            with self.subTest(part):
                _, data, _ = self.passes(part)
                self.measured(part, data)
                self.assertEqual([row["what"] for row in data["rows"] if "value" not in row], [])
                self.assertEqual(len(data["rows"]), rows)

    def test_quick(self):
        self.assertEqual(self.passes("quick")[0], ["quick_kernels", "quick_tasks"])

    def test_tests(self):
        steps, _, _ = self.passes("tests")
        for name in ("nccl_one_rank", "nccl_two_ranks", "chain", "tasks", "model_GpuGraphs", "kernels_Head", "kernels_All_Products"):
            self.assertIn(name, steps)

    def test_sanitizer(self):
        steps, _, _ = self.passes("sanitizer")
        self.assertEqual(steps, [f"{tool}_{part}" for tool in ("memcheck", "racecheck", "synccheck") for part in ("kernels", "model")])


class Order(Check):
    def test_the_table_comes_first(self):
        """A whole check without time for any step: what is listed first is what would have run first."""
        _, data, text = self.check("--seconds", 8)
        names = [step["name"] for step in data["steps"]]
        self.assertEqual(names[:2], ["table", "layer"])
        self.assertIn("tasks", names[2:])
        self.assertIn("memcheck_kernels", names[2:])


class Broken(Check):
    def copy(self):
        """A tree of the check's own files, to break one of them."""
        root = self.folder / "tree"
        for part in ("scripts", "tests/bench", "tests/gpu", "tests/end_to_end", "tests/oracle", "configs/shapes"):
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        return root

    def broken(self, path, old, new, *options):
        root = self.copy()
        text = (root / path).read_text()
        self.assertEqual(text.count(old), 1, old)
        (root / path).write_text(text.replace(old, new))
        return self.check(*options, root=root)

    def test_a_broken_option_fails(self):
        first = '    yield layer("layer_bf16", "{8b}", *BF16, *whole)\n'
        done, data, _ = self.broken("tests/bench/gpu_table.py", first,
                                    '    yield layer("layer_bf16", "{8b}", *BF16, "--lenghts", "uneven")\n    return\n', "--only", "layer")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("no number of layer_bf16", done.stdout)
        self.assertIn("--lenghts", next(result["reason"] for result in data["measurements"] if result["name"] == "layer_bf16"))

    def test_a_broken_row_fails(self):
        """A row that asks for a number that no measurement has."""
        work = self.folder / "work"
        work.mkdir()
        with open(work / "measurements.jsonl", "w", encoding="utf-8") as file:
            for name in ("gemm", "gemm_after"):
                file.write(json.dumps({"name": name, "command": "bench gemm", "wall_seconds": 1, "values": {"tflop": 1.0}}) + "\n")
        done = subprocess.run([sys.executable, str(ROOT / "tests/bench/gpu_report.py"), "write", "--tiny", "--complete", "--work", str(work),
                               "--report", str(self.folder / "report.md")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the GEMM after the table over the GEMM before", done.stderr)

    def test_a_broken_step_fails(self):
        done, _, _ = self.broken("scripts/gpu_check.sh", "--kernel-name kernel_substring", "--kernel-names kernel_substring", "--only", "sanitizer")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("unrecognised option '--kernel-names'", done.stdout)

    def test_a_pattern_that_fits_no_test_fails(self):
        done, _, _ = self.broken("scripts/gpu_check.sh", ":GpuGraphs.*:", ":GpuGraph.*:", "--only", "sanitizer")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("GpuGraph.* fits no test", done.stdout)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
