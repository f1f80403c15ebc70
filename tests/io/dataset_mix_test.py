"""Sources drawn by weight against numpy's generator and the rule of Hugging Face's `datasets`, interleave_datasets(probabilities, seed,
stopping_strategy). Where that package is installed beside numpy, it is asked itself, too.
"""
import gzip
import json
import os
import pathlib
import random
import tempfile
import unittest

import numpy

from dataset_oracle_test import PROBE, records
from probe_cases import run_case

STOPS = ["first_exhausted", "all_exhausted", "all_exhausted_without_replacement"]


def interleaved(lengths, weights, seed, stop):
    """-> (source, record) of every record"""
    total = 0.0
    for weight in weights:
        total += weight
    rng = numpy.random.default_rng(seed)
    probabilities = [weight / total for weight in weights]
    taken, done, picks = [0] * len(lengths), [False] * len(lengths), []
    while True:
        for source in rng.choice(len(lengths), size=1000, p=probabilities):
            if (any if stop == 0 else all)(done):
                return picks
            if stop == 2 and done[source]:
                continue
            picks.append((int(source), taken[source]))
            taken[source] += 1
            if taken[source] >= lengths[source]:
                done[source], taken[source] = True, 0


def by_datasets(lengths, weights, seed, stop):
    import datasets
    sources = [datasets.Dataset.from_dict({"source": [i] * n, "record": list(range(n))}) for i, n in enumerate(lengths)]
    total = sum(weights)
    mixed = datasets.interleave_datasets(sources, [weight / total for weight in weights], seed=seed, stopping_strategy=STOPS[stop])
    return list(zip(mixed["source"], mixed["record"]))


class DatasetMix(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def files(self, lengths, packed=False):
        paths = []
        for source, length in enumerate(lengths):
            lines = "".join(json.dumps({"text": f"{source}:{i}"}) + "\n" for i in range(length)).encode()
            paths.append(str(self.folder / f"{source}.jsonl{'.gz' if packed else ''}"))
            pathlib.Path(paths[-1]).write_bytes(gzip.compress(lines) if packed else lines)
        return paths

    def test_order(self):
        """Every strategy, seeds of one and of two words, sources of one record and of many blocks of the index."""
        cases = [([7, 3, 5], [0.5, 0.3, 0.2], 0), ([1, 400], [1, 3], 42), ([250, 90, 1, 33], [0.1, 0.7, 0.05, 0.15], 2**40 + 5),
                 ([5], [2], 1), ([90_000, 60_000], [2, 1.5], 3), ([3] * 40, [random.Random(1).random() for _ in range(40)], 7)]
        for lengths, weights, seed in cases:
            for stop in range(3):
                with self.subTest(lengths=lengths[:4], weights=weights[:4], seed=seed, stop=STOPS[stop]):
                    expected = interleaved(lengths, weights, seed, stop)
                    try:
                        self.assertEqual(by_datasets(lengths, weights, seed, stop), expected)
                    except ImportError:
                        pass
                    paths = self.files(lengths, packed=len(lengths) == 4)
                    got, summary = records(paths=paths, weights=weights, seed=seed, stop=stop)
                    self.assertEqual([(i, key, text) for i, key, text, _, _ in got],
                                     [(i, str(i), f"{source}:{record}") for i, (source, record) in enumerate(expected)])
                    self.assertEqual(summary["records"], len(expected))
                    n = len(expected)
                    for begin, end in ((n // 3, n // 3 + 2), (n - 1, n), (0, n // 2), (max(0, n - 70_000), n - n // 9)):
                        part, _ = records(paths=paths, weights=weights, seed=seed, stop=stop, range=[begin, end])
                        self.assertEqual([(i, text) for i, _, text, _, _ in part],
                                         [(begin + i, f"{source}:{record}") for i, (source, record) in enumerate(expected[begin:end])])

    def test_identity(self):
        """What decides the order is in the data's digest; a limit is counted in what is mixed."""
        paths = self.files([50, 50])
        digests = set()
        for settings in ({"weights": [1, 2]}, {"weights": [2, 1]}, {"weights": [1, 2], "seed": 1}, {"weights": [1, 2], "stop": 1}, {}):
            got, summary = records(paths=paths, **settings)
            digests.add(summary["sha256"])
            some, _ = records(paths=paths, limit=13, **settings)
            self.assertEqual(some, got[:13])
        self.assertEqual(len(digests), 5)

    def test_bad_record_and_empty_source(self):
        paths = self.files([50, 50])
        pathlib.Path(paths[1]).write_text('{"text": "a"}\n{"text": 1}\n')
        done = run_case([PROBE, "records", json.dumps({"paths": paths, "weights": [1, 1]})], text=True)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn(f"{paths[1]}:2:", done.stderr)
        pathlib.Path(paths[1]).write_text("")
        done = run_case([PROBE, "records", json.dumps({"paths": paths, "weights": [1, 1]})], text=True)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn("source 1 of dataset.sources has no records", done.stderr)

    def test_weight_too_small(self):
        paths = self.files([1, 3000])
        done = run_case([PROBE, "records", json.dumps({"paths": paths, "weights": [1e6, 1e-6], "stop": 1})], text=True,
                        env={**os.environ, "MAGISTER_MOST_DRAWS": "1"})
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("a weight is too small compared with the others", done.stderr)


if __name__ == "__main__":
    unittest.main()
