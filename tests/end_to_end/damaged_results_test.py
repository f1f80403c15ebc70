"""Bytes that change on disk between a file's writing and its use. Of a stopped run: units that were done are made again with the undisturbed
run's bytes, tokens that wait are refused. Of a complete file of another task: judge, score and evaluate refuse the unit by its number.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

import tiny_world

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0]
# Without keys, so that a text is found by its place; 1,050 texts are two units of the packed file.
TEXTS = """  - task: generate
    dataset: {{path: {data}, limit: 5}}
    max_new_tokens: 3
    max_prompt_length: 512
    n: 210
"""
SCORE = """  - task: score
    dataset: {{path: {data}, limit: 5}}
    answers: answers
    score: {{verifier: regex, pattern: '([a-z])', answer: id}}
"""
JUDGE = """  - task: judge
    dataset: {{path: {data}, limit: 5}}
    answers: answers
    mode: simpleqa
    prompt: {{user: "{{{{ text }}}} {{{{ answer }}}}"}}
"""
EVALUATE = """  - task: evaluate
    scores: score
"""


def flip(path, dataset, at):
    """One bit of the at-th byte of a dataset."""
    with h5py.File(path) as file:
        place = file[dataset].id.get_offset() + at
    bytes_of = bytearray(path.read_bytes())
    bytes_of[place] ^= 4
    path.write_bytes(bytes_of)


def write_prompts(world, count):
    world.data.write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(tiny_world.WORDS[:count])))


def units(partial):
    """-> (numbers of the units that are done, of those that are not, first rows of all)"""
    with h5py.File(partial) as file:
        done, first_row = file["commit/done"][:], file["samples/offset"][:][file["commit/unit_begin"][:]]
    return numpy.flatnonzero(done == 1), numpy.flatnonzero(done == 0), first_row


class Stopped(unittest.TestCase):
    def world(self, text=tiny_world.EXPERIMENT, results="teacher.h5", prompts=0):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        world = tiny_world.World(scratch.name, records=60, text=text, results=(results,))
        if prompts:
            write_prompts(world, prompts)
        return world, world.complete("x", 1)

    def stop(self, world, running):
        """Killed after a few units -> the unfinished file."""
        world.forget("x")
        self.assertNotEqual(world.run("x", 0, MAGISTER_FAIL_POINT="results.commit.done_written@4:kill").returncode, 0)
        return world.results("x").with_name(running)

    def goes_on(self, world, reference, partial, changed, ranks):
        check = subprocess.run([tiny_world.PROGRAM, "check", partial], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 65)
        self.assertIn(f"unit {changed[0]} ", check.stdout + check.stderr)
        went = world.run("x", ranks)
        self.assertEqual(went.returncode, 0, went.stderr)
        named = f"units {changed[0]}, {changed[1]} are" if len(changed) > 1 else f"unit {changed[0]} are"
        self.assertIn(f"the bytes of {named} not those that were committed", went.stderr)
        self.assertIn(partial.name, went.stderr)
        self.assertEqual(world.sha256("x"), reference)

    def refuses(self, world, reference, partial, unit, ranks):
        before = partial.read_bytes()
        check = subprocess.run([tiny_world.PROGRAM, "check", partial], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 65)
        self.assertIn(f"unit {unit}: its keys, places or tokens", check.stdout + check.stderr)
        went = world.run("x", ranks)
        self.assertEqual(went.returncode, 65, went.stderr)
        self.assertIn(f"what unit {unit} is computed from", went.stderr)
        self.assertIn("--fresh", went.stderr)
        self.assertEqual(partial.read_bytes(), before, "nothing is overwritten")
        self.assertEqual(world.complete("x", ranks, "--fresh"), reference)

    def test_teacher_logits(self):
        world, reference = self.world()
        for ranks in (1, 2):
            partial = self.stop(world, "teacher.h5.partial")
            done, _, row = units(partial)
            changed = [int(done[0]), int(done[-1])]
            self.assertLess(*changed)
            flip(partial, "teacher/entropy", 4 * int(row[changed[0]]))
            flip(partial, "teacher/top_id", 4 * 8 * int(row[changed[1]]) + 5)
            self.goes_on(world, reference, partial, changed, ranks)
        for ranks, of_done in ((2, False), (1, True)):
            partial = self.stop(world, "teacher.h5.partial")
            done, waiting, row = units(partial)
            unit = int((done if of_done else waiting)[0])
            flip(partial, "tokens/id", 4 * int(row[unit]))
            self.refuses(world, reference, partial, unit, ranks)

    def test_killed_when_the_flag_is_taken_back(self):
        world, reference = self.world()
        partial = self.stop(world, "teacher.h5.partial")
        done, _, row = units(partial)
        flip(partial, "teacher/entropy", 4 * int(row[done[0]]))
        killed = world.run("x", 0, MAGISTER_FAIL_POINT="results.resume.flags_taken_back@1:kill")
        self.assertNotEqual(killed.returncode, 0)
        self.assertEqual(units(partial)[0].tolist(), done[1:].tolist())
        self.assertEqual(world.complete("x", 2), reference)

    def test_generate(self):
        world, reference = self.world(HEAD + TEXTS.replace("n: 210", "n: 2").replace("limit: 5", "limit: 12"), "answers.h5", prompts=12)
        running = "answers.running.h5.partial"
        partial = self.stop(world, running)
        done, _, _ = units(partial)
        with h5py.File(partial) as file:
            width = file["generate/slot_logprob"][0].nbytes
        flip(partial, "generate/slot_logprob", width * int(done[1]) + 1)
        self.goes_on(world, reference, partial, [int(done[1])], 2)
        partial = self.stop(world, running)
        _, waiting, row = units(partial)
        flip(partial, "tokens/id", 4 * int(row[waiting[0]]))
        self.refuses(world, reference, partial, int(waiting[0]), 2)


class Complete(unittest.TestCase):
    """Of two units of texts the second is damaged: the first shows nothing."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = tiny_world.World(pathlib.Path(scratch.name), records=1, text=HEAD + TEXTS, results=("answers.h5",))
        write_prompts(cls.world, 5)
        cls.world.complete("x", 2)
        cls.answers = cls.world.results("x").read_bytes()

    def setUp(self):
        self.folder = self.world.results("x").parent
        self.world.forget("x")
        self.folder.mkdir()
        (self.folder / "answers.h5").write_bytes(self.answers)

    def run_with(self, *tasks, ranks=2):
        self.world.text = HEAD + "".join(tasks)
        return self.world.run("x", ranks)

    def refused(self, name, said, *results):
        self.assertEqual(said.returncode, 65, said.stderr)
        self.assertIn(name, said.stderr)
        self.assertIn("the bytes of unit 1 have crc32c", said.stderr)
        for path in results:
            self.assertFalse(list(self.folder.glob(path)), "nothing is written")

    def damage_last_text(self):
        path = self.folder / "answers.h5"
        with h5py.File(path) as file:
            text = max(file["generate/text"][1024:], key=len)
            self.assertEqual(file["commit/done"].shape, (2,))
        bytes_of = bytearray(self.answers)
        at = self.answers.rindex(text)  # the heap stands in the order of the texts
        self.assertGreater(at, len(self.answers) // 2)
        bytes_of[at] ^= 1
        path.write_bytes(bytes_of)

    def test_score_and_judge_refuse_texts(self):
        self.damage_last_text()
        for task, result in ((SCORE, "score.h5*"), (JUDGE, "verdicts.h5*")):
            said = self.run_with(TEXTS, task)
            self.refused("answers.h5", said, result.replace("*", ""), result.replace("*", ".partial"))

    def test_a_sum_of_a_text_is_refused(self):
        """The likelihoods of a judge's summary, whose prompts do not change with them."""
        path = self.folder / "answers.h5"
        with h5py.File(path) as file:
            last = file["generate/logprob"].shape[0] - 1
        flip(path, "generate/logprob", 4 * last)
        self.refused("answers.h5", self.run_with(TEXTS, JUDGE), "verdicts.h5", "verdicts.h5.partial")

    def test_evaluate_refuses_scores(self):
        done = self.run_with(TEXTS, SCORE)
        self.assertEqual(done.returncode, 0, done.stderr)
        scores = self.folder / "score.h5"
        with h5py.File(scores) as file:
            first_of_next = int(file["commit/unit_begin"][1])
        flip(scores, "score/value", 4 * first_of_next + 3)
        said = self.run_with(TEXTS, SCORE, EVALUATE)
        self.refused("score.h5", said, "evaluation*")

    def test_a_panel_s_verdicts_are_refused(self):
        panel = JUDGE + "    name: second\n    panel: [verdicts]\n"
        done = self.run_with(TEXTS, JUDGE)
        self.assertEqual(done.returncode, 0, done.stderr)
        verdicts = self.folder / "verdicts.h5"
        with h5py.File(verdicts) as file:
            first_of_next, width = int(file["commit/unit_begin"][1]), file["judge/class_logprob"].shape[1]
        flip(verdicts, "judge/class_logprob", 4 * width * first_of_next)
        self.refused("verdicts.h5", self.run_with(TEXTS, JUDGE, panel), "second.h5")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
