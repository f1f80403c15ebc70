"""What a judge reads: texts of a generate task find the records that they answer, a prompt of one's own says what it means, labels
are verdicts. Everything that would be judged wrongly is refused before any work, by its place.
"""
import hashlib
import json
import random
import subprocess
import tempfile
import unittest

import h5py
import jinja2
import tokenizers
from tokenizers import Tokenizer

import tiny_world

PROMPT = "Q {{ question }} A {{ answer }} ?"


class JudgeInputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        source = random.Random(8)
        cls.records = [{"id": f"r{index}", "question": " ".join(source.choices(tiny_world.WORDS, k=source.randint(1, 9))), "references": ["a", "b"], "answer": "own"}
                       for index in range(20)]
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.tokenizer.decoder = tokenizers.decoders.ByteLevel()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def data(self, name, records):
        path = self.world.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
        return path

    def start(self, name, tasks, code=0, ranks=0, command="run", **extra):
        """-> the folder of results, or what was said"""
        path = self.world.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "seed": 3, "output": {"directory": str(self.world.folder / "runs")},
                                    "model": {"path": str(self.world.model), "dtype": "f32"}, "layout": {"devices": "cpu"}, "tasks": tasks, **extra}))
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, tiny_world.PROGRAM, command, str(path)], env=self.world.environment, cwd=self.world.folder, capture_output=True,
                              text=True, timeout=600)
        self.said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, done.stdout + done.stderr[-3000:])
        return self.world.folder / "runs" / name if code == 0 else done.stderr

    def judge(self, data, key="id", user=PROMPT, **keys):
        dataset = {"path": str(data), **({"key": key} if key else {})}
        dataset |= {name: keys.pop(name) for name in ("limit",) if name in keys}
        return {"task": "judge", "dataset": dataset, "chat_template": "off", **({"prompt": {"user": user}} if user else {}), **keys}

    def judge_texts(self, data, **keys):
        return self.judge(data, answers="answers", **keys)

    def generate(self, data, key="id", n=1, **dataset):
        slice_of = {"slice": dataset.pop("slice")} if "slice" in dataset else {}
        return {"task": "generate", "dataset": {"path": str(data), "text": "question", **({"key": key} if key else {}), **dataset}, "max_new_tokens": 6, "n": n, **slice_of}

    def prompts(self, path):
        """-> [(source index, prompt)]"""
        with h5py.File(path) as file:
            offset, ids = file["samples/offset"][:], file["tokens/id"][:]
            return [(int(index), self.tokenizer.decode(ids[a:b].tolist(), skip_special_tokens=False))
                    for index, a, b in zip(file["samples/source_index"][:], offset, offset[1:])]

    def texts(self, folder, field="id"):
        """-> {question: its texts}"""
        with h5py.File(folder / "answers.h5") as file:
            answers = {}
            for index, text in zip(file["samples/source_index"][:], file["generate/text"][:]):
                answers.setdefault(int(index), []).append(text.decode().rstrip("\0"))
            return answers

    def test_texts_that_are_all_empty_are_reported(self):
        """One line names field, file and number of records. One record with a text is enough for none."""
        blank = [{**record, "question": " ", "answer": "", "b": "\n", "chat": [{"role": "user", "content": ""}, {"role": "system"}]} for record in self.records[:3]]
        some = self.records[3] | {"b": "text", "chat": [{"role": "user", "content": "text"}]}
        paths = {True: self.data("blank", blank), False: self.data("mixed", [*blank, some])}
        chats = {"path": str(self.world.model), "dtype": "f32", "chat_template": "{% for one in messages %}<{{ one.content }}>{% endfor %}"}
        for is_empty, path in paths.items():
            chat = {"task": "generate", "dataset": {"path": str(path), "messages": "chat"}, "max_new_tokens": 2}
            pair = self.judge(path, user="{{ answer_a }} or {{ answer_b }} ?", mode="pairwise", fields={"answer_a": "answer", "answer_b": "b"})
            for name, task, field, key, extra in (("generate", self.generate(path), "question", "dataset.text", {}), ("chats", chat, "chat", "dataset.messages", {"model": chats}),
                                                  ("judge", self.judge(path), "answer", "fields", {}), ("pair", pair, "answer, b", "fields", {})):
                for ranks, command in ((0, "run"), (2, "run"), (2, "plan")):
                    with self.subTest(name=name, is_empty=is_empty, ranks=ranks, command=command):
                        self.start(f"{name}-{is_empty}-{ranks}-{command}", [task], ranks=ranks, command=command, **extra)
                        self.assertEqual(self.said.count(f"{field} of {path} is empty in all 3 records"), is_empty, self.said)
                        self.assertEqual(f"check {key}\n" in self.said, is_empty and command == "run", self.said)
        texts = self.generate(paths[True]) | {"constraint": {"choice": [" "]}}
        folder = self.start("empty-texts", [texts, self.judge_texts(paths[True])])
        self.assertIn(f"the text of {folder / 'answers.h5'} is empty in all 3 records", self.said)

    def judged(self, run, name, task, answers, records, **how):
        """Runs the judge over texts that are there; every record must be judged with its own."""
        prompts = self.prompts(self.start(run, [{**task, "name": name}], **how) / f"{name}.h5")
        n = len(next(iter(answers.values())))
        for number, (index, prompt) in enumerate(prompts):
            original = next(i for i, one in enumerate(self.records) if one["id"] == records[index]["id"])
            want = jinja2.Template(task["prompt"]["user"]).render(**{**records[index], "answer": answers[original][number % n]})
            self.assertEqual(prompt, want)
        return [index for index, _ in prompts]

    def refused(self, run, task, *words, code=65, **how):
        said = self.start(run, [{**task, "name": "refused"}], code=code, **how)
        for word in words:
            self.assertIn(word, said)
        left = [path.name for path in (self.world.folder / "runs" / run).glob("refused*") if path.suffix != ".lock"]
        self.assertEqual(left, [], "something was left behind")

    def written(self, run, **keys):
        """Texts of all records -> {place: texts}"""
        answers = self.texts(self.start(run, [self.generate(self.data("made", self.records), **keys)]))
        self.assertGreater(len({tuple(texts) for texts in answers.values()}), len(answers) / 2, "equal texts would show nothing")
        return answers

    def test_texts_are_matched_by_key(self):
        shuffled = random.Random(1).sample(self.records, 20)
        data = self.data("shuffled", shuffled)
        for n, ranks in ((1, 0), (3, 2)):
            answers = self.written(f"by-key-{n}", n=n)
            self.assertEqual(len(self.judged(f"by-key-{n}", "whole", self.judge_texts(data), answers, shuffled, ranks=ranks)), 20 * n)
            # A slice of the judge's takes what belongs to it, wherever that stands.
            self.assertEqual(set(self.judged(f"by-key-{n}", "half", self.judge_texts(data, slice="1/2"), answers, shuffled)), set(range(10, 20)))

    def test_same_data_needs_no_keys(self):
        answers = self.written("no-keys", key=None)
        for name, key in (("neither", None), ("one", "id")):
            self.assertEqual(len(self.judged("no-keys", name, self.judge_texts(self.data("made", self.records), key=key), answers, self.records)), 20)
        twice = [{**record, "id": "same"} for record in self.records]
        self.start("one-key", [self.generate(self.data("twice", twice)), self.judge_texts(self.data("twice", twice), name="verdicts")])

    def test_texts_of_other_records_are_refused(self):
        self.written("keys")
        self.written("places", key=None)
        data = lambda name, records: self.judge_texts(self.data(name, records))
        place = lambda name, records: self.judge_texts(self.data(name, records), key=None)
        new = {**self.records[0], "id": "new"}
        self.refused("keys", data("more", self.records + [new]), "more.jsonl:21", '"new"', "1 record has no text")
        self.refused("keys", data("fewer", self.records[:7] + self.records[8:]), '"r7"', "1 key there is no record's", ranks=2)
        self.refused("keys", data("other", [new] + self.records[1:]), '"new"', '"r0"', ranks=2)
        self.refused("keys", data("double", self.records[:-1] + [self.records[3]]), '"r3"', '"r19"', "double.jsonl:20")
        self.refused("keys", self.judge_texts(self.data("made", self.records), limit=15), "15 to 19")
        self.refused("keys", place("moved", self.records[1:] + self.records[:1]), "dataset_sha256", "dataset.key")
        self.refused("places", place("moved", self.records[1:] + self.records[:1]), "dataset_sha256", "dataset.key", ranks=2)
        self.refused("places", data("moved", self.records[1:] + self.records[:1]), "dataset_sha256", "dataset.key")
        self.start("same-keys", [self.generate(self.data("twice", [{**record, "id": f"r{i // 2}"} for i, record in enumerate(self.records)]))])
        self.refused("same-keys", data("made", self.records), '"r0"', "twice")
        self.start("part", [self.generate(self.data("made", self.records), limit=12)])
        self.refused("part", data("made", self.records), "12 to 19")
        self.refused("part", data("edited", [{**record, "note": 1} for record in self.records]), "8 records have no text", '"r12"')
        self.start("sliced", [self.generate(self.data("made", self.records), slice="1/2")])
        self.refused("sliced", data("made", self.records), "0 to 9")
        self.refused("sliced", self.judge_texts(self.data("made", self.records), slice="0/2"), "0 to 9")
        self.start("sliced", [self.judge_texts(self.data("made", self.records), slice="1/2", name="right")])

    def test_numbers_of_any_size(self):
        """Only what a prompt reads is looked at, and it is written with all its digits, as jinja2 does with what Python's json reads."""
        big, unused = "123456789012345678901234567890", '"deep": {"a": [1e400, {"b": -1E+999}, 18446744073709551616]}'
        lines = [f'{{"id": {key}, "question": "q", "hash": {number}, "list": [{number}, {{"x": -{big}, "y": 1e400, "z": 0.5}}], {unused}, "answer": "a", "references": ["a"]}}'
                 for key, number in (("12345678901234567890", "12345678901234567890"), (big, "9223372036854775807"), ("-1", "9223372036854775808"), (f"-{big}", big), ("7", "1" + "0" * 400),
                                     ("8", "1e400"), ("9", "-1e999"), ("10", "18446744073709551615"))]
        data = self.world.folder / "numbers.jsonl"
        data.write_text("\n".join(lines) + "\n\n")
        user = ("{{ question }} {{ hash }} {{ list }} {{ list | tojson }} {{ hash == list[0] }} {{ hash in list }} {{ hash == 12 }} {{ hash is number }} {{ hash is integer }} {{ hash ~ '!' }}"
                "{% if hash %} {{ '%s' | format(hash) }}{% endif %} {{ hash == list[1].x }} {{ list[1].x | int }} {{ list[1].x | string | length }} {{ answer }}")
        environment = jinja2.Environment()
        environment.filters["tojson"] = json.dumps  # without HTML's escapes, as in transformers
        folder = self.start("numbers", [self.judge(data, user=user, name="v", low_mass=0.0)], ranks=2)
        records = [json.loads(line) for line in lines]
        self.assertEqual([prompt for _, prompt in self.prompts(folder / "v.h5")], [environment.from_string(user).render(**record) for record in records])
        with h5py.File(folder / "v.h5") as file:
            self.assertEqual([key.decode() for key in file["samples/key"][:]], [str(record["id"]) for record in records])
            self.assertEqual([text.decode() for text in file["record/hash"][:]], [line.split('"hash": ')[1].split(", ")[0] for line in lines])
        self.refused("numbers", self.judge(data, user="{{ question }} {{ hash + 1 }} {{ answer }}"), "numbers.jsonl:1", "int beyond 64 bits")

    def test_a_panel_is_of_the_same_texts(self):
        data = self.data("made", self.records)
        moved = self.judge(self.data("moved", self.records[1:] + self.records[:1]), name="first")
        self.start("panel", [moved, self.judge(data, name="limited", limit=20), self.judge(data, name="own", slice="0/2")])
        for judge in ("first", "own"):
            self.refused("panel", self.judge(data, panel=[judge]), f"{judge}.h5", "judges other texts", ranks=2)
        self.start("panel", [self.judge(data, panel=["limited"])])

    def labelled(self, labels, name="labelled", **extra):
        return self.data(name, [{**record, **extra, **({} if label is ... else {"label": label})} for record, label in zip(self.records, labels, strict=True)])

    def test_labels_are_checked_before_work(self):
        good = ["yes", "no"] * 10
        for bad, mode in (("maybe", "reference"), ("", "reference"), (2, "reference"), (0.5, "reference"), ([], "reference"), (..., "reference"), ("D", "simpleqa"), (6, "rubric"), ("tie", "pairwise")):
            labels = {"reference": good, "simpleqa": ["A"] * 20, "rubric": [3] * 20, "pairwise": ["A"] * 20}[mode][:13] + [bad] + good[14:]
            labels = labels[:14] + [labels[0]] * 6
            task = self.judge(self.labelled(labels, answer_a="a", answer_b="b"), user=None, mode=mode, label="label")
            for command, ranks in (("plan", 0), ("run", 2)):
                self.refused("labels", task, "labelled.jsonl:14", "label", command=command, ranks=ranks)

    SPELLINGS = {"reference": (["yes", "Yes", " YES ", True, "true", "True", 1, 1.0, "1", "y"], ["no", "No", False, "FALSE", 0, 0.0, "0", "n"]),
                 "simpleqa": (["A", "a", "correct", "CORRECT"], ["B", "incorrect"], ["C", "not attempted", "Not-Attempted", "NOT_ATTEMPTED"]),
                 "rubric": ([1, "1", 1.0], [2], ["3", " 3"], [4], [5, 5.0]), "pairwise": (["A", "a"], ["B", "b "])}

    def test_labels_in_their_obvious_spellings(self):
        for mode, spellings in self.SPELLINGS.items():
            pairs = [(number, label) for number, known in enumerate(spellings) for label in known] + [(None, None)]
            pairs = (pairs * 20)[:20]
            path = self.start("spellings", [self.judge(self.labelled([label for _, label in pairs], answer_a="a", answer_b="b"), user=None, mode=mode, label="label",
                                                       low_mass=0.0, name=mode)]) / f"{mode}.h5"
            with h5py.File(path) as file:
                verdicts, order = file["judge/verdict"][:].tolist(), file["judge/order"][:].tolist()
            orders = 2 if mode == "pairwise" else 1
            confusion = [[0] * len(spellings) for _ in spellings]
            for row, verdict in enumerate(verdicts):
                label = pairs[row // orders][0]
                if label is not None:
                    confusion[1 - label if order[row] else label][verdict] += 1
            found = json.loads(path.with_suffix(".summary.json").read_text())["labels"]
            self.assertEqual(found["confusion_label_by_verdict"], confusion, mode)

    def test_a_summary_is_made_again_with_other_labels(self):
        task = self.judge(self.labelled(["yes"] * 20), user=None, label="label", low_mass=0.0, name="verdicts")
        path = self.start("again", [task], ranks=2) / "verdicts.h5"
        digest, summary = hashlib.sha256(path.read_bytes()).hexdigest(), path.with_suffix(".summary.json")
        labels = lambda: [sum(row) for row in json.loads(summary.read_text())["labels"]["confusion_label_by_verdict"]]
        self.assertEqual(labels(), [20, 0])
        for lost in (summary, summary.with_suffix(".csv")):
            whole = lost.read_bytes()
            lost.unlink()
            self.assertIn(f"{lost.name}: is not there, though", self.start("again", [task], code=74))
            self.start("again", [task], command="summarize")
            self.assertEqual(lost.read_bytes(), whole)
        # `label` is not part of what makes the experiment, so neither a run nor its bytes know it.
        self.start("again", [{key: value for key, value in task.items() if key != "label"}])
        self.labelled(["yes"] * 5 + ["no"] * 9 + [None] * 6)
        self.assertIn("dataset_sha256", self.start("again", [task], code=78))
        self.start("again", [task], command="summarize")
        self.assertEqual(labels(), [5, 9])
        self.labelled([True] * 7 + [False] * 13)
        self.start("again", [task], command="summarize", ranks=2)
        self.assertEqual(labels(), [7, 13])
        whole = summary.read_bytes()
        summary.unlink()
        self.start("again", [task], command="summarize")
        self.assertEqual(summary.read_bytes(), whole)
        for change, words, code in ((["maybe"] + ["no"] * 19, '"maybe"', 65),):
            self.labelled(change)
            self.assertIn(words, self.start("again", [task], command="summarize", code=code))
        records, self.records = self.records, self.records[1:] + self.records[:1]
        try:
            self.labelled(["yes"] * 20)
            self.assertIn("labelled.jsonl:1: is not the record", self.start("again", [task], command="summarize", code=65))
        finally:
            self.records = records
        self.labelled(["yes"] * 20)
        self.assertIn("prompt_sha256", self.start("again", [{**task, "prompt": {"user": PROMPT}}], command="summarize", code=65))
        self.assertIn("low_mass is 0.0 in it and 0.25 here", self.start("again", [{**task, "low_mass": 0.25}], command="summarize", code=65))
        self.assertIn("there is no such file", self.start("never", [task], command="summarize", code=65))
        self.assertFalse((path.parent.parent / "never").exists())
        (path.parent.parent / "unfinished").mkdir()
        (path.parent.parent / "unfinished/verdicts.h5.partial").write_bytes(path.read_bytes())
        self.assertIn("not complete", self.start("unfinished", [task], command="summarize", code=65))
        self.assertIn("no task of the experiment is a judge", self.start("never", [self.generate(self.data("made", self.records))], command="summarize", code=64))
        self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), digest)

    def test_likelihoods_follow_the_keys(self):
        self.start("likely", [self.generate(self.data("made", self.records))])
        shuffled = random.Random(3).sample(self.records, 20)
        aurocs = []
        for name, records in (("straight", self.records), ("shuffled", shuffled)):
            folder = self.start("likely", [self.judge_texts(self.data(name, records), name=name, low_mass=0.0)])
            aurocs.append(json.loads((folder / f"{name}.summary.json").read_text())["auroc_of_likelihood"])
        self.assertEqual(aurocs[0], aurocs[1])

    # A prompt of one's own.
    GOOD = ({"user": "{{ question }} {% if note is defined %}{{ note }}{% endif %}"}, {"user": "{{ question }} {{ note | default('none') }}"},
            {"user": "{% for r in references %}{{ loop.index }} {{ r }}{% endfor %}{% set s = question %}{{ s | upper }}"},
            {"user": "{% macro line(x, y=3) %}{{ x }}{{ y }}{{ varargs }}{% endmacro %}{{ line(question) }}{{ line(answer, 4) }}"},
            {"system": "{{ classes }}", "user": "{{ reply_rule | length > 0 }}{% with q = question %}{{ q }}{% endwith %}{{ range(3) | join }}"},
            {"user": "{{ question }}{% if rubric %}{{ rubric }}{% endif %}"}, {"user": "{% set ns = namespace(n=0) %}{% for r in references %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"})

    def test_prompts_that_say_what_they_mean(self):
        for number, prompt in enumerate(self.GOOD):
            folder = self.start("good", [self.judge(self.data("made", self.records), user=None, prompt=prompt, name=f"good{number}")])
            fields = {"classes": 5, "reply_rule": "You reply with one word: yes or no.", "rubric": None}
            render = lambda key, record: jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(prompt.get(key, "")).render(**fields, **record)
            for index, said in self.prompts(folder / f"good{number}.h5"):
                system, user = (render(key, self.records[index]) for key in ("system", "user"))
                self.assertEqual(said, f"{system}\n\n{user}" if system else user)

    def test_a_misspelt_name_is_refused_when_the_prompt_is_read(self):
        for prompt, words in (({"user": "{{ question }} {{ anser }}"}, ("prompt.user:1:19", '"anser"', 'did you mean "answer"', "question, references")),
                              ({"user": "{{ question }}\n{% if anser %}{{ anser }}{% endif %}"}, ("prompt.user:2:7", 'did you mean "answer"')),
                              ({"system": "{{ clases }}", "user": "{{ question }}"}, ("prompt.system:1:4", 'did you mean "classes"')),
                              ({"user": "{% for r in referenecs %}{{ r }}{% endfor %}"}, ("prompt.user:1:13", 'did you mean "references"')),
                              ({"user": "{% for r in references %}{{ r }}{% endfor %}{{ r }}"}, ('"r"',)),
                              ({"user": "{{ (question ~ anser) | upper }}"}, ('"anser"',)), ({"user": "{% macro m(x) %}{{ anser }}{% endmacro %}{{ m(1) }}"}, ('"anser"',)),
                              ({"user": "{% if question == 'never' %}{{ anser }}{% endif %}{{ question }}"}, ('"anser"',)), ({"user": "{{ tools }}"}, ('"tools"',))):
            self.refused("names", self.judge(self.data("made", self.records), user=None, prompt=prompt), *words, code=78)
            self.start("names", [self.judge(self.data("made", self.records), user=None, prompt=prompt)], code=78, command="plan", ranks=2)

    def test_a_ready_prompt_says_what_it_misses(self):
        """The record's own fields, none that the program makes, and the key that names another one."""
        bare = [{name: value for name, value in record.items() if name != "answer"} | {"response": "x"} for record in self.records]
        self.refused("bare", self.judge(self.data("bare", bare), user=None), 'bare.jsonl:1: there is no field "answer" (the ready prompt asks for it; the record has id, question, references, response)',
                     "with fields: {answer: NAME}, or take the texts of a generate task: answers")
        near = [{**record, "reponse": "x"} for record in bare]
        self.refused("near", self.judge(self.data("near", near), user=None, fields={"answer": "respons"}), 'there is no field "respons"', 'did you mean "response"')
        self.refused("pair", self.judge(self.data("bare", bare), user=None, mode="pairwise"), "with fields: {answer_a: ")
        # Its own template is no model's.
        for user in ("Is {{ answer right?", "{{ answer | uper }}"):
            self.refused("own", self.judge(self.data("made", self.records), user=user), "prompt.user:1:", "; correct it, or if it is a model's", code=78)

    def test_what_is_null_or_empty_is_refused_by_its_record(self):
        record = {"id": "x", "question": "why", "answer": "so", "references": ["a"], "nested": {"question": "q", "none": None}, "turns": [{"text": "t"}]}
        own = "{{ question }} {{ answer }}"
        for change, user, words in (
                ({"answer": None}, own, ('"answer" is null',)), ({"question": ""}, own, ('"question" is an empty text',)),
                ({"references": []}, "{{ references | join }}", ('"references" is an empty list',)), ({"references": []}, "{% for r in references %}{{ r }}{% endfor %}", ('"references"',)),
                ({"references": [None]}, "{{ references | join }}", ("null",)), ({"reference": "", "references": None}, "{{ references }}", ('"references" is null',)),
                ({}, "{{ nested.qestion }}", ('"qestion"', 'did you mean "question"')), ({}, "{{ nested['qestion'] }}", ('"qestion"',)), ({}, "{{ nested.none }}", ("null",)),
                ({}, "{% for turn in turns %}{{ turn.txt }}{% endfor %}", ('"txt"', 'did you mean "text"')), ({}, "{{ turns | map(attribute='txt') | join }}", ("txt",)),
                ({}, "{{ references[3] }}", ('"3"',)), ({}, "{% if nested.qestion %}x{% endif %}{{ question }}", ('"qestion"',)), ({}, "{{ rubric }}", ('"rubric" is null',)),
                ({"answer": None}, None, ('"answer" is null',)), ({"references": []}, None, ('"references"',)), ({"question": None}, None, ('"question"',)),
                ({"references": None}, None, ('"references"',)), ({"references": [""]}, None, ('"references"',))):
            data = self.data("nothing", [record, {**record, "id": "y", **change}])
            place = "nothing.jsonl:1" if change == {} else "nothing.jsonl:2"
            self.refused("nothing", self.judge(data, user=user), place, *words)

    def test_what_may_be_null_or_empty(self):
        record = {"id": "x", "question": "why", "answer": "so", "references": ["a"], "nested": {"question": "q"}}
        for change, user, want in (
                ({"answer": ""}, "{{ question }} {{ answer }}", "why "), ({"note": None}, "{{ question }}", "why"), ({"question": None}, "{% if question is none %}-{% else %}{{ question }}{% endif %}", "-"),
                ({"references": []}, "{% if references %}{{ references | join }}{% else %}none{% endif %}", "none"), ({"references": []}, "{% for r in references %}{{ r }}{% else %}none{% endfor %}", "none"),
                ({"references": []}, "{{ question }}{{ references | length > 0 }}", "whyFalse"), ({"question": ""}, "{{ question or 'none' }}", "none"),
                ({"question": None}, "{{ question | default('none', true) }}", "none"), ({}, "{{ nested.x is defined }}{{ nested.y | default('none') }}", "Falsenone"),
                ({"question": None}, "{{ answer if question else 'none' }}", "none"), ({"question": None}, "{% if answer == 'so' %}{{ answer }}{% else %}{{ question }}{% endif %}", "so")):
            folder = self.start("may", [self.judge(self.data("may", [record, {**record, "id": "y", **change}]), user=user, name=f"may-{abs(hash((str(change), user)))}")])
            newest = max(folder.glob("may-*.h5"), key=lambda path: path.stat().st_mtime_ns)
            self.assertEqual(self.prompts(newest)[1][1], want)
        # Of a generate task's texts some are empty.
        folder = self.start("empty", [{**self.generate(self.data("made", self.records)), "constraint": {"regex": "(a{60})?"}}, self.judge_texts(self.data("made", self.records), user=None)])
        self.assertIn(True, [text == [""] for text in self.texts(folder).values()], "this test has no empty text")


if __name__ == "__main__":
    unittest.main(verbosity=2)
