"""`encoding: compact` and `sampled` of teacher logits, read by h5py and numpy alone: compact rows are the plain ones with rounded numbers;
sampled rows are unbiased, which a run that keeps the whole vocabulary shows draw by draw; equal bytes on 1 to 3 ranks, after a kill, and from
merged slices; `check`, `export` and the Python reader know both.
"""
import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

from tiny_world import PROGRAM, ROOT, World

sys.path.insert(0, str(ROOT / "scripts/reader/src"))
SAMPLED = ("tasks.0.encoding=sampled", "tasks.0.top_k=5", "tasks.0.tail_draws=7")


def unpacked(rows, count, bits):
    """u8 [T, bytes] -> ids [T, count], by numpy alone."""
    all_bits = numpy.unpackbits(rows, axis=1, bitorder="little")[:, : count * bits].reshape(len(rows), count, bits)
    return (all_bits.astype("i8") << numpy.arange(bits)).sum(-1).astype("i4")


class TeacherEncodings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="magister_encodings_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.world = World(cls.folder, records=24)
        cls.vocabulary = json.loads((cls.world.model / "config.json").read_text())["vocab_size"]
        cls.bits = (cls.vocabulary - 1).bit_length()
        cls.columns = {}
        for name, arguments in (("plain", ()), ("whole", (f"tasks.0.top_k={cls.vocabulary}",)), ("compact", ("tasks.0.encoding=compact",)), ("sampled", SAMPLED)):
            cls.world.complete(name, 2, *arguments)
            with h5py.File(cls.world.results(name)) as file:
                cls.columns[name] = {column: file[f"teacher/{column}"][:] for column in file["teacher"]} | {"ids": file["tokens/id"][:]}

    def program(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], env=self.world.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def test_compact_is_plain_in_fewer_bytes(self):
        plain, compact = self.columns["plain"], self.columns["compact"]
        numpy.testing.assert_array_equal(unpacked(compact["top_id_packed"], 8, self.bits), plain["top_id"])
        error = numpy.abs(compact["top_logprob"].astype("f8") - plain["top_logprob"])
        self.assertTrue((error <= numpy.maximum(numpy.abs(plain["top_logprob"]) * 2.0**-11, 2.0**-25)).all())
        for name in ("logsumexp", "target_logprob", "entropy", "tail_mass"):
            numpy.testing.assert_array_equal(compact[name], plain[name])
        self.assertEqual(compact["top_id_packed"].shape[1], -(-8 * self.bits // 8))
        with h5py.File(self.world.results("compact")) as file:
            self.assertEqual((file.attrs["encoding"], file.attrs["id_bits"], file.attrs["vocab_size"]), (b"compact" if isinstance(file.attrs["encoding"], bytes) else "compact", self.bits, self.vocabulary))
            self.assertIn("ids of 9 bits, the lowest bit first", str(file["teacher/top_id_packed"].attrs["comment"]))

    def weights(self):
        """What the sampled rows say of every token's probability, [T, V], and the truth from the run that kept all."""
        whole, sampled = self.columns["whole"], self.columns["sampled"]
        truth = numpy.zeros((len(whole["ids"]), self.vocabulary))
        numpy.put_along_axis(truth, whole["top_id"].astype("i8"), numpy.exp(whole["top_logprob"].astype("f8")), 1)
        top, draws = unpacked(sampled["top_id_packed"], 5, self.bits), unpacked(sampled["tail_id_packed"], 7, self.bits)
        return truth, top, draws

    def test_draws_are_unbiased(self):
        truth, top, draws = self.weights()
        numpy.testing.assert_array_equal(top, self.columns["whole"]["top_id"][:, :5])
        self.assertTrue((numpy.diff(draws, axis=1) >= 0).all())
        rest = truth.copy()
        numpy.put_along_axis(rest, top.astype("i8"), 0, 1)
        mass = rest.sum(1)
        numpy.testing.assert_allclose(self.columns["sampled"]["tail_mass"], mass, atol=2e-6)
        counts = numpy.zeros_like(rest)
        for d in range(7):
            counts[numpy.arange(len(draws)), draws[:, d]] += 1
        # Systematic draws: a token is drawn as often as is expected, rounded down or up, and so is every range of tokens.
        expected = 7 * rest / mass[:, None]
        wide = mass > 1e-3  # in f32 the rest of a row that is nearly certain is rounding
        self.assertGreater(wide.mean(), 0.9)
        for of in (lambda a: a, lambda a: a.cumsum(1)):
            self.assertLess(numpy.abs(of(counts) - of(expected))[wide].max(), 1.01)
        # And over all rows the sums agree as those of independent draws would: the uniforms of rows are independent.
        scores = numpy.random.default_rng(3).normal(size=(20, self.vocabulary))
        difference = (counts - expected)[wide] @ scores.T
        z = difference.sum(0) / numpy.sqrt((difference**2).sum(0))
        print(f"draws: {int(wide.sum())} rows, z of 20 functions: mean square {float((z**2).mean()):.2f}")
        self.assertLess(float((z**2).mean()), 3.0)
        # The spread of the first draw's place: uniform.
        place = (rest.cumsum(1)[numpy.arange(len(draws)), draws[:, 0]] / mass * 7)[wide]
        self.assertGreater(place.std(), 0.15)

    def test_bytes_a_row(self):
        row = self.columns["sampled"]
        size = sum(row[name][0].nbytes for name in row if name != "ids")
        self.assertLessEqual(size, 114)
        self.assertGreaterEqual(size, 36)

    def test_equal_bytes_whoever_computes(self):
        digest = self.world.sha256("sampled")
        for ranks in (1, 3):
            self.assertEqual(self.world.complete("sampled", ranks, *SAMPLED, "--fresh"), digest)
        self.world.run("sampled", 2, *SAMPLED, "--fresh", MAGISTER_FAIL_POINT="teacher.unit.computed@4:kill")
        self.assertFalse(self.world.results("sampled").exists())
        self.assertEqual(self.world.complete("sampled", 2, *SAMPLED), digest)
        with h5py.File(self.world.results("sampled")) as file:
            whole = {name: file[f"teacher/{name}"][:].tobytes() for name in file["teacher"]}
        parts = []
        for part in range(2):
            self.world.complete(f"part{part}", 1, *SAMPLED, f"tasks.0.slice={part}/2")
            parts.append(self.world.results(f"part{part}"))
        merged = self.folder / "merged.h5"
        self.program("merge", merged, *parts)
        self.program("check", merged)
        with h5py.File(merged) as file:
            self.assertEqual({name: file[f"teacher/{name}"][:].tobytes() for name in file["teacher"]}, whole)

    def test_windows_of_a_record_draw_for_themselves(self):
        windows = (*SAMPLED, "tasks.0.overflow=window", "tasks.0.max_length=20", "tasks.0.stride=20")
        digest = self.world.complete("windows", 1, *windows)
        self.assertEqual(self.world.complete("windows", 2, *windows, "tasks.0.unit_tokens=64", "--fresh"), digest)
        self.program("check", self.world.results("windows"))

    def test_check_export_and_reader(self):
        import magister_reader
        for name, k in (("compact", 8), ("sampled", 5)):
            path = self.world.results(name)
            self.program("check", path)
            top = unpacked(self.columns[name]["top_id_packed"], k, self.bits)
            out = self.folder / f"{name}.jsonl"
            self.program("export", path, "--to", "jsonl", "--out", out)
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            self.assertEqual([row for line in lines for row in line["top_id"]], top.tolist())
            table = self.folder / f"{name}.csv"
            self.program("export", path, "--to", "csv", "--out", table)
            with open(table, newline="", encoding="utf-8") as file:
                csv.field_size_limit(1 << 30)
                self.assertEqual([row for line in csv.DictReader(file) for row in json.loads(line["top_id"])], top.tolist())
            with magister_reader.open(path) as results:
                numpy.testing.assert_array_equal(results.column("top_id"), top)
                self.assertEqual(results.column("top_id").dtype, numpy.int32)
                numpy.testing.assert_array_equal(results.column("top_logprob"), self.columns[name]["top_logprob"])
                if name == "sampled":
                    numpy.testing.assert_array_equal(results.column("tail_id"), unpacked(self.columns[name]["tail_id_packed"], 7, self.bits))
                self.assertEqual(results[1]["teacher/top_id"].shape, (len(results[1]), k))
        self.program("export", self.world.results("compact"), "--to", "padded-hdf5", "--out", self.folder / "padded.h5")
        with h5py.File(self.folder / "padded.h5") as file, h5py.File(self.world.results("compact")) as results:
            offset = results["samples/offset"][:]
            numpy.testing.assert_array_equal(file["logits_indices"][1, : offset[2] - offset[1]], self.columns["plain"]["top_id"][offset[1]:offset[2]])
        self.assertIn("samples", self.program("export", self.world.results("sampled"), "--to", "padded-hdf5", "--out", self.folder / "no.h5", code=65))

    def test_keys_that_do_not_fit_are_refused(self):
        for arguments, words in ((("encoding=compact", "logprob_dtype=f32"), "stores f16"), (("tail_draws=3",), "encoding: sampled"),
                                 (("encoding=sampled", f"top_k={self.vocabulary}"), "no token is left"), (("encoding=zip",), "known: plain, compact, sampled")):
            done = self.world.run("refused", 0, *(f"tasks.0.{argument}" for argument in arguments))
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
