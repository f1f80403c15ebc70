"""CSV, JSON and compressed files against Python's csv, json, gzip and zstandard; fields inside fields; folders and the hub's cache; arrays of
token ids in HDF5 files against h5py;
damaged and hostile files are refused with their place and the right exit code; time and memory of large files.
"""
import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import tempfile
import unittest

import h5py
import hub_layouts
import numpy
import zstandard
from dataset_oracle_test import PROBE, Spelling, records
from probe_cases import run_case


def refused(**settings):
    """-> (exit code, message)"""
    done = run_case([PROBE, "records", json.dumps({**settings, "quiet": True})], text=True)
    return done.returncode, done.stderr.strip()


class Formats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def assert_refused(self, path, code, *parts, **settings):
        got, message = refused(paths=[path], **settings)
        self.assertEqual(got, code, message)
        for part in parts:
            self.assertIn(part, message)
        self.assertRegex(message, r"^[^\n]* \(.*\); [^\n]*$")

    def texts(self, path, **settings):
        return [text for _, _, text, _, _ in records(paths=[path], **settings)[0]]


class Csv(Formats):
    def rows(self, count, seed=3):
        spelling = Spelling(seed)
        pieces = ["", ",", '"', "\n", "\r\n", '""', "a,b", " x ", "\t", "'", "1.5", "[1,2]"]
        field = lambda: spelling.random.choice(pieces) + spelling.text().replace("\0", "").replace("\r", "") + spelling.random.choice(pieces)
        return [{"id": str(i), "text": field(), "other": field()} for i in range(count)]

    def test_against_python(self):
        rows = self.rows(3000)
        for name, dialect, end in (("a.csv", "excel", "\r\n"), ("b.csv", "unix", "\n"), ("c.tsv", "excel-tab", "\n")):
            out = io.StringIO(newline="")
            writer = csv.DictWriter(out, ["id", "text", "other"], dialect=dialect, lineterminator=end)
            writer.writeheader()
            writer.writerows(rows)
            content = out.getvalue().encode()
            path = self.write(name, content)
            expected = list(csv.DictReader(io.StringIO(content.decode(), newline=""), dialect=dialect))
            self.assertEqual(expected, rows)
            got, summary = records(paths=[path], key="id")
            self.assertEqual(summary["sha256"], hashlib.sha256(content).hexdigest())
            self.assertEqual([(key, text) for _, key, text, _, _ in got], [(row["id"], row["text"]) for row in expected])
            whole = [json.loads(text) for text in self.texts(path, whole=True)]
            self.assertEqual(whole, expected)
            # Where a message says a row begins, it does.
            lines = content.split(b"\n")
            for index, key, _, _, where in got[:200]:
                line = int(where.rsplit(":", 1)[1])
                self.assertRegex(lines[line - 1].decode(), f'^"?{key}"?[,\t]')

    def test_forms(self):
        self.assertEqual(self.texts(self.write("bom.csv", b"\xef\xbb\xbftext,b\nx,1\n")), ["x"])
        self.assertEqual(self.texts(self.write("no_end.csv", "text\nx\n\n\r\ny")), ["x", "y"])
        self.assertEqual(self.texts(self.write("empty_field.csv", 'text,b\n"",1\n,2\n')), ["", ""])
        self.assertEqual(self.texts(self.write("header_only.csv", "text,b\n")), [])
        self.assertEqual(self.texts(self.write("quote_inside.csv", 'text,b\na"b",1\n')), ['a"b"'])
        self.assertEqual(self.texts(self.write("blank.csv", "text\nx\n" + "\n" * (3 << 20) + "y\n"), max_line_bytes=1 << 20), ["x", "y"])

    def test_refused(self):
        self.assert_refused(self.write("a.csv", "text,b\nx,1\ny\n"), 65, "a.csv:3: ", "1 fields", "2")
        self.assert_refused(self.write("b.csv", 'text\n"open\nx\n'), 65, "b.csv:2: ", "still open")
        self.assert_refused(self.write("c.csv", 'text\n"a"b\n'), 65, "c.csv:2: ", "after its closing quote")
        self.assert_refused(self.write("d.csv", "texts,b\nx,1\n"), 65, 'no column "text"', "texts, b", 'did you mean "texts"')
        self.assert_refused(self.write("e.csv", "text,text\nx,1\n"), 65, "e.csv:1: ", "there twice")
        self.assert_refused(self.write("f.csv", ""), 65, "no first row")
        self.assert_refused(self.write("g.csv", b"text\n\xff\xfe\n"), 65, "g.csv:2: ", "UTF-8")
        self.assert_refused(self.write("h.csv", b"text\na\0b\n"), 65, "h.csv:2: ", "NUL")
        self.assert_refused(self.write("i.csv", "text\na\rb\rc\n"), 65, "i.csv:2: ", "carriage return")
        self.assert_refused(self.write("j.csv", "text\n" + "x" * 5000 + "\n" + "y" * (3 << 20)), 65, "j.csv:3: ", "longer than", max_line_bytes=1 << 20)
        self.assert_refused(self.write("k.csv", b"\xff\xfet\0"), 65, "UTF-16")

    def test_any_range(self):
        """Records from the middle, reached through the index of a file of several blocks."""
        rows = self.rows(40_000, seed=4)
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, ["id", "text", "other"])
        writer.writeheader()
        writer.writerows(rows)
        path = self.write("large.csv", out.getvalue() + "".join(f"{i},{'word ' * 40},x\r\n" for i in range(40_000, 100_000)))
        self.assertGreater(os.path.getsize(path), 3 * (4 << 20))
        for begin in (0, 1, 25_000, 39_999, 60_001, 99_998):
            got, _ = records(paths=[path], key="id", range=[begin, begin + 2])
            self.assertEqual([key for _, key, *_ in got], [str(begin), str(begin + 1)])


class Json(Formats):
    def objects(self, count, seed=5):
        spelling = Spelling(seed)
        return [{"text": spelling.text(), "id": i, "more": spelling.value()} for i in range(count)]

    def test_against_python(self):
        objects = self.objects(2000)
        spelled = {"list.json": json.dumps(objects), "indented.json": json.dumps(objects, indent=2, ensure_ascii=False),
                   "lines.json": "\n".join(map(json.dumps, objects)), "spread.json": "\n\n".join(json.dumps(one, indent=1) for one in objects),
                   "marked.json": "\ufeff \n" + json.dumps(objects)}
        for name, content in spelled.items():
            path = self.write(name, content)
            got, summary = records(paths=[path], key="id")
            self.assertEqual(summary["sha256"], hashlib.sha256(content.encode()).hexdigest())
            self.assertEqual([(key, text) for _, key, text, _, _ in got], [(str(one["id"]), one["text"]) for one in objects], name)
            self.assertEqual([json.loads(text) for text in self.texts(path, whole=True)], objects)
        where = records(paths=[str(self.folder / "indented.json")])[0][1][4]
        line = int(where.rsplit(":", 1)[1])
        self.assertEqual(spelled["indented.json"].split("\n")[line - 1].strip(), "{")
        self.assertEqual(self.texts(self.write("empty.json", " [ ] \n")), [])

    def test_any_range(self):
        path = self.write("large.json", json.dumps([{"text": f"{i} " + "word, {[" * 30, "id": i} for i in range(60_000)], indent=1))
        self.assertGreater(os.path.getsize(path), 3 * (4 << 20))
        for begin in (0, 1, 30_000, 59_998):
            got, _ = records(paths=[path], key="id", range=[begin, begin + 2])
            self.assertEqual([key for _, key, *_ in got], [str(begin), str(begin + 1)])

    def test_refused(self):
        one = '{"text":"a"}'
        for content, parts in ((f"[{one}", (":1: ", "cut off")), (f"[{one},\n{one[:-1]}", (":2: ", "inside this object")), (f"[{one}{one}]", ("a comma",)),
                               (f"[{one},]", ("an object begins",)), (f"[{one}] x", ("nothing may follow",)), ("[1]", ("an object begins",)),
                               (f"[\n{one},\n[]]", (":3: ",)), ("", ()), ("[" * 100_000, ("an object begins",)),
                               ('[{"x":' + "[" * 100_000 + "]" * 100_000 + "}]", ("nested deeper",)), ('[{"text":"a","text":"b"}]', ("twice",)),
                               ("[\n\n{\"text\":1}]", (":3: ", "a number")), ('[{"text":"a"]]', ())):
            if content:
                self.assert_refused(self.write("a.json", content), 65, *parts)
        self.assert_refused(self.write("b.json", '[{"text":"' + "x" * (3 << 20)), 65, "longer than", max_line_bytes=1 << 20)


class Compressed(Formats):
    LINES = "".join(json.dumps({"id": i, "text": f"{i} " + "word " * (i % 50)}) + "\n" for i in range(30_000)).encode()

    def test_against_python(self):
        compress = zstandard.ZstdCompressor
        files = {"a.jsonl.gz": gzip.compress(self.LINES), "b.jsonl.zst": compress().compress(self.LINES),
                 # several members and frames, cut inside a line, and padding
                 "c.jsonl.gz": gzip.compress(self.LINES[:1000]) + gzip.compress(b"") + gzip.compress(self.LINES[1000:]) + b"\0" * 512,
                 "d.jsonl.zst": compress().compress(self.LINES[:1000]) + b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip" + compress(write_checksum=True).compress(self.LINES[1000:])}
        expected = [json.loads(line)["text"] for line in self.LINES.splitlines()]
        for name, content in files.items():
            path = self.write(name, content)
            got, summary = records(paths=[path], key="id")
            self.assertEqual([text for _, _, text, _, _ in got], expected, name)
            self.assertEqual(summary["sha256"], hashlib.sha256(content).hexdigest())
            self.assertEqual(got[77][4], f"{path}:78")
            self.assertEqual(records(paths=[path], key="id", range=[29_999, 30_000])[0][0][1], "29999")
        self.assertEqual(self.texts(self.write("e.txt.gz", gzip.compress(b"one\r\ntwo"))), ["one", "two"])
        self.assertEqual(self.texts(self.write("f.csv.zst", compress().compress(b'text,b\n"x\ny",1\n'))), ["x\ny"])
        self.assertEqual(self.texts(self.write("g.json.gz", gzip.compress(b'[{"text":"x"},{"text":"y"}]'))), ["x", "y"])
        self.assertEqual(self.texts(self.write("h.jsonl.gz", gzip.compress(b""))), [])

    def test_damaged(self):
        for name, whole in (("a.jsonl.gz", gzip.compress(self.LINES)), ("a.jsonl.zst", zstandard.ZstdCompressor(write_checksum=True).compress(self.LINES))):
            middle = bytearray(whole)
            middle[len(whole) // 2] ^= 0x55
            for content in (whole[:-1], whole[: len(whole) // 2], bytes(middle), whole + b"trailing", b"no compressed data at all", whole[:5], b""):
                self.assert_refused(self.write(name, content), 65, "data is damaged")
        # A frame of one byte that asks for a window of 1 GiB (RFC 8878, 3.1.1).
        self.assert_refused(self.write("long.jsonl.zst", b"\x28\xb5\x2f\xfd\x00\xa0\x09\x00\x00x"), 65, "data is damaged", "memory")

    def test_bomb(self):
        """1 GiB of one line out of 1 MB: refused by its length, in bounded memory."""
        packer = zstandard.ZstdCompressor().compressobj()
        bomb = b"".join(packer.compress(b"x" * (1 << 20)) for _ in range(1 << 10)) + packer.flush()
        self.assert_refused(self.write("bomb.txt.zst", bomb), 65, "longer than", max_line_bytes=8 << 20)

    def test_memory(self):
        piece = self.LINES
        peaks = {}
        for pieces in (4, 16):
            path = self.write("large.jsonl.gz", gzip.compress(piece * pieces, 1))
            _, summary = records(paths=[path], key="id", quiet=True)
            self.assertEqual(summary["visited"], 30_000 * pieces)
            peaks[pieces] = summary["peak"]
        self.assertLess(peaks[16] - peaks[4], 4 << 20)


class Fields(Formats):
    RECORD = {"a": {"b": [{"c": "inner", "n": [1, 2]}, {"c": "last"}], "k": 7}, "a.k": "dotted"}

    def test_paths(self):
        path = self.write("a.jsonl", json.dumps(self.RECORD) + "\n")
        self.assertEqual(self.texts(path, text="a.b[0].c"), ["inner"])
        self.assertEqual(self.texts(path, text="a.b[-1].c"), ["last"])
        self.assertEqual(self.texts(path, text="a.k"), ["dotted"])  # a field of this very name comes first
        got, _ = records(paths=[path], tokens="a.b[0].n", key="a.b[1].c")
        self.assertEqual(got[0][1:4], ("last", "", [1, 2]))

    def test_refused(self):
        path = self.write("a.jsonl", json.dumps(self.RECORD) + "\n")
        for field, part in (("a.b[2].c", "no entry 2 in a list of 2"), ("a.x", 'no "x" in an object that has b, k'), ("a.b.c", "which is no object"),
                            ("a[0]", "which is no list"), ("a.b[0].n", "is a list"), ("a..b", "no field"), ("a.b[x]", "no field")):
            self.assert_refused(path, 65, "a.jsonl:1: ", part, text=field)


class Folders(Formats):
    def make(self, names):
        for i, name in enumerate(names):
            self.write(name, json.dumps({"text": str(i)}) + "\n")

    def test_splits(self):
        self.make(["hub/data/train-00000-of-00002.jsonl", "hub/data/train-00001-of-00002.jsonl", "hub/data/test-00000-of-00001.jsonl", "hub/README.md", "hub/data/training.jsonl"])
        hub = str(self.folder / "hub")
        self.assertEqual(self.texts(hub), ["0", "1"])
        self.assertEqual(self.texts(hub, split="test"), ["2"])
        self.assert_refused(hub, 65, "no file of the split dev", "test, train", split="dev")
        self.assert_refused(str(self.folder / "hub/data/training.jsonl"), 78, "no folder", split="test")
        (self.folder / "hub/data/train-00000-of-00002.jsonl").unlink()
        self.assert_refused(hub, 65, "a shard is missing")
        self.make(["flat/train.jsonl", "flat/test.jsonl"])
        self.assertEqual(self.texts(str(self.folder / "flat")), ["0"])
        six = [f"six/train-{i:06d}-of-000003.jsonl" for i in range(3)]
        self.make(six)
        self.assertEqual(self.texts(str(self.folder / "six")), ["0", "1", "2"])
        (self.folder / six[1]).unlink()
        self.assert_refused(str(self.folder / "six"), 65, "a shard is missing")
        self.make(["unread/train-1.jsonl", "unread/train-2.jsonl.xz", "unread/train.md"])
        self.assert_refused(str(self.folder / "unread"), 65, "train-2.jsonl.xz", "would be left out")
        self.make(["copies/train.jsonl", "copies/train.jsonl.gz"])
        self.assert_refused(str(self.folder / "copies"), 65, "train.jsonl and train.jsonl.gz", "twice")
        self.make(["other/x.jsonl", "other/y.json", "empty/LICENSE.md"])
        for other in ("other", "empty"):
            self.assert_refused(str(self.folder / other), 74, "is a folder", "*.jsonl")

    def test_of_the_hub(self):
        """The files and the order of load_dataset, whose answers hub_layouts.py has asked for."""
        for i, (name, (files, card, reads)) in enumerate(hub_layouts.LAYOUTS.items()):
            folder = self.folder / str(i)
            hub_layouts.make(folder, files, card)
            for config, split, order in reads:
                with self.subTest(name, config=config, split=split):
                    self.assertEqual(self.texts(str(folder), config=config, split=split), hub_layouts.expected(order))
        print(f"{len(hub_layouts.LAYOUTS)} folders of the hub, {sum(len(reads) for _, _, reads in hub_layouts.LAYOUTS.values())} reads as load_dataset has them")

    def test_configurations_are_asked_for(self):
        self.make(["two/en/train/0.jsonl", "two/de/train/0.jsonl", "two/train-0.jsonl", "two/en/test.csv", "two/en/test.jsonl"])
        two = str(self.folder / "two")
        self.assert_refused(two, 78, "several configurations (de, en: ", "dataset.config")
        self.assert_refused(two, 78, "no configuration fr", "it has: de, en", config="fr")
        for outside in ("..", "/tmp", "en/../../two/en"):
            self.assert_refused(two, 78, "no configuration", config=outside)
        self.assert_refused(two + "/train-0.jsonl", 78, "dataset.config is en", "no folder", config="en")
        self.assert_refused(two, 65, "no file of the split test", "there are: train", config="en", split="test")
        os.rename(f"{two}/en/train", f"{two}/raw")
        self.assert_refused(two, 65, "test.csv and test.jsonl are of different kinds", config="en", split="test")
        self.make(["places/train.jsonl", "places/data/train.jsonl"])
        self.assert_refused(str(self.folder / "places"), 78, "several configurations (the folder itself, data: ")
        # save_to_disk of two configurations: each is a folder of its own
        self.write("saved/en/x.arrow", "no table")
        self.write("saved/en/state.json", '{"_data_files":[{"filename":"x.arrow"}]}')
        self.assert_refused(str(self.folder / "saved"), 65, "x.arrow", config="en")

    def test_readme(self):
        def says(configs, code, *parts, **settings):
            hub_layouts.make(self.folder / "r", ["a/1", "b/1"], hub_layouts.CARD.format(configs))
            self.assert_refused(str(self.folder / "r"), code, *parts, **settings)

        two = "- config_name: one\n  data_files: a/*\n- config_name: two\n  data_files: b/*\n"
        says(two, 78, "none of its configurations is the one that is read unless asked (its README.md has: one, two)")
        says(two, 78, "is called three (its README.md has: one, two)", config="three")
        says(two + "  default: true\n- config_name: default\n", 78, "several of its configurations")
        says(two, 65, "no file for the split test of the configuration one", "the splits are: train", config="one", split="test")
        for entry, part in (("sep: ';'", "configs.0.sep is ;"), ("features: [{name: x, dtype: int8}]", "configs.0.features.0.name"), ("data_dir: ../b", "configs.0.data_dir is ../b"),
                            ("data_files: /etc/passwd", "configs.0.data_files is /etc/passwd"), ("data_files: hf://datasets/x/y.jsonl", "is hf://"),
                            ("data_files: [a/*, '']", "configs.0.data_files.1 is "), ("data_files: [{split: train}]", "lacks its config_name, or a split or path"),
                            ("data_files: [{path: a/*}]", "lacks its config_name, or a split or path"), ("data_files: [{split: train, path: a/*, sep: x}]", "data_files.0.sep"),
                            ("data_files: [{split: train, path: {a: b}}]", "path.a"), ("data_files: &x a/*", "an anchor &x"), ("data_files: [", "README.md:"), ("data_files: c/*", "no file for the split train"), ("data_files: [a/*, a/1*]", "names a/1.jsonl twice")):
            with self.subTest(entry):
                says("- config_name: one\n  " + entry, 65, part)
        says("  one", 65, "configs is one")
        says("- one", 65, "configs.0 is one")
        says("  99999999999999: {config_name: x}", 65, "configs.99999999999999.config_name is x")
        says("- data_files: a/*", 65, "lacks its config_name")
        self.write("r/README.md", b"---\n" + b"#" * (17 << 20))
        self.assert_refused(str(self.folder / "r"), 65, "its head names the configurations")
        # Links that go round.
        (self.folder / "r/README.md").unlink()
        (self.folder / "r/c").symlink_to(self.folder / "r")
        self.assert_refused(str(self.folder / "r"), 65, "more than 16 levels")

    def test_cache_of_the_hub(self):
        home = self.folder / "cache/datasets--me--stories"
        self.make([f"cache/datasets--me--stories/snapshots/abc/{name}" for name in ("data/train-00000-of-00001.jsonl", "main/test.jsonl", "x.jsonl")])
        (home / "refs").mkdir()
        (home / "refs/main").write_text("abc")
        os.environ["HF_HUB_CACHE"] = str(self.folder / "cache")
        self.addCleanup(os.environ.pop, "HF_HUB_CACHE")
        self.assertEqual(self.texts("me/stories"), ["0"])
        self.assertEqual(self.texts("me/stories/main", split="test"), ["1"])
        self.assertEqual(self.texts("me/stories/x.jsonl"), ["2"])
        self.assertEqual(self.texts("me/stories/*.jsonl"), ["2"])
        # A folder that stands there is meant before the cache, by a pattern, too.
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        self.write("me/stories/y.jsonl", '{"text":"here"}\n')
        os.chdir(self.folder)
        self.assertEqual(self.texts("me/stories/*.jsonl"), ["here"])
        os.chdir(before)
        self.assert_refused("me/poems", 74, "hf download --repo-type dataset me/poems")


class TokenArrays(Formats):
    """Arrays of token ids in HDF5 files that h5py has written."""
    IDS = [[int(value) for value in numpy.random.default_rng(7 + i).integers(0, 50000, i % 9)] for i in range(70)]

    def write_arrays(self, name, **arrays):
        """An array, or one and the options it is stored with."""
        path = self.folder / name
        with h5py.File(path, "w") as file:
            for key, given in arrays.items():
                data, options = given if isinstance(given, tuple) else (given, {})
                file.create_dataset(key, data=data, **options)
        return str(path)

    def lists(self, path, **settings):
        return [tokens for _, _, _, tokens, _ in records(paths=[path], **settings)[0]]

    def test_against_h5py(self):
        width, lengths = max(map(len, self.IDS)), [len(ids) for ids in self.IDS]
        rows, flat = numpy.full((len(self.IDS), width), -100), numpy.concatenate([numpy.array(ids) for ids in self.IDS])
        for row, ids in zip(rows, self.IDS):
            row[:len(ids)] = ids
        ends = numpy.concatenate([[0], numpy.cumsum(lengths)])
        stored = dict(chunks=(7, 3), compression="gzip", shuffle=True)
        for kind in ("<i4", ">i8", "<i8"):
            path = self.write_arrays("rows.h5", **{"data/ids": (rows.astype(kind), stored), "n": numpy.array(lengths, "u1")})
            self.assertEqual(self.lists(path, tokens="data/ids", lengths="n"), self.IDS)
        for kind in ("<u2", ">u4", "<u8"):
            path = self.write_arrays("flat.h5", **{"input_ids": (flat.astype(kind), dict(chunks=(11,), compression="gzip")), "at": ends.astype("<i8")})
            self.assertEqual(self.lists(path, tokens="input_ids", offsets="at"), self.IDS)
        whole = numpy.random.default_rng(1).integers(0, 1000, (6, 5))
        path = self.write_arrays("whole.h5", tokens=whole)
        self.assertEqual(self.lists(path, tokens="tokens"), whole.tolist())
        self.assertEqual(self.lists(path, tokens="tokens", limit=4), whole[:4].tolist())
        self.assertEqual(self.lists(path, tokens="/tokens"), whole.tolist())
        self.assertEqual(records(paths=[path], tokens="tokens")[0][5][4], f"{path}: row 5")
        self.assertEqual(self.lists(self.write_arrays("none.h5", t=numpy.zeros((0, 4), "i4")), tokens="t"), [])

    def test_newer_formats(self):
        """Files that HDF5 1.10 and newer write by libver: superblock 3, and an index of chunks for each kind of array."""
        whole = numpy.random.default_rng(2).integers(0, 1000, (41, 6)).astype("i4")
        kinds = {"contiguous": {}, "one_chunk": dict(chunks=(41, 6)), "fixed": dict(chunks=(5, 4)), "extensible": dict(chunks=(5, 4), maxshape=(None, 6)),
                 "both_ways": dict(chunks=(5, 4), maxshape=(None, None)), "packed": dict(chunks=(5, 4), compression="gzip", shuffle=True, maxshape=(None, 6))}
        for bounds in (("earliest", "v110"), "v110"):
            path = self.folder / "newer.h5"
            with h5py.File(path, "w", libver=bounds) as file:
                for name, options in kinds.items():
                    file.create_dataset(name, data=whole, **options)
                file.create_dataset("part", (8, 12), "i4", chunks=(4, 12), maxshape=(None, 12))[:4] = 1
            for name in kinds:
                with self.subTest(name, bounds=bounds):
                    self.assertEqual(self.lists(str(path), tokens=name), whole.tolist())
            self.assert_refused(str(path), 65, "part [8, 12] is not written to its end", tokens="part")

    @unittest.skipIf(h5py.version.hdf5_version_tuple < (2, 0), "this h5py writes nothing that HDF5 1.10 and 1.14 cannot read")
    def test_newer_than_the_library(self):
        """HDF5 2.0 writes compressed data by another version of the layout: what it is, and the way out, which is then read."""
        whole = numpy.random.default_rng(3).integers(0, 1000, (41, 6)).astype("i4")
        path = self.folder / "newest.h5"
        for bounds, options, read in (("latest", {}, True), ("latest", dict(chunks=(5, 6)), True), ("latest", dict(chunks=(5, 6), compression="gzip"), False),
                                      (("earliest", "v114"), dict(chunks=(5, 6), compression="gzip"), True)):
            with self.subTest(bounds=bounds, **options):
                with h5py.File(path, "w", libver=bounds) as file:
                    file.create_dataset("ids", data=whole, **options)
                    if bounds == "latest":
                        file.swmr_mode = True
                if read:
                    self.assertEqual(self.lists(str(path), tokens="ids"), whole.tolist())
                else:
                    self.assert_refused(str(path), 65, "a newer HDF5 has written it", tokens="ids")
                    self.assert_refused(str(path), 65, 'libver=("earliest", "v114")', tokens="ids")

    def test_refused(self):
        ids = numpy.arange(12, dtype="i4")
        good = self.write_arrays("good.h5", t=ids.reshape(3, 4), flat=ids, n=numpy.array([4, 0, 3]), at=numpy.array([0, 5, 12]), f=ids.astype("f4"),
                                 cube=ids.reshape(2, 2, 3), long=numpy.array([4, 5, 1]), back=numpy.array([0, 5, 3]), twist=numpy.array([0, 7, 5, 12]), starts=numpy.array([0, 5]), late=numpy.array([5, 12]), far=numpy.array([0, 5, 13]),
                                 below=numpy.array([-1, 5, 12]), short=numpy.array([1, 2]), square=ids.reshape(4, 3), empty=numpy.zeros(0, "i8"),
                                 huge=numpy.array([0, 1 << 63], "u8"), words=numpy.array([b"a", b"b", b"c"]), negative=-ids.reshape(3, 4))
        for code, settings, words in (
                (78, dict(), "dataset.tokens is not given"), (65, dict(tokens="no"), "no no in this file"), (65, dict(tokens="f"), "no array of whole numbers"),
                (65, dict(tokens="cube"), "one or two dimensions"), (65, dict(tokens="words"), "no array of whole numbers"),
                (78, dict(tokens="flat"), "flat [12] is given without dataset.offsets"), (78, dict(tokens="t", offsets="at"), "t [3, 4] is given with dataset.offsets"),
                (65, dict(tokens="t", lengths="short"), "short [2] does not suit t [3, 4]"), (65, dict(tokens="t", lengths="square"), "square [4, 3] is no plain list"),
                (65, dict(tokens="t", lengths="long"), "row 1: its ids go from 0 to 5 by long"), (65, dict(tokens="flat", offsets="back"), "back goes from 0 to 3 and flat has 12 ids"),
                (65, dict(tokens="flat", offsets="far"), "go from 5 to 13 by far"), (65, dict(tokens="flat", offsets="below"), "below goes from -1 to 12"),
                (65, dict(tokens="flat", offsets="twist"), "go from 7 to 5 by twist"), (65, dict(tokens="flat", offsets="starts"), "starts goes from 0 to 5"),
                (65, dict(tokens="flat", offsets="late"), "late goes from 5 to 12"),
                (65, dict(tokens="flat", offsets="empty"), "empty [0] is empty"), (65, dict(tokens="flat", offsets="huge"), "by huge"),
                (65, dict(tokens="flat", offsets="f"), "dataset.offsets names one"), (65, dict(tokens="t", lengths="no"), "dataset.lengths names an array"),
                (65, dict(tokens="negative"), "row 0: entry 1 of \"negative\" is -1"), (65, dict(tokens="t", key="id"), "there is no field \"id\"")):
            with self.subTest(settings):
                self.assert_refused(good, code, words, **settings)
        self.assert_refused(self.write("a.jsonl", "{}"), 78, "dataset.lengths is given", tokens="t", lengths="n")
        self.assert_refused(self.write("text.h5", "no HDF5"), 65, "cannot be opened as HDF5", tokens="t")
        content = pathlib.Path(good).read_bytes()
        self.assert_refused(self.write("cut.h5", content[:len(content) // 2]), 65, "cannot be opened as HDF5", tokens="t")
        other = self.folder / "links.h5"
        with h5py.File(other, "w") as file:
            file["out"], file["soft"] = h5py.ExternalLink("good.h5", "/t"), h5py.SoftLink("/out")
            file.create_dataset("beside", shape=(3, 4), dtype="i4", external=[("raw.bin", 0, 48)])
            virtual = h5py.VirtualLayout(shape=(3, 4), dtype="i4")
            virtual[:] = h5py.VirtualSource(good, "t", shape=(3, 4))
            file.create_virtual_dataset("virtual", virtual)
            file.create_dataset("part", (8, 12), "i4", chunks=(4, 12))[:4] = 1  # a writer that was killed
            file.create_dataset("never", (1 << 40, 2), "i4")
            file.create_dataset("packed", data=ids.reshape(3, 4), compression="lzf")
        for name, words in (("part", "part [8, 12] is not written to its end"), ("never", "is not written to its end"), ("packed", "packed by the filter 32000 (lzf)")):
            self.assert_refused(str(other), 65, words, tokens=name)
        for name in ("out", "soft"):
            self.assert_refused(str(other), 65, f"no {name} in this file itself", tokens=name)
        for name in ("beside", "virtual"):
            self.assert_refused(str(other), 65, "are in other files", tokens=name)


if __name__ == "__main__":
    unittest.main()
