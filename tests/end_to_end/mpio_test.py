"""output.driver: mpio. Rows travel through HDF5's MPI driver with hints for MPI-IO, and the file has the bytes that pwrite gives:
on 1, 2 and 4 ranks, for every task, after kills at every fail point of writing, and when the driver changes between a kill and
the restart.
"""
import sys
import tempfile
import unittest

from tiny_world import CHAIN, EXPERIMENT, World

HINTS = "hints: {striping_factor: 4, striping_unit: 1048576, romio_cb_write: disable, made_up_name: x}"
POINTS = ("results.create.begin", "results.create.closed", "results.freeze.synced", "results.freeze.renamed", "results.write.data@9",
          "results.commit.rows_written@2", "results.commit.crc_written@3", "results.commit.synced@2", "results.commit.done_written@4",
          "results.complete.begin", "results.complete.attribute_written", "results.complete.synced", "results.complete.renamed")


def with_mpio(text):
    return text.replace("output: {{directory: {runs}}}", "output: {{directory: {runs}, driver: mpio, " + HINTS.replace("{", "{{").replace("}", "}}") + "}}")


class Mpio(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.plain = World(cls.scratch.name, records=60)
        cls.mpio = World(cls.scratch.name, records=60, model=cls.plain.model, text=with_mpio(EXPERIMENT))
        cls.reference = cls.plain.complete("x", 2)

    def setUp(self):
        self.plain.forget("x")

    def test_the_same_bytes_on_any_number_of_ranks(self):
        for ranks in (0, 1, 2, 4):
            self.plain.forget("x")
            self.assertEqual(self.mpio.complete("x", ranks), self.reference, f"{ranks} ranks")
            self.assertEqual(sorted(path.name for path in self.mpio.results("x").parent.iterdir()), ["logs", "monitor", "run.jsonl", "teacher.h5"])

    def test_the_same_mode(self):
        modes = []
        for world in (self.plain, self.mpio):
            world.forget("x")
            world.complete("x", 2)
            modes.append(world.results("x").stat().st_mode)
        self.assertEqual(modes[0], modes[1])

    def test_texts_and_verdicts(self):
        plain = World(self.scratch.name, records=60, model=self.plain.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        mpio = World(self.scratch.name, records=60, model=self.plain.model, text=with_mpio(CHAIN), results=plain.names)
        reference = plain.complete("chain", 2)
        for ranks in (1, 2):
            plain.forget("chain")
            self.assertEqual(mpio.complete("chain", ranks), reference, f"{ranks} ranks")

    def test_it_is_mpi_io_that_writes(self):
        """Without a component for MPI-IO the driver has nothing to work with; pwrite does not notice."""
        result = self.mpio.run("x", 1, OMPI_MCA_io="^ompio,romio321")
        self.assertEqual(result.returncode, 74, result.stderr[-2000:])
        self.assertEqual(list(self.mpio.results("x").parent.glob("*.creating")), [])
        self.assertEqual(self.plain.run("x", 1, OMPI_MCA_io="^ompio,romio321").returncode, 0)

    def test_kills_and_a_change_of_driver(self):
        for index, point in enumerate(POINTS):
            self.plain.forget("x")
            name, at, nth = point.partition("@")
            killed = self.mpio.run("x", 2, MAGISTER_FAIL_POINT=f"{name}{at}{nth}:kill")
            self.assertNotEqual(killed.returncode, 0, point)
            other = self.plain if index % 2 else self.mpio
            result = other.run("x", 1 + index % 3)
            while result.returncode == 74 and "another run holds it" in result.stderr:
                result = other.run("x", 1 + index % 3)
            self.assertEqual(result.returncode, 0, f"{point}: {result.stderr[-2000:]}")
            self.assertEqual(self.plain.sha256("x"), self.reference, point)
        self.plain.forget("x")
        self.assertNotEqual(self.plain.run("x", 2, MAGISTER_FAIL_POINT="results.commit.synced@3:kill").returncode, 0)
        result = self.mpio.run("x", 2)
        while result.returncode == 74 and "another run holds it" in result.stderr:
            result = self.mpio.run("x", 2)
        self.assertEqual(self.plain.sha256("x"), self.reference, "pwrite, then mpio")

    def test_errors_and_a_full_disk(self):
        for where, action, code in (("results.write.data@1/0", "enospc", 74), ("results.write.data@7", "enospc", 74),
                                    ("results.create.closed", "throw", 70), ("results.freeze.begin/1", "throw", 70)):
            self.plain.forget("x")
            result = self.mpio.run("x", 2, MAGISTER_FAIL_POINT=f"{where}:{action}")
            self.assertEqual(result.returncode, code, f"{where}: {result.stderr[-2000:]}")
            self.assertEqual(list(self.mpio.results("x").parent.glob("*.creating")), [], where)
            self.assertEqual(self.mpio.complete("x", 2), self.reference, where)

    def test_keys(self):
        for text, words in (("driver: mpi", "mpio"), ("driver: pwrite, hints: {striping_factor: 4}", "only MPI-IO takes hints"),
                            ("hints: {striping_factor: 4}", "only MPI-IO takes hints"), ("driver: mpio, hints: [a]", "a map of further keys"),
                            ("driver: mpio, hints: {a: [1]}", "one value"), ("driver: mpio, hints: {\"a b\": x}", "is not a hint that this MPI takes"),
                            ("driver: mpio, hints: {a: \"\"}", "is not a hint that this MPI takes"),
                            (f"driver: mpio, hints: {{a: {'x' * 300}}}", "is not a hint that this MPI takes")):
            world = World(self.scratch.name, records=60, model=self.plain.model)
            world.text = EXPERIMENT.replace("{runs}", "{runs}, " + text.replace("{", "{{").replace("}", "}}"))
            result = world.run("keys", 1)
            self.assertEqual(result.returncode, 78, f"{text}: {result.stderr[-2000:]}")
            self.assertIn(words, result.stderr, text)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
