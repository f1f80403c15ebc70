"""task: score against transformers' *ForSequenceClassification, record by record without padding: values, labels, which token the head
reads; the same bytes on any number of ranks, shards and after a kill; models of the other kind are refused.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, processors

import tiny_world
from score_runs import ScoreRuns

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: score
    dataset: {{path: {data}, key: id}}
    max_length: 200
    unit_tokens: 64
"""
SIZES = dict(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
             max_position_embeddings=4096)
# pad_token_id 10 is a token of the texts: a record may end in what other programs take for padding.
MODELS = {"llama": ("llama", dict(num_labels=3, id2label={0: "bad", 1: "so \"so\"", 2: "good"}, label2id={"bad": 0, "so \"so\"": 1, "good": 2}, pad_token_id=0)),
          "reward": ("qwen2", dict(num_labels=1, pad_token_id=10)),
          "unpadded": ("mistral", dict(num_labels=2, pad_token_id=None, sliding_window=16)),
          "gemma2": ("gemma2", dict(num_labels=2, head_dim=16, query_pre_attn_scalar=16, final_logit_softcapping=1.0, sliding_window=16, pad_token_id=0)),
          "phi3": ("phi3", dict(num_labels=1, pad_token_id=10, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
          "qwen3": ("qwen3", dict(num_labels=5, head_dim=16, pad_token_id=10, tie_word_embeddings=True))}


def make_classifier(folder, tokenizer, kind, changes, seed=3):
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **changes})
    model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
    tiny_models.fill(model, seed)
    with torch.no_grad():
        model.score.weight.copy_(torch.randn(model.score.weight.shape, generator=torch.Generator().manual_seed(seed)) / SIZES["hidden_size"] ** 0.5)
    model.save_pretrained(folder)
    shutil.copy(tokenizer, folder / "tokenizer.json")
    return model


def make_world(folder):
    """A data set without empty records, whose tokenizer is that of the language model beside it."""
    world = tiny_world.World(folder, records=60, text=EXPERIMENT, results=("score.h5",))
    records = [json.loads(line) for line in world.data.read_text().splitlines()]
    world.data.write_text("".join(json.dumps(record) + "\n" for record in records if record["text"]))
    return world


class Score(ScoreRuns):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = make_world(cls.folder)
        cls.language_model = cls.world.model
        # Two records end in the token that a model here pads with.
        tokenizer = Tokenizer.from_file(str(cls.language_model / "tokenizer.json"))
        records = [json.loads(line) for line in cls.world.data.read_text().splitlines()]
        for record in records[3:5]:
            record["text"] += tokenizer.decode([10]) * 2
        cls.world.data.write_text("".join(json.dumps(record) + "\n" for record in records))
        cls.records, cls.tokenizer = records, tokenizer
        cls.models = {}
        for name, (kind, changes) in MODELS.items():
            cls.models[name] = make_classifier(cls.folder / name, cls.language_model / "tokenizer.json", kind, changes)

    def ids(self):
        return [self.tokenizer.encode(record["text"]).ids[:200] for record in self.records]

    def test_values_and_labels(self):
        self.assertEqual(sum(ids[-1] == 10 for ids in self.ids()), 2)
        for name, model in self.models.items():
            got, want = self.values(name, name), self.expected(model, self.ids())
            self.assertEqual(got.shape, want.shape[:1] if want.shape[1] == 1 else want.shape)
            difference = numpy.abs(got.reshape(want.shape) - want).max()
            print(f"{name}: largest difference {difference:.1e}, values from {want.min():.2f} to {want.max():.2f}")
            self.assertGreater(want.std(), 0.5)
            self.assertLess(difference, 1e-5)
            self.assertEqual(self.labels, [model.config.id2label[i] for i in range(model.config.num_labels)])
            subprocess.run([tiny_world.PROGRAM, "check", self.world.results(name)], check=True, capture_output=True)

    def test_a_damaged_file(self):
        self.values("damaged", "llama")
        path = self.world.results("damaged")
        with h5py.File(path) as file:
            at = file["score/value"].id.get_offset()
        content = bytearray(path.read_bytes())
        content[at + 12:at + 16] = numpy.float32("nan").tobytes()
        path.write_bytes(content)
        done = subprocess.run([tiny_world.PROGRAM, "check", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 65)
        self.assertIn("the score of sample 1 is nan", done.stdout)

    def test_functions(self):
        want = self.expected(self.models["llama"], self.ids())
        softmax = self.values("softmax", "llama", 1, "tasks.0.function=softmax")
        numpy.testing.assert_allclose(softmax, torch.tensor(want).softmax(1).numpy(), atol=1e-5)
        sigmoid = self.values("sigmoid", "reward", 1, "tasks.0.function=sigmoid")
        numpy.testing.assert_allclose(sigmoid, torch.tensor(self.expected(self.models["reward"], self.ids())).sigmoid().numpy()[:, 0], atol=1e-5)

    def test_units_ranks_and_kills_change_nothing(self):
        one = self.check_ranks_and_kills("llama", (2, 4, 3), 4)
        # Another number of records at once: not a bit differs.
        numpy.testing.assert_array_equal(self.values("big", "llama", 1, "tasks.0.unit_tokens=4096"), one)
        for shards in (2, 3):
            numpy.testing.assert_allclose(self.values(f"shards-{shards}", "llama", 1, f"layout.shards_per_rank={shards}"), one, atol=1e-5)

    def test_other_ways_in(self):
        self.world.model = self.folder / "llama"
        want = self.expected(self.models["llama"], self.ids())
        tokens, chats = self.folder / "tokens.jsonl", self.folder / "chats.jsonl"
        tokens.write_text("".join(json.dumps({"id": record["id"], "t": ids}) + "\n" for record, ids in zip(self.records, self.ids())))
        got = self.values("tokens", "llama", 1, f"tasks.0.dataset.path={tokens}", "tasks.0.dataset.tokens=t")
        numpy.testing.assert_allclose(got, want, atol=1e-5)
        chats.write_text("".join(json.dumps({"id": record["id"], "m": [{"role": "user", "content": record["text"]}]}) + "\n" for record in self.records[:9]))
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"
        (self.folder / "template.jinja").write_text(template)
        got = self.values("chats", "llama", 1, f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m", f"model.chat_template={self.folder}/template.jinja")
        ids = [self.tokenizer.encode("user: " + record["text"]).ids[:200] for record in self.records[:9]]
        numpy.testing.assert_allclose(got, self.expected(self.models["llama"], ids), atol=1e-5)

    def test_a_cut_text_keeps_its_end_token(self):
        """The head reads the last token: the end that the tokenizer adds stays, as transformers' truncation has it."""
        ended = self.folder / "ended"
        shutil.copytree(self.folder / "llama", ended)
        tokenizer = Tokenizer.from_file(str(ended / "tokenizer.json"))
        end = tokenizer.token_to_id("<|end|>")
        tokenizer.post_processor = processors.TemplateProcessing(single="$A <|end|>", special_tokens=[("<|end|>", end)])
        tokenizer.save(str(ended / "tokenizer.json"))
        self.world.model = ended
        tokenizer.enable_truncation(max_length=16)
        ids = [tokenizer.encode(record["text"]).ids for record in self.records]
        self.assertTrue(all(one[-1] == end for one in ids) and any(len(one) == 16 for one in ids))
        got = self.values("ended", "ended", 1, "tasks.0.max_length=16")
        numpy.testing.assert_allclose(got, self.expected(self.models["llama"], ids), atol=1e-5)

    def test_a_text_is_cut_where_the_tokenizer_says(self):
        """truncation_side of tokenizer_config.json: what stays is transformers' own, of texts with BOS and end token, and of chats."""
        left = self.folder / "left"
        shutil.copytree(self.folder / "llama", left)
        tokenizer = Tokenizer.from_file(str(left / "tokenizer.json"))
        end = tokenizer.token_to_id("<|end|>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<|end|> $A <|end|> <|end|>", special_tokens=[("<|end|>", end)])
        tokenizer.save(str(left / "tokenizer.json"))
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        chats = self.folder / "chats.jsonl"
        chats.write_text("".join(json.dumps({"id": record["id"], "m": [{"role": "user", "content": record["text"]}]}) + "\n" for record in self.records))
        for side in ("left", "right"):
            (left / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "truncation_side": side, "chat_template": template}))
            reference = transformers.AutoTokenizer.from_pretrained(left)
            self.assertEqual(reference.truncation_side, side)
            self.world.model = left
            ids = [reference(record["text"], truncation=True, max_length=16).input_ids for record in self.records]
            self.assertTrue(any(len(one) == 16 for one in ids))
            got = self.values(f"cut-{side}", "left", 1, "tasks.0.max_length=16")
            numpy.testing.assert_allclose(got, self.expected(self.models["llama"], ids), atol=1e-5)
            ids = [reference.apply_chat_template([{"role": "user", "content": record["text"]}], truncation=True, max_length=16, return_dict=True)["input_ids"]
                   for record in self.records]
            got = self.values(f"chats-{side}", "left", 1, f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m", "tasks.0.max_length=16")
            numpy.testing.assert_allclose(got, self.expected(self.models["llama"], ids), atol=1e-5)

    def test_gpu_code_in_halves(self):
        """The GPU's code on the host; a pass that finds no memory is cut in two, with the same values."""
        whole = self.values("gpu", "llama", 1, "tasks.0.max_length=24", MAGISTER_GPU_CODE_ON_HOST="1")
        halves = self.values("gpu-halves", "llama", 1, "tasks.0.max_length=24", MAGISTER_GPU_CODE_ON_HOST="1",
                             MAGISTER_FAIL_POINT="score.pass.memory@1:enospc")
        numpy.testing.assert_array_equal(whole, halves)
        # Units of more than 4,096 tokens go through one by one, others several at a time.
        single = self.values("gpu-single", "llama", 1, "tasks.0.max_length=24", "tasks.0.unit_tokens=5000", MAGISTER_GPU_CODE_ON_HOST="1")
        numpy.testing.assert_array_equal(whole, single)
        want = self.expected(self.models["llama"], [ids[:24] for ids in self.ids()])
        numpy.testing.assert_allclose(whole, want, atol=1e-4)

    def refused(self, name, code, *words, task="score", **changes):
        self.world.model = changes.pop("model", self.folder / "llama")
        name = f"refused-{name}"
        text, self.world.text = self.world.text, EXPERIMENT.replace("task: score", f"task: {task}")
        for key, value in changes.items():
            self.world.text += f"    {key}: {value}\n"
        try:
            done = self.world.run(name, 2)
        finally:
            self.world.text = text
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(self.world.results(name).exists())

    def spoiled(self, change):
        folder = self.folder / "spoiled"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "llama", folder)
        config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
        change(config, weights)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(weights, folder / "model.safetensors")
        return folder

    def test_what_is_refused(self):
        self.refused("lm", 78, "is a language model", "head of labels", model=self.language_model)
        self.refused("teacher", 78, "is a classifier of 3 labels", "task: score", task="teacher_logits")
        self.refused("softmax", 78, "softmax", "one label", model=self.folder / "reward", function="softmax")
        self.refused("function", 78, "tasks.0.function", function="tanh")
        self.refused("long", 65, "overflow", overflow="error")
        empty = self.folder / "empty.jsonl"
        empty.write_text(json.dumps({"id": "a", "text": ""}) + "\n")
        data, self.world.data = self.world.data, empty
        self.refused("empty", 65, "empty.jsonl:1")
        self.world.data = data
        head = "score.weight"
        self.refused("no-head", 65, f"tensor {head} is missing", model=self.spoiled(lambda config, weights: weights.pop(head)))
        self.refused("two-heads", 65, f"tensor {head} is [3, 48], the config asks for [2, 48]",
                     model=self.spoiled(lambda config, weights: config.update(id2label={"0": "a", "1": "b"})))
        self.refused("names", 65, "id2label", model=self.spoiled(lambda config, weights: config.update(id2label={"0": "a", "2": "b"})))
        self.refused("nan", 65, "the head", model=self.spoiled(lambda config, weights: weights[head].__setitem__((1, 2), float("nan"))))
        self.refused("quantised", 78, "quantization_loss",
                     model=str(self.folder / "llama") + ", quantization: int8, quantization_group: 0, quantization_loss: 64")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
