"""The package itself: it needs torch and pyarrow only where they are used, its sources can be packed, its page's example runs, and a table
of a file is the file.
"""
import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

import program_files
import numpy

import magister_reader

HERE = pathlib.Path(__file__).resolve().parent.parent


class Package(unittest.TestCase):
    def run_python(self, code, **options):
        environment = {**os.environ, "PYTHONPATH": str(HERE / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_torch_and_pyarrow_are_not_imported(self):
        self.assertEqual(self.run_python("import sys, magister_reader; print({'torch', 'pyarrow', 'transformers'} & set(sys.modules))"), "set()\n")

    def test_sources_are_packed(self):
        """By setuptools alone, without a network."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "reader"
            shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
            name = self.run_python("import setuptools.build_meta as b; print('made', b.build_sdist('.'))", cwd=copy).split()[-1]
            with tarfile.open(copy / name) as packed:
                members = {member.split("/", 1)[1] for member in packed.getnames() if "/" in member}
            self.assertLessEqual({f"src/magister_reader/{path.name}" for path in (HERE / "src/magister_reader").glob("*.py")}, members)
            requires = (copy / "src/magister_reader.egg-info/requires.txt").read_text().split()
            self.assertRegex(" ".join(requires), r"^h5py>=\S+ numpy>=\S+ \[arrow\] pyarrow>=\S+ \[torch\] torch>=\S+$")

    def test_the_example_of_the_page(self):
        """The first Python block of README.md, on a file of the tiny model and with that model as the student."""
        path, model = program_files.teacher(), program_files.world().model
        code = re.search(r"```python\n(.*?)```", (HERE / "README.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
        code = code.replace("runs/mine/teacher.h5", str(path)).replace("/models/student", str(model))
        self.assertIn(str(path), code)
        self.assertIn(str(model), code)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, "README.md", "exec"), {})
        self.assertRegex(said.getvalue(), r"^loss -?\d\.\d")


class Tables(unittest.TestCase):
    def test_rows(self):
        for path in (program_files.teacher(), *program_files.chain()):
            with magister_reader.open(path) as results:
                for row, sample in zip(magister_reader.rows(path), results, strict=True):
                    self.assertEqual(list(row), list(results.columns))
                    self.assertEqual((row["key"], row["source_index"], type(row["source_index"])), (sample.key, sample.source_index, int))
                    for name, value in row.items():
                        numpy.testing.assert_array_equal(value, sample[name])
            self.assertEqual(list(next(magister_reader.rows(path, columns=["ids", "samples/key"]))), ["ids", "samples/key"])

    def test_record_batches(self):
        try:
            import pyarrow
        except ImportError:
            with self.assertRaises(ImportError):
                next(magister_reader.record_batches(program_files.teacher()))
            return
        for path in (program_files.teacher(), program_files.assistant(), *program_files.chain()):
            with mock.patch("magister_reader.results.BLOCK_ROWS", 90):
                table = pyarrow.Table.from_batches(magister_reader.record_batches(path))
            table.validate(full=True)
            for found, row in zip(table.to_pylist(), magister_reader.rows(path), strict=True):
                for name, value in row.items():
                    numpy.testing.assert_array_equal(numpy.array(found[name]).reshape(numpy.shape(value)), value)


if __name__ == "__main__":
    unittest.main(verbosity=2)
