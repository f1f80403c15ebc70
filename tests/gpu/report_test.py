"""The report of the GPU check without a GPU: a program that prints made-up numbers, fails, talks nonsense or hangs; what has no
number says why. And: every kernel of the sources has its test in kernels_test.cpp.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tests/bench"))
import gpu_busy
import gpu_dry_run
import gpu_report
import gpu_table

FAKE = """#!{python}
import json, sys, time
words = sys.argv[1:]
value = lambda name, default: words[words.index(name) + 1] if name in words else default
if words[0] == "--version":
    print("magister 9.9")
    sys.exit(0)
assert words[0] == "bench" and "--json" in words and value("--device", "") == "cuda:0"
assert ("--random" in words) == (words[1] not in ("gemm", "copy", "read"))
what, kind = words[1], value("--format", value("--dtype", "bf16"))
if kind == "fp8":
    sys.exit("magister: dtype fp8 is not there (a reason); do without")
if what == "judge":
    time.sleep(60)
if what == "decode" and "70b" in words[2] and kind == "int4":
    print("nonsense")
    sys.exit(0)
parts = [dict(part="gate_up_proj", call="aten::mm", calls=4, rows=2048, outputs=28672, inputs=4096, ms=60.0, share=0.6, tflops=400.0, gbs=300.0),
         dict(part="activation", call="gate_multiply", calls=4, ms=20.0, share=0.2, gbs=3600.0),
         dict(part="attention", call="aten::_flash_attention_forward", calls=4, ms=15.0, share=0.15, tflops=320.0, gbs=40.0)]
numbers = dict(gemm=dict(tflops=800.0), copy=dict(gbs=4000.0), read=dict(gbs=4400.0),
               layer=dict(ms=100.0, gaps_ms=5.0, gaps_share=0.05, layers=32, layers_measured=4, pass_ms=12.5, tokens_per_second=9.0, parts=parts),
               prefill=dict(tflops=560.0, tokens_per_second=40000.0),
               teacher=dict(tflops=540.0, tokens_per_second=30000.0, head_bytes=16384 * 128256 * 4 // 32),
               decode=dict(gbs=3200.0, tokens_per_second=200.0 if value("--graph", "") == "on" else 160.0))[what]
print("a line before")
print(json.dumps(numbers))
"""
GTEST = """========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
========= COMPUTE-SANITIZER
[ RUN      ] Head.ReduceLogits
[       OK ] Head.ReduceLogits (3 ms)
[ RUN      ] All/Products.DecodeProduct/b16_g0
   b16: largest difference 1e-7
[  FAILED  ] All/Products.DecodeProduct/b16_g0, where GetParam() = 7 (2 ms)
"""
UNITTESTS = """test_a (__main__.Teacher.test_a) ...    a: largest differences {'x': 1}
ok
test_b (__main__.Teacher.test_b)
Its docstring. ... FAIL
test_c (__main__.Teacher.test_c) ... skipped 'no reason'
test_d (__main__.Teacher.test_d) ...    cut off here
"""


class Report(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.work = pathlib.Path(scratch.name)
        self.program = self.work / "magister"
        self.program.write_text(FAKE.format(python=sys.executable))
        self.program.chmod(0o755)

    def call(self, what, *arguments):
        done = subprocess.run([sys.executable, str(ROOT / "tests/bench/gpu_report.py"), what, "--work", str(self.work), "--program",
                               str(self.program), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)

    def report(self):
        self.call("write", "--report", self.work / "gpu_report.md")
        data = json.loads((self.work / "gpu_report.json").read_text())
        return {row["what"]: row for row in data["rows"]}, data, (self.work / "gpu_report.md").read_text()

    def row(self, rows, start):
        return next(row for what, row in rows.items() if what.startswith(start))

    def test_ratios_and_their_absence(self):
        names = [entry.name for entry in gpu_table.measurements("table", gpu_table.Sizes())
                 if entry.name not in ("hf_teacher", "busy")]
        self.call("measure", "--only", ",".join(names))
        rows, data, text = self.report()
        self.assertEqual(len(rows), len(gpu_table.rows(gpu_table.Sizes())))
        for start, value, verdict in (("teacher's unit", 0.7, "floor met"), ("teacher over plain", 540 / 560, "floor met"),
                                      ("extra memory", 1 / 32, "floor met"), ("decode of one sequence, 8B, bf16", 0.8, "floor met"),
                                      ("decode of one sequence, 8B, int4", 0.8, "aim met"), ("CUDA graph", 1.25, "aim met"),
                                      ("int8 over bf16 prefill", 1.0, "aim met"), ("70B on one GPU, int8", 0.8, "aim met")):
            found = self.row(rows, start)
            self.assertAlmostEqual(found["value"], value, 5, start)
            self.assertEqual(found["verdict"], verdict, start)
            self.assertTrue(all(" bench " in command for command in found["commands"]) and found["commands"], start)
        for start, reason in (("fp8 over", "fp8 is not there"), ("70B on one GPU, int4", "printed no JSON"),
                              ("teacher tokens/s", "hf_teacher: not run"),
                              ("share of a 1B", "busy: not run")):
            found = self.row(rows, start)
            self.assertNotIn("value", found)
            self.assertIn(reason, found["reason"])
            self.assertRegex(text, re.escape(found["what"]) + r" \| [\d.]+ \| [\d.]+ \| not measured \|")

    def test_a_missed_floor_names_the_parts_that_explain_it(self):
        self.call("measure", "--only", "gemm,prefill_bf16,gemm_after,decode_bf16,copy,read")
        self.call("measure", "--part", "layer", "--only", "layer_bf16,gemm_of_layers,copy_of_layers")
        path = self.work / "measurements.jsonl"
        path.write_text(path.read_text().replace('"tflops": 560.0', '"tflops": 400.0'))
        rows, data, text = self.report()
        found = self.row(rows, "teacher's unit")
        self.assertEqual((found["value"], found["verdict"]), (0.5, "below the floor"))
        # 60 ms at half the GEMM's rate lose 30 of 100 ms, attention at 0.4 loses 9, the gaps 5, silu at 0.9 of the copy 2.
        self.assertEqual([sentence.split(":")[0] for sentence in found["explanation"]][0], "gate_up_proj (aten")
        self.assertEqual([re.search(r"([\d.]+)% of the time lost", sentence).group(1) for sentence in found["explanation"]],
                         ["30.0", "9.0", "5.0", "2.0"])
        self.assertIn("60.0% of the time, at 0.50 of the GEMM", text)
        self.assertIn("### layer_bf16", text)
        self.assertIn("| gate_up_proj | aten::mm | 4 | 2048 x 28672 x 4096 | 60.000 | 60.0% | 400.0 | 300.0 |", text)
        self.assertEqual(self.row(rows, "one text of 8,192")["reason"], "prefill_long: not run")
        self.assertIn("no floor", self.row(rows, "decode of one sequence, 8B, bf16: bytes/s over what")["verdict"])
        self.assertNotIn("explanation", self.row(rows, "decode of one sequence, 8B, bf16: bytes/s over the copy"))

    def test_reports_of_parts_are_joined(self):
        self.call("measure", "--only", "gemm,prefill_bf16,copy")
        path = self.work / "measurements.jsonl"
        path.write_text(path.read_text().replace('"tflops": 560.0', '"tflops": 400.0'))
        (self.work / "steps.tsv").write_text("table\t0\t4\t60\tgpu_report.py\n")
        rows, _, _ = self.report()
        self.assertEqual(self.row(rows, "teacher's unit")["explanation"], ["layer_bf16: not run"])
        (self.work / "gpu_report.json").rename(self.work / "table.json")
        path.unlink()
        (self.work / "steps.tsv").unlink()
        self.call("measure", "--part", "layer", "--only", "layer_bf16")
        self.report()
        (self.work / "gpu_report.json").rename(self.work / "layer.json")
        self.call("join", self.work / "layer.json", self.work / "table.json", "--report", self.work / "whole.md")
        data = json.loads((self.work / "whole.json").read_text())
        self.assertEqual([step["name"] for step in data["steps"]], ["table"])
        found = self.row({row["what"]: row for row in data["rows"]}, "teacher's unit")
        self.assertIn("gate_up_proj (aten::mm 2048 x 28672 x 4096): 60.0% of the time", found["explanation"][0])
        self.assertIn("the GEMM before the table alone", found["verdict"])

    def test_an_h100_gets_sizes_that_fit(self):
        self.assertEqual([gpu_table.sizes_for(memory).judges_at_once for memory in (79.6, 140.4, None)], [4, 80, 80])
        self.assertEqual([gpu_table.sizes_for(memory).judges for memory in (79.6, 140.4, None)], [16, 256, 256])
        for part in gpu_table.PARTS:
            for memory in (79.6, 140.4):
                found = gpu_table.measurements(part, gpu_table.sizes_for(memory))
                self.assertEqual(len(found), len({measurement.name for measurement in found}))
        known = {measurement.name for measurement in gpu_table.measurements("layer", gpu_table.Sizes())}
        self.assertLessEqual({row.layer for row in gpu_table.rows(gpu_table.Sizes())} - {""}, known)

    def test_a_row_names_its_source(self):
        with open(self.work / "measurements.jsonl", "w", encoding="utf-8") as file:
            file.write(json.dumps({"name": "busy", "command": "magister run busy.yaml", "wall_seconds": 9,
                                   "values": {"share": 0.95, "from": "40 samples of nvidia-smi"}}) + "\n")
        rows, _, _ = self.report()
        self.assertEqual(self.row(rows, "share of a 1B")["verdict"], "floor met; 40 samples of nvidia-smi")

    def test_one_gemm_is_enough(self):
        for names, alone in (("gemm,prefill_bf16", "before"), ("prefill_bf16,gemm_after", "after")):
            (self.work / "measurements.jsonl").unlink(missing_ok=True)
            self.call("measure", "--only", names)
            with open(self.work / "measurements.jsonl", "a", encoding="utf-8") as file:
                missing = {"before": "gemm_after", "after": "gemm"}[alone]
                file.write(json.dumps({"name": missing, "command": "magister bench gemm", "wall_seconds": 100, "reason": "timed out"}) + "\n")
            rows, _, _ = self.report()
            found = self.row(rows, "teacher's unit")
            self.assertEqual((found["value"], found["verdict"]), (0.7, f"floor met; the GEMM {alone} the table alone"))
            self.assertIn("timed out", self.row(rows, "the GEMM after the table")["reason"])

    def test_time_ends(self):
        self.call("measure", "--part", "judge_int8", "--least", 1, "--deadline", time.time() + 12)
        rows, data, _ = self.report()
        self.assertIn("timed out after", self.row(rows, "70B judge (int8)")["reason"])
        self.call("measure", "--only", "gemm", "--deadline", time.time() + 3)
        rows, data, _ = self.report()
        self.assertIn("no time left", self.row(rows, "teacher's unit")["reason"] + str(data["measurements"]))

    def test_steps_and_machine(self):
        (self.work / "kernels.log").write_text(GTEST)
        (self.work / "tasks.log").write_text(UNITTESTS)
        (self.work / "model.log").write_text("skipped: no GPU\n")
        (self.work / "steps.tsv").write_text("kernels\t1\t4\t60\ttest_gpu\nmodel\t77\t0\t60\ttest_gpu\n"
                                             "tasks\t124\t100\t100\ttasks_test.py\nracecheck\t200\t0\t60\tcompute-sanitizer\n")
        self.call("machine")
        _, data, text = self.report()
        steps = {step["name"]: step for step in data["steps"]}
        self.assertEqual(steps["kernels"]["tests"], {"Head.ReduceLogits": "ok", "All/Products.DecodeProduct/b16_g0": "failed"})
        self.assertEqual(steps["kernels"]["notes"], ["RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
                                                      "b16: largest difference 1e-7"])
        self.assertEqual(steps["tasks"]["tests"], {"test_a": "ok", "test_b": "failed", "test_c": "skipped", "test_d": "cut off"})
        self.assertEqual([step["outcome"] for step in data["steps"]], ["failed", "skipped: no GPU", "timed out", "not run"])
        self.assertIn("a: largest differences", text)
        self.assertEqual(data["machine"]["magister"], "magister 9.9")
        self.assertIn("| skipped: no GPU |", text)

    def test_a_runs_texts_are_distinct(self):
        """And begin apart: what texts share at their beginning is computed once, so a rate over all of it would be no speed."""
        path = self.work / "data.jsonl"
        for records, length in ((768, 600), (1500, 920), (1600, 2000), (3, 12)):  # as gpu_chain.py, gpu_jobs.py and gpu_busy.py ask for them
            gpu_busy.write_data(path, records, length)
            texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
            self.assertEqual(len({text[:16] for text in texts}), records)
            self.assertGreater(min(map(len, texts)), length // 4)

    def test_written_models_are_whole(self):
        """In several files: transformers finds every weight and no other, and no two rows of the embedding are alike."""
        import gpu_weights
        import torch
        from transformers import AutoModelForCausalLM
        shape, folder = self.work / "shape", self.work / "model"
        shape.mkdir()
        config = json.loads((ROOT / "configs/shapes/llama-3.1-8b/config.json").read_text())
        (shape / "config.json").write_text(json.dumps({**config, **gpu_dry_run.SHAPE}))
        with unittest.mock.patch.object(gpu_weights, "SHARD_BYTES", 20000):
            written = gpu_weights.write(folder, shape, ROOT)
        self.assertGreater(len(list(folder.glob("*.safetensors"))), 3)
        self.assertEqual(written, sum(path.stat().st_size for path in folder.glob("*.safetensors")))
        model, found = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.bfloat16, output_loading_info=True)
        self.assertEqual({key: sorted(names) for key, names in found.items() if names}, {})
        rows = model.get_input_embeddings().weight.detach().float()
        self.assertEqual(len({tuple(row) for row in rows.tolist()}), len(rows))
        self.assertAlmostEqual(rows.std().item(), 0.02, 3)

    def test_trainings_and_jobs_have_rows_of_their_own(self):
        """Made-up numbers of both sides; a second round counts as much as the first, and a missed floor shows what a run took its time for."""
        def put(name, **values):
            with open(self.work / "measurements.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"name": name, "command": name, "wall_seconds": 1, "values": values}) + "\n")
        for again, ours in (("", 50.0), ("_again", 70.0)):
            put(f"train_bf16{again}", tokens_per_second=ours, peak_on_device=50, to_first_step_seconds=4.0, first_loss=2.0)
            put(f"train_peer_bf16{again}", tokens_per_second=100.0, peak_allocated=100, first_loss=2.001)
        rows, _, _ = self.report()
        self.assertEqual({what.split(",")[0] for what in rows}, {"train"}, "the table was not measured")
        for start, value, verdict in (("train, 1B, bf16, 8 x 1,024 tokens a step", 0.6, "below the floor"), ("train, 1B, bf16: seconds", 4.0, "floor met"),
                                      ("train, 1B, bf16, 8 x 1,024, without", 0.5, "floor met"), ("train, 1B, bf16: loss", 0.001 / 2.001, "aim met")):
            found = self.row(rows, start)
            self.assertAlmostEqual(found["value"], value, 6, start)
            self.assertEqual(found["verdict"], verdict, start)
        self.assertEqual(self.row(rows, "train, 1B, LoRA")["reason"], "train_lora: not run")
        put("job_teacher_1b", tokens_per_second=100000.0, whole_tokens_per_second=9.0, load_seconds=2.5,
            parts=[{"part": "make rows", "seconds": 4.66, "share": 0.64}])
        rows, _, text = self.report()
        self.assertEqual(self.row(rows, "teacher, 1B, top 64, 1.02 M tokens: tokens/s computing")["explanation"],
                         ["make rows: 4.660 s, 64.0% of the time", "load_seconds: 2.5"])
        self.assertIn("| make rows |  | 4.6600 | 64.0% |", text)

    def test_busy_share(self):
        self.assertAlmostEqual(gpu_busy.share_in("teacher: GPU busy 97.5 % of 12.1 s"), 0.975)
        self.assertIsNone(gpu_busy.share_in("100 tokens in 1 s; compute imbalance 3.0 %"))
        self.assertAlmostEqual(gpu_busy.share_of([0, 0, 50, *[90] * 12, 40, 0, 0]), 0.9)
        self.assertIsNone(gpu_busy.share_of([0, 90, 0]))
        self.assertIsNone(gpu_busy.share_of([]))

    def test_check_without_a_gpu(self):
        """The whole script, on whatever this machine has, with no time: a report is there in any case."""
        report = self.work / "out/gpu_report.md"
        report.parent.mkdir()
        command = [str(ROOT / "scripts/gpu_check.sh"), "--seconds", "0", "--build", os.environ["MAGISTER_BUILD_DIR"],
                   "--report", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600,
                              env={**os.environ, "MAGISTER_PYTHON": sys.executable})
        self.assertIn(done.returncode, (0, 77), done.stderr)
        self.assertIn("not measured", report.read_text())
        self.assertTrue(report.with_suffix(".json").exists())

    def test_a_gpu_is_there_whatever_else_doctor_finds(self):
        build = self.work / "build"
        build.mkdir()
        magister = build / "magister"
        magister.write_text(f"#!/bin/sh\n[ $1 != doctor ] || {{ echo '{{\"gpus\": [{{\"uuid\": \"GPU-1\"}}]}}'; exit 74; }}\n"
                            f"exec {self.program} \"$@\"\n")
        magister.chmod(0o755)
        done = subprocess.run([str(ROOT / "scripts/gpu_check.sh"), "--only", "layer", "--seconds", "12", "--build", str(build),
                               "--report", str(self.work / "r.md")], capture_output=True, text=True, check=False, timeout=600,
                              env={**os.environ, "MAGISTER_PYTHON": sys.executable})
        self.assertNotIn("no GPU", done.stdout + (self.work / "r.md").read_text())
        self.assertIn("gemm_of_layers: ", done.stdout)

    def test_wrong_options_cost_no_time(self):
        """Each is refused before anything is measured, with a reason."""
        build = ["--build", os.environ["MAGISTER_BUILD_DIR"]]
        (self.work / "file").touch()
        for options, code, reason in ((["--only", "layers"], 64, "sanitizer, train, jobs, decoding, judge, judge_int8 or kv_cache"), (["--only"], 64, "no value"),
                                      (["--seconds", "x"], 64, "a whole number"), (["--seconds", "-3"], 64, "a whole number"),
                                      (["--small", "llama-3.2"], 64, "configs/shapes"), (["--build", str(self.work / "none")], 64, "no program"),
                                      (["--quick"], 64, "is not an option"), ([*build, "--report", str(self.work / "file/r.md")], 74, "would be lost")):
            done = subprocess.run([str(ROOT / "scripts/gpu_check.sh"), *options], capture_output=True, text=True, check=False, timeout=60,
                                  cwd=self.work, env={**os.environ, "OUT": ""})
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            self.assertIn(reason, done.stderr)
            self.assertEqual(sorted(path.name for path in self.work.glob("*.md")), [], "nothing is written")
        done = subprocess.run([str(ROOT / "scripts/gpu_check.sh"), "--help"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("usage: scripts/gpu_check.sh", done.stdout)


class KernelsHaveTests(unittest.TestCase):
    def test_every_kernel_is_run_on_the_gpu(self):
        kernels = set()
        for path in ROOT.glob("src/*/gpu/*.h"):
            kernels.update(re.findall(r"struct (\w+) \{(?:(?!\nstruct ).)*?kName =", path.read_text(encoding="utf-8"), re.DOTALL))
        self.assertGreater(len(kernels), 8)
        tests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/gpu/*_test.cpp"))
        self.assertEqual({kernel for kernel in kernels if kernel not in tests}, set(), "kernels without a test in tests/gpu")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
