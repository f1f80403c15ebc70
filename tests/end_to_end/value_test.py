"""Objective value of task train: bce, Bradley-Terry at the first token that differs, and histograms, on a rollout task's file, against torch and transformers'
...ForSequenceClassification; the folder is what a guide opens, in the same experiment; the same bits on any number of ranks and after a kill; bad input is refused.
"""
import json
import pathlib
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file

import score_test
import tiny_world
from by_torch import steps_of

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0].replace("layout:", "seed: 3\nlayout:")
CUTS, N = 2, 3
ROLLOUT = f"""  - task: rollout
    dataset: {{{{path: {{data}}, key: id}}}}
    max_prompt_length: 512
    max_new_tokens: 10
    cuts: {CUTS}
    n: {N}
    first_cut: 0
    temperature: 1.4
    reward: {{{{model: {{{{path: judge}}}}}}}}
"""
TRAIN = """  - task: train
    name: student
    objective: value
    rollouts: {{task: rollouts}}
    value: {{loss: bce, min_reward: -4, max_reward: 4}}
    train: {{steps: 8, global_batch: 4, max_length: 80, save_every: 3, shuffle: false, optimizer: {{lr: 5.0e-4, schedule: cosine, warmup: 2, weight_decay: 0.1}}}}
"""
GENERATE = """  - task: generate
    dataset: {{path: {data}, key: id}}
    max_prompt_length: 512
    max_new_tokens: 4
    guide: {{model: {{task: student}}, form: bernoulli}}
"""
LOSSES = {"bce": ["tasks.1.value.loss=bce"], "histogram": ["tasks.1.value.loss=histogram", "tasks.1.value.atoms=9"]}


class Value(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1, text=HEAD + ROLLOUT + TRAIN + GENERATE, results=("rollouts.h5", "student.h5", "answers.h5"))
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(6):
                text = " ".join(tiny_world.WORDS[index:2 * index + 3] * (1 + 6 * (index == 4)))
                file.write(json.dumps({"id": f"r{index}", "text": text}) + "\n")
        vocabulary = json.loads((cls.world.model / "config.json").read_text())["vocab_size"]
        small = dict(vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, num_labels=1)
        score_test.make_classifier(cls.folder / "judge", cls.world.model / "tokenizer.json", "llama", small, seed=7)

    def student(self, name):
        return self.world.results(name).with_name("student")

    def train(self, name, ranks=0, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with h5py.File(self.student(name).with_suffix(".h5")) as file:
            return {key: file[f"train/{key}"][()] for key in file["train"]}

    def texts(self, name):
        """(tokens, place of the first continued token, reward, preferred) of every continuation, in the file's order."""
        with h5py.File(self.world.results(name).with_name("rollouts.h5")) as file:
            data = {key: file[f"rollout/{key}"][()] for key in file["rollout"]}
            offset, ids = file["samples/offset"][()], file["tokens/id"][()]
        slots = data["roll_in_id"].shape[1]
        for r in range(len(offset) - 1):
            for i in range(CUTS * N):
                before = [*ids[offset[r]:offset[r + 1]], *data["roll_in_id"][r, :data["cut"][r, i // N]]]
                text = data["id"][r].reshape(-1, slots)[i, :data["length"][r, i]]
                yield [*map(int, before), *map(int, text)], len(before), float(data["reward"][r, i]), int(data["preferred"][r, i])

    def samples(self, name, loss, labels):
        """bce and histogram: (tokens, begin, label); preference: pairs of (tokens, row)"""
        texts = list(self.texts(name))
        if loss != "preference":
            kept = [(ids, begin, won if labels == "preference" else (reward + 4) / 8) for ids, begin, reward, won in texts if labels == "reward" or won != 2]
            return [one for one in kept if len(one[0]) <= 80]
        pairs = []
        for i in range(len(texts)):
            if i % N % 2 or i % N + 1 == N:
                continue
            won, lost = sorted(texts[i:i + 2], key=lambda one: -one[3])
            at = next((t for t, (a, b) in enumerate(zip(won[0], lost[0])) if a != b), None)
            if at is not None and max(len(won[0]), len(lost[0])) <= 80:
                pairs.append(((won[0], at), (lost[0], at)))
        return pairs

    def by_torch(self, start, samples, loss, atoms, steps=8, batch=4):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(self.world.model, num_labels=atoms, attn_implementation="eager").float()
        with torch.no_grad():
            model.score.weight.copy_(start)
        values = lambda ids: model.score(model.model(torch.tensor([ids])).last_hidden_state[0])
        begins = range(0, len(samples), batch)

        def loss_of(_, begin):
            some, losses, tokens = samples[begin:begin + batch], [], 0
            for one in some:
                if loss == "preference":
                    won, lost = (values(ids)[row, 0] for ids, row in one)
                    losses.append(-torch.nn.functional.logsigmoid(won - lost))
                    tokens += 2
                    continue
                ids, first, label = one
                z = values(ids)[first:]
                tokens += len(z)
                if loss == "histogram":
                    losses.append(torch.nn.functional.cross_entropy(z, torch.full((len(z),), round(label * (atoms - 1)))))
                else:
                    losses.append(torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], torch.full((len(z),), float(label))))
            return torch.stack(losses).mean(), tokens
        return steps_of(model, [begins[i % len(begins)] for i in range(steps)], loss_of, lr=5e-4)

    def test_against_torch(self):
        for loss, labels, atoms, arguments in (("bce", "reward", 1, []), ("bce", "preference", 1, ["tasks.1.value.labels=preference"]),
                                               ("histogram", "reward", 9, LOSSES["histogram"]), ("preference", "", 1, ["tasks.1.value.loss=preference"])):
            name = f"{loss}-{labels}"
            text = self.world.text
            self.world.text = HEAD + ROLLOUT + (TRAIN if labels == "reward" else TRAIN.replace(", min_reward: -4, max_reward: 4", ""))
            if loss != "bce" and labels == "":
                self.world.text = self.world.text.replace("loss: bce", "loss: preference")
            try:
                found = self.train(name, 0, *arguments)
                # The head that was drawn: one step of learning rate 0 leaves it.
                self.train(name + "-drawn", 0, *arguments, "tasks.1.train.steps=1")
            finally:
                self.world.text = text
            start = load_file(self.student(name + "-drawn") / "model.safetensors")["score.weight"]
            self.assertEqual(tuple(start.shape), (atoms, 48))
            samples = self.samples(name, loss, labels)
            self.assertGreater(len(samples), 8)
            if loss == "histogram":
                self.assertGreater(len({round(label * 8) for *_, label in samples}), 2)
            model, rows = self.by_torch(start, samples, loss, atoms)
            self.assertEqual(found["tokens"].tolist(), rows[:, 3].tolist(), name)
            mine = load_file(self.student(name) / "model.safetensors")
            self.assertEqual(set(mine), set(model.state_dict()))
            apart = {"loss": numpy.abs(found["loss"] / rows[:, 0] - 1).max(), "norm": numpy.abs(found["grad_norm"] / rows[:, 2] - 1).max(),
                     "weights": max(((mine[key] - value).norm() / value.norm()).item() for key, value in model.state_dict().items())}
            print(name, {key: f"{value:.1e}" for key, value in apart.items()}, f"loss {rows[0, 0]:.4f} to {rows[-1, 0]:.4f}")
            for key, limit in (("loss", 1e-5), ("norm", 1e-4), ("weights", 1e-5)):
                self.assertLess(apart[key], limit, (name, key))
            if loss != "preference":
                self.assertAlmostEqual(float(found["label"][0]), numpy.mean([label for *_, label in samples[:4]]), places=5)
                self.assertTrue((0 < found["value"]).all() and (found["value"] < 1).all())
            loaded = transformers.AutoModelForSequenceClassification.from_pretrained(self.student(name))
            self.assertEqual((loaded.config.architectures, loaded.config.num_labels), (["LlamaForSequenceClassification"], atoms))

    def test_one_experiment_and_the_same_bits(self):
        """Plan before anything is there; then rollouts, value model and guided texts; on other ranks and after kills."""
        for loss in ("bce", "histogram"):
            name = f"bits-{loss}"
            form = [f"tasks.2.guide.form={'histogram' if loss == 'histogram' else 'bernoulli'}", *LOSSES[loss]]
            plan = self.world.command(name, 0, *form)
            plan[plan.index("run")] = "plan"
            done = tiny_world.subprocess.run(plan, cwd=self.folder, capture_output=True, text=True, check=False, env={**self.world.environment, "MAGISTER_ALLOW_SINGLETON": "1"})
            self.assertEqual(done.returncode, 0, done.stderr)
            content = lambda: [hash((self.world.results(name).parent / one).read_bytes()) for one in ("rollouts.h5", "student.h5", "answers.h5", "student/model.safetensors")]
            self.train(name, 1, *form)
            one = content()
            if loss == "histogram":
                continue
            for ranks, threads in ((2, "1"), (4, "2")):
                self.world.forget(name)
                self.train(name, ranks, *form, OMP_NUM_THREADS=threads)
                self.assertEqual(content(), one, f"{ranks} ranks")
            self.world.forget(name)
            for point in ("rollout.record.done@3", "train.step.begin@6", "generate.pass@3"):
                self.assertNotEqual(self.world.run(name, 2, *form, MAGISTER_FAIL_POINT=f"{point}:kill").returncode, 0, point)
            tiny_world.wait_until(lambda: self.world.run(name, 3, *form).returncode == 0, seconds=60, pause=0.3)
            self.assertEqual(content(), one)

    def test_what_is_refused(self):
        self.refused("adapter", 78, "train.adapter with objective: value", overrides=("tasks.1.train.adapter.rank=4",))
        self.refused("range", 78, "is not above", overrides=("tasks.1.value.max_reward=-5",))
        self.refused("atoms", 78, "set loss: histogram", overrides=("tasks.1.value.atoms=3",))
        self.refused("form", 78, "1 number a text", overrides=("tasks.2.guide.form=histogram",))
        self.refused("other", 78, "objective: value", overrides=("tasks.1.objective=distill", "tasks.1.teacher.results=x"))
        self.refused("missing", 78, "rollouts.task names rolouts", "did you mean rollouts", overrides=("tasks.1.rollouts.task=rolouts",))
        self.refused("narrow", 65, "a reward is", "value.max_reward", overrides=("tasks.1.value.min_reward=3.99",))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
