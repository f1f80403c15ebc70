"""`magister bench layer` with the GPU's code on the host: every call of a pass has its place in the layer, products their shapes, and the
arithmetic beside the times is that of the model's sizes. Times mean nothing here.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["MAGISTER"]
# No two products have one shape. Legend: D hidden, H query and K KV heads, E head_dim, F MLP columns, V vocabulary.
D, H, K, E, F, V, LAYERS = 64, 6, 2, 16, 80, 200, 3
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D, "intermediate_size": F, "num_hidden_layers": LAYERS,
          "num_attention_heads": H, "num_key_value_heads": K, "head_dim": E, "vocab_size": V, "max_position_embeddings": 4096,
          "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
WEIGHTS = {"qkv_proj": ((H + 2 * K) * E, D), "o_proj": (D, H * E), "gate_up_proj": (2 * F, D), "down_proj": (D, F), "head": (V, D)}
LAYER = {"norm", "rotary", "attention", "activation", *WEIGHTS}


class Layer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "config.json").write_text(json.dumps(CONFIG))

    def run_bench(self, *options):
        command = [PROGRAM, "bench", "layer", self.folder, "--device", "host", "--random", "--repeats", 1, "--top-k", 4, *options]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=1200)

    def bench(self, *options):
        done = self.run_bench(*options, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertAlmostEqual(sum(part["share"] for part in found["parts"]) + found["gaps_share"], 1, 6)
        self.assertAlmostEqual(sum(part["ms"] for part in found["parts"]) + found["gaps_ms"], found["ms"], 6)
        return found

    def parts(self, found, place, call=""):
        return [part for part in found["parts"] if part["part"] == place and call in part["call"]]

    def one(self, found, place, call=""):
        parts = self.parts(found, place, call)
        self.assertEqual(len(parts), 1, (place, call, parts))
        return parts[0]

    def work(self, part, unit):
        """FLOPs or bytes of the whole model that a part's rate stands for."""
        return part[unit] * part["ms"] * {"tflops": 1e9, "gbs": 1e6}[unit]

    def test_a_unit(self):
        rows = 33
        found = self.bench("--dtype", "bf16", "--tokens", rows, "--sequences", 3)
        self.assertEqual((found["pass"], found["rows"], found["layers"], found["layers_measured"]), ("teacher", rows, LAYERS, LAYERS))
        self.assertLessEqual(LAYER | {"embedding", "reduction"}, {part["part"] for part in found["parts"]})
        for place, (outputs, inputs) in WEIGHTS.items():
            products = [part for part in self.parts(found, place) if "rows" in part]
            self.assertTrue(products, place)
            self.assertEqual({(part["outputs"], part["inputs"]) for part in products}, {(outputs, inputs)}, place)
            times = 1 if place == "head" else LAYERS
            self.assertEqual(sum(part["calls"] for part in products) % times, 0)
            for part in products:
                self.assertAlmostEqual(self.work(part, "tflops"), 2 * part["calls"] * part["rows"] * outputs * inputs, -1)
        for place, calls, moved in (("norm", 2 * LAYERS + 1, (2 * LAYERS + 1) * rows * D * 12), ("rotary", LAYERS, LAYERS * rows * (H + K) * E * 4),
                                    ("activation", LAYERS, LAYERS * rows * 3 * F * 2), ("embedding", 1, rows * D * 6),
                                    ("reduction", 1, rows * V * 4)):
            part = self.one(found, place)
            self.assertEqual(part["calls"], calls, place)
            self.assertAlmostEqual(self.work(part, "gbs"), moved, -1, place)
        attention = next(part for part in self.parts(found, "attention") if "tflops" in part)
        self.assertAlmostEqual(self.work(attention, "tflops"), LAYERS * 3 * (11 * 12 / 2) * 4 * H * E, -1)

    def test_fewer_layers_stand_for_all(self):
        found = self.bench("--dtype", "bf16", "--tokens", 16, "--layers", 1)
        self.assertEqual((found["layers"], found["layers_measured"]), (LAYERS, 1))
        for place, scale in (("activation", LAYERS), ("reduction", 1), ("norm", (2 * LAYERS + 1) / 3)):
            part = self.one(found, place)
            self.assertAlmostEqual(part["ms"] / part["measured_ms"], scale, 6, place)
        self.assertAlmostEqual(self.work(self.one(found, "activation"), "gbs"), LAYERS * 16 * 3 * F * 2, -1)

    def test_formats_of_weights(self):
        for options, place, call in ((["--format", "int8", "--group", 32], "gate_up_proj", "dequantize"),
                                     (["--format", "int4", "--group", 32], "o_proj", "dequantize"),
                                     (["--dtype", "fp8"], "activation", "gate_quantize"), (["--dtype", "fp8"], "norm", "norm_quantize"),
                                     (["--dtype", "fp8"], "o_proj", "quantize_rows")):
            found = self.bench("--tokens", 16, "--layers", 1, *options)
            self.assertIn("gbs", self.one(found, place, call), (options, place))
            self.assertLessEqual(LAYER, {part["part"] for part in found["parts"]}, options)

    def test_bytes_of_codes(self):
        """In fp8 a norm and a gate write a byte a number; the last norm, before the head, writes bf16."""
        rows = 33
        found = self.bench("--dtype", "fp8", "--tokens", rows, "--sequences", 3)
        for place, call, calls, moved in (("norm", "norm_quantize", 2 * LAYERS, 2 * LAYERS * rows * D * 11), ("norm", "add_rms_norm", 1, rows * D * 12),
                                          ("activation", "gate_quantize", LAYERS, LAYERS * rows * F * 5),
                                          ("o_proj", "quantize_rows", LAYERS, LAYERS * rows * H * E * 3)):
            part = self.one(found, place, call)
            self.assertEqual(part["calls"], calls, call)
            self.assertAlmostEqual(self.work(part, "gbs"), moved, -1, call)

    def test_decoding(self):
        for rows, options, weight_bytes in ((1, [], 2), (3, ["--format", "int8", "--group", 0], 1), (70, [], 2)):
            found = self.bench("--dtype", "bf16", "--rows", rows, "--past", 50, *options)
            self.assertEqual((found["pass"], found["rows"], found["sequences"]), ("decode", rows, rows))
            few = rows <= 8  # the rotation and the gate are then in the products before them
            self.assertEqual({part["part"] for part in found["parts"]} & LAYER, LAYER - ({"rotary", "activation"} if few else set()), rows)
            for place, call in (("qkv_proj", "rotate_product"), ("gate_up_proj", "gate_product")):
                self.assertEqual(len(self.parts(found, place, call)), int(few), (rows, call))
            for place, (outputs, inputs) in WEIGHTS.items():
                products = [part for part in self.parts(found, place) if "tflops" in part]
                flops = sum(self.work(part, "tflops") for part in products)
                self.assertAlmostEqual(flops, 2 * rows * outputs * inputs * (1 if place == "head" else LAYERS), -1, (place, rows))
                if place != "head" and rows == 1:
                    self.assertGreaterEqual(sum(self.work(part, "gbs") for part in products), LAYERS * outputs * inputs * weight_bytes)
            attention = next(part for part in self.parts(found, "attention") if "gbs" in part)
            self.assertGreaterEqual(self.work(attention, "gbs"), LAYERS * rows * 50 * 2 * K * E * 2)

    def test_a_cached_prefix_and_uneven_lengths(self):
        found = self.bench("--dtype", "bf16", "--tokens", 40, "--sequences", 2, "--past", 10)
        self.assertEqual((found["pass"], found["past"]), ("prefill", 10))
        attention = next(part for part in self.parts(found, "attention") if "tflops" in part)
        self.assertAlmostEqual(self.work(attention, "tflops"), LAYERS * 2 * (20 * 21 / 2 + 200) * 4 * H * E, -1)
        found = self.bench("--dtype", "bf16", "--tokens", 70, "--sequences", 2, "--lengths", "uneven")  # 10 and 60
        attention = next(part for part in self.parts(found, "attention") if "tflops" in part)
        self.assertAlmostEqual(self.work(attention, "tflops"), LAYERS * (10 * 11 / 2 + 60 * 61 / 2) * 4 * H * E, -1)

    def test_the_table(self):
        done = self.run_bench("--dtype", "bf16", "--tokens", 16)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("rows x outputs x inputs", "gate_up_proj", "attention", "reduction", "gaps", "TFLOP/s", "layers_measured: 3"):
            self.assertIn(word, done.stdout)

    def test_what_is_refused(self):
        for options, words in ((["--rows", 2], "--past"), (["--tokens", 8, "--sequences", 9], "fewer sequences"),
                               (["--lengths", "odd"], "even or uneven"), (["--tokens", 8, "--sequences", 2, "--lengths", "uneven"], "at least 16")):
            done = self.run_bench(*options)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn(words, done.stderr)
        done = subprocess.run([PROGRAM, "bench", "layer", str(self.folder)], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, "bench layer is for GPUs" in done.stderr), (64, True), done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
