"""Every kind of CPU that this machine can stand for: AVX2, AVX-512, AVX512-BF16, AMX. In bf16, with each of them: the same bytes for every
number of ranks and texts at once, log-probabilities near f32's, and what `dtype: auto` chooses.
"""
import re
import sys
import tempfile
import unittest

import h5py
import numpy

from tiny_world import CHAIN, World


class CpuKernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name + "/a", records=24)
        cls.chain = World(cls.scratch.name + "/b", records=24, model=cls.world.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        refused = cls.world.run("x", 0, MAGISTER_CPU_KERNELS="sse2")
        assert refused.returncode == 78, refused.stderr
        cls.kernels = re.search(r'MAGISTER_CPU_KERNELS is "sse2" in the environment \(this CPU has ([a-z0-9, ]+)\)', refused.stderr).group(1).split(", ")
        print("kernels here:", cls.kernels)

    def columns(self, *changes, **environment):
        self.world.forget("x")
        digest = self.world.complete("x", 1, *changes, **environment)
        with h5py.File(self.world.results("x")) as file:
            return digest, file.attrs["dtype"].decode(), {key: file[f"teacher/{key}"][:] for key in ("logsumexp", "target_logprob", "entropy")}

    def test_every_kind_of_cpu_gives_bf16_within_its_rounding(self):
        _, _, exact = self.columns()
        for kernels in self.kernels:
            with self.subTest(kernels):
                _, dtype, found = self.columns("model.dtype=bf16", MAGISTER_CPU_KERNELS=kernels)
                self.assertEqual(dtype, "bf16")
                for key, values in exact.items():  # 8 bits of weights, and of activations where products are in bf16
                    difference = numpy.abs(found[key] - values)
                    print(f"{kernels} {key}: mean {numpy.nanmean(difference):.4f}, largest {numpy.nanmax(difference):.4f}")
                    self.assertLess(numpy.nanmean(difference), 0.05, key)
                    self.assertLess(numpy.nanmax(difference), 0.5, key)
                self.world.forget("x")
                _, dtype, _ = self.columns("model.dtype=auto", MAGISTER_CPU_KERNELS=kernels)
                self.assertEqual(dtype, "bf16" if kernels in ("avx512bf16", "amx") else "f32")

    def test_a_run_goes_on_with_the_products_that_it_began_with(self):
        ways = {kernels if kernels in ("avx512bf16", "amx") else "f32": kernels for kernels in self.kernels}
        if len(ways) == 1:
            self.skipTest("this CPU has one way to multiply bf16")
        first, *others = ways.items()
        self.world.forget("x")
        begun = self.world.run("x", 1, "model.dtype=bf16", MAGISTER_CPU_KERNELS=first[1], MAGISTER_FAIL_POINT="results.commit.done_written@1:kill")
        self.assertNotEqual(begun.returncode, 0)
        for way, kernels in others:
            refused = self.world.run("x", 1, "model.dtype=bf16", MAGISTER_CPU_KERNELS=kernels)
            self.assertEqual(refused.returncode, 78, refused.stderr)
            for words in ("bf16_products", first[0], way):
                self.assertIn(words, refused.stderr)
        self.world.complete("x", 1, "model.dtype=bf16", MAGISTER_CPU_KERNELS=first[1])
        with h5py.File(self.world.results("x")) as file:
            self.assertEqual(file.attrs["bf16_products"].decode(), first[0])
        # What is complete is complete on every CPU.
        again = self.world.run("x", 1, "model.dtype=bf16", MAGISTER_CPU_KERNELS=others[0][1])
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("is complete already", again.stderr)

    def test_quantised_layers_go_on_with_any_kernels(self):
        """Their products are f32's on every CPU, whatever `auto` would have meant without quantisation."""
        changes = ("model.dtype=auto", "model.quantization=int8")
        self.world.forget("x")
        whole = self.world.complete("x", 1, *changes, MAGISTER_CPU_KERNELS=self.kernels[0])
        self.world.forget("x")
        begun = self.world.run("x", 1, *changes, MAGISTER_CPU_KERNELS=self.kernels[0], MAGISTER_FAIL_POINT="results.commit.done_written@1:kill")
        self.assertNotEqual(begun.returncode, 0)
        self.assertEqual(self.world.complete("x", 1, *changes, MAGISTER_CPU_KERNELS=self.kernels[-1]), whole)

    def test_bytes_do_not_depend_on_ranks_or_neighbours(self):
        for kernels in self.kernels:
            with self.subTest(kernels):
                digest, _, _ = self.columns("model.dtype=bf16", MAGISTER_CPU_KERNELS=kernels)
                self.world.forget("x")
                self.assertEqual(self.world.complete("x", 3, "model.dtype=bf16", MAGISTER_CPU_KERNELS=kernels), digest)
                rows = []
                for ranks, sequences, budget in ((1, 32, 512), (2, 1, 7)):
                    self.chain.forget("y")
                    self.chain.complete("y", ranks, "model.dtype=bf16", f"tasks.0.max_sequences={sequences}", f"tasks.0.token_budget={budget}",
                                        f"tasks.1.max_sequences={sequences}", f"tasks.1.token_budget={budget}", MAGISTER_CPU_KERNELS=kernels)
                    with h5py.File(self.chain.results("y").with_name("answers.h5")) as texts, h5py.File(self.chain.results("y")) as verdicts:
                        rows.append((texts["generate/logprob"][:].tobytes(), verdicts["judge/log_odds"][:].tobytes()))
                self.assertEqual(rows[0], rows[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
