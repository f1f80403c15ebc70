"""Parquet and Arrow data sets against pyarrow, which writes the files and says what is in them: every type and encoding, nested
columns, row groups, what `datasets` saves; nulls and wrong types by row group, row and column; thousands of damaged files.
"""
import datetime
import decimal
import hashlib
import json
import math
import os
import pathlib
import random
import unittest

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from dataset_formats_test import Formats, refused
from dataset_oracle_test import PROBE, Spelling, records
from probe_cases import run_case


ROUNDS = int(os.environ.get("DAMAGE_ROUNDS", 30))  # a quarter of a second each


def chat(i):
    return [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": None if i % 7 == 3 else f'answer "{i}"\n'}]


def table(count, seed=1):
    spelling = Spelling(seed)
    return pyarrow.table({
        "id": pyarrow.array([f"k{i}" for i in range(count)]),
        "text": pyarrow.array([spelling.text().replace("\0", "") for _ in range(count)]),
        "ids": pyarrow.array([[spelling.random.randint(0, 2**31 - 1) for _ in range(i % 5)] for i in range(count)], pyarrow.list_(pyarrow.int32())),
        "messages": pyarrow.array([chat(i) for i in range(count)]),
        "deep": pyarrow.array([{"b": [{"c": f"c{i}", "d": i}] * (1 + i % 3), "x": "y" * 50} for i in range(count)]),
        "number": pyarrow.array(range(count), pyarrow.uint16()),
    })


class Tables(Formats):
    def parquet(self, name, content, **options):
        path = self.folder / name
        pyarrow.parquet.write_table(content, path, **options)
        return str(path)

    def arrow(self, name, content, make=pyarrow.ipc.new_stream, rows=1000, **options):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with make(str(path), content.schema, **options) as writer:
            writer.write_table(content, max_chunksize=rows)
        return str(path)


class Parquet(Tables):
    def test_against_pyarrow(self):
        content = table(5000)
        expected = content.to_pylist()
        for i, options in enumerate(({}, {"row_group_size": 700, "compression": "zstd"}, {"compression": "gzip", "use_dictionary": False, "row_group_size": 1},
                                     {"data_page_version": "2.0", "compression": "brotli", "data_page_size": 1000}, {"compression": "lz4", "version": "1.0"},
                                     {"store_schema": False, "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}})):
            path = self.parquet(f"t{i}.parquet", content if i != 2 else content.slice(0, 200), **options)
            wanted = expected if i != 2 else expected[:200]
            got, summary = records(paths=[path], key="id")
            self.assertEqual(summary["sha256"], hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest())
            self.assertEqual([(k, t) for _, k, t, _, _ in got], [(one["id"], one["text"]) for one in wanted])
            group = options.get("row_group_size", 1 << 20)
            self.assertEqual([where for *_, where in got], [f"{path}: row group {i // group}, row {i % group}" for i in range(len(wanted))])
            self.assertEqual([tokens for *_, tokens, _ in records(paths=[path], tokens="ids")[0]], [one["ids"] for one in wanted])
            self.assertEqual([json.loads(text) for text in self.texts(path, whole=True)], wanted)
            self.assertEqual([json.loads(text)["messages"] for text in self.texts(path, messages="messages")], [one["messages"] for one in wanted])
            for begin in (0, len(wanted) // 3, len(wanted) - 1):
                self.assertEqual(records(paths=[path], key="id", range=[begin, begin + 1])[0][0][1], wanted[begin]["id"])

    def test_types(self):
        moment = datetime.datetime(2024, 2, 29, 12, 30, 1)
        columns = {
            "text": pyarrow.array(["a", "b"], pyarrow.large_string()), "coded": pyarrow.array(["x", "y"]).dictionary_encode(), "i8": pyarrow.array([-128, 127], pyarrow.int8()),
            "u64": pyarrow.array([0, 2**64 - 1], pyarrow.uint64()), "i64": pyarrow.array([-(2**63), 2**63 - 1]), "f": pyarrow.array([0.1, 1.0], pyarrow.float32()),
            "d": pyarrow.array([1e300, math.nan]), "yes": pyarrow.array([True, None]), "none": pyarrow.nulls(2), "fixed": pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.int8(), 2)),
            "map": pyarrow.array([[("k", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int64())), "when": pyarrow.array([moment, None]),
            "price": pyarrow.array([decimal.Decimal("1.50"), None]), "bytes": pyarrow.array([b"\xff", b"b"]),
            "half": pyarrow.array([numpy.float16(1.5), None], pyarrow.float16()), "took": pyarrow.array([datetime.timedelta(seconds=5), None])}
        path = self.parquet("types.parquet", pyarrow.table(columns))
        first, second = (json.loads(text) for text in self.texts(path, whole=True))
        self.assertEqual(first, {"text": "a", "coded": "x", "i8": -128, "u64": 0, "i64": -(2**63), "f": 0.10000000149011612, "d": 1e300, "yes": True, "none": None, "fixed": [1, 2],
                                 "map": [{"key": "k", "value": 1}], "when": "2024-02-29 12:30:01.000000", "price": "1.50", "bytes": None, "half": 1.5, "took": "5000000 us"})
        self.assertEqual((second["u64"], second["i64"], second["f"], second["d"], second["coded"]), (2**64 - 1, 2**63 - 1, 1.0, None, "y"))
        self.assertIn('"f":1.0', self.texts(path, whole=True)[1])

    def test_nested(self):
        path = self.parquet("deep.parquet", table(500), row_group_size=90)
        self.assertEqual(self.texts(path, text="deep.b[0].c"), [f"c{i}" for i in range(500)])
        self.assertEqual(self.texts(path, text="messages[0].content", key="deep.b[-1].d"), [f"question {i}" for i in range(500)])
        dotted = self.parquet("dotted.parquet", pyarrow.table({"a.b": ["x"], "a": [{"b": "y"}]}))
        self.assertEqual(self.texts(dotted, text="a.b"), ["x"])

    def test_columns_are_pushed_down(self):
        """What is not asked for is not read: a column whose pages are destroyed does no harm."""
        content = table(200)
        path = pathlib.Path(self.parquet("a.parquet", content, compression="none", use_dictionary=False))
        meta = pyarrow.parquet.read_metadata(path).row_group(0)
        data = bytearray(path.read_bytes())
        for i in range(meta.num_columns):
            column = meta.column(i)
            if column.path_in_schema not in ("text", "deep.b.list.element.c"):
                data[column.data_page_offset : column.data_page_offset + column.total_compressed_size] = b"\xff" * column.total_compressed_size
        path.write_bytes(data)
        self.assertEqual(self.texts(str(path)), content["text"].to_pylist())
        self.assertEqual(self.texts(str(path), text="deep.b[0].c"), [f"c{i}" for i in range(200)])
        self.assert_refused(str(path), 65, "row group 0", text="id")

    def test_refused(self):
        good = {"text": ["a", "b", "c"], "id": [1, 2, 3]}
        two = lambda **columns: self.parquet("bad.parquet", pyarrow.table({**good, **columns}), row_group_size=2)
        self.assert_refused(two(text=["a", "b", None]), 65, "bad.parquet: row group 1, row 0: ", '"text" is null')
        self.assert_refused(two(text=[1, 2, 3]), 65, "row group 0, row 0: ", '"text" is a number')
        self.assert_refused(two(id=[1.5, 2, 3]), 65, 'the key "id"', key="id")
        self.assert_refused(two(ids=[[1], [-1], [2]]), 65, "row group 0, row 1: ", 'entry 0 of "ids"', tokens="ids")
        self.assert_refused(two(ids=[[1], [None], [2]]), 65, "row group 0, row 1: ", 'entry 0 of "ids" is null', tokens="ids")
        self.assert_refused(two(), 65, 'no column "txt"', "text, id", 'did you mean "text"', text="txt")
        self.assert_refused(two(text=pyarrow.array([b"\xff", b"b", b"c"])), 65, "row group 0, row 0", "UTF-8")
        self.assert_refused(two(deep=[{"b": "x"}] * 3), 65, 'no "c" in an object that has b', text="deep.c")
        doubled = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
        self.assert_refused(self.parquet("doubled.parquet", doubled), 65, "two columns have the name text")
        self.assertEqual(self.texts(two(text=["a\0", "b", "c\0d"])), ["a\0", "b", "c\0d"])  # a character, as in JSONL
        self.assertEqual(self.texts(self.parquet("none.parquet", pyarrow.table({"text": pyarrow.array([], pyarrow.string())}))), [])

    def test_a_stop_ends_the_index(self):
        """poll is asked for the file's only block and then for every row group; the answer at any of these is a stop."""
        path = self.parquet("stop.parquet", table(50), row_group_size=10)
        for asked in range(1, 7):
            self.assertEqual(refused(paths=[path], stop_at=asked)[0], 75, asked)
        self.assertEqual(refused(paths=[path], stop_at=7)[0], 0)

    def test_several_files(self):
        a, b = self.parquet("a.parquet", table(10, 1)), self.parquet("b.parquet", table(20, 2))
        jsonl = self.write("c.jsonl", '{"text":"x","id":"y"}\n')
        got, summary = records(paths=[a, jsonl, b], key="id")
        self.assertEqual([text for _, _, text, _, _ in got], [*table(10, 1)["text"].to_pylist(), "x", *table(20, 2)["text"].to_pylist()])
        lines = "".join(f"{hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()}  {pathlib.Path(path).name}\n" for path in (a, jsonl, b))
        self.assertEqual(summary["sha256"], hashlib.sha256(lines.encode()).hexdigest())

    def test_memory(self):
        peaks = {}
        for count in (50_000, 200_000):
            content = pyarrow.table({"text": [f"{i} " + "word " * 100 for i in range(count)], "other": ["x" * 500] * count})
            path = self.parquet("large.parquet", content, row_group_size=1 << 20, use_dictionary=False, compression="none")
            _, summary = records(paths=[path], quiet=True)
            self.assertEqual(summary["visited"], count)
            peaks[count] = summary["peak"]
            print(f"{count} rows in one row group, {os.path.getsize(path) >> 20} MiB: {summary['seconds']:.2f} s, peak {summary['peak'] >> 20} MiB")
        self.assertLess(peaks[200_000] - peaks[50_000], 24 << 20)
        # Ten KB of file: each text stands in it once, and 4,096 times in its row group.
        coded = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 4096, pyarrow.int32()), pyarrow.array(["word " * 40_000]))
        _, summary = records(paths=[self.parquet("repeated.parquet", pyarrow.table({"text": coded}), store_schema=False)], quiet=True)
        self.assertEqual(summary["visited"], 4096)
        self.assertLess(summary["peak"], peaks[50_000] + (64 << 20))


class Arrow(Tables):
    def test_against_pyarrow(self):
        content = table(3500)
        expected = content.to_pylist()
        coded = content.set_column(1, "text", content["text"].dictionary_encode())
        zstd = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        for name, data, make, options in (("s.arrow", content, pyarrow.ipc.new_stream, {}), ("f.arrow", content, pyarrow.ipc.new_file, {}), ("z.arrow", content, pyarrow.ipc.new_stream, {"options": zstd}),
                                          ("c.arrow", coded, pyarrow.ipc.new_stream, {}), ("cf.arrow", coded, pyarrow.ipc.new_file, {})):
            path = self.arrow(name, data, make, **options)
            got, summary = records(paths=[path], key="id")
            self.assertEqual([(k, t) for _, k, t, _, _ in got], [(one["id"], one["text"]) for one in expected], name)
            self.assertEqual(summary["sha256"], hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest())
            self.assertEqual(got[2345][4], f"{path}: record batch 2, row 345")
            self.assertEqual([json.loads(text) for text in self.texts(path, whole=True)], expected)
            for begin in (0, 999, 1000, 3499):
                self.assertEqual(records(paths=[path], key="id", range=[begin, begin + 1])[0][0][1], expected[begin]["id"])

    def test_saved_by_datasets(self):
        """The layout of save_to_disk: a list of files in state.json, a folder for each split."""
        for split, seeds in (("train", (1, 2)), ("test", (3,))):
            files = [f"data-{i:05d}-of-{len(seeds):05d}.arrow" for i in range(len(seeds))]
            for name, seed in zip(files, seeds):
                self.arrow(f"saved/{split}/{name}", table(50, seed))
            self.write(f"saved/{split}/state.json", json.dumps({"_data_files": [{"filename": name} for name in files], "_split": split, "_fingerprint": "x"}))
            self.write(f"saved/{split}/dataset_info.json", "{}")
        self.write("saved/dataset_dict.json", json.dumps({"splits": ["train", "test"]}))
        saved = str(self.folder / "saved")
        self.assertEqual(self.texts(saved), table(50, 1)["text"].to_pylist() + table(50, 2)["text"].to_pylist())
        self.assertEqual(self.texts(saved, split="test"), table(50, 3)["text"].to_pylist())
        self.assertEqual(self.texts(saved + "/test"), table(50, 3)["text"].to_pylist())
        self.assert_refused(saved, 65, "no split dev", '["train","test"]', split="dev")
        self.assert_refused(saved + "/test", 78, "holds the split test", split="train")
        for state, part in (("[]", "not a JSON object"), ("{}", "no list _data_files"), ('{"_data_files":[{"filename":"../x.arrow"}]}', "names no file"),
                            ('{"_data_files":[{"filename":"a.arrow"}],"_indices_data_files":[{"filename":"i"}]}', "flatten_indices"), ("{", "not a JSON object")):
            self.write("saved/test/state.json", state)
            self.assert_refused(saved + "/test", 65, part)

    def test_refused(self):
        path = self.arrow("a.arrow", table(2500))
        whole = pathlib.Path(path).read_bytes()
        self.assert_refused(self.write("cut.arrow", whole[:-8]), 65, "no end mark")
        self.assert_refused(self.write("tiny.arrow", b"x"), 65, "fewer than any Arrow file")
        self.assert_refused(self.write("joined.arrow", whole + whole), 65, "follow its end mark")
        doubled = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
        self.assert_refused(self.arrow("doubled.arrow", doubled), 65, "two columns have the name text")
        self.assert_refused(path, 65, 'no column "txt"', text="txt")
        union = pyarrow.UnionArray.from_dense(pyarrow.array([0], pyarrow.int8()), pyarrow.array([0], pyarrow.int32()), [pyarrow.array(["x"])])
        self.assert_refused(self.arrow("union.arrow", pyarrow.table({"text": union})), 65, "text has the type dense_union")


    def test_parquet_fields_refused(self):
        """What frames a Parquet file: each is exit code 65 with the file's name."""
        whole = pathlib.Path(self.parquet("a.parquet", table(30))).read_bytes()
        footer = int.from_bytes(whole[-8:-4], "little")

        def length(value):
            return whole[:-8] + value.to_bytes(4, "little") + b"PAR1"

        cases = {"empty": b"", "magic alone": b"PAR1", "two magics": b"PAR1PAR1", "no magic at the end": whole[:-4], "another magic at the end": whole[:-4] + b"PAR2",
                 "an encrypted footer": whole[:-4] + b"PARE", "footer length 0": length(0), "footer length 1": length(1), "a footer longer than the file": length(len(whole)),
                 "footer length 2^31": length(2 ** 31), "footer length 2^32 - 1": length(2 ** 32 - 1), "a footer that begins too late": length(footer - 1),
                 "a footer that begins too early": length(footer + 1), "a footer of zeros": whole[: -8 - footer] + bytes(footer) + whole[-8:],
                 "a footer of 0xFF": whole[: -8 - footer] + b"\xff" * footer + whole[-8:], "pages of zeros": bytes(len(whole) - 8 - footer) + whole[-8 - footer :],
                 "a column twice as a name": None, "half of it": whole[: len(whole) // 2]}
        for name, content in cases.items():
            with self.subTest(name):
                if content is None:
                    path = self.folder / "twice.parquet"
                    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"]), path)
                    content = path.read_bytes()
                self.assert_refused(self.write("bad.parquet", content), 65, "bad.parquet")


class Damage(Tables):
    def attack(self, name, whole, rounds):
        """Cut, flipped and overwritten bytes: whole records, or exit code 65 with a message; never a crash, never long."""
        rng = random.Random(name)
        codes = {}
        for i in range(rounds):
            data = bytearray(whole)
            kind = i % 4
            if kind == 0:
                del data[rng.randrange(len(data)) :]
            else:
                # Half of the hits go to the last KiB, where Parquet and Arrow files keep what says how to read the rest.
                for _ in range(rng.choice((1, 1, 4, 30))):
                    at = rng.randrange(max(0, len(data) - 1024), len(data)) if rng.random() < 0.5 else rng.randrange(len(data))
                    data[at] = rng.randrange(256) if kind != 3 else 0xFF
            path = self.write(name, bytes(data))
            done = run_case([PROBE, "records", json.dumps({"paths": [path], "whole": True, "quiet": True})], text=True, timeout=600)
            codes[done.returncode] = codes.get(done.returncode, 0) + 1
            if done.returncode not in (0, 65):
                keep = pathlib.Path("/tmp") / f"damaged-{i}-{name}"
                keep.write_bytes(data)
                self.fail(f"round {i}: exit code {done.returncode}: {done.stderr} ({keep})")
        print(f"{name}: {rounds} damaged files, exit codes {dict(sorted(codes.items()))}")
        return codes

    def test_parquet(self):
        for name, options in (("plain.parquet", {"compression": "none"}), ("packed.parquet", {"compression": "zstd", "row_group_size": 50})):
            path = self.parquet(name, table(120), **options)
            codes = self.attack(name, pathlib.Path(path).read_bytes(), ROUNDS)
            self.assertGreater(codes[65], ROUNDS // 2)

    def test_arrow(self):
        for name, make in (("stream.arrow", pyarrow.ipc.new_stream), ("file.arrow", pyarrow.ipc.new_file)):
            path = self.arrow(name, table(120), make, rows=50)
            codes = self.attack(name, pathlib.Path(path).read_bytes(), ROUNDS)
            self.assertGreater(codes[65], ROUNDS // 2)


if __name__ == "__main__":
    unittest.main()
