"""Scores of a reward model for texts behind prompts: of a generate task (`answers`), plain and as chats, against transformers' *ForSequenceClassification;
common beginnings are computed once with the same bits; the same bytes on any number of ranks and after kills; `evaluate` reads them.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
from tokenizers import Tokenizer

import tiny_world
from score_runs import ScoreRuns
from score_test import MODELS, make_classifier

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0]
TEXTS = """  - task: generate
    dataset: {{path: {data}, key: id}}
    max_new_tokens: 9
    max_prompt_length: 512
    n: 5
"""
SCORE = """  - task: score
    dataset: {{path: {data}, key: id}}
    answers: answers
    max_length: 600
    unit_tokens: 700
    model: {{path: {folder}/{reward}, dtype: f32}}
"""
EVALUATE = """  - task: evaluate
    scores: score
    evaluate: {{pass_at: [1, 5], threshold: {threshold}}}
"""
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


class ScoreAnswers(ScoreRuns, tiny_world.Refusals):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=12, text=HEAD + TEXTS, results=("score.h5",))
        cls.language_model = cls.world.model
        cls.tokenizer = Tokenizer.from_file(str(cls.language_model / "tokenizer.json"))
        cls.models = {name: make_classifier(cls.folder / name, cls.language_model / "tokenizer.json", kind, changes) for name, (kind, changes) in MODELS.items()}
        source = random.Random(2)
        cls.prompts = [" ".join(source.choice(tiny_world.WORDS) for _ in range(words)) for words in (3, 30, 45, 1, 60, 31, 30, 2)]
        cls.plain = cls.folder / "prompts.jsonl"
        cls.plain.write_text("".join(json.dumps({"id": f"p{i}", "text": text}) + "\n" for i, text in enumerate(cls.prompts)))

    def setUp(self):
        self.world.model, self.world.data = self.language_model, self.plain
        self.world.names = ("score.h5",)

    def text(self, *parts, reward="reward", threshold=0.0):
        text = HEAD + "".join(parts)
        return text.replace("{folder}", str(self.folder)).replace("{reward}", reward).replace("{threshold}", str(threshold))

    def scores(self, name, ranks=1, *arguments, **environment):
        self.world.complete(name, ranks, *arguments, **environment)
        with h5py.File(self.world.results(name)) as file:
            return {path: file[path][()] for path in ("score/value", "score/num_tokens", "tokens/id", "samples/key")}

    def answers(self, name):
        with h5py.File(self.world.results(name).with_name("answers.h5")) as file:
            return [text.decode() for text in file["generate/text"][:]], numpy.diff(file["samples/offset"][:])

    def test_texts_of_a_generate_task(self):
        self.world.text, self.world.names = self.text(TEXTS, SCORE), ("answers.h5", "score.h5")
        found = self.scores("one")
        texts, lengths = self.answers("one")
        self.assertEqual(len(texts), 40)
        ids = [self.tokenizer.encode(self.prompts[i // 5] + text).ids for i, text in enumerate(texts)]
        self.assertEqual(found["tokens/id"].tolist(), sum(ids, []))
        want = self.expected(self.models["reward"], ids)[:, 0]
        print(f"largest difference {numpy.abs(found['score/value'] - want).max():.1e}, values from {want.min():.2f} to {want.max():.2f}")
        numpy.testing.assert_allclose(found["score/value"], want, atol=1e-5)
        self.assertGreater(want.std(), 0.3)
        self.assertEqual([key.decode() for key in found["samples/key"]], [f"p{i // 5}" for i in range(40)])
        self.assertEqual(found["score/num_tokens"].tolist(), lengths.tolist())
        first = self.world.sha256("one")
        for ranks, point in ((3, ""), (2, "score.unit.computed@1:kill"), (1, "generate.record.done@2:kill")):
            self.world.forget("one")
            if point:
                self.assertNotEqual(self.world.run("one", 2, MAGISTER_FAIL_POINT=point).returncode, 0, point)
            self.world.complete("one", ranks)
            self.assertEqual(self.world.sha256("one"), first)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("one")], check=True, capture_output=True)

    def test_groups_of_several_sizes(self):
        """Texts and their scores, on CPUs and in the GPU's kernels: any number of groups of each size writes the same bytes, after a kill, too; scores are those of
        groups of one within their limit."""
        self.world.text, self.world.names = self.text(TEXTS.replace("n: 5", "n: 2"), SCORE.replace("unit_tokens: 700", "unit_tokens: 150")), ("answers.h5", "score.h5")
        for device, environment in (("cpu", {}), ("gpu", {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
            name, found = f"sizes-{device}", []
            alone = self.scores(f"{name}-alone", 1, **environment)
            for ranks, point in ((3, ""), (5, ""), (4, "score.unit.computed@2:kill")):
                self.world.forget(name)
                if point:
                    self.assertNotEqual(self.world.run(name, ranks, "layout.gpus_per_group=[2,1]", MAGISTER_FAIL_POINT=point, **environment).returncode, 0)
                got = self.scores(name, ranks, "layout.gpus_per_group=[2,1]", **environment)
                found.append(self.world.sha256(name))
            self.assertEqual(found[1:], found[:1] * 2, name)
            numpy.testing.assert_array_equal(got["tokens/id"], alone["tokens/id"])
            numpy.testing.assert_allclose(got["score/value"], alone["score/value"], atol=1e-4)
            self.assertFalse(numpy.array_equal(got["score/value"], alone["score/value"]), "both sizes have the same bits: nothing was shown")

    def test_evaluate_reads_them(self):
        self.world.text, self.world.names = self.text(TEXTS, SCORE), ("answers.h5", "score.h5")
        middle = float(numpy.median(self.scores("middle")["score/value"]))
        self.world.text, self.world.names = self.text(TEXTS, SCORE, EVALUATE, threshold=middle), ("answers.h5", "score.h5", "evaluation.h5")
        self.world.complete("evaluated", 2)
        values = self.values_of("evaluated")
        right = (values.reshape(8, 5) >= middle).sum(1)
        self.assertTrue(0 < right.sum() < 40)
        with h5py.File(self.world.results("evaluated")) as file:
            self.assertEqual(file["evaluate/correct"][()].reshape(-1).tolist(), (values.reshape(8, 5)[:, 0] >= middle).tolist())
            numpy.testing.assert_allclose(file["evaluate/pass_at"][()].reshape(8, 2), numpy.stack([right / 5, right > 0], 1), atol=1e-6)

    def values_of(self, name):
        with h5py.File(self.world.results(name).with_name("score.h5")) as file:
            return file["score/value"][()]

    def test_chats(self):
        self.world.data = self.folder / "chats.jsonl"
        self.world.data.write_text("".join(json.dumps({"id": f"p{i}", "m": [{"role": "user", "content": text}]}) + "\n" for i, text in enumerate(self.prompts)))
        (self.folder / "template.jinja").write_text(TEMPLATE)
        chats = (TEXTS + SCORE).replace("key: id", "key: id, messages: m").replace("path: {folder}/{reward}", "path: {folder}/{reward}, chat_template: {folder}/template.jinja")
        self.world.text = self.text(chats).replace("model: {{path: {model}", f"model: {{{{chat_template: {self.folder}/template.jinja, path: {{model}}")
        self.world.names = ("answers.h5", "score.h5")
        found = self.scores("chats", 2)
        texts, _ = self.answers("chats")
        ids = [self.tokenizer.encode(f"user: {self.prompts[i // 5]}\nassistant: {text}\n").ids for i, text in enumerate(texts)]
        numpy.testing.assert_allclose(found["score/value"], self.expected(self.models["reward"], ids)[:, 0], atol=1e-5)

    def test_common_beginnings_change_no_bit(self):
        """Equal texts, a text that begins its neighbour, prompts of any length with several ends: every kind of block, on shards and threads."""
        source = random.Random(5)
        records = []
        for number in range(14):
            prompt = [source.choice(tiny_world.WORDS) for _ in range(source.randint(10, 70))]
            for _ in range(source.randint(1, 5)):
                records.append(" ".join(prompt + [source.choice(tiny_world.WORDS) for _ in range(source.choice((0, 0, 1, 4, 40)))]))
        self.world.data = self.folder / "shared.jsonl"
        self.world.data.write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(records)))
        ids = [self.tokenizer.encode(text).ids[:400] for text in records]
        alike = sum(a[:48] == b[:48] for a, b in zip(ids, ids[1:]) if min(len(a), len(b)) > 48)
        self.assertGreater(alike, 15)
        for name, model in self.models.items():
            self.world.text = self.text("""  - task: score
    dataset: {{path: {data}, key: id}}
    max_length: 400
    unit_tokens: 2000
    model: {{path: {folder}/{reward}, dtype: f32}}
""", reward=name)
            alone = self.value_of(f"{name}-alone", "tasks.0.share_prefixes=false")
            numpy.testing.assert_allclose(alone, self.expected(model, ids).reshape(alone.shape), atol=1e-5)
            numpy.testing.assert_array_equal(self.value_of(f"{name}-shared", OMP_NUM_THREADS="3"), alone)
            if name in ("llama", "gemma2"):
                two = self.value_of(f"{name}-two", "layout.shards_per_rank=3", "tasks.0.share_prefixes=false")
                numpy.testing.assert_array_equal(self.value_of(f"{name}-two-shared", "layout.shards_per_rank=3"), two)
            if name in ("llama", "gemma2"):
                on_host = dict(MAGISTER_GPU_CODE_ON_HOST="1")
                for shards in (1, 2):
                    keys = [f"layout.shards_per_rank={shards}"]
                    gpu = self.value_of(f"{name}-gpu{shards}-alone", "tasks.0.share_prefixes=false", *keys, **on_host)
                    numpy.testing.assert_allclose(gpu, alone, atol=1e-4)
                    numpy.testing.assert_array_equal(self.value_of(f"{name}-gpu{shards}", *keys, **on_host), gpu)

    def value_of(self, name, *arguments, **environment):
        self.world.complete(name, 0, *arguments, **environment)
        return self.values_of(name)

    def test_what_is_refused(self):
        self.world.text = self.text(TEXTS, SCORE)
        self.world.names = ("score.h5",)
        self.refused("nobody", 78, "did you mean answers?", overrides=("tasks.1.answers=answer",))
        self.refused("long", 65, "overflow", overrides=("tasks.1.max_length=20", "tasks.1.overflow=error"))
        self.refused("language", 78, "head of labels", overrides=(f"tasks.1.model.path={self.language_model}",))
        self.world.data = self.folder / "tokens.jsonl"
        self.world.data.write_text("".join(json.dumps({"id": f"p{i}", "text": text, "t": [1, 2]}) + "\n" for i, text in enumerate(self.prompts)))
        self.refused("ids", 78, "dataset.tokens gives ids", overrides=("tasks.1.dataset.tokens=t",))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
