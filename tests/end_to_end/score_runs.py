"""What tests of task: score share: runs of models in a folder, transformers' scores record by record, and that ranks, kills and other records
change nothing.
"""
import json
import unittest

import h5py
import numpy
import torch


class ScoreRuns(unittest.TestCase):
    """`world`: a tiny_world.World of one score task; `folder`: holds the models by name."""

    def values(self, name, model, ranks=1, *arguments, **environment):
        self.world.model = self.folder / model
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with h5py.File(self.world.results(name)) as file:
            self.labels = json.loads(file.attrs["labels"])
            self.tokens = file["tokens/id"][()]
            return file["score/value"][()]

    def expected(self, model, ids):
        with torch.no_grad():
            return numpy.stack([model(torch.tensor([one])).logits[0].numpy() for one in ids])

    def check_ranks_and_kills(self, model, many, unit):
        """-> the values. The same bytes on each of `many` ranks, and after a kill behind this unit and a restart on the last of them."""
        values = self.values("ranks", model, 1)
        first = self.world.sha256("ranks")
        for ranks in many:
            self.world.forget("ranks")
            self.values("ranks", model, ranks)
            self.assertEqual(self.world.sha256("ranks"), first)
        self.world.forget("ranks")
        killed = self.world.run("ranks", 2, MAGISTER_FAIL_POINT=f"score.unit.computed@{unit}:kill")
        self.assertNotEqual(killed.returncode, 0)
        self.values("ranks", model, many[-1])
        self.assertEqual(self.world.sha256("ranks"), first)
        return values
