"""Task train with the passes of a GPU's code, on the host (MAGISTER_GPU_CODE_ON_HOST=1): every objective within rounding of the CPU's code, the same bits
for every number of ranks, whether GPUs or hosts add their gradients, after kills and where memory ends; states of the other kind of device are refused, and groups of several GPUs. No GPU is asked.
"""
import hashlib
import json
import math
import pathlib
import re
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
BY_GPUS, BY_HOSTS = {}, {"MAGISTER_SUMS_BETWEEN_GPUS": "0"}  # the way of what ranks exchange
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
ROLLOUTS = HEAD + """  - task: rollout
    dataset: {{path: {data}, key: id}}
    max_prompt_length: 2048
    max_new_tokens: 10
    cuts: 2
    n: 3
    first_cut: 0
    temperature: 1.4
    reward: {{verifier: regex, pattern: "[0-9a-c]"}}
"""
# Value models of both losses that read tokens, learnt from one file: rollouts of the two codes would be other texts.
VALUES = HEAD + "".join(f"""  - task: train
    name: {name}
    objective: value
    rollouts: {{{{results: ROLLOUTS}}}}
    value: {{{{loss: {name}}}}}
    """ + TRAIN.replace("max_length: 64", "max_length: 256") for name in ("bce", "histogram"))
GRPO = HEAD + """  - task: train
    objective: grpo
    dataset: {{path: {data}, key: id}}
    grpo: {{num_generations: 4, max_new_tokens: 10, log_completions: true, reward: {{verifier: regex, pattern: "[0-9a-e]"}}}}
    train: {{steps: 4, global_batch: 12, max_length: 64, save_every: 2, shuffle: false, optimizer: {{lr: 2.0e-3, schedule: constant}}}}
"""
PROMPTS = ("plan unit", "the logit of", "12 345 some words", "if(x) return;", "tokenizer, teacher", "mir")
G, T = "tasks.0.grpo.", "tasks.0.train."


class GpuCode(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder / "texts", records=26, text=EXPERIMENT, results=("student.h5",))

    def content(self, name, world=None, student="student"):
        results = (world or self.world).results(name).with_name(f"{student}.h5")
        return tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in (results, *sorted(results.with_suffix("").glob("*.safetensors"))))

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
        for ranks, zero, way in ((2, 1, BY_GPUS), (4, 0, BY_GPUS), (3, 1, BY_HOSTS), (2, 0, BY_HOSTS)):
            self.world.forget("bits")
            text = self.train("bits", ranks, *held_out, f"tasks.0.train.zero={zero}", **ON_HOST, **way, OMP_NUM_THREADS=str(3 - ranks // 2))
            self.assertIn("between ranks: gradients and weights " + ("go from GPU to GPU" if way is BY_GPUS else "pass through the hosts"), text)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        self.world.forget("bits")
        self.assertNotEqual(self.world.run("bits", 2, *held_out, **ON_HOST, MAGISTER_FAIL_POINT="train.step.begin@6:kill").returncode, 0)
        # The CPU's code does not go on with it.
        tiny_world.wait_until(lambda: self.world.run("bits", 1, *held_out).returncode == 78, seconds=60, pause=0.3)
        lines = self.train("bits", 3, *held_out, **ON_HOST)
        self.assertIn("continues after step 3", lines)
        self.assertEqual(self.content("bits"), one)
        self.world.forget("bits")
        lines = self.train("bits", 1, *held_out, **ON_HOST, MAGISTER_FAIL_POINT="train.pass.memory@5:enospc")
        self.assertIn("layers are computed again", lines)
        self.assertEqual(self.content("bits"), one)

    def test_gpus_add_in_the_order_of_one_rank(self):
        """Seven micro-batches a step, which no number of ranks divides: ranks have one to seven, in several nodes of the tree. Another order of sums has other bits."""
        uneven = ("tasks.0.train.steps=3", "tasks.0.train.global_batch=7", "tasks.0.train.micro_batch=1", "tasks.0.train.optimizer.lr=1.0e-2")
        for arguments in (uneven, (*uneven, "tasks.0.train.precision=bf16", "tasks.0.train.adapter.targets=all-linear")):
            self.world.forget("order")
            self.train("order", 1, *arguments, **ON_HOST)
            one = self.content("order")
            for ranks, zero in ((2, 1), (3, 0), (4, 1)):
                with self.subTest(ranks=ranks, zero=zero, arguments=arguments):
                    self.world.forget("order")
                    self.assertIn("go from GPU to GPU", self.train("order", ranks, *arguments, f"tasks.0.train.zero={zero}", **ON_HOST))
                    self.assertEqual(self.content("order"), one)
        self.world.forget("order")
        self.train("order", 4, *uneven, "layout.collectives=fast", **ON_HOST)
        self.train("any", 1, *uneven, **ON_HOST)
        self.assertNotEqual(self.content("order")[1:], self.content("any")[1:])

    def plan(self, name, *arguments, **environment):
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment(name)), *arguments], cwd=self.folder, capture_output=True, text=True, check=True,
                              env={**self.world.environment, **ON_HOST, "MAGISTER_ALLOW_SINGLETON": "1", **environment})
        return done.stdout

    def test_where_the_optimizer_stands_changes_nothing(self):
        """On a GPU of 16 MiB, of which a training may take ever less: weights and moments there, then sums of gradients alone, then neither. A run goes on from a state that another way has written."""
        fraction, ways = "tasks.0.train.memory_fraction=", {}
        for part in range(21, 0, -1):
            arguments = (fraction + str(part / 100), "tasks.0.train.micro_batch=1", "tasks.0.train.gradient_checkpointing=true", "tasks.0.train.save_every=2")
            found = re.search(r"optimizer +(on the .*)", self.plan("place", *arguments, MAGISTER_GPUS_ON_HOST="16"))
            ways.setdefault(found.group(1).strip(), arguments)
            if len(ways) == 3:
                break
        self.assertEqual(list(ways), ["on the GPU", "on the host; gradients are added up on the GPU", "on the host, where gradients are added up"])
        for adapter in ((), ("tasks.0.train.adapter.targets=all-linear",)):
            self.world.forget("place")
            self.train("place", 1, *ways["on the GPU"], *adapter, **ON_HOST)
            one = self.content("place")
            for place, arguments in ways.items():
                for ranks, zero in ((1, 1), (2, 1), (2, 0)):
                    with self.subTest(place=place, ranks=ranks, zero=zero, adapter=adapter):
                        self.world.forget("place")
                        text = self.train("place", ranks, *arguments, *adapter, f"tasks.0.train.zero={zero}", MAGISTER_GPUS_ON_HOST=",".join(["16"] * ranks), **ON_HOST)
                        if not adapter and ranks == 1:
                            self.assertIn(f"optimizer: {place}", text)
                        self.assertEqual(self.content("place"), one)
            # One of two GPUs is too small for the model's optimizer: what the ranks exchange goes through the hosts on both.
            fractions = [float(arguments[0].split("=")[1]) for arguments in ways.values()]
            small = math.ceil(16 * fractions[1] / fractions[0])
            for zero in (0, 1):
                with self.subTest(adapter=adapter, unequal=True, zero=zero):
                    self.world.forget("place")
                    text = self.train("place", 2, *ways["on the GPU"], *adapter, f"tasks.0.train.zero={zero}", MAGISTER_GPUS_ON_HOST=f"16,{small}", **ON_HOST)
                    if not adapter:  # its moments have room there
                        self.assertNotIn("go from GPU to GPU", text)
                    self.assertEqual(self.content("place"), one)
        self.world.forget("place")
        self.train("place", 1, *ways["on the GPU"], **ON_HOST)
        one, (there, sums, here) = self.content("place"), ways.values()
        for first, then in ((there, here), (here, there), (sums, there)):
            with self.subTest(first=first[0], then=then[0]):
                self.world.forget("place")
                self.assertNotEqual(self.world.run("place", 2, *first, MAGISTER_GPUS_ON_HOST="16,16", **ON_HOST, MAGISTER_FAIL_POINT="train.step.begin@4:kill").returncode, 0)
                tries = []

                def goes_on():
                    tries.append(self.world.run("place", 1, *then, MAGISTER_GPUS_ON_HOST="16", **ON_HOST))
                    return tries[-1].returncode == 0
                tiny_world.wait_until(goes_on, seconds=60, pause=0.3)
                self.assertIn("continues after step 2", tries[-1].stdout + tries[-1].stderr)
                self.assertEqual(self.content("place"), one)

    def test_weights_of_several_buckets_go_through_the_hosts(self):
        """A model of 46 MB, on GPUs that have room for the optimizer and on smaller ones."""
        model = tiny_world.make_model(self.folder / "wide", hidden_size=512, intermediate_size=2048, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4)
        text = EXPERIMENT.replace("epochs: 2,", "steps: 3,").replace("max_length: 96", "max_length: 16, micro_batch: 1, gradient_checkpointing: true")
        world = tiny_world.World(self.folder / "buckets", records=12, text=text, results=("student.h5",), model=model)
        world.complete("buckets", 1, **ON_HOST)
        one = self.content("buckets", world)
        for environment, words in ((BY_HOSTS, "on the GPU"), ({"MAGISTER_GPUS_ON_HOST": "170,170,170"}, "on the host; gradients are added up on the GPU")):
            world.forget("buckets")
            done = world.run("buckets", 3, **ON_HOST, **environment)
            self.assertIn(f"optimizer: {words}", done.stdout + done.stderr)
            self.assertEqual(self.content("buckets", world), one, words)

    def test_adapters_in_bf16(self):
        arguments = ("tasks.0.train.precision=bf16", "tasks.0.train.steps=4", "tasks.0.train.adapter.targets=all-linear", "tasks.0.train.optimizer.lr=2.0e-3")
        self.train("lora-cpu", 1, *arguments)
        self.train("lora", 2, *arguments, **ON_HOST)
        self.compare("lora", "lora-cpu", (1.5e-3, 6.5e-3, 1.2e-1))  # bf16 rounds more on GPUs

    def test_every_objective(self):
        world = tiny_world.World(self.folder / "objectives", records=3, text=CHAIN, results=("teacher.h5", *(f"{name}.h5" for name in STUDENTS)))
        preference_test.Preference.write(preference_test.pairs(14), world.data)
        teacher = tiny_world.make_model(self.folder / "teacher", seed=3)
        for name, environment in (("cpu", {}), ("gpu", ON_HOST)):
            world.complete(name, 1, f"tasks.0.model.path={teacher}", "tasks.0.model.dtype=f32", "run.at_once=1", **environment)
        for student in STUDENTS:
            self.compare("gpu", "cpu", (4e-6, 4e-6, 2.5e-6), world, student)

    def test_value_models(self):
        rollouts = tiny_world.World(self.folder / "rollouts", records=5, text=ROLLOUTS, results=("rollouts.h5",))
        rollouts.complete("texts", 1)
        with h5py.File(rollouts.results("texts")) as file:
            self.assertEqual(set(numpy.unique(file["rollout/reward"][()])), {0, 1})
        world = tiny_world.World(self.folder / "values", records=1, text=VALUES.replace("ROLLOUTS", str(rollouts.results("texts"))), results=("bce.h5", "histogram.h5"))
        for name, ranks, environment in (("cpu", 1, {}), ("gpu", 2, ON_HOST)):
            world.complete(name, ranks, "run.at_once=1", **environment)
        for student in ("bce", "histogram"):
            self.compare("gpu", "cpu", (1e-6, 4e-6, 7e-6), world, student)

    def test_policies(self):
        """Texts, rewards and advantages are those of the CPU's run at every step, so the weights that write them are the trainer's at that step; losses, norms and weights within rounding."""
        world = tiny_world.World(self.folder / "policies", records=1, text=GRPO, results=("student.h5",))
        world.data.write_text("".join(json.dumps({"id": f"p{i}", "text": text}) + "\n" for i, text in enumerate(PROMPTS)))
        (world.model / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(3, 320, 9))}))

        def texts(name):
            return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(world.results(name).with_name("student.rollouts").iterdir())]
        # A factor whose first gradient is nearly 0 moves by its rounding where AdamW's epsilon is 1e-8 (lora_test.py).
        for name, arguments, limits in (("plain", (), (1.5e-5, 5e-5, 2e-5)),
                                        ("compared", (G + "beta=0.2", G + "num_iterations=2"), (1.5e-5, 5e-5, 2e-5)),
                                        ("factors", (G + "beta=0.2", T + "adapter.targets=all-linear", T + "optimizer.lr=1.0e-2", T + "optimizer.epsilon=1.0e-4"), (1.5e-5, 5e-5, 2e-5))):
            with self.subTest(name=name):
                world.complete(f"{name}-cpu", 1, *arguments)
                world.complete(name, 2, *arguments, **ON_HOST)
                written = texts(name)
                self.assertEqual(written, texts(f"{name}-cpu"))
                self.assertEqual(len(written), 2 if name == "compared" else 4)
                self.assertGreater(len({one["reward"] for step in written for one in step}), 1)
                self.compare(name, f"{name}-cpu", limits, world)
        # Else texts of the first weights would pass.
        world.complete("frozen", 1, T + "optimizer.lr=1.0e-30", **ON_HOST)
        for step, (first, now) in enumerate(zip(texts("frozen"), texts("plain"), strict=True)):
            (self.assertEqual if step == 0 else self.assertNotEqual)([one["tokens"] for one in first], [one["tokens"] for one in now], step)
        one = self.content("plain", world)
        world.forget("plain")
        self.assertNotEqual(world.run("plain", 2, **ON_HOST, MAGISTER_FAIL_POINT="train.rollout.pass@35:kill").returncode, 0)
        tiny_world.wait_until(lambda: world.run("plain", 1).returncode == 78, seconds=60, pause=0.3)  # the CPU's code does not go on with it
        world.complete("plain", 1, **ON_HOST)
        self.assertEqual(self.content("plain", world), one)
        long = (T + "max_length=2048", G + "max_new_tokens=2000", T + "gradient_checkpointing=true", T + "adapter.targets=[q_proj]")
        for part, arguments in (("generator or reference, beyond gradients and activations", long), ("host memory .*reference", (G + "beta=0.2",))):
            plan = subprocess.run([tiny_world.PROGRAM, "plan", str(world.experiment("plan")), *arguments], env={**world.environment, **ON_HOST, "MAGISTER_ALLOW_SINGLETON": "1"},
                                  cwd=self.folder, capture_output=True, text=True, check=True).stdout
            self.assertRegex(plan, part + " [1-9]")
        # Texts in bf16 where the precision says so: most begin as those of f32.
        for name, ranks in (("bf16", 1), ("bf16-ranks", 3)):
            world.complete(name, ranks, T + "precision=bf16", T + "steps=1", **ON_HOST)
        self.assertEqual(texts("bf16"), texts("bf16-ranks"))
        self.assertEqual(self.content("bf16", world)[1:], self.content("bf16-ranks", world)[1:])
        self.assertNotEqual(texts("bf16")[0], texts("plain")[0])
        same = [rounded["tokens"][0] == exact["tokens"][0] for rounded, exact in zip(texts("bf16")[0], texts("plain")[0])]
        print(f"   bf16: {sum(same)} of {len(same)} first tokens are those of f32")
        self.assertGreater(numpy.mean(same), 0.5)

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


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
