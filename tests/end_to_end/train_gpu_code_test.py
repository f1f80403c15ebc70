"""Task train with the passes of a GPU's code, on the host (MAGISTER_GPU_CODE_ON_HOST=1): every objective within rounding of the CPU's code, the same bits
for every number of ranks, after kills and where memory ends; states of the other kind of device are refused, and groups of several GPUs. No GPU is asked.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
from safetensors.torch import load_file

import preference_test
import tiny_world
from train_test import EXPERIMENT

ON_HOST = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
HEAD = tiny_world.EXPERIMENT.split("  - task:")[0].replace("layout:", "seed: 3\nlayout:")
TRAIN = "train: {{steps: 6, global_batch: 4, max_length: 64, shuffle: false, optimizer: {{lr: 1.5e-4, schedule: constant}}}}\n"
# Students of one teacher by every loss's way through the head: one softmax and two.
CHAIN = HEAD + """  - task: teacher_logits
    dataset: {{path: {data}, key: id, text: chosen}}
    max_length: 96
    top_k: 8
""" + "".join(f"""  - task: train
    name: {name}
    objective: distill
    teacher: {{{{task: teacher}}}}
    distill: {{{{{options}}}}}
    model: {{{{path: {{model}}}}}}
    """ + TRAIN for name, options in (("forward", "loss: forward_kl, lm_weight: 0.2"), ("js", "loss: js, tail: renormalised, temperature: 2.0"))) + """  - task: train
    name: preferred
    objective: dpo
    dataset: {{path: {data}, key: id}}
    """ + TRAIN + """  - task: train
    name: rewarded
    objective: reward
    dataset: {{path: {data}, key: id}}
    """ + TRAIN
STUDENTS = ("forward", "js", "preferred", "rewarded")


class GpuCode(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder / "texts", records=26, text=EXPERIMENT, results=("student.h5",))

    def content(self, name, world=None, student="student"):
        results = (world or self.world).results(name).with_name(f"{student}.h5")
        return results.read_bytes(), *(path.read_bytes() for path in sorted(results.with_suffix("").glob("*.safetensors")))

    def train(self, name, ranks, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done.stdout + done.stderr

    def compare(self, found, expected, limits, world=None, student="student"):
        """Relative: the largest of the curves', and of tensors' L2 norms; limits are three times what is measured, or more. The GPU's code has bits of its own: other code than the CPU's has run."""
        curves, weights = [], []
        for name in (found, expected):
            results = (world or self.world).results(name).with_name(f"{student}.h5")
            with h5py.File(results) as file:
                curves.append({key: file[f"train/{key}"][()] for key in ("loss", "grad_norm")})
            (path,) = results.with_suffix("").glob("*.safetensors")
            weights.append(load_file(path))
        apart = {key: float(numpy.abs(curves[0][key] / curves[1][key] - 1).max()) for key in curves[0]}
        apart["weights"] = max(((weights[0][key] - value).norm() / value.norm().clamp_min(1e-9)).item() for key, value in weights[1].items())
        print(f"   {student} {found}: " + ", ".join(f"{key} {value:.1e}" for key, value in apart.items()), flush=True)
        for (key, value), limit in zip(apart.items(), limits):
            self.assertLess(value, limit, f"{student} {key}")
        self.assertNotEqual(self.content(found, world, student), self.content(expected, world, student))

    def test_ranks_kills_and_memory_change_nothing(self):
        held_out = (f"tasks.0.train.evaluate.dataset.path={self.world.data}", "tasks.0.train.evaluate.every=4")
        self.train("cpu", 1, *held_out)
        self.train("bits", 1, *held_out, **ON_HOST)
        one = self.content("bits")
        self.compare("bits", "cpu", (1e-6, 1e-6, 1e-6))
        for ranks, zero in ((2, 1), (4, 0)):
            self.world.forget("bits")
            self.train("bits", ranks, *held_out, f"tasks.0.train.zero={zero}", **ON_HOST, OMP_NUM_THREADS=str(3 - ranks // 2))
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        self.world.forget("bits")
        self.assertNotEqual(self.world.run("bits", 2, *held_out, **ON_HOST, MAGISTER_FAIL_POINT="train.step.begin@6:kill").returncode, 0)
        # The CPU's code does not go on with it.
        tiny_world.wait_until(lambda: self.world.run("bits", 1, *held_out).returncode == 78, seconds=60, pause=0.3)
        lines = self.train("bits", 3, *held_out, **ON_HOST)
        self.assertIn("goes on after step 3", lines)
        self.assertEqual(self.content("bits"), one)
        self.world.forget("bits")
        lines = self.train("bits", 1, *held_out, **ON_HOST, MAGISTER_FAIL_POINT="train.pass.memory@5:enospc")
        self.assertIn("layers are computed again", lines)
        self.assertEqual(self.content("bits"), one)

    def test_adapters_in_bf16(self):
        arguments = ("tasks.0.train.precision=bf16", "tasks.0.train.steps=4", "tasks.0.train.adapter.targets=all-linear", "tasks.0.train.optimizer.lr=2.0e-3")
        self.train("lora-cpu", 1, *arguments)
        self.train("lora", 2, *arguments, **ON_HOST)
        self.compare("lora", "lora-cpu", (3e-4, 6e-3, 2.5e-2))

    def test_every_objective(self):
        world = tiny_world.World(self.folder / "objectives", records=3, text=CHAIN, results=("teacher.h5", *(f"{name}.h5" for name in STUDENTS)))
        preference_test.Preference.write(preference_test.pairs(14), world.data)
        teacher = tiny_world.make_model(self.folder / "teacher", seed=3)
        for name, environment in (("cpu", {}), ("gpu", ON_HOST)):
            world.complete(name, 1, f"tasks.0.model.path={teacher}", "tasks.0.model.dtype=f32", "run.at_once=1", **environment)
        for student in STUDENTS:
            self.compare("gpu", "cpu", (4e-6, 4e-6, 2.5e-6), world, student)

    def test_plan_and_what_is_refused(self):
        for name, environment in (("plan-cpu", {}), ("plan", ON_HOST)):
            done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment(name))], env={**self.world.environment, **environment, "MAGISTER_ALLOW_SINGLETON": "1"},
                                  cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("host memory" in done.stdout, bool(environment), done.stdout)
        for word in ("optimizer", "gradients", "activations"):
            self.assertIn(word, done.stdout)
        done = self.world.run("refused", 0, "layout.shards_per_rank=2", **ON_HOST)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("layout.gpus_per_group", done.stderr)
        # GRPO stays on CPUs.
        grpo = self.folder / "grpo.jsonl"
        grpo.write_text("".join(json.dumps({"id": str(i), "text": "plan unit", "answer": "5"}) + "\n" for i in range(4)))
        arguments = ("tasks.0.objective=grpo", f"tasks.0.dataset.path={grpo}", "tasks.0.train.steps=1", "tasks.0.grpo.reward.verifier=math", "tasks.0.grpo.num_generations=2", "tasks.0.grpo.max_new_tokens=4")
        self.train("grpo", 1, *arguments, **ON_HOST)
        with h5py.File(self.world.results("grpo")) as file:
            self.assertEqual(file.attrs["device"], b"cpu")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
