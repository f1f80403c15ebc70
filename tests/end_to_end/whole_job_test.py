"""One whole job: teacher logits on two ranks, then texts and their verdicts, all files checked and read by h5py. It is the job that runs
under the sanitizers; here it also runs with AVX2 alone, which must give what the widest kernels of this CPU give: ids and texts the
same, values to a few units of the last place (products give the same bits, sums over a row may be fused otherwise).
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

from tiny_world import CHAIN, PROGRAM, World

AVX2 = {"MAGISTER_CPU_KERNELS": "avx2"}
LIMIT = 2e-5


def columns(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


class WholeJob(unittest.TestCase):
    def test_the_environment_chooses_the_kernels(self):
        """The comparisons below are of two builds, unless this CPU has AVX2 alone."""
        told = lambda **more: json.loads(subprocess.run([PROGRAM, "--version", "--json"], env={**os.environ, **more}, capture_output=True, check=True).stdout)
        self.assertEqual(told(**AVX2)["cpu_kernels"], "avx2")
        self.assertIn(told()["cpu_kernels"], ("avx512", "avx512vnni", "avx512bf16", "amx") if "avx512" in told()["cpu"] else ("avx2",))

    def compare(self, world, name):
        for file in world.names:
            subprocess.run([PROGRAM, "check", str(world.results(name).with_name(file))], check=True, capture_output=True)
            wide, narrow = (columns(world.results(run).with_name(file)) for run in (name, f"{name}-avx2"))
            self.assertEqual(wide.keys(), narrow.keys())
            worst = 0.0
            for key, values in wide.items():
                if key.endswith("crc32c"):
                    continue
                if values.dtype.kind != "f":
                    numpy.testing.assert_array_equal(values, narrow[key], f"{file} {key}")
                    continue
                self.assertTrue(numpy.array_equal(numpy.isnan(values), numpy.isnan(narrow[key])), key)
                worst = max(worst, float(numpy.nanmax(numpy.abs(values.astype(float) - narrow[key]), initial=0.0)))
            print(f"   {file}: largest difference of AVX2 {worst:.1e}", flush=True)
            self.assertLess(worst, LIMIT, file)

    def test_teacher_logits(self):
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, records=30)
            world.complete("job", 2, seconds=600)
            world.complete("job-avx2", 2, seconds=600, **AVX2)
            self.compare(world, "job")

    def test_texts_and_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, records=18, text=CHAIN, results=("answers.h5", "verdicts.h5"))
            world.complete("job", 2, seconds=600)
            world.complete("job-avx2", 2, seconds=600, **AVX2)
            self.compare(world, "job")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
