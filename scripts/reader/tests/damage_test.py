"""Damaged and foreign files: each gives magister_reader.Error of the form `<problem> (<why>); <what to do>`, before a wrong row is given."""
import os
import pathlib
import re
import tempfile
import unittest

import program_files
import h5py
import numpy

import magister_reader


def replace(file, path, values, **options):
    attributes = dict(file[path].attrs)
    del file[path]
    dataset = file.create_dataset(path, data=values, **options)
    dataset.attrs.update(attributes)


def set_value(path, at, value):
    def damage(file):
        file[path][at] = value
    return damage


def external(file):
    values = file["tokens/id"][:]
    pathlib.Path(file.filename + ".raw").write_bytes(values.tobytes())
    attributes = dict(file["tokens/id"].attrs)
    del file["tokens/id"]
    outside = file.create_dataset("tokens/id", values.shape, values.dtype, external=[(file.filename + ".raw", 0, values.nbytes)])
    outside.attrs.update(attributes)


def linked(file):
    with h5py.File(file.filename + ".other", "w") as other:
        other["offset"] = file["samples/offset"][:]
    del file["samples/offset"]
    file["samples/offset"] = h5py.ExternalLink(file.filename + ".other", "offset")


DAMAGES = {
    r"/samples/offset\[3\] is 1 after \d+": set_value("samples/offset", 3, 1),
    r"/samples/offset does not begin with 0": set_value("samples/offset", 0, 1),
    r"/samples/offset holds 18446744073709551615": set_value("samples/offset", -1, 2**64 - 1),
    r"dataset /\S+ has 3731 rows beside 40 samples and 4000 tokens": set_value("samples/offset", -1, 4000),
    r"dataset /samples/offset is missing or of another type": linked,
    r"dataset /tokens/id stands in another file": external,
    r"dataset /tokens/id is not one whole number per token": lambda file: replace(file, "tokens/id", file["tokens/id"][:].astype("f4")),
    r"dataset /teacher/top_id has 3 rows": lambda file: replace(file, "teacher/top_id", numpy.zeros((3, 8), "i4")),
    r"dataset /teacher/top_id holds neither numbers nor texts": lambda file: replace(file, "teacher/top_id", numpy.zeros(3731, "c8")),
    r"dataset /teacher/top_logprob is missing or cannot be opened \(": lambda file: file.move("teacher/top_logprob", "teacher/top_logprobs"),
    r"unit 2 is not committed": set_value("commit/done", 2, 0),
    r"its \d+ units do not cover its 40 samples": set_value("commit/done", 2, 7),
    r"/commit/unit_begin\[2\] is \d+ after": set_value("commit/unit_begin", 2, 0),
    r"attribute num_samples is 41, and the offsets say 40": lambda file: file.attrs.modify("num_samples", numpy.uint64(41)),
    r"its attribute format is None, not magister": lambda file: file.attrs.__delitem__("format"),
    r"format_version is 9 \(this reader knows 1 to 1 of magister.teacher_logits\); install":
        lambda file: file.attrs.modify("format_version", numpy.uint64(9)),
}


class Damage(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def refused(self, path, message):
        with self.assertRaisesRegex(magister_reader.Error, message) as caught:
            with magister_reader.open(path) as results:
                list(sample.arrays() for sample in results)
        self.assertRegex(str(caught.exception), r"^[^\n]+ \([^\n]+\); [^\n]+$")
        self.assertNotRegex(str(caught.exception), r"[\x00-\x1f]")

    def test_every_damage_is_told(self):
        for i, (message, damage) in enumerate(DAMAGES.items()):
            path = program_files.copy_of(program_files.teacher(), self.folder, f"{i}.h5")
            with h5py.File(path, "r+") as file:
                damage(file)
            with self.subTest(message=message):
                self.refused(path, message)

    def test_files_that_are_none(self):
        (self.folder / "text\x1b.h5").write_text("no HDF5 at all")
        (self.folder / "empty.h5").write_bytes(b"")
        os.mkfifo(self.folder / "fifo")
        with h5py.File(self.folder / "foreign.h5", "w") as file:
            file["data"] = numpy.arange(3)
            file.attrs["format"] = [1, 2]
        for name, message in (("text\x1b.h5", r"text\\x1b.h5: cannot be read as HDF5"), ("empty.h5", "cannot be read as HDF5"),
                              (".", "no regular file"), ("fifo", "no regular file"),
                              ("missing.h5", "No such file"), ("foreign.h5", r"its attribute format is \[1, 2\]")):
            with self.subTest(name=name):
                self.refused(self.folder / name, message)

    def test_a_file_that_is_cut_short(self):
        whole = program_files.teacher()
        for size in (100, 3000, os.path.getsize(whole) // 2, os.path.getsize(whole) - 1):
            path = program_files.copy_of(whole, self.folder)
            os.truncate(path, size)
            with self.subTest(size=size):
                self.refused(path, "cannot be read as HDF5|ends at byte")
        path = program_files.copy_of(whole, self.folder, "later.h5")
        with magister_reader.open(path) as results:  # cut while it is open
            os.truncate(path, 3000)
            with self.assertRaisesRegex(magister_reader.Error, "is cut short"):
                results.column("top_id")

    def test_a_place_outside_the_file(self):
        """The address of a dataset, in its header, points behind the end: told when the file is opened, not when row 1000 is read.
        Newer versions of HDF5 do not open such a dataset, older ones do."""
        whole = program_files.teacher()
        with h5py.File(whole) as file:
            address = file["teacher/entropy"].id.get_offset().to_bytes(8, "little")
        data = whole.read_bytes()
        self.assertEqual(data.count(address), 1)
        (self.folder / "far.h5").write_bytes(data.replace(address, (len(data) - 100).to_bytes(8, "little")))
        with self.assertRaisesRegex(magister_reader.Error, r"dataset /teacher/entropy (ends at byte \d+ of|is missing or cannot be)"):
            magister_reader.open(self.folder / "far.h5")

    def test_texts_that_are_not_utf8_and_flipped_bits(self):
        path = program_files.copy_of(program_files.teacher(), self.folder)
        with h5py.File(path, "r+") as file:
            file["samples/key"][2] = b"\xff\xfe"
        self.refused(path, r"/samples/key\[2\] is not UTF-8")
        # Wherever a byte of the metadata is changed: an Error or the same structure, never another exception.
        original, source = program_files.teacher().read_bytes(), numpy.random.default_rng(1)
        for at in source.integers(0, 12000, 150).tolist():
            damaged = bytearray(original)
            damaged[at] ^= 1 << int(source.integers(8))
            (self.folder / "bits.h5").write_bytes(damaged)
            try:
                with magister_reader.open(self.folder / "bits.h5") as results:
                    results.column("top_id")
            except magister_reader.Error as error:
                self.assertTrue(re.fullmatch(r"[^\n]+ \([^\n]+\); [^\n]+", str(error)), error)

    def test_a_compressed_copy_is_read_the_same(self):
        path = program_files.copy_of(program_files.teacher(), self.folder)
        with h5py.File(path, "r+") as file:
            for name in ("samples/offset", "teacher/top_id", "teacher/top_logprob"):
                replace(file, name, file[name][()], chunks=True, compression="gzip")
        with magister_reader.open(path) as packed, magister_reader.open(program_files.teacher()) as results:
            self.assertIsNone(packed.find_column("top_id").place)
            for name in results.columns:
                numpy.testing.assert_array_equal(packed.column(name), results.column(name))
            numpy.testing.assert_array_equal(packed[3].top_id, results[3].top_id)

    def test_a_file_of_another_task(self):
        """Columns are found by their shape where no attribute tells their extent."""
        with h5py.File(self.folder / "score.h5", "w") as file:
            file.attrs.update({"format": "magister.score", "format_version": 1, "complete": 1})
            file["samples/offset"] = numpy.array([0, 2, 2, 5], "u8")
            file["samples/key"] = numpy.array([b"a", b"b", b"c"])
            file["tokens/id"] = numpy.arange(5, dtype="i4")
            file["score/value"] = numpy.array([[1, 2], [3, 4], [5, 6]], "f4")
            file["score/id"] = numpy.arange(5) * 2.0
        with magister_reader.open(self.folder / "score.h5") as results:
            self.assertEqual((results.task, len(results), results.num_tokens), ("score", 3, 5))
            self.assertEqual(results["c"].value.tolist(), [5, 6])
            self.assertEqual((results["c"].ids.tolist(), results["c"].id.tolist()), ([2, 3, 4], [4, 6, 8]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
