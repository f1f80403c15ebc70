"""A task that stands in one file of the tests (own_task.cpp) has what every task has: one and four ranks give the same bytes, a killed run
goes on, slices are merged, `check` knows its rows, the experiment's keys are checked. The oracle of its numbers is transformers.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ["MAGISTER"] = str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/tasks/own_task")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "end_to_end"))
import h5py
import numpy
import tiny_world

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + "  - task: norms\n    dataset: {{path: {data}, key: id}}\n"


class OwnTask(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = tiny_world.World(cls.scratch.name, records=60, text=EXPERIMENT, results=("norms.h5",))
        done = cls.world.run("one", 1)
        assert done.returncode == 0, done.stderr
        cls.reference = cls.world.results("one")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def tool(self, *arguments):
        return subprocess.run([tiny_world.PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=self.world.environment)

    def same(self, path):
        """Equal but for the run's name."""
        with h5py.File(self.reference) as ours, h5py.File(path) as theirs:
            for name in ("samples/key", "samples/offset", "tokens/id", "norm/l2", "commit/crc32c"):
                self.assertEqual(ours[name][()].tobytes(), theirs[name][()].tobytes(), name)

    def test_four_ranks(self):
        self.assertEqual(self.world.run("four", 4).returncode, 0)
        self.same(self.world.results("four"))

    def test_killed_and_resumed(self):
        killed = self.world.run("killed", 2, MAGISTER_FAIL_POINT="results.commit.rows_written@3:kill")
        self.assertNotEqual(killed.returncode, 0)
        partial = pathlib.Path(f"{self.world.results('killed')}.partial")
        self.assertTrue(partial.exists(), killed.stderr)
        with h5py.File(partial) as file:
            self.assertGreater(int(file["commit/done"][()].sum()), 0)
        self.assertEqual(self.world.run("killed", 3).returncode, 0)
        self.same(self.world.results("killed"))

    def test_a_step_without_units(self):
        """A task may be a step of its own: it has no model, records or results, and stands beside tasks over units."""
        world = tiny_world.World(self.scratch.name, records=60, model=self.world.model, text=EXPERIMENT + "  - task: count\n    needs: norms\n", results=("norms.h5",))
        done = world.run("counted", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("counted 2 ranks", done.stderr)
        said = self.tool("plan", world.experiment("counted"), "--ranks", "2")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"task count \(count\) -> .*\n  needs +norms\n  counts +ranks\norder")

    def test_checked(self):
        self.assertIn("all is well", self.tool("check", self.reference).stdout)
        with h5py.File(self.reference) as file:
            at = file["norm/l2"].id.get_offset()
        damaged = pathlib.Path(self.scratch.name) / "damaged.h5"
        content = bytearray(self.reference.read_bytes())
        content[at:at + 4] = numpy.float32(-1).tobytes()
        damaged.write_bytes(content)
        checked = self.tool("check", damaged)
        self.assertEqual(checked.returncode, 65)
        self.assertIn("unit 0: the length -1 is not a length", checked.stdout)

    def test_exported(self):
        """An own format of export is listed beside the others and written by the task's function, which refuses other results."""
        known = "known: jsonl, csv, parquet, padded-hdf5, openai_batch, txt, aiken, gift, moodle, qti21, qti30, html, lengths)"
        self.assertIn(known, self.tool("export", self.reference).stderr)
        self.assertIn(known, self.tool("export", self.reference, "--to", "lines").stderr)
        out = pathlib.Path(self.scratch.name) / "lengths.txt"
        done = self.tool("export", self.reference, "--to", "lengths", "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.reference) as file:
            numpy.testing.assert_array_equal(numpy.loadtxt(out, dtype="float32"), file["norm/l2"][()])
        self.assertEqual(self.tool("export", self.reference, "--to", "lengths").stdout, out.read_text())
        again = self.tool("export", self.reference, "--to", "lengths", "--out", out)
        self.assertEqual(again.returncode, 74, again.stderr)  # an existing file is not replaced
        refused = self.tool("export", self.reference, "--to", "padded-hdf5", "--out", out.with_suffix(".h5"))
        self.assertEqual(refused.returncode, 65)
        self.assertIn("that of a teacher's results", refused.stderr)
        self.assertEqual(self.tool("export", self.reference, "--to", "csv", "--out", out.with_suffix(".csv")).returncode, 0)

    def test_merged(self):
        parts = []
        for i in range(3):
            self.assertEqual(self.world.run(f"part-{i}", 2, f"tasks.0.slice={i}/3").returncode, 0)
            parts.append(self.world.results(f"part-{i}"))
        whole = pathlib.Path(self.scratch.name) / "whole.h5"
        merged = self.tool("merge", whole, *parts)
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.assertEqual(self.tool("check", whole).returncode, 0)
        with h5py.File(self.reference) as ours, h5py.File(whole) as theirs:
            numpy.testing.assert_array_equal(ours["norm/l2"][()], theirs["norm/l2"][()])

    def test_keys_are_checked(self):
        done = self.world.run("wrong", 1, "tasks.0.top_k=3")
        self.assertEqual(done.returncode, 78)
        self.assertIn("top_k", done.stderr)

    def test_numbers(self):
        import torch
        from transformers import LlamaModel
        model = LlamaModel.from_pretrained(self.world.model, torch_dtype=torch.float32).eval()
        worst = 0.0
        with h5py.File(self.reference) as file, torch.no_grad():
            offset = file["samples/offset"][()]
            for i in range(20):
                ids = file["tokens/id"][offset[i]:offset[i + 1]]
                if len(ids) == 0:
                    continue
                hidden = model(torch.tensor(ids[None].astype("int64"))).last_hidden_state[0]
                norms = file["norm/l2"][offset[i]:offset[i + 1]]
                worst = max(worst, float(abs(hidden.norm(dim=1).numpy() / norms - 1).max()))
        print(f"largest relative difference {worst:.1e}")
        self.assertLess(worst, 1e-5)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
