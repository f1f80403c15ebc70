"""`magister schema` against the Python package jsonschema, the program itself and the tables of configs/keys: the schema is
valid, takes every example, refuses what the program refuses, and has exactly the keys that the tables list.
"""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PROGRAM = os.environ["MAGISTER"]


class Yaml12(yaml.SafeLoader):
    """Scalars as YAML 1.2 reads them: 01:30:00 and yes are texts."""


Yaml12.yaml_implicit_resolvers = {}
for tag, pattern, first in (("bool", "true|false", "tf"), ("null", "null|~", "n~"), ("int", "-?(0|[1-9][0-9]*)", "-0123456789"),
                            ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", "-0123456789")):
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))

GOOD = {
    "name": "a", "seed": 1, "output": {"directory": "runs", "driver": "mpio", "hints": {"striping_factor": 8, "cb_nodes": "2"}},
    "model": {"path": "m", "dtype": "f32", "quantization": "int8", "quantization_group": 64, "quantization_loss": 5, "chat_template": "x", "adapter": "a"},
    "layout": {"gpus_per_group": [4, 2], "shares": [3, 1], "devices": [0, 1], "collectives": "fast", "devices_per_rank": 2, "shards_per_rank": 1},
    "run": {"max_wall": "01:30:00", "schedule": "static", "at_once": 0, "watchdog_seconds": 0.5}, "plan": {"device_memory": "79.2GiB"},
    "tasks": [
        {"task": "teacher_logits", "name": "t", "model": {"path": "other"}, "dataset": {"path": ["a.jsonl", "b.txt"], "tokens": "ids", "lengths": "n", "key": "id", "limit": 0},
         "slice": "3/8", "max_length": 16, "overflow": "window", "stride": 4, "top_k": 1, "logprob_dtype": "f16", "unit_tokens": 1, "score": "all"},
        {"task": "teacher_logits", "name": "c", "dataset": {"path": "x", "messages": "m", "special_tokens": "tokens"}, "score": "assistant",
         "encoding": "sampled", "top_k": 5, "tail_draws": 9},
        {"task": "generate", "name": "g", "dataset": {"path": "x", "text": "y"}, "max_prompt_length": 8, "max_new_tokens": 1, "n": 2, "best_of": 3,
         "temperature": 0.5, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1.5, "logit_bias": [{"token": "a", "bias": -1}, {"id": 3, "bias": 2.5}],
         "top_logprobs": 20, "stop": ["x", "y"], "stop_tokens": [1, 2], "ignore_eos": False, "max_sequences": 1, "token_budget": 1, "share_prefixes": True},
        {"task": "generate", "name": "h", "dataset": {"path": "x.h5", "tokens": "t", "offsets": "o"}, "stop": "x", "stop_tokens": 1},
        {"task": "generate", "name": "i", "dataset": {"sources": [{"path": "x", "weight": 0.5}, {"path": ["y", "z"], "weight": 2}], "stopping_strategy": "all_exhausted", "seed": 3}, "constraint": {"choice": ["a", "b"]},
         "guide": {"model": {"path": "v"}, "multiplier": 2.5, "candidates": 5, "form": "bernoulli"}},
        {"task": "judge", "name": "j", "dataset": {"path": "x", "key": "k", "limit": 2}, "answers": "g", "mode": "choice", "method": "decode",
         "max_new_tokens": 5, "read": "word", "combine": "majority", "prompt": {"named": "letters"}, "fields": {"question": "q", "options": "o"},
         "label": "l", "classes": 4, "low_mass": 0.25, "chat_template": "off", "max_prompt_length": 9, "max_sequences": 1, "token_budget": 1, "share_prefixes": False},
        {"task": "judge", "name": "k", "dataset": {"path": "x"}, "prompts": [{"named": "strict"}, {"system": "s", "user": "u"}]},
        {"task": "train", "name": "s", "model": {"path": "m", "dtype": "f32"}, "objective": "lm", "dataset": {"path": "x", "messages": "m"}, "assistant_only_loss": True,
         "train": {"epochs": 1.5, "steps": 9, "batch_tokens": 4096, "micro_batch": 2, "max_length": 64, "packing": True, "shuffle": False, "append_eos": False,
                   "optimizer": {"lr": 0.001, "schedule": "cosine", "warmup": 0.1, "weight_decay": 0.01, "clip": 0, "beta1": 0.8, "beta2": 0.9, "epsilon": 0.001},
                   "zero": 0, "precision": "bf16", "gradient_checkpointing": True, "memory_fraction": 0.5, "save_every": 3, "keep": 1,
                   "evaluate": {"dataset": {"path": "h", "messages": "n"}, "every": 7},
                   "adapter": {"rank": 4, "alpha": 16, "targets": ["q_proj", "v_proj"], "rank_stabilized": True}}},
        {"task": "train", "name": "d", "model": {"task": "s"}, "objective": "distill", "teacher": {"task": "t"},
         "distill": {"loss": "js", "tail": "gold", "beta": 0.1, "temperature": 2, "weight": 0.5, "lm_weight": 0.1}, "train": {"evaluate": {"teacher": {"task": "t"}}}},
        {"task": "generate", "name": "u", "needs": ["s", "d"], "model": {"task": "d", "dtype": "f32"}, "dataset": {"path": "x"}},
        {"task": "train", "name": "n", "model": {"config": "c", "seed": 3, "tokenizer": "m"}, "dataset": {"path": "x"}, "train": {"global_batch": 4, "gradient_checkpointing": "auto"}},
        {"task": "train", "name": "p", "model": {"path": "m"}, "objective": "dpo", "dataset": {"path": "x", "prompt": "q", "chosen": "a", "rejected": "b", "key": "k"},
         "dpo": {"loss_type": "robust", "beta": 0.2, "label_smoothing": 0.1, "truncation_mode": "keep_end"}, "train": {"packing": False}, "assistant_only_loss": False},
        {"task": "train", "name": "r", "model": {"path": "m"}, "objective": "reward", "dataset": {"path": "x", "margin": "m"}, "reward": {"center_rewards_coefficient": 0.01}},
        {"task": "score", "name": "v", "dataset": {"path": "x"}, "answers": "g", "score": {"verifier": "regex", "pattern": "(a)", "match": "last", "answer": "b"}},
        {"task": "score", "name": "w", "dataset": {"path": "x"}, "score": {"verifier": "math", "rule": "boxed", "completion": "c"}},
        {"task": "evaluate", "name": "e", "scores": ["v", "w"], "evaluate": {"pass_at": [1, 2], "majority_at": 1, "majority_ties": "share", "threshold": 0.25,
                                                                                           "curves": [{"name": "a", "scores": "v"}, {"name": "b", "scores": ["v", "w"]}]}},
        {"task": "train", "name": "o", "model": {"path": "m"}, "objective": "grpo", "dataset": {"path": "x", "text": "q"},
         "grpo": {"num_generations": 4, "max_new_tokens": 16, "temperature": 0.9, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "loss_type": "grpo", "beta": 0.1,
                  "use_bias_correction_kl": False, "epsilon": 0.1, "epsilon_high": 0.28, "scale_rewards": "batch", "num_iterations": 2, "log_completions": True, "reward": {"verifier": "regex", "pattern": "(x)", "answer": "a"}}},
        {"task": "rollout", "dataset": {"path": "x", "messages": "q"}, "max_prompt_length": 64, "max_new_tokens": 16, "roll_in": "sampled", "cuts": 3, "first_cut": 0,
         "continuations": "sampled", "n": 4, "continue_with": "reference", "temperature": 0.8, "top_p": 0.9, "guide": {"model": {"path": "v"}},
         "reward": {"verifier": "math", "scale": 5.0}, "preference": {"beta": 0.5}, "stop": ["x"], "share_prefixes": False},
        {"task": "train", "name": "z", "model": {"path": "m"}, "objective": "value", "rollouts": {"task": "rollouts"}, "value": {"loss": "histogram", "atoms": 5, "max_reward": 5}},
        {"task": "score", "name": "m", "dataset": {"path": "x"}, "answers": "g", "max_length": 9, "overflow": "error", "unit_tokens": 8, "function": "sigmoid", "share_prefixes": False},
        {"task": "train", "name": "oj", "model": {"path": "m"}, "objective": "grpo", "dataset": {"path": "x", "text": "q"}, "grpo": {"reward": {"judge": {
            "model": {"path": "j", "dtype": "f32"}, "mode": "rubric", "classes": 10, "prompts": [{"named": "quality"}, {"user": "u"}], "method": "decode", "read": "word", "max_new_tokens": 9,
            "fields": {"question": "q"}, "chat_template": "off", "max_prompt_length": 99}}}},
    ],
}
EXAM = {"task": "exam", "name": "x", "source": {"path": "s.md", "passage_tokens": 160}, "objectives": {"path": "o.txt"}, "seed": 1,
        "items": {"per_objective": 2, "kinds": ["choice"], "choices": 4, "difficulty": {"easy": 1, "medium": 2, "hard": 3}},
        "bounds": {"generate": 3, "validate": 2, "review": 2}, "temperature": 0.7, "max_new_tokens": 320, "max_prompt_length": 1600}
# Numbers whose ends another key of GOOD rules out.
OF_SEVERAL_KEYS = {"layout.gpus_per_group", "layout.shares", "layout.shards_per_rank", "tasks.0.stride", "tasks.2.n", "tasks.2.best_of", "tasks.17.n", "tasks.17.temperature",
                   "tasks.18.value.max_reward"}
# (path, value): every one of them must be refused by the schema and by the program. REMOVED takes the key away.
REMOVED = object()
BAD = [
    ("name", REMOVED), ("name", "a b"), ("name", ""), ("tasks", REMOVED), ("tasks", []), ("tasks", {}), ("seeds", 1), ("seed", -1), ("seed", 1.5), ("seed", "many"), ("seed", True),
    ("output", "runs"), ("output.dir", "runs"), ("output.driver", "mpi"), ("output.hints", ["a"]), ("output.hints.a", [1]), ("model.path", REMOVED), ("model.path", []), ("model.adapter", ["a"]), ("model.lora", "a"), ("model.dtype", "fp32"), ("model.quantization", "int5"),
    ("model.quantization_grup", 32), ("model.quantization_group", 48), ("model.quantization_group", "all"), ("model.quantization_loss", -1), ("layout.gpus_per_group", 0),
    ("layout.gpus_per_group", 4097), ("layout.gpus_per_group", "all"), ("layout.gpus_per_group", [0, 1]), ("layout.shares", [0, 1]), ("layout.shares", "even"), ("layout.devices", "gpu"), ("layout.devices", []), ("layout.devices", [-1]), ("layout.devices", 0),
    ("layout.collectives", "slow"), ("layout.shards_per_rank", 257), ("layout.devices_per_rank", 0), ("run.max_wall", "90"), ("run.max_wall", "01:60:00"), ("run.schedule", "dynamc"),
    ("run.watchdog_seconds", -1), ("run.watchdog_seconds", "long"), ("plan.device_memory", "80"), ("plan.device_memory", "A100"), ("plan.devices", "8 x H100"), ("plan.devices", "x H200"), ("plan.memory", "80GB"), ("tasks.0.task", REMOVED), ("tasks.0.task", "exam"),
    ("tasks.0.task", "generate"), ("tasks.0.name", "a/b"), ("tasks.0.model", {"dtype": "f32"}), ("tasks.0.dataset", REMOVED), ("tasks.0.dataset.path", REMOVED),
    ("tasks.0.dataset.path", []), ("tasks.0.dataset.mesages", "x"), ("tasks.0.dataset.limit", -1), ("tasks.0.slice", "1"), ("tasks.0.slice", "-1/4"), ("tasks.0.max_length", 0),
    ("tasks.0.overflow", "cut"), ("tasks.0.stride", 0), ("tasks.0.top_k", "all"), ("tasks.0.top_k", 0), ("tasks.0.logprob_dtype", "f64"), ("tasks.0.encoding", "zip"), ("tasks.1.tail_draws", 0), ("tasks.0.unit_tokens", 0),
    ("tasks.0.max_new_tokens", 5), ("tasks.1.score", "user"), ("tasks.1.dataset.special_tokens", "all"), ("tasks.2.max_tokens", 5), ("tasks.2.n", 0), ("tasks.2.n", 4097),
    ("tasks.2.temperature", -0.5), ("tasks.2.temperature", "hot"), ("tasks.2.top_p", 0), ("tasks.2.top_p", 1.5), ("tasks.2.min_p", 2), ("tasks.2.repetition_penalty", 0),
    ("tasks.2.logit_bias", []), ("tasks.2.logit_bias", {"id": 1, "bias": 1}), ("tasks.2.logit_bias.0.bias", REMOVED), ("tasks.2.logit_bias.0.bias", 1001),
    ("tasks.2.logit_bias.1.id", -1), ("tasks.2.logit_bias.0.weight", 1), ("tasks.2.top_logprobs", 21), ("tasks.2.stop", []), ("tasks.2.stop_tokens", []), ("tasks.2.stop_tokens", "eos"),
    ("tasks.2.ignore_eos", "yes"), ("tasks.2.share_prefixes", 1), ("tasks.4.constraint.choices", ["a"]), ("tasks.4.constraint.choice", []), ("tasks.5.mode", "grade"),
    ("tasks.5.method", "think"), ("tasks.5.read", "all"), ("tasks.5.max_new_tokens", 0), ("tasks.5.combine", "mean"), ("tasks.5.prompt.name", "letters"), ("tasks.5.fields.reference", "r"),
    ("tasks.5.classes", 1), ("tasks.5.low_mass", 1.5), ("tasks.5.chat_template", "on"), ("tasks.5.dataset.text", "x"), ("tasks.6.prompts", []), ("tasks.6.prompts.0.user", []),
    ("tasks.6.token_budget", 0), ("tasks.7.objective", "ppo"), ("tasks.7.train.epochs", 0), ("tasks.7.train.micro_batch", 0), ("tasks.7.train.batch_tokens", 0), ("tasks.10.train.global_batch", 0), ("tasks.7.train.sync_batch_norm", "on"), ("tasks.7.train.max_length", 1),
    ("tasks.7.train.optimizer.lr", -1), ("tasks.7.train.optimizer.schedule", "step"), ("tasks.7.train.precision", "fp16"), ("tasks.7.train.keep", 0),
    ("tasks.7.dataset", REMOVED), ("tasks.8.model", {"task": "s", "path": "m"}), ("tasks.8.model.task", []), ("tasks.8.teacher", REMOVED),
    ("tasks.8.teacher", {}), ("tasks.8.teacher.path", "x.h5"), ("tasks.8.distill.loss", "kl"), ("tasks.8.distill.tail", "ghost"), ("tasks.8.distill.beta", 2),
    ("tasks.8.distill.temperature", 0), ("tasks.8.distill.lm_weight", -1), ("tasks.9.model.path", "m"),
    ("tasks.10.model.config", []), ("tasks.10.model.seed", -1), ("tasks.10.model.path", "m"),
    ("tasks.7.train.adapter.rank", 0), ("tasks.7.train.adapter.alpha", 0), ("tasks.7.train.adapter.targets", []), ("tasks.7.train.adapter.r", 8),
    ("tasks.11.dpo.loss_type", "kto"), ("tasks.11.dpo.beta", -1), ("tasks.11.dpo.label_smoothing", 0.5), ("tasks.11.dpo.truncation_mode", "middle"), ("tasks.11.dpo.betas", 1),
    ("tasks.11.dataset.chosen", []), ("tasks.12.reward.center_rewards_coefficient", -1), ("tasks.12.dataset.margins", "m"),
    ("tasks.16.grpo.num_generations", 1), ("tasks.16.grpo.epsilon", -0.1), ("tasks.16.grpo.loss_type", "ppo"), ("tasks.16.grpo.beta", -1), ("tasks.16.grpo.scale_rewards", "all"),
    ("tasks.16.grpo.num_iterations", 0), ("tasks.16.grpo.reward.verifier", "exakt"), ("tasks.16.grpo.reward.pattern", []), ("tasks.16.grpo.log_completions", "all"), ("tasks.16.grpo.use_bias_correction_kl", 1), ("tasks.16.grpo.max_completion_length", 9),
    ("tasks.17.cuts", 0), ("tasks.17.roll_in", "guided"), ("tasks.17.continuations", "greedy"), ("tasks.17.n", 0), ("tasks.17.continue_with", "value"), ("tasks.17.first_cut", -1),
    ("tasks.17.preference.beta", -1), ("tasks.17.preference.eta", 1), ("tasks.17.reward.scale", "five"), ("tasks.17.samples_per_example", 4),
    ("tasks.18.value.loss", "mse"), ("tasks.18.value.atoms", 1), ("tasks.18.value.bins", 5), ("tasks.18.rollouts", {}), ("tasks.18.rollouts.path", "x.h5"),
    ("tasks.7.train.evaluate.every", 0), ("tasks.7.train.evaluate.dataset", REMOVED), ("tasks.7.train.evaluate.steps", 5),
    ("tasks.4.guide.model", REMOVED), ("tasks.4.guide.model", {}), ("tasks.4.guide.model", {"path": "v", "task": "s"}), ("tasks.4.guide.multiplier", -1),
    ("tasks.4.guide.candidates", 0), ("tasks.4.guide.form", "odds"), ("tasks.4.guide.eta", 1),
    ("tasks.4.dataset.sources", []), ("tasks.4.dataset.sources.0.weight", 0), ("tasks.4.dataset.sources.1.path", REMOVED), ("tasks.4.dataset.path", "x"),
    ("run.at_once", "all"), ("run.at_once", -1), ("tasks.9.needs", []),
    ("tasks.4.dataset.stopping_strategy", "never"), ("tasks.4.dataset.seed", -1),
    ("tasks.1.dataset.config", []),
    ("tasks.15.evaluate.curves", []), ("tasks.15.evaluate.curves.0.name", REMOVED), ("tasks.15.evaluate.curves.1.points", 1),
    ("tasks.19.share_prefixes", "no"), ("tasks.19.answers", []),
    ("tasks.7.train.gradient_checkpointing", "always"), ("tasks.7.train.memory_fraction", 1.5),
    ("tasks.20.grpo.reward.judge.model", REMOVED), ("tasks.20.grpo.reward.judge.mode", "pairwise"), ("tasks.20.grpo.reward.judge.label", "l"), ("tasks.20.grpo.reward.judge.classes", 1),
]


def batches():
    """The bad keys in few experiments, for the program tells all faults of one at once: no place inside another, at most 20."""
    found = []
    for path, value in BAD:
        # Without its kind, nothing of a task is looked at; of a model's keys one decides what is said of the others.
        area = path.rsplit(".", 1)[0] + "." if path.endswith(".task") else path + "."
        for batch in found:
            if len(batch) < 20 and not any((taken + ".").startswith(area) or area.startswith((taken.rsplit(".", 1)[0] if taken.endswith(".task") else taken) + ".")
                                           or ".model." in area and taken.rsplit(".", 1)[0] == path.rsplit(".", 1)[0] for taken, _ in batch):
                batch.append((path, value))
                break
        else:
            found.append([(path, value)])
    return found


def changed(path, value, document=None):
    """GOOD, or another document, with one place changed."""
    document = copy.deepcopy(document or GOOD)
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = document
    for step in way:
        place = place[step]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return document


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([PROGRAM, "schema"], capture_output=True, text=True, check=True)
        cls.schema = json.loads(done.stdout)
        cls.validator = jsonschema.Draft7Validator(cls.schema)

    def program(self, document):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "e.yaml"
            path.write_text(json.dumps(document))  # JSON is YAML
            return subprocess.run([PROGRAM, "run", str(path), "--print-config"], capture_output=True, text=True, check=False)

    def test_it_is_a_schema_by_its_own_rules(self):
        jsonschema.Draft7Validator.check_schema(self.schema)
        self.assertEqual(self.schema["$schema"], "http://json-schema.org/draft-07/schema#")

    def test_every_example_is_valid(self):
        examples = sorted((ROOT / "configs").glob("*.yaml"))
        self.assertGreaterEqual(len(examples), 5)
        for path in examples:
            document = yaml.load(path.read_text(), Loader=Yaml12)
            self.assertEqual([error.message for error in self.validator.iter_errors(document)], [], path.name)

    def test_the_good_experiment_is_good_for_both(self):
        done = self.program(GOOD)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([error.message for error in self.validator.iter_errors(GOOD)], [])
        # What the program fills in is valid as well.
        resolved = yaml.load(done.stdout, Loader=Yaml12)
        self.assertEqual([error.message for error in self.validator.iter_errors(resolved)], [])

    def test_groups(self):
        """Repeated tasks: in them a value may be a variable, so only what the group itself says is checked by both."""
        task = {"task": "train", "name": "t-{round}-{m.name}", "dataset": {"path": "x"}, "model": {"path": "{m.path}"}, "train": {"steps": "{round}"}}
        inner = {"matrix": {"m": [{"name": "a", "path": "p"}, {"name": "b", "path": "q"}]}, "tasks": [task]}
        good = {"name": "g", "tasks": [{"rounds": 2, "tasks": [inner]}]}
        self.assertEqual([error.message for error in self.validator.iter_errors(good)], [])
        done = self.program(good)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = yaml.load(done.stdout, Loader=Yaml12)["tasks"]
        self.assertEqual([(one["name"], one["train"]["steps"], one["model"]["path"]) for one in found], [("t-1-a", 1, "p"), ("t-1-b", 1, "q"), ("t-2-a", 2, "p"), ("t-2-b", 2, "q")])
        for group in ({"rounds": 0, "tasks": [task]}, {"rounds": 2}, {"rounds": 2, "matrix": {"m": [1]}, "tasks": [task]}, {"matrix": {}, "tasks": [task]}, {"matrix": {"m": []}, "tasks": [task]},
                      {"rounds": 2, "tasks": [task], "name": "x"}, {"matrix": {"m": [[1]]}, "tasks": [task]}, {"rounds": 2, "tasks": []}):
            with self.subTest(group=group):
                self.assertFalse(self.validator.is_valid({"name": "g", "tasks": [group]}))
                self.assertEqual(self.program({"name": "g", "tasks": [group]}).returncode, 78)

    def test_every_bad_key_is_bad_for_both(self):
        for path, value in BAD:
            with self.subTest(path=path, value="removed" if value is REMOVED else value):
                self.assertFalse(self.validator.is_valid(changed(path, value)), "the schema takes it")
        for batch in batches():
            document = GOOD
            for path, value in batch:
                document = changed(path, value, document)
            done = self.program(document)
            self.assertEqual(done.returncode, 78, done.stdout + done.stderr)
            for path, value in batch:
                with self.subTest(path=path, program=True):
                    place = path.rsplit(".", 1)[0] if path.endswith(".task") else path  # of another kind, its keys are wrong
                    self.assertRegex(done.stderr, rf"(?m):\d+:\d+: {re.escape(place)}[.:]")

    def ranges(self, node, path, value):
        """-> (path, form of a number, whether it is in a list) of every number that the document holds, with $ref followed"""
        while "$ref" in node or "$ref" in (node.get("allOf") or [{}])[0]:
            node = self.schema["$defs"][(node if "$ref" in node else node["allOf"][0])["$ref"].split("/")[-1]]
        if isinstance(value, dict):
            return [found for name, inner in value.items() for found in self.ranges(node.get("properties", {}).get(name, {}), f"{path}.{name}", inner)]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return [found for i, inner in enumerate(value) for found in self.ranges(node["items"], f"{path}.{i}", inner)]
        forms = [(form.get("items", form), "items" in form) for form in node.get("anyOf", [node])]
        return [(path, form, in_list) for form, in_list in forms if form.get("type") in ("integer", "number")]

    def test_the_ends_of_every_range_are_those_of_the_program(self):
        """The program refuses no end of a range that the schema has, and all that is beyond it."""
        tried, found = [], {}
        top = {**{key: value for key, value in GOOD.items() if key != "tasks"}}
        places = [(key, self.schema["properties"][key], value) for key, value in top.items()]
        places += [(f"tasks.{i}", self.schema["$defs"]["task_" + task["task"]], task) for i, task in enumerate(GOOD["tasks"])] + [("exam", self.schema["$defs"]["task_exam"], EXAM)]
        for path, form, in_list in (one for place in places for one in self.ranges(place[1], place[0], place[2])):
            key = (GOOD["tasks"][int(path.split(".")[1])]["task"] + re.sub(r"\.\d+", "", path[5:])) if path.startswith("tasks.") else path
            if (key, in_list) in found or path in OF_SEVERAL_KEYS:
                continue
            found[key, in_list] = path
            small, large = (-1, 1) if form["type"] == "integer" else (-1e-3, 1e-3)
            for end, step in (("minimum", small), ("maximum", large), ("exclusiveMinimum", 0)):
                if end not in form:
                    continue
                beyond = form[end] + step * max(1, abs(form[end]) if form["type"] == "number" else 1)
                inside = form[end] - small if end == "exclusiveMinimum" else form[end]
                tried += [(path, [value] if in_list else value, good) for value, good in ((inside, True), (beyond, False))]
        self.assertGreater(len(found), 100)
        self.refused_are(tried)

    def refused_are(self, tried):
        """In few experiments: of a task one key at a time, because a number may be too large for another that is not."""
        while tried:
            taken, document, exam = {}, GOOD, EXAM
            for one in tried:
                path, value, _ = one
                owner = ".".join(path.split(".")[:2 if path.startswith("tasks.") else 1])
                if owner in taken:
                    continue
                taken[owner] = one
                if owner == "exam":
                    exam = changed(path[5:], value, exam)
                else:
                    document = changed(path, value, document)
            tried = [one for one in tried if one not in taken.values()]
            done = self.program({**document, "tasks": [*document["tasks"], exam]})
            for path, value, good in taken.values():
                with self.subTest(path=path, value=value):
                    place = path.replace("exam", f"tasks.{len(GOOD['tasks'])}", 1) if path.startswith("exam") else path
                    said = re.findall(rf"(?m):\d+:\d+: {re.escape(place)}(?:\.\d+)?: .*", done.stderr)
                    self.assertEqual(said == [], good, said)

    def keys(self, node, path=""):
        """The paths of all leaves of the schema, with $ref followed; lists of maps as their entries."""
        node = {**node, **(node.get("allOf") or [{}])[0]} if "if" not in str(node.get("allOf", ""))[:8] else node
        if "$ref" in node:
            return self.keys({key: value for key, value in self.schema["$defs"][node["$ref"].split("/")[-1]].items()}, path)
        if node.get("type") == "array" and ("properties" in node["items"] or "$ref" in node["items"]):
            return self.keys(node["items"], path)
        if "properties" not in node:
            return {path: node}
        leaves = {}
        for name, value in node["properties"].items():
            leaves.update(self.keys(value, f"{path}.{name}" if path else name))
        return leaves

    def table(self):
        """key -> its default in configs/keys"""
        pages = "".join(page.read_text() for page in sorted((ROOT / "configs/keys").glob("*.md")))
        rows = re.findall(r"^\| `([\w.]+)` \|([^|]*)\|", pages, re.MULTILINE)
        return {key: default.strip().strip("`") for key, default in rows}

    def test_the_tables_have_exactly_the_keys_of_the_schema(self):
        top = {key: value for key, value in self.schema["properties"].items() if key != "tasks"}
        found = self.keys({"properties": top})
        sources = {"model.task", "model.config", "model.seed", "model.tokenizer"}  # of a task's own section alone
        for kind in ("teacher_logits", "generate", "judge", "rollout", "score", "train", "evaluate", "exam"):
            for key, value in self.keys(self.schema["$defs"]["task_" + kind]).items():
                if key.startswith("model.") and key not in sources:
                    continue  # the same section as above
                shared = key in {"task", "name", "seed", "needs", "slice", *sources} or key.startswith("dataset.")
                key = re.sub(r"(^|\.)prompts\.", r"\1prompt.", key)  # a list of such sections
                found[("tasks.0." if shared else kind + ".") + key] = value
        listed = {key: default for key, default in self.table().items() if key not in ("tasks", "tasks.0.model")}
        likewise = {f"{judge}.fields.{name}" for judge in ("judge", "train.grpo.reward.judge") for name in ("answer", "references", "answer_a", "answer_b", "options", "rubric")}  # one row for all
        likewise |= {f"train.grpo.reward.judge.model.{name}" for name in ("chat_template_kwargs", "rope_length")}
        likewise |= {key for key in found if key.startswith(("rollout.reward.judge.", "exam.validator.model.")) and not key.endswith("model.path")}  # as train.grpo.reward.judge
        likewise |= {key for key in found if key.startswith("train.train.evaluate.dataset.") or key == "train.train.evaluate.slice"}  # as `dataset` and `slice`
        self.assertEqual(set(found) - likewise, set(listed))
        for key, default in listed.items():
            with self.subTest(key=key):
                self.assertTrue(found[key].get("description") or key.endswith(".task"), "no description")
                if default in ("", "optional", "max_length") or key == "tasks.0.name":
                    continue
                given = found[key].get("default")
                self.assertEqual(given, float(default) if isinstance(given, float) else int(default) if type(given) is int else
                                 default == "true" if isinstance(given, bool) else default)

    def test_it_is_written_once_and_by_one_rank(self):
        done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2", PROGRAM, "schema"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), self.schema)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
