"""Judges with a SentencePiece vocabulary (Llama 2's, as GGUF, tokenizer.json and tokenizer.model): a verdict's tokens are those that it has where it
stands. Oracles: transformers' tokenizer, and sentencepiece itself, on the prompt's text with each spelling behind it, of which the ids behind the
prompt's own are the verdict's; and transformers' logits. A set of verdicts that the judge does not mean to give is told, and counted as none.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import sentencepiece
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import tiny_world

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "runtime"))
import checkpoint_tokenizers_test as files  # noqa: E402
import gguf_reading  # noqa: E402

VOCABULARY = files.VOCABULARIES / "ggml-vocab-llama-spm.gguf"
WORDS = {"reference": ["yes", "no"], "simpleqa": ["A", "B", "C"], "rubric": ["1", "2", "3", "4", "5"], "pairwise": ["A", "B"], "choice": ["A", "B", "C", "D"]}
# The answer begins behind a line end, as Zephyr's does, or behind a bracket, as Llama 2's and Mistral's.
LINE_END = ("{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
BRACKET = "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
YES, BLANK, BLANK_YES, FIVE = 8241, 29871, 3869, 29945


def transformers_file(folder):
    """tokenizer.json as transformers makes it of the GGUF vocabulary, once a build: that takes 20 seconds."""
    name = hashlib.sha256(VOCABULARY.read_bytes()).hexdigest() + ".json"
    kept = pathlib.Path(os.environ.get("MAGISTER_BUILD_DIR", folder)) / "tests/spm-tokenizers" / name
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        making = kept.with_suffix(f".{os.getpid()}")
        with gguf_reading.in_memory():
            AutoTokenizer.from_pretrained(str(VOCABULARY.parent), gguf_file=VOCABULARY.name).backend_tokenizer.save(str(making))
        making.rename(kept)
    return kept


class SpmJudge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        cls.tokenizer_json = transformers_file(cls.folder)
        cls.model_bytes = files.sentencepiece(files.fields("llama-spm"))
        cls.transformers = Tokenizer.from_file(str(cls.tokenizer_json))
        cls.sentencepiece = sentencepiece.SentencePieceProcessor(model_proto=cls.model_bytes)
        cls.data = cls.folder / "data.jsonl"
        cls.records = [{"question": f"Is {i} even?", "answer": "yes", "references": ["yes", "even"][:1 + i % 2], "answer_a": "Yes.", "answer_b": "No.",
                        "options": ["a", "b", "c", "d"], "messages": [{"role": "user", "content": "Hello"}]} for i in range(3)]
        cls.data.write_text("".join(json.dumps(record) + "\n" for record in cls.records))
        cls.random = cls.model("random")

    @classmethod
    def model(cls, name, *says, kind="gguf"):
        """A tiny Llama; says: behind a first token it surely writes the second."""
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=32000, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4,
                             max_position_embeddings=1024, bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False)
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            if says:
                for layer in model.model.layers:
                    layer.self_attn.o_proj.weight.zero_()
                    layer.mlp.down_proj.weight.zero_()
            else:
                model.lm_head.weight.mul_(20)
            for before, then in says:
                model.lm_head.weight[then] = model.model.norm(model.model.embed_tokens.weight[before]) * 0.5
        folder = cls.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        return cls.with_tokenizer(folder, kind)

    @classmethod
    def with_tokenizer(cls, folder, kind):
        for name in ("tokenizer.gguf", "tokenizer.json", "tokenizer.model"):
            (folder / name).unlink(missing_ok=True)
        if kind == "gguf":
            shutil.copy(VOCABULARY, folder / "tokenizer.gguf")
        elif kind == "json":
            shutil.copy(cls.tokenizer_json, folder / "tokenizer.json")
        else:
            (folder / "tokenizer.model").write_bytes(cls.model_bytes)
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
        return folder

    def run_it(self, name, model, template, tasks, code=0):
        """-> (folder of the results, what was said)"""
        shutil.rmtree(self.folder / "runs" / name, ignore_errors=True)
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "output": {"directory": str(self.folder / "runs")}, "layout": {"devices": "cpu"},
                                    "model": {"path": str(model), "dtype": "f32", "chat_template": template}, "tasks": tasks}))
        done = subprocess.run([tiny_world.PROGRAM, "run", str(path)], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return self.folder / "runs" / name, done.stderr

    def task(self, mode, **keys):
        return {"task": "judge", "name": "verdicts", "dataset": {"path": str(self.data)}, "mode": mode, "max_prompt_length": 900, **keys}

    def behind(self, encode, end, word):
        """The ids of each spelling of a word behind a text that ends so, by joint encoding; the blank of its own is left out."""
        before = encode(end)
        found = set()
        for spelling in {word} if len(word) == 1 else {word, word.lower(), word.upper(), word.capitalize()}:
            for blank in ("", " "):
                both = encode(end + blank + spelling)
                self.assertEqual(both[:len(before)], before, "the prompt's own ids stay")
                found.add(both[len(before)])
        return found - {BLANK}

    def test_every_mode_equals_transformers(self):
        reference = AutoModelForCausalLM.from_pretrained(self.random, dtype=torch.float32).eval()
        encoders = {"transformers": lambda text: self.transformers.encode(text, add_special_tokens=False).ids, "sentencepiece": self.sentencepiece.encode}
        for kind in ("gguf", "json", "model"):
            self.with_tokenizer(self.random, kind)
            for template, end in ((LINE_END, "<|assistant|>\n"), (BRACKET, "word [/INST]")):
                tasks = [self.task(mode, name=mode, low_mass=0.0) for mode in WORDS]
                folder, _ = self.run_it("modes", self.random, template, tasks)
                for mode, words in WORDS.items():
                    sets = [self.behind(encoders["transformers"], end, word) for word in words]
                    self.assertEqual(sets, [self.behind(encoders["sentencepiece"], end, word) for word in words])
                    with h5py.File(folder / f"{mode}.h5") as file, torch.no_grad():
                        offset, ids = file["samples/offset"][:], file["tokens/id"][:]
                        for i in range(len(offset) - 1):
                            prompt = ids[offset[i]:offset[i + 1]].tolist()
                            self.assertEqual(prompt[-1], 13 if template == LINE_END else 29962)
                            row, ends_with_blank = (torch.log_softmax(reference(torch.tensor([prompt + more])).logits[0, -1].double(), 0) for more in ([], [BLANK]))
                            want = [torch.logsumexp(row[sorted(tokens)], 0) for tokens in sets]
                            if mode == "rubric":  # " 5" is the blank, and then "5"
                                want = [torch.logaddexp(one, row[BLANK] + torch.logsumexp(ends_with_blank[sorted(tokens)], 0)) for one, tokens in zip(want, sets)]
                            numpy.testing.assert_allclose(file["judge/class_logprob"][i], [float(one) for one in want], atol=1e-4)

    def test_a_surely_written_verdict_counts(self):
        """Which token the model writes, behind which end, is what the vocabulary says of the text."""
        for name, template, says, verdict in (("line", LINE_END, ((13, YES),), 0), ("bracket", BRACKET, ((29962, BLANK_YES),), 0),
                                              ("no-line", LINE_END, ((13, 3782),), 1)):
            model = self.model(name, *says)
            folder, said = self.run_it("sure", model, template, [self.task("reference"), self.task("reference", name="read", method="decode", read="word", max_new_tokens=1)])
            with h5py.File(folder / "verdicts.h5") as file:
                self.assertEqual(file["judge/verdict"][:].tolist(), [verdict] * 3, name)
                self.assertGreater(file["judge/mass"][:].min(), 0.99)
                self.assertEqual(file["judge/parse"][:].tolist(), [0] * 3)
            with h5py.File(folder / "read.h5") as file:
                self.assertEqual(file["judge/verdict"][:].tolist(), [verdict] * 3, "as the model writes")
                offset, ids, reply = file["samples/offset"][:], file["tokens/id"][:].tolist(), file["judge/reply_id"][:, 0].tolist()
                for i, text in enumerate(file["judge/reply"].asstr()):  # with its blank, as it stands behind the prompt
                    prompt = ids[offset[i]:offset[i + 1]]
                    before, whole = (self.transformers.decode(part, skip_special_tokens=True) for part in (prompt, prompt + [reply[i]]))
                    self.assertEqual(before + text, whole, name)
            self.assertNotIn("prompts leave the verdicts", said)
        for name, template, says in (("five", LINE_END, ((13, FIVE),)), ("blank-five", BRACKET, ((29962, BLANK), (BLANK, FIVE)))):
            for classes in (5, 10):
                folder, _ = self.run_it("sure", self.model(name, *says), template, [self.task("rubric", classes=classes)])
                with h5py.File(folder / "verdicts.h5") as file:
                    self.assertGreater(file["judge/mass"][:].min(), 0.99, (name, classes))
                    numpy.testing.assert_allclose(file["judge/expected"][:], 5, atol=0.01)

    def test_ten_behind_a_blank(self):
        """Llama 2 writes "10" behind its bracket as a blank, "1" and "0"."""
        model = self.model("ten", (29962, BLANK), (BLANK, 29896), (29896, 29900))
        folder, _ = self.run_it("ten", model, BRACKET, [self.task("rubric", classes=10)])
        with h5py.File(folder / "verdicts.h5") as file:
            numpy.testing.assert_allclose(file["judge/expected"][:], 10, atol=0.01)
            self.assertEqual(file["judge/verdict"][:].tolist(), [9] * 3)

    def test_the_cue_behind_a_reply_is_the_text_s_own(self):
        """`method: decode` with `read: score` puts the cue behind a reply that has none, as text goes on: no blank before its line end."""
        model = self.model("cue", (13, 1724), (1724, 2), (29901, YES))
        folder, _ = self.run_it("cue", model, LINE_END, [self.task("reference", method="decode", max_new_tokens=4)])
        behind = self.sentencepiece.encode("What\nVerdict:")[len(self.sentencepiece.encode("What")):]
        reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        with h5py.File(folder / "verdicts.h5") as file, torch.no_grad():
            offset, ids = file["samples/offset"][:2], file["tokens/id"][:]
            self.assertEqual(file["judge/reply_id"][0].tolist(), [1724, 2, -1, -1])
            context = ids[offset[0]:offset[1]].tolist() + [1724] + behind
            row = torch.log_softmax(reference(torch.tensor([context])).logits[0, -1].double(), 0)
            want = [float(torch.logsumexp(row[sorted(self.behind(self.sentencepiece.encode, "Verdict:", word))], 0)) for word in ("yes", "no")]
            numpy.testing.assert_allclose(file["judge/class_logprob"][0], want, atol=1e-4)
            self.assertEqual(file["judge/verdict"][:].tolist(), [0] * 3)

    def test_verdicts_that_are_not_meant_are_told(self):
        """The judge surely writes another word: no verdict, and log, summary and its table say so."""
        folder, said = self.run_it("other", self.model("other", (13, 1724)), LINE_END, [self.task("reference")])
        self.assertIn("3 of 3 prompts leave the verdicts together less than low_mass", said)
        summary = json.loads((folder / "verdicts.summary.json").read_text())
        self.assertIn("3 of 3 prompts", summary["warning"])
        self.assertEqual((summary["parse"]["low_mass"], summary["verdicts"]["no"]["count"], summary["verdicts"]["no"]["share"]), (3, 0, None))
        self.assertIn("warning", (folder / "verdicts.summary.csv").read_text())

    def test_a_judge_that_rewards(self):
        """The grades of a rollout's texts are those of the sure judge; one that means something else is told."""
        policy = self.random
        self.with_tokenizer(policy, "gguf")
        for name, says, want in (("line", ((13, YES),), 1), ("five", ((13, FIVE),), 5), ("other", ((13, 1724),), None)):
            judge = {"model": {"path": str(self.model(name, *says)), "dtype": "f32", "chat_template": LINE_END}, "mode": "rubric" if want == 5 else "reference", "max_prompt_length": 900}
            rollout = {"task": "rollout", "name": "rollouts", "dataset": {"path": str(self.data), "messages": "messages"}, "max_prompt_length": 100,
                       "max_new_tokens": 4, "cuts": 2, "n": 4, "reward": {"judge": judge}}
            folder, said = self.run_it("reward", policy, LINE_END, [rollout])
            with h5py.File(folder / "rollouts.h5") as file:
                rewards = file["rollout/reward"][:]
            if want is None:
                self.assertIn("of the judge's first 16 prompts leave its verdicts together less than 0.5", said)
            else:
                numpy.testing.assert_allclose(rewards, want, atol=0.01)
                self.assertNotIn("of the judge's first", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
