"""CPU ranks share their host's memory: what the shards of a host need together is checked before anything is loaded, against the limit of
the machine, its cgroup or Slurm (SLURM_MEM_PER_NODE stands for all of them here), by `plan` as by `run`.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_world import PROGRAM, World, make_model

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
