"""train.evaluate: held-out losses against transformers with the weights of the states, the same bits on any number of ranks and after kills; what is
learnt does not change by it; bad input is refused.
"""
import json
import pathlib
import signal
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

import tiny_world
from train_test import ASSISTANT, EXPERIMENT

TEXT = EXPERIMENT.replace("save_every: 3", "save_every: 3, keep: 9, evaluate: {{dataset: {{path: HELD_OUT, key: id}}, every: 3}}")
LENGTH = 96


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.held_out = tiny_world.make_records(cls.folder / "held_out.jsonl", 60)
        # Other records than those that are learnt, many enough for several micro-batches on each of four ranks.
        lines = cls.held_out.read_text().splitlines()[26:] + [json.dumps({"id": "empty", "text": ""})]
        cls.held_out.write_text("".join(line + "\n" for line in lines))
        cls.world = tiny_world.World(cls.folder, records=26, text=TEXT.replace("HELD_OUT", str(cls.held_out)), results=("student.h5",))
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))

    def train(self, name, ranks=1, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done.stdout + done.stderr

    def student(self, name):
        return self.world.results(name).with_suffix("")

    def content(self, name):
        return self.world.sha256(name), (self.student(name) / "model.safetensors").read_bytes()

    def curve(self, name):
        with h5py.File(self.world.results(name)) as file:
            return {key: file[f"evaluate/{key}"][()] for key in ("step", "loss", "perplexity")}

    def by_transformers(self, model, sequences, labels):
        """-> mean over all labels, in f64."""
        total, tokens = 0.0, 0
        with torch.no_grad():
            for ids, learnt in zip(sequences, labels):
                targets = torch.tensor([token if use else -100 for token, use in zip(ids[1:], learnt[1:])])
                if len(ids) < 2 or (targets < 0).all():
                    continue
                total += torch.nn.functional.cross_entropy(model(torch.tensor([ids])).logits[0, :-1].double(), targets, reduction="sum").item()
                tokens += int((targets >= 0).sum())
        return total / tokens

    def compare(self, name, sequences, labels):
        """With the weights that the training began with, and with those of every state."""
        found = self.curve(name)
        model = transformers.AutoModelForCausalLM.from_pretrained(self.world.model, dtype=torch.float32)
        expected = []
        for step in found["step"].tolist():
            if step > 0:
                state = load_file(self.student(name).with_suffix(".checkpoints") / f"step-{step:08}.safetensors")
                model.load_state_dict({key[len("model."):]: value for key, value in state.items() if key.startswith("model.")}, strict=False)
            expected.append(self.by_transformers(model, sequences, labels))
        apart = numpy.abs(found["loss"] / numpy.array(expected) - 1).max()
        print(name, f"{apart:.1e}", found["step"].tolist(), found["loss"].tolist())
        self.assertLess(apart, 2e-7)
        numpy.testing.assert_allclose(found["perplexity"], numpy.exp(found["loss"].astype(numpy.float64)), rtol=1e-6)
        self.assertGreater(found["loss"][0] - found["loss"][-1], 0.1)
        return found

    def test_texts_against_transformers(self):
        lines = self.train("texts")
        records = [json.loads(line) for line in self.held_out.read_text().splitlines()]
        encoded = [self.tokenizer.encode(record["text"]).ids for record in records]
        sequences = [(ids if ids[-1:] == [2] else ids + [2])[:LENGTH] for ids in encoded]  # some texts end with the end token themselves
        found = self.compare("texts", sequences, [[1] * len(ids) for ids in sequences])
        self.assertEqual(found["step"].tolist(), [0, 3, 6, 9, 12])
        self.assertIn("eval_loss", lines)
        self.assertNotIn("held out)", lines)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("texts")], check=True, capture_output=True)
        # What is learnt is what is learnt without it.
        weights = (self.student("texts") / "model.safetensors").read_bytes()
        text, self.world.text = self.world.text, EXPERIMENT
        try:
            self.train("without")
        finally:
            self.world.text = text
        self.assertEqual((self.student("without") / "model.safetensors").read_bytes(), weights)
        # A curve that was changed is found.
        with h5py.File(self.world.results("texts"), "r+") as file:
            file["evaluate/loss"][2] += 0.5
        done = subprocess.run([tiny_world.PROGRAM, "check", self.world.results("texts")], check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 65, done.stdout + done.stderr)

    def test_chats_count_the_assistant_alone(self):
        template = self.folder / "template.jinja"
        template.write_text(ASSISTANT)
        texts = [json.loads(line)["text"] for line in self.held_out.read_text().splitlines()]
        chats = [[{"role": "user", "content": text[:40]}, {"role": "assistant", "content": text[40:200]}] for text in texts if len(text) > 60]
        learnt, held_out = self.folder / "chats.jsonl", self.folder / "held_out_chats.jsonl"
        learnt.write_text("".join(json.dumps({"id": str(i), "m": chat}) + "\n" for i, chat in enumerate(chats[:12])))
        held_out.write_text("".join(json.dumps({"id": str(i), "c": chat}) + "\n" for i, chat in enumerate(chats[12:])))
        e = "tasks.0.train.evaluate."
        self.train("chats", 2, f"tasks.0.dataset.path={learnt}", "tasks.0.dataset.messages=m", "tasks.0.assistant_only_loss=true", f"model.chat_template={template}",
                   f"{e}dataset.path={held_out}", f"{e}dataset.messages=c", e + "every=100")
        sequences, labels = [], []
        for user, assistant in ((chat[0]["content"], chat[1]["content"]) for chat in chats[12:]):
            encoded = self.tokenizer.encode(f"{user}\n{assistant}\n")
            begin, end = len(user) + 1, len(user) + 1 + len(assistant)
            sequences.append(encoded.ids[:LENGTH])
            labels.append([int(a < end and b > begin) for a, b in encoded.offsets][:LENGTH])
        found = self.compare("chats", sequences, labels)
        self.assertEqual(found["step"].tolist(), [0, 6])

    def test_ranks_and_kills_change_nothing(self):
        self.train("bits", 1)
        one = self.content("bits")
        for ranks, threads in ((3, "1"), (1, "2")):
            self.world.forget("bits")
            self.train("bits", ranks, OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        # The last held-out loss alone is missing: the steps are done, and their state is there or not.
        for point in ("train.evaluate.begin@1:kill", "train.evaluate.begin@3:kill", "train.evaluate.begin@5:kill"):
            self.world.forget("bits")
            self.assertNotEqual(self.world.run("bits", 2, MAGISTER_FAIL_POINT=point).returncode, 0)
            tiny_world.wait_until(lambda: self.world.run("bits", 1).returncode == 0, seconds=60, pause=0.3)
            self.assertEqual(self.content("bits"), one, point)
        # SIGTERM in the last evaluation: a state without it is saved.
        self.world.forget("bits")
        done = self.world.interrupted("train.evaluate.begin@5", signal.SIGTERM, "bits", 2)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertTrue((self.student("bits").with_suffix(".checkpoints") / "step-00000009.safetensors").exists())
        self.train("bits", 3)
        self.assertEqual(self.content("bits"), one)

    def test_what_is_refused(self):
        empty, none = self.folder / "empty.jsonl", self.folder / "none.jsonl"
        empty.write_text("")
        none.write_text(json.dumps({"id": "a", "text": ""}) + "\n")
        ids = self.folder / "ids.jsonl"
        ids.write_text(json.dumps({"id": "a", "text": "abc", "ids": [5, 100000]}) + "\n")
        e = "tasks.0.train.evaluate."
        for number, (code, words, *overrides) in enumerate((
                (78, "tasks.0.train.evaluate.every: 0 is out of range", e + "every=0"), (74, "missing.jsonl", e + "dataset.path=missing.jsonl"),
                (65, "train.evaluate.dataset has no records", f"{e}dataset.path={empty}"), (65, "none of the 1 records of train.evaluate.dataset", f"{e}dataset.path={none}"),
                (78, "names messages, and the training's data set text", e + "dataset.messages=m"), (78, "did you mean every?", e + "eval_steps=3"),
                (65, "token id 100000 is outside", f"{e}dataset.path={ids}", e + "dataset.tokens=ids", f"tasks.0.dataset.path={self.ids()}", "tasks.0.dataset.tokens=ids"))):
            with self.subTest(overrides=overrides):
                done = self.world.run(f"refused-{number}", 0, *overrides)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse([*self.world.results(f"refused-{number}").parent.glob("student*")])
        # Other records under the name of a training that has begun.
        self.world.run("other", 1, MAGISTER_FAIL_POINT="train.step.begin@5:kill")
        done = self.world.run("other", 1, e + "dataset.limit=3")
        self.assertEqual(done.returncode, 78, done.stderr)
        content = self.held_out.read_text()
        try:
            self.held_out.write_text(content.replace("the", "teh"))
            done = self.world.run("other", 1)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn("evaluate_dataset_sha256", done.stderr)
        finally:
            self.held_out.write_text(content)
        done = self.world.run("same", 1, f"{e}dataset.path={self.world.data}", "tasks.0.train.steps=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("is what is learnt from", done.stderr + done.stdout)
        done = self.world.run("halves", 1, f"{e}dataset.path={self.world.data}", "tasks.0.slice=0/2", f"{e}slice=1/2", "tasks.0.train.steps=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("is what is learnt from", done.stderr + done.stdout)

    def ids(self):
        path = self.folder / "learnt_ids.jsonl"
        path.write_text("".join(json.dumps({"id": str(i), "ids": [5, 6, 7, i]}) + "\n" for i in range(4)))
        return path


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
