"""What the reader gives is what plain h5py gives, for every column of every kind of file that the program writes."""
import multiprocessing
import os
import pathlib
import pickle
import re
import tempfile
import unittest
from unittest import mock

import program_files
import h5py
import numpy

import magister_reader
from magister_reader.slices import _may_differ


def plain(path):
    """Every column by h5py alone -> list of samples, dict by path. Shapes do not tell extents here: the attribute does."""
    with h5py.File(path) as file:
        offset = file["samples/offset"][:].astype(int)
        samples = [{} for _ in offset[1:]]
        for group in set(file) - {"commit", "plot", "experiment"}:
            for name, dataset in file[group].items():
                if (group, name) == ("samples", "offset"):
                    continue
                text = h5py.check_string_dtype(dataset.dtype) is not None
                values = dataset.asstr()[()] if text else dataset[()]
                for i, sample in enumerate(samples):
                    rows = slice(offset[i], offset[i + 1]) if dataset.attrs["extent"] == b"rows" else i
                    sample[f"{group}/{name}"] = values[rows]
    return samples


def read_all(results, queue):
    """In a process that inherited `results`: what it reads, and whether an HDF5 handle that it read through is its own."""
    found = [sample.arrays() for sample in results]
    queue.put((found, [file._hdf5 is None or file._hdf5_process == os.getpid() for file in results.files]))


class Reader(unittest.TestCase):
    def assert_same(self, sample, expected):
        for path, want in expected.items():
            found = sample[path]
            numpy.testing.assert_array_equal(found, want, path)
            if isinstance(want, numpy.ndarray):
                self.assertEqual(found.dtype, want.dtype, path)
            numpy.testing.assert_array_equal(getattr(sample, "ids" if path == "tokens/id" else path.rsplit("/", 1)[-1]), want)

    def test_every_column_of_every_kind_of_file(self):
        answers, verdicts = program_files.chain()
        windows = program_files.teacher("overflow=window", "max_length=16", "stride=8")
        for path in (program_files.teacher(), program_files.teacher("logprob_dtype=f16"), program_files.teacher("top_k=1"), windows,
                     program_files.assistant(), answers, verdicts):
            with self.subTest(path=path), magister_reader.open(path) as results:
                expected = plain(path)
                self.assertEqual(len(results), len(expected))
                self.assertEqual(results.num_tokens, sum(len(want["tokens/id"]) for want in expected))
                self.assertTrue(results.complete)
                self.assertEqual(set(results.files[0].columns), set(expected[0]))
                for i, (sample, want) in enumerate(zip(results, expected, strict=True)):
                    self.assert_same(sample, want)
                    self.assert_same(results[i - len(results)], want)
                    self.assertEqual((sample.index, sample.key, sample.source_index), (i, want["samples/key"], want["samples/source_index"]))
                    self.assertEqual(len(sample), len(want["tokens/id"]))
                with mock.patch("magister_reader.results.BLOCK_ROWS", 90), mock.patch("magister_reader.results.BLOCK_SAMPLES", 3):
                    self.assertGreater(len(list(results.blocks())), len(expected) // 4)
                    for sample, want in zip(results, expected, strict=True):
                        self.assert_same(sample, want)
                self.assertEqual(results.lengths.tolist(), [len(want["tokens/id"]) for want in expected])
                self.assertEqual(results[2:5][1].key, expected[3]["samples/key"])
                for name, column in results.columns.items():
                    want = [sample[column.path] for sample in expected]
                    numpy.testing.assert_array_equal(results.column(name), numpy.concatenate(want) if column.per_token else numpy.array(want))
                    part = want[3:9]
                    numpy.testing.assert_array_equal(results.column(name, 3, 9), numpy.concatenate(part) if column.per_token else numpy.array(part))

    def test_attributes_and_kind(self):
        path = program_files.teacher()
        with magister_reader.open(path) as results, h5py.File(path) as file:
            self.assertEqual(results.task, "teacher_logits")
            self.assertEqual(set(results.attributes), set(file.attrs))
            self.assertEqual(results.attributes["config_sha256"], file.attrs["config_sha256"].decode())
            self.assertEqual(results.attributes["num_tokens"], int(file.attrs["num_tokens"]))
            self.assertIn("log-softmax", results.find_column("top_logprob").comment)
            self.assertEqual(results.find_column("/teacher/entropy").units, "nat")
        with magister_reader.open(program_files.chain()[1]) as verdicts:
            self.assertEqual(verdicts.task, "judge")
            self.assertEqual(verdicts[0].class_logprob.shape, (len(verdicts.attributes["verdicts"].split(",")),))

    def test_keys(self):
        with magister_reader.open(program_files.teacher()) as results:
            self.assertEqual(results["record-7"].index, 7)
            self.assertEqual(len(results["record-5"]), 0)  # an empty record
            self.assertEqual(results["record-5"].top_id.shape, (0, 8))
            with self.assertRaises(KeyError):
                results["record-777"]
            for wrong in (40, -41):
                with self.assertRaises(IndexError):
                    results[wrong]
            with self.assertRaises(TypeError):
                results[1.5]
            with self.assertRaisesRegex(AttributeError, "no column 'top_ids'; it has .*top_id"):
                results[0].top_ids
        path = program_files.teacher("overflow=window", "max_length=16", "stride=8")
        with magister_reader.open(path) as windows:
            keys = [sample["samples/key"] for sample in plain(path)]
            for key in set(keys):
                self.assertEqual(windows.find(key).tolist(), [i for i, each in enumerate(keys) if each == key])
            with self.assertRaisesRegex(magister_reader.Error, r"samples have the key record-13 \(.*\); take results"):
                windows["record-13"]

    def test_a_file_without_samples(self):
        with magister_reader.open(program_files.teacher("dataset.limit=0")) as results:
            self.assertEqual((len(results), results.num_tokens, list(results), results.lengths.tolist()), (0, 0, [], []))
            self.assertEqual(results.column("top_id").shape, (0, 8))
            self.assertEqual(results.find("a").tolist(), [])

    def test_another_process(self):
        answers, _ = program_files.chain()
        for path in (program_files.teacher(), answers):  # numbers are read by place, texts through HDF5
            with self.subTest(path=path), magister_reader.open(path) as results:
                results.column("text" if path == answers else "top_id")  # a handle is open when the process is forked
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    found = pool.map(results.__getitem__, range(len(results)), 7)
                for sample, want in zip(found, plain(path), strict=True):
                    self.assert_same(sample, want)
                fork = multiprocessing.get_context("fork")
                queue = fork.SimpleQueue()
                children = [fork.Process(target=read_all, args=(results, queue)) for _ in range(2)]
                for child in children:
                    child.start()
                for arrays, own in [queue.get() for _ in children]:
                    self.assertEqual(own, [True])
                    for sample, want in zip(arrays, plain(path), strict=True):
                        for name, value in sample.items():
                            numpy.testing.assert_array_equal(value, want[results.find_column(name).path])
                for child in children:
                    child.join()

    def test_beside_other_handles_of_the_same_file(self):
        """HDF5 refuses a file that the process has open with another use of locks."""
        for path in program_files.chain():
            for options in ({}, {"locking": False}):
                with h5py.File(path, **options) as file, magister_reader.open(path) as results:
                    self.assertEqual(results[1].key, file["samples/key"].asstr()[1])
                    if "text" in results.columns:
                        self.assertEqual(results[1].text, file[results.find_column("text").path].asstr()[1])
            with magister_reader.open(path) as results:
                results[1].arrays()
                with h5py.File(path) as file:
                    self.assertEqual(len(file["samples/key"]), len(results))

    def test_closed_results_and_other_files_in_their_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = program_files.copy_of(program_files.teacher(), folder)
            results = magister_reader.open(path)
            carried = pickle.dumps(results)
            results.close()
            with self.assertRaisesRegex(magister_reader.Error, "was closed"):
                results[0].ids
            self.assertEqual(pickle.loads(carried)[1].key, "record-1")
            program_files.copy_of(program_files.teacher("top_k=1"), folder)
            with self.assertRaisesRegex(magister_reader.Error, "is another file than the one that was opened"):
                pickle.loads(carried)[1].ids
            with h5py.File(program_files.copy_of(program_files.teacher(), folder), "r+") as file:  # the same layout of another run
                file.attrs.modify("model_sha256", numpy.bytes_(b"0" * 64))
            with self.assertRaisesRegex(magister_reader.Error, "is another file than the one that was opened"):
                pickle.loads(carried)[1].ids


class Partial(unittest.TestCase):
    def test_only_committed_units(self):
        path = program_files.teacher(fails="results.commit.done_written@3:kill")
        with self.assertRaisesRegex(magister_reader.Error, r"is not complete \(samples would be missing\); run the same magister command again"):
            magister_reader.open(path)
        with h5py.File(path) as file:
            begin, done = file["commit/unit_begin"][:].astype(int), file["commit/done"][:]
        self.assertTrue(0 < done.sum() < len(done))
        there = [i for unit in numpy.flatnonzero(done) for i in range(begin[unit], begin[unit + 1])]
        whole = plain(program_files.teacher())
        with magister_reader.open(path, partial=True) as results:
            self.assertFalse(results.complete)
            self.assertEqual([sample.key for sample in results], [whole[i]["samples/key"] for i in there])
            numpy.testing.assert_array_equal(results.column("top_logprob"), numpy.concatenate([whole[i]["teacher/top_logprob"] for i in there]))
            with self.assertRaises(IndexError):
                results[len(there)]

    def test_units_with_gaps_stay_the_same_in_another_process(self):
        with tempfile.TemporaryDirectory() as folder:
            path = program_files.copy_of(program_files.teacher(), folder, "teacher.h5.partial")
            with h5py.File(path, "r+") as file:
                begin, num_units = file["commit/unit_begin"][:].astype(int), len(file["commit/done"])
                file.attrs.modify("complete", numpy.uint8(0))
                file["commit/done"][:] = numpy.arange(num_units) % 3 != 1
            there = [i for unit in range(num_units) if unit % 3 != 1 for i in range(begin[unit], begin[unit + 1])]
            results = magister_reader.open(path, partial=True)
            carried = pickle.dumps(results)
            with h5py.File(path, "r+") as file:
                file["commit/done"][:] = 1  # the run goes on meanwhile
            whole = plain(program_files.teacher())
            for found in (results, pickle.loads(carried)):
                self.assertEqual(len(found), len(there))
                self.assertEqual(found.num_tokens, sum(len(whole[i]["tokens/id"]) for i in there))
                for i, sample in enumerate(found):
                    numpy.testing.assert_array_equal(sample.top_id, whole[there[i]]["teacher/top_id"])
                    self.assertEqual(found[i].key, whole[there[i]]["samples/key"])
                    self.assertEqual(found[sample.key].index, i)
                numpy.testing.assert_array_equal(found.column("ids", 5, 9), numpy.concatenate([whole[i]["tokens/id"] for i in there[5:9]]))


class Slices(unittest.TestCase):
    def test_what_may_differ_is_what_merge_lets_differ(self):
        source = (pathlib.Path(__file__).resolve().parents[3] / "src/io/results/slices.cpp").read_text()
        body = re.search(r"bool is_digest_of_parts\(.*?\n}", source, re.DOTALL).group()
        names = re.findall(r'"([a-z0-9_]+)"', body)
        self.assertGreater(len(names), 3)
        for name in names:
            self.assertTrue(_may_differ(name), name)
        self.assertFalse(_may_differ("model_sha256"))

    def setUp(self):
        self.parts = [program_files.teacher(f"slice={i}/2") for i in range(2)]

    def test_slices_are_one_file(self):
        with magister_reader.open(list(reversed(self.parts))) as results, magister_reader.open(program_files.teacher()) as whole:
            self.assertEqual((len(results), results.num_tokens), (len(whole), whole.num_tokens))
            for name in whole.columns:
                numpy.testing.assert_array_equal(results.column(name), whole.column(name))
                numpy.testing.assert_array_equal(results.column(name, 15, 31), whole.column(name, 15, 31))
            self.assertEqual([sample.key for sample in results], [sample.key for sample in whole])
            self.assertEqual(results["record-33"].index, 33)
            self.assertEqual((results.attributes["num_samples"], results.attributes["complete"]), (40, 1))
            numpy.testing.assert_array_equal(pickle.loads(pickle.dumps(results))[39].top_id, whole[39].top_id)

    def test_what_does_not_belong_together_is_refused(self):
        first, second = self.parts
        with tempfile.TemporaryDirectory() as folder:
            other = program_files.copy_of(second, folder)
            with h5py.File(other, "r+") as file:
                file.attrs.modify("tokenizer_sha256", numpy.bytes_(b"f" * 64))
            for files, message in (([first, program_files.teacher("slice=1/2", "top_k=1")], r"config_sha256 is \w{64}, in .* it is \w{64} \(sam"),
                                   ([first, other], "tokenizer_sha256 is f{64}, in "),
                                   ([first, first], r"samples would be there twice\); give every slice once"),
                                   ([program_files.teacher(), second], "there twice"),
                                   ([first], r"no file holds records 20 to 40 \(samples would be missing\)"),
                                   ([second], "no file holds records 0 to 20"),
                                   ([first, program_files.chain()[0]], "is .*, in "), ([], "no file was given")):
                with self.subTest(message=message), self.assertRaisesRegex(magister_reader.Error, message):
                    magister_reader.open(files)
            with magister_reader.open([second], partial=True) as results:
                self.assertEqual(results[0].key, "record-20")


if __name__ == "__main__":
    unittest.main(verbosity=2)
