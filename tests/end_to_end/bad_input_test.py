"""Bad input from outside, a table: what is broken, and the exit code it must give. Every case is refused with that code and
one message of the form "<problem> (<why>); <what to do>", within a second and 256 MB above the program's start-up, with
nothing on standard output and no results file, not even a half-made one.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from gguf_bytes import gguf
from tiny_world import EXPERIMENT, PROGRAM, World

GRAMMAR = re.compile(r"^magister: .+ \(.+\); .+$", re.DOTALL)
U64 = 2 ** 64 - 1
KEY = '{"id": "a", "text": "x"}\n'

# name, text of the experiment in place of the good one (or edits of it), exit code
YAML = [
    ("empty file", "", 78), ("a list", "- a\n", 78), ("a scalar", "name\n", 78), ("two documents", "name: a\n---\nname: b\n", 78),
    ("tab", "name:\tx\n\t- y", 78), ("unclosed", "name: [a, b\n", 78), ("not UTF-8", b"name: \xff\xfe\n", 78), ("NUL", b"name: a\0b\n", 78),
    ("deep nesting", "name: " + "[" * 5000 + "]" * 5000, 78), ("larger than 1 MiB", "# " + "x" * (1 << 20), 78),
    ("alias bomb", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]\n", 78),
]
EDITS = [
    ("repeated key", "name: {n}", "name: {n}\nname: other", 78), ("unknown key", "devices: cpu", "device: cpu", 78),
    ("top_k as text", "top_k: 8", "top_k: many", 78), ("octal look", "top_k: 8", "top_k: 010", 78), ("zero", "top_k: 8", "top_k: 0", 78),
    ("negative", "top_k: 8", "top_k: -1", 78), ("fraction", "top_k: 8", "top_k: 8.5", 78), ("NaN", "top_k: 8", "top_k: .nan", 78),
    ("2^64", "top_k: 8", "top_k: 18446744073709551616", 78), ("yes for a name", "name: {n}", "name: yes", 78),
    ("name that climbs", "name: {n}", "name: ../x", 78), ("tag", "top_k: 8", "top_k: !!python/object 8", 78),
    ("top_k over the vocabulary", "top_k: 8", "top_k: 100000", 78), ("max_length over the positions", "max_length: 512", "max_length: 5000", 78),
    ("stride without window", "top_k: 8", "top_k: 8\n    stride: 4", 78), ("slice 2/2", "top_k: 8", "top_k: 8\n    slice: 2/2", 78),
    ("slice without number", "top_k: 8", "top_k: 8\n    slice: x/y", 78), ("unknown task", "task: teacher_logits", "task: teach", 78),
    ("dtype f64", "dtype: f32", "dtype: f64", 78), ("int8 in groups of 33", "dtype: f32", "dtype: f32, quantization: int8, quantization_group: 33", 78),
    ("text and tokens", "key: id", "key: id, text: text, tokens: ids", 78), ("messages", "key: id", "key: id, messages: m", 78),
    ("empty list of files", "dataset: {{path: {d}", "dataset: {{path: []", 78), ("a GPU by number", "devices: cpu", "devices: [0]", 78),
    ("no such model", "model: {{path: {m}", "model: {{path: /nowhere/model", 74), ("no such data", "dataset: {{path: {d}", "dataset: {{path: /nowhere.jsonl", 74),
    ("glob without a match", "dataset: {{path: {d}", "dataset: {{path: /nowhere/*.jsonl", 74),
    ("a damaged table", "dataset: {{path: {d}", "dataset: {{path: {d}.parquet", 65),
]
DATA = [
    ("not JSON", KEY + "hello\n", 65), ("cut in the middle", KEY + '{"id": "b", "te', 65), ("a list", KEY + '["a"]\n', 65), ("a number", "5\n", 65),
    ("no text field", KEY + '{"id": "b"}\n', 65), ("text is a number", '{"id": "a", "text": 5}\n', 65), ("text is null", '{"id": "a", "text": null}\n', 65),
    ("no key field", '{"text": "x"}\n', 65), ("key is an object", '{"id": {}, "text": "x"}\n', 65),
    ("not UTF-8", b'{"id": "a", "text": "\xff\xfe"}\n', 65), ("lone surrogate", '{"id": "a", "text": "\\ud800"}\n', 65),
    ("control character", '{"id": "a", "text": "\x01"}\n', 65), ("deep", '{"id": "a", "text": ' + "[" * 100000 + "]" * 100000 + "}\n", 65),
    ("text twice", '{"id": "a", "text": "x", "text": "y"}\n', 65), ("two values in a line", KEY.strip() + KEY, 65), ("UTF-16", KEY.encode("utf-16"), 65),
    ("BOM alone inside", KEY + "\ufeff\n", 65), ("binary", bytes(range(256)) * 40, 65),
]
CONFIG = [
    ("empty", "", 65), ("not JSON", "{", 65), ("a list", "[]", 65), ("unknown architecture", {"architectures": ["FancyForCausalLM"], "model_type": "fancy"}, 65),
    ("no hidden_size", {"hidden_size": None}, 65), ("hidden_size 0", {"hidden_size": 0}, 65), ("hidden_size negative", {"hidden_size": -48}, 65),
    ("hidden_size 2^40", {"hidden_size": 2 ** 40}, 65), ("hidden_size as text", {"hidden_size": "48"}, 65), ("layers 10^9", {"num_hidden_layers": 10 ** 9}, 65),
    ("one layer too many", {"num_hidden_layers": 3}, 65), ("one layer too few", {"num_hidden_layers": 1}, 65),
    ("heads that kv heads do not divide", {"num_key_value_heads": 4}, 65), ("vocabulary of another size", {"vocab_size": 1000}, 65),
    ("activation", {"hidden_act": "gelu"}, 65), ("rope of another kind", {"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, 65),
]


def tensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"a": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


SAFETENSORS = [
    ("empty", b"", 65), ("seven bytes", b"\0" * 7, 65), ("length 2^64-1", tensors({}, length=U64), 65), ("length 2^63", tensors({}, length=2 ** 63), 65),
    ("length over the file", tensors({}, length=100), 65), ("length over the limit", struct.pack("<Q", 100_000_001) + b"{" + b" " * 64, 65),
    ("header not JSON", tensors(b"{xx}"), 65), ("header a list", tensors([]), 65), ("deep header", tensors(b"[" * 50000), 65),
    ("offsets over the file", tensors(entry(offsets=(0, 1 << 40)), b"\0" * 16), 65), ("offsets reversed", tensors(entry(offsets=(16, 0)), b"\0" * 16), 65),
    ("negative offset", tensors(entry(offsets=(-16, 0)), b"\0" * 16), 65), ("offset as fraction", tensors(entry(offsets=(0, 16.5)), b"\0" * 16), 65),
    ("shape and bytes disagree", tensors(entry(shape=(5,)), b"\0" * 16), 65), ("shape overflows", tensors(entry(shape=(2 ** 62, 2 ** 62)), b"\0" * 16), 65),
    ("negative shape", tensors(entry(shape=(-4,)), b"\0" * 16), 65), ("unknown dtype", tensors(entry(dtype="F7"), b"\0" * 16), 65),
    ("hole after the tensors", tensors(entry(), b"\0" * 32), 65), ("cut in the data", tensors(entry(), b"\0" * 8), 65), ("tensors of another model", tensors(entry(), b"\0" * 16), 65),
]
TOKENIZER = [
    ("empty", "", 65), ("not JSON", "{", 65), ("a list", "[]", 65), ("unigram", {"model": {"type": "Unigram", "vocab": []}}, 65),
    ("unknown pre-tokenizer", {"pre_tokenizer": {"type": "Metaspace2"}}, 65), ("unknown normalizer", {"normalizer": {"type": "Magic"}}, 65),
    ("merge of an unknown token", {"merges": [["qqqq", "zzzz"]]}, 65), ("id twice", {"vocab": {"a": 0, "b": 0}}, 65), ("negative id", {"vocab": {"a": -1}}, 65),
    ("ids beyond the model", {"vocab": {"a": 2 ** 40}}, 65),
]
GGUF = [
    ("empty", b"", 65), ("magic alone", b"GGUF", 65), ("wrong magic", b"FUGG" + b"\0" * 64, 65), ("version 99", gguf(version=99), 65),
    ("2^63 tensors", gguf(num_tensors=2 ** 63), 65), ("2^63 keys", gguf(num_keys=2 ** 63), 65), ("one key too many", gguf(num_keys=9), 65),
    ("string of 2^63 bytes", gguf(keys=[("general.name", 8, struct.pack("<Q", 2 ** 63))]), 65), ("array of 2^60 entries", gguf(keys=[("x", 9, struct.pack("<IQ", 4, 2 ** 60))]), 65),
    ("nested array", gguf(keys=[("x", 9, struct.pack("<IQ", 9, 1) * 200)]), 65), ("unknown value type", gguf(keys=[("x", 77, b"\0" * 8)]), 65),
    ("no architecture", gguf(keys=[]), 65), ("unknown architecture", gguf(keys=[("general.architecture", 8, struct.pack("<Q", 5) + b"fancy")]), 65),
    ("alignment 3", gguf(extra=[("general.alignment", 4, struct.pack("<I", 3))]), 65), ("alignment 2^30", gguf(extra=[("general.alignment", 4, struct.pack("<I", 2 ** 30))]), 65),
    ("nine dimensions", gguf(tensors=[("t", [1] * 9, 0, 0)]), 65), ("dimensions overflow", gguf(tensors=[("t", [2 ** 42 + 1, 2 ** 42], 0, 0)]), 65),
    ("unknown tensor type", gguf(tensors=[("t", [4], 199, 0)]), 65), ("offset over the file", gguf(tensors=[("t", [4], 0, 2 ** 40)]), 65),
    ("offset not aligned", gguf(tensors=[("t", [4], 0, 3)], data=b"\0" * 64), 65), ("tensor twice", gguf(tensors=[("t", [4], 0, 0), ("t", [4], 0, 32)], data=b"\0" * 64), 65),
    ("cut everywhere", gguf()[:-5], 65),
]

# A process's peak memory counts what its parent had in memory when it was started, and this one holds torch: a small one starts it.
LAUNCHER = """import os, sys
child = os.fork()
if child == 0:
    os.close(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
os.write(int(sys.argv[1]), f"{status} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss}".encode())
"""


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name, records=3)
        begin = time.monotonic()
        pathlib.Path(f"{cls.world.data}.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
        cls.world.complete("x", 0)  # the good one is good
        cls.world.forget("x")
        cls.report = os.pipe()
        cls.start_seconds, cls.start_bytes = cls.measure([PROGRAM, "--version"])[2:]
        print(f"start-up {cls.start_seconds:.2f} s, {cls.start_bytes >> 20} MiB; a good run {time.monotonic() - begin:.2f} s")
        cls.cases = 0

    @classmethod
    def measure(cls, command):
        """-> exit code, (output, messages), processor seconds (a busy machine changes them little), peak bytes of the process."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
            launcher = subprocess.Popen([sys.executable, "-I", "-S", "-c", LAUNCHER, str(cls.report[1]), *map(str, command)], cwd=cls.world.folder,
                                        env=cls.world.environment, stdout=output, stderr=messages, pass_fds=(cls.report[1],))
            launcher.wait()
            status, seconds, kilobytes = os.read(cls.report[0], 200).split()
            output.seek(0)
            messages.seek(0)
            text = output.read().decode(errors="replace"), messages.read().decode(errors="replace")
        return os.waitstatus_to_exitcode(int(status)), text, float(seconds), int(kilobytes) * 1024

    def refused(self, name, experiment, code):
        path = self.world.folder / "x.yaml"
        path.write_bytes(experiment if isinstance(experiment, bytes) else experiment.encode())
        found, (output, messages), seconds, peak = self.measure([PROGRAM, "run", path])
        with self.subTest(name):
            type(self).cases += 1
            self.assertEqual(found, code, messages[:2000])
            lines = messages.splitlines()
            self.assertEqual(len(lines), 1, messages[:2000])
            self.assertRegex(lines[0], GRAMMAR)
            self.assertTrue(lines[0].isprintable())
            self.assertEqual(output, "")
            self.assertLess(seconds - self.start_seconds, 5.0)  # of a processor that others share
            self.assertLess(peak - self.start_bytes, 256 << 20)
            self.assertEqual([str(left) for left in (self.world.folder / "runs").rglob("*.h5*") if not left.name.endswith(".lock")], [])
        shutil.rmtree(self.world.folder / "runs", ignore_errors=True)

    def good(self, model=None, data=None):
        return EXPERIMENT.format(name="x", runs=self.world.folder / "runs", model=model or self.world.model, data=data or self.world.data)

    def broken_model(self):
        folder = self.world.folder / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.world.model, folder)
        return folder

    def test_experiments(self):
        for name, text, code in YAML:
            self.refused(f"yaml: {name}", text, code)
        for name, old, new, code in EDITS:
            names = dict(n="x", m=self.world.model, d=self.world.data)
            old, new = old.format(**names), new.format(**names)
            self.assertIn(old, self.good(), name)
            self.refused(f"experiment: {name}", self.good().replace(old, new, 1), code)

    def test_data(self):
        path = self.world.folder / "bad.jsonl"
        for name, text, code in DATA:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            self.refused(f"data: {name}", self.good(data=path), code)
        path.unlink()
        os.mkfifo(path)
        self.refused("data: a FIFO", self.good(data=path), 74)
        path.unlink()
        path.mkdir()
        self.refused("data: a folder", self.good(data=path), 74)

    def test_model_folders(self):
        for name, change, code in CONFIG:
            folder = self.broken_model()
            if isinstance(change, dict):
                config = json.loads((folder / "config.json").read_text())
                config.update(change)
                change = json.dumps({key: value for key, value in config.items() if value is not None})
            (folder / "config.json").write_text(change)
            self.refused(f"config.json: {name}", self.good(model=folder), code)
        for name, content, code in SAFETENSORS:
            folder = self.broken_model()
            (folder / "model.safetensors").write_bytes(content)
            self.refused(f"safetensors: {name}", self.good(model=folder), code)
        for missing, code in {"config.json": 65, "model.safetensors": 74, "tokenizer.json": 65}.items():
            folder = self.broken_model()
            (folder / missing).unlink()
            self.refused(f"without {missing}", self.good(model=folder), code)
        folder = self.broken_model()
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
        self.refused("index that climbs", self.good(model=folder), 65)

    def test_tokenizers(self):
        for name, change, code in TOKENIZER:
            folder = self.broken_model()
            if isinstance(change, dict):
                tokenizer = json.loads((folder / "tokenizer.json").read_text())
                for key, value in change.items():
                    (tokenizer if key in tokenizer else tokenizer["model"])[key] = value
                change = json.dumps(tokenizer)
            (folder / "tokenizer.json").write_text(change)
            self.refused(f"tokenizer.json: {name}", self.good(model=folder), code)

    def test_gguf_files(self):
        path = self.world.folder / "bad.gguf"
        for name, content, code in GGUF:
            path.write_bytes(content)
            self.refused(f"gguf: {name}", self.good(model=path), code)

    def test_partial_files(self):
        folder = self.world.folder / "runs/x"
        for name, content, codes in (("empty", b"", (65, 74)), ("not HDF5", b"x" * 5000, (65, 74)), ("cut", None, (65, 74))):
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / "teacher.h5.partial"
            if content is None:
                self.world.complete("x", 0)
                content = (folder / "teacher.h5").read_bytes()[:3000]
                (folder / "teacher.h5").unlink()
            partial.write_bytes(content)
            found, (_, messages), _, _ = self.measure(self.world.command("x", 0))
            with self.subTest(f".partial: {name}"):
                type(self).cases += 1
                self.assertIn(found, codes, messages)
                self.assertEqual(len(messages.splitlines()), 1, messages)
                self.assertEqual(partial.read_bytes(), content, "it is never overwritten")
            shutil.rmtree(folder)

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.cases} cases of bad input")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(unittest.main(verbosity=2))
