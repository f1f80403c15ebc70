"""The numbers of an exam's checks by SmolLM2 against transformers: every prompt is rendered by jinja2 from the templates that the results
keep and from the item as the model wrote it, one text at a time, and every number is computed again from the row after it.
"""
import json
import math
import pathlib
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

import tiny_world
from tiny_world import ORACLE, SMOLLM2, World

sys.path.insert(0, str(ORACLE))
import gguf_reading

EXAM = """name: {name}
seed: 11
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: exam
    source: {{path: {data}.md, passage_tokens: 40, passages: 2}}
    objectives: {{path: {data}.txt}}
    items: {{per_objective: 3, kinds: [choice, true_false, short_answer], choices: 3}}
    bounds: {{generate: 3, validate: 1, review: 1}}
    validator: {{reject: none}}
    temperature: 0.7
    max_new_tokens: 160
    max_prompt_length: 1000
"""
PASSAGES = ["The sun warms the sea, and some of the water turns into vapour. This change from liquid to gas is called evaporation.",
            "Cold air holds less vapour than warm air, so it turns back into drops. This change is called condensation."]
OBJECTIVE = "Explain how the sun turns the water of the sea into vapour."
WORDS = {"yes_no": ["yes", "no"], "true_false": ["true", "false"], "levels": list("ABCDEF"), "letters": list("ABC")}
TOLERANCE = 2e-3


class Arithmetic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        with gguf_reading.in_memory():
            cls.model = AutoModelForCausalLM.from_pretrained(str(SMOLLM2.parent), gguf_file=SMOLLM2.name, dtype=torch.float32).eval()
            tokenizer = AutoTokenizer.from_pretrained(str(SMOLLM2.parent), gguf_file=SMOLLM2.name)
        cls.chat = _compile_jinja_template(tokenizer.chat_template)
        cls.tokenizer = tokenizer.backend_tokenizer
        # transformers drops the Digits step when it converts this file; llama.cpp and the original keep it.
        cls.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        cls.scratch = tempfile.TemporaryDirectory()
        world = World(cls.scratch.name, records=1, model=SMOLLM2, text=EXAM, results=("exam.h5",))
        pathlib.Path(f"{world.data}.md").write_text("\n\n".join(PASSAGES))
        pathlib.Path(f"{world.data}.txt").write_text(f"1.1.1.1 {OBJECTIVE}\n")
        world.complete("exam", 0)
        cls.path = world.results("exam")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def logprobs(self, prompt, classes, **fields):
        """Of each class of answers after the prompt, in the whole distribution."""
        text = {part: _compile_jinja_template(self.templates[prompt][part]).render(**fields) for part in ("system", "user")}
        messages = [{"role": "system", "content": text["system"]}, {"role": "user", "content": text["user"]}]
        ids = self.tokenizer.encode(self.chat.render(messages=messages, add_generation_prompt=True), add_special_tokens=False).ids
        with torch.no_grad():
            row = torch.log_softmax(self.model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1].double(), 0)
        sets = []
        for word in WORDS[classes]:
            spellings = {word} if len(word) == 1 else {word, word.upper(), word.capitalize()}
            firsts = {self.tokenizer.encode(space + one, add_special_tokens=False).ids[0] for one in spellings for space in ("", " ")}
            sets.append(sorted(firsts - set(self.tokenizer.encode(" ", add_special_tokens=False).ids)))
        found = numpy.array([float(torch.logsumexp(row[tokens], 0)) for tokens in sets])
        self.masses.append(float(numpy.exp(found).sum()))
        return found

    def log_odds(self, prompt, **fields):
        yes, no = self.logprobs(prompt, "yes_no", **fields)
        return yes - no

    def test_every_number_equals_transformers(self):
        with h5py.File(self.path) as file:
            self.templates = json.loads(file.attrs["prompts"])
            self.numbers = {name: file[f"checks/{name}"][:] for name in file["checks"]}
            offset, tokens = file["samples/offset"][:], file["tokens/id"][:]
            kinds, blooms = file["items/kind"][:], file["items/bloom"][:]
        written = [json.loads(self.tokenizer.decode(tokens[offset[i]:offset[i + 1]].tolist(), skip_special_tokens=True)) for i in range(len(kinds))]
        checked = [i for i in range(len(kinds)) if not math.isnan(self.numbers["support"][i])]  # the form refused the others
        self.assertEqual(kinds[checked].tolist(), [0, 1, 2])
        self.compared = 0
        for i in checked:
            self.masses = []
            self.compare(i, kinds[i], written[i], int(blooms[i]))
            self.equal(i, "mass", min(self.masses))
        self.assertGreaterEqual(self.compared, 30)
        print(f"{self.compared} numbers, worst difference {self.worst:.2e}")

    worst = 0.0

    def equal(self, i, name, want, place=()):
        found = float(self.numbers[name][(i, *place)])
        self.worst = max(self.worst, abs(found - want))
        self.compared += 1
        self.assertAlmostEqual(found, want, delta=TOLERANCE, msg=f"{name} of item {i}")

    def compare(self, i, kind, item, bloom):
        answer = {True: "True", False: "False"}.get(item["answer"], item["answer"]) if kind == 1 else item["answer"].strip()
        fields = {"passages": PASSAGES, "objective": OBJECTIVE, "cited": item["passage"] - 1, "question": item["question"].strip(), "answer": answer,
                  "explanation": item["explanation"].strip()}
        share = lambda found, which: math.exp(found[which]) / numpy.exp(found).sum()
        blind, right, closed = [], [], []
        if kind == 0:
            choices = [answer, *(wrong.strip() for wrong in item["distractors"])]
            for order in range(3):
                options = [choices[(order + k) % 3] for k in range(3)]
                found = self.logprobs("answer", "letters", **fields, options=options)
                for k in range(3):
                    self.equal(i, "letters", found[k], (3 * order + k,))
                blind.append(share(found, -order % 3))
                right.append(float(found.argmax() == -order % 3))
                closed.append(share(self.logprobs("closed_answer", "letters", **fields, options=options), -order % 3))
            wrong = [self.log_odds("right", **{**fields, "answer": choice}) for choice in choices[1:]]
            for k in range(2):
                self.equal(i, "distractors", wrong[k], (k,))
            self.equal(i, "single_key", max(wrong))
        else:
            names, classes, key = ("statement", "closed_statement"), "true_false", 0 if item["answer"] else 1
            if kind == 2:
                names, classes, key = ("right", "closed_right"), "yes_no", 0
            found = [self.logprobs(name, classes, **fields) for name in names]
            blind, right, closed = [share(found[0], key)], [float(found[0].argmax() == key)], [share(found[1], key)]
        for name, values in (("blind", blind), ("blind_right", right), ("closed_book", closed)):
            self.equal(i, name, float(numpy.mean(values)))
        for name in ("support", "alignment", "wording"):
            self.equal(i, name, self.log_odds(name, **fields))
        levels = self.logprobs("bloom", "levels", **fields)
        self.assertEqual(bloom, int(levels.argmax()) + 1)
        self.equal(i, "bloom_probability", share(levels, int(levels.argmax())))


if __name__ == "__main__":
    unittest.main()
