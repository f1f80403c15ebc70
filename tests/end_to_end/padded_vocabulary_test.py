"""A model with more rows than its tokenizer has tokens, as Qwen2.5, OLMo, Phi and Pythia are: it draws such ids, and they stay in the results with an
empty text, as transformers decodes them. Tried wherever tokens of the model become text; ids beyond the model's own rows are refused as before.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import h5py
from transformers import PreTrainedTokenizerFast

import tiny_world

sys.path.insert(0, str(tiny_world.ORACLE))
from chain_model import make_chain_model  # noqa: E402

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0].replace("layout:", "seed: 3\nlayout:")
ROWS = 440  # 320 of them have a token
PATTERN = "[aeiou]t|[0-9]"
TEXTS = {"task": "generate", "name": "texts", "max_new_tokens": 24, "n": 3, "temperature": 3.0, "max_prompt_length": 128}
TASKS = [
    TEXTS,
    {"task": "score", "name": "right", "answers": "texts", "score": {"verifier": "regex", "pattern": PATTERN}},
    {"task": "judge", "name": "words", "answers": "texts", "method": "decode", "read": "substring", "max_new_tokens": 24, "max_prompt_length": 512,
     "prompt": {"user": "{{ text }} {{ answer }}"}},
    {"task": "judge", "name": "reasons", "method": "decode", "read": "score", "max_new_tokens": 24, "max_prompt_length": 512, "prompt": {"user": "{{ text }}"}},
    {"task": "rollout", "name": "rollouts", "cuts": 2, "n": 2, "max_new_tokens": 16, "temperature": 3.0, "max_prompt_length": 128, "reward": {"verifier": "regex", "pattern": PATTERN}},
]
GRPO = {"task": "train", "name": "student", "objective": "grpo", "train": {"steps": 2, "global_batch": 8, "max_length": 256, "shuffle": False, "optimizer": {"lr": 1e-4}}}


class PaddedVocabulary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1, model=tiny_world.make_model(cls.folder / "model", vocab_size=ROWS), results=("texts.h5",))
        cls.world.data.write_text("".join(json.dumps({"id": f"r{i}", "text": " ".join(tiny_world.WORDS[i:2 * i + 3])}) + "\n" for i in range(8)))
        cls.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(cls.world.model / "tokenizer.json"), eos_token="<|end|>", clean_up_tokenization_spaces=False)
        assert len(cls.tokenizer) == 320 and cls.tokenizer.decode([400]) == ""
        cls.run_it("all", TASKS)

    @classmethod
    def run_it(cls, name, tasks, code=0):
        path = cls.folder / f"{name}.yaml"
        whole = [{"dataset": {"path": str(cls.world.data), "key": "id"}, **task} for task in tasks]
        path.write_text(HEAD.format(name=name, runs=cls.folder / "runs", model=cls.world.model) + "".join(f"  - {json.dumps(task)}\n" for task in whole))
        done = subprocess.run([tiny_world.PROGRAM, "run", str(path)], env=cls.world.environment, cwd=cls.folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}"
        return done.stderr

    def path(self, task, name="all"):
        return self.folder / "runs" / name / f"{task}.h5"

    def decoded(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True).replace("\0", "\ufffd")

    def texts(self, name="all"):
        with h5py.File(self.path("texts", name)) as file:
            offset, ids = file["samples/offset"][:], file["tokens/id"][:].tolist()
            return [(ids[a:b], text.decode(), int(reason)) for a, b, text, reason in zip(offset, offset[1:], file["generate/text"][:], file["generate/finish_reason"][:])]

    def is_padded(self, ids, at_least):
        self.assertGreaterEqual(sum(id >= len(self.tokenizer) for id in ids), at_least)
        self.assertLess(max(ids), ROWS)

    def test_texts_are_transformers(self):
        texts = self.texts()
        self.is_padded(sum((ids for ids, *_ in texts), []), 50)
        for ids, text, _ in texts:
            self.assertEqual(text, self.decoded(ids))
        for command in ("check", "export"):
            done = subprocess.run([tiny_world.PROGRAM, command, self.path("texts"), *(["--to", "jsonl"] if command == "export" else [])], capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(line["token_ids"], line["text"]) for line in lines], [(ids, text) for ids, text, _ in texts])
        said = subprocess.run([tiny_world.PROGRAM, "tokenize", self.world.model, "--decode"], input="".join(f"{ids}\n" for ids in ([97, 400, 2**31 - 1, 98], [400])), capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout, self.tokenizer.decode([97, 98]) + "\n\n")
        for line in ("[-1]", f"[{2**31}]", "[1.5]"):
            done = subprocess.run([tiny_world.PROGRAM, "tokenize", self.world.model, "--decode"], input=line, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 65, line)
            self.assertIn("is not a token id", done.stderr)

    def test_a_stop_text_around_them(self):
        """Many of them inside it: the text ends all the same with the token that completes it."""
        a, b = (self.tokenizer.convert_tokens_to_ids(token) for token in "ab")
        bias = [{"id": 400, "bias": 1000}, {"id": a, "bias": 800}, {"id": b, "bias": 800}]
        self.run_it("stopped", [{**TEXTS, "n": 5, "temperature": 100, "max_new_tokens": 120, "logit_bias": bias, "stop": ["ab"]}])
        wide = 0
        for ids, text, reason in self.texts("stopped"):
            whole = self.decoded(ids)
            self.assertNotIn("ab", self.decoded(ids[:-1]))
            self.assertEqual((whole.removesuffix("ab"), reason == 0), (text, whole.endswith("ab")))
            if reason == 0:
                wide += len(ids) - 1 - max(i for i, token in enumerate(ids) if token == a) > 10
        self.assertGreater(wide, 1)

    def test_scores_and_verdicts_of_such_texts(self):
        with h5py.File(self.path("right")) as file:
            self.assertEqual(file["score/value"][:].tolist(), [float(re.search(PATTERN, text) is not None) for _, text, _ in self.texts()])
        replies = []
        with h5py.File(self.path("words")) as file:
            for reply, verdict in zip(file["judge/reply_id"][:].tolist(), file["judge/verdict"][:].tolist()):
                replies += [id for id in reply if id >= 0]
                text = self.tokenizer.decode([id for id in reply if id >= 0]).lower()
                self.assertEqual(verdict, 0 if "yes" in text else 1 if "no" in text else -1)
        self.is_padded(replies, 50)
        with h5py.File(self.path("reasons")) as file:
            self.is_padded(file["judge/reply_id"][:].flatten().tolist(), 5)

    def test_a_cue_around_them(self):
        """A judge's reply ends where its `Verdict:` is whole, however many of them stand inside."""
        letters = self.tokenizer.convert_tokens_to_ids(list("Verdict:"))
        reply = [letters[0]] + [id for gap, letter in enumerate(letters[1:]) for id in (*range(400 + 5 * gap, 405 + 5 * gap), letter)]
        self.assertEqual(self.tokenizer.decode(reply), "Verdict:")
        written = [self.tokenizer.encode("plan unit")[-1], *reply, 399, 398]
        make_chain_model(self.folder / "chain", self.world.model, ROWS, dict(zip(written, written[1:])))
        self.world.data.with_name("one.jsonl").write_text('{"id": "a", "text": "plan unit"}\n')
        self.run_it("cue", [{**TASKS[3], "model": {"path": str(self.folder / "chain")}, "dataset": {"path": str(self.folder / "one.jsonl")}, "max_new_tokens": 60}])
        with h5py.File(self.path("reasons", "cue")) as file:
            self.assertEqual([id for id in file["judge/reply_id"][0].tolist() if id >= 0], reply)

    def test_rewards_of_rollouts(self):
        with h5py.File(self.path("rollouts")) as file:
            of = {key: file[f"rollout/{key}"][()] for key in file["rollout"]}
        slots, drawn = of["roll_in_id"].shape[1], []
        for record in range(8):
            for i in range(4):
                cut = of["cut"][record].reshape(-1)[i // 2]
                continued = of["id"][record].reshape(4, slots)[i, :of["length"][record].reshape(-1)[i]].tolist()
                text = self.decoded(of["roll_in_id"][record, :cut].tolist() + continued)
                drawn += continued
                self.assertEqual(of["reward"][record].reshape(-1)[i], re.search(PATTERN, text) is not None, text)
        self.is_padded(drawn, 20)

    def test_grpo_learns_from_them(self):
        for name, reward in (("verified", {"verifier": "regex", "pattern": PATTERN}),
                             ("judged", {"judge": {"model": {"path": str(self.world.model)}, "mode": "reference", "method": "decode", "read": "word", "max_new_tokens": 6, "max_prompt_length": 512,
                                                   "prompt": {"user": "{{ answer }}"}}})):
            self.run_it(name, [{**GRPO, "grpo": {"num_generations": 4, "max_new_tokens": 14, "temperature": 3.0, "log_completions": True, "reward": reward}}])
            logs = [json.loads(line) for path in sorted((self.folder / "runs" / name / "student.rollouts").iterdir()) for line in path.read_text().splitlines()]
            self.is_padded(sum((line["tokens"] for line in logs), []), 20)
            for line in logs:
                self.assertEqual(line["text"], self.tokenizer.decode(line["tokens"], skip_special_tokens=True))
                if name == "verified":
                    self.assertEqual(line["reward"], re.search(PATTERN, line["text"]) is not None)

    def test_ids_beyond_the_model_are_refused(self):
        """A file's ids are not the program's own: those that have a row are read, those that have none are a mistake."""
        for name, ids, code in (("inside", [3, 400, ROWS - 1], 0), ("beyond", [3, ROWS], 65)):
            tokens = self.folder / f"{name}.jsonl"
            tokens.write_text(json.dumps({"ids": ids}) + "\n")
            said = self.run_it(name, [{"task": "teacher_logits", "name": "texts", "dataset": {"path": str(tokens), "tokens": "ids"}, "max_length": 16, "top_k": 4}], code)
            if code:
                self.assertIn(str(ROWS), said)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
