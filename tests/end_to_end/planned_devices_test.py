"""`plan` for machines that are elsewhere: cards by name or size in every task, group by group; and the first prompt as its model sees it."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import transformers

from tiny_world import CHAIN, EXPERIMENT, PROGRAM, World, make_model

TRAINING = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}}}
tasks:
  - {{task: train, name: student, dataset: {{path: {data}}}, train: {{steps: 1, max_length: 256}}}}
"""
JUDGE = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: judge
    dataset: {{path: {data}, key: id}}
    mode: reference
    fields: {{question: text}}
"""
TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"


def plan(world, *arguments, name="planned", code=0):
    """-> what it prints, or of another exit code its errors"""
    done = subprocess.run([PROGRAM, "plan", str(world.experiment(name)), *arguments], env=world.environment, cwd=world.folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout if code == 0 else done.stderr


def groups(text):
    return re.findall(r"\n  group (\d+): rank (\d+), (cuda:[\d,]+(?: on \w+ and cuda:[\d,]+)*) on (\w+)", text)


class PlannedDevices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        # Eight heads divide into groups of one to eight.
        cls.model = make_model(folder / "model", hidden_size=64, num_attention_heads=8, num_key_value_heads=8)
        cls.teacher = World(folder / "teacher", records=20, model=cls.model, text=EXPERIMENT.replace("layout: {{devices: cpu}}\n", "").replace("dtype: f32", "dtype: bf16"))
        cls.training = World(folder / "training", records=20, model=cls.model, text=TRAINING)

    def test_plain_plans_obey_the_memory(self):
        """A run's parts against the card's 92 %, for a task with passes and for a training."""
        for world in (self.teacher, self.training):
            refused = plan(world, "plan.device_memory=0.1MB", code=78)
            self.assertRegex(refused, r"cuda:0 of rank 0 on node0 has 97\.7 KiB free of 97\.7 KiB, of which a model may have 89\.8 KiB, and a shard of 1 needs"
                             if world is self.teacher else r"a rank on a planned GPU needs .*, and train\.memory_fraction 0\.9 allows it 87\.9 KiB")
            fits = plan(world, "plan.device_memory=A100-40GB")
            self.assertIn("group 0: rank 0, cuda:0 on node0 (A100-40GB)", fits)
            self.assertNotIn("\n  time ", fits)
        self.assertRegex(plan(self.training, "plan.device_memory=A100-80GB"), r"memory allowed +7[0-9]\.\d GiB a rank.*\n.*checkpointing +off, chosen\n +optimizer +on the GPU")
        cpu = "layout.devices=cpu"
        self.assertIn("plan.device_memory gives it", plan(self.teacher, cpu, "plan.device_memory=0.1MB", code=78))
        self.assertNotIn("cuda", plan(self.teacher, cpu, "plan.device_memory=1GB"))
        refused = plan(self.training, cpu, "plan.device_memory=0.1MB", code=78)
        self.assertRegex(refused, "student: a rank on CPUs needs .*; lower train.micro_batch")
        self.assertNotIn("shards", refused)

    def test_a_training_s_checkpointing_follows_the_card(self):
        """Two sizes around what it needs without checkpointing: the smaller one turns it on, the smallest is refused."""
        def needed(*arguments):
            number, unit = re.search(r"memory per device +([\d.]+) (\w+)", plan(self.training, *arguments)).groups()
            return float(number) * {"KiB": 2 ** 10, "MiB": 2 ** 20, "GiB": 2 ** 30}[unit]
        whole, less = (needed("plan.device_memory=H100-80GB", f"tasks.0.train.gradient_checkpointing={value}") for value in ("false", "true"))
        between = f"plan.device_memory={(whole + less) / 2 / 0.9 / 1e6:.3f}MB"
        self.assertRegex(plan(self.training, between), r"checkpointing +on, chosen \(without it")
        self.assertIn("a rank on a planned GPU needs", plan(self.training, f"plan.device_memory={less / 8 / 1e6:.3f}MB", code=78))

    def test_a_card_that_was_measured_has_a_time(self):
        for devices, count in (("H200", "1 GPU"), ("2 x 4 x H200", "8 GPUs")):
            self.assertRegex(plan(self.teacher, f"plan.devices={devices}"), rf"\n  time +\d+:\d\d:\d\d or more: .* FLOPs on {count} of 5\.8e\+14 FLOP/s, as measured on such cards with 8B in bf16, without the start\n")
        self.assertNotIn("\n  time ", plan(self.teacher, "plan.devices=[H200, A30]"))

    def test_a_cluster_group_by_group(self):
        said = plan(self.teacher, "plan.devices=8 x H100-80GB", "layout.gpus_per_group=2")
        self.assertIn("\n  group 2: rank 4, cuda:4,5 on node0 (H100-80GB, ranks 4 and 5)\n", said)
        self.assertEqual(groups(said), [(str(i), str(2 * i), f"cuda:{2 * i},{2 * i + 1}", "node0") for i in range(4)])
        # One rank drives them all; and two ranks.
        for ranks, leaders in ((1, "0000"), (2, "0011")):
            said = groups(plan(self.teacher, "plan.devices=8 x H100-80GB", "layout.gpus_per_group=2", "--ranks", str(ranks)))
            self.assertEqual(["".join(column) for column in zip(*[group[:2] for group in said])], ["0123", leaders])
        # Eight groups are eight lines, of 64 the first eight and one for all others.
        self.assertEqual(len(groups(plan(self.teacher, "plan.devices=8 x H100-80GB"))), 8)
        said = plan(self.teacher, "plan.devices=8 x 8 x H100-80GB")
        self.assertEqual(len(groups(said)), 8)
        self.assertIn("\n  groups 8 to 63: 56 of 1 device, ranks 8 to 63 on 7 hosts\n", said)
        self.assertLess(len(said.splitlines()), 30)
        # Over hosts, of unlike cards, and GPUs that are left out.
        self.assertIn("group 0: rank 0, cuda:0,1,2,3 on node0 and cuda:0,1,2,3 on node1 (A100-40GB, ranks 0 to 7)", plan(self.teacher, "plan.devices=2 x 4 x A100-40GB", "layout.gpus_per_group=8"))
        self.assertIn("group 1: rank 1, cuda:0 on node1 (L40S)", plan(self.teacher, "plan.devices=[A100-40GB, L40S]"))
        for ranks in ([], ["--ranks", "4"]):  # without a number a rank for each that is chosen
            self.assertEqual([group[1:3] for group in groups(plan(self.teacher, "plan.devices=8 x 24GiB", "layout.devices=[1,3,5,7]", *ranks))], [("0", "cuda:1"), ("1", "cuda:3"), ("2", "cuda:5"), ("3", "cuda:7")])
        self.assertEqual([group[1:] for group in groups(plan(self.teacher, "plan.devices=2 x 2 x H200", "layout.devices=[1]"))], [("0", "cuda:1", "node0"), ("1", "cuda:1", "node1")])
        # As many ranks as drive what they are to drive.
        self.assertEqual([group[1:3] for group in groups(plan(self.teacher, "plan.devices=4 x H200", "layout.devices_per_rank=2", "layout.gpus_per_group=2"))], [("0", "cuda:0,1"), ("1", "cuda:2,3")])
        # One host of two kinds: the large cards are groups of their own, two small ones are one.
        self.assertEqual([group[1:3] for group in groups(plan(self.teacher, "plan.devices=2 x A100-80GB+2 x A30", "layout.gpus_per_group=[1,2]"))], [("0", "cuda:0"), ("1", "cuda:1"), ("2", "cuda:2,3")])
        mixed = plan(self.teacher, "plan.devices=[4 x A100-80GB, 4 x A100-40GB]", "layout.gpus_per_group=[4,1]")
        self.assertRegex(mixed, r"group \d: rank \d, cuda:0,1,2,3 on node\d \(A100-\d0GB, ranks \d to \d\)")

    def test_what_a_run_there_would_refuse(self):
        for words, arguments in (("a V100-32GB has compute capability 7.0", ("plan.devices=4 x V100-32GB",)), ("model.dtype: fp8 on a planned A100-80GB", ("plan.devices=A100-80GB", "model.dtype=fp8")),
                                 ("does not divide", ("plan.devices=3 x H200", "layout.gpus_per_group=2")), ("plan.devices: 3 ranks on 2 hosts", ("plan.devices=2 x 4 x H200", "--ranks", "3")),
                                 ("of which a model may have", ("plan.devices=2 x 1MB",)), ("layout.devices names 8", ("plan.devices=8 x H200", "layout.devices=[8]", "--ranks", "1"))):
            self.assertIn(words, plan(self.teacher, *arguments, code=78))
        self.assertIn("plan: 80GB is 76293 MiB; cards that are sold with it have more", plan(self.teacher, "plan.device_memory=80GB"))

    def test_a_run_ignores_it(self):
        self.teacher.complete("ran", 1, "plan.device_memory=A100-40GB")
        plain = self.teacher.results("ran").read_bytes()
        self.teacher.forget("ran")
        self.teacher.complete("ran", 2)
        self.assertEqual(self.teacher.results("ran").read_bytes(), plain)


class FirstPrompt(unittest.TestCase):
    """Its text is that of transformers' tokenizer over the tokens of the results."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.model = make_model(cls.folder / "model")
        (cls.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}))

    @staticmethod
    def shown(text):
        """-> (what the line says, the text)"""
        head, rest = re.search(r"\n  first (prompt \(.*\))\n((?:    \|.*\n)+)", text).groups()
        return head, "\n".join(line[6:] for line in rest.splitlines())

    def test_of_a_judge(self):
        world = World(self.folder / "judge", records=1, model=self.model, text=JUDGE, results=("verdicts.h5",))
        question, answer = "What is the capital\nof France?", "Paris, \u00fcber alles?"
        world.data.write_text(json.dumps({"id": "capital", "text": question, "references": ["Paris"], "answer": answer}) + "\n")
        head, prompt = self.shown(plan(world))
        world.complete("judged", 1)
        import h5py
        with h5py.File(world.results("judged")) as file:
            ids = file["tokens/id"][:]
        expected = transformers.AutoTokenizer.from_pretrained(self.model).decode(ids)
        self.assertEqual(prompt, expected.rstrip("\n"))
        self.assertEqual(head, f"prompt (record capital, {len(ids)} tokens)")
        for part in (question, answer, "<|user|>\n", "<|end|>"):
            self.assertIn(part, expected)

    def test_of_a_judge_of_what_is_not_written_yet(self):
        world = World(self.folder / "chain", records=20, model=self.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        said = plan(world)
        self.assertEqual(len(re.findall(r"\n  first prompt \(record record-0", said)), 2)
        self.assertIn("; what an earlier task writes is not there yet)", said)

    def test_of_texts_and_long_ones(self):
        world = World(self.folder / "long", records=1, model=self.model, text=CHAIN.split("  - task: judge")[0].replace("max_prompt_length: 512", "max_prompt_length: 4000").replace("key: id, limit: 5", "key: id"), results=("answers.h5",))
        world.data.write_text(json.dumps({"id": "a", "text": "plan \u001b[31mred\u00fc " * 300}) + "\n")
        said = plan(world)
        self.assertRegex(said, r"    \| plan .*\n    \.\.\. and \d+ bytes more\n")
        self.assertNotIn("\u001b", said)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
