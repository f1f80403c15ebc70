"""Whole runs over the same records in every format, on 1, 2 and 3 ranks: equal tokens, equal bytes. Then the exports of the results,
each opened by the program that it is for: pyarrow, csv, h5py; and a run without the plug-in, which says how to get it.
"""
import csv
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import h5py
import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import torch

from tiny_world import PROGRAM, World


class DataFormats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="magister_formats_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.world = World(cls.folder, records=60)
        cls.jsonl = cls.world.data
        cls.records = [json.loads(line) for line in cls.jsonl.read_text().splitlines()]

    def files(self):
        table = pyarrow.Table.from_pylist(self.records)
        nested = pyarrow.Table.from_pylist([{"meta": {"id": one["id"]}, "turns": [{"text": one["text"]}]} for one in self.records])
        pyarrow.parquet.write_table(table, self.folder / "a.parquet", row_group_size=7)
        pyarrow.parquet.write_table(nested, self.folder / "n.parquet", row_group_size=13)
        with pyarrow.ipc.new_stream(str(self.folder / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=9)
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, ["id", "text"])
        writer.writeheader()
        writer.writerows(self.records)
        (self.folder / "a.csv.gz").write_bytes(gzip.compress(out.getvalue().encode()))
        (self.folder / "a.json").write_text(json.dumps(self.records, indent=1))
        paths = "tasks.0.dataset.text=turns[0].text", "tasks.0.dataset.key=meta.id"
        return {"parquet": ["a.parquet"], "arrow": ["a.arrow"], "csv": ["a.csv.gz"], "json": ["a.json"], "nested": ["n.parquet", *paths]}

    def test_same_results(self):
        self.world.complete("jsonl", 2)
        with h5py.File(self.world.results("jsonl")) as file:
            expected = {name: file[name][:].tobytes() for name in ("samples/key", "samples/offset", "tokens/id", "teacher/top_id", "teacher/logsumexp")}
        for name, (path, *overrides) in self.files().items():
            digests = set()
            for ranks in (1, 2, 3):
                digests.update(self.world.complete(name, ranks, f"tasks.0.dataset.path={self.folder / path}", *overrides, "--fresh"))
            self.assertEqual(len(digests), 1, f"{name}: the bytes depend on the ranks")
            with h5py.File(self.world.results(name)) as file:
                self.assertEqual({column: file[column][:].tobytes() for column in expected}, expected, name)
                self.assertEqual(file.attrs["dataset_sha256"].decode() if isinstance(file.attrs["dataset_sha256"], bytes) else file.attrs["dataset_sha256"],
                                 hashlib.sha256((self.folder / path).read_bytes()).hexdigest())
        # Another column of the same file is another experiment: its results are not taken for these.
        done = self.world.run("nested", 1, f"tasks.0.dataset.path={self.folder / 'n.parquet'}", "tasks.0.dataset.text=meta.id", "tasks.0.dataset.key=meta.id")
        self.assertNotIn(done.returncode, (0, 75), done.stderr)
        self.assertIn("another", done.stderr)

    def export(self, to, out, code=0):
        done = subprocess.run([PROGRAM, "export", str(self.world.results("export")), "--to", to, "--out", str(out)], env=self.world.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def as_distillation_trainers_read(self, table, rows):
        """DistillKit's offline signal takes the columns token_ids and top_values of a batch as its sparse ids and values, beside TRL's input_ids: a
        list of k for each id, none missing, of types that tensors have."""
        schema = pyarrow.parquet.read_schema(table)
        types = {"input_ids": pyarrow.list_(pyarrow.int32()), "token_ids": pyarrow.list_(pyarrow.list_(pyarrow.int32())), "top_values": pyarrow.list_(pyarrow.list_(pyarrow.float32()))}
        for name, kind in types.items():
            self.assertTrue(schema.field(name).type.equals(kind), f"{name} is {schema.field(name).type}")
        rows = [row for row in rows if row["input_ids"]]  # of an empty text there is nothing to learn
        batch = {name: torch.nn.utils.rnn.pad_sequence([torch.tensor(row[name]) for row in rows], batch_first=True, padding_value=-1000 if name == "top_values" else 0) for name in types}
        longest = max(len(row["input_ids"]) for row in rows)
        self.assertEqual([tuple(batch[name].shape) for name in types], [(len(rows), longest), (len(rows), longest, 8), (len(rows), longest, 8)])
        mass = torch.zeros(len(rows), longest, 1 + int(batch["token_ids"].max())).scatter_add(-1, batch["token_ids"].long(), batch["top_values"].double().exp().float()).sum(-1)
        self.assertTrue(((mass > 0) == (torch.arange(longest) < torch.tensor([[len(row["input_ids"])] for row in rows]))).all())
        self.assertLess(float(mass.max()), 1.001)

    def test_exports(self):
        for dtype in ("f32", "f16"):
            self.world.forget("export")
            self.world.complete("export", 2, f"tasks.0.logprob_dtype={dtype}")
            with h5py.File(self.world.results("export")) as file:
                offset, ids, top = file["samples/offset"][:], file["tokens/id"][:], file["teacher/top_id"][:]
                values, lse = file["teacher/top_logprob"][:].astype("f4"), file["teacher/logsumexp"][:]
                keys = [key.decode() for key in file["samples/key"][:]]
            spans = list(zip(offset[:-1], offset[1:]))

            table = self.folder / f"{dtype}.parquet"
            self.export("parquet", table)
            rows = pyarrow.parquet.read_table(table).to_pylist()
            self.assertEqual([row["key"] for row in rows], keys)
            for (begin, end), row in zip(spans, rows):
                self.assertEqual(row["input_ids"], ids[begin:end].tolist())
                self.assertEqual(row["token_ids"], top[begin:end].tolist())
                numpy.testing.assert_array_equal(numpy.array(row["top_values"], "f4").reshape(-1, 8), values[begin:end])
                numpy.testing.assert_array_equal(numpy.array(row["logsumexp"], "f4"), lse[begin:end])
            self.assertIn("exists", self.export("parquet", table, 74))
            self.as_distillation_trainers_read(table, rows)

            lines = self.folder / f"{dtype}.csv"
            self.export("csv", lines)
            with open(lines, newline="", encoding="utf-8") as file:
                cells = list(csv.DictReader(file))
            self.assertEqual([row["key"] for row in cells], keys)
            for (begin, end), row in zip(spans, cells):
                self.assertEqual(json.loads(row["token_ids"]), ids[begin:end].tolist())
                numpy.testing.assert_array_equal(numpy.array(json.loads(row["logsumexp"]), "f4"), lse[begin:end])

            padded = self.folder / f"{dtype}.padded.h5"
            self.export("padded-hdf5", padded)
            with h5py.File(padded) as file:
                self.assertEqual((file["logits_values"].dtype, file["logits_indices"].dtype, file["seq_lengths"].dtype), ("float16", "int32", "int32"))
                self.assertEqual(file["logits_values"].shape, (len(keys), max(end - begin for begin, end in spans), 8))
                self.assertEqual(file["seq_lengths"][:].tolist(), [end - begin for begin, end in spans])
                for i, (begin, end) in enumerate(spans):
                    numpy.testing.assert_array_equal(file["logits_indices"][i, : end - begin], top[begin:end])
                    numpy.testing.assert_array_equal(file["logits_values"][i, : end - begin], (values[begin:end] + lse[begin:end, None]).astype("f2"))
                    self.assertFalse(file["logits_values"][i, end - begin :].any())
            beside = json.loads(pathlib.Path(f"{padded}.json").read_text())
            self.assertEqual((beside["num_samples"], beside["top_k"]), (len(keys), 8))
            self.assertIn("exists", self.export("padded-hdf5", padded, 74))
            # A kill before the last rename leaves the description alone; what stands there of another file is kept.
            whole = padded.read_bytes()
            padded.unlink()
            self.export("padded-hdf5", padded)
            self.assertEqual(padded.read_bytes(), whole)
            padded.unlink()
            pathlib.Path(f"{padded}.json").write_text("{}")
            self.assertIn("exists", self.export("padded-hdf5", padded, 74))
        self.assertIn("--out", subprocess.run([PROGRAM, "export", "x.h5", "--to", "parquet"], env=self.world.environment, capture_output=True, text=True, check=False).stderr)
        # A full disk in the middle: the error comes back through Arrow's library as it is, and nothing stays behind.
        self.world.environment["MAGISTER_FAIL_POINT"] = "whole_file.write@2:enospc"
        self.assertIn("No space left on device", self.export("parquet", self.folder / "full.parquet", 74))
        del self.world.environment["MAGISTER_FAIL_POINT"]
        self.assertEqual([*self.folder.rglob("*.creating"), *self.folder.glob("full*")], [])

    def test_a_file_of_another_kind_is_other_data(self):
        """The same bytes under another name are other records: results of the one are not gone on with for the other."""
        folder = self.folder / "kind"
        folder.mkdir()
        (folder / "train.txt").write_text('{"text": "one"}\n')
        text, self.world.text = self.world.text, self.world.text.replace(", key: id", "")
        self.addCleanup(setattr, self.world, "text", text)
        change = f"tasks.0.dataset.path={folder}"
        first = self.world.run("kind", 1, change)
        self.assertEqual(first.returncode, 0, first.stderr)
        (folder / "train.txt").rename(folder / "train.jsonl")
        again = self.world.run("kind", 1, change)
        self.assertEqual(again.returncode, 78, again.stderr)
        self.assertIn("dataset_format", again.stderr)

    def test_token_arrays(self):
        """Ids in HDF5 files of h5py, as rows with lengths and as one list with offsets: the results of the same ids in JSONL, on 1, 2 and 3 ranks."""
        source = numpy.random.default_rng(2)
        ids = [source.integers(1, 300, 1 + 7 * (i % 11)).tolist() for i in range(40)]
        (self.folder / "ids.jsonl").write_text("".join(json.dumps({"t": one}) + "\n" for one in ids))
        rows = numpy.zeros((len(ids), max(map(len, ids))), "i4")
        for row, one in zip(rows, ids):
            row[:len(one)] = one
        with h5py.File(self.folder / "ids.h5", "w") as file:
            file.create_dataset("rows", data=rows, chunks=(5, 16), compression="gzip")
            file["length"] = [len(one) for one in ids]
            file["flat"], file["offset"] = numpy.concatenate(ids).astype("u2"), numpy.cumsum([0, *map(len, ids)])
        text, self.world.text = self.world.text, self.world.text.replace(", key: id", "")
        self.addCleanup(setattr, self.world, "text", text)
        self.world.complete("ids", 1, f"tasks.0.dataset.path={self.folder / 'ids.jsonl'}", "tasks.0.dataset.tokens=t")
        columns = ("samples/key", "samples/offset", "tokens/id", "teacher/top_id", "teacher/logsumexp")
        with h5py.File(self.world.results("ids")) as file:
            expected = {name: file[name][:].tobytes() for name in columns}
        for name, fields in (("rows", ("tokens=rows", "lengths=length")), ("flat", ("tokens=flat", "offsets=offset"))):
            overrides = [f"tasks.0.dataset.path={self.folder / 'ids.h5'}", *(f"tasks.0.dataset.{field}" for field in fields)]
            planned = subprocess.run([PROGRAM, "plan", str(self.world.experiment(name)), *overrides], env=self.world.environment, capture_output=True, text=True, check=False)
            self.assertEqual(planned.returncode, 0, planned.stderr)
            self.assertIn("40", planned.stdout)
            digests = set()
            for ranks in (1, 2, 3):
                digests.update(self.world.complete(name, ranks, *overrides, "--fresh"))
            self.assertEqual(len(digests), 1, f"{name}: the bytes depend on the ranks")
            with h5py.File(self.world.results(name)) as file:
                self.assertEqual({column: file[column][:].tobytes() for column in columns}, expected, name)
        # Other lengths are other records.
        self.assertEqual(self.world.run("rows", 1, f"tasks.0.dataset.path={self.folder / 'ids.h5'}", "tasks.0.dataset.tokens=rows").returncode, 78)

    def test_without_the_plug_in(self):
        self.files()
        alone = self.folder / "alone"
        alone.mkdir()
        # LD_LIBRARY_PATH comes before the program's own run path: what stands there hides the plug-in.
        (alone / "magister_arrow.so").write_text("no library")
        done = self.world.run("alone", 1, f"tasks.0.dataset.path={self.folder / 'a.parquet'}", LD_LIBRARY_PATH=str(alone))
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("scripts/setup.sh data", done.stderr)
        self.assertEqual(self.world.run("alone", 1, LD_LIBRARY_PATH=str(alone)).returncode, 0)  # JSONL needs none


if __name__ == "__main__":
    unittest.main()
