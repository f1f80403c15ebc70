"""TensorFile against the Python packages gguf and safetensors: every storage type, whole tensors and odd windows, bit by
bit, into f32, bf16 and f16; sharded models; metadata of every kind; time of a large vocabulary; memory of loading.

The expected bits come from gguf.quants.dequantize, safetensors.torch and torch's own rounding.
"""
import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import unittest

import gguf
import numpy as np
import safetensors.torch
import torch

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "support")]
from gguf_reading import read_gguf  # noqa: E402
from probe_cases import run_case  # noqa: E402

PROBE = os.environ.get("IO_PROBE") or str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/io_probe")
SMOLLM2 = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
Q = gguf.GGMLQuantizationType
# Block bytes, and where its f16 scales stand.
BLOCKS = {Q.Q8_0: (32, 34, [0]), Q.Q4_0: (32, 18, [0]), Q.Q4_1: (32, 20, [0, 2]), Q.Q5_0: (32, 22, [0]),
          Q.Q5_1: (32, 24, [0, 2]), Q.Q4_K: (256, 144, [0, 2]), Q.Q5_K: (256, 176, [0, 2]), Q.Q6_K: (256, 210, [208]),
          Q.Q2_K: (256, 84, [80, 82]), Q.Q3_K: (256, 110, [108]), Q.IQ4_NL: (32, 18, [0]), Q.MXFP4: (32, 17, [])}
EXTREME_SCALES = np.array([0, -0.0, 65504, -65504, 6e-8, -6e-8, 6.1e-5, 1], dtype=np.float16)


def probe(*arguments, text=None, code=0):
    done = run_case([PROBE, *map(str, arguments)], input=text)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def random_floats(rng, shape):
    """Normal numbers of many sizes, with infinities, zeros, ties of rounding and denormals among them."""
    values = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 5, shape)).astype(np.float32)
    flat = values.reshape(-1)
    special = np.array([0, -0.0, np.inf, -np.inf, 65504, 65520, 65519.996, 1e-40, -1e-45, 6e-8, 2.98e-8, 3.4e38, 3.39e38,
                        1.00390625, 1.01171875, 1.00048828125, 1.00146484375], dtype=np.float32)
    places = rng.permutation(flat.size)[: special.size]
    flat[places] = special[: places.size]
    return values


def random_blocks(rng, shape, kind):
    """Raw blocks of every bit pattern, scales finite: [rows, bytes]."""
    elements, block_bytes, scales = BLOCKS[kind]
    raw = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, block_bytes), dtype=np.uint8)
    for place in scales:
        scale = (rng.standard_normal(raw.shape[:-1]) * 10.0 ** rng.integers(-7, 2, raw.shape[:-1])).astype(np.float16)
        scale.reshape(-1)[: EXTREME_SCALES.size] = EXTREME_SCALES[: scale.size]
        raw[..., place : place + 2] = scale[..., None].view(np.uint8)
    flat = raw.reshape(-1, block_bytes)
    flat[-1], flat[-2:-1] = 0xFF, 0  # every number the largest, and the smallest; scales of 0 and of 65504 are finite
    for place in scales:
        flat[-1, place : place + 2] = EXTREME_SCALES[2:3].view(np.uint8)
    return raw.reshape(*shape[:-1], -1)


class Windows:
    """Collects windows and their expected bits, then reads all in one go."""

    def __init__(self, seed):
        self.random, self.lines, self.expected = random.Random(seed), [], []

    def add(self, name, values, dtype, window, padding):
        rows, columns = values.reshape(-1, values.shape[-1]).shape
        row_begin, row_end, column_begin, column_end = window or (0, rows, 0, columns)
        piece = values.reshape(rows, columns)[row_begin:row_end, column_begin:column_end]
        self.expected.append((f"{name} {window} {dtype}", bits(piece.to(TORCH[dtype]))))
        self.lines.append(f"{name} {row_begin} {row_end} {column_begin} {column_end} {dtype} {padding}")

    def add_many(self, name, values, count=12):
        rows, columns = values.reshape(-1, values.shape[-1]).shape
        for dtype in TORCH:
            self.add(name, values, dtype, None, 0)
            for _ in range(count):
                row = sorted(self.random.randint(0, rows) for _ in range(2))
                column = sorted(self.random.randint(0, columns) for _ in range(2))
                self.add(name, values, dtype, (*row, *column), self.random.choice((0, 1, 7)))

    def check(self, test, path):
        got = probe("windows", path, text="\n".join(self.lines).encode())
        for what, expected in self.expected:
            test.assertEqual(got[: len(expected)], expected, what)
            got = got[len(expected) :]
        test.assertEqual(got, b"")
        return len(self.lines)


class TensorOracle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rng = np.random.default_rng(5)

    def write_gguf(self, path, tensors, keys=()):
        writer = gguf.GGUFWriter(path, "llama")
        for add, key, value in keys:
            getattr(writer, add)(key, value)
        for name, data, kind in tensors:
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def test_gguf_every_type(self):
        tensors, windows = [], Windows(1)
        for kind in BLOCKS:
            for shape in ((7, 768), (256,), (33, 2048)):
                name = f"{kind.name}.{len(shape)}.{shape[-1]}"
                raw = random_blocks(self.rng, shape, kind)
                tensors.append((name, raw, kind))
                windows.add_many(name, torch.from_numpy(gguf.quants.dequantize(raw, kind).reshape(shape)))
        floats = random_floats(self.rng, (19, 83))
        for name, data in (("f32", floats), ("f16", np.clip(floats, -6e4, 6e4).astype(np.float16)),
                           ("f64", floats.astype(np.float64) * (1 + 1e-9)), ("vector", floats[0])):
            tensors.append((name, data, None))
            windows.add_many(name, torch.from_numpy(data.astype(np.float32)))
        raw = gguf.quants.quantize(floats, Q.BF16)
        tensors.append(("bf16", raw, Q.BF16))
        windows.add_many("bf16", torch.from_numpy(gguf.quants.dequantize(raw, Q.BF16)))
        for dtype in (np.int8, np.int16, np.int32, np.int64):
            info = np.iinfo(dtype)
            data = self.rng.integers(info.min, info.max, (5, 41), dtype=dtype, endpoint=True)
            tensors.append((np.dtype(dtype).name, data, None))
            windows.add_many(np.dtype(dtype).name, torch.from_numpy(data.astype(np.float32)))
        tensors.append(("three", floats[:18].reshape(3, 6, 83), None))
        windows.add_many("three", torch.from_numpy(floats[:18].reshape(3, 6, 83)))
        path = self.folder / "all.gguf"
        self.write_gguf(path, tensors)
        listed = {name: (kind, shape) for name, kind, shape, _ in json.loads(probe("list", path))["tensors"]}
        self.assertEqual(listed["three"], ["F32", [3, 6, 83]] if isinstance(listed["three"], list) else ("F32", [3, 6, 83]))
        self.assertEqual(listed["Q6_K.2.768"], ("Q6_K", [7, 768]))
        print("gguf windows:", windows.check(self, path))

    def test_gguf_quantised_by_the_package(self):
        """The package's own quantiser, so that the layout is that of real files and not only of our blocks."""
        data, windows, tensors = self.rng.standard_normal((64, 512)).astype(np.float32), Windows(2), []
        for kind in (Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.MXFP4):
            raw = gguf.quants.quantize(data, kind)
            tensors.append((kind.name, raw, kind))
            windows.add_many(kind.name, torch.from_numpy(gguf.quants.dequantize(raw, kind)))
            error = np.abs(gguf.quants.dequantize(raw, kind) - data).max()
            self.assertLess(error, 1.0 if kind == Q.MXFP4 else 0.6)
        self.write_gguf(self.folder / "q.gguf", tensors)
        windows.check(self, self.folder / "q.gguf")

    def split(self, tensors, **keys):
        """A model in parts of two tensors each, by the package -> (paths, windows of all tensors)."""
        writer, windows = gguf.GGUFWriter(self.folder / "parts.gguf", "llama", split_max_tensors=2), Windows(7)
        for key, value in keys.items():
            writer.add_uint32(key, value)
        for name, values in tensors.items():
            writer.add_tensor(name, values)
            windows.add_many(name, torch.from_numpy(values), count=2)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return sorted(self.folder.glob("parts-*.gguf")), windows

    def test_gguf_in_parts(self):
        """Whichever part is given: all tensors, the first part's metadata, the parts in their order."""
        tensors = {name: random_floats(self.rng, (5, 32)) for name in ("e", "d", "c", "b", "a")}
        paths, windows = self.split(tensors, seven=7)
        self.assertEqual([path.name for path in paths], [f"parts-0000{i}-of-00003.gguf" for i in (1, 2, 3)])
        for given in paths:
            listed = json.loads(probe("list", given))
            self.assertEqual([name for name, *_ in listed["tensors"]], sorted(tensors))
            self.assertEqual(listed["metadata"]["seven"]["value"], 7)
            self.assertEqual(listed["paths"], [str(path) for path in paths])
            windows.check(self, given)

    def test_gguf_parts_refused(self):
        """Missing, doubled, foreign, exchanged and renamed parts: the message names the part."""
        paths, _ = self.split({name: random_floats(self.rng, (5, 32)) for name in ("e", "d", "c", "b", "a")})
        good = [path.read_bytes() for path in paths]
        other_writer = gguf.GGUFWriter(self.folder / "whole.gguf", "llama")
        other_writer.add_tensor("z", np.zeros((1, 32), dtype=np.float32))
        other_writer.write_header_to_file()
        other_writer.write_kv_data_to_file()
        other_writer.write_tensors_to_file()
        other_writer.close()
        whole = (self.folder / "whole.gguf").read_bytes()

        def edited(content, key, old, new):
            at = content.index(key.encode()) + len(key) + 4
            self.assertEqual(content[at : at + len(old)], old)
            return content[:at] + new + content[at + len(old) :]

        total, first, of = "split.tensors.count", struct.pack("<H", 1), struct.pack("<H", 3)
        cases = [
            ("missing", [good[0], None, good[2]], 74, "parts-00002-of-00003.gguf: is not there"),
            ("doubled", [good[0], good[1], good[1]], 65, "says that it is part 2 of 3, but its name is that of part 3 of 3"),
            ("exchanged", [good[0], good[2], good[1]], 65, "says that it is part 3 of 3, but its name is that of part 2"),
            ("a whole model", [good[0], whole, good[2]], 65, "parts-00002-of-00003.gguf: is a whole model, where part 2"),
            ("of more parts", [good[0], edited(good[1], "split.count", of, struct.pack("<H", 4)), good[2]], 65, "says that it is part 2 of 4"),
            ("of another model", [good[0], edited(good[1], total, struct.pack("<i", 5), struct.pack("<i", 6)), good[2]], 65, "parts of different models"),
            ("tensors of part 3 twice", [good[0], edited(good[2], "split.no", struct.pack("<H", 2), first), good[2]], 65, "hold 4 tensors, where split.tensors.count says 5"),
            ("too few tensors", [edited(part, total, struct.pack("<i", 5), struct.pack("<i", 9)) for part in good], 65, "hold 5 tensors, where split.tensors.count says 9"),
            ("a negative total", [edited(good[0], total, struct.pack("<i", 5), struct.pack("<i", -5)), *good[1:]], 65, "split.tensors.count is not a whole number"),
            ("part 8 of 3", [edited(good[0], "split.no", struct.pack("<H", 0), struct.pack("<H", 7)), *good[1:]], 65, "split.no is 7 and split.count 3"),
            ("without its number", [good[0].replace(b"split.no", b"split.xx"), *good[1:]], 65, "split.no is missing"),
            ("without the total", [good[0].replace(total.encode(), b"split.tensors.cxxxx"), *good[1:]], 65, "split.tensors.count is missing"),
            ("cut short", [good[0], good[1][:200], good[2]], 65, "parts-00002-of-00003.gguf"),
        ]
        for name, parts, code, words in cases:
            with self.subTest(name):
                for path, content in zip(paths, parts):
                    path.unlink(missing_ok=True)
                    if content is not None:
                        path.write_bytes(content)
                done = run_case([PROBE, "list", paths[0]], text=True)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
        alone = self.folder / "renamed.gguf"
        alone.write_bytes(good[1])
        done = run_case([PROBE, "list", alone], text=True)
        self.assertEqual(done.returncode, 65)
        self.assertIn("its name does not end in -00002-of-00003.gguf", done.stderr)

    def test_smollm2(self):
        if not SMOLLM2.exists():
            self.fail(f"{SMOLLM2} is missing; run scripts/setup.sh")
        windows = Windows(3)
        for tensor in read_gguf(SMOLLM2).tensors:
            if tensor.name.startswith(("blk.7.", "output_norm")):
                values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                windows.add_many(tensor.name, torch.from_numpy(np.array(values)), count=2)
        windows.check(self, SMOLLM2)

    def test_metadata(self):
        keys = [("add_uint8", "u8", 255), ("add_int8", "i8", -128), ("add_uint16", "u16", 65535), ("add_int16", "i16", -32768),
                ("add_uint32", "u32", 2**32 - 1), ("add_int32", "i32", -(2**31)), ("add_uint64", "u64", 2**64 - 1),
                ("add_int64", "i64", -(2**63)), ("add_float32", "f32", 0.1), ("add_float64", "f64", 0.1), ("add_bool", "yes", True),
                ("add_bool", "no", False), ("add_string", "text", "gr\u00fc\u00dfe \u4f60\u597d"), ("add_array", "texts", ["a", "", "\u0436" * 99]),
                ("add_array", "whole", [1, -2, 3]), ("add_array", "real", [0.5, -0.25])]
        path = self.folder / "keys.gguf"
        self.write_gguf(path, [("x", np.zeros((1, 1), dtype=np.float32), None)], keys)
        got = json.loads(probe("list", path))["metadata"]
        for add, key, value in keys:
            if add == "add_string":
                self.assertEqual(bytes.fromhex(got[key]["text"]).decode(), value)
            elif key == "texts":
                self.assertEqual([bytes.fromhex(text).decode() for text in got[key]["texts"]], value)
            else:
                self.assertEqual(got[key]["value"], float(np.float32(value)) if add == "add_float32" else value, key)
                self.assertEqual(type(got[key]["value"]), type(value), key)

    def test_large_vocabulary_is_quick(self):
        """256,000 tokens and 500,000 merges: under 100 ms (the best of five, as the machine may be busy)."""
        def text(value):
            return struct.pack("<Q", len(value)) + value.encode()

        def array(key, kind, items):
            return text(key) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)

        merges = [f"left{i} right{i}" for i in range(500_000)]
        path = self.folder / "vocabulary.gguf"  # the package needs half a minute to write this
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 4) +
                         array("tokenizer.ggml.tokens", 8, [text(f"token{i}") for i in range(256_000)]) +
                         array("tokenizer.ggml.merges", 8, [text(merge) for merge in merges]) +
                         array("tokenizer.ggml.scores", 6, [struct.pack("<f", 0.5)] * 256_000) +
                         array("tokenizer.ggml.token_type", 5, [struct.pack("<i", 1)] * 256_000))
        got = json.loads(probe("list", path))["metadata"]["tokenizer.ggml.merges"]["texts"]
        self.assertEqual([bytes.fromhex(merge).decode() for merge in got], merges)
        seconds = sorted(json.loads(probe("open", path))["seconds"] for _ in range(5))
        print("large vocabulary:", [round(each, 4) for each in seconds])
        self.assertLess(seconds[0], 3)  # 0.05 on a free core; the rest is for a busy machine

    def test_safetensors(self):
        floats = torch.from_numpy(random_floats(self.rng, (37, 131)))
        tensors = {"f32": floats, "bf16": floats.to(torch.bfloat16), "f16": floats.clamp(-6e4, 6e4).to(torch.float16),
                   "f64": floats.double() * (1 + 1e-9), "vector": floats[3].clone(), "cube": floats[:36].reshape(4, 9, 131).clone(),
                   "i8": torch.arange(-60, 60, dtype=torch.int8).reshape(8, 15), "i64": torch.arange(60).reshape(4, 15) ** 9,
                   "u8": torch.arange(0, 240, dtype=torch.uint8).reshape(16, 15), "bool": torch.arange(30).reshape(2, 15) % 3 == 0,
                   "i32": torch.arange(-30, 30, dtype=torch.int32).reshape(4, 15) ** 5, "i16": torch.arange(60, dtype=torch.int16).reshape(4, 15),
                   "wide": torch.from_numpy(random_floats(self.rng, (6, 40_000))).to(torch.bfloat16),
                   "empty": torch.zeros(0, 5), "\u00e9": floats[:2].clone()}
        path = self.folder / "model.safetensors"
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
        listed = {name: (kind, shape) for name, kind, shape, _ in json.loads(probe("list", path))["tensors"]}
        self.assertEqual(set(listed), set(tensors))
        windows = Windows(4)
        for name, tensor in tensors.items():
            self.assertEqual(listed[name][1], list(tensor.shape))
            windows.add_many(name, tensor.float())
        windows.check(self, path)
        windows.check(self, self.folder)  # the folder means the same file

    def test_shards(self):
        names = {f"layer.{i}.weight": torch.randn(9, 17, dtype=torch.bfloat16) for i in range(7)}
        shards = {f"model-{1 + i % 3:05}-of-00003.safetensors": {} for i in range(3)}
        index = {}
        for i, (name, tensor) in enumerate(names.items()):
            file = f"model-{1 + i % 3:05}-of-00003.safetensors"
            shards[file][name], index[name] = tensor, file
        for file, content in shards.items():
            safetensors.torch.save_file(content, self.folder / file)
        write_index = (self.folder / "model.safetensors.index.json").write_text
        write_index(json.dumps({"metadata": {"total_size": 9, "more": [{"deep": [1]}]}, "weight_map": index}))
        windows = Windows(6)
        for name, tensor in names.items():
            windows.add_many(name, tensor.float(), count=3)
        windows.check(self, self.folder)
        self.assertEqual([pathlib.Path(path).name for path in json.loads(probe("list", self.folder))["paths"]], sorted(shards))
        # Named in another shard than the one that holds it.
        swapped = dict(index, **{"layer.0.weight": index["layer.1.weight"]})
        write_index(json.dumps({"weight_map": swapped}))
        probe("list", self.folder, code=65)

    def test_memory_of_loading(self):
        """Peak above the start, over what is kept: one large tensor and many small ones, with and without conversion."""
        large = torch.randn(2 ** 14, 2 ** 11).to(torch.bfloat16)  # 64 MiB
        small = {f"{i}": torch.randn(1024, 1024).to(torch.bfloat16) for i in range(32)}
        path = self.folder / "large.safetensors"
        safetensors.torch.save_file({"large": large, **small}, path)
        for dtype in ("f32", "bf16"):
            got = json.loads(probe("memory", path, dtype))
            ratio = got["peak"] / got["kept"]
            print(f"memory of loading bf16 into {dtype}: {ratio:.3f} of {got['kept'] >> 20} MiB, {got['seconds']:.3f} s")
            self.assertLess(ratio, 1.25)
            self.assertGreater(ratio, 0.9)  # else the measurement is broken


if __name__ == "__main__":
    unittest.main()
