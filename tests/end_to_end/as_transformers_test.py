"""What transformers does before a model sees a token, through whole runs: keys of messages that are null are none, templates have all named
tokens, files beside tokenizer.json name tokens, and every window of a long text has the tokens that the tokenizer adds. Oracle: AutoTokenizer and
the model of transformers on the same folder.
"""
import json
import pathlib
import shutil
import tempfile
import unittest

import h5py
import numpy
import pyarrow
import pyarrow.parquet
import torch
import transformers
from tokenizers import Tokenizer, processors

import tiny_world

transformers.logging.set_verbosity_error()
CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}{% if m.tool_calls is defined %}<tool_call>{{ m.tool_calls[0].function.name }}</tool_call>"
          "{% endif %}{% if 'reasoning_content' in m %}<think>{{ m.reasoning_content }}</think>{% endif %}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
NAMES = "".join(f"[{{{{ {name} }}}}]" for name in ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token", "image_token")) + CHATML
CALL = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": "{}"}}]}
CHATS = [[{"role": "user", "content": "a plan"}, CALL, {"role": "tool", "content": "3"}, {"role": "assistant", "content": "It is 3."}],
         [{"role": "user", "content": "the unit"}, {"role": "assistant", "content": "a", "reasoning": "of", "reasoning_content": None}]]
# As a table with one schema has them: every key in every message.
TABLE = [[dict.fromkeys(("content", "tool_calls", "reasoning_content", "reasoning")) | message for message in chat] for chat in CHATS]
EXTRA = {"content": "<|extra|>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}


class AsTransformers(unittest.TestCase, tiny_world.Refusals):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.world = tiny_world.World(self.folder, records=12)

    def tokenizer(self, single=None, rows=None, **config):
        """Changes the model's folder -> its AutoTokenizer. rows: of the model."""
        if rows:
            shutil.rmtree(self.world.model)
            tiny_world.make_model(self.world.model, vocab_size=rows)
        if single:
            path = str(self.world.model / "tokenizer.json")
            changed = Tokenizer.from_file(path)
            changed.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<|end|>", changed.token_to_id("<|end|>")), ("Ł", changed.token_to_id("Ł"))])
            changed.save(path)
        (self.world.model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend"} | config))
        return transformers.AutoTokenizer.from_pretrained(str(self.world.model))

    def samples(self, name, *overrides):
        self.world.complete(name, 0, *overrides)
        with h5py.File(self.world.results(name)) as file:
            offset, ids = file["samples/offset"][:].astype(int), file["tokens/id"][:]
            return [ids[begin:end].tolist() for begin, end in zip(offset, offset[1:])]

    def another_experiment(self, name, *overrides):
        done = self.world.run(name, 0, *overrides)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("another experiment", done.stderr)

    def chats_of(self, records, kind):
        path = self.folder / f"chats.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
        else:
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return [f"tasks.0.dataset.path={path}", "tasks.0.dataset.messages=m"]

    def test_null_keys_of_messages(self):
        expected = self.tokenizer(chat_template=CHATML)
        for kind, chats in (("jsonl", CHATS), ("jsonl", TABLE), ("parquet", TABLE)):
            with self.subTest(kind, keys=len(chats[0][0])):
                data = self.chats_of([{"id": str(i), "m": chat} for i, chat in enumerate(chats)], kind)
                want = [expected.apply_chat_template(chat, return_dict=False) for chat in chats]
                self.assertNotIn("None", expected.decode(sum(want, [])))
                self.assertEqual(self.samples("nulls", *data, "--fresh"), want)
        self.chats_of([{"id": "a", "m": []}], "jsonl")
        self.refused("empty", 65, "empty list", overrides=data[1:] + [f"tasks.0.dataset.path={self.folder}/chats.jsonl"])

    def test_records_with_images(self):
        """A template may write a mark for an image, which the model would never see."""
        self.tokenizer(chat_template="{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' else 'Ł' }}{% endfor %}{% endfor %}")
        text = {"type": "text", "text": "a plan"}
        self.assertTrue(self.samples("texts", *self.chats_of([{"id": "a", "m": [{"role": "user", "content": [text | {"image": None}]}]}], "jsonl")))
        for kind, part in (("image", {"type": "image", "url": "a.png"}), ("image_url", {"type": "image_url", "image_url": {"url": "a.png"}}),
                           ("image", {"image": "a.png"}), ("video", {"type": "video", "video": "a.mp4"})):
            data = self.chats_of([{"id": "a", "m": [{"role": "user", "content": [text, part]}]}], "jsonl")
            self.refused("seen", 65, f"a part of the type {kind} ", overrides=data)

    def test_null_keys_in_other_tasks(self):
        """Whatever a task does with chats: rows are those of the chats without such keys."""
        expected = self.tokenizer(chat_template=CHATML)
        tasks = [{"task": "generate", "max_new_tokens": 3, "max_prompt_length": 400, "n": 2},
                 {"task": "train", "name": "sft", "train": {"epochs": 1, "max_length": 400, "global_batch": 2, "save_every": 100}},
                 *({"task": "train", "name": objective, "objective": objective, "train": {"epochs": 1, "max_length": 400, "global_batch": 2, "save_every": 100}} for objective in ("dpo", "reward"))]
        found = []
        for name, chats in (("table", TABLE), ("plain", CHATS)):
            pairs = [{"id": str(i), "m": chat, "prompt": chat[:-1], "chosen": chat[-1:], "rejected": [chat[-1] | {"content": "the plan"}]} for i, chat in enumerate(chats)]
            path = self.chats_of(pairs, "jsonl")[0].partition("=")[2]
            for task in tasks: task["dataset"] = {"path": path, "key": "id"} | ({} if task.get("objective") else {"messages": "m"})
            content = {"name": name, "seed": 1, "output": {"directory": str(self.folder / "runs")}, "model": {"path": str(self.world.model)}, "layout": {"devices": "cpu"}, "tasks": tasks}
            self.world.text = json.dumps(content).replace("{", "{{").replace("}", "}}")
            self.world.names = ("answers.h5", "sft.h5", "dpo.h5", "reward.h5")
            self.world.complete(name, 0)
            found.append({})
            for file_name in self.world.names:
                with h5py.File(self.folder / "runs" / name / file_name) as file:
                    file.visititems(lambda path, item, file_name=file_name: found[-1].update({f"{file_name}:{path}": str(item[()].tolist())}) if isinstance(item, h5py.Dataset) else None)
            with h5py.File(self.folder / "runs" / name / "answers.h5") as file:
                prompts = [len(expected.apply_chat_template(chat, return_dict=False, add_generation_prompt=True)) for chat in chats]
                self.assertEqual(file["generate/prompt_tokens"][::2].tolist(), prompts)
            with h5py.File(self.folder / "runs" / name / "sft.h5") as file:
                self.assertEqual(file["train/tokens"][:].sum(), sum(len(expected.apply_chat_template(chat, return_dict=False)) - 1 for chat in chats))
        self.assertEqual(*found)

    def test_tokens_of_templates(self):
        named = {"bos_token": "<|end|>", "pad_token": "Ł", "unk_token": "ł", "sep_token": "Ń", "image_token": "ľ"}  # stand-ins of bytes: in the vocabulary, in no text
        expected = self.tokenizer(chat_template=NAMES, **named)
        data = self.chats_of([{"id": "a", "m": CHATS[0]}], "jsonl")
        self.assertEqual(self.samples("names", *data), [expected.apply_chat_template(CHATS[0], return_dict=False)])
        (self.world.model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend", "chat_template": NAMES} | named | {"pad_token": "Ľ"}))
        self.another_experiment("names", *data)

    def test_tokens_beside_tokenizer_json(self):
        expected = self.tokenizer(rows=321, added_tokens_decoder={"320": EXTRA}, chat_template="{% for m in messages %}{{ m.content }} <|extra|>{% endfor %}")
        self.assertEqual(expected.convert_tokens_to_ids("<|extra|>"), 320)
        chat = [{"role": "user", "content": "a plan"}]
        data = self.chats_of([{"id": "a", "m": chat}], "jsonl")
        self.assertEqual(self.samples("chat", *data), [expected.apply_chat_template(chat, return_dict=False)])
        (self.folder / "texts.jsonl").write_text('{"id": "a", "text": "the  <|extra|> unit<|extra|>"}\n')
        texts = f"tasks.0.dataset.path={self.folder}/texts.jsonl"
        self.assertEqual(self.samples("text", texts), [expected("the  <|extra|> unit<|extra|>").input_ids])
        (self.world.model / "tokenizer_config.json").write_text("{}")
        self.another_experiment("text", texts)

    def test_a_token_without_a_row(self):
        """A padding token that no text has hinders nothing, as in transformers; a record with it is refused before any work."""
        expected = self.tokenizer(added_tokens_decoder={"320": EXTRA})
        texts = [json.loads(line)["text"] for line in open(self.world.data, encoding="utf-8")]
        found = self.samples("beyond")  # cut at max_length
        self.assertEqual(found, [ids[:len(sample)] for ids, sample in zip(expected(texts).input_ids, found, strict=True)])
        self.assertGreater(max(map(len, found)), 100)
        (self.folder / "texts.jsonl").write_text('{"id": "a", "text": "a plan <|extra|>"}\n')
        self.refused("beyond-text", 65, "texts.jsonl:1", "token id 320 is outside the model's vocabulary of 320", overrides=[f"tasks.0.dataset.path={self.folder}/texts.jsonl"])

    def test_windows(self):
        texts = [json.loads(line)["text"] for line in open(self.world.data, encoding="utf-8")]
        model = transformers.AutoModelForCausalLM.from_pretrained(str(self.world.model)).eval()
        for single in ("$A", "<|end|> $A", "$A Ł", "<|end|> $A Ł"):
            expected = self.tokenizer(single=single)
            added = single.count(" ")
            for stride in (None, 10, 24):
                with self.subTest(single, stride=stride):
                    overlap = 24 - added - min(stride or 24, 24 - added)
                    want = expected(texts, truncation=True, max_length=24, stride=overlap, return_overflowing_tokens=True).input_ids
                    rules = ["tasks.0.overflow=window", "tasks.0.max_length=24", *([f"tasks.0.stride={stride}"] if stride else [])]
                    found = self.samples("windows", *rules, "--fresh")
                    self.assertEqual([ids for ids in found if ids], [ids for ids in want if ids])
                    self.assertGreater(len(want), len(texts) + 10)
            self.compare_rows(model)
        self.assertEqual(self.samples("short", "tasks.0.overflow=window", "tasks.0.max_length=3")[1], want[1][:1] + expected.encode(texts[0])[2:3] + want[1][-1:])
        self.refused("none", 78, "nothing of the text would be left", overrides=["tasks.0.overflow=window", "tasks.0.max_length=2"])

    def compare_rows(self, model):
        """A window's rows are the model's on that window alone: that of BOS predicts the window's first token, the last one nothing."""
        with h5py.File(self.world.results("windows")) as file:
            offset, ids, rows = file["samples/offset"][:].astype(int), file["tokens/id"][:].astype("i8"), file["teacher/target_logprob"][:]
        for begin, end in zip(offset, offset[1:]):
            if begin == end: continue
            with torch.no_grad(): logprobs = torch.log_softmax(model(torch.tensor(ids[None, begin:end])).logits[0], -1)
            want = logprobs[torch.arange(end - begin - 1), torch.tensor(ids[begin + 1:end])]
            numpy.testing.assert_allclose(rows[begin:end - 1], want, atol=2e-4)
            self.assertTrue(numpy.isnan(rows[end - 1]))

    def test_a_student_learns_from_windows(self):
        """Every token of a window but its first is learnt, the one behind BOS, too."""
        self.tokenizer(single="<|end|> $A")
        rules = "{{path: {data}, key: id}}, max_length: 24, overflow: window, top_k: 8"
        self.world.text = ("name: {name}\noutput: {{directory: {runs}}}\nmodel: {{path: {model}, dtype: f32}}\nlayout: {{devices: cpu}}\ntasks:\n"
                           f"  - {{{{task: teacher_logits, dataset: {rules}}}}}\n"
                           "  - {{task: train, objective: distill, teacher: {{task: teacher}}, train: {{epochs: 1, max_length: 24, global_batch: 8}}}}\n")
        self.world.names = ("teacher.h5", "student.h5")
        self.world.complete("student", 0)
        with h5py.File(self.world.folder / "runs/student/teacher.h5") as file:
            lengths = numpy.diff(file["samples/offset"][:].astype(int))
        with h5py.File(self.world.results("student")) as file:
            self.assertEqual(int(file["train/tokens"][:].sum()), int(numpy.maximum(lengths - 1, 0).sum()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
