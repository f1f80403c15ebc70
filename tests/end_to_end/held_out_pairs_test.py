"""train.evaluate beside dpo, reward and distill: held-out losses and rewards against torch with the weights of the states, the same bits on any
number of ranks and after kills; what is refused.
"""
import json
import pathlib
import subprocess
import sys
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file

import distill_test
import preference_test
import reward_test
import tiny_world

EVALUATE = "save_every: 3, keep: 9, evaluate: {{dataset: {{path: HELD_OUT, key: id MORE}}, every: 3}}"
CURVES = ("loss", "rewards_chosen", "rewards_rejected", "rewards_accuracy", "rewards_margin")
# Relative to the largest number of a curve; measured 1.2e-5 (dpo: sums of f32 log-probabilities), 1.7e-6 (reward: answers differ by a
# hundredth of their rewards), 4.5e-8 (distill).
LIMITS = {"dpo": 3.6e-5, "reward": 5e-6, "distill": 1.5e-7}


def held_out(text, path, more=""):
    return text.replace("save_every: 3", EVALUATE.replace("HELD_OUT", str(path)).replace("MORE", more))


class Checked(unittest.TestCase):
    def curve(self, path, names=CURVES):
        with h5py.File(path) as file:
            self.assertEqual(set(file["evaluate"]), {"step", *names})
            return file["evaluate/step"][()].tolist(), numpy.array([file[f"evaluate/{name}"][()] for name in names])

    def weights(self, model, student, step, drop="model."):
        if step > 0:
            state = load_file(student.with_suffix(".checkpoints") / f"step-{step:08}.safetensors")
            model.load_state_dict({key[len(drop):]: value for key, value in state.items() if key.startswith(drop)}, strict=False)
        return model

    def near(self, what, found, expected):
        apart = (numpy.abs(found - expected).max(1) / numpy.abs(expected).max(1)).max()
        print(what, f"{apart:.1e}", found[0].tolist())
        self.assertLess(apart, LIMITS[what.split()[0]])


class Dpo(Checked):
    @classmethod
    def setUpClass(cls):
        preference_test.Preference.setUpClass.__func__(cls)
        cls.held = preference_test.pairs(9, seed=8)
        cls.path = cls.folder / "held.jsonl"
        cls.write(cls.held, cls.path)
        cls.world.text = held_out(cls.world.text, cls.path)

    write, encoded = classmethod(preference_test.Preference.write.__func__), preference_test.Preference.encoded

    def student(self, name):
        return self.world.results(name).with_suffix("")

    def train(self, name, ranks, *arguments):
        done = self.world.run(name, ranks, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done.stdout + done.stderr

    def expected(self, steps, loss_type, beta):
        encoded = self.encoded(self.held)
        model = transformers.AutoModelForCausalLM.from_pretrained(self.model, attn_implementation="eager").float()
        rows, references = [], None
        with torch.no_grad():
            for step in steps:
                self.weights(model, self.student(loss_type), step)
                logprobs = [[(model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)[range(len(ids) - 1), ids[1:]] * torch.tensor(learnt[1:])).sum()
                             for ids, learnt in pair] for pair in encoded]
                references = references or logprobs
                ratios = [[now - then for now, then in zip(*both)] for both in zip(logprobs, references)]
                losses = [preference_test.loss_of_pairs(loss_type, beta, 0, *ratio, *(sum(learnt[1:]) for _, learnt in pair)).item() for ratio, pair in zip(ratios, encoded)]
                chosen, rejected = beta * numpy.array(ratios).T
                rows.append([numpy.mean(losses), chosen.mean(), rejected.mean(), (chosen > rejected).mean(), (chosen - rejected).mean()])
        return numpy.array(rows).T

    def test_against_torch(self):
        for loss_type, beta in (("sigmoid", 0.1), ("ipo", 0.3)):
            lines = self.train(loss_type, 2, f"tasks.0.dpo.loss_type={loss_type}", f"tasks.0.dpo.beta={beta}", "tasks.0.train.optimizer.lr=2.0e-3")
            steps, found = self.curve(self.world.results(loss_type))
            self.assertEqual(steps, [0, 3, 6, 8])
            self.near(f"dpo {loss_type}", found, self.expected(steps, loss_type, beta))
            self.assertIn("eval_loss", lines)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("ipo")], check=True, capture_output=True)
        with h5py.File(self.world.results("ipo"), "r+") as file:
            file["evaluate/rewards_margin"][2] += 0.5
        done = subprocess.run([tiny_world.PROGRAM, "check", self.world.results("ipo")], check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 65, done.stdout + done.stderr)

    def test_ranks_and_kills_change_nothing(self):
        """What the first weights say of held-out answers is computed again after a kill, by them and not by those of the state."""
        def content():
            return self.world.sha256("bits"), (self.student("bits") / "model.safetensors").read_bytes()
        self.train("bits", 1)
        one = content()
        for ranks, point in ((3, None), (2, "train.step.begin@5:kill"), (2, "train.evaluate.begin@4:kill")):
            self.world.forget("bits")
            if point:
                self.assertNotEqual(self.world.run("bits", ranks, MAGISTER_FAIL_POINT=point).returncode, 0)
            tiny_world.wait_until(lambda ranks=ranks: self.world.run("bits", 5 - ranks).returncode == 0, seconds=60, pause=0.3)
            self.assertEqual(content(), one, point)

    def test_what_is_refused(self):
        none = self.folder / "none.jsonl"
        self.write([{**self.held[0], "prompt": "word " * 200}], none)
        e = "tasks.0.train.evaluate."
        for number, (code, words, *overrides) in enumerate((
                (78, "given with another objective (only a distillation has a teacher)", e + "teacher.results=x.h5"),
                (65, 'no field "prompts"', f"{e}dataset.chosen=prompts"), (65, "has two answers that fit into train.max_length", f"{e}dataset.path={none}"),
                (78, "no loss can be held out", "tasks.0.objective=grpo"))):
            with self.subTest(overrides=overrides):
                done = self.world.run(f"refused-{number}", 0, *overrides)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)


class Reward(Checked):
    @classmethod
    def setUpClass(cls):
        reward_test.Reward.setUpClass.__func__(cls)
        held = [{**record, "gap": (i % 3) / 4} for i, record in enumerate(preference_test.pairs(9, seed=8))]
        held[4]["rejected"] *= 9  # does not fit, and takes no part
        cls.held = cls.records = held
        path = cls.folder / "held.jsonl"
        preference_test.Preference.write(held, path)
        preference_test.Preference.write(preference_test.pairs(14, seed=5), cls.world.data)
        cls.world.text = held_out(cls.world.text, path, ", margin: gap").replace(", key: id, margin: gap}}\n    reward", ", key: id}}\n    reward")
        cls.world.text, cls.world.names = cls.world.text.split("  - task: score")[0], ("student.h5",)

    encoded = reward_test.Reward.encoded

    def test_against_torch(self):
        done = self.world.run("torch", 2)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        steps, found = self.curve(self.world.results("torch"))
        encoded, margins = self.encoded()
        self.assertLess(len(encoded), len(self.held))
        student, rows = self.world.results("torch").with_suffix(""), []
        model = transformers.AutoModelForSequenceClassification.from_pretrained(student, attn_implementation="eager").float()
        with torch.no_grad():
            for step in steps[1:]:
                self.weights(model, student, step)
                chosen, rejected = (torch.stack([model(torch.tensor([pair[side]])).logits[0, 0].double() for pair in encoded]) for side in (0, 1))
                loss = -torch.nn.functional.logsigmoid(chosen - rejected - torch.tensor(margins)).mean() + 0.05 * ((chosen + rejected) ** 2).mean()
                rows.append([value.item() for value in (loss, chosen.mean(), rejected.mean(), (chosen > rejected).double().mean(), (chosen - rejected).mean())])
        self.near("reward", found[:, 1:], numpy.array(rows).T)


class Distill(Checked):
    @classmethod
    def setUpClass(cls):
        distill_test.Distill.setUpClass.__func__(cls)
        cls.path = tiny_world.make_records(cls.folder / "held.jsonl", 7, seed=9)

    experiment, teach, distillation = (distill_test.Distill.__dict__[name] for name in ("experiment", "teach", "distillation"))

    def run_it(self, name, ranks, options, encoding, *arguments):
        student = self.distillation(self.files["plain" if encoding == "plain" else encoding], options)
        student = student.replace("save_every: 3", "save_every: 3, keep: 9, evaluate: {teacher: {task: held}, every: 4}")
        self.experiment(self.teach("held", encoding, 4, str(self.path)) + student, "held.h5", "student.h5")
        return self.world.run(name, ranks, *arguments)

    def test_against_torch(self):
        for encoding, options in (("plain", {"lm_weight": 0.25}), ("sampled", {"weight": 0.5, "lm_weight": 0.5})):
            done = self.run_it(encoding, 2, options, encoding)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            folder = self.folder / "runs" / encoding
            steps, found = self.curve(folder / "student.h5", ("loss",))
            rows, expected = distill_test.TeacherRows(folder / "held.h5"), []
            model = transformers.AutoModelForCausalLM.from_pretrained(self.student, attn_implementation="eager").float()
            with torch.no_grad():
                for step in steps:
                    if step % 3 and step != steps[-1]:
                        expected.append(numpy.nan)  # no state stands there
                        continue
                    self.weights(model, folder / "student", step)
                    losses = []
                    for begin, end in ((a, min(b, a + 96)) for a, b in rows.ranges):
                        places = numpy.array([t for t in range(begin, end - 1) if rows.scored[t]], dtype="i8")
                        if len(places):
                            logits = model(torch.from_numpy(rows.ids[begin:end])[None]).logits[0].double()[places - begin]
                            losses.append(rows.loss(logits, places, torch.from_numpy(rows.ids[places + 1]), options))
                    expected.append(torch.cat(losses).mean().item())
            kept = ~numpy.isnan(expected)
            self.assertGreater(kept.sum(), 1)
            self.near(f"distill {encoding}", found[:, kept], numpy.array([expected])[:, kept])
            subprocess.run([tiny_world.PROGRAM, "check", folder / "student.h5"], check=True, capture_output=True)

    def test_ranks_change_nothing_and_what_is_refused(self):
        options = {"lm_weight": 0.25}
        contents = []
        for ranks in (1, 3):
            self.world.forget("bits")
            self.assertEqual(self.run_it("bits", ranks, options, "compact").returncode, 0)
            contents.append(self.world.sha256("bits"))
        self.assertEqual(*contents)
        done = self.run_it("refused", 0, options, "plain", "tasks.1.train.evaluate.teacher.task=nobody")
        self.assertEqual((done.returncode, "train.evaluate.teacher.task" in done.stderr), (78, True), done.stderr)
        done = self.run_it("refused", 0, options, "plain", f"tasks.1.train.evaluate.dataset.path={self.path}")
        self.assertEqual((done.returncode, "name evaluate.teacher" in done.stderr), (78, True), done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
