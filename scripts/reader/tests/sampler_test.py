"""The order of ResumableSampler against a slow one in plain Python, and that no change of replicas skips or repeats a sample."""
import collections
import itertools
import pickle
import random
import unittest

import program_files  # noqa: F401  puts the package on the path
import numpy

import magister_reader
from magister_reader import ResumableSampler
from magister_reader.sampler import shuffled

MASK = (1 << 64) - 1


def slow_splitmix64(state):
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def slow_order(num_samples, seed, epoch):
    key = slow_splitmix64(slow_splitmix64(seed & MASK) ^ (epoch & MASK))
    return sorted(range(num_samples), key=lambda i: (slow_splitmix64((key + i * 0x9E3779B97F4A7C15) & MASK), i))


class Sampler(unittest.TestCase):
    def test_the_generator_is_the_published_one(self):
        """The first numbers of splitmix64 with seed 1234567, as its authors' C program prints them."""
        expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
        self.assertEqual([slow_splitmix64((1234567 + i * 0x9E3779B97F4A7C15) & MASK) for i in range(5)], expected)

    def test_the_order(self):
        for num_samples, seed, epoch in ((0, 0, 0), (1, 5, 2), (1000, 7, 0), (1000, 7, 1), (1000, -3, 1), (257, 2**63 + 5, 10**12)):
            self.assertEqual(shuffled(num_samples, seed, epoch).tolist(), slow_order(num_samples, seed, epoch))
        orders = {tuple(shuffled(50, seed, epoch)) for seed in range(5) for epoch in range(5)}
        self.assertEqual(len(orders), 25)

    def test_the_order_looks_like_chance(self):
        """Over 2000 epochs each of 8 samples stands in each place about 250 times; chi-squared of 49 degrees of freedom."""
        counts = numpy.zeros((8, 8))
        for epoch in range(2000):
            counts[numpy.arange(8), shuffled(8, 1, epoch)] += 1
        self.assertLess(((counts - 250)**2 / 250).sum(), 100)

    def test_replicas_cover_each_sample_once(self):
        for num_samples, num_replicas in itertools.product((0, 1, 7, 40), (1, 2, 3, 8)):
            samplers = [ResumableSampler(num_samples, 3, 1, num_replicas=num_replicas, rank=rank) for rank in range(num_replicas)]
            orders = [list(sampler) for sampler in samplers]
            self.assertEqual([len(sampler) for sampler in samplers], [len(order) for order in orders])
            self.assertEqual(sorted(sum(orders, [])), list(range(num_samples)))
            even = [list(ResumableSampler(num_samples, 3, 1, num_replicas=num_replicas, rank=rank, drop_last=True)) for rank in range(num_replicas)]
            self.assertEqual({len(order) for order in even}, {num_samples // num_replicas})

    def test_another_number_of_replicas_goes_on(self):
        """A run that stops at any step and goes on with any number of replicas and any batch: what was used is the epoch, each sample once."""
        source = random.Random(4)
        for _ in range(60):
            num_samples, used, state = source.randint(1, 90), [], None
            while len(used) < num_samples:
                num_replicas, batch, steps = source.choice((1, 2, 3, 4, 6)), source.randint(1, 4), source.randint(1, 3)
                samplers = [ResumableSampler(num_samples, seed=11, num_replicas=num_replicas, rank=rank) for rank in range(num_replicas)]
                for sampler in samplers if state else ():
                    sampler.load_state_dict(state)
                iterators = [iter(sampler) for sampler in samplers]
                for iterator in iterators:  # a loader that fetches ahead must not matter
                    used += list(itertools.islice(iterator, steps * batch))
                    list(itertools.islice(iterator, 5))
                for _ in range(steps):
                    samplers[-1].advance(num_replicas * batch)
                state = pickle.loads(pickle.dumps(samplers[-1].state_dict()))
                self.assertEqual(collections.Counter(used), collections.Counter(slow_order(num_samples, 11, 0)[:len(used)]))
            self.assertEqual(state["position"], num_samples)

    def test_epochs_and_refusals(self):
        sampler = ResumableSampler(30, seed=2, epoch=0, position=10)
        self.assertEqual(list(sampler), slow_order(30, 2, 0)[10:])
        sampler.set_epoch(1)
        self.assertEqual(list(sampler), slow_order(30, 2, 1))
        with self.assertRaisesRegex(magister_reader.Error, "the state is of 30 samples and there are 31"):
            ResumableSampler(31, seed=2).load_state_dict(sampler.state_dict())
        for arguments in ({"rank": 2, "num_replicas": 2}, {"rank": -1}, {"position": 31}, {"num_replicas": 0}):
            with self.assertRaises(magister_reader.Error):
                ResumableSampler(30, **arguments)


if __name__ == "__main__":
    unittest.main(verbosity=2)
