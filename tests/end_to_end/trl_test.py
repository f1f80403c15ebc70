"""Every objective that TRL has against TRL's own trainers: losses, the norm of the gradient at every step, and the weights after them, by what the real
compute_loss of SFTTrainer, DPOTrainer, RewardTrainer and GRPOTrainer says of the same batches (GRPO: of the texts that the run logged).
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
from tokenizers import Tokenizer

import tiny_world
from by_torch import steps_of
from grpo_test import ENDS, PROMPTS, advantages_of
from preference_test import ended, pairs

sys.path.insert(0, str(tiny_world.ORACLE))
import trl_alone  # noqa: E402

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: train
    dataset: {{path: {data}, key: id}}
    train: {{steps: 4, global_batch: 8, max_length: 64, shuffle: false, optimizer: {{lr: 1.0e-3, schedule: cosine, warmup: 1, weight_decay: 0.1}}}}
"""
K, G, D = "tasks.0.", "tasks.0.grpo.", "tasks.0.dpo."
STEPS = 4


class Trl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=3, text=EXPERIMENT, results=("student.h5",))
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))

    def write(self, records):
        self.world.data.write_text("".join(json.dumps(record) + "\n" for record in records))

    def start(self):
        return transformers.AutoModelForCausalLM.from_pretrained(self.world.model, attn_implementation="sdpa").double()

    def train(self, name, *arguments):
        done = self.world.run(name, 0, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with h5py.File(self.world.results(name)) as file:
            return numpy.stack([file[f"train/{key}"][()] for key in ("loss", "grad_norm")], 1)

    def compare(self, name, found, model, loss_of):
        """loss_of(model, step) by the real trainer; every norm is near that of its gradient, and no other."""
        model, rows = steps_of(model, range(STEPS), lambda m, step: (loss_of(m, step), 0), lr=1e-3, warmup=1)
        weights = load_file(self.world.results(name).with_suffix("") / "model.safetensors")
        self.assertEqual(set(weights), set(model.state_dict()))
        apart = {"loss": (numpy.abs(found[:, 0] - rows[:, 0]) / numpy.maximum(1, numpy.abs(rows[:, 0]))).max(), "norm": (numpy.abs(found[:, 1] - rows[:, 2]) / numpy.maximum(rows[:, 2], 0.1)).max(),
                 "weights": max(((weights[key] - value).norm() / value.norm()).item() for key, value in model.state_dict().items())}
        print(name, {key: f"{value:.1e}" for key, value in apart.items()}, f"loss {rows[0, 0]:.4f} to {rows[-1, 0]:.4f}, norms {rows[:, 2].round(3).tolist()}")
        for key, limit in (("loss", 2e-5), ("norm", 1e-4), ("weights", 2e-5)):
            self.assertLess(apart[key], limit, (name, key))
        return rows

    def test_lm_is_sft(self):
        records = [{"id": f"r{i}", "text": record["chosen"]} for i, record in enumerate(pairs(14))]
        self.write(records)
        found = self.train("lm")
        encoded = [ended(self.tokenizer.encode(record["text"]).ids)[:64] for record in records]
        model = self.start()
        one = trl_alone.trainer("lm", model, self.folder)

        def loss_of(model, step):
            ids, mask = trl_alone.padded(encoded[step % 2 * 8:][:8], 0)
            labels = ids.masked_fill(mask == 0, -100)
            return one.compute_loss(model, {"input_ids": ids, "attention_mask": mask, "labels": labels}, num_items_in_batch=(labels[:, 1:] != -100).sum())
        self.compare("lm", found, model, loss_of)

    def test_dpo(self):
        records = pairs(14)
        self.write(records)
        encoded = []
        for record in records:
            prompt = self.tokenizer.encode(record["prompt"]).ids
            whole = [ended(self.tokenizer.encode(record["prompt"] + record[side]).ids) for side in ("chosen", "rejected")]
            common = min(next((i for i, (a, b) in enumerate(zip(prompt, ids)) if a != b), min(len(prompt), len(ids))) for ids in whole)
            encoded.append([(ids[:64], [int(i >= common) for i in range(len(ids))][:64]) for ids in whole])
        for loss_type, beta, smoothing in (("sigmoid", 0.1, 0.0), ("hinge", 0.05, 0.0), ("ipo", 0.1, 0.0), ("robust", 0.3, 0.2)):
            with self.subTest(loss_type=loss_type):
                found = self.train(loss_type, f"{K}objective=dpo", f"{D}loss_type={loss_type}", f"{D}beta={beta}", *([f"{D}label_smoothing={smoothing}"] if smoothing else []))
                model = self.start()
                one = trl_alone.trainer("dpo", model, self.folder, self.start(), loss_type=[loss_type], beta=beta, label_smoothing=smoothing)

                def loss_of(model, step, one=one):
                    answers = [pair[side] for side in (0, 1) for pair in encoded[step % 2 * 8:][:8]]
                    ids, mask = trl_alone.padded([ids for ids, _ in answers], 0)
                    learnt, _ = trl_alone.padded([marks for _, marks in answers], 0)
                    return one.compute_loss(model, {"input_ids": ids, "attention_mask": mask, "completion_mask": learnt})
                self.compare(loss_type, found, model, loss_of)

    def test_reward(self):
        records = [{**record, "gap": (i % 4) / 3 - 0.2} for i, record in enumerate(pairs(12, seed=5))]
        self.write(records)
        keys = (f"{K}objective=reward", f"{K}dataset.margin=gap")
        encoded = [[ended(self.tokenizer.encode(record["prompt"] + record[side]).ids) for side in ("chosen", "rejected")] for record in records]
        kept = [i for i, pair in enumerate(encoded) if max(map(len, pair)) <= 64]
        for name, center in (("plain", None), ("centred", 0.05)):
            with self.subTest(center=center):
                extra = [] if center is None else [f"{K}reward.center_rewards_coefficient={center}"]
                found = self.train(name, *keys, *extra)
                self.train(name + "-drawn", *keys, f"{K}train.steps=1", f"{K}train.optimizer.warmup=1")  # a learning rate of 0 leaves the head that was drawn
                model = transformers.AutoModelForSequenceClassification.from_pretrained(self.world.model, num_labels=1, attn_implementation="sdpa").double()
                model.config.pad_token_id = 2
                with torch.no_grad():
                    model.score.weight.copy_(load_file(self.world.results(name + "-drawn").with_suffix("") / "model.safetensors")["score.weight"])
                one = trl_alone.trainer("reward", model, self.folder, center_rewards_coefficient=center)

                def loss_of(model, step, one=one):
                    batch = kept[step * 8 % (len(kept) + -len(kept) % 8):][:8]
                    ids, mask = trl_alone.padded([encoded[i][side] for side in (0, 1) for i in batch], 2)
                    return one.compute_loss(model, {"input_ids": ids, "attention_mask": mask, "margin": torch.tensor([records[i]["gap"] for i in batch], dtype=torch.float64)})
                self.compare(name, found, model, loss_of)

    def grpo(self, name, keys, *extra):
        """All texts of a step at once -> the norms of the real trainer's gradients."""
        self.write([{"id": f"p{i}", "text": text} for i, text in enumerate(PROMPTS)])
        (self.world.model / "generation_config.json").write_text(json.dumps({"eos_token_id": ENDS}))
        found = self.train(name, f"{K}objective=grpo", f"{K}train.global_batch=16", f"{G}num_generations=4", f"{G}max_new_tokens=14", f"{G}log_completions=true",
                           f"{G}reward.verifier=regex", f"{G}reward.pattern='[0-9a-e]'", *extra, *(f"{G}{key}={json.dumps(value)}" for key, value in keys.items()))
        (self.world.model / "generation_config.json").unlink()
        prompts = {f"p{i}": self.tokenizer.encode(text).ids for i, text in enumerate(PROMPTS)}
        rollouts = {int(path.stem[5:]) - 1: [json.loads(line) for line in path.read_text().splitlines()] for path in self.world.results(name).with_suffix(".rollouts").iterdir()}
        model, reference = self.start(), self.start()
        one = trl_alone.trainer("grpo", model, self.folder, reference, num_generations=4, max_completion_length=14, generation_batch_size=16, **keys)
        one.args.steps_per_generation = 1
        iterations, old = keys.get("num_iterations", 1), {}

        def loss_of(model, step):
            texts = rollouts[step - step % iterations]
            advantages, _ = advantages_of([text["reward"] for text in texts], 4, keys.get("scale_rewards", "group"))
            prompt_ids, prompt_mask = trl_alone.padded([prompts[text["key"]] for text in texts], 0, left=True)
            ids, mask = trl_alone.padded([text["tokens"] for text in texts], 0)
            inputs = {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask, "completion_ids": ids, "completion_mask": mask, "advantages": advantages, "num_items_in_batch": mask.sum()}
            both = (torch.cat([prompt_ids, ids], 1), torch.cat([prompt_mask, mask], 1), ids.shape[1])
            with torch.no_grad():
                if iterations > 1:
                    if step % iterations == 0:
                        old["now"] = one._get_per_token_logps_and_entropies(model, *both)[0]
                    inputs["old_per_token_logps"] = old["now"]
                inputs["ref_per_token_logps"] = one._get_per_token_logps_and_entropies(reference, *both)[0]
            return one._compute_loss(model, inputs)
        rows = self.compare(name, found, model, loss_of)
        kl = one._metrics["train"].get("kl", [])
        if kl:
            with h5py.File(self.world.results(name)) as file:
                numpy.testing.assert_allclose(file["train/kl"][()], kl, rtol=1e-4, atol=1e-6)
        return rows[:, 2]

    def test_grpo(self):
        for loss_type, keys, extra in (("dapo", {}, ()), ("grpo", {"scale_rewards": "none", "num_iterations": 2, "epsilon": 0.02, "epsilon_high": 0.05}, ()),
                                       ("dr_grpo", {"scale_rewards": "batch", "temperature": 0.8}, ()), ("bnpo", {"num_iterations": 2}, (f"{K}train.micro_batch=16",))):
            with self.subTest(loss_type=loss_type):
                self.grpo(loss_type, {"loss_type": loss_type, **keys}, *extra)

    def test_the_kl_term_s_gradient(self):
        """On the policy the loss is the same with the correction and without, and the gradient is another one: TRL's default is with."""
        norms = {}
        for correction in (True, False):
            for iterations in (1, 2):
                name = f"kl-{correction}-{iterations}"
                with self.subTest(name):
                    keys = {"beta": 0.3, "num_iterations": iterations, "use_bias_correction_kl": correction}
                    if correction:
                        self.assertTrue(trl_alone.GRPOConfig(output_dir=str(self.folder), bf16=False, use_cpu=True).use_bias_correction_kl)
                        del keys["use_bias_correction_kl"]  # both defaults
                    norms[correction, iterations] = self.grpo(name, keys)
        self.assertGreater(numpy.abs(norms[True, 1] - norms[False, 1]).max() / norms[True, 1].max(), 1e-2)


if __name__ == "__main__":
    unittest.main()
