"""configs/: every example is accepted, and configs/keys lists exactly the keys that the program reads, with the
defaults that it fills in - compared with `magister run --print-config`, not with our memory of it.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PROGRAM = os.environ["MAGISTER"]


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def flatten(node, path=""):
    """{"tasks.0.top_k": 64, ...}; a list of scalars is a leaf."""
    if isinstance(node, dict):
        leaves = {}
        for key, value in node.items():
            leaves.update(flatten(value, f"{path}.{key}" if path else str(key)))
        return leaves
    if isinstance(node, list) and any(isinstance(item, dict) for item in node):
        leaves = {}
        for index, item in enumerate(node):
            leaves.update(flatten(item, f"{path}.{index}"))
        return leaves
    return {path: node}


def table():
    """key -> default as written, those of teacher_logits as keys of a first task; the keys of a whole section are left out."""
    pages = "".join(page.read_text() for page in sorted((ROOT / "configs/keys").glob("*.md")))
    rows = re.findall(r"^\| `([\w.]+)` \|([^|]*)\|", pages, re.MULTILINE)
    return {key.replace("teacher_logits.", "tasks.0."): default.strip().strip("`") for key, default in rows if key not in ("tasks", "tasks.0.model")}


# Keys of train.yaml that differ from their defaults.
TRAIN_YAML = {f"train.train.{key}" for key in ("epochs", "max_length", "optimizer.lr", "optimizer.schedule", "optimizer.warmup", "save_every")}


class Configs(unittest.TestCase):
    def resolved(self, name, *overrides):
        result = run("run", f"configs/{name}", "--print-config", *overrides)
        self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
        return flatten(yaml.safe_load(result.stdout))

    def test_examples_are_accepted_and_stable(self):
        """What is printed of one is an experiment, too, of which the same is printed."""
        examples = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))
        self.assertLessEqual({"quickstart.yaml", "array.yaml", "batch.yaml"}, set(examples))
        for name in examples:
            with self.subTest(name=name), tempfile.NamedTemporaryFile("w", suffix=".yaml") as again:
                printed = run("run", f"configs/{name}", "--print-config")
                self.assertEqual(printed.returncode, 0, printed.stderr)
                again.write(printed.stdout)
                again.flush()
                self.assertEqual(run("run", again.name, "--print-config").stdout, printed.stdout)

    def test_the_table_is_the_program(self):
        # Every optional key once, so that the resolved experiment shows all there are.
        everything = self.resolved("quickstart.yaml", "run.max_wall=01:00:00", "tasks.0.slice=0/1", "tasks.0.dataset.limit=5",
                                   "tasks.0.overflow=window", "tasks.0.stride=1024", "tasks.0.encoding=sampled", "tasks.0.tail_draws=12", "tasks.0.logprob_dtype=f16", "model.quantization=int8", "model.chat_template=x", "model.adapter=x", "plan.device_memory=A100-80GB")
        keys = {re.sub(r"^tasks\.0\.model\.", "model.", key) for key in everything}
        own = {key for key in table() if not key.startswith(("generate.", "judge.", "score.", "train.", "evaluate.", "rollout.", "exam."))}
        self.assertEqual(keys | {"output.hints", "layout.shares", "tasks.0.needs", "tasks.0.seed", "tasks.0.model.task", "tasks.0.model.config", "tasks.0.model.seed", "tasks.0.model.tokenizer", "tasks.0.dataset.tokens", "tasks.0.dataset.lengths", "tasks.0.dataset.offsets", "tasks.0.dataset.messages", "tasks.0.dataset.special_tokens", "tasks.0.dataset.config", "tasks.0.dataset.split", *(f"tasks.0.dataset.{name}" for name in ("sources.path", "sources.weight", "stopping_strategy", "seed")), "tasks.0.dataset.tools", *(f"tasks.0.dataset.{name}" for name in ("prompt", "chosen", "rejected", "margin")), "tasks.0.dataset.keep", "tasks.0.dataset.task", "model.attention", "model.decoding", "model.kv_cache", "model.rope_length", "model.chat_template_kwargs", "plan.devices"}, own)

    def test_the_tables_of_the_other_tasks(self):
        shared = ("task", "name", "model.", "dataset.", "slice")
        extra = {"generate": ["stop=x", "stop_tokens=1", "best_of=1"],
                 "judge": ["answers=answers", "method=decode", "panel=x", "prompt.named=strict", "prompt.system=x", "prompt.user=x", "fields.question=q", "label=l"], "train": ["train.steps=5", "train.adapter.targets=x", "dataset.messages=m", "train.evaluate.dataset.path=h", "train.evaluate.dataset.messages=m"]}
        for example, index, kind in (("judge.yaml", 0, "generate"), ("judge.yaml", 1, "judge"), ("score.yaml", 0, "score"), ("train.yaml", 0, "train"), ("evaluate.yaml", 4, "evaluate"), ("qsharp-star-graph.yaml", 1, "rollout"), ("exam.yaml", 0, "exam")):
            if kind == "train":  # a model that has weights, which an adapter asks for
                document = yaml.safe_load((ROOT / "configs" / example).read_text())
                document["tasks"][0]["model"] = {"path": "m"}
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "fine_tuned.yaml"
                path.write_text(json.dumps(document))
                example = os.path.relpath(path, ROOT / "configs")
            found = self.resolved(example, *(f"tasks.{index}.{entry}" for entry in extra.get(kind, [])))
            if kind == "generate":  # one kind of constraint at a time; biases are a list of maps
                for one in ("json_schema=a.json", "regex=a", "choice=a", "grammar=a.ebnf"):
                    found.update(self.resolved("judge.yaml", f"tasks.0.constraint.{one}"))
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "guide.yaml"
                for guide in ({"path": "x"}, {"task": "v"}):
                    tasks = [{"task": "generate", "dataset": {"path": "x"}, "guide": {"model": guide}}, {"task": "train", "name": "v", "objective": "reward", "dataset": {"path": "x"}}]
                    path.write_text(json.dumps({"name": "g", "model": {"path": "m"}, "tasks": tasks[::-1]}))
                    guided = self.resolved(os.path.relpath(path, ROOT / "configs"))
                    found.update({f"tasks.0.{key[8:]}": value for key, value in guided.items() if key.startswith("tasks.1.guide.")})
                biases = self.resolved("constrained.yaml").items()
                found.update({re.sub(r"logit_bias\.\d+", "logit_bias", key): value for key, value in biases if "logit_bias" in key})
            if kind == "generate":
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "prompt.yaml"
                for keys in ({"prompt": {"system": "s", "user": "u"}}, {"requests": "openai_batch"}):
                    path.write_text(json.dumps({"name": "p", "model": {"path": "m"}, "tasks": [{"task": "generate", "dataset": {"path": "x"}, **keys}]}))
                    found = {**{key.replace("tasks.0", f"tasks.{index}"): value for key, value in self.resolved(os.path.relpath(path, ROOT / "configs")).items()}, **found}
            if kind == "rollout":
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "rollout.yaml"
                for source in ({"path": "x"}, {"task": "v"}):
                    for reward in ({"model": source}, {"judge": {"model": {"path": "x"}}}, {"verifier": "math"}, {"verifier": "regex", "pattern": "(x)"}):
                        tasks = [{"task": "train", "name": "v", "objective": "reward", "dataset": {"path": "x"}},
                                 {"task": "rollout", "dataset": {"path": "x", "messages": "m"}, "stop": "x", "reward": reward, "guide": {"model": source}}]
                        path.write_text(json.dumps({"name": "g", "model": {"path": "m"}, "tasks": tasks}))
                        found = {**self.resolved(os.path.relpath(path, ROOT / "configs")), **found}
                found = {**found, **{key: value for key, value in self.resolved(os.path.relpath(path, ROOT / "configs")).items() if key.startswith("tasks.1.")}}
            if kind == "exam":  # objectives from the source instead of a list, and a model that checks
                document = yaml.safe_load((ROOT / "configs/exam.yaml").read_text())
                document["tasks"][0].update(objectives={"auto": 3}, validator={"model": {"path": "v"}})
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "exam.yaml"
                path.write_text(json.dumps(document))
                found = {**self.resolved(os.path.relpath(path, ROOT / "configs")), **found}
            if kind == "score":  # a rule instead of a model
                for document in ({"verifier": "math"}, {"verifier": "regex", "pattern": "(x)"}):
                    for more in ({}, {"answers": "x"}):
                        path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "verifier.yaml"
                        path.write_text(json.dumps({"name": "v", "tasks": [{"task": "score", "dataset": {"path": "x"}, "score": document, **more}]}))
                        found = {**self.resolved(os.path.relpath(path, ROOT / "configs")), **found}
            if kind == "evaluate":  # curves are a list of maps
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "curves.yaml"
                scores = [{"task": "score", "name": name, "dataset": {"path": "x"}, "score": {"verifier": "math"}} for name in "ab"]
                path.write_text(json.dumps({"name": "c", "tasks": [*scores, {"task": "evaluate", "scores": ["a", "b"], "evaluate": {"curves": [{"name": name, "scores": name} for name in "ab"]}}]}))
                found.update({re.sub(r"tasks\.2\.(.*curves)\.\d+", rf"tasks.{index}.\1", key): value for key, value in self.resolved(os.path.relpath(path, ROOT / "configs")).items() if "curves" in key})
            if kind == "train":  # the one objective or the other
                whole = yaml.safe_load((ROOT / "configs/train.yaml").read_text())
                whole["tasks"][0]["train"]["batch_tokens"] = 4096
                path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "distill.yaml"
                path.write_text(json.dumps(whole))
                found = {**self.resolved(os.path.relpath(path, ROOT / "configs")), **found}
                for one in ("results", "task"):
                    document = yaml.safe_load((ROOT / "configs" / example).read_text())
                    del document["tasks"][0]["dataset"]
                    document["tasks"][0].update(objective="distill", teacher={one: "x"}, distill={"loss": "js"})
                    document["tasks"][0]["train"]["evaluate"] = {"teacher": {one: "x"}}
                    path.write_text(json.dumps(document))
                    found = {**self.resolved(os.path.relpath(path, ROOT / "configs")), **found}
                for document in (dict(rollouts={"results": "x"}), dict(rollouts={"task": "x"}, value={"loss": "histogram"})):
                    whole = {"name": "v", "model": {"path": "m"}, "tasks": [{"task": "train", "objective": "value", **document}]}
                    path.write_text(json.dumps(whole))
                    found = {**self.resolved(os.path.relpath(path, ROOT / "configs")), **found}
                for document, extra_keys in ((dict(objective="dpo", dpo={"loss_type": "robust"}), {"prompt": "q"}), (dict(objective="reward"), {"prompt": "q", "margin": "m"}),
                                             (dict(objective="grpo", grpo={"reward": {"verifier": "regex", "pattern": "(x)"}}), {"text": "q"}),
                                             (dict(objective="grpo", grpo={"reward": {"verifier": "math"}}), {"text": "q"}),
                                             (dict(objective="grpo", grpo={"reward": {"model": {"path": "x"}}}), {"text": "q"}),
                                             (dict(objective="grpo", grpo={"reward": {"judge": {"model": {"path": "x", "adapter": "a", "quantization": "int8", "chat_template": "t"}, "prompt": {"named": "strict", "system": "s", "user": "u"},
                                                                                                "method": "decode", "fields": {"question": "text"}}}}), {"text": "q"}), (dict(objective="grpo", grpo={"reward": {"model": {"task": "r"}}}), {"text": "q"})):
                    whole = yaml.safe_load((ROOT / "configs/dpo.yaml").read_text())
                    task = whole["tasks"][0]
                    del task["dpo"], task["train"]
                    task.update(document)
                    task["dataset"].update(extra_keys)
                    earlier = [dict(task="train", name="r", objective="reward", dataset={"path": "x"})] if "task" in document.get("grpo", {}).get("reward", {}).get("model", {}) else []
                    whole["tasks"] = earlier + whole["tasks"]
                    path.write_text(json.dumps(whole))
                    resolved = self.resolved(os.path.relpath(path, ROOT / "configs")).items()
                    found = {**{key.replace(f"tasks.{len(earlier)}.", "tasks.0."): value for key, value in resolved if key.startswith(f"tasks.{len(earlier)}.")}, **found}
            keys = {re.sub(rf"^tasks\.{index}\.", "", key): value for key, value in found.items() if key.startswith(f"tasks.{index}.")}
            keys = {f"{kind}.{key}": value for key, value in keys.items() if not key.startswith((*shared, "train.evaluate.dataset.", "train.evaluate.slice"))}
            keys = {key: value for key, value in keys.items() if not key.startswith(("rollout.reward.judge.", "exam.validator.model.")) or key.endswith("model.path")}  # as train.grpo.reward.judge
            rows = {key: default for key, default in table().items() if key.startswith(f"{kind}.")}
            self.assertEqual(set(keys), set(rows))
            given = {"train.distill.loss", "train.dpo.loss_type", "train.grpo.reward.verifier", "train.grpo.reward.judge.method", "train.grpo.reward.judge.model.quantization", "generate.max_new_tokens", "generate.requests", "generate.temperature", "judge.method", "evaluate.evaluate.pass_at", "evaluate.evaluate.majority_at", "score.max_length", "score.score.verifier", "rollout.reward.verifier", "exam.source.passage_tokens", "exam.items.per_objective", "exam.bounds.generate", "exam.bounds.validate", "exam.bounds.review", "exam.temperature", "exam.max_new_tokens", "exam.max_prompt_length", *TRAIN_YAML}  # by the example itself, or above
            for key, default in rows.items():
                if default and default != "optional" and key not in given:
                    self.assertEqual(str(keys[key]).lower(), default.lower(), key)

    def test_defaults_are_true(self):
        path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "minimal.yaml"
        path.write_text("name: minimal\nmodel: {path: m.gguf}\ntasks: [{task: teacher_logits, dataset: {path: d.jsonl}}]\n")
        result = run("run", str(path), "--print-config")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = flatten(yaml.safe_load(result.stdout))
        for key, default in table().items():
            if default in ("", "optional", "max_length") or key.startswith(("generate.", "judge.", "score.", "train.", "evaluate.", "rollout.", "exam.")):
                continue
            self.assertEqual(found[key], type(found[key])(default), key)

    def experiments_of(self, page):
        """The YAML blocks of a page as experiments: a part of one gets what else an experiment has."""
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            document = yaml.safe_load(block)
            if "name" in document:
                yield block
            else:
                rest = {"name": "part", "model": {"path": "m"}, "tasks": [{"task": "teacher_logits", "dataset": {"path": "x"}}]}
                yield json.dumps({**rest, **document})

    def test_every_task_has_a_page_that_begins_with_an_example(self):
        kinds = json.loads(run("schema").stdout)["properties"]["tasks"]["items"]["else"]["properties"]["task"]["enum"]
        self.assertIn("train", kinds)
        for kind in kinds:
            text = (ROOT / f"configs/keys/{kind}.md").read_text()
            self.assertTrue(text.startswith(f"# `task: {kind}`\n\n"), kind)
            example = yaml.safe_load(re.match(r".*?```yaml\n(name: .*?)```.*?\n\| key ", text, re.DOTALL)[1])
            self.assertIn(kind, [task["task"] for task in example["tasks"]])
            self.assertIn(f"(keys/{kind}.md)", (ROOT / "configs/README.md").read_text())

    def test_examples_in_pages_are_accepted(self):
        path = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "page.yaml"
        for page in [ROOT / "configs/README.md", *sorted((ROOT / "configs/keys").glob("*.md"))]:
            experiments = list(self.experiments_of(page))
            self.assertGreaterEqual(len(experiments), 1, page.name)
            for experiment in experiments:
                path.write_text(experiment)
                result = run("run", str(path), "--print-config")
                self.assertEqual(result.returncode, 0, f"{page.name}: {experiment}\n{result.stderr}")

    def test_unknown_key_is_refused_by_name(self):
        result = run("run", "configs/quickstart.yaml", "--print-config", "tasks.0.topk=3")
        self.assertEqual(result.returncode, 78)
        self.assertIn("top_k", result.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
