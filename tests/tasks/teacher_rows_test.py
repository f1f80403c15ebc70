"""The teacher's rows as training reads them, against h5py and numpy, in all three encodings; and what must be refused by its name, also where
somebody made the checksums fit again: rows shifted by one, an edited text, another tokenizer, another vocabulary.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / "tests/end_to_end"))
from teacher_encodings_test import unpacked  # noqa: E402
from tiny_world import World  # noqa: E402

PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/tasks/teacher_rows_probe"
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def commit_again(path):
    """Gives every unit the checksum that its rows have now, as somebody would who wants the file to look untouched."""
    with h5py.File(path, "r+") as file:
        offset, begins = file["samples/offset"][:], file["commit/unit_begin"][:]
        columns = [file[name] for name in text(file.attrs["columns"]).split() if not name.startswith("/commit")]
        for unit, (begin, end) in enumerate(zip(begins[:-1], begins[1:])):
            crc = 0
            for kind, first, last in (("samples", begin, end), ("rows", offset[begin], offset[end])):
                for column in columns:
                    if text(column.attrs["extent"]) == kind:
                        crc = crc32c(column[first:last].tobytes(), crc)
            file["commit/crc32c"][unit] = crc


class TeacherRows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="magister_rows_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.world = World(cls.folder, records=9)
        for name in ("plain", "compact", "sampled"):
            cls.world.complete(name, 0, f"tasks.0.encoding={name}", "tasks.0.top_k=6")
        with h5py.File(cls.world.results("plain")) as file:
            cls.vocabulary, cls.tokenizer = int(file.attrs["vocab_size"]), text(file.attrs["tokenizer_sha256"])
        cls.bits = (cls.vocabulary - 1).bit_length()

    def probe(self, path, vocabulary=None, tokenizer=None, code=0):
        done = subprocess.run([PROBE, path, str(vocabulary or self.vocabulary), self.tokenizer if tokenizer is None else tokenizer],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()][::-1] if code == 0 else done.stderr

    def test_rows_are_those_of_the_file(self):
        for name, width in (("plain", 6), ("compact", 6), ("sampled", 18)):
            samples = self.probe(self.world.results(name))
            with h5py.File(self.world.results(name)) as file:
                teacher = {column: file[f"teacher/{column}"][:] for column in file["teacher"]}
                offset, ids = file["samples/offset"][:].astype("i8"), file["tokens/id"][:]
            top = teacher["top_id"] if name == "plain" else unpacked(teacher["top_id_packed"], 6, self.bits)
            self.assertEqual(len(samples), len(offset) - 1)
            for sample, begin, end in zip(samples, offset[:-1], offset[1:]):
                self.assertEqual((sample["ids"], sample["width"], sample["sampled"]), (ids[begin:end].tolist(), width, name == "sampled"))
                self.assertEqual(sample["valid"], [1] * max(0, end - begin - 1) + [0] * int(end > begin))
                found = numpy.array(sample["top_ids"], "i4").reshape(-1, width)
                logprobs = numpy.array(sample["top_logprobs"], "f4").reshape(-1, width)
                numpy.testing.assert_array_equal(found[:, :6], top[begin:end])
                numpy.testing.assert_array_equal(logprobs[:, :6], teacher["top_logprob"][begin:end].astype("f4"))
                if name != "sampled":
                    continue
                draws = unpacked(teacher["tail_id_packed"], 12, self.bits)[begin:end]
                for row in range(end - begin):
                    drawn, counts = numpy.unique(draws[row], return_counts=True)
                    used = found[row, 6:] >= 0
                    self.assertEqual(found[row, 6:][used].tolist(), drawn.tolist())
                    numpy.testing.assert_allclose(numpy.exp(logprobs[row, 6:][used]), counts / 12 * teacher["tail_mass"][begin + row], rtol=1e-5)

    def changed(self, name, change, commits=True):
        path = self.folder / "changed.h5"
        shutil.copy(self.world.results(name), path)
        os.chmod(path, 0o644)
        with h5py.File(path, "r+") as file:
            change(file)
        if commits:
            commit_again(path)
        return path

    def test_untouched_files_pass_after_a_new_commit(self):
        for name in ("plain", "sampled"):
            self.probe(self.changed(name, lambda file: None))

    def test_shifted_rows_are_refused(self):
        def shift(file):
            for column in file["teacher"]:
                if column.startswith("to"):  # top_id, top_logprob
                    file["teacher"][column][:] = numpy.roll(file["teacher"][column][:], 1, 0)
        for name in ("plain", "compact", "sampled"):
            self.assertIn("rows are shifted", self.probe(self.changed(name, shift), code=65))

        def shift_all(file):
            for column in file["teacher"]:
                file["teacher"][column][:] = numpy.roll(file["teacher"][column][:], 1, 0)
        self.assertIn("rows are shifted", self.probe(self.changed("plain", shift_all), code=65))

    def test_an_edited_text_is_refused(self):
        def edit(file):
            # A token that the teacher had expected becomes one that it had not. (With checksums made to fit, an edit among tokens that no
            # row keeps cannot be seen from the file.)
            ids, top = file["tokens/id"][:], file["teacher/top_id"][:]
            row = next(t for t in range(len(ids) - 1) if ids[t + 1] in top[t] and not numpy.isnan(file["teacher/target_logprob"][t]))
            ids[row + 1] = next(id for id in range(self.vocabulary) if id not in top[row])
            file["tokens/id"][:] = ids
        self.assertIn("was edited", self.probe(self.changed("plain", edit), code=65))
        self.assertIn("crc32c", self.probe(self.changed("plain", edit, commits=False), code=65))

    def test_other_vocabularies_tokenizers_and_files_are_refused(self):
        path = self.world.results("compact")
        self.probe(path, self.vocabulary + 64)  # of one tokenizer with another padding
        self.assertIn("nothing says", self.probe(path, self.vocabulary + 64, "", code=65))
        self.assertIn("it has no row for it", self.probe(path, 3, code=65))
        self.assertIn("tokenizer_sha256", self.probe(path, None, "0" * 64, code=65))
        self.probe(path, None, "")
        self.assertIn("not complete", self.probe(self.changed("plain", lambda file: file.attrs.modify("complete", numpy.uint8(0)), False), code=65))
        self.assertIn("a teacher_logits task", self.probe(self.changed("plain", lambda file: file.attrs.modify("format", numpy.bytes_(b"magister.score")), False), code=65))
        self.assertIn("does not fit the encoding", self.probe(self.changed("compact", lambda file: file.attrs.modify("id_bits", numpy.uint64(17)), False), code=65))
        self.probe(self.folder / "none.h5", code=74)


if __name__ == "__main__":
    unittest.main(verbosity=2)
