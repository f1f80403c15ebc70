"""The GPU's path without a GPU: MAGISTER_GPU_CODE_ON_HOST=1 runs its kernels thread by thread on the host, everything else as on a
device. Equal to the CPU's path within rounding, over tasks, shards, types and a device that is out of memory; the same bytes for
every number of ranks.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

from tiny_world import CHAIN, PROGRAM, World, make_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models

ON_HOST = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
VALUES = ("top_logprob", "logsumexp", "target_logprob", "entropy", "tail_mass")


def columns(path):
    with h5py.File(path) as file:
        return {key: file[f"teacher/{key}"][:] for key in (*VALUES, "top_id")}


class GpuCode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = World(cls.scratch.name, records=16)
        cls.world.complete("cpu", 1)
        cls.cpu = columns(cls.world.results("cpu"))

    def compare(self, name, largest, mean):
        """Limits are about three times what was measured (it is printed). A rotation left out, or queries of zeros, move the mean by more
        than any of them: tests/mutations.py --only gpu-no-rope gpu-q-zeroed gpu-fp8-no-rope gpu-fp8-q-zeroed."""
        found = columns(self.world.results(name))
        worst = {key: float(numpy.nanmax(numpy.abs(found[key] - self.cpu[key]))) for key in VALUES}
        average = float(numpy.nanmean(numpy.abs(found["target_logprob"] - self.cpu["target_logprob"])))
        print(f"   {name}: largest differences " + ", ".join(f"{key} {value:.1e}" for key, value in worst.items()) + f"; mean of target_logprob {average:.1e}", flush=True)
        for key in VALUES:
            self.assertTrue(numpy.array_equal(numpy.isnan(found[key]), numpy.isnan(self.cpu[key])), key)
            self.assertLess(worst[key], largest, key)
        self.assertLess(average, mean)
        return found

    def test_same_bytes_for_every_number_of_ranks(self):
        reference = self.world.complete("x", 1, **ON_HOST)
        found = self.compare("x", 3e-5, 4e-6)
        self.assertTrue(numpy.array_equal(found["top_id"], self.cpu["top_id"]))
        for ranks in (2, 4):
            self.world.forget("x")
            self.assertEqual(self.world.complete("x", ranks, **ON_HOST), reference, f"{ranks} ranks")

    def test_shards(self):
        self.world.complete("shards", 1, "layout.shards_per_rank=2", **ON_HOST)
        self.compare("shards", 3e-5, 4e-6)

    def test_bf16(self):
        self.world.complete("bf16", 1, "model.dtype=auto", **ON_HOST)
        self.compare("bf16", 0.6, 0.09)
        with h5py.File(self.world.results("bf16")) as file:
            self.assertEqual((file.attrs["dtype"], file.attrs["device"]), (b"bf16", b"gpu"))

    def test_codes_are_those_of_the_cpu(self):
        """f32 activations: int8 and int4 weights stand for the same numbers as on the CPU, so only the order of sums differs."""
        for kind in ("int8", "int4"):
            changes = [f"model.quantization={kind}", "model.quantization_group=32"]
            self.world.complete(f"{kind}-cpu", 1, *changes)
            self.world.complete(f"{kind}-gpu", 1, *changes, **ON_HOST)
            cpu, gpu = (columns(self.world.results(f"{kind}-{device}")) for device in ("cpu", "gpu"))
            for key in VALUES:
                self.assertLess(numpy.nanmax(numpy.abs(cpu[key] - gpu[key])), 5e-5, f"{kind} {key}")

    def test_fp8(self):
        """Products of 8-bit floats: 4 significant bits, so rows of a 48 wide model move by some tenths of a nat."""
        self.world.complete("fp8", 1, "model.dtype=fp8", **ON_HOST)
        self.compare("fp8", 5.0, 0.9)
        refused = self.world.run("fp8-cpu", 1, "model.dtype=fp8")
        self.assertEqual(refused.returncode, 78, refused.stderr)
        self.assertIn("fp8 on CPUs", refused.stderr)

    def test_a_device_without_memory_for_a_unit(self):
        """The first pass has no memory: it is run again in halves, of which one has none either, and passes stay smaller."""
        points = "teacher.pass.memory@1:enospc,teacher.pass.memory@2:enospc"
        for dtype in ("f32", "bf16"):
            # Windows: a unit has at most a sixteenth of the samples, and one sample cannot be divided.
            changes = ["tasks.0.unit_tokens=400", "tasks.0.overflow=window", "tasks.0.max_length=24", f"model.dtype={dtype}"]
            whole = self.world.complete(f"full-{dtype}", 1, *changes, **ON_HOST)
            self.world.forget(f"full-{dtype}")
            result = self.world.run(f"full-{dtype}", 1, *changes, **ON_HOST, MAGISTER_FAIL_POINT=points)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("no memory on the GPU"), 2, result.stderr)
            self.assertEqual(self.world.sha256(f"full-{dtype}"), whole, "halves have the bits of the whole")

    def test_a_group_whose_one_device_has_no_memory_for_a_unit(self):
        """One shard of two says so, and both compute the pass in halves: in threads of a rank and in ranks."""
        changes = ["tasks.0.unit_tokens=400", "tasks.0.overflow=window", "tasks.0.max_length=24", "model.dtype=bf16"]
        for name, ranks, layout in (("threads", 1, "layout.shards_per_rank=2"), ("ranks", 2, "layout.gpus_per_group=2")):
            whole = self.world.complete(f"group-{name}", ranks, *changes, layout, **ON_HOST)
            self.world.forget(f"group-{name}")
            point = "teacher.pass.memory@1:enospc" if ranks == 1 else "teacher.pass.memory@1/1:enospc,teacher.pass.memory@2/0:enospc"
            result = self.world.run(f"group-{name}", ranks, *changes, layout, **ON_HOST, MAGISTER_FAIL_POINT=point)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("no memory on the GPU"), ranks, result.stderr)
            self.assertEqual(self.world.sha256(f"group-{name}"), whole, "halves have the bits of the whole")

    def test_several_units_in_a_pass(self):
        """A pass of 2,048 tokens fills no GPU, so a group takes more units at a time: the file is that of units one by one, which groups claim
        where few are left for each, and of passes that were cut anywhere."""
        units = ["tasks.0.unit_tokens=2048", "tasks.0.overflow=window", "tasks.0.max_length=24", "layout.devices=auto", "layout.gpus_per_group=1"]
        for name, changes in (("plain", []), ("drawn", ["tasks.0.encoding=sampled", "tasks.0.top_k=4", "tasks.0.tail_draws=3"])):
            alone = self.world.complete(f"alone-{name}", 1, *units, *changes, MAGISTER_GPUS_ON_HOST=",".join(["4096"] * 9))
            self.world.forget(f"alone-{name}")
            result = self.world.run(f"alone-{name}", 1, *units, *changes, MAGISTER_GPUS_ON_HOST="4096", MAGISTER_FAIL_POINT="teacher.pass.memory@1:enospc")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(self.world.sha256(f"alone-{name}"), alone)
            with h5py.File(self.world.results(f"alone-{name}")) as file:
                rows = file["samples/offset"][:][file["commit/unit_begin"][:]]
            first = int(re.search(r"no memory on the GPU for (\d+) tokens at once", result.stderr).group(1))
            self.assertEqual(first, rows[4] - rows[0], f"{len(rows) - 1} units, one group: four at first")

    def test_units_of_long_texts_do_not_pile_up(self):
        """A unit may be one text longer than unit_tokens: units are counted by their tokens, or a pass would begin a dozen of such."""
        long = World(self.scratch.name + "/long", records=24, model=self.world.model)
        long.data.write_text("".join(json.dumps({"id": f"r{i}", "text": " ".join(["unit"] * 900)}) + "\n" for i in range(24)))
        stopped = long.run("long", 1, "tasks.0.unit_tokens=300", "tasks.0.max_length=4096", **ON_HOST, MAGISTER_FAIL_POINT="teacher.unit.begin@11:throw,teacher.layer@1:throw")
        self.assertEqual(stopped.returncode, 70, stopped.stderr)
        self.assertIn("teacher.layer", stopped.stderr)
        self.assertNotIn("teacher.unit.begin", stopped.stderr)

    def test_writing_many_units_is_a_sign_of_life(self):
        """A pass of a hundred units whose commits take 0.2 s each: more than the watchdog waits for one of them, and that is long for a machine under load."""
        windows = ["tasks.0.unit_tokens=8", "tasks.0.overflow=window", "tasks.0.max_length=8", "run.watchdog_seconds=16"]
        result = self.world.run("slow", 1, *windows, **ON_HOST, MAGISTER_FAIL_POINT=",".join(["results.commit.synced:slow"] * 2))
        self.assertEqual(result.returncode, 0, result.stderr)
        with h5py.File(self.world.results("slow")) as file:
            self.assertGreater(len(file["commit/unit_begin"]), 180)

    def test_a_run_does_not_go_on_as_another_kind(self):
        result = self.world.run("kind", 1, **ON_HOST, MAGISTER_FAIL_POINT="teacher.unit.begin@4:kill")
        self.assertNotEqual(result.returncode, 0)
        refused = self.world.run("kind", 1)
        self.assertEqual(refused.returncode, 78, refused.stderr)
        self.assertIn("device", refused.stderr)
        self.world.complete("kind", 2, **ON_HOST)
        self.compare("kind", 3e-5, 4e-6)

    def plan(self, name, *arguments):
        done = subprocess.run([PROGRAM, "plan", str(self.world.experiment(name)), *arguments], cwd=self.world.folder, text=True, check=False, timeout=600,
                              capture_output=True, env={**self.world.environment, **ON_HOST, "MAGISTER_ALLOW_SINGLETON": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_plan_from_the_config_alone_counts_as_the_run(self):
        """Part by part, whatever the task and the weights are; but a cache, which is here as large as one text wants it, follows the data."""
        chain = World(self.scratch.name + "/chain", records=16, model=self.world.model, text=CHAIN)
        for world, tasks in ((self.world, 1), (chain, 2)):
            limits = [f"tasks.{task}.{key}" for task in range(tasks) for key in ("token_budget=96", "max_sequences=1")] if tasks == 2 else []
            for changes in (["model.dtype=bf16"], ["model.dtype=f32"], ["model.dtype=fp8"], ["model.quantization=int4", "model.dtype=bf16"]):
                self.world, kept = world, self.world
                try:
                    whole = self.plan("plan", *limits, *changes)
                    alone = self.plan("plan", "--config-only", "layout.devices=auto", *limits, *changes)
                finally:
                    self.world = kept
                counted = re.findall(r"memory per device .*\((.*)\)", whole)
                planned = re.findall(r"^  on 1: (.*)$", alone, re.MULTILINE)
                self.assertEqual((len(counted), len(planned)), (tasks, tasks), alone)
                for of_run, of_config in zip(counted, planned):
                    of_run, of_config = of_run.split(", "), of_config.split(", ")
                    self.assertEqual([part for part in of_run if "keys and values" not in part], [part for part in of_config if "keys and values" not in part])
                    self.assertEqual(len(of_run), len(of_config))

    def refused_and_said(self, name, cases, default):
        """Each of the cases (changes, words, environment) is refused before anything is written, and the default is what was done before the key came."""
        for changes, words, environment in cases:
            self.assertEqual([*self.world.folder.glob(f"runs/{name}/teacher.h5*")], [])
            result = self.world.run(name, 1, *changes, **environment)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(words, result.stderr)
        reference = self.world.complete(f"{name}-said", 1, **ON_HOST)
        again = self.world.run(f"{name}-said", 1, default, **ON_HOST)
        self.assertEqual((again.returncode, self.world.sha256(f"{name}-said")), (0, reference), again.stderr)
        self.assertIn("complete already", again.stderr)

    def test_cudnn_where_there_is_none(self):
        self.refused_and_said("cudnn", ((["model.attention=cudnn"], "model.attention: cudnn on CPUs", {}), (["model.attention=cudnn"], "with model.dtype: f32", ON_HOST),
                                        (["model.attention=cudn"], "did you mean cudnn?", {}),
                                        (["model.attention=cudnn", "model.dtype=bf16"], "model.attention: cudnn cannot be used on cpu: ", ON_HOST)), "model.attention=flash")

    def test_throughput_where_there_is_none(self):
        key = "model.decoding=throughput"
        self.refused_and_said("throughput", (([key], "model.decoding: throughput on CPUs", {}), ([key], "with model.dtype: f32", ON_HOST),
                                             (["model.decoding=throughputs"], "did you mean throughput?", {}),
                                             ([key, "model.dtype=bf16"], "model.decoding: throughput cannot be used on cpu: ", ON_HOST)), "model.decoding=latency")

    def test_throughput_of_experts_is_refused_before_anything_is_written(self):
        model = tiny_models.make(self.world.folder / "mixture", "mixtral")
        result = self.world.run("throughput-experts", 1, "model.decoding=throughput", "model.dtype=bf16", f"model.path={model}", "tasks.0.max_length=100", **ON_HOST)
        self.assertEqual(result.returncode, 78, result.stderr)
        self.assertIn("model.decoding: throughput, but this model has experts", result.stderr)
        self.assertEqual([*self.world.folder.glob("runs/throughput-experts/teacher.h5*")], [])

    def test_throughput_in_few_bits_where_there_is_none(self):
        """cuBLASLt multiplies what is in fp8, and codes of shapes that our own kernel does not take: here of 48 inputs."""
        int8 = ["model.dtype=bf16", "model.quantization=int8"]
        for name, changes, words in (("fp8", ["model.dtype=fp8"], "weights in fp8 (from cuBLAS 12.9 and compute capability 9.0 on)"),
                                     ("int8", int8, "model.decoding: throughput cannot be used on cpu: ")):
            result = self.world.run(f"throughput-{name}", 1, "model.decoding=throughput", *changes, **ON_HOST)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(words, result.stderr)
        model = make_model(self.world.folder / "whole-groups", hidden_size=64, intermediate_size=96, num_attention_heads=8, num_key_value_heads=4)
        result = self.world.run("throughput-codes", 1, "model.decoding=throughput", *int8, f"model.path={model}", **ON_HOST)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_f16_is_refused(self):
        result = self.world.run("f16", 1, "model.dtype=f16", **ON_HOST)
        self.assertEqual(result.returncode, 78, result.stderr)
        self.assertIn("choose auto, bf16 or f32", result.stderr)


class GpusOfARank(unittest.TestCase):
    """GPUs that the host plays, in layouts of GPUs: which of them a rank drives decides no byte, nor does a kill on the way."""
    PLAYED = {"MAGISTER_GPUS_ON_HOST": ",".join(["4096"] * 4)}

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        model = make_model(f"{cls.scratch.name}/model", hidden_size=64, num_attention_heads=8, num_key_value_heads=4)
        cls.teacher = World(cls.scratch.name + "/teacher", records=16, model=model)
        cls.chain = World(cls.scratch.name + "/chain", records=24, model=model, text=CHAIN, results=("answers.h5", "verdicts.h5"))

    def table(self, world, *arguments, **environment):
        done = subprocess.run([PROGRAM, "plan", str(world.experiment("plan")), "layout.devices=auto", *arguments], cwd=world.folder, text=True, check=False,
                              timeout=600, capture_output=True, env={**world.environment, **self.PLAYED, "MAGISTER_ALLOW_SINGLETON": "1", **environment})
        return done.returncode, done.stdout + done.stderr

    def test_ranks_with_one_two_and_four(self):
        for world, point, layouts in ((self.teacher, "teacher.unit.begin@3:kill", ((2, 2, (1,)), (4, 2, (2,)))), (self.chain, "generate.pass@9:kill", ((4, 4, (1,)),))):
            for devices, size, others in layouts:
                name, played = f"of-{devices}-by-{size}", {"MAGISTER_GPUS_ON_HOST": ",".join(["4096"] * devices)}
                layout = ["layout.devices=auto", f"layout.gpus_per_group={size}"]
                if world is self.chain:  # passes of texts have graphs then, and threads of a rank add in kernels, ranks by MPI
                    layout.append("model.dtype=bf16")
                expected = world.complete(name, devices, *layout, **played)
                for ranks in others:
                    world.forget(name)
                    self.assertEqual(world.complete(name, ranks, *layout, **played), expected, f"{ranks} ranks with {devices // ranks} devices each, groups of {size}")
                # Killed on one rank that drives them all, and gone on with on ranks of one each.
                world.forget(name)
                killed = world.run(name, 1, *layout, **played, MAGISTER_FAIL_POINT=point)
                self.assertNotEqual(killed.returncode, 0)
                self.assertFalse(world.results(name).exists())
                self.assertEqual(world.complete(name, devices, *layout, **played), expected, f"resumed, groups of {size}")

    def test_shards_of_unlike_heads(self):
        """Ten query heads and two KV heads over four shards: the second has three heads on two KV heads, which no kernel of a decoding pass
        takes. Every shard must find the same of that, or their sums do not meet."""
        model = make_model(f"{self.scratch.name}/unlike", hidden_size=80, num_attention_heads=10, num_key_value_heads=2)
        unlike = World(self.scratch.name + "/unlike-heads", records=24, model=model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        layout = ["layout.devices=auto", "layout.gpus_per_group=4", "model.dtype=bf16"]
        expected = unlike.complete("unlike", 1, *layout, **self.PLAYED)
        unlike.forget("unlike")
        self.assertEqual(unlike.complete("unlike", 4, *layout, **self.PLAYED), expected)

    def test_groups_of_a_rank_are_those_of_ranks(self):
        """A rank without mpirun drives four GPUs; the model fits on each, so there are four groups, and another schedule changes nothing."""
        expected = self.teacher.complete("auto", 4, "layout.devices=auto", **self.PLAYED)
        self.teacher.forget("auto")
        self.assertEqual(self.teacher.complete("auto", 0, "layout.devices=auto", **self.PLAYED), expected)
        self.teacher.forget("auto")
        self.assertEqual(self.teacher.complete("auto", 2, "layout.devices=auto", "run.schedule=static", **self.PLAYED), expected)
        log = (self.teacher.folder / "runs/auto/run.jsonl").read_text()
        self.assertIn('"groups":4,"tp_size":1', log)

    def test_an_error_of_one_group_ends_its_rank(self):
        """The others of the rank do not go on for hours before it is told."""
        result = self.teacher.run("fails", 1, "layout.devices=auto", **self.PLAYED, MAGISTER_FAIL_POINT="results.commit.synced@2:throw")
        self.assertNotIn(result.returncode, (0, 75), result.stderr)
        self.assertIn("results.commit.synced", result.stderr)
        self.assertFalse(self.teacher.results("fails").exists())

    def test_a_plan_looks_at_every_gpu(self):
        code, text = self.table(self.teacher)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"groups +4, each of 1 device\n")
        self.assertRegex(text, r"\n  group 3: rank 0, cuda:3 on \S+ \(emulated on the host\)\n")
        code, text = self.table(self.teacher, "--ranks", "8", "layout.gpus_per_group=2")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"\n  group 3: rank 6, cuda:2,3 on \S+ \(2\) \(emulated on the host, ranks 6 and 7\)\n")
        for memories, device in (("4096,4096,1,4096", "cuda:2"), ("1,4096,4096,4096", "cuda:0")):
            code, text = self.table(self.teacher, "layout.gpus_per_group=1", MAGISTER_GPUS_ON_HOST=memories)
            self.assertEqual(code, 78, text)
            self.assertIn(f"{device} of rank 0 on ", text)
            self.assertIn("has 1.0 MiB free of 1.0 MiB", text)
        for memories, device in (("4096,4096,1,4096", "cuda:2"),):
            result = self.teacher.run("small", 2, "layout.devices=auto", "layout.gpus_per_group=1", MAGISTER_GPUS_ON_HOST=memories)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(f"{device} has 1.0 MiB free of 1.0 MiB", result.stderr)
        code, text = self.table(self.teacher, "layout.devices=[0,1,3]", "layout.gpus_per_group=1", MAGISTER_GPUS_ON_HOST="4096,4096,1,4096")
        self.assertEqual(code, 0, text)

    def test_layouts_that_are_refused(self):
        for ranks, arguments, words in ((3, (), "3 ranks run on"), (1, ("layout.gpus_per_group=3",), "layout.gpus_per_group may be 1, 2, 4 here"), (1, ("layout.gpus_per_group=[4,2]",), "there would be no group of 2"),
                                        (2, ("layout.devices_per_rank=3",), "layout.devices_per_rank: 3 needs 6"), (1, ("layout.shards_per_rank=2",), "shards in threads are for CPUs"),
                                        (1, ("output.driver=mpio", "layout.gpus_per_group=1"), "output.driver: mpio with ranks that hold several groups")):
            result = self.teacher.run("refused", ranks, "layout.devices=auto", *arguments, **self.PLAYED)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(words, result.stderr)
            self.teacher.forget("refused")


class GpuCodeWrites(unittest.TestCase):
    def test_texts_and_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, records=24, text=CHAIN, results=("answers.h5", "verdicts.h5"))
            world.complete("cpu", 1)
            gpu = world.complete("gpu", 1, **ON_HOST)
            with h5py.File(world.folder / "runs/cpu/answers.h5") as a, h5py.File(world.folder / "runs/gpu/answers.h5") as b:
                names = []
                a.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
                token_columns = [name for name in names if name.endswith(("/id", "/token_id", "tokens"))]
                self.assertTrue(token_columns, names)
                for name in token_columns:
                    self.assertTrue(numpy.array_equal(a[name][:], b[name][:]), name)
            with h5py.File(world.folder / "runs/cpu/verdicts.h5") as a, h5py.File(world.folder / "runs/gpu/verdicts.h5") as b:
                numpy.testing.assert_allclose(a["judge/log_odds"][:], b["judge/log_odds"][:], atol=2e-4)
            world.forget("gpu")
            self.assertEqual(world.complete("gpu", 2, **ON_HOST), gpu, "2 ranks")

    def test_a_device_without_memory_for_a_pass(self):
        """As a teacher's: the pass is computed in halves, some of which have no memory either, and texts and verdicts stay what they are."""
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, records=24, text=CHAIN, results=("answers.h5", "verdicts.h5"))
            for dtype in ("f32", "bf16"):
                changes = [f"model.dtype={dtype}"]
                whole = world.complete(f"full-{dtype}", 1, *changes, **ON_HOST)
                world.forget(f"full-{dtype}")
                points = "generate.pass.memory@1:enospc,generate.pass.memory@2:enospc"
                result = world.run(f"full-{dtype}", 1, *changes, **ON_HOST, MAGISTER_FAIL_POINT=points)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr.count("no memory on the GPU"), 2, result.stderr)
                self.assertEqual(world.sha256(f"full-{dtype}"), whole, "halves have the bits of the whole")
                # Those passes were of the texts. The judge's own: the texts are there already.
                for path in world.results(f"full-{dtype}").parent.glob("verdicts*"):
                    path.unlink()
                result = world.run(f"full-{dtype}", 1, *changes, **ON_HOST, MAGISTER_FAIL_POINT=points)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr.count("no memory on the GPU"), 2, result.stderr)
                self.assertEqual(world.sha256(f"full-{dtype}"), whole, "verdicts of halves have the bits of the whole")

    def test_a_group_whose_one_device_has_no_memory_for_a_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, records=24, text=CHAIN, results=("answers.h5", "verdicts.h5"))
            changes = ["model.dtype=bf16", "layout.gpus_per_group=2"]
            whole = world.complete("group", 2, *changes, **ON_HOST)
            world.forget("group")
            points = "generate.pass.memory@1/1:enospc,generate.pass.memory@2/0:enospc"
            result = world.run("group", 2, *changes, **ON_HOST, MAGISTER_FAIL_POINT=points)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("no memory on the GPU"), 2, result.stderr)
            self.assertEqual(world.sha256("group"), whole, "halves have the bits of the whole")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
