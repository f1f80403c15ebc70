"""Objective reward of task train: Bradley-Terry on pairs against torch and transformers' ...ForSequenceClassification; the folder is a reward model for
transformers and for task score, of the same experiment, too; the same bits on any number of ranks and after a kill; bad input is refused.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

import preference_test
import tiny_world
from by_torch import steps_of

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: train
    objective: reward
    dataset: {{path: {data}, key: id, margin: gap}}
    reward: {{center_rewards_coefficient: 0.05}}
    train: {{steps: 8, global_batch: 4, max_length: 64, save_every: 3, shuffle: false, optimizer: {{lr: 5.0e-4, schedule: cosine, warmup: 2, weight_decay: 0.1}}}}
  - task: score
    model: {{task: student, dtype: f32}}
    dataset: {{path: {data}, key: id, text: chosen}}
"""
END = 2


class Reward(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=3, text=EXPERIMENT, results=("student.h5", "score.h5"))
        cls.records = [{**record, "gap": (i % 4) / 3 - 0.2} for i, record in enumerate(preference_test.pairs(14, seed=5))]
        cls.records[3]["rejected"] *= 9
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.model = cls.world.model

    def setUp(self):
        self.world.model = self.model
        self.write(self.records)

    def write(self, records):
        preference_test.Preference.write(records, self.world.data)

    def student(self, name):
        return self.world.results(name).with_name("student")

    def train(self, name, ranks=0, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with h5py.File(self.world.results(name).with_name("student.h5")) as file:
            return {key: file[f"train/{key}"][()] for key in ("step", "lr", "grad_norm", "tokens", *preference_test.CURVES)}

    def content(self, name):
        return self.world.sha256(name), (self.student(name) / "model.safetensors").read_bytes()

    def encoded(self):
        """Pairs that fit, as TRL has them: longer ones take no part."""
        whole = [[preference_test.ended(self.tokenizer.encode(record["prompt"] + record[side]).ids) for side in ("chosen", "rejected")] for record in self.records]
        kept = [i for i, pair in enumerate(whole) if max(map(len, pair)) <= 64]
        return [whole[i] for i in kept], [self.records[i]["gap"] for i in kept]

    def by_torch(self, model, center, steps=8, batch=4):
        encoded, margins = self.encoded()
        begins = range(0, len(encoded), batch)
        curves = []

        def loss_of(model, begin):
            chosen, rejected = (torch.stack([model(torch.tensor([pair[side]])).logits[0, 0] for pair in encoded[begin:begin + batch]]) for side in (0, 1))
            margin = torch.tensor(margins[begin:begin + batch])
            curves.append([chosen.mean().item(), rejected.mean().item(), (chosen > rejected).float().mean().item(), (chosen - rejected).mean().item()])
            loss = -torch.nn.functional.logsigmoid(chosen - rejected - margin).mean() + center * ((chosen + rejected) ** 2).mean()
            return loss, sum(len(ids) for pair in encoded[begin:begin + batch] for ids in pair)
        model, rows = steps_of(model, [begins[i % len(begins)] for i in range(steps)], loss_of, lr=5e-4)
        return model, rows, numpy.array(curves)

    def test_against_torch(self):
        found = self.train("torch")
        # The head that was drawn: one step of learning rate 0 leaves it.
        self.train("drawn", 0, "tasks.0.train.steps=1")
        head = load_file(self.student("drawn") / "model.safetensors")["score.weight"]
        self.assertEqual(tuple(head.shape), (1, 48))
        self.assertLess(abs(head.std().item() / 0.02 - 1), 0.35)
        self.assertLess(abs(head.mean().item()), 0.012)
        start = transformers.AutoModelForSequenceClassification.from_pretrained(self.model, num_labels=1, attn_implementation="eager").float()
        start.config.pad_token_id = END  # after it is made, as TRL does it: else the embedding of this token would not be learnt
        with torch.no_grad():
            start.score.weight.copy_(head)
        self.assertLess(len(self.encoded()[0]), len(self.records))
        model, rows, rewards = self.by_torch(start, 0.05)
        self.assertEqual(found["tokens"].tolist(), rows[:, 3].tolist())
        apart = {"loss": numpy.abs(found["loss"] / rows[:, 0] - 1).max(), "norm": numpy.abs(found["grad_norm"] / rows[:, 2] - 1).max(),
                 "rewards": max(numpy.abs(found[key] - rewards[:, i]).max() for i, key in enumerate(preference_test.CURVES[1:])) / numpy.abs(rewards).max()}
        mine = load_file(self.student("torch") / "model.safetensors")
        self.assertEqual(set(mine), set(model.state_dict()))
        apart["weights"] = max(((mine[key] - value).norm() / value.norm()).item() for key, value in model.state_dict().items())
        print({key: f"{value:.1e}" for key, value in apart.items()}, f"loss {rows[0, 0]:.4f} to {rows[-1, 0]:.4f}, margin {rewards[-1, 3]:.3f}")
        for key, limit in (("loss", 1e-5), ("norm", 1e-4), ("rewards", 1e-5), ("weights", 1e-5)):
            self.assertLess(apart[key], limit, key)
        # The folder, by transformers with padding and by task score.
        loaded = transformers.AutoModelForSequenceClassification.from_pretrained(self.student("torch"))
        self.assertEqual((loaded.config.architectures, loaded.config.num_labels, loaded.config.pad_token_id), (["LlamaForSequenceClassification"], 1, END))
        texts = [self.tokenizer.encode(record["chosen"]).ids for record in self.records]
        longest = max(map(len, texts))
        with torch.no_grad():
            want = loaded(torch.tensor([ids + [END] * (longest - len(ids)) for ids in texts]),
                          attention_mask=torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in texts])).logits[:, 0].numpy()
        with h5py.File(self.world.results("torch")) as file:
            numpy.testing.assert_allclose(file["score/value"][()], want, atol=2e-5)
        self.assertGreater(want.std(), 0.05)

    def test_tied_embeddings_and_a_plan_before_the_model_is_there(self):
        """The head is a tensor of its own, and the embeddings stay what they are."""
        self.world.model = tiny_world.make_model(self.folder / "tied", seed=4, tie_word_embeddings=True, num_key_value_heads=6)
        plan = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("tied"))], cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**self.world.environment, "MAGISTER_ALLOW_SINGLETON": "1"})
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn("8 of 4 pairs", plan.stdout)
        self.train("tied", 0, "tasks.0.train.steps=3")
        loaded = transformers.AutoModelForSequenceClassification.from_pretrained(self.student("tied"))
        self.assertEqual(set(load_file(self.student("tied") / "model.safetensors")), set(loaded.state_dict()))
        with torch.no_grad():
            want = numpy.array([loaded(torch.tensor([self.tokenizer.encode(record["chosen"]).ids])).logits[0, 0].item() for record in self.records])
        with h5py.File(self.world.results("tied")) as file:
            numpy.testing.assert_allclose(file["score/value"][()], want, atol=2e-5)

    def test_ranks_and_kills_change_nothing(self):
        self.train("bits")
        one = self.content("bits")
        for ranks, threads in ((2, "1"), (4, "2")):
            self.world.forget("bits")
            self.train("bits", ranks, OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        self.world.forget("bits")
        self.assertNotEqual(self.world.run("bits", 2, MAGISTER_FAIL_POINT="train.step.begin@6:kill").returncode, 0)
        tiny_world.wait_until(lambda: self.world.run("bits", 3).returncode == 0, seconds=60, pause=0.3)
        self.assertEqual(self.content("bits"), one)

    def test_a_reward_model_learns_on(self):
        """Its head is taken from the file, and its pad token from its config."""
        self.train("first", 0, "tasks.0.train.steps=2")
        self.world.model = self.student("first")
        head = load_file(self.world.model / "model.safetensors")["score.weight"]
        self.train("second", 0, "tasks.0.train.steps=1")
        self.assertTrue(torch.equal(load_file(self.student("second") / "model.safetensors")["score.weight"], head))  # learning rate 0

    def test_what_is_refused(self):
        self.refused("adapter", 78, "train.adapter with objective: reward", overrides=("tasks.0.train.adapter.rank=4",))
        self.refused("center", 78, "out of range", overrides=("tasks.0.reward.center_rewards_coefficient=-1",))
        self.refused("dpo", 78, "set objective: dpo", overrides=("tasks.0.dpo.beta=0.1",))
        for number, (word, gap) in enumerate((('"gap" is "wide"', "wide"), ('"gap" is true', True), ('"gap" is null', None))):
            self.write([self.records[0], {**self.records[1], "gap": gap}])
            self.refused(f"margin-{number}", 65, f"{self.world.data}:2: ", word, "is a number")
        self.write([{key: value for key, value in self.records[0].items() if key != "gap"}])
        self.refused("none", 65, 'no field "gap"')
        self.write([{**self.records[0], "chosen": "plan unit " * 60}])
        self.refused("long", 65, "none of the 1 pairs", "answers do not fit")
        self.write(self.records)
        text, self.world.text = self.world.text, self.world.text.replace("task: score", "task: generate").replace("text: chosen", "text: prompt")
        try:
            self.refused("generate", 78, "is a classifier of 1 labels")
        finally:
            self.world.text = text
        other = self.folder / "labels"
        shutil.copytree(self.model, other)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}))
        self.world.model = other
        self.refused("labels", 65, "score.weight")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
