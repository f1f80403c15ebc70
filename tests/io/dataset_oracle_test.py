"""Data sets against Python's json, splitlines and hashlib: random records in every spelling that JSON allows, plain text in
many scripts, and the time and memory of a large file.
"""
import gzip
import hashlib
import json
import os
import pathlib
import random
import sys
import tempfile
import unittest

import zstandard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from probe_cases import run_case  # noqa: E402

PROBE = os.environ.get("IO_PROBE") or str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/io_probe")


def records(**settings):
    """-> (records as tuples, summary)"""
    done = run_case([PROBE, "records", json.dumps(settings)], text=True)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
    *lines, summary = done.stdout.splitlines()
    unhex = bytes.fromhex
    return [(i, unhex(key).decode(), unhex(text).decode(), tokens, where) for i, key, text, tokens, where in map(json.loads, lines)], json.loads(summary)


class Spelling:
    """Random JSON values and texts, and one of the many ways to write them."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self):
        ranges = [(32, 126), (1, 31), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF), (0x4E00, 0x9FFF)]
        low, high = self.random.choice(ranges)
        return "".join(chr(self.random.randint(low, high)) for _ in range(self.random.choice((0, 1, 5, 40))))

    def value(self, depth=0):
        kind = self.random.randint(0, 7 if depth < 4 else 4)
        if kind >= 6:
            return {self.text() + str(i): self.value(depth + 1) for i in range(self.random.randint(0, 4))}
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 4))]
        return [None, True, self.random.randint(-(2**63), 2**64 - 1), self.random.random() * 1e10, self.text()][kind]

    def write(self, value):
        separators = self.random.choice(((",", ":"), (", ", ": "), (" ,\t", "\t: ")))
        line = json.dumps(value, ensure_ascii=self.random.random() < 0.5, separators=separators)
        return self.random.choice(("", " ", "\t")) + line + self.random.choice(("", " ", "\r"))


class DatasetOracle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_jsonl(self):
        spelling = Spelling(1)
        objects = []
        for i in range(4000):
            fields = [("body", spelling.text()), ("key", spelling.random.choice((spelling.text(), i, -i))),
                      ("ids", [spelling.random.randint(0, 2**31 - 1) for _ in range(spelling.random.randint(0, 9))])]
            fields += [(f"x{j}", spelling.value()) for j in range(spelling.random.randint(0, 20))]
            spelling.random.shuffle(fields)
            objects.append(dict(fields))
        content = "\n".join(spelling.write(value) for value in objects).encode()
        path = self.folder / "random.jsonl"
        path.write_bytes(content)
        got, summary = records(paths=[str(path)], text="body", key="key")
        self.assertEqual(summary["sha256"], hashlib.sha256(content).hexdigest())
        self.assertEqual(summary["records"], len(objects))
        self.assertEqual([(i, key, text, where) for i, key, text, _, where in got],
                         [(i, str(value["key"]), value["body"], f"{path}:{i + 1}") for i, value in enumerate(objects)])
        got, _ = records(paths=[str(path)], tokens="ids", limit=1234)
        self.assertEqual([tokens for _, _, _, tokens, _ in got], [value["ids"] for value in objects[:1234]])

    def test_blank_lines_and_any_number(self):
        """json.loads of every line that is not blank, in a plain file and compressed: NUL in texts, whole numbers of any length, 1e400."""
        spelling = Spelling(3)
        lines, wanted = [], []
        for i in range(1500):
            lines += [spelling.random.choice(("", " ", "\t \r", "\r")) for _ in range(spelling.random.choice((0, 0, 1, 4)))]
            digits = str(spelling.random.randint(1, 9)) + "".join(spelling.random.choices("0123456789", k=spelling.random.choice((3, 18, 19, 20, 60, 400))))
            fields = [f'"key": {spelling.random.choice(("", "-"))}{digits}', f'"body": {json.dumps(spelling.text() + spelling.random.choice(("", chr(0))))}',
                      f'"x": {spelling.random.choice(("1e400", "-2.5E+999", "1e-400", "[1e309, {}]", digits))}', '"y": "1e400"', '"a": {"b": [' + digits + "]}"]
            spelling.random.shuffle(fields)
            lines.append("{" + ", ".join(fields) + "}")
            wanted.append((json.loads(lines[-1]), len(lines)))
        content = "\n".join([*lines, "", " "]).encode()
        for name, data in (("any.jsonl", content), ("any.jsonl.gz", gzip.compress(content)), ("any.jsonl.zst", zstandard.ZstdCompressor().compress(content))):
            path = self.folder / name
            path.write_bytes(data)
            for key, of in (("key", lambda one: one["key"]), ("a.b[0]", lambda one: one["a"]["b"][0])):
                got, summary = records(paths=[str(path)], text="body", key=key)
                self.assertEqual(summary["records"], len(wanted))
                self.assertEqual([(key, text, where) for _, key, text, _, where in got], [(str(of(one)), one["body"], f"{path}:{line}") for one, line in wanted])

    def test_text(self):
        spelling = Spelling(2)
        lines = ["".join(c for c in spelling.text() if c not in "\n\r\0") for _ in range(3000)]
        for end in ("\n", "\r\n"):
            path = self.folder / "random.txt"
            path.write_bytes(end.join(lines).encode() + end.encode())
            got, _ = records(paths=[str(path)])
            self.assertEqual([text for _, _, text, _, _ in got], lines)

    def test_quickstart_data(self):
        path = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / "configs/data/quickstart.jsonl"
        got, _ = records(paths=[str(path)], key="id")
        expected = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.assertEqual([(key, text) for _, key, text, _, _ in got], [(str(value["id"]), value["text"]) for value in expected])

    def test_large_file(self):
        """Time grows with the bytes and memory does not: 200,000 records of 600 bytes against a quarter of them."""
        piece = "".join(json.dumps({"id": i, "text": f"{i} " + "word " * 110}) + "\n" for i in range(10_000)).encode()
        measured = {}
        for pieces in (5, 20):
            path = self.folder / f"large{pieces}.jsonl"
            path.write_bytes(piece * pieces)
            _, measured[pieces] = records(paths=[str(path)], key="id", quiet=True)
            self.assertEqual(measured[pieces]["visited"], 10_000 * pieces)
            self.assertEqual(measured[pieces]["sha256"], hashlib.sha256(piece * pieces).hexdigest())
        large, small = measured[20], measured[5]
        print(f"200,000 records, {len(piece) * 20 >> 20} MiB: opened in {large['open_seconds']:.3f} s, read in "
              f"{large['seconds'] - large['open_seconds']:.3f} s, peak {large['peak'] >> 20} MiB (a quarter: {small['peak'] >> 20} MiB)")
        self.assertLess(large["peak"] - small["peak"], 8 << 20)


if __name__ == "__main__":
    unittest.main()
