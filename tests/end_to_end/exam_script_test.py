"""Exams by a model whose every reply is planted (scripted_model.py): each branch of the way from an objective to its items, the numbers of
the checks, duplicates over the exam, objectives from the source, a validator of its own, and a set of planted defects.
"""
import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.dom.minidom
import zipfile

import h5py
import yaml

import tiny_world
from scripted_model import write_model

CHECKS = [  # (texts of the prompt, the row after it), after the rules of an experiment's own
    *((("Reply with its letter.", "You take an exam.", f"{letter}. the right"), {letter: 0.5, **{other: 0.0 for other in "ABC" if other != letter}}) for letter in "ABC"),
    *((("Reply with its letter.", f"{letter}. the right"), {letter: 2.0, **{other: 0.0 for other in "ABC" if other != letter}}) for letter in "ABC"),
    (("Is the proposed answer right?",), {"y": 0.0, "n": 4.0}),
    (("Does the passage say that this answer is right?",), {"y": 3.0, "n": 0.0}),
    (("Does the question test this objective?",), {"y": 2.5, "n": 0.0}),
    (("Is the question clearly worded",), {"y": 1.5, "n": 0.0}),
    (("Which level of Bloom's taxonomy",), {**dict.fromkeys("ABDEF", 0.0), "C": 1.0}),
    (("Do both questions ask the same thing?",), {"y": 0.0, "n": 5.0})]
NO = {"y": 0.0, "n": 1.0}
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
REASONS = ("cut_off complete key_in_set distinct_choices all_or_none longest_is_key cue_words absolute_words grammar_cue stem_negation answer_in_stem repeated "
           "unchanged too_long blind closed_book single_key support alignment wording duplicate").split()


def item(stem, answer="the right one", wrong=("some other one", "a third one"), explanation="It says so."):
    return json.dumps({"question": stem, "answer": answer, "distractors": list(wrong), "explanation": explanation}, ensure_ascii=False)


def stem_of(text):
    return json.loads(text)["question"]


def versions(*stems, wrong=None):
    """Items that differ from each other by more than MinHash calls near."""
    return [item(f"What of {stem} is meant by {stem} here?", **({"wrong": wrong} if wrong else {})) for stem in stems]


def writing_rules(objective, texts):
    """The k-th version is texts[k]; after the last one the first again."""
    earlier = [((f"objective: {objective}", "An earlier attempt", stem_of(text)), texts[(i + 1) % len(texts)]) for i, text in enumerate(texts)]
    return [*earlier, ((f"objective: {objective}", "Write one"), texts[0])]


SAME = ("a thing and another",)  # wrong choices are no part of what duplicates are compared by


class Branch:
    """An objective, what the model writes for it, what it answers about that, and what has to come of it."""

    def __init__(self, name, texts, want, own=()):
        self.objective = f"Explain the {name}."
        self.rules = [*own, *writing_rules(self.objective, texts)]
        self.want = want  # by version: the names of its reasons; none: accepted


PAIR = f"Which of these numbers comes first in the list {WORDS} that"
BRANCHES = [
    Branch("clean", [item(f"{PAIR} ends?")], [[]]),
    Branch("malformed", versions("malfa", "malfb", wrong=("the same", "The  SAME")), [["distinct_choices"]] * 3),
    Branch("mended", [versions("menda", wrong=("all of the above", "x"))[0], *versions("mendb")], [["all_or_none"], []]),
    Branch("endless", [item("What is endless?")], [["cut_off"], ["cut_off", "unchanged"]], [(("objective: Explain the endless.",), {'{': 0.0})]),
    Branch("unsupported", versions("unsua", "unsub"), [["support"]] * 2, [(("Does the passage say", "unsu"), NO)]),
    Branch("supported", versions("suppa", "suppb"), [["support"], []], [(("Does the passage say", "suppa"), NO)]),
    Branch("unclear", versions("uncla", "unclb"), [["wording"]] * 2, [(("clearly worded", "uncl"), NO)]),
    Branch("clarified", versions("claa", "clab"), [["wording"], []], [(("clearly worded", "claa"), NO)]),
    # Each kind of refusal has a bound of its own: one of the form, one of a check and the second one of the wording.
    Branch("mixture", [*versions("mixa"), *versions("mixb"), versions("mixc", wrong=("x", "X"))[0], *versions("mixd")],
           [["wording"], ["alignment"], ["distinct_choices"], ["wording"]],
           [(("clearly worded", "mixa"), NO), (("test this objective", "mixb"), NO), (("clearly worded", "mixd"), NO)]),
    Branch("wrongkey", versions("wroa", "wrob"), [["blind"]] * 2, [(("Reply with its letter.", "wro"), {"A": 2.0, "B": 1.0, "C": 0.0})]),
    Branch("twokeys", versions("twoa", "twob"), [["single_key"]] * 2, [(("Is the proposed answer right?", "meant by two", "some other one"), {"y": 1.25, "n": 0.0})]),
    Branch("offside", versions("offa", "offb"), [["alignment"]] * 2, [(("test this objective", "meant by off"), NO)]),
    Branch("wellknown", versions("wella", "wellb"), [["closed_book"]] * 2,
           [(("Reply with its letter.", "You take an exam.", "meant by well", f"{letter}. the right"), {**dict.fromkeys("ABC", 0.0), letter: 4.0}) for letter in "ABC"]),
    Branch("copy", [item(f"{PAIR}  ENDS?")], [["duplicate"]]),
    Branch("paraphrase", [item(f"{PAIR} stops?")], [["duplicate"]], [(("the same thing", "stops?\nAnswer: the right one\n\nQuestion 2"), {"y": 2.0, "n": 0.0}), (("the same thing", "stops?"), {"y": 0.0, "n": 0.5})]),
    Branch("sibling", [item(f"{PAIR} begins?")], [[]]),
    # With its wide characters a prompt of its checks is longer than max_prompt_length, and so would be one that shows the attempt.
    Branch("wide", [item("\U0001f642" * 290 + " wide?", explanation="\U0001f642" * 200)], [["too_long"], ["unchanged"]]),
]

DEFECTS = ["complete", "distinct_choices", "all_or_none", "cue_words", "blind", "single_key", "alignment", "support"]
EXPERIMENT = {"seed": 3, "layout": {"devices": "cpu"}, "tasks": [{
    "task": "exam", "items": {"per_objective": 1, "choices": 3, "bloom": False}, "bounds": {"generate": 3, "validate": 2, "review": 2},
    "source": {"passages": 1, "passage_tokens": 64}, "temperature": 0, "max_new_tokens": 40, "max_prompt_length": 2000,
    "validator": {"reject": ["blind", "closed_book", "single_key", "support", "alignment", "wording"], "closed_book": 0.8}}]}


class Script(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def run_it(self, rules, listed, ranks=0, text="Numbers have an order.\n", name="exam", checked_by=None, code=0, shards=1, environment=None, **keys):
        """-> folder of the results; or, for another code, what the run says."""
        (self.folder / "source.md").write_text(text)
        (self.folder / "objectives.txt").write_text("".join(f"1.1.1.{i} {text}\n" for i, text in enumerate(listed, 1)))
        model = self.folder / "model"
        if not model.exists():
            write_model(model, [*rules, *CHECKS])
        experiment = json.loads(json.dumps(EXPERIMENT)) | {"name": name, "output": {"directory": str(self.folder)}, "model": {"path": str(model), "dtype": "f32"}}
        task = experiment["tasks"][0]
        task["source"]["path"] = str(self.folder / "source.md")
        task["objectives"] = {"path": str(self.folder / "objectives.txt")}
        for key, value in keys.items():
            task[key] = {**task[key], **value} if isinstance(value, dict) and key != "objectives" else value
        if checked_by:
            task["validator"]["model"] = {"path": str(checked_by), "dtype": "f32"}
        experiment["layout"]["shards_per_rank"] = shards
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        environment = {**os.environ, **(environment or {}), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*launcher, tiny_world.PROGRAM, "run", str(self.folder / f"{name}.yaml")], env=environment, cwd=self.folder, capture_output=True,
                              text=True, timeout=1200)
        self.assertEqual(done.returncode, code, done.stderr[-4000:])
        return self.folder / name if code == 0 else done.stderr

    def versions_of(self, folder):
        """-> [(objective, item, state, reasons, numbers)] in the order of the file."""
        rows = []
        with h5py.File(folder / "exam.h5") as file:
            texts = {name: [text.decode() for text in file[f"items/{name}"][:]] for name in ("objective_text", "stem", "repeats")}
            numbers = {name: file[f"checks/{name}"][:] for name in file["checks"]}
            for i, bits in enumerate(file["items/reasons"][:].tolist()):
                rows.append({"objective": texts["objective_text"][i], "item": int(file["items/item"][i]), "state": int(file["items/state"][i]),
                             "reasons": [name for bit, name in enumerate(REASONS) if bits >> bit & 1], "stem": texts["stem"][i], "repeats": texts["repeats"][i],
                             **{name: column[i] for name, column in numbers.items()}})
        return rows

    def test_every_branch(self):
        folder = self.run_it([rule for branch in BRANCHES for rule in branch.rules], [branch.objective for branch in BRANCHES])
        rows = self.versions_of(folder)
        found = {branch.objective: [row for row in rows if row["objective"] == branch.objective] for branch in BRANCHES}
        for branch in BRANCHES:
            own = found[branch.objective]
            self.assertEqual([row["reasons"] for row in own], branch.want, branch.objective)
            self.assertEqual([row["state"] for row in own], [1] * (len(own) - 1) + [0 if branch.want[-1] == [] else 2], branch.objective)
        summary = json.loads((folder / "exam.summary.json").read_text())
        accepted = [branch.objective for branch in BRANCHES if branch.want[-1] == []]
        self.assertEqual((summary["requested"], summary["accepted"], summary["missing"]), (len(BRANCHES), len(accepted), len(BRANCHES) - len(accepted)))
        self.assertEqual([one["objective"] for one in summary["objectives"] if one["missing"]], [b.objective for b in BRANCHES if b.objective not in accepted])
        said = (folder / "exam.summary.txt").read_text()
        for branch in BRANCHES:
            self.assertEqual(branch.objective in said, branch.objective not in accepted, said)
        clean = found["Explain the clean."][0]
        share = lambda logit: math.exp(logit) / (math.exp(logit) + 2)
        for name, want in (("blind", share(2)), ("blind_right", 1), ("closed_book", share(0.5)), ("single_key", -4), ("support", 3), ("alignment", 2.5), ("wording", 1.5),
                           ("bloom_probability", math.e / (math.e + 5)), ("mass", 1), ("same", math.nan)):
            self.assertEqual(str(clean[name]), "nan") if math.isnan(want) else self.assertAlmostEqual(float(clean[name]), want, delta=1e-5, msg=name)
        self.assertAlmostEqual(float(found["Explain the twokeys."][0]["single_key"]), 1.25, delta=1e-5)
        self.assertEqual([round(float(x), 4) for x in found["Explain the twokeys."][0]["distractors"]], [1.25, -4])
        for name, want in (("paraphrase", 0.75), ("sibling", -5)):
            self.assertAlmostEqual(float(found[f"Explain the {name}."][0]["same"]), want, delta=1e-5)
            self.assertEqual(found[f"Explain the {name}."][0]["repeats"], "1.1.1.1-1")
        self.assertEqual(found["Explain the malformed."][0]["structure"][2], 1)

    def test_items_of_one_objective(self):
        objective, levels = "Explain the order.", ("remember", "understand", "apply")
        stem = "Which of the items in {} that the class has read aloud on Monday morning comes first?".format(WORDS)
        first, copy = item(stem), item(stem.upper())
        near = [item(stem.replace("Monday", f"{day} nearday")) for day in ("Tuesday", "Friday")]
        at = lambda level, *texts: (f'level "{level}"', f"objective: {objective}", *texts)
        rules = [(at("remember"), first), (at("understand", "An earlier attempt", stem_of(near[0])), near[1]), (at("understand", "An earlier attempt"), near[0]),
                 (at("understand"), copy), (at("apply"), item(stem.replace("first", "last"))),
                 (("the same thing", "nearday", "Monday morning comes first?\nAnswer: the right one\n\nDo both"), {"y": 1.75, "n": 0.0}),
                 (("the same thing", "nearday"), {"y": 0.0, "n": 0.75})]
        folder = self.run_it(rules, [objective], items={"per_objective": 3, "bloom": True})
        rows = self.versions_of(folder)
        self.assertEqual([(row["item"], row["reasons"]) for row in rows],
                         [(0, []), (1, ["repeated"]), (1, ["repeated"]), (1, ["repeated"]), (2, [])])
        self.assertEqual([row["repeats"] for row in rows], ["", "", "1.1.1.1-1", "1.1.1.1-1", "1.1.1.1-1"])
        self.assertAlmostEqual(float(rows[2]["same"]), 0.5, delta=1e-5)
        self.assertAlmostEqual(float(rows[4]["same"]), -5, delta=1e-5)

    def test_a_validator_of_its_own(self):
        objective = "Explain the clean."
        validator = write_model(self.folder / "validator", [(("Does the passage say",), {"y": 0.25, "n": 0.0}), (("test this objective",), NO), *CHECKS], longer_by=37)
        rules = writing_rules(objective, versions("vala", "valb"))
        rows = self.versions_of(self.run_it(rules, [objective], name="own"))
        self.assertEqual([row["reasons"] for row in rows], [[]])
        folder = self.run_it(rules, [objective], name="exam", checked_by=validator)
        rows = self.versions_of(folder)
        self.assertEqual([row["reasons"] for row in rows], [["alignment"]] * 2)
        self.assertAlmostEqual(float(rows[0]["support"]), 0.25, delta=1e-5)
        self.assertAlmostEqual(float(rows[0]["alignment"]), -1, delta=1e-5)
        with h5py.File(folder / "exam.h5") as file:
            self.assertNotEqual(file.attrs["validator_model_sha256"], file.attrs["model_sha256"])
        plan = lambda *arguments: subprocess.run([tiny_world.PROGRAM, "plan", *arguments, str(self.folder / "exam.yaml")], capture_output=True, text=True).stdout
        for said in (plan(), plan("--config-only")):
            self.assertIn("validator: weights", said)
        first = (folder / "exam.h5").read_bytes()
        folder.rename(folder.with_name("first"))
        self.assertEqual((self.run_it(rules, [objective], ranks=2, checked_by=validator) / "exam.h5").read_bytes(), first)
        # A group of two devices, which are a GPU's code on the host.
        group = self.versions_of(self.run_it(rules, [objective], name="group", checked_by=validator, shards=2, environment={"MAGISTER_GPU_CODE_ON_HOST": "1"}))
        self.assertEqual([row["reasons"] for row in group], [["alignment"]] * 2)
        for name in ("support", "alignment", "blind", "closed_book", "single_key"):
            self.assertAlmostEqual(float(group[0][name]), float(rows[0][name]), delta=1e-3)
        said = self.run_it(rules, [objective], name="absent", checked_by=self.folder / "nothing", code=74)
        self.assertIn("nothing", said)

    def test_objectives_from_the_source(self):
        pages = [f"Passage about {thing}. " + "It is told at some length what this thing is. " * 3 for thing in ("rain", "wind", "snow", "hail")]
        written = lambda text: json.dumps({"objective": text})
        rules = [(("Write one learning objective", "about wind", "exist already"), written("Tell how wind\nbegins to blow.")),
                 (("Write one learning objective", "about hail"), written("Explain where rain comes from.")),  # never another one
                 *((("Write one learning objective", f"about {thing}"), written("Explain where rain  comes from.")) for thing in ("rain", "wind")),
                 (("Write one learning objective", "about snow"), written("Describe a flake of snow.")),
                 *writing_rules("Explain where rain comes from.", versions("raina")), *writing_rules("Tell how wind begins to blow.", versions("winda")),
                 *writing_rules("Describe a flake of snow.", versions("snowa")),
                 (("objective: xxx",), NO)]  # the longest prompt of an item, which is measured alone
        keys = {"objectives": {"auto": 4}, "source": {"passage_tokens": 170}}
        folder = self.run_it(rules, [], text="\n\n".join(pages), **keys)
        listed = (folder / "exam.objectives.txt").read_text()
        self.assertEqual([line for line in listed.splitlines() if not line.startswith("#")],
                         ["1.1 Explain where rain comes from.", "1.2 Tell how wind begins to blow.", "1.3 Describe a flake of snow."])
        self.assertEqual([line.rsplit(", ")[-1] for line in listed.splitlines() if ", passage " in line], ["passage 1", "passage 2", "passage 3"])
        self.assertEqual([(row["objective"], row["reasons"]) for row in self.versions_of(folder)],
                         [("Explain where rain comes from.", []), ("Tell how wind begins to blow.", []), ("Describe a flake of snow.", [])])
        with h5py.File(folder / "exam.h5") as file:
            kept = json.loads(file.attrs["objectives"])
            cited = [json.loads(text)["number"] for text in file["items/source"][:]]
        self.assertEqual([(one["number"], one["passage"]) for one in kept], [("1.1", 0), ("1.2", 1), ("1.3", 2)])
        self.assertEqual(cited, [0, 1, 2])
        summary = json.loads((folder / "exam.summary.json").read_text())
        self.assertEqual((summary["accepted"], summary["missing"]), (3, 1))
        self.assertIn("1.4", (folder / "exam.summary.txt").read_text())
        bytes_of = lambda of: [(of / name).read_bytes() for name in ("exam.h5", "exam.objectives.txt", "exam.summary.json")]
        first = bytes_of(folder)
        folder.rename(folder.with_name("first"))
        self.assertEqual(bytes_of(self.run_it(rules, [], ranks=2, text="\n\n".join(pages), **keys)), first)
        # The list is read again as it was written.
        again = self.run_it(rules, [], text="\n\n".join(pages), name="again", **keys | {"objectives": {"path": str(folder / "exam.objectives.txt")}})
        self.assertEqual([row["objective"] for row in self.versions_of(again)], [one["text"] for one in kept])
        said = self.run_it(rules, [], text=pages[0], name="small", code=65, **keys)
        self.assertIn("objectives.auto", said)
        self.assertFalse((self.folder / "small/exam.h5").exists())

    def test_hostile_texts(self):
        """Control characters, markup of every format and writing from right to left come from the model into every file as they are."""
        texts = ["\u0001 ring\u0007", "~ = # { } \\: %50%", "<b>&amp; ]]> \"'", "\u05e9\u05dc\u05d5\u05dd \u202eabc"]
        objective, stem = "Explain the hostile.", f"What is {' and '.join(texts[1:])} \u0001\u0002 here?"
        rules = [*writing_rules(objective, [item(stem, texts[0], texts[1:], " | ".join(texts))]),
                 *((("Reply with its letter.", f"{letter}. {texts[0]}"), {**dict.fromkeys("ABCD", 0.0), letter: 2.0}) for letter in "ABCD")]
        exports = ["txt", "gift", "moodle", "qti21", "qti30", "jsonl", "html"]
        folder = self.run_it(rules, [objective], items={"choices": 4}, exports=exports, title="<t> & \u05e9")
        self.assertEqual([row["reasons"] for row in self.versions_of(folder)], [[]])
        written = json.loads((folder / "exam.jsonl").read_text())
        self.assertEqual((written["stem"], sorted(choice["text"] for choice in written["choices"])), (stem, sorted(texts)))
        self.assertEqual(written["choices"][written["key"]]["text"], texts[0])
        page = (folder / "exam.html").read_text()
        self.assertIn("&lt;b&gt;&amp;amp; ]]&gt;", page)
        self.assertNotIn("<b>&", page)
        self.assertIn("\u05e9\u05dc\u05d5\u05dd", page)
        xml.dom.minidom.parse(str(next(folder.glob("*.xml"))))
        for package in folder.glob("*.zip"):
            with zipfile.ZipFile(package) as parts:
                self.assertIsNone(parts.testzip())
                for name in parts.namelist():
                    xml.dom.minidom.parseString(parts.read(name))
        self.assertEqual(len(list(folder.glob("*.zip"))), 2)
        done = subprocess.run([tiny_world.PROGRAM, "check", str(folder / "exam.h5")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_planted_defects(self):
        """Seven items of each kind of defect among 71, which people wrote without one. What the model says of an item is planted, too: that
        a verdict leads to its refusal is shown, not that a model finds the defect."""
        lines = (tiny_world.ROOT / "tests/tasks/exam_items.txt").read_text().splitlines()
        clean = [line.split(" | ") for line in lines if not line.startswith("#")]
        rules, objectives, want = [], [], []
        for i, (stem, key, *wrong) in enumerate([*clean, *clean[-7:]]):  # the last seven stand there already
            defect = DEFECTS[i // 7] if i < 7 * len(DEFECTS) else "duplicate" if i >= len(clean) else ""
            true = key
            if defect == "complete":
                wrong = [" ", *wrong[1:]]
            elif defect == "distinct_choices":
                wrong = [wrong[0], f" {wrong[0].upper()}\u00a0", *wrong[2:]]
            elif defect == "all_or_none":
                wrong = [*wrong[:2], "None of these"]
            elif defect == "cue_words":
                stem, key = f"{stem} Think of glimmerstones.", "the glimmerstone"
            elif defect == "blind":
                key, wrong = wrong[2], [key, *wrong[:2]]
            row = {"single_key": (("Is the proposed answer right?", f"Question: {stem}\n", f"answer: {wrong[0]}\n"), {"y": 1.0, "n": 0.0}),
                   "alignment": (("Does the question test this objective?", f"Question: {stem}\n"), NO),
                   "support": (("Does the passage say", f"Question: {stem}\n"), NO)}.get(defect)
            rules += [row] if row else []
            if defect not in DEFECTS[:4] and i < len(clean):
                rules += [(("Reply with its letter.", f"Question: {stem}\n", f"{letter}. {true}\n"), {**dict.fromkeys("ABCD", 0.0), letter: 2.0}) for letter in "ABCD"]
            objectives.append(f"Explain thing {i}.")
            rules.append(((f"objective: {objectives[-1]}", "Write one"), item(stem, key, wrong)))
            want.append(defect)
        keys = {"items": {"choices": 4}, "bounds": {"generate": 1, "validate": 1, "review": 1}, "validator": {"closed_book": 0.9}}
        rows = self.versions_of(self.run_it(rules, objectives, **keys))
        self.assertEqual(len(rows), 71)
        self.assertEqual(len([defect for defect in want if defect]), 63)
        missed = [(row["stem"], row["reasons"]) for row, defect in zip(rows, want) if defect and defect not in row["reasons"]]
        self.assertEqual(missed, [])
        others = [(row["stem"], row["reasons"]) for row, defect in zip(rows, want) if defect not in DEFECTS[:4] and set(row["reasons"]) & set(REASONS[1:11])]
        sound = sum(defect not in DEFECTS[:4] for defect in want)
        print(f"the form refuses {len(others)} of {sound} items without a defect of their form: {others}")
        self.assertLessEqual(20 * len(others), sound)


if __name__ == "__main__":
    unittest.main()
