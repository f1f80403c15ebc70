"""ResumableSampler: a shuffled order that a training run can leave and go on with, on any number of replicas.

The order of an epoch is a function of (num_samples, seed, epoch) alone: samples sorted by a hash of their number (splitmix64, Steele, Lea and
Flood 2014), not numpy's shuffle, whose stream may change between versions. What a run remembers is one number, the position: how many samples
of the epoch all replicas have used together. Replica r of R takes the places position + r, position + r + R, ...; after s steps of b samples
each the used ones are the first s * b * R places, whatever R is, so another number of replicas goes on without a gap or a repeat.
"""
import numpy

from .error import fail

_GOLDEN, _FIRST, _SECOND = (numpy.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def splitmix64(state):
    """Of u64 arrays: the number that the generator gives in the state before `state + golden`."""
    z = state + _GOLDEN
    z = (z ^ (z >> numpy.uint64(30))) * _FIRST
    z = (z ^ (z >> numpy.uint64(27))) * _SECOND
    return z ^ (z >> numpy.uint64(31))


def shuffled(num_samples, seed, epoch):
    """-> i64 [num_samples]: the samples in the epoch's order. 25 bytes of memory per sample while it is made."""
    key = splitmix64(splitmix64(numpy.array([seed % (1 << 64)], numpy.uint64)) ^ numpy.array([epoch % (1 << 64)], numpy.uint64))
    return numpy.argsort(splitmix64(key + numpy.arange(num_samples, dtype=numpy.uint64) * _GOLDEN), kind="stable")


class ResumableSampler:
    """For DataLoader(sampler=...). The loader fetches ahead, so only the training loop knows what was used: it calls `advance(count)` after
    each step with the samples of all replicas, and saves `state_dict()` with the model. `__iter__` begins at the position.

    Every sample comes up exactly once over all replicas, so at the end of an epoch some replicas may have one sample more than others;
    drop_last=True leaves out the last ones, fewer than num_replicas, so that all have equally many.
    """

    def __init__(self, num_samples, seed=0, epoch=0, position=0, num_replicas=1, rank=0, drop_last=False):
        if not 0 <= rank < num_replicas:
            fail(f"rank {rank} of {num_replicas} replicas", "it would get the samples of another or none", "give 0 <= rank < num_replicas")
        self.num_samples, self.seed, self.num_replicas, self.rank, self.drop_last = num_samples, seed, num_replicas, rank, drop_last
        self._made_for, self._order = None, None
        self._go_to(epoch, position)

    def _go_to(self, epoch, position):
        if not 0 <= position <= self.num_samples:
            fail(f"position {position} of {self.num_samples} samples", "it is outside the epoch", "give a position that state_dict() gave")
        self.epoch, self.position = epoch, position

    def __len__(self):
        left = self.num_samples - self.position
        return left // self.num_replicas if self.drop_last else max(0, -(-(left - self.rank) // self.num_replicas))

    def __iter__(self):
        if self._made_for != (self.seed, self.epoch):
            self._made_for, self._order = (self.seed, self.epoch), shuffled(self.num_samples, self.seed, self.epoch)
        mine = self._order[self.position + self.rank::self.num_replicas][:len(self)]
        return iter(mine.tolist())

    def advance(self, count):
        """`count` samples more were used, over all replicas; behind the last one the position stays at the end."""
        self._go_to(self.epoch, min(self.position + count, self.num_samples))

    def set_epoch(self, epoch):
        """The beginning of an epoch."""
        self._go_to(epoch, 0)

    def state_dict(self):
        return {"num_samples": self.num_samples, "seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state):
        if state["num_samples"] != self.num_samples:
            fail(f"the state is of {state['num_samples']} samples and there are {self.num_samples}", "the order would be another one",
                 "open the same results with the same lengths, or begin an epoch of them")
        self.seed = state["seed"]
        self._go_to(state["epoch"], state["position"])

    def __getstate__(self):
        return {**self.__dict__, "_made_for": None, "_order": None}
