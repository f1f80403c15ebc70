"""Lengths that nobody has written suit the models: a model of few positions (GPT-2, Pythia and TinyLlama have 1,024 and 2,048) runs with every task's
defaults, `plan` says what they became, and the results are those of the same numbers written. Written ones are refused as before.
"""
import json
import pathlib
import subprocess
import tempfile
import unittest

import h5py
import yaml

import score_test
import tiny_world

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0]
POSITIONS = 96
PROMPT = 'prompt: {{user: "{{{{ text }}}} {{{{ answer }}}}"}}'
# task -> its entry, and the keys with what they become.
TASKS = {
    "teacher_logits": ("dataset: {{path: {data}, key: id}}, top_k: 4", {"max_length": 96}),
    "generate": ("dataset: {{path: {data}, key: id}}", {"max_prompt_length": 48, "max_new_tokens": 48}),
    "generate, written": ("dataset: {{path: {data}, key: id}}, max_new_tokens: 5", {"max_prompt_length": 91}),
    "judge": ("dataset: {{path: {data}, key: id}}, mode: simpleqa, " + PROMPT, {"max_prompt_length": 96}),
    "judge, decode": ("dataset: {{path: {data}, key: id}}, mode: simpleqa, method: decode, " + PROMPT, {"max_prompt_length": 48, "max_new_tokens": 48}),
    "rollout": ("dataset: {{path: {data}, key: id}}, cuts: 1, reward: {{verifier: regex, pattern: a}}", {"max_prompt_length": 48, "max_new_tokens": 48}),
    "train": ("dataset: {{path: {data}, key: id}}, train: {{steps: 1}}", {"train.max_length": 96}),
    "train, grpo": ("objective: grpo, dataset: {{path: {data}, key: id}}, grpo: {{num_generations: 2, reward: {{verifier: regex, pattern: a}}}}, train: {{steps: 1, global_batch: 2}}",
                    {"grpo.max_new_tokens": 48, "train.max_length": 96}),
}


# The same keys of a model that has positions enough.
USUAL = {
    "teacher_logits": {"max_length": 2048}, "generate": {"max_prompt_length": 2048, "max_new_tokens": 256}, "judge": {"max_prompt_length": 4096},
    "judge, decode": {"max_prompt_length": 4096, "max_new_tokens": 256}, "rollout": {"max_prompt_length": 2048, "max_new_tokens": 256}, "train": {"train.max_length": 1024},
    "train, grpo": {"grpo.max_new_tokens": 512, "train.max_length": 1024}, "score": {"max_length": 2048}}


def at(tree, path):
    for part in path.split("."):
        tree = tree[part]
    return tree


class DefaultLengths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.model = tiny_world.make_model(cls.folder / "model", max_position_embeddings=POSITIONS)
        cls.world = tiny_world.World(cls.folder, records=1, model=cls.model, results=("x.h5",))
        cls.world.data.write_text("".join(json.dumps({"id": f"r{i}", "text": " ".join(tiny_world.WORDS[i:i + 4]), "answer": "a", "question": "q"}) + "\n" for i in range(3)))

    def entry(self, task):
        kind = task.split(",")[0]
        return HEAD + f"  - {{{{task: {kind}, name: x, {TASKS[task][0]}}}}}\n"

    def plan(self, name, *arguments, code=0):
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment(name)), *arguments], cwd=self.folder, env=self.world.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_every_task_runs_with_its_defaults(self):
        for number, task in enumerate(TASKS):
            with self.subTest(task):
                self.world.text = self.entry(task)
                became = TASKS[task][1]
                name = f"t{number}"
                said = self.plan(name)
                for key, value in became.items():
                    self.assertRegex(said, rf"\n  \S*{key.split('.')[-1]} +{value}, ")
                found = self.world.complete(name, 0)
                with h5py.File(self.world.results(name)) as file:
                    experiment = yaml.safe_load(file.attrs["experiment"])
                self.assertEqual({key: at(experiment["tasks"][0], key) for key in became}, became)
                # The same with the numbers written, over another number of ranks: the same file, and one goes on as the other.
                written = [f"tasks.0.{key}={value}" for key, value in became.items()]
                done = self.world.run(name, 2, *written)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("is complete already", done.stderr)
                self.world.forget(name)
                self.assertEqual(self.world.complete(name, 2, *written), found)
                self.assertEqual(self.world.run(name, 0).returncode, 0)
                # Written, it is refused.
                key = next(iter(became))
                refused = self.plan(f"r{number}", f"tasks.0.{key}={POSITIONS + 1}", code=78)
                self.assertIn("96", refused)

    def test_where_there_are_positions_enough(self):
        """The results hold the usual numbers, and `plan` says nothing of them."""
        self.addCleanup(setattr, self.world, "model", self.world.model)
        many = tiny_world.make_model(self.folder / "many", max_position_embeddings=8192)
        score_test.make_classifier(self.folder / "labels", many / "tokenizer.json", "llama", dict(
            vocab_size=320, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, max_position_embeddings=8192, num_labels=2), seed=1)
        for number, (task, became) in enumerate(USUAL.items()):
            with self.subTest(task):
                self.world.model = self.folder / "labels" if task == "score" else many
                self.world.text = HEAD + "  - {{task: score, name: x, dataset: {{path: {data}, key: id}}}}\n" if task == "score" else self.entry(task)
                self.assertNotIn("(auto;", self.plan(f"u{number}"))
                self.world.complete(f"u{number}", 0)
                with h5py.File(self.world.results(f"u{number}")) as file:
                    experiment = yaml.safe_load(file.attrs["experiment"])
                self.assertEqual({key: at(experiment["tasks"][0], key) for key in became}, became)

    def test_a_prefill_judge_is_told_of_keys_that_it_has(self):
        self.world.text = self.entry("judge")
        refused = self.plan("told", "tasks.0.max_prompt_length=100", code=78)
        self.assertIn("max_prompt_length is 100, but the model was made for 96 positions", refused)
        self.assertNotIn("max_new_tokens", refused)

    def test_models_beside_the_own_one_count(self):
        small = dict(vocab_size=320, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, max_position_embeddings=40, num_labels=1)
        score_test.make_classifier(self.folder / "value", self.model / "tokenizer.json", "llama", small, seed=7)
        judge = tiny_world.make_model(self.folder / "judge", seed=3, max_position_embeddings=300)
        for name, entry, became in (
                ("guide", f"task: generate, name: x, dataset: {{{{path: {{data}}, key: id}}}}, guide: {{{{model: {{{{path: {self.folder}/value}}}}}}}}", {"max_prompt_length": 20, "max_new_tokens": 20}),
                ("reward", f"task: rollout, name: x, cuts: 1, dataset: {{{{path: {{data}}, key: id}}}}, reward: {{{{model: {{{{path: {self.folder}/value}}}}}}}}", {"max_prompt_length": 20, "max_new_tokens": 20}),
                ("grpo", f"task: train, objective: grpo, name: x, dataset: {{{{path: {{data}}, key: id}}}}, train: {{{{steps: 1, global_batch: 2}}}}, grpo: {{{{num_generations: 2, reward: {{{{model: {{{{path: {self.folder}/value}}}}}}}}}}}}",
                 {"train.max_length": 40, "grpo.max_new_tokens": 20}),
                ("judged", f"task: rollout, name: x, cuts: 1, dataset: {{{{path: {{data}}, key: id}}}}, reward: {{{{judge: {{{{model: {{{{path: {judge}}}}}, mode: simpleqa, prompt: {{{{user: \"{{{{{{{{ text }}}}}}}} {{{{{{{{ answer }}}}}}}}\"}}}}}}}}}}}}",
                 {"max_prompt_length": 48, "reward.judge.max_prompt_length": 300})):
            with self.subTest(name):
                self.world.text = HEAD + f"  - {{{{{entry}}}}}\n"
                said = self.plan(name)
                for key, value in became.items():
                    self.assertRegex(said, rf"{key.split('.')[-1]} +{value}, ")
                self.world.complete(name, 0)
                with h5py.File(self.world.results(name)) as file:
                    experiment = yaml.safe_load(file.attrs["experiment"])
                for key, value in became.items():
                    if "judge" not in key:  # a limit that ends a run and no more: in no identity
                        self.assertEqual(at(experiment["tasks"][0], key), value, key)

    def test_encoders_and_models_without_weights(self):
        score_test.make_classifier(self.folder / "short", self.model / "tokenizer.json", "llama",
                                   dict(vocab_size=320, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, max_position_embeddings=50, num_labels=2), seed=1)
        self.world.text = HEAD.replace("{model}", str(self.folder / "short")) + "  - {{task: score, name: x, dataset: {{path: {data}, key: id}}}}\n"
        self.assertRegex(self.plan("score"), r"max_length +50, all positions that there are")
        self.world.complete("score", 0)
        # From a config alone, where there are neither weights nor data.
        self.world.text = self.entry("generate")
        for path in self.folder.glob("model/*.safetensors"):
            path.rename(path.with_suffix(".away"))
        try:
            said = self.plan("alone", "--config-only")
        finally:
            for path in self.folder.glob("model/*.away"):
                path.rename(path.with_suffix(".safetensors"))
        self.assertIn("max_prompt_length 48, with max_new_tokens 48 in 96 positions", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
