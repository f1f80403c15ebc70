"""Objective dpo of task train: losses, rewards, norms and weights against torch and transformers with TRL's formulas, for texts, chats and LoRA;
the same bits on any number of ranks and threads, after kills and stops; bad pairs are refused by their place.
"""
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import tiny_world
from by_torch import adamw_steps

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: train
    objective: dpo
    dataset: {{path: {data}, key: id}}
    train: {{steps: 8, global_batch: 4, max_length: 64, save_every: 3, shuffle: false, optimizer: {{lr: 1.5e-4, schedule: cosine, warmup: 2, weight_decay: 0.1}}}}
"""
CURVES = ("loss", "rewards_chosen", "rewards_rejected", "rewards_accuracy", "rewards_margin")
LENGTH = 64


def pairs(count, seed=3):
    source = random.Random(seed)

    def text(longest):
        return " ".join(source.choice(tiny_world.WORDS) for _ in range(source.randint(1, longest)))
    return [{"id": f"pair-{i}", "prompt": text(9) + " ", "chosen": text(12), "rejected": text(30 if i % 5 == 2 else 12)} for i in range(count)]


def ended(ids, end=2):
    """With the model's end token, which is a character of the texts here: some end with it."""
    return ids if ids[-1:] == [end] else ids + [end]


def loss_of_pairs(loss_type, beta, smoothing, ratio_chosen, ratio_rejected, tokens_chosen, tokens_rejected):
    """The formulas of TRL's DPOTrainer, written from their definitions."""
    difference = beta * (ratio_chosen - ratio_rejected)
    if loss_type == "sigmoid":
        return -torch.nn.functional.logsigmoid(difference)
    if loss_type == "hinge":
        return torch.relu(1 - difference)
    if loss_type == "ipo":
        return (ratio_chosen / tokens_chosen - ratio_rejected / tokens_rejected - 1 / (2 * beta)) ** 2
    likely, unlikely = -torch.nn.functional.logsigmoid(difference), -torch.nn.functional.logsigmoid(-difference)
    return ((1 - smoothing) * likely - smoothing * unlikely) / (1 - 2 * smoothing)


class Preference(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=3, text=EXPERIMENT, results=("student.h5",))
        cls.records = pairs(14)
        cls.data = cls.world.data
        cls.write(cls.records)
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.model = cls.world.model

    def setUp(self):
        self.write(self.records)
        self.world.model = self.model

    @classmethod
    def write(cls, records, path=None):
        (path or cls.data).write_text("".join(json.dumps(record) + "\n" for record in records))

    def train(self, name, ranks=0, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with h5py.File(self.world.results(name)) as file:
            return {key: file[f"train/{key}"][()] for key in ("step", "lr", "grad_norm", "tokens", *CURVES)}

    def student(self, name):
        return self.world.results(name).with_suffix("")

    def content(self, name, weights="model.safetensors"):
        return self.world.sha256(name), (self.student(name) / weights).read_bytes()

    def encoded(self, records):
        """By pair two of: ids, and for each whether it is learnt. As TRL's tokenize_fn, cut at the end."""
        found = []
        for record in records:
            prompt = self.tokenizer.encode(record["prompt"]).ids
            whole = [ended(self.tokenizer.encode(record["prompt"] + record[side]).ids) for side in ("chosen", "rejected")]
            common = min(next((i for i, (a, b) in enumerate(zip(prompt, ids)) if a != b), min(len(prompt), len(ids))) for ids in whole)
            found.append([(ids[:LENGTH], [int(i >= common) for i in range(len(ids))][:LENGTH]) for ids in whole])
        return found

    def by_torch(self, encoded, loss_type="sigmoid", beta=0.1, smoothing=0.0, steps=8, batch=4):
        def logprob(model, ids, learnt):
            rows = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
            return (rows[range(len(ids) - 1), ids[1:]] * torch.tensor(learnt[1:])).sum()
        reference = transformers.AutoModelForCausalLM.from_pretrained(self.world.model, attn_implementation="eager").double()
        with torch.no_grad():
            references = [[logprob(reference, *answer) for answer in pair] for pair in encoded]
        epoch = [list(range(begin, min(begin + batch, len(encoded)))) for begin in range(0, len(encoded), batch)]
        rewards = []

        def loss_of(model, numbers):
            loss, of_step, tokens = 0, [], 0
            for number in numbers:
                ratios = [logprob(model, *answer) - given for answer, given in zip(encoded[number], references[number])]
                counts = [sum(learnt[1:]) for _, learnt in encoded[number]]
                loss = loss + loss_of_pairs(loss_type, beta, smoothing, *ratios, *counts) / len(numbers)
                of_step.append([beta * ratio.item() for ratio in ratios])
                tokens += sum(counts)
            of_step = numpy.array(of_step)
            chosen, rejected = of_step.mean(0)
            rewards.append([chosen, rejected, (of_step[:, 0] > of_step[:, 1]).mean(), chosen - rejected])
            return loss, tokens
        model, rows = adamw_steps(self.world.model, [epoch[i % len(epoch)] for i in range(steps)], loss_of, lr=1.5e-4, dtype=torch.float64)
        return model, rows, numpy.array(rewards)

    def compare(self, name, found, model, rows, rewards):
        self.assertEqual(found["tokens"].tolist(), rows[:, 3].tolist())
        # The robust loss passes 0.
        apart = {"loss": (numpy.abs(found["loss"] - rows[:, 0]) / numpy.maximum(0.1, numpy.abs(rows[:, 0]))).max(), "norm": numpy.abs(found["grad_norm"] / rows[:, 2] - 1).max(),
                 "rewards": max(numpy.abs(found[key] - rewards[:, i]).max() for i, key in enumerate(CURVES[1:])) / numpy.abs(rewards).max()}
        weights = load_file(self.student(name) / "model.safetensors")
        apart["weights"] = max(((weights[key] - value).norm() / value.norm()).item() for key, value in model.state_dict().items())
        print(name, {key: f"{value:.1e}" for key, value in apart.items()}, f"loss {rows[0, 0]:.4f} to {rows[-1, 0]:.4f}", f"margin {rewards[-1, 3]:.3f}")
        for key, limit in (("loss", 2e-5), ("norm", 1e-4), ("rewards", 1e-5), ("weights", 1e-5)):
            self.assertLess(apart[key], limit, key)

    def test_losses_against_torch(self):
        encoded = self.encoded(self.records)
        self.assertTrue(any(len(ids) == LENGTH for pair in encoded for ids, _ in pair))  # one is cut
        for loss_type, beta, smoothing in (("sigmoid", 0.1, 0.0), ("hinge", 0.05, 0.0), ("ipo", 0.1, 0.0), ("robust", 0.3, 0.2)):
            with self.subTest(loss_type=loss_type):
                extra = [f"tasks.0.dpo.label_smoothing={smoothing}"] if smoothing else []
                found = self.train(loss_type, 0, f"tasks.0.dpo.loss_type={loss_type}", f"tasks.0.dpo.beta={beta}", *extra)
                self.compare(loss_type, found, *self.by_torch(encoded, loss_type, beta, smoothing))
        self.assertAlmostEqual(self.by_torch(encoded, steps=1)[1][0, 0], numpy.log(2), places=6)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("sigmoid")], check=True, capture_output=True)

    def test_chats_and_prompts_that_both_answers_begin_with(self):
        template = self.folder / "template.jinja"
        template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
        chats = [{"id": r["id"], "prompt": [{"role": "user", "content": r["prompt"]}],
                  **{side: [{"role": "assistant", "content": r[side]}] for side in ("chosen", "rejected")}} for r in self.records]
        self.write(chats)
        found = self.train("chats", 0, f"model.chat_template={template}", "tasks.0.train.max_length=64")
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=self.tokenizer, chat_template=template.read_text())

        def ids(messages, answer_follows):
            return tokenizer.apply_chat_template(messages, add_generation_prompt=answer_follows, tokenize=True, return_dict=True)["input_ids"]
        encoded = []
        for record in chats:
            prompt, answers = ids(record["prompt"], True), [ids(record["prompt"] + record[side], False) for side in ("chosen", "rejected")]
            common = min(next((i for i, (a, b) in enumerate(zip(prompt, answer)) if a != b), len(prompt)) for answer in answers)
            encoded.append([(answer[:LENGTH], ([0] * common + [1] * (len(answer) - common))[:LENGTH]) for answer in answers])
        self.compare("chats", found, *self.by_torch(encoded))
        # The same pairs as whole conversations, and under other names.
        self.write([{"id": r["id"], "good": r["prompt"] + r["chosen"], "bad": r["prompt"] + r["rejected"]} for r in chats])
        again = self.train("whole", 0, f"model.chat_template={template}", "tasks.0.dataset.chosen=good", "tasks.0.dataset.rejected=bad")
        self.assertEqual(again["loss"].tolist(), found["loss"].tolist())
        self.assertEqual(self.content("whole")[1], self.content("chats")[1])

    def test_the_template_and_the_end_tokens_are_part_of_the_identity(self):
        """Also of a run that goes on, which encodes nothing anew; and what was learnt stands in the student's folder."""
        template = self.folder / "identity.jinja"
        words = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
        self.write([{"id": r["id"], "prompt": [{"role": "user", "content": r["prompt"]}], "chosen": [{"role": "assistant", "content": r["chosen"]}],
                     "rejected": [{"role": "assistant", "content": r["rejected"]}]} for r in self.records])
        template.write_text(words)
        keys = (f"model.chat_template={template}",)
        self.assertNotEqual(self.world.run("identity", 2, *keys, MAGISTER_FAIL_POINT="train.step.begin@5:kill").returncode, 0)
        template.write_text(words.replace("assistant: ", "assistant:"))
        done = self.world.run("identity", 0, *keys)
        self.assertEqual((done.returncode, "chat_template_sha256" in done.stderr), (78, True), done.stderr)
        template.write_text(words)
        self.train("identity", 0, *keys)
        self.assertEqual((self.student("identity") / "chat_template.jinja").read_text(), words)
        # Texts end with the model's end token.
        self.write(self.records)
        self.world.model = self.folder / "ends"
        shutil.copytree(self.model, self.world.model)
        self.train("ends")
        (self.world.model / "generation_config.json").write_text('{"eos_token_id": 5}')
        done = self.world.run("ends", 0)
        self.assertEqual((done.returncode, "end_tokens" in done.stderr), (78, True), done.stderr)

    def test_texts_without_a_prompt_are_divided_as_trl_does(self):
        """A space before the first difference belongs to the answers; characters of several bytes stay whole."""
        texts = (("the sky is blue", "the sky is green"), ("the sky is blé", "the sky is blè"), ("plan 12", "plan 12345"), ("аб вг", "аб вд"))

        def divided(a, b):  # TRL's extract_prompt
            for place in range(min(len(a), len(b))):
                if a[place] != b[place]:
                    if a[place - 1] == " ":
                        place -= 1
                    break
            return a[:place], a[place:], b[place:]
        self.write([{"id": str(i), "prompt": p, "chosen": c, "rejected": r} for i, (p, c, r) in enumerate(divided(*pair) for pair in texts)])
        named = self.train("named", 0, "tasks.0.train.steps=2")
        self.write([{"id": str(i), "chosen": a, "rejected": b} for i, (a, b) in enumerate(texts)])
        divided = self.train("divided", 0, "tasks.0.train.steps=2")
        self.assertEqual(divided["loss"].tolist(), named["loss"].tolist())
        self.assertEqual(divided["tokens"].tolist(), named["tokens"].tolist())
        self.assertEqual(self.content("divided")[1], self.content("named")[1])

    def test_an_end_that_is_kept(self):
        encoded = [[(ids[-24:], learnt[-24:]) for ids, learnt in pair] for pair in self.encoded(self.records) if all(len(ids) < LENGTH for ids, _ in pair)]
        self.write([record for record, pair in zip(self.records, self.encoded(self.records)) if all(len(ids) < LENGTH for ids, _ in pair)])
        found = self.train("end", 0, "tasks.0.dpo.truncation_mode=keep_end", "tasks.0.train.max_length=24", "tasks.0.train.steps=3")
        _, rows, _ = self.by_torch(encoded, steps=3)
        self.assertEqual(found["tokens"].tolist(), rows[:, 3].tolist())
        numpy.testing.assert_allclose(found["loss"][:1], rows[:1, 0], rtol=1e-5)

    def test_ranks_threads_kills_and_stops_change_nothing(self):
        self.train("bits")
        one = self.content("bits")
        for ranks, threads in ((2, "1"), (3, "1"), (4, "2")):
            self.world.forget("bits")
            self.train("bits", ranks, OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        for number, point in enumerate(("train.reference.written@2:kill", "train.step.begin@6:kill")):
            self.world.forget("bits")
            self.assertNotEqual(self.world.run("bits", 2, MAGISTER_FAIL_POINT=point).returncode, 0)
            self.assertFalse(self.world.results("bits").exists())
            self.finish("bits", 1 + number % 3)
            self.assertEqual(self.content("bits"), one, point)
        # SIGTERM while the reference is asked: what is there stays.
        self.world.forget("bits")
        done = self.world.interrupted("train.reference.unit@2", signal.SIGTERM, "bits", 2)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertTrue(self.world.results("bits").with_name("student.running.h5.partial").exists())
        self.finish("bits", 3)
        self.assertEqual(self.content("bits"), one)

    def test_a_reference_that_was_changed_is_computed_anew(self):
        self.train("changed")
        one = self.content("changed")
        self.world.forget("changed")
        self.world.run("changed", 0, MAGISTER_FAIL_POINT="train.step.begin@5:kill")  # behind a state, whose weights are others
        running = self.world.results("changed").with_name("student.running.h5.partial")
        with h5py.File(running) as file:
            rows = file["reference/logprob"][:]
            place = file["reference/logprob"].id.get_offset()
        self.assertTrue((rows[:, 0] < 0).all())
        content = bytearray(running.read_bytes())
        content[place + 2] ^= 64
        running.write_bytes(content)
        self.finish("changed", 1)
        self.assertEqual(self.content("changed"), one)

    def finish(self, name, ranks):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74."""
        tiny_world.wait_until(lambda: self.world.run(name, ranks).returncode == 0, seconds=60, pause=0.3)

    def test_lora_begins_at_the_reference(self):
        found = self.train("lora", 2, "tasks.0.train.adapter.rank=4", "tasks.0.train.optimizer.lr=2.0e-2")
        self.assertAlmostEqual(found["loss"][0], numpy.log(2), places=6)
        self.assertLess(found["loss"][-3:].mean(), found["loss"][:3].mean() - 0.02)
        one = self.content("lora", "adapter_model.safetensors")
        self.world.forget("lora")
        self.train("lora", 0, "tasks.0.train.adapter.rank=4", "tasks.0.train.optimizer.lr=2.0e-2")
        self.assertEqual(self.content("lora", "adapter_model.safetensors"), one)

    def test_what_is_refused(self):
        d = "tasks.0.dpo."
        for number, (words, *overrides) in enumerate((
                ("known: lm, distill, dpo, reward, grpo, value", "tasks.0.objective=ppo"), ("did you mean", "tasks.0.objective=dop"),
                ("known: sigmoid, hinge, ipo, robust", d + "loss_type=sigmod"), ("beta: 0 (nothing would be learnt)", d + "beta=0"), ("out of range", d + "beta=-0.1"),
                ("tasks.0.dpo.beta", d + "beta=nan"), ("without `loss_type: robust`", d + "label_smoothing=0.1"),
                ("out of range", d + "loss_type=robust", d + "label_smoothing=0.5"), ("known: keep_start, keep_end", d + "truncation_mode=middle"),
                ("lr: 0 (nothing would be learnt)", "tasks.0.train.optimizer.lr=0"), ("pairs of answers", "tasks.0.train.packing=true"),
                ("pairs of answers", "tasks.0.dataset.text=chosen"), ("only its loss has a margin", "tasks.0.dataset.margin=m"),
                ("set objective: dpo", "tasks.0.objective=lm", d + "beta=0.2"), ("did you mean loss_type?", d + "loss=ipo"))):
            with self.subTest(overrides=overrides):
                self.refused(f"config-{number}", 78, words, overrides=overrides)
        good, chat = self.records[0], [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        for number, (words, record) in enumerate((
                ('"chosen" and "rejected" are the same', {**good, "rejected": good["chosen"]}), ('"chosen" is empty', {**good, "chosen": ""}),
                ('"rejected" is empty', {**good, "rejected": []}), ('no field "rejected"', {"id": "a", "prompt": "x", "chosen": "y"}),
                ('"chosen" is neither a text nor a list', {**good, "chosen": 3}), ('"prompt" is neither', {**good, "prompt": None}),
                ("some are texts and others lists", {**good, "chosen": chat}), ("no common beginning", {"id": "a", "chosen": "yes", "rejected": "no"}),
                ("those of the first record are texts", {"id": "a", "chosen": chat, "rejected": chat[:1] + [{"role": "assistant", "content": "c"}]}),
                ("they answer", {"id": "a", "chosen": "é", "rejected": "è"}))):
            with self.subTest(words=words):
                self.write([good, record])
                self.refused(f"data-{number}", 65, f"{self.data}:2: ", words)
        self.write([{**good, "prompt": "plan unit " * 60}])
        self.refused("long", 65, "none of the 1 pairs", "prompts fill")
        self.write([{**good, "prompt": "plan unit " * 60}, good])
        done = self.world.run("one", 0, "tasks.0.train.steps=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 of 2 records have an answer without a token", done.stderr + done.stdout)

    def test_other_objectives_states_and_broken_weights(self):
        self.world.run("other", 0, "tasks.0.dpo.loss_type=ipo", MAGISTER_FAIL_POINT="train.step.begin@5:kill")
        self.world.run("mine", 0, MAGISTER_FAIL_POINT="train.step.begin@5:kill")
        (state,) = self.student("mine").with_suffix(".checkpoints").glob("*.safetensors")
        (other,) = self.student("other").with_suffix(".checkpoints").glob("*.safetensors")
        state.write_bytes(other.read_bytes())
        self.refused("mine", 78, "another experiment", str(state))
        self.refused("other", 78, "tasks.0.dpo.beta is 0.1 in it", overrides=("tasks.0.objective=lm", "tasks.0.dataset.text=chosen"))
        self.world.model = self.folder / "nan"
        shutil.copytree(self.model, self.world.model)
        weights = load_file(self.model / "model.safetensors")
        weights["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
        save_file(weights, self.world.model / "model.safetensors", metadata={"format": "pt"})
        self.refused("nan", 65, "model.layers.1.mlp.up_proj.weight", "not finite")
        weights["model.layers.1.mlp.up_proj.weight"][3, 4] = 3e38
        weights["model.layers.1.mlp.gate_proj.weight"] *= 1e30
        save_file(weights, self.world.model / "model.safetensors", metadata={"format": "pt"})
        self.refused("huge", 65, "record pair-0: the reference model's log-probability")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
