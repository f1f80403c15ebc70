#!/usr/bin/env python3
"""tests/bench/peers.py measures on when a part dies: the other figures are in its table, a row says what is missing, and every round is
saved. Its programs are replaced by fakes, so that nothing depends on a clock."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tests/bench"))
import peers  # noqa: E402
import whole_runs  # noqa: E402


class FakeMagister:
    def __init__(self, *unused):
        self.calls = 0

    def bench(self, what, tokens=512, dtype="f32", extra=(), model=None):
        if what == "decode" and dtype == "bf16":
            raise RuntimeError("this part\ndied")
        return {"gflops": 50.0, "tokens_per_second": 100.0, "peak_bytes": 3, "weight_bytes": 2, "ratio": 2.0}

    def product(self, kind):
        return 0.5


class FakeWorker:
    def __init__(self, *unused):
        self.asked = 0

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        pass

    def ask(self, what, tokens=0):
        if what == "teacher":
            self.asked += 1
            if self.asked == 2:
                raise RuntimeError("the transformers process ended with 9")
        return {"gflops": 25.0, "tokens_per_second": 40.0}


def dead_part(runs, rounds):
    raise KeyError("prepare")


class PeersParts(unittest.TestCase):
    def table_of(self, folder, parts, *options):
        save = pathlib.Path(folder) / "bench.json"
        arguments = ["peers.py", "--no-llama", "--rounds", "3", "--core", "0", "--save", str(save), *options]
        out, errors = io.StringIO(), io.StringIO()
        with mock.patch.object(peers, "Magister", FakeMagister), mock.patch.object(peers.hf_worker, "Worker", FakeWorker), \
                mock.patch.object(whole_runs, "PARTS", parts), mock.patch.object(sys, "argv", arguments), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            peers.main()
        return out.getvalue(), errors.getvalue(), json.loads(save.read_text())

    def test_a_dead_part_is_a_row(self):
        alive = (["alive"], lambda runs, rounds: [("alive", 1.0, None, (2.0, 1.0, 3.0))])
        with tempfile.TemporaryDirectory() as folder:
            table, progress, saved = self.table_of(folder, [(["dead"], dead_part), alive])
        self.assertIn("| dead |  |  | not measured: 'prepare' | |", table)
        self.assertIn("| alive | 1.00 |  | 2 | 1 - 3 |", table)
        # A figure that one round of three lacks is of the other two.
        self.assertIn("| teacher tokens/s over transformers + log_softmax + topk | 1.20 | 1.35 | 2.5 | 2.5 - 2.5 |", table)
        self.assertEqual([sorted(row["missing"]) for row in saved["rounds"]],
                         [["decode_bf16"], ["decode_bf16", "hf_teacher"], ["decode_bf16"]])
        self.assertEqual(saved["rounds"][1]["missing"]["hf_teacher"], "the transformers process ended with 9")
        self.assertIn("round 1: decode_bf16: not measured: this part died", progress)
        self.assertIn("round 2: hf_prefill 40", progress)
        self.assertEqual([line[0] for line in saved["runs"]], ["dead", "alive"])

    def test_a_figure_without_rounds_says_why(self):
        rows = [{"missing": {"below": "it died"}, "above": 1.0}]
        self.assertEqual(peers.ratio(rows, "above", "below"), "it died")
        self.assertIn("not measured: it died", peers.markdown([("what", None, None, peers.ratio(rows, "above", ["below"]))]))

    def test_rounds_are_saved_as_they_end(self):
        with tempfile.TemporaryDirectory() as folder:
            save = pathlib.Path(folder) / "bench.json"
            seen = []

            def watched(parts, show):
                if save.exists():
                    seen.append(len(json.loads(save.read_text())["rounds"]))
                return {"missing": {}, "sgemm_gflops": 1.0}

            with mock.patch.object(peers, "measure_round", watched):
                table, _, _ = self.table_of(folder, [], "--no-runs")
        self.assertEqual(seen, [1, 2])
        self.assertIn("not measured: no round was measured", table)

    def test_a_short_run_is_tried_again(self):
        phases = iter([[], [{"phase": "load", "max": 1}], [{"phase": "prepare", "max": 7}]])
        with tempfile.TemporaryDirectory() as folder:
            runs = whole_runs.Runs("program", folder)
            (pathlib.Path(folder) / "million").mkdir()

            def run(*unused, **also_unused):
                line = json.dumps({"event": "phases", "phases": next(phases)})
                (pathlib.Path(folder) / "million/run.jsonl").write_text(line + "\n")
                return mock.Mock(returncode=75)

            with mock.patch.object(whole_runs.subprocess, "run", run):
                self.assertEqual(whole_runs.resume_seconds(runs, "experiment", [], (2, 5, 20)), 7)
                phases = iter([[]])
                self.assertIsNone(whole_runs.resume_seconds(runs, "experiment", [], (2,)))


if __name__ == "__main__":
    unittest.main()
