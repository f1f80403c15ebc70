"""Constrained texts from outside: what is finished matches its schema (jsonschema), expression (re), list or grammar, at any
temperature, and is the same for ranks, budgets, shards and kills. And the sampler's other keys: biases, the most probable
tokens of every step (transformers), the best of several texts (chosen by hand from all of them).
"""
import ast
import hashlib
import json
import re
import signal
import subprocess
import tempfile
import unittest

import h5py
import numpy
import torch
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import tiny_world

TASK = """name: {name}
seed: 11
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu, shards_per_rank: {shards}}}
tasks:
  - task: generate
    dataset: {{path: {data}, key: id}}
    max_prompt_length: 512
{keys}
"""
WORD = {"type": "string", "maxLength": 6}
SCHEMAS = {
    "nested": {"type": "object", "required": ["who", "at"], "properties": {
        "who": {"type": "object", "properties": {"name": WORD, "größe": {"type": "integer", "minimum": 0, "maximum": 250}}, "required": ["name", "größe"]},
        "at": {"type": "object", "properties": {"place": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}},
               "required": ["place"], "additionalProperties": False}}},
    "enums": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"enum": ["ja", "café \"x\"\n", "数据", 12, 1.5, None, True, {"a": [1]}]}},
    "arrays": {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": -99, "maximum": 99}, "maxItems": 3}, "maxItems": 3},
    "numbers": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "integer", "exclusiveMinimum": 5, "maximum": 70000},
                                                 "c": {"type": "number", "minimum": -1, "maximum": 2.5}}, "required": ["a", "b", "c"]},
    "strings": {"type": "object", "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 5}, "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$"},
                                                 "any": {"type": "string", "maxLength": 12}}, "required": ["name", "code", "any"]},
    # Where the library let through what is no JSON or no UTF-8 (scripts/setup.sh asks the program instead, ConstraintState bars it).
    "wide": {"type": "array", "minItems": 4, "items": False, "prefixItems": [
        {"type": "string", "pattern": "^.{3,9}$"}, {"type": "string", "pattern": "^[^a-z]{3,9}$"}, {"type": "string", "minLength": 2, "maxLength": 7},
        {"type": "object", "patternProperties": {"^x[^a]$": {"type": "null"}}, "additionalProperties": False, "maxProperties": 2}]},
    "choices": {"$defs": {"leaf": {"anyOf": [{"type": "null"}, WORD]}}, "type": "object", "properties": {
        "left": {"$ref": "#/$defs/leaf"}, "right": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"const": {"deep": [1, "ü"]}}]}}, "required": ["right"]},
}
REGEXES = (r"[A-D]\. .{3,10}", r"(yes|no|maybe), [0-9]+(\.[0-9]{1,2})?", r"\d{4}-\d{2}-\d{2}( \w+)?", "[äöüß数据]{2,8}[^a-z]")
GRAMMAR = 'root ::= term (("+" | "-") term){0,4}\nterm ::= [1-9] [0-9]{0,2} | "(" term "*" term ")"\n'


class Constraint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        model = tiny_world.make_model(f"{cls.scratch.name}/model", eos_token_id=0, bos_token_id=None)
        cls.world = tiny_world.World(cls.scratch.name, records=1, model=model)
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(14):
                file.write(json.dumps({"id": f"r{index}", "text": " ".join(tiny_world.WORDS[index:2 * index + 3] * (1 + 4 * (index % 2)))}) + "\n")
        cls.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        cls.reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def command(self, name, keys, ranks=0, shards=1):
        path = self.world.folder / f"{name}.yaml"
        keys = "\n".join(f"    {key}: {json.dumps(value)}" for key, value in keys.items())
        path.write_text(TASK.format(name=name, runs=self.world.folder / "runs", model=self.world.model, data=self.world.data, shards=shards, keys=keys))
        return [*(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []), tiny_world.PROGRAM, "run", str(path)]

    def run_it(self, name, keys, ranks=0, shards=1, code=0, **environment):
        done = subprocess.run(self.command(name, keys, ranks, shards), env={**self.world.environment, **environment}, cwd=self.world.folder,
                              capture_output=True, text=True, timeout=2000)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return self.world.folder / "runs" / name / "answers.h5" if code == 0 else done.stderr

    def texts(self, path):
        """-> [(ids, log-probabilities, text, ended by itself)]"""
        with h5py.File(path) as file:
            offset = file["samples/offset"][:]
            return [(file["tokens/id"][a:b], file["generate/logprob"][a:b], file["generate/text"][i].decode(), int(file["generate/finish_reason"][i]) == 0)
                    for i, (a, b) in enumerate(zip(offset, offset[1:]))]

    def finished(self, name, constraint, least, **keys):
        """Runs it greedily and drawn; the texts that ended by themselves, which all others are told apart from."""
        whole = []
        for temperature in (0, 1):
            settings = {"constraint": constraint, "temperature": temperature, "max_new_tokens": 150, **({"n": 3} if temperature else {}), **keys}
            texts = self.texts(self.run_it(f"{name}-{temperature}", settings, ranks=2))
            self.assertEqual([ended for *_, ended in texts], [ids[-1] == 0 for ids, *_ in texts])
            self.assertTrue(all(len(ids) == 150 for ids, _, _, ended in texts if not ended))
            ended = [text for _, _, text, ended in texts if ended]
            # Greedy digits of a number may go round in a circle.
            self.assertGreaterEqual(len(ended), (least if temperature else least / 4) * len(texts), f"{name} at temperature {temperature}")
            whole += ended
        return whole

    def test_schemas(self):
        for name, schema in SCHEMAS.items():
            Draft202012Validator.check_schema(schema)
            path = self.world.folder / f"{name}.json"
            path.write_text(json.dumps(schema, ensure_ascii=False))
            texts = self.finished(name, {"json_schema": str(path) if name != "enums" else json.dumps(schema)}, 0.5)
            for text in texts:
                Draft202012Validator(schema).validate(json.loads(text))
            if name in ("strings", "wide"):
                self.assertTrue(any("\\" in text for text in texts), "lengths and patterns leave no character out")
            print(f"{name}: {len(texts)} valid, {len(set(texts))} different, such as {texts[-1]!r}")

    def test_expressions_choices_and_grammars(self):
        for index, regex in enumerate(REGEXES):
            for text in self.finished(f"regex{index}", {"regex": regex}, 0.5):
                self.assertIsNotNone(re.fullmatch(regex, text), (regex, text))
                self.assertNotIn("\ufffd", text, "bytes that are no UTF-8 were stored")
        choices = ["A", "AB", "yes, \"sir\"", "数据\n", "no"]
        self.assertEqual(set(self.finished("choice", {"choice": choices}, 1.0)), set(choices))
        path = self.world.folder / "sum.ebnf"
        path.write_text(GRAMMAR)
        for name, grammar in (("inline", GRAMMAR), ("file", str(path))):
            for text in self.finished(f"grammar-{name}", {"grammar": grammar}, 0.3):
                self.assertRegex(text, r"^[0-9()*+-]+$")
                ast.parse(text, mode="eval")

    def test_same_bytes_for_ranks_budgets_shards_and_kills(self):
        keys = {"constraint": {"json_schema": json.dumps(SCHEMAS["strings"])}, "max_new_tokens": 60, "n": 2, "best_of": 3, "top_logprobs": 4}
        one = self.run_it("same", keys)
        want, texts = hashlib.sha256(one.read_bytes()).hexdigest(), self.texts(one)
        for ranks in (1, 2, 3):
            self.world.forget("same")
            self.assertEqual(hashlib.sha256(self.run_it("same", keys, ranks=ranks).read_bytes()).hexdigest(), want)
        for point in ("generate.pass@40", "generate.record.done@5", "task.pack.begin"):
            self.world.forget("same")
            self.run_it("same", keys, code=-signal.SIGKILL, MAGISTER_FAIL_POINT=f"{point}:kill")
            self.assertEqual(hashlib.sha256(self.run_it("same", keys, ranks=2).read_bytes()).hexdigest(), want, point)
        small = self.texts(self.run_it("small", {**keys, "token_budget": 16, "max_sequences": 2, "share_prefixes": False}))
        sharded = [self.texts(self.run_it(f"sharded{ranks}", {**keys, "temperature": 1}, ranks=ranks, shards=2)) for ranks in (0, 2)]
        for ours, other in zip(texts, small, strict=True):
            numpy.testing.assert_array_equal(ours[0], other[0])
            numpy.testing.assert_array_equal(ours[1], other[1])
        self.assertEqual([t[2] for t in sharded[0]], [t[2] for t in sharded[1]])
        self.assertGreaterEqual(sum(a[2] == b[2] for a, b in zip(texts, sharded[0], strict=True)), len(texts) - 2)

    def test_a_changed_schema_is_noticed(self):
        path = self.world.folder / "changing.json"
        path.write_text(json.dumps(SCHEMAS["arrays"]))
        keys = {"constraint": {"json_schema": str(path)}, "max_new_tokens": 30}
        self.run_it("changing", keys, code=-signal.SIGKILL, MAGISTER_FAIL_POINT="generate.record.done@5:kill")
        path.write_text(json.dumps(SCHEMAS["enums"]))
        self.assertIn("constraint_sha256", self.run_it("changing", keys, code=78))
        path.write_text(json.dumps(SCHEMAS["arrays"]))
        self.run_it("changing", keys)
        path.write_text(json.dumps(SCHEMAS["enums"]))
        self.assertIn("constraint_sha256", self.run_it("changing", keys, code=78))

    def test_most_probable_tokens(self):
        path = self.run_it("tops", {"max_new_tokens": 12, "top_logprobs": 5, "repetition_penalty": 1.3, "logit_bias": [{"id": 77, "bias": 4}]}, ranks=2)
        subprocess.run([tiny_world.PROGRAM, "check", str(path)], check=True, capture_output=True)
        line = subprocess.run([tiny_world.PROGRAM, "export", str(path), "--to", "jsonl"], capture_output=True, text=True, check=True).stdout.splitlines()[3]
        with h5py.File(path) as file:
            top_id, top_logprob, offset = file["generate/top_id"][:], file["generate/top_logprob"][:], file["samples/offset"][:]
        self.assertEqual(json.loads(line)["top_id"], top_id[offset[3]:offset[4]].tolist())
        records = [json.loads(record) for record in self.world.data.read_text().splitlines()]
        for index, (record, (ids, logprobs, *_)) in enumerate(zip(records, self.texts(path), strict=True)):
            prompt = self.tokenizer.encode(record["text"]).ids
            with torch.no_grad():
                logits = self.reference(torch.tensor([prompt + ids.tolist()])).logits[0, len(prompt) - 1:-1].double()
            want = torch.log_softmax(logits, 1)
            rows = slice(offset[index], offset[index + 1])
            numpy.testing.assert_allclose(top_logprob[rows], want.topk(5).values, atol=1e-4)
            numpy.testing.assert_allclose(top_logprob[rows], want.gather(1, torch.tensor(top_id[rows]).long()), atol=1e-4)
            numpy.testing.assert_allclose(logprobs, want.gather(1, torch.tensor(ids[:, None]).long())[:, 0], atol=1e-4)

    def test_check_notices_damaged_tops(self):
        path = self.run_it("damaged", {"max_new_tokens": 6, "top_logprobs": 3})
        with h5py.File(path, "r+") as file:
            file["generate/top_logprob"][7, 2] = 0.5
        done = subprocess.run([tiny_world.PROGRAM, "check", str(path)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 65)
        self.assertIn("row 7", done.stdout + done.stderr)

    def test_best_of_is_chosen_by_mean_logprob(self):
        keys = {"max_new_tokens": 10, "temperature": 0.8}
        every = self.texts(self.run_it("every", {**keys, "n": 5}))
        best = self.texts(self.run_it("best", {**keys, "n": 2, "best_of": 5}, ranks=2))
        for record in range(14):
            mine = every[5 * record:5 * record + 5]
            means = [sum(float(x) for x in logprobs) / len(logprobs) for _, logprobs, *_ in mine]
            chosen = sorted(range(5), key=lambda i: (-means[i], i))[:2]
            for place, index in enumerate(chosen):
                numpy.testing.assert_array_equal(best[2 * record + place][0], mine[index][0])
                numpy.testing.assert_array_equal(best[2 * record + place][1], mine[index][1])

    def test_biases(self):
        token = self.tokenizer.token_to_id("data") or self.tokenizer.token_to_id("q")
        text = self.tokenizer.id_to_token(token)
        for entry in ({"token": text}, {"id": token}):
            texts = self.texts(self.run_it(f"bias-{next(iter(entry))}", {"max_new_tokens": 4, "logit_bias": [{**entry, "bias": 1000}]}))
            self.assertTrue(all((ids == token).all() and (logprobs < -1).all() for ids, logprobs, *_ in texts), "log-probabilities are the model's own")
        banned = self.texts(self.run_it("banned", {"max_new_tokens": 40, "logit_bias": [{"id": token, "bias": -1000}, {"id": 0, "bias": -1000}]}))
        self.assertFalse(any((ids == token).any() or not len(ids) == 40 for ids, *_ in banned))

    def test_refusals(self):
        (self.world.folder / "bad.json").write_text('{"type": "array", "uniqueItems": true}')
        for keys, words in (
                ({"constraint": {"json_schema": '{"type": "objekt"}'}}, "objekt"), ({"constraint": {"json_schema": '{"type": '}}, "a schema is JSON"),
                ({"constraint": {"json_schema": "absent.json"}}, "absent.json: no file"), ({"constraint": {"json_schema": "bad.json"}}, "uniqueItems"),
                ({"constraint": {"choice": []}}, "choice"), ({"constraint": {"choice": [""]}}, "choice"), ({"constraint": {"choice": ["a", "a"]}}, "twice"),
                ({"constraint": {"regex": "(a"}}, "parenthesis"), ({"constraint": {"regex": "a", "choice": ["a"]}}, "several"), ({"constraint": {}}, "constraint"),
                ({"constraint": {"grammar": "root ::= root \"a\""}}, "no token may begin"), ({"constraint": {"grammar": "root ::= other"}}, "constraint.grammar"),
                ({"constraint": {"regex": "a"}, "stop": ["b"]}, "together with a constraint"), ({"constraint": {"regex": "a"}, "ignore_eos": True}, "ignore_eos"),
                ({"constraint": {"regexp": "a"}}, "regexp"), ({"logit_bias": [{"token": "no such token", "bias": 1}]}, "no such token"),
                ({"logit_bias": [{"id": 9999, "bias": 1}]}, "9999"), ({"logit_bias": [{"id": 1, "bias": 1}, {"token": "!", "bias": 2}]}, "twice"),
                ({"logit_bias": [{"bias": 1}]}, "neither"), ({"logit_bias": [{"id": 1}]}, "logit_bias.0.bias: the key is missing"), ({"logit_bias": [{"id": 1, "bias": 1e9}]}, "bias"),
                ({"top_logprobs": 21}, "top_logprobs"), ({"n": 3, "best_of": 2}, "best_of"), ({"best_of": 2, "temperature": 0}, "would be the same")):
            message = self.run_it("refused", keys, ranks=2 if "constraint" in keys else 0, code=78)
            self.assertIn(words, message)
            said = [line for line in message.splitlines() if line.startswith("magister: ")]
            self.assertEqual(len(said), 2 if words == "regexp" else 1, message)  # every fault of the file at once
        self.assertFalse(list((self.world.folder / "runs/refused").glob("*.h5*")) if (self.world.folder / "runs/refused").exists() else [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
