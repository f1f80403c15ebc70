"""CPU ranks share their host's memory: weights are in it once, and what the shards of a host need together is checked before anything is loaded, against the limit of
the machine, its cgroup or Slurm (SLURM_MEM_PER_NODE stands for all of them here), by `plan` as by `run`.
"""
import ctypes
import errno
import json
import mmap
import os
import pathlib
import re
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


# Runs the command that follows where the kernel answers as one older than Linux 6.1, which knows no MADV_COLLAPSE (25). Source: seccomp(2).
REFUSING = """
import ctypes, os, platform, struct, sys
madvise = {"x86_64": 28, "aarch64": 233}[platform.machine()]
load, jump_if_equal, give = 0x20, 0x15, 0x06
steps = [(load, 0, 0, 0), (jump_if_equal, 0, 3, madvise), (load, 0, 0, 32), (jump_if_equal, 0, 1, 25), (give, 0, 0, 0x50000 | 22), (give, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(text)))
libc = ctypes.CDLL(None)
no_new_privileges, seccomp, a_filter = 38, 22, 2
assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0 and libc.prctl(seccomp, a_filter, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


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

    def together(self, world, ranks=2):
        """Bytes of ranks that have computed, where all hold what they share (Pss)."""
        world.forget("x")
        process = world.start("x", ranks, MAGISTER_FAIL_POINT="teacher.unit.computed:stop")
        wait_until(lambda: len(stopped_ranks(process)) == ranks or process.poll() is not None)
        of_ranks = [proportional_bytes(pid) for pid in stopped_ranks(process)]
        let_go(process)
        self.assertEqual((len(of_ranks), process.returncode), (ranks, 0))
        return sum(of_ranks)

    def command(self, kind, world, ranks, *arguments, refusing=False, **environment):
        """plan or run -> CompletedProcess."""
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 0 else []
        words = [*([sys.executable, "-c", REFUSING] if refusing else []), *launcher, PROGRAM, kind, str(world.experiment("y")), *arguments]
        world.forget("y")
        return subprocess.run(words, env={**world.environment, **environment}, capture_output=True, text=True, check=False)

    def planned(self, world, ranks, *arguments, **options):
        """-> the words of plan, and the bytes that all ranks need."""
        done = self.command("plan", world, ranks, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        number, unit = re.search(r"memory per device +([\d.]+) (\w+)", done.stdout).groups()
        return done.stdout, max(ranks, 1) * float(number) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]

    def test_a_rank_packs_weights_without_a_second_copy(self):
        self.assertLess(self.more_peak / self.more_weights, 1.2)  # 1.14

    def test_two_ranks_have_one_copy(self):
        if not kernel_has_huge_shared_pages():
            self.skipTest("this kernel gives shared memory no huge pages, so every rank has a copy")
        self.assertLess((self.together(self.large) - self.together(self.small)) / self.more_weights, 1.6)  # 1.39, and 2.68 with a copy each

    def test_plan_counts_what_one_two_and_four_ranks_have(self):
        """Beyond the same of a tiny model, over the weights' bytes. With a copy each, two ranks would have 1 more and four 3 more."""
        shares = kernel_has_huge_shared_pages()
        for ranks in (1, 2, 4):
            words, large = self.planned(self.large, ranks)
            planned = (large - self.planned(self.small, ranks)[1]) / self.more_weights
            real = (self.together(self.large, ranks) - self.together(self.small, ranks)) / self.more_weights
            with self.subTest(ranks=ranks, planned=planned, real=real):
                self.assertLess(abs(real - planned), 0.25)  # 1.04 and 1.02, 1.08 and 1.07, 1.15 and 1.11
                self.assertEqual(f"one for the {ranks} shards of a host" in words, shares and ranks > 1, words)
                self.assertEqual(f"1/{ranks} of the shared weights" in words, shares and ranks > 1, words)

    def test_plan_and_run_let_a_job_begin_that_has_room_for_one_copy(self):
        """Where the kernel refuses to share, both say so before anything is loaded."""
        room = {"SLURM_MEM_PER_NODE": str(int(1.5 * self.more_weights) >> 20)}
        for ranks in (2, 4):
            for kind in ("plan", "run"):
                with self.subTest(kind=kind, ranks=ranks):
                    done = self.command(kind, self.large, ranks, **room)
                    self.assertEqual(done.returncode, 0 if kernel_has_huge_shared_pages() else 78, done.stderr)
                    refused = self.command(kind, self.large, ranks, refusing=True, **room)
                    self.assertEqual(refused.returncode, 78, refused.stderr)
                    self.assertRegex(refused.stderr, f"its {ranks} shards need .*: weights [0-9.]+ MiB, activations .*would kill the job")
        words, _ = self.planned(self.large, 2, refusing=True)
        self.assertIn("copies of weights  one for each of the 2 shards of a host (its ranks are", words)
        self.assertNotIn("shared weights", words)

    def test_plan_says_what_it_assumes_of_other_hosts(self):
        refused, _ = self.planned(self.large, 0, "--ranks", "4", refusing=True)
        self.assertIn("copies of weights  one for each of the 4 shards of a host like this one (", refused)
        if kernel_has_huge_shared_pages():
            words, _ = self.planned(self.large, 0, "--ranks", "4")
            self.assertRegex(words, r"copies of weights +\w+ for the 4 shards of a host like this one, one at each NUMA node; where ranks cannot share memory, "
                                    r"each shard needs [\d.]+ MiB more")
        alone, _ = self.planned(self.large, 2, "plan.device_memory=1GiB")
        self.assertIn("copies of weights  one for each shard (plan.device_memory is that of a shard alone)", alone)
        self.assertNotIn("shared weights", alone)
        self.assertNotIn("copies", self.planned(self.large, 2, "layout.gpus_per_group=2")[0], "the shards of a model differ")
        config_only = self.command("plan", self.large, 0, "--config-only")
        self.assertIn("  copies    one for each shard; ranks of one host that hold whole models share most of the weights where its\n", config_only.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
