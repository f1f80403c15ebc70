"""CPU ranks share their host's memory: weights are in it once, and what the shards of a host need together is checked before anything is loaded, against the limit of
the machine, its cgroup or Slurm (SLURM_MEM_PER_NODE stands for all of them here), by `plan` as by `run`.
"""
import ctypes
import errno
import json
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_world import PROGRAM, World, let_go, make_model, stopped_ranks, wait_until

TEXTS = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: generate
    dataset: {{path: {data}, key: id, limit: 5}}
    max_new_tokens: 4
    max_prompt_length: 2048
    max_sequences: 4096
"""


def kernel_has_huge_shared_pages():
    """It takes MADV_COLLAPSE of 2 MiB of a memfd, at such a border, as the program asks. A page that it lacks at this moment is another matter."""
    page, libc = 2 << 20, ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, offset = ctypes.c_size_t, ctypes.c_int64
    room = libc.mmap(None, size(2 * page), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, offset(0))
    file = os.memfd_create("huge")
    os.ftruncate(file, page)
    fixed = 0x10  # MAP_FIXED
    place = libc.mmap(ctypes.c_void_p((room + page - 1) // page * page), size(page), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed, file, offset(0))
    os.close(file)
    ctypes.memset(place, 0, 1)
    return libc.madvise(ctypes.c_void_p(place), size(page), 25) == 0 or ctypes.get_errno() != errno.EINVAL


def proportional_bytes(pid):
    """Without programs and libraries, whose share falls with every other process of the machine that has them mapped: between two runs it changed by 0.8 of a model."""
    total, counts = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            path = " ".join(rest[4:])
            counts = ".so" not in pathlib.Path(path).name and os.path.realpath(path) != os.path.realpath(PROGRAM)
        elif counts and name == "Pss:":
            total += 1024 * int(rest[0])
    return total


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        cls.world = World(folder / "a", records=12, model=make_model(folder / "model", max_position_embeddings=200000))
        cls.texts = World(folder / "b", records=12, model=cls.world.model, text=TEXTS, results=("answers.h5",))

    def both(self, ranks, code, *arguments, **environment):
        """plan and run give the same exit code -> their messages."""
        command = [PROGRAM, "plan", str(self.world.experiment("x")), *arguments]
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
        planned = subprocess.run([*launcher, *command], env={**self.world.environment, **environment}, capture_output=True, text=True, check=False)
        self.world.forget("x")
        ran = self.world.run("x", ranks if ranks > 1 else 0, *arguments, **environment)
        self.assertEqual((planned.returncode, ran.returncode), (code, code), planned.stderr[-1500:] + ran.stderr[-1500:])
        return planned.stderr, ran.stderr

    def test_what_does_not_fit_is_refused_before_loading(self):
        for message in self.both(1, 78, "tasks.0.unit_tokens=300000", SLURM_MEM_PER_NODE="64"):
            self.assertRegex(message, r"of memory free of 64\.0 MiB, which Slurm's --mem limits, and its one shard need.* weights .*activations .*; use fewer ranks")
        self.assertFalse(list((self.world.folder / "runs").glob("x/*.h5*")), "nothing is begun")

    def test_ranks_of_a_host_need_it_together(self):
        arguments = ("tasks.0.unit_tokens=20000",)
        self.both(1, 0, *arguments, SLURM_MEM_PER_NODE="96")
        for message in self.both(4, 78, *arguments, SLURM_MEM_PER_NODE="96"):
            self.assertIn("its 4 shards need", message)

    def test_the_caches_of_all_shards_fit_together(self):
        """An eighth of the memory for the keys and values of all of them: 8 MiB here, 2 for each of four."""
        def cache(ranks):
            done = subprocess.run([PROGRAM, "plan", str(self.texts.experiment("y")), "--ranks", str(ranks)], capture_output=True, text=True, check=False,
                                  env={**self.texts.environment, "SLURM_MEM_PER_NODE": "64"})
            self.assertEqual(done.returncode, 0, done.stderr)
            line = next(line for line in done.stdout.splitlines() if "keys and values" in line)
            number, unit = line.split("keys and values")[1].replace(",", " ").replace(")", " ").split()[:2]
            return float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
        alone, four = cache(1), cache(4)
        self.assertLessEqual(alone, 8 << 20)
        self.assertGreater(alone, 6 << 20)
        self.assertLessEqual(four, alone / 3)
        self.assertEqual(self.texts.complete("y", 1, SLURM_MEM_PER_NODE="64"), (self.texts.forget("y"), self.texts.complete("y", 4, SLURM_MEM_PER_NODE="64"))[1])


class WeightsOnce(unittest.TestCase):
    """Memory beyond that of the same with a tiny model, over the weights' bytes: programs, buffers and libraries are in both."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        cls.large = World(folder / "large", records=12, model=make_model(folder / "model", hidden_size=384, intermediate_size=1024, num_hidden_layers=16,
                                                                         num_attention_heads=6, num_key_value_heads=2))
        cls.small = World(folder / "small", records=12)
        (cls.more_weights, cls.more_peak), (weights, peak) = cls.bench(cls.large), cls.bench(cls.small)
        cls.more_weights -= weights
        cls.more_peak -= peak

    @staticmethod
    def bench(world):
        command = [PROGRAM, "bench", "prefill", str(world.model), "--tokens", "16", "--repeats", "1", "--dtype", "f32", "--json"]
        done = subprocess.run(command, env=world.environment, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        return found["weight_bytes"], found["peak_bytes"]

    def together(self, world):
        """Bytes of two ranks that have computed, where both hold what they share (Pss)."""
        process = world.start("x", 2, MAGISTER_FAIL_POINT="teacher.unit.computed:stop")
        wait_until(lambda: len(stopped_ranks(process)) == 2 or process.poll() is not None)
        of_ranks = [proportional_bytes(pid) for pid in stopped_ranks(process)]
        let_go(process)
        self.assertEqual((len(of_ranks), process.returncode), (2, 0))
        return sum(of_ranks)

    def test_a_rank_packs_weights_without_a_second_copy(self):
        self.assertLess(self.more_peak / self.more_weights, 1.2)  # 1.14

    def test_two_ranks_have_one_copy(self):
        if not kernel_has_huge_shared_pages():
            self.skipTest("this kernel gives shared memory no huge pages, so every rank has a copy")
        self.assertLess((self.together(self.large) - self.together(self.small)) / self.more_weights, 1.6)  # 1.39, and 2.68 with a copy each


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
