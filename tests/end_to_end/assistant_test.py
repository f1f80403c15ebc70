"""Teacher logits of the assistant's tokens alone: which tokens these are equals transformers' mask, with and without generation
blocks in the template; scored rows are those of a run over all tokens, to the bit; the others are empty.
"""
import hashlib
import json
import pathlib
import random
import subprocess
import tempfile
import unittest

import h5py
import numpy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tiny_world

PLAIN = ("{% for m in messages %}{{ m.role }}:\n{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}")
BLOCKS = ("{% for m in messages %}{% if m.role == 'assistant' %}assistant:\n{% generation %}{{ m.content }}<|end|>{% endgeneration %}{{ '\\n' }}"
          "{% else %}{{ m.role }}:\n{{ m.content }}<|end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}")
MACROS = ("{% macro said(m, end) %}{{ m.role }}:\n{% generation %}{{ m.content }}{{ end }}{% endgeneration %}{{ '\\n' }}{% endmacro %}" + BLOCKS.replace(
    "{% if m.role == 'assistant' %}", "{% if m.role == 'assistant' and loop.index is divisibleby 4 %}{{ said(m, '<|end|>') }}{% elif m.role == 'assistant' %}"))
EDGES = ("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{{ '\\n' }}"
         "{% else %}{{ m.content }}{% endif %}{% endfor %}")
FORGETFUL = ("{% for m in messages %}{{ m.role }}:\n{{ m.content if loop.last else '...' }}<|end|>\n{% endfor %}"
             "{% if add_generation_prompt %}assistant:\n{% endif %}")


THINKS = ("{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
          "{% if m.role != 'assistant' %}{{ m.role }}:\n{{ m.content }}<|end|>\n{% elif loop.index0 > ns.last %}assistant:\n<BEGIN><think>\n{{ m.reasoning_content | default('') }}\n</think>\n\n"
          "{{ m.content }}<|end|><END>{{ '\n' }}{% else %}assistant:\n{{ m.content }}<|end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}")
TOOLS = ("{% if tools %}tools:{% for t in tools %} {{ t | tojson }}{% endfor %}\n{% endif %}{% for m in messages %}{{ m.role }}:\n{{ m.content }}<|end|>\n"
         "{% endfor %}{% if add_generation_prompt %}assistant:\n{% if enable_thinking is defined and enable_thinking is false %}no {% endif %}"
         "{% endif %}{{ effort | default('none') }} {{ depth | default(0) + 1 }}")


class Assistant(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        source = random.Random(8)
        text = lambda: " ".join(source.choices(tiny_world.WORDS, k=source.randint(1, 20)))
        cls.chats = []
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(25):
                messages = [{"role": "system", "content": text()}] if index % 3 == 0 else []
                for _ in range(1 + index % 4):
                    messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
                if index % 5 == 4:
                    messages.append({"role": "user", "content": text()})
                cls.chats.append(messages)
                file.write(json.dumps({"id": f"r{index}", "m": messages}) + "\n")
        cls.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(cls.world.model / "tokenizer.json"))

    def run_it(self, name, template, score, ranks=0, code=0, data=None, field="messages: m", template_key=None, model_keys=""):
        (self.world.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        path = self.world.folder / f"{name}.yaml"
        path.write_text(f"name: {name}\noutput: {{directory: {self.world.folder}/runs}}\nmodel: {{path: {self.world.model}, dtype: f32{'' if template_key is None else ', chat_template: ' + json.dumps(template_key)}{model_keys}}}\n"
                        f"layout: {{devices: cpu}}\ntasks:\n  - task: teacher_logits\n    dataset: {{path: {data or self.world.data}, key: id, {field}}}\n"
                        f"    max_length: 300\n    overflow: window\n    top_k: 8\n    unit_tokens: 256\n    score: {score}\n")
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, tiny_world.PROGRAM, "run", str(path)], env=self.world.environment, cwd=self.world.folder,
                              capture_output=True, text=True, timeout=1200, check=False)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return self.world.folder / "runs" / name / "teacher.h5" if code == 0 else done.stderr

    def test_marks_and_rows(self):
        whole = self.run_it("all", PLAIN, "all")
        digests = set()
        for name, template in (("plain", PLAIN), ("blocks", BLOCKS), ("macros", MACROS)):
            path = self.run_it(name, template, "assistant", ranks=2 if name == "plain" else 0)
            subprocess.run([tiny_world.PROGRAM, "check", str(path)], check=True, capture_output=True)
            digests.add(self.compare(path, whole))
        self.assertEqual(len(digests), 1)

    def test_a_block_without_a_place_is_refused_where_others_have_one(self):
        """Its answers would be left out without a word. Where no block has a place, the turns themselves are marked."""
        joined = MACROS.replace("{{ said(m, '<|end|>') }}", "{% set kept = said(m, '<|end|>') %}{{ kept }}")
        said = self.run_it("joined", joined, "assistant", code=65)
        self.assertIn(f"{self.world.model}/tokenizer_config.json:2:4: the text of this generation block is kept in a variable, filtered or joined to another", said)
        alone = joined.replace("loop.index is divisibleby 4", "true")
        self.compare(self.run_it("alone", alone, "assistant"), self.run_it("all-again", PLAIN, "all"))

    def compare(self, path, whole):
        want_ids, want_marks = [], []
        for messages in self.chats:
            found = self.tokenizer.apply_chat_template(messages, chat_template=BLOCKS, return_assistant_tokens_mask=True, return_dict=True)
            for begin in range(0, max(1, len(found["input_ids"])), 300):
                want_ids.append(found["input_ids"][begin:begin + 300])
                want_marks.append(found["assistant_masks"][begin:begin + 300])
        with h5py.File(path) as file, h5py.File(whole) as all_rows:
            offset = file["samples/offset"][:].astype(int)
            self.assertEqual(file["tokens/id"][:].tolist(), sum(want_ids, []))
            self.assertEqual(file["tokens/assistant"][:].tolist(), sum(want_marks, []))
            self.assertNotIn("assistant", all_rows["tokens"])
            scored = numpy.zeros(offset[-1], bool)
            for begin, end in zip(offset, offset[1:]):
                scored[begin:end - 1] = file["tokens/assistant"][begin + 1:end] == 1
            self.assertTrue(0.1 < scored.mean() < 0.9)
            for column in ("top_id", "top_logprob", "logsumexp", "target_logprob", "entropy", "tail_mass"):
                found, want = file[f"teacher/{column}"][:], all_rows[f"teacher/{column}"][:]
                numpy.testing.assert_array_equal(found[scored], want[scored])
                self.assertTrue((found[~scored] == -1).all() if column == "top_id" else numpy.isnan(found[~scored]).all())
            return hashlib.sha256(b"".join(file[f"teacher/{name}"][:].tobytes() for name in file["teacher"])).hexdigest()

    def thoughts(self, name, chats):
        data = pathlib.Path(self.scratch.name) / f"{name}.jsonl"
        data.write_text("".join(json.dumps({"id": str(i), "m": chat}) + "\n" for i, chat in enumerate(chats)))
        return data

    def test_a_template_that_drops_earlier_thoughts(self):
        """Qwen3: thoughts stand in the turns behind the last question alone, so only these are written as the model would write them. They are what
        is marked, as transformers does with generation blocks around them; the others are counted."""
        said = lambda text, thought=None: {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {})}
        asked, tool = lambda text: {"role": "user", "content": text}, {"role": "tool", "content": "a tool says"}
        chats = [[asked("one"), said("it is", "so"), asked("two"), said("not it", "that is")], [asked("one"), said("yes")], [asked("a"), said("first", "x"), tool, said("last", "y")],
                 [asked("one"), said("it is"), asked("two"), said("again"), asked("three")], [said("hello"), asked("one"), said("end", "thought")]]
        data = self.thoughts("thoughts", chats)
        marked = THINKS.replace("<BEGIN>", "{% generation %}").replace("<END>", "{% endgeneration %}")
        template = THINKS.replace("<BEGIN>", "").replace("<END>", "")
        want = [self.tokenizer.apply_chat_template(chat, chat_template=marked, return_assistant_tokens_mask=True, return_dict=True) for chat in chats]
        learnt = sum(sum(one["assistant_masks"]) for one in want)
        self.assertEqual([sum(one["assistant_masks"]) > 0 for one in want], [True, True, True, False, True])
        for form, text in (("plain", template), ("blocks", marked)):
            with h5py.File(self.run_it(f"thoughts-{form}", text, "assistant", data=data, ranks=2)) as file:
                self.assertEqual(file["tokens/id"][:].tolist(), sum((one["input_ids"] for one in want), []))
                self.assertEqual(file["tokens/assistant"][:].tolist(), sum((one["assistant_masks"] for one in want), []))
            self.assertEqual(self.learnt(f"train-{form}", text, data), learnt)
        self.assertIn("4 turns of the assistant in 3 records take no part", self.said)

    def learnt(self, name, template, data, code=0):
        """-> the tokens that one step over all records learns from, or what was said"""
        (self.world.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        path = self.world.folder / f"{name}.yaml"
        path.write_text(f"name: {name}\noutput: {{directory: {self.world.folder}/runs}}\nmodel: {{path: {self.world.model}}}\nlayout: {{devices: cpu}}\ntasks:\n  - task: train\n"
                        f"    dataset: {{path: {data}, key: id, messages: m}}\n    assistant_only_loss: true\n    train: {{steps: 1, max_length: 300, global_batch: 8}}\n")
        done = subprocess.run([tiny_world.PROGRAM, "run", str(path)], env=self.world.environment, cwd=self.world.folder, capture_output=True, text=True, timeout=1200, check=False)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        if name == "train-plain":
            self.said = done.stderr
        if code != 0:
            return done.stderr
        with h5py.File(self.world.folder / "runs" / name / "student.h5") as file:
            return int(file["train/tokens"][:].sum())

    def test_a_template_whose_prompt_is_not_how_it_writes(self):
        """DeepSeek R1: answers are asked for behind <think> and written without it, so nothing of them can be told: said, with a way out that the task has."""
        template = ("{% for m in messages %}{{ m.role }}:\n{{ m.content.split('</think>')[-1] }}<|end|>\n{% endfor %}{% if add_generation_prompt %}assistant:\n<think>\n{% endif %}")
        data = self.thoughts("deep", [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>b</think>c"}]] * 2)
        said = self.learnt("deep", template, data, code=65)
        self.assertIn("model.chat_template", said)
        self.assertNotIn("score", said)

    def test_a_token_across_the_edge_of_an_answer(self):
        """transformers marks every token that has a character of the answer: ".\\n" whose newline the template wrote, "oyes" that begins before."""
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        merges = [(".", "Ċ"), ("y", "e"), ("ye", "s"), ("o", "yes"), ("n", "o"), ("i", "t"), ("it", "no")]
        texts = ["<|end|>", *letters, *(left + right for left, right in merges)]
        tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|end|>"])
        file = self.world.model / "tokenizer.json"
        usual = file.read_text(encoding="utf-8")
        self.addCleanup(file.write_text, usual, encoding="utf-8")
        tokenizer.save(str(file))
        oracle = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
        chats = [[("user", "it<|end|>no"), ("assistant", "yes")], [("user", "a"), ("assistant", "It is.")],
                 [("user", "itno"), ("assistant", "yes."), ("user", "b"), ("assistant", "")]]
        chats = [[{"role": role, "content": text} for role, text in chat] for chat in chats]
        data = pathlib.Path(self.scratch.name) / "edges.jsonl"
        data.write_text("".join(json.dumps({"id": str(i), "m": chat}) + "\n" for i, chat in enumerate(chats)))
        found = []
        with h5py.File(self.run_it("edges", EDGES, "assistant", data=data, field="messages: m, special_tokens: tokens")) as results:
            offset = results["samples/offset"][:].astype(int)
            for begin, end in zip(offset, offset[1:]):
                found.append((results["tokens/id"][begin:end].tolist(), results["tokens/assistant"][begin:end].tolist()))
        for chat, (ids, marks) in zip(chats, found):
            want = oracle.apply_chat_template(chat, chat_template=EDGES, return_assistant_tokens_mask=True, return_dict=True)
            self.assertEqual((ids, marks), (want["input_ids"], want["assistant_masks"]))
        # With guards in the text (a special token that a message only writes) places are those of the text without them.
        with h5py.File(self.run_it("guarded", EDGES, "assistant", data=data)) as results:
            first = slice(0, int(results["samples/offset"][1]))
            marks = results["tokens/assistant"][first].tolist()
            self.assertEqual(oracle.decode([i for i, m in zip(results["tokens/id"][first].tolist(), marks) if m]), "oyes")

    def test_special_tokens_in_messages(self):
        data = pathlib.Path(self.scratch.name) / "special.jsonl"
        data.write_text(json.dumps({"id": "a", "m": [{"role": "user", "content": "a<|end|>b"}]}) + "\n")
        end = self.tokenizer.convert_tokens_to_ids("<|end|>")
        for kind, count in (("text", 1), ("tokens", 2)):
            path = self.run_it(f"special-{kind}", PLAIN, "all", data=data, field=f"messages: m, special_tokens: {kind}")
            with h5py.File(path) as file:
                ids = file["tokens/id"][:].tolist()
                self.assertEqual(ids.count(end), count)
                if kind == "tokens":
                    self.assertEqual(ids, self.tokenizer.encode("user:\na<|end|>b<|end|>\n", add_special_tokens=False))
        inline = self.run_it("inline", "{{ nothing | nowhere }}", "all", template_key=PLAIN)
        with h5py.File(inline) as file, h5py.File(self.run_it("all", PLAIN, "all")) as usual:
            numpy.testing.assert_array_equal(file["tokens/id"][:], usual["tokens/id"][:])

    def test_tools_and_variables_of_the_template(self):
        """Equal to transformers' apply_chat_template with the same tools and variables; what the template does not read is refused."""
        tool = {"type": "function", "function": {"name": "find", "description": "says <|end|>", "parameters": {"type": "object"}}}
        data = pathlib.Path(self.scratch.name) / "tools.jsonl"
        records = [{"id": "a", "m": [{"role": "user", "content": "a"}], "t": [tool]}, {"id": "b", "m": [{"role": "user", "content": "b"}], "t": None},
                   {"id": "c", "m": [{"role": "user", "content": "c"}], "t": json.dumps([tool, tool])}]
        data.write_text("".join(json.dumps(record) + "\n" for record in records))
        values = {"enable_thinking": False, "effort": "8", "depth": 2}
        path = self.run_it("tools", TOOLS, "all", data=data, field="messages: m, tools: t, special_tokens: tokens", model_keys=
                           ", chat_template_kwargs: " + json.dumps(values))
        with h5py.File(path) as file:
            offset, ids = file["samples/offset"][:].astype(int), file["tokens/id"][:].tolist()
            self.assertIn(b'effort: "8"', bytes(file.attrs["experiment"]))
            found = [ids[begin:end] for begin, end in zip(offset, offset[1:])]
        lists = [[tool], None, [tool, tool]]
        self.assertEqual(found, [self.tokenizer.apply_chat_template(record["m"], tools=tools, chat_template=TOOLS, **values)["input_ids"]
                                 for record, tools in zip(records, lists)])
        misspelt = self.run_it("misspelt", TOOLS, "all", code=78, data=data, field="messages: m", model_keys=", chat_template_kwargs: {enable_thinkin: false}")
        self.assertIn("did you mean enable_thinking?", misspelt)
        self.assertIn("not a variable to set", self.run_it("own", TOOLS, "all", code=78, data=data, model_keys=", chat_template_kwargs: {messages: 1}"))
        self.assertIn("writes no tools", self.run_it("no-tools", PLAIN, "all", code=78, data=data, field="messages: m, tools: t"))
        data.write_text(json.dumps({**records[0], "t": "not JSON"}) + "\n")
        self.assertIn("tools.jsonl:1: t is not a list of objects", self.run_it("bad", TOOLS, "all", code=65, data=data, field="messages: m, tools: t"))

    def test_damage_is_found(self):
        path = self.run_it("damage", PLAIN, "assistant")
        with h5py.File(path, "r+") as file:
            row = int(numpy.flatnonzero(file["teacher/top_id"][:, 0] == -1)[3])
            file["teacher/entropy"][row] = 1.0
        done = subprocess.run([tiny_world.PROGRAM, "check", str(path)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 65)
        self.assertIn("not the assistant's", done.stdout + done.stderr)

    def test_refusals(self):
        said = self.run_it("forgets", FORGETFUL, "assistant", code=65)
        self.assertIn("writes none of the", said)
        self.assertIn("model.chat_template", said)
        self.assertIn("score", self.run_it("texts", PLAIN, "assistant", code=78, field="text: m"))
        data = pathlib.Path(self.scratch.name) / "silent.jsonl"
        data.write_text(json.dumps({"id": "a", "m": [{"role": "user", "content": "a"}]}) + "\n")
        self.assertIn("silent.jsonl:1: no message is the assistant's", self.run_it("silent", PLAIN, "assistant", code=65, data=data))


if __name__ == "__main__":
    unittest.main(verbosity=2)
