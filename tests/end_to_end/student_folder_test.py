"""What stands in a trained model's folder and beside it, when the model that it begins as is odd or the folder is touched between runs."""
import hashlib
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import h5py
import torch
import transformers
from safetensors.torch import load_file, save_file

import tiny_world
import train_test

CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


class StudentFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=12, text=train_test.EXPERIMENT, results=("student.h5",))
        cls.plain = cls.world.model
        (cls.plain / "tokenizer_config.json").write_text('{"model_max_length": 512}')

    def model(self, name, **changes):
        """A copy of the model; changes: of its config."""
        self.world.model = self.folder / name
        shutil.copytree(self.plain, self.world.model)
        config = json.loads((self.world.model / "config.json").read_text())
        (self.world.model / "config.json").write_text(json.dumps({**config, **changes}))
        (self.world.model / "generation_config.json").write_text('{"eos_token_id": 2}')
        return self.world.model

    def run_it(self, name, *overrides, code=0, words=()):
        done = self.world.run(name, 0, *overrides)
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        for word in words:
            self.assertIn(word, done.stderr)
        return self.folder / "runs" / name / "student"

    def test_a_state_of_other_end_tokens_or_another_template_is_not_gone_on_with(self):
        model = self.model("ends")
        student = self.run_it("ends")
        states = student.with_suffix(".checkpoints")
        for change in ('{"eos_token_id": 5}', '{"eos_token_id": 2}'):
            shutil.rmtree(student, ignore_errors=True)
            self.world.results("ends").unlink(missing_ok=True)
            (model / "generation_config.json").write_text(change)
            same = change.endswith("2}")
            self.run_it("ends", code=0 if same else 78, words=() if same else ("another experiment", str(states)))
            student.with_name("student.running.h5.partial").unlink(missing_ok=True)
        self.assertTrue(student.is_dir())

    def test_a_head_of_its_own_beside_a_config_that_ties(self):
        self.model("tied", tie_word_embeddings=True)
        student = self.run_it("tied")
        self.assertIs(json.loads((student / "config.json").read_text())["tie_word_embeddings"], False)
        weights = load_file(student / "model.safetensors")
        loaded = transformers.AutoModelForCausalLM.from_pretrained(student)
        torch.testing.assert_close(loaded.lm_head.weight, weights["lm_head.weight"], rtol=0, atol=0)
        self.assertFalse(torch.equal(loaded.lm_head.weight, loaded.model.embed_tokens.weight))

    def test_vocabularies_of_every_kind_and_the_template_that_was_learnt(self):
        model = self.model("files")
        for name in ("spiece.model", "vocab.txt", "qwen.tiktoken"):
            (model / name).write_text(name)
        (model / "chat_template.jinja").write_text("never used")
        template = self.folder / "used.jinja"
        template.write_text(CHAT)
        chats = self.folder / "chats.jsonl"
        chats.write_text("".join(json.dumps({"id": i, "m": [{"role": "user", "content": "plan"}, {"role": "assistant", "content": "unit of the shard"}]}) + "\n"
                                 for i in range(4)))
        student = self.run_it("files", f"model.chat_template={template}", f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m")
        for name in ("spiece.model", "vocab.txt", "qwen.tiktoken", "tokenizer.json"):
            self.assertEqual((student / name).read_bytes(), (model / name).read_bytes())
        self.assertEqual((student / "chat_template.jinja").read_text(), CHAT)

    def test_a_chat_without_an_answer_takes_no_part(self):
        self.world.model = self.plain
        template = self.folder / "marked.jinja"
        template.write_text(train_test.ASSISTANT)
        chats = self.folder / "unanswered.jsonl"
        answered = [{"role": "user", "content": "plan"}, {"role": "assistant", "content": "unit of the shard"}]
        chats.write_text("".join(json.dumps({"id": i, "m": answered[:1 if i == 2 else 2]}) + "\n" for i in range(4)))
        keys = (f"model.chat_template={template}", f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m")
        self.run_it("unanswered", *keys, "tasks.0.assistant_only_loss=true", words=("1 of 4 records have no token to learn from",))

    def test_log_probabilities_below_sixteen_bits(self):
        model = self.model("steep")
        weights = load_file(model / "model.safetensors")
        weights["lm_head.weight"] *= 2e4
        save_file(weights, model / "model.safetensors", {"format": "pt"})
        text, self.world.text = self.world.text, tiny_world.EXPERIMENT
        try:
            for number, keys in enumerate((("tasks.0.encoding=compact",), ("tasks.0.logprob_dtype=f16",))):
                self.run_it(f"steep-{number}", *keys, "tasks.0.top_k=64", code=65, words=("below what 16 bits hold", "`encoding: plain` with"))
        finally:
            self.world.text = text

    def test_what_stands_beside_the_results(self):
        self.world.model = self.plain
        student = self.run_it("beside", "tasks.0.train.optimizer.warmup=500", words=("warmup takes all",))
        # A model cannot be trained from what it replaces, and --fresh leaves it where it is.
        self.run_it("beside", "--fresh", f"model.path={student}", code=78, words=("student is this task itself and writes that file",))
        self.assertTrue((student / "model.safetensors").exists())
        # Half of a state, from a kill while it was written.
        half = student.with_suffix(".checkpoints") / "step-00000001.safetensors.creating"
        half.write_bytes(b"half")
        self.run_it("beside", "--fresh")
        student.with_suffix(".checkpoints").mkdir(exist_ok=True)
        half.write_bytes(b"half")
        self.world.results("beside").unlink()
        for state in half.parent.glob("*.safetensors"):
            state.unlink()
        self.run_it("beside")
        self.assertFalse(half.exists())
        # A trained model that was moved away is missed.
        student.rename(student.with_name("moved"))
        self.run_it("beside", code=74, words=("moved or removed", "--fresh"))
        self.run_it("other", "tasks.0.name=logs", code=78, words=("the run keeps its logs there",))

    @staticmethod
    def lines_sha256(folder, names):
        lines = "".join(f"{hashlib.sha256((folder / one).read_bytes()).hexdigest()}  {one}\n" for one in names)
        return hashlib.sha256(lines.encode()).hexdigest()

    def test_files_that_are_copied_are_part_of_the_training(self):
        """Changed between a stop and the next start, they would make a folder that no start alone makes."""
        self.world.model = self.plain
        template = self.plain / "chat_template.jinja"
        before = template.read_text() if template.exists() else None
        template.write_text("{{ messages[0].content }}")
        self.addCleanup(lambda: template.unlink() if before is None else template.write_text(before))
        done = self.world.run("copied", 1, MAGISTER_FAIL_POINT="train.step.begin@2:kill")
        self.assertNotEqual(done.returncode, 0)
        template.write_text("another {{ messages[0].content }}")
        done = self.world.run("copied", 1)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("copied_files_sha256", done.stderr)
        template.write_text("{{ messages[0].content }}")
        self.assertEqual(self.world.run("copied", 1).returncode, 0)
        self.assertEqual((self.world.results("copied").with_suffix("") / "chat_template.jinja").read_text(), "{{ messages[0].content }}")

    def test_a_folder_that_is_not_what_was_trained_is_refused(self):
        """One bit of the weights, or a config that says something else: of a model, of an adapter beside its base and in the place of a model. As it was,
        it is taken again; so is what stands beside results of an earlier version."""
        self.world.model = self.plain
        text = self.world.text
        for name, train, model, weights in (("whole", "", "{task: student}", "model.safetensors"), ("adapted", ", adapter: {rank: 2}", "{task: student}", "adapter_model.safetensors"),
                                            ("beside-base", ", adapter: {rank: 2}", f"{{path: {self.plain}, adapter: {self.folder}/runs/beside-base/student}}", "adapter_model.safetensors")):
            with self.subTest(name):
                tasks = (f"  - {{task: train, dataset: {{path: {self.world.data}, limit: 4}}, train: {{steps: 1, max_length: 32{train}}}}}\n"
                         f"  - {{task: generate, name: texts, model: {model}, dataset: {{path: {self.world.data}, limit: 2}}, max_new_tokens: 2}}\n")
                self.world.text = text.split("  - task:")[0] + tasks.replace("{", "{{").replace("}", "}}")
                try:
                    student = self.run_it(name)
                    texts = self.world.results(name).with_name("texts.h5")
                    with h5py.File(self.world.results(name)) as file:
                        trained, files = (file.attrs[f"model_folder_{which}sha256"].decode() for which in ("", "files_"))
                    if name == "whole":
                        self.assertEqual(trained, self.lines_sha256(student, ("config.json", weights, "tokenizer.json")))
                        self.assertEqual(files, self.lines_sha256(student, sorted({path.name for path in student.iterdir()} - {"config.json", weights})))
                    for changed in (weights, "config.json" if name == "whole" else "adapter_config.json", "tokenizer_config.json"):
                        content = (student / changed).read_bytes()
                        middle = len(content) // 2
                        other = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:] if changed == weights else content + b" "
                        (student / changed).write_bytes(other)
                        for ranks in (0, 2) if changed == weights else (0,):
                            done = self.world.run(name, ranks)
                            self.assertEqual(done.returncode, 65, done.stderr)
                            for word in (str(student), files if changed == "tokenizer_config.json" else trained, "--fresh", "as a copy elsewhere"):
                                self.assertIn(word, done.stderr)
                            texts.unlink(missing_ok=True)
                        copy = student.with_name("copy")
                        shutil.copytree(student, copy)
                        if name == "whole":
                            kept, self.world.text = self.world.text, self.world.text.replace("{{task: student}}", f"{{{{path: {copy}}}}}")
                            self.run_it(name)
                            self.world.text = kept
                        texts.unlink(missing_ok=True)
                        shutil.rmtree(copy)
                        (student / changed).write_bytes(content)
                        self.run_it(name)
                    (student / weights).write_bytes((student / weights).read_bytes()[:-1] + b"\0")
                    with h5py.File(self.world.results(name), "r+") as file:
                        del file.attrs["model_folder_sha256"], file.attrs["model_folder_files_sha256"]
                    texts.unlink()
                    self.run_it(name)
                finally:
                    self.world.text = text


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
