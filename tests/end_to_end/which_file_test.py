"""Two files of a model's folder that say the same: which of them counts, by what transformers loads from the folder."""
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
from safetensors.torch import load_file

import tiny_world

CHATS = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: TASK
    dataset: {{path: {data}, messages: m, tools: t}}
"""
TEMPLATES = {"default": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if tools %}plain {{ tools | length }}{% endif %}",
             "tool_use": "tools {{ tools | tojson }}\n{% for m in messages %}{{ m.role }}= {{ m.content }}\n{% endfor %}"}


class Weights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=8)

    def teacher(self, name):
        done = self.world.run(name, 0)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with h5py.File(self.world.results(name)) as file:
            return file["teacher/top_logprob"][:], file.attrs["model_sha256"], done.stderr

    def test_a_file_of_all_weights_comes_before_an_index_as_in_transformers(self):
        whole = self.world.model
        want, _, _ = self.teacher("whole")
        old = transformers.AutoModelForCausalLM.from_pretrained(tiny_world.make_model(self.folder / "old", seed=9))
        self.world.model = self.folder / "resaved"
        old.save_pretrained(self.world.model, max_shard_size="50KB")
        shutil.copy(whole / "tokenizer.json", self.world.model)
        shards = sorted(path.name for path in self.world.model.glob("model-*.safetensors"))
        self.assertGreater(len(shards), 1)
        first, first_sha256, said = self.teacher("shards")
        self.assertNotIn("index", said)
        transformers.AutoModelForCausalLM.from_pretrained(whole).save_pretrained(self.world.model)
        self.assertTrue((self.world.model / "model.safetensors.index.json").exists())
        for name, shard in (("removed", False), ("left", True)):  # transformers removes the shards; other programs leave them
            with self.subTest(name):
                if shard:
                    old.save_pretrained(self.folder / "shards", max_shard_size="50KB")
                    for one in shards:
                        shutil.copy(self.folder / "shards" / one, self.world.model)
                by_transformers = transformers.AutoModelForCausalLM.from_pretrained(self.world.model)
                self.assertTrue(torch.equal(by_transformers.lm_head.weight, load_file(whole / "model.safetensors")["lm_head.weight"]))
                got, sha256, said = self.teacher(name)
                numpy.testing.assert_array_equal(got, want)
                self.assertNotEqual(sha256, first_sha256)
                self.assertEqual(said.count("model.safetensors.index.json next to it is not"), 1, said)
        self.assertFalse(numpy.array_equal(first, want))


class ToolTemplates(unittest.TestCase):
    """A template of chats with tools beside that of all others: in a list in tokenizer_config.json, or in a folder as transformers 5 saves it."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1)
        tool = {"type": "function", "function": {"name": "plan", "parameters": {"type": "object", "properties": {}}}}
        cls.records = [{"m": [{"role": "user", "content": "unit"}, {"role": "assistant", "content": "shard"}], "t": tools} for tools in ([tool], None, [])]
        cls.world.data = cls.folder / "chats.jsonl"
        cls.world.data.write_text("".join(json.dumps(record) + "\n" for record in cls.records))

    def ids(self, folder, record):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return tokenizer.apply_chat_template(record["m"], tools=record["t"], tokenize=True, return_dict=False)

    def run_it(self, name, task):
        self.world.text, self.world.names = CHATS.replace("TASK", task), ("results.h5",)
        done = self.world.run(name, 0)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        if task.startswith("train"):
            return None
        with h5py.File(self.world.results(name)) as file:
            offset, ids = file["samples/offset"][:].astype(int), file["tokens/id"][:]
            return [ids[a:b].tolist() for a, b in zip(offset, offset[1:])]

    def test_chats_with_tools_are_written_by_the_template_for_them(self):
        plain = self.world.model
        for form in ("list", "folder"):
            with self.subTest(form):
                self.world.model = self.folder / form
                shutil.copytree(plain, self.world.model)
                config = {"tokenizer_class": "PreTrainedTokenizerFast"}
                if form == "list":
                    config["chat_template"] = [{"name": name, "template": text} for name, text in TEMPLATES.items()]
                else:
                    (self.world.model / "additional_chat_templates").mkdir()
                    (self.world.model / "chat_template.jinja").write_text(TEMPLATES["default"])
                    (self.world.model / "additional_chat_templates/tool_use.jinja").write_text(TEMPLATES["tool_use"])
                (self.world.model / "tokenizer_config.json").write_text(json.dumps(config))
                want = [self.ids(self.world.model, record) for record in self.records]
                self.assertEqual(self.run_it(f"{form}-teacher", "teacher_logits\n    name: results\n    max_length: 512\n    top_k: 2"), want)
                self.run_it(f"{form}-train", "train\n    name: results\n    train: {{steps: 1, max_length: 512}}")
                student = self.world.results(f"{form}-train").with_suffix("")
                self.assertEqual([self.ids(student, record) for record in self.records], want)

    def test_a_template_for_tools_alone_and_one_beside_a_config(self):
        """transformers takes tool_use where tools are given whatever else there is; a chat without tools needs a default."""
        self.addCleanup(setattr, self.world, "data", self.world.data)
        self.addCleanup(setattr, self.world, "model", self.world.model)
        plain = self.world.model
        for form in ("tools-list", "tools-folder", "config-and-folder"):
            with self.subTest(form):
                self.world.model = self.folder / form
                shutil.copytree(plain, self.world.model)
                config = {"tokenizer_class": "PreTrainedTokenizerFast"}
                if form == "tools-list":
                    config["chat_template"] = [{"name": "tool_use", "template": TEMPLATES["tool_use"]}]
                else:
                    (self.world.model / "additional_chat_templates").mkdir()
                    (self.world.model / "additional_chat_templates/tool_use.jinja").write_text(TEMPLATES["tool_use"])
                if form == "config-and-folder":
                    config["chat_template"] = TEMPLATES["default"]
                (self.world.model / "tokenizer_config.json").write_text(json.dumps(config))
                with_tools = [record for record in self.records if record["t"] is not None]
                self.world.data = self.folder / "with-tools.jsonl"
                self.world.data.write_text("".join(json.dumps(record) + "\n" for record in with_tools))
                task = "teacher_logits\n    name: results\n    max_length: 512\n    top_k: 2"
                self.assertEqual(self.run_it(form, task), [self.ids(self.world.model, record) for record in with_tools])
                if form != "config-and-folder":
                    self.world.data.write_text("".join(json.dumps(record) + "\n" for record in self.records))
                    done = self.world.run(f"{form}-without", 0)
                    self.assertEqual(done.returncode, 65, done.stderr[-3000:])
                    self.assertIn("with-tools.jsonl:2: the chat has no tools", done.stderr)

    def test_a_template_by_its_name(self):
        self.addCleanup(setattr, self.world, "model", self.world.model)
        plain = self.world.model
        for form in ("named-list", "named-folder"):
            with self.subTest(form):
                self.world.model = self.folder / form
                shutil.copytree(plain, self.world.model)
                named = {**TEMPLATES, "rag": TEMPLATES["default"].replace(": ", " reads ")}
                config = {"tokenizer_class": "PreTrainedTokenizerFast"}
                if form == "named-list":
                    config["chat_template"] = [{"name": name, "template": text} for name, text in named.items()]
                else:
                    (self.world.model / "additional_chat_templates").mkdir()
                    (self.world.model / "chat_template.jinja").write_text(named.pop("default"))
                    for name, text in named.items():
                        (self.world.model / f"additional_chat_templates/{name}.jinja").write_text(text)
                (self.world.model / "tokenizer_config.json").write_text(json.dumps(config))
                tokenizer = transformers.AutoTokenizer.from_pretrained(self.world.model)
                want = [tokenizer.apply_chat_template(record["m"], tools=record["t"], chat_template="rag", tokenize=True, return_dict=False) for record in self.records]
                self.assertEqual(self.run_it(form, "teacher_logits\n    name: results\n    model: {{path: {model}, dtype: f32, chat_template: rag}}\n    max_length: 512\n    top_k: 2"), want)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
