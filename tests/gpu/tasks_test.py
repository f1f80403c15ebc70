"""Whole runs on the GPU against the CPU's path of the same program: values, texts, verdicts and trainings; the same bytes in every
repetition, after a kill, on two ranks; groups of two on one GPU; and the layout that must be refused.

Without a GPU: "skipped: no GPU", exit code 77. MAGISTER_GPU_CODE_ON_HOST=1 runs the GPU's code on the host instead, to try these
tests. In a bundle the tiny model stands in tiny/model; elsewhere transformers makes it.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("MAGISTER_SOURCE_DIR", str(ROOT))
os.environ.setdefault("MAGISTER", str(ROOT / "bin/magister"))
sys.path.insert(0, str(ROOT / "tests/end_to_end"))
import h5py
import numpy

from tiny_world import CHAIN, EXPERIMENT, PROGRAM, World

VALUES = ("top_logprob", "logsumexp", "target_logprob", "entropy", "tail_mass")
TINY = ROOT / "tiny/model"
ON_HOST = os.environ.get("MAGISTER_GPU_CODE_ON_HOST") == "1"
CPU = {"MAGISTER_GPU_CODE_ON_HOST": "0"}
DEVICE = ["layout.devices=cpu" if ON_HOST else "layout.devices=auto"]
SHARED = {"MAGISTER_SHARE_GPUS": "1"}


def gpus():
    done = subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True, check=False, timeout=1200,
                          cwd=tempfile.gettempdir())
    try:  # its exit code may speak of something else, such as the network
        return json.loads(done.stdout)["ranks"][0]["gpus"]
    except (ValueError, LookupError):
        raise RuntimeError(f"magister doctor ended with {done.returncode}: {done.stderr[-2000:]}") from None


def columns(path):
    with h5py.File(path) as file:
        return {key: file[f"teacher/{key}"][:] for key in (*VALUES, "top_id")}


class OnGpu(unittest.TestCase):
    """A world, its results on the CPU, and runs on the GPU."""
    text, names = None, ("teacher.h5",)

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        settings = {} if cls.text is None else {"text": cls.text}
        cls.world = World(scratch.name, records=48, model=TINY if TINY.exists() else None, results=cls.names, **settings)
        cls.world.complete("cpu", 1, "layout.devices=cpu", **CPU)

    def gpu(self, name, ranks, *arguments, **environment):
        """-> sha256 of the results; an earlier run of the name is forgotten."""
        self.world.forget(name)
        return self.world.complete(name, ranks, *DEVICE, *arguments, **environment)


class Teacher(OnGpu):
    def compare(self, name, largest, mean, reference="cpu"):
        found, wanted = columns(self.world.results(name)), columns(self.world.results(reference))
        for key in VALUES:
            self.assertTrue(numpy.array_equal(numpy.isnan(found[key]), numpy.isnan(wanted[key])), key)
        # The k best of the one may be others than the k best of the other where two are as good as equal: values by rank.
        worst = {key: float(numpy.nanmax(numpy.abs(found[key] - wanted[key]))) for key in VALUES}
        average = float(numpy.nanmean(numpy.abs(found["target_logprob"] - wanted["target_logprob"])))
        print(f"   {name}: largest differences {worst}; mean of target_logprob {average:.1e}", flush=True)
        for key, difference in worst.items():
            self.assertLess(difference, largest, key)
        self.assertLess(average, mean)
        return found, wanted

    def test_f32_is_the_cpus(self):
        reference = self.gpu("f32", 1)
        found, wanted = self.compare("f32", 1e-3, 1e-4)
        self.assertGreater(numpy.mean(found["top_id"] == wanted["top_id"]), 0.999)
        with h5py.File(self.world.results("f32")) as file:
            self.assertEqual((file.attrs["dtype"], file.attrs["device"]), (b"f32", b"gpu"))
        for repetition in range(2):
            self.assertEqual(self.gpu("f32", 1), reference, f"repetition {repetition}")

    def test_bf16_is_near_and_repeats(self):
        reference = self.gpu("bf16", 1, "model.dtype=auto")
        self.compare("bf16", 1.4, 0.09)
        with h5py.File(self.world.results("bf16")) as file:
            self.assertEqual((file.attrs["dtype"], file.attrs["device"]), (b"bf16", b"gpu"))
        for repetition in range(2):
            self.assertEqual(self.gpu("bf16", 1, "model.dtype=auto"), reference, f"repetition {repetition}")

    def test_codes_of_8_and_4_bits(self):
        for kind in ("int8", "int4"):
            keys = [f"model.quantization={kind}", "model.quantization_group=32"]
            self.world.complete(f"cpu-{kind}", 1, "layout.devices=cpu", *keys, **CPU)
            reference = self.gpu(f"gpu-{kind}", 1, "model.dtype=bf16", *keys)
            self.compare(f"gpu-{kind}", 1.4, 0.09, f"cpu-{kind}")
            self.assertEqual(self.gpu(f"gpu-{kind}", 1, "model.dtype=bf16", *keys), reference, kind)

    def test_killed_and_started_again(self):
        reference = self.gpu("killed", 1, "model.dtype=auto")
        self.world.forget("killed")
        for unit in (3, 5):
            stopped = self.world.run("killed", 1, *DEVICE, "model.dtype=auto", MAGISTER_FAIL_POINT=f"teacher.unit.begin@{unit}:kill")
            self.assertNotEqual(stopped.returncode, 0)
        self.assertEqual(self.world.complete("killed", 1, *DEVICE, "model.dtype=auto"), reference)

    def test_a_unit_in_halves_has_the_bits_of_the_whole(self):
        keys = ["model.dtype=auto", "tasks.0.unit_tokens=400"]
        reference = self.gpu("halves", 1, *keys)
        self.assertEqual(self.gpu("halves", 1, *keys, MAGISTER_FAIL_POINT="teacher.pass.memory@1:enospc"), reference)

    def test_two_groups_of_one_share_a_gpu(self):
        keys = ["model.dtype=auto", "layout.gpus_per_group=1"]  # the experiment stands in the file
        self.assertEqual(self.gpu("two", 2, *keys, **SHARED), self.gpu("two", 1, *keys))

    def test_a_group_of_two_shares_a_gpu(self):
        keys = ["layout.gpus_per_group=2"]
        reference = self.gpu("group", 2, *keys, **SHARED)
        self.compare("group", 1e-3, 1e-4)
        self.assertEqual(self.gpu("group", 2, *keys, **SHARED), reference)
        self.gpu("group-bf16", 2, *keys, "model.dtype=auto", **SHARED)
        self.compare("group-bf16", 1.4, 0.09)

    @unittest.skipIf(ON_HOST, "no GPU to share")
    def test_two_ranks_on_one_gpu_are_refused(self):
        found = gpus()
        if len(found) > 1:
            self.skipTest("every rank has its own GPU here")
        self.world.forget("refused")
        done = self.world.run("refused", 2, *DEVICE, MAGISTER_SHARE_GPUS="0")
        self.assertEqual(done.returncode, 78, done.stderr)
        for part in ("rank 0 on", "rank 1 on", "local rank 0 of 2", "local rank 1 of 2", "cuda:0", "would both use the GPU",
                     "start one rank a GPU"):
            self.assertIn(part, done.stderr)


class Texts(OnGpu):
    text, names = CHAIN, ("answers.h5", "verdicts.h5")

    def tokens(self, name):
        with h5py.File(self.world.results(name).with_name("answers.h5")) as file:
            found = {}
            file.visititems(lambda key, item: found.update({key: item[:]}) if key.endswith(("/id", "/token_id", "tokens"))
                            and isinstance(item, h5py.Dataset) else None)
        self.assertTrue(found)
        return found

    def log_odds(self, name):
        with h5py.File(self.world.results(name)) as file:
            return file["judge/log_odds"][:]

    def test_f32_writes_and_judges_as_the_cpu(self):
        reference = self.gpu("f32", 1, "layout.gpus_per_group=1")
        wanted = self.tokens("cpu")
        for key, values in self.tokens("f32").items():
            self.assertTrue(numpy.array_equal(values, wanted[key]), key)
        numpy.testing.assert_allclose(self.log_odds("f32"), self.log_odds("cpu"), atol=1e-3)
        self.assertEqual(self.gpu("f32", 1, "layout.gpus_per_group=1"), reference, "a repetition")
        self.assertEqual(self.gpu("f32", 2, "layout.gpus_per_group=1", **SHARED), reference, "2 ranks")

    def test_bf16_repeats(self):
        reference = self.gpu("bf16", 1, "model.dtype=auto")
        self.assertEqual(self.gpu("bf16", 1, "model.dtype=auto"), reference)

    def test_killed_and_started_again(self):
        reference = self.gpu("killed", 1, "model.dtype=auto")
        self.world.forget("killed")
        for point in ("generate.record.done@5:kill", "judge.unit.done@1:kill"):
            stopped = self.world.run("killed", 1, *DEVICE, "model.dtype=auto", MAGISTER_FAIL_POINT=point)
            self.assertNotEqual(stopped.returncode, 0, point)
        self.assertEqual(self.world.complete("killed", 1, *DEVICE, "model.dtype=auto"), reference)


class Training(OnGpu):
    """Limits are guesses: no GPU has measured them. Largest differences are printed."""
    text, names = EXPERIMENT.split("  - task:")[0] + """  - task: train
    dataset: {{path: {data}, key: id}}
    train: {{steps: 12, global_batch: 8, max_length: 96, save_every: 4, optimizer: {{lr: 1.0e-3, schedule: cosine, warmup: 2}}}}
""", ("student.h5",)

    def student(self, name, ranks, *arguments, **environment):
        return self.gpu(name, ranks, *arguments, **environment), (self.world.results(name).with_suffix("") / "model.safetensors").read_bytes()

    def compare(self, name, limit):
        curves = []
        for run in (name, "cpu"):
            with h5py.File(self.world.results(run)) as file:
                curves.append({key: file[f"train/{key}"][:] for key in ("loss", "grad_norm")})
        apart = {key: float(numpy.abs(values / curves[1][key] - 1).max()) for key, values in curves[0].items()}
        print(f"   {name}: largest differences {apart}", flush=True)
        self.assertLess(max(apart.values()), limit)

    def test_f32_is_the_cpus(self):
        reference = self.student("f32", 1)
        self.compare("f32", 1e-3)
        self.assertEqual(self.student("f32", 1), reference, "a repetition")
        self.assertEqual(self.student("f32", 2, **SHARED), reference, "2 ranks")
        self.world.forget("f32")
        self.assertNotEqual(self.world.run("f32", 1, *DEVICE, MAGISTER_FAIL_POINT="train.step.begin@7:kill").returncode, 0)
        self.world.complete("f32", 1, *DEVICE)
        self.assertEqual((self.world.sha256("f32"), (self.world.results("f32").with_suffix("") / "model.safetensors").read_bytes()), reference, "a kill")

    def test_where_the_optimizer_stands_changes_nothing(self):
        """The kernels' bits are those of the host's loops on a GPU, too."""
        keys = ["tasks.0.train.gradient_checkpointing=true", "tasks.0.train.micro_batch=2"]
        memory = {"MAGISTER_GPUS_ON_HOST": "64,64"} if ON_HOST else {}
        reference = self.student("there", 1, *keys)

        def plan(*arguments):
            return subprocess.run([PROGRAM, "plan", str(self.world.experiment("plan")), *DEVICE, *keys, *arguments], env={**self.world.environment, **memory, "MAGISTER_ALLOW_SINGLETON": "1"},
                                  capture_output=True, text=True, check=True).stdout

        def number(text):
            return float(text[0]) * {"KiB": 1, "MiB": 1 << 10, "GiB": 1 << 20}[text[1]]
        of = r"([\d.]+) ([KMG]iB)"
        lines = plan("tasks.0.train.memory_fraction=0.5")
        self.assertRegex(lines, "optimizer +on the GPU")
        total = 2 * number(re.search(f"memory allowed +{of}", lines).groups())
        whole, optimizer = (number(re.search(pattern, lines).groups()) for pattern in (f"memory per device +{of}", f"optimizer {of}"))
        less = f"tasks.0.train.memory_fraction={(whole - optimizer / 2) / total:.9f}"
        self.assertRegex(plan(less), "optimizer +on the host; gradients")
        self.assertEqual(self.student("there", 1, *keys, less, **memory), reference)
        self.assertEqual(self.student("there", 2, *keys, **SHARED), reference)

    def test_bf16_is_near_and_repeats(self):
        keys = ["tasks.0.train.precision=bf16"]
        reference = self.student("bf16", 1, *keys)
        self.compare("bf16", 0.05)
        self.assertEqual(self.student("bf16", 1, *keys), reference)


if __name__ == "__main__":
    if not ON_HOST and not gpus():
        print("skipped: no GPU")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
