"""The plot that H5Web, silx and nexpy draw when a results file is opened, as silx finds it: for each task one curve of one column, whose
label says which column, unit and meaning. H5Web finds it by the same attributes (`default`, `NX_class`, `signal`), and its title is the
label too (its own source: the title is long_name where the group has no dataset `title`, units are shown where there is no long_name).
"""
import tempfile
import unittest

import h5py
import numpy
from silx.io.nxdata import get_default

import tiny_world


class DefaultPlot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.teacher = tiny_world.World(cls.scratch.name, records=30)
        cls.chain = tiny_world.World(cls.scratch.name, records=30, model=cls.teacher.model, text=tiny_world.CHAIN,
                                     results=("answers.h5", "verdicts.h5"))
        cls.teacher.run("teacher", 1, MAGISTER_FAIL_POINT="teacher.unit.begin@4:kill")
        with h5py.File(cls.teacher.results("teacher").with_suffix(".h5.partial")) as file:
            cls.partial = get_default(file).signal.shape
        cls.teacher.complete("teacher", 2)
        cls.chain.complete("chain", 2)

    def check(self, path, column, extent):
        name = column.split("/")[1]
        with h5py.File(path) as file:
            plot = get_default(file)
            self.assertIsNotNone(plot, "there is no default plot")
            self.assertEqual((plot.is_valid, list(plot.issues), plot.is_curve, plot.signal_dataset_name), (True, [], True, name))
            self.assertEqual((plot.signal.shape, plot.axes), ((int(file.attrs[extent]),), [None]), "rows are the axis")
            numpy.testing.assert_array_equal(plot.signal[:], file[column][:])
            self.assertTrue(numpy.isfinite(plot.signal[:]).all())
            self.assertGreater(len(numpy.unique(plot.signal[:])), 2, "a curve with something to see")
            self.assertEqual(plot.signal_name, f"{name} (nat): {file[column].attrs['comment'].decode()}")
            self.assertEqual(file[column].attrs["units"], b"nat")
        return plot

    def test_teacher(self):
        self.check(self.teacher.results("teacher"), "teacher/entropy", "num_tokens")
        with h5py.File(self.teacher.results("teacher")) as file:
            self.assertEqual(self.partial, file["teacher/entropy"].shape, "a partial file has the plot too")

    def test_texts(self):
        self.check(self.chain.results("chain").with_name("answers.h5"), "generate/logprob", "num_tokens")

    def test_verdicts(self):
        self.check(self.chain.results("chain"), "judge/log_odds", "num_samples")


if __name__ == "__main__":
    unittest.main(verbosity=2)
