"""Students of families that are not Llama's layers, by every objective of task train: weights against torch and transformers, folders that transformers
loads under the names of the file they began as, the same bits on any number of ranks and threads, with layers that are computed again and after a
kill. Every gradient of all families: tests/train/oracle_test.py; adapters: lora_test.py.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import preference_test
import tiny_world
from by_torch import adamw_steps

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

STEPS, BATCH, LENGTH = 3, 4, 60
TRAIN = f"train: {{{{steps: {STEPS}, global_batch: {BATCH}, max_length: {LENGTH}, micro_batch: 1, shuffle: false, save_every: 1, optimizer: {{{{lr: 2.0e-3, schedule: cosine, warmup: 2, weight_decay: 0.1}}}}}}}}"
HEAD = tiny_world.EXPERIMENT.split("  - task:")[0].replace("layout:", "run: {{at_once: 1}}\nseed: 3\nlayout:")
STUDENT = f"""  - {{{{task: train, dataset: {{{{path: {{data}}, key: id, text: chosen}}}}, {TRAIN}}}}}
"""
OTHERS = f"""  - {{{{task: train, name: dpo, model: {{{{task: student}}}}, objective: dpo, dataset: {{{{path: {{data}}, key: id}}}}, {TRAIN}}}}}
  - {{{{task: teacher_logits, name: teacher, model: {{{{task: student, dtype: f32}}}}, dataset: {{{{path: {{data}}, key: id, text: chosen}}}}, max_length: {LENGTH}, top_k: 8}}}}
  - {{{{task: train, name: distilled, objective: distill, teacher: {{{{task: teacher}}}}, {TRAIN}}}}}
  - task: train
    name: grpo
    objective: grpo
    dataset: {{{{path: {{data}}, key: id, text: prompt}}}}
    grpo: {{{{num_generations: 4, max_new_tokens: 8, reward: {{{{verifier: regex, pattern: "[a-m]"}}}}}}}}
    {TRAIN}
"""
HEADS = f"""  - {{{{task: train, name: reward, objective: reward, dataset: {{{{path: {{data}}, key: id}}}}, {TRAIN}}}}}
  - {{{{task: score, model: {{{{task: reward, dtype: f32}}}}, dataset: {{{{path: {{data}}, key: id, text: chosen}}}}, max_length: 128}}}}
  - {{{{task: rollout, name: rollouts, dataset: {{{{path: {{data}}, key: id, text: prompt, limit: 4}}}}, max_prompt_length: 40, max_new_tokens: 8, cuts: 2, n: 2, reward: {{{{verifier: regex, pattern: "[a-m]"}}}}}}}}
  - {{{{task: train, name: value, objective: value, rollouts: {{{{task: rollouts}}}}, {TRAIN}}}}}
"""
FAMILIES = ("gpt2", "gpt_neox", "mixtral", "gpt_oss", "qwen3_5_uneven")
OF_TEXTS_ALONE = ("qwen3_moe", "olmoe", "gemma3_outer", "glm4_moe", "gemma3n", "sarvam_moe", "apertus1p5")
T = "tasks.0."


class StudentFamilies(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1, text=HEAD + STUDENT, results=("student.h5",))
        cls.records = preference_test.pairs(STEPS * BATCH, seed=7)
        preference_test.Preference.write(cls.records, cls.world.data)

    def use(self, variant, tasks=STUDENT, results=("student.h5",)):
        self.world.model = tiny_models.make(self.folder, variant)
        self.world.text, self.world.names = HEAD + tasks, results
        return self.world.model

    def weights(self, name):
        """Of every student of the run."""
        return {path.parent.name: path.read_bytes() for path in sorted((self.folder / "runs" / name).glob("*/model.safetensors"))}

    def train(self, name, ranks, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return self.weights(name)

    def sequences(self):
        tokenizer = Tokenizer.from_file(str(self.world.model / "tokenizer.json"))
        return [preference_test.ended(tokenizer.encode(record["chosen"]).ids, 1)[:LENGTH] for record in self.records]

    def by_torch(self, model):
        def loss_of(model, begin):
            batch = sequences[begin:begin + BATCH]
            tokens = sum(len(ids) - 1 for ids in batch)
            return sum(torch.nn.functional.cross_entropy(model(torch.tensor([ids])).logits[0, :-1], torch.tensor(ids[1:]), reduction="sum") for ids in batch) / tokens, tokens
        sequences = self.sequences()
        return adamw_steps(model, range(0, STEPS * BATCH, BATCH), loss_of)

    def check_student(self, variant, folder):
        """Weights and losses are torch's, under the names of the file that it began as."""
        began, mine = load_file(self.world.model / "model.safetensors"), load_file(folder / "model.safetensors")
        self.assertEqual({key: value.shape for key, value in began.items()}, {key: value.shape for key, value in mine.items()})
        model, rows = self.by_torch(self.world.model)
        with h5py.File(folder.with_suffix(".h5")) as file:
            loss = numpy.abs(file["train/loss"][()] / rows[:, 0] - 1).max()
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
        wanted = model.state_dict()
        self.assertEqual(set(loaded), set(wanted))
        # A bias of keys that do not turn has no gradient but rounding, of which AdamW makes whole steps.
        apart = {key: ((loaded[key] - value).norm() / value.norm()).item() for key, value in wanted.items() if not key.endswith(("c_attn.bias", "query_key_value.bias"))}
        worst = max(apart, key=apart.get)
        print(f"{variant}: loss {loss:.1e}, weights {apart[worst]:.1e} ({worst})")
        self.assertLess(loss, 1e-5)
        self.assertLess(apart[worst], 1e-6)

    def test_every_objective_on_any_ranks(self):
        for variant in (*FAMILIES, *OF_TEXTS_ALONE):
            with self.subTest(variant=variant):
                whole = variant in FAMILIES
                model = self.use(variant, STUDENT + (OTHERS + HEADS if whole else ""))
                shutil.rmtree(self.folder / "runs/one", ignore_errors=True)
                one = self.train(variant, 0, OMP_NUM_THREADS="2")
                self.assertEqual(set(one), {"student", "dpo", "distilled", "grpo", "reward", "value"} if whole else {"student"})
                runs = self.folder / "runs"
                shutil.move(runs / variant, runs / "one")
                recompute = [f"tasks.{i}.train.gradient_checkpointing=true" for i in ((0, 1, 3, 4, 5, 8) if whole else (0,))]
                self.assertEqual(self.train(variant, 4, *recompute), one)
                self.check_student(variant, runs / "one/student")
                if whole:
                    self.check_reward(runs / "one")
                shutil.rmtree(runs / "one")
                shutil.rmtree(model)

    def check_reward(self, run):
        loaded = transformers.AutoModelForSequenceClassification.from_pretrained(run / "reward")
        tokenizer = Tokenizer.from_file(str(self.world.model / "tokenizer.json"))
        with torch.no_grad():
            want = numpy.array([loaded(torch.tensor([tokenizer.encode(record["chosen"]).ids])).logits[0, 0].item() for record in self.records])
        with h5py.File(run / "score.h5") as file:
            numpy.testing.assert_allclose(file["score/value"][()], want, atol=3e-5)
        self.assertGreater(want.std(), 1e-3)

    def test_a_kill_between_steps(self):
        self.use("mixtral_uneven")
        whole = self.train("kill", 0)
        self.world.forget("kill")
        self.assertNotEqual(self.world.run("kill", 2, MAGISTER_FAIL_POINT="train.step.begin@3:kill").returncode, 0)
        tiny_world.wait_until(lambda: self.world.run("kill", 3).returncode == 0, seconds=60, pause=0.3)
        self.assertEqual(self.weights("kill"), whole)

    def test_texts_by_an_adapter(self):
        """The generator of GRPO reads weights with the adapter merged, also where they stand as [in, out]."""
        self.use("gpt2_uneven", "  - task: train\n    name: student\n" + OTHERS.split("    name: grpo\n")[1])
        keys = (T + "train.adapter.targets=all-linear", T + "train.optimizer.lr=0.05", T + "train.steps=4")
        found = []
        for ranks in (0, 2):
            done = self.world.run(f"texts-{ranks}", ranks, *keys)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            found.append((self.folder / f"runs/texts-{ranks}/student/adapter_model.safetensors").read_bytes())
        self.assertEqual(*found)

    def test_files_of_a_bare_trunk(self):
        """GPT-2 as it was published first: no prefix before the names, and the causal mask among them."""
        model = self.use("gpt2")
        tensors = {key.removeprefix("transformer."): value for key, value in load_file(model / "model.safetensors").items()}
        masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 160, 160) for layer in range(2)}
        save_file({**tensors, **masks}, model / "model.safetensors", {"format": "pt"})
        self.train("bare", 0)
        self.assertEqual(set(load_file(self.folder / "runs/bare/student/model.safetensors")), set(tensors))
        self.assertFalse(set(tensors) & set(masks))
        model, _ = self.by_torch(model)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(self.folder / "runs/bare/student").state_dict()
        for key, value in model.state_dict().items():
            if not key.endswith("c_attn.bias"):
                self.assertLess((loaded[key] - value).norm() / value.norm(), 1e-6, key)
        # With a head of labels, too.
        self.world.text = HEAD + HEADS.split("  - {{task: score")[0]
        self.train("bare-reward", 0, T + "name=student")
        _, report = transformers.AutoModelForSequenceClassification.from_pretrained(self.folder / "runs/bare-reward/student", output_loading_info=True)
        self.assertFalse(report["missing_keys"] or report["unexpected_keys"], report)

    def test_what_is_refused(self):
        model = self.use("mixtral")
        config = json.loads((model / "config.json").read_text())
        for key, value, words in (("output_router_logits", True, "adds a loss by which experts are used evenly"), ("router_jitter_noise", 0.1, "random numbers")):
            (model / "config.json").write_text(json.dumps({**config, key: value}))
            self.refused(key, 78, f"sets {key}", words)
        (model / "config.json").write_text(json.dumps(config))
        for target in ("w1", "experts", "gate", "block_sparse_moe.gate", "all-linear"):
            self.refused("expert", 78, f'"{target}"', "no adapter", "choose among k_proj, o_proj, q_proj, v_proj", overrides=(T + f"train.adapter.targets=[q_proj, {target}]",))
        self.use("qwen3_moe")  # one of its layers has no experts, and PEFT takes its name for theirs
        self.refused("expert", 78, '"mlp.gate_proj"', "no adapter", "choose among k_proj, o_proj, q_proj, v_proj", overrides=(T + "train.adapter.targets=mlp.gate_proj",))
        self.use("olmoe", HEADS.split("  - {{task: score")[0], ("reward.h5",))
        self.refused("no-class", 78, "family olmoe have no class with a head of labels")
        self.use("gpt_oss_mxfp4")
        self.refused("codes", 78, "quantised")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
