"""Objective grpo of task train: losses, norms, curves and weights against torch and transformers with TRL's formulas on the texts that the run logs; the
texts are of the weights as they were at that step; the same bits on any number of ranks and after kills and stops; bad input is refused.
"""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import math_verify
import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import score_test
import tiny_world
from by_torch import steps_of

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: train
    objective: grpo
    dataset: {{path: {data}, key: id}}
    grpo: {{num_generations: 4, max_new_tokens: 14, log_completions: true, reward: {{verifier: regex, pattern: "[0-9a-e]"}}}}
    train: {{steps: 6, global_batch: 16, max_length: 64, save_every: 1, keep: 30, shuffle: false, optimizer: {{lr: 1.0e-3, schedule: cosine, warmup: 2, weight_decay: 0.1}}}}
"""
CURVES = ("reward", "reward_std", "kl", "clip_ratio", "completion_length", "truncated")
PROMPTS = ("plan unit", "the logit of", "año мир 12", "12 345 some words", "if(x) return;", "tokenizer, teacher")
G, T = "tasks.0.grpo.", "tasks.0.train."
ENDS = list(range(3, 320, 9))  # many tokens end a text, so that lengths differ


def per_token_loss(logprobs, old, advantages, epsilon_low, epsilon_high, beta, reference):
    """TRL's GRPOTrainer, written from its definitions (the real one: trl_test.py). -> losses, k3 with its ratio, which are clipped."""
    ratio = torch.exp(logprobs - old)
    losses = -torch.min(ratio * advantages, torch.clamp(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantages)
    kl = (torch.exp(reference - logprobs) - (reference - logprobs) - 1) * ratio if beta else torch.zeros_like(logprobs)
    clipped = ((ratio < 1 - epsilon_low) & (advantages < 0)) | ((ratio > 1 + epsilon_high) & (advantages > 0))
    return losses + beta * kl, kl.detach(), clipped


def advantages_of(rewards, generations, scale):
    groups = torch.tensor(rewards).view(-1, generations)
    centred = groups - groups.mean(1, keepdim=True)
    if scale == "group":
        centred = centred / (groups.std(1, keepdim=True) + 1e-4)
    elif scale == "batch":
        centred = centred / (groups.std() + 1e-4)
    return centred.flatten(), groups.std(1).mean().item()


class Grpo(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=3, text=EXPERIMENT, results=("student.h5",))
        (cls.world.model / "generation_config.json").write_text(json.dumps({"eos_token_id": ENDS}))
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.model = cls.world.model

    def setUp(self):
        self.world.model = self.model
        self.write([{"id": f"p{i}", "text": text} for i, text in enumerate(PROMPTS)])

    def write(self, records):
        self.world.data.write_text("".join(json.dumps(record) + "\n" for record in records))

    def student(self, name):
        return self.world.results(name).with_suffix("")

    def train(self, name, ranks=0, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return self.curves(name)

    def curves(self, name):
        with h5py.File(self.world.results(name)) as file:
            return {key: file[f"train/{key}"][()] for key in ("step", "loss", "lr", "grad_norm", "tokens", *CURVES)}

    def rollouts(self, name):
        """By the first update that learnt from them, from 0."""
        files = sorted(self.student(name).with_suffix(".rollouts").iterdir())
        return {int(path.stem[5:]) - 1: [json.loads(line) for line in path.read_text().splitlines()] for path in files}

    def content(self, name):
        logs = [path.read_bytes() for path in sorted(self.student(name).with_suffix(".rollouts").iterdir())]
        (weights,) = self.student(name).glob("*model.safetensors")
        return self.world.sha256(name), weights.read_bytes(), logs

    def start(self):
        return transformers.AutoModelForCausalLM.from_pretrained(self.world.model, attn_implementation="eager").double()

    def by_torch(self, name, model, reference, steps=6, lr=1e-3, loss_type="dapo", scale="group", beta=0.0, low=0.2, high=0.2, iterations=1, temperature=1.0, micro_batch=None):
        rollouts, curves, old = self.rollouts(name), [], {}
        prompts = {f"p{i}": self.tokenizer.encode(text).ids for i, text in enumerate(PROMPTS)}

        def logprobs(model, text):
            prompt = prompts[text["key"]]
            ids = prompt + text["tokens"]
            rows = (model(torch.tensor([ids])).logits[0, len(prompt) - 1:-1] / temperature).log_softmax(-1)
            return rows[range(len(text["tokens"])), text["tokens"]]

        def loss_of(model, step):
            texts = rollouts[step - step % iterations]
            if step % iterations == 0:
                with torch.no_grad():
                    old["now"] = [logprobs(model, text) for text in texts]
                    old["reference"] = [reference(lambda m, t=text: logprobs(m, t)) for text in texts] if beta else [None] * len(texts)
            advantages, deviation = advantages_of([text["reward"] for text in texts], 4, scale)
            rows = [per_token_loss(logprobs(model, text), before, advantage, low, high, beta, of_reference)
                    for text, before, of_reference, advantage in zip(texts, old["now"], old["reference"], advantages)]
            losses = [row[0] for row in rows]
            tokens = sum(len(loss) for loss in losses)
            if loss_type == "grpo":
                loss = torch.stack([loss.mean() for loss in losses]).mean()
            elif loss_type == "dr_grpo":
                loss = torch.cat(losses).sum() / (len(losses) * 14)
            elif loss_type == "dapo":
                loss = torch.cat(losses).sum() / tokens
            else:
                parts = [torch.cat(losses[begin:begin + micro_batch]).mean() for begin in range(0, len(losses), micro_batch)]
                loss = torch.stack(parts).mean()
            numpy.testing.assert_allclose([text["advantage"] for text in texts], advantages.numpy(), atol=2e-6)
            self.assertEqual([text["finish_reason"] == "stop" for text in texts], [text["tokens"][-1] in ENDS for text in texts])
            curves.append([numpy.mean([text["reward"] for text in texts]), deviation, torch.cat([row[1] for row in rows]).mean().item(),
                           torch.cat([row[2] for row in rows]).float().mean().item(), tokens / len(texts), numpy.mean([text["finish_reason"] == "length" for text in texts])])
            return loss, tokens
        model, rows = steps_of(model, list(range(steps)), loss_of, lr=lr)
        return model, rows, numpy.array(curves)

    def compare(self, name, found, rows, curves, mine, theirs):
        self.assertEqual(found["tokens"].tolist(), rows[:, 3].tolist())
        # Losses are sums of advantages of both signs and may be 0: apart by parts of such an advantage, or of the mean of k3, whose terms exp(reference - own)
        # carry an error of their own size (a mean of 5.4 has a term of some hundreds).
        apart = {"loss": (numpy.abs(found["loss"] - rows[:, 0]) / numpy.maximum(1, curves[:, 2])).max(), "norm": (numpy.abs(found["grad_norm"] - rows[:, 2]) / rows[:, 2].max()).max(),
                 **{key: numpy.abs(found[key] - curves[:, i]).max() / max(1, curves[:, i].max()) for i, key in enumerate(CURVES)},
                 "weights": max(((mine[key] - value).norm() / (value.norm() + 1e-12)).item() for key, value in theirs.items())}
        print(name, {key: f"{value:.1e}" for key, value in apart.items()}, f"loss {rows[0, 0]:.4f} to {rows[-1, 0]:.4f}, clipped {curves[:, 3].max():.3f}, kl {curves[:, 2].max():.4f}, "
              f"{curves[:, 4].min():.1f} to {curves[:, 4].max():.1f} tokens")
        for key, value in apart.items():
            self.assertLess(value, {"norm": 1e-4, "kl": 1.5e-5}.get(key, 1e-5), key)
        self.assertGreater(curves[:, 1].mean(), 0.2)  # groups that differ
        self.assertTrue((curves[:, 4] < 14).any())

    def test_losses_against_torch(self):
        for name, keys, options in (
                ("dapo", [], {}),
                ("grpo", [G + "loss_type=grpo", G + "beta=0.3", G + "num_iterations=2", G + "epsilon=0.02", G + "epsilon_high=0.05", G + "temperature=0.8"],
                 dict(loss_type="grpo", beta=0.3, iterations=2, low=0.02, high=0.05, temperature=0.8)),
                # By seed 0 a gradient is nearly 0, which AdamW makes a whole step of: weights 1.03e-5 apart on a CPU with AVX-512 and without AMX; by this one 4.4e-7.
                ("bnpo", ["seed=1", G + "loss_type=bnpo", G + "scale_rewards=none", G + "num_iterations=4", G + "epsilon=0.01", G + "epsilon_high=0.01", T + "micro_batch=3"],
                 dict(loss_type="bnpo", scale="none", iterations=4, low=0.01, high=0.01, micro_batch=3)),
                ("dr_grpo", [G + "loss_type=dr_grpo", G + "scale_rewards=batch", G + "beta=0.05"], dict(loss_type="dr_grpo", scale="batch", beta=0.05))):
            with self.subTest(loss_type=name):
                found = self.train(name, 0, *keys)
                reference = self.start()
                model, rows, curves = self.by_torch(name, self.start(), lambda call, reference=reference: call(reference), **options)
                self.compare(name, found, rows, curves, load_file(self.student(name) / "model.safetensors"), dict(model.state_dict()))
                self.assertEqual(curves[:, 3].max() > 0, "iterations" in options)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("grpo")], check=True, capture_output=True)
        exported = self.folder / "curves.jsonl"
        subprocess.run([tiny_world.PROGRAM, "export", self.world.results("grpo"), "--to", "jsonl", "--out", exported], check=True, capture_output=True)
        self.assertEqual(len(exported.read_text().splitlines()), 6)
        self.assertIn("clip_ratio", exported.read_text())
        # The rewards are the verifier's.
        for texts in self.rollouts("dapo").values():
            self.assertEqual([text["reward"] for text in texts], [float(re.search("[0-9a-e]", text["text"]) is not None) for text in texts])
            self.assertEqual([text["text"] for text in texts], [self.tokenizer.decode(text["tokens"]) for text in texts])

    def test_an_adapter_and_its_reference(self):
        """With LoRA the reference is the model without the adapter, and texts are written with the adapter merged."""
        keys = [T + "adapter.rank=4", T + "adapter.alpha=8", T + "optimizer.lr=1.0e-2", G + "beta=0.3", G + "top_k=3"]
        found = self.train("lora", 2, *keys)
        model = peft.get_peft_model(self.start(), peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))

        def state(step):
            tensors = load_file(self.student("lora").with_suffix(".checkpoints") / f"step-{step:08}.safetensors")
            return {key[len("model."):].replace(".weight", ".default.weight"): value for key, value in tensors.items() if key.startswith("model.")}
        model.load_state_dict(state(1), strict=False)  # the first step's learning rate is 0

        def reference(call):
            with model.disable_adapter():
                return call(model)
        self.top_of("lora", model, state)
        model.load_state_dict(state(1), strict=False)
        trained, rows, curves = self.by_torch("lora", model, reference, beta=0.3, lr=1e-2)
        self.compare("lora", found, rows, curves, state(6), {key: value for key, value in trained.state_dict().items() if "lora" in key})

    def top_of(self, name, model, state):
        """Every token is among the three that the weights of its step made most probable; other weights would have others."""
        rollouts, outside = self.rollouts(name), {0: 0, 1: 0}
        prompts = {f"p{i}": self.tokenizer.encode(text).ids for i, text in enumerate(PROMPTS)}
        for step, texts in rollouts.items():
            for which, of in ((0, max(step, 1)), (1, 6)):
                model.load_state_dict(state(of), strict=False)
                for text in texts:
                    prompt = prompts[text["key"]]
                    with torch.no_grad():
                        rows = model(torch.tensor([prompt + text["tokens"]])).logits[0, len(prompt) - 1:-1]
                    drawn = rows[range(len(text["tokens"])), text["tokens"]]
                    outside[which] += int((drawn < rows.topk(3).values[:, 2] - 1e-4).sum())
        print(name, "tokens outside the first three:", outside[0], "by their own weights,", outside[1], "by the last ones")
        self.assertEqual(outside[0], 0)
        self.assertGreater(outside[1], 5)

    def test_texts_are_of_the_weights_of_their_step(self):
        self.train("top", 3, T + "optimizer.lr=2.0e-3", G + "top_k=3", G + "num_iterations=2")

        def state(step):
            tensors = load_file(self.student("top").with_suffix(".checkpoints") / f"step-{step:08}.safetensors")
            return {key[len("model."):]: value for key, value in tensors.items() if key.startswith("model.")}
        rollouts = self.rollouts("top")
        self.assertEqual(sorted(rollouts), [0, 2, 4])
        self.top_of("top", self.start(), lambda step: self.start().state_dict() if step == 1 else state(step))

    def test_equal_rewards_teach_nothing(self):
        found = self.train("equal", 0, G + "reward.pattern=^", T + "optimizer.weight_decay=0")
        self.assertEqual((found["grad_norm"].tolist(), found["loss"].tolist(), found["reward"].tolist(), found["reward_std"].tolist()), ([0] * 6, [0] * 6, [1] * 6, [0] * 6))
        first, last = load_file(self.model / "model.safetensors"), load_file(self.student("equal") / "model.safetensors")
        self.assertTrue(all(torch.equal(first[key], last[key]) for key in first))

    def test_answers_and_chats(self):
        """The answer is the record's own, and a chat's prompt is written so that an answer follows."""
        template = self.folder / "template.jinja"
        template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
        self.write([{"id": f"p{i}", "chat": [{"role": "user", "content": text}], "right": str(i)} for i, text in enumerate(PROMPTS)])
        keys = [f"model.chat_template={template}", "tasks.0.dataset.messages=chat", G + "reward.answer=right", G + "reward.pattern=([0-9])", T + "steps=3"]
        self.train("chats", 2, *keys)
        seen = set()
        for texts in self.rollouts("chats").values():
            for text in texts:
                digits = re.search("([0-9])", text["text"])
                self.assertEqual(text["reward"], float(digits is not None and digits[1] == text["key"][1:]), text)
                seen.add(text["reward"])
        self.assertEqual(seen, {0.0, 1.0})
        exact = [G + "reward.verifier=exact", G + "max_new_tokens=1", "tasks.0.dataset.text=q"]
        self.write([{"id": f"p{i}", "q": text, "answer": self.tokenizer.decode([71 + i])} for i, text in enumerate(PROMPTS)])
        self.world.text = self.world.text.replace(', pattern: "[0-9a-e]"', "")
        try:
            self.train("exact", 2, *exact, T + "steps=2")
        finally:
            self.world.text = EXPERIMENT
        for texts in self.rollouts("exact").values():
            self.assertEqual([text["reward"] for text in texts], [float(text["text"].strip() == self.tokenizer.decode([71 + int(text["key"][1:])])) for text in texts])

    def test_a_reward_model(self):
        """Rewards are the logits of transformers, and of texts with their prompts in one piece; another model is another experiment."""
        folder = self.folder / "classifier"
        if not folder.exists():
            score_test.make_classifier(folder, self.model / "tokenizer.json", *score_test.MODELS["reward"])
        judge = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        text, self.world.text = self.world.text, re.sub("{{verifier.*?}}", "{{model: {{path: " + str(folder) + "}}}}", self.world.text)
        try:
            self.train("scored", 3, T + "steps=3")
            one = self.content("scored")
            texts = [text for step in self.rollouts("scored").values() for text in step]
            with torch.no_grad():
                want = [judge(torch.tensor([self.tokenizer.encode(PROMPTS[int(text["key"][1:])] + text["text"]).ids])).logits[0, 0].item() for text in texts]
            numpy.testing.assert_allclose([text["reward"] for text in texts], want, atol=2e-5)
            self.assertGreater(numpy.std(want), 0.3)
            self.world.forget("scored")
            self.assertNotEqual(self.world.run("scored", 2, T + "steps=3", MAGISTER_FAIL_POINT="train.step.begin@3:kill").returncode, 0)
            weights = load_file(folder / "model.safetensors")
            save_file({**weights, "score.weight": -weights["score.weight"]}, folder / "model.safetensors", metadata={"format": "pt"})
            done = self.world.run("scored", 0, T + "steps=3")
            self.assertEqual((done.returncode, "reward_model_sha256" in done.stderr), (78, True), done.stderr)
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            self.finish("scored", 0, T + "steps=3")
            self.assertEqual(self.content("scored"), one)
            self.refused("both", 78, "a text has one reward", overrides=(G + "reward.verifier=exact",))
            self.refused("answer", 78, "is given without a verifier", overrides=(G + "reward.answer=id",))
            self.refused("language", 78, "has 0 labels", overrides=(G + f"reward.model.path={self.model}",))
            self.refused("nobody", 78, "no train task of objective reward or value before this one is named nobody", overrides=(G + "reward.model.task=nobody",))
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 63}))
            self.refused("short", 78, "train.max_length: a prompt and its text may have 64 tokens, but the reward model", "was made for 63 positions", overrides=())
            (folder / "config.json").write_text(json.dumps(config))
        finally:
            self.world.text = text

    def test_a_judge_rewards(self):
        """Rewards are the grades of task judge on the logged texts, to the bit, whoever computes them and after a kill; another judge is another experiment."""
        judge = tiny_world.make_model(self.folder / "judge", seed=5)
        user = 'prompt: {{user: "{{{{ text }}}} {{{{ answer }}}} {{{{ reply_rule }}}}"}}'
        modes = {"rubric": f"mode: rubric, classes: 4, {user}", "simpleqa": f"mode: simpleqa, {user}",
                 "reply": f"mode: rubric, method: decode, max_new_tokens: 6, max_prompt_length: 512, {user}"}
        text, names, data = self.world.text, self.world.names, self.world.data.read_text()

        def rewarded(keys):
            return re.sub("{{verifier.*?}}", lambda _: "{{judge: {{model: {{path: " + str(judge) + ", dtype: f32}}, " + keys + "}}}}", text)
        try:
            for name, keys in modes.items():
                self.world.text = rewarded(keys)
                self.train(name, 3 if name == "rubric" else 1, T + "steps=3")
                texts = [one for step in self.rollouts(name).values() for one in step]
                self.world.text = tiny_world.EXPERIMENT.split("  - task:")[0] + "  - {{task: judge, dataset: {{path: {data}}}, " + keys + "}}\n"
                self.world.names = ("verdicts.h5",)
                self.write([{"text": PROMPTS[int(one["key"][1:])], "answer": one["text"]} for one in texts])
                done = self.world.run(f"judged-{name}", 1, f"model.path={judge}")
                self.assertEqual(done.returncode, 0, done.stderr)
                with h5py.File(self.world.results(f"judged-{name}")) as file:
                    expected, log_odds = (file[f"judge/{key}"][()].astype(float) for key in ("expected", "log_odds"))
                want = 1 / (1 + numpy.exp(-log_odds)) if name == "simpleqa" else expected
                numpy.testing.assert_allclose([one["reward"] for one in texts], want, rtol=1e-15 if name == "simpleqa" else 0)
                print(name, f"grades {want.min():.3f} to {want.max():.3f}, {len(set(want))} of {len(want)} differ")
                self.assertGreater(numpy.std(want), 0.01)
                self.world.text, self.world.names = text, names
                self.world.data.write_text(data)
            self.world.text = rewarded(modes["rubric"])
            one = self.content("rubric")
            self.world.forget("rubric")
            self.assertNotEqual(self.world.run("rubric", 2, T + "steps=3", MAGISTER_FAIL_POINT="train.step.begin@3:kill").returncode, 0)
            other = tiny_world.make_model(self.folder / "other-judge", seed=6)
            for word, override in (("judge_model_sha256", G + f"reward.judge.model.path={other}"), ("prompt.user", G + "reward.judge.prompt.user=\"{{ answer }}\"")):
                tiny_world.wait_until(lambda keys=override: self.world.run("rubric", 0, T + "steps=3", keys).returncode == 78, seconds=60, pause=0.3)
                self.assertIn(word, self.world.run("rubric", 0, T + "steps=3", override).stderr)
            kept = (judge / "model.safetensors").read_bytes()
            shutil.copy(other / "model.safetensors", judge / "model.safetensors")
            self.assertIn("judge_model_sha256", self.world.run("rubric", 0, T + "steps=3").stderr)
            (judge / "model.safetensors").write_bytes(kept)
            self.finish("rubric", 1, T + "steps=3", G + "reward.judge.max_prompt_length=2000")
            self.assertEqual(self.content("rubric"), one)
            plan = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("plan")), "--ranks", "1"], env=self.world.environment, cwd=self.folder, capture_output=True, text=True, check=True).stdout
            self.assertIn("judge: weights", plan)
            for code, words, override in ((78, "a text has one reward", "verifier=exact"), (78, "known: reference, simpleqa, rubric", "judge.mode=pairwise"),
                                          (78, "is not a field of the records", "judge.prompt.user=\"{{ nobody }} {{ answer }}\""), (65, "the judge's prompt with a text has", "judge.max_prompt_length=3"),
                                          (78, "known here: ", "judge.low_mass=0.1"), (78, "5000", "judge.max_prompt_length=5000")):
                with self.subTest(override=override):
                    self.refused("refused-judge", code, words, overrides=(G + "reward." + override,))
                    self.assertEqual(list(self.world.results("refused-judge").parent.glob("*.h5*")), [])
            # By their place: a mode of two texts, and a ready prompt for which a record has no question.
            for code, keys, words in ((78, "mode: pairwise", r"refused-judge\.yaml:\d+:\d+: tasks.0.grpo.reward.judge.mode.*known: reference, simpleqa, rubric"), (65, "mode: reference", r"data\.jsonl:1: .*question")):
                self.world.text = rewarded(keys)
                done = self.world.run("refused-judge", 0)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, words)
                self.assertEqual(list(self.world.results("refused-judge").parent.glob("*.h5*")), [])
        finally:
            self.world.text, self.world.names = text, names

    def test_a_reward_model_of_an_earlier_task(self):
        """Bradley-Terry first, then the policy by its rewards, in one experiment."""
        pairs = self.folder / "pairs.jsonl"
        pairs.write_text("".join(json.dumps({"id": str(i), "prompt": text, "chosen": f" a{i}", "rejected": " 7" * (i + 1)}) + "\n" for i, text in enumerate(PROMPTS)))
        reward = f"""  - task: train
    name: rewards
    objective: reward
    dataset: {{{{path: {pairs}, key: id}}}}
    train: {{{{steps: 3, global_batch: 4, max_length: 64, optimizer: {{{{lr: 1.0e-2}}}}}}}}
"""
        head, own = EXPERIMENT.split("  - task: train", 1)
        own = "  - task: train" + re.sub("{{verifier.*?}}", "{{model: {{task: rewards}}}}", own)
        self.world.text = head + reward + own
        try:
            done = self.world.run("both-tasks", 2, "tasks.1.train.steps=2")
            self.assertEqual(done.returncode, 0, done.stderr)
            judge = transformers.AutoModelForSequenceClassification.from_pretrained(self.world.results("both-tasks").parent / "rewards").eval()
            texts = [text for step in self.rollouts("both-tasks").values() for text in step]
            with torch.no_grad():
                want = [judge(torch.tensor([self.tokenizer.encode(PROMPTS[int(text["key"][1:])] + text["text"]).ids])).logits[0, 0].item() for text in texts]
            numpy.testing.assert_allclose([text["reward"] for text in texts], want, atol=2e-5)
            self.world.text = head + own.replace("task: rewards", "task: rewords")
            self.refused("alone", 78, "no train task of objective reward or value before this one is named rewords")
            self.world.text = head + reward.replace("objective: reward", "objective: dpo") + own
            self.refused("policy", 78, "no train task of objective reward or value before this one is named rewards")
        finally:
            self.world.text = EXPERIMENT

    def finish(self, name, ranks, *arguments):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74."""
        tiny_world.wait_until(lambda: self.world.run(name, ranks, *arguments).returncode == 0, seconds=60, pause=0.3)

    def test_ranks_threads_kills_and_stops_change_nothing(self):
        keys = (G + "beta=0.1", G + "num_iterations=2", G + "epsilon=0.02", T + "save_every=3")
        self.train("bits", 0, *keys)
        one = self.content("bits")
        for ranks, threads in ((2, "1"), (3, "1"), (4, "2")):
            self.world.forget("bits")
            self.train("bits", ranks, *keys, OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        for number, point in enumerate(("train.rollout.pass@20:kill", "train.step.begin@5:kill")):
            self.world.forget("bits")
            self.assertNotEqual(self.world.run("bits", 2, *keys, MAGISTER_FAIL_POINT=point).returncode, 0)
            self.assertFalse(self.world.results("bits").exists())
            self.finish("bits", 1 + number, *keys)
            self.assertEqual(self.content("bits"), one, point)
        self.world.forget("bits")
        done = self.world.interrupted("train.rollout.pass@20", signal.SIGTERM, "bits", 2, *keys)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertTrue((self.student("bits").with_suffix(".rollouts") / "step-00000001.jsonl").exists())
        self.finish("bits", 3, *keys)
        self.assertEqual(self.content("bits"), one)

    def test_a_rank_that_waits_for_long_texts_is_not_stuck(self):
        """Of rank 1 a pass takes a second, of its texts there are 14; rank 0 is done at once and waits for more than the watchdog's patience."""
        slow = ",".join(["train.rollout.pass/1:slow"] * 9)
        found = self.train("waits", 2, T + "steps=1", G + "max_new_tokens=14", "run.watchdog_seconds=4", MAGISTER_FAIL_POINT=slow)
        self.assertEqual(found["step"].tolist(), [1])

    def test_the_reward_rises(self):
        found = self.train("rises", 2, T + "steps=16", T + "global_batch=32", T + "optimizer.lr=4.0e-3", G + "reward.pattern=^[a-z]+$", G + "max_new_tokens=3", T + "save_every=100")
        print("reward", numpy.round(found["reward"], 2))
        self.assertLess(found["reward"][:4].mean(), 0.3)
        self.assertGreater(found["reward"][-4:].mean(), 0.6)

    def test_rewards_by_value(self):
        """`verifier: math` is Math-Verify's verdict on the texts that were written, any of several answers will do; why a text was not compared stands in the logs; the same on 1 and 2 ranks."""
        golds = ["12", "$345$", "#### 5", "\\boxed{2}", "x", *"1346789"]
        self.world.model = tiny_world.make_counter(self.folder / "counter", self.model, self.tokenizer)
        self.write([{"id": f"p{i}", "text": text, "answer": golds} for i, text in enumerate(PROMPTS)])
        keys = [G + "reward.verifier=math", T + "steps=3"]
        text, self.world.text = self.world.text, self.world.text.replace(', pattern: "[0-9a-e]"', "")
        try:
            self.train("value", 1, *keys)
            self.train("values", 2, *keys)
        finally:
            self.world.text = text
        self.assertEqual(self.content("value")[1:], self.content("values")[1:])
        found = [text for texts in self.rollouts("value").values() for text in texts]
        for text in found:
            if re.search("[\u3000-\ud7ff\uff00-\uffee][-0-9.(]", text["text"]):
                continue  # to Math-Verify no number begins behind an ideograph
            right = any(math_verify.verify(math_verify.parse(gold, parsing_timeout=None), math_verify.parse(text["text"], parsing_timeout=None), timeout_seconds=None) for gold in golds)
            self.assertEqual(text["reward"], float(right), text["text"])
            self.assertFalse(text["reward"] and "unread" in text)
        self.assertTrue({0.0, 1.0} <= {text["reward"] for text in found} and any(text.get("unread") == "nothing_found" for text in found))
        step = [event for event in map(json.loads, (self.world.results("value").parent / "run.jsonl").read_text().splitlines()) if event["event"] == "step"][-1]
        last = [text.get("unread") for text in self.rollouts("value")[2]]
        self.assertEqual({reason: count for reason, count in step["unread"].items() if count}, {reason: last.count(reason) for reason in set(last) - {None}})

    def test_what_is_refused(self):
        # Faults of the experiment are told all at once.
        for number, (words, overrides) in enumerate((
                (("are not whole groups of 4", "grpo.epsilon: ", "did you mean grpo?", "grpo.beta: ", "all tokens, or more", "none better than the others", "follows its own prompt",
                  "writes on after a prompt", "rewards are read from texts", "did you mean max_new_tokens?", "a text has one reward", "known: group, batch, none", "set objective: dpo"),
                 (T + "global_batch=10", G + "epsilon=-0.1", G + "loss_type=grpoo", G + "beta=-1", G + "top_k=1", G + "temperature=0", T + "packing=true",
                  T + "append_eos=true", "tasks.0.dataset.tokens=ids", G + "max_completion_length=9", G + "reward.judge=j", G + "scale_rewards=all", "tasks.0.dpo.beta=0.1")),
                (("num_generations: ", "known: dapo, grpo, bnpo, dr_grpo", "name global_batch", "known: none, exact, math, regex", "no token is left for a prompt", "num_iterations: "),
                 (G + "num_generations=1", G + "loss_type=ppo", T + "batch_tokens=64", G + "reward.verifier=exakt", G + "max_new_tokens=64", G + "num_iterations=0")),
                (("set micro_batch", "no reward", "without `verifier: regex`"), (G + "loss_type=bnpo", G + "reward.verifier=none")),
                (("set objective: grpo",), ("tasks.0.objective=lm",)), (("reward.pattern",), (G + "reward.pattern=(",)), (("pattern has no group",), (G + "reward.match=last",)),
                (("pattern has no group",), (G + "reward.answer=id",)), (("with another verifier",), (G + "reward.rule=boxed",)))):
            with self.subTest(overrides=overrides):
                self.refused(f"config-{number}", 78, *words, overrides=overrides)
        good = {"id": "a", "text": "plan", "answer": "4"}
        exact = (G + "reward.verifier=math",)
        self.world.text = self.world.text.replace(', pattern: "[0-9a-e]"', "")
        try:
            for number, (words, record, overrides) in enumerate((
                    ('no field "answer"', {"id": "b", "text": "unit"}, exact), ('answer is empty', {**good, "answer": " \n"}, exact), ('answer is empty', {**good, "answer": ["4", ""]}, exact), ('answer is an empty list', {**good, "answer": []}, exact), ('answer is null', {**good, "answer": None}, exact),
                    ('"text" is no text', {**good, "text": 4}, exact), ("tokens", {**good, "text": ""}, exact), ("train.max_length less grpo.max_new_tokens", {**good, "text": "plan unit " * 60}, exact))):
                with self.subTest(words=words):
                    self.write([good, record])
                    self.refused(f"data-{number}", 65, f"{self.world.data}:2: ", words, overrides=overrides)
        finally:
            self.world.text = EXPERIMENT
        self.write([good])
        encoder = self.folder / "encoder"
        shutil.copytree(self.model, encoder)
        config = json.loads((encoder / "config.json").read_text())
        (encoder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a"}}))
        weights = load_file(encoder / "model.safetensors")
        del weights["lm_head.weight"]
        save_file({**weights, "score.weight": torch.zeros(1, 48)}, encoder / "model.safetensors", metadata={"format": "pt"})
        self.world.model = encoder
        self.refused("classifier", 78, "classifier")
        self.world.model = self.model


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
