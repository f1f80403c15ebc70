"""A kill at every named fail point of the sources, on either of two ranks, early and late; an error at each, which leaves no
half-made file; a full disk wherever bytes are written. Then the same command on another number of ranks gives the
uninterrupted run's bytes. The names are read from the sources, so a new fail point is tested from its first commit.
"""
import json
import re
import subprocess
import sys
import tempfile
import time
import unittest

import damaged_results_test
import evaluate_test
import exam_test
import grpo_test
import preference_test
import rollout_test
import score_test
import train_test
from tiny_world import CHAIN, EXPERIMENT, ROOT, World

GUIDED = """  - task: generate
    name: guided
    dataset: {{path: {data}, key: id, limit: 4}}
    max_prompt_length: 512
    max_new_tokens: 4
    guide: {{model: {{path: %s}}, candidates: 3}}
"""


def names():
    found = set()
    for path in (ROOT / "src").rglob("*.cpp"):
        found |= set(re.findall(r'\bfail_point\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    return sorted(found)


def writes():
    """Where a full disk can be pretended: the points whose answer is asked for and that stand before a write."""
    return [name for name in names() if name.endswith((".write", ".write.data"))]


class FailPoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        teacher = World(cls.scratch.name, records=60)
        chain = World(cls.scratch.name + "/chain", records=60, model=teacher.model, text=CHAIN, results=("answers.h5", "verdicts.h5"))
        scored = score_test.make_world(cls.scratch.name + "/score")
        score_test.make_classifier(scored.folder / "classifier", scored.model / "tokenizer.json", *score_test.MODELS["llama"])
        scored.model = scored.folder / "classifier"
        evaluating = train_test.EXPERIMENT.replace("save_every: 3", "save_every: 3, evaluate: {{dataset: {{path: {data}}}, every: 2}}")
        trained = World(cls.scratch.name + "/train", records=20, model=teacher.model, text=evaluating, results=("student.h5",))
        preferred = World(cls.scratch.name + "/preferred", records=1, model=teacher.model, text=preference_test.EXPERIMENT, results=("student.h5",))
        preference_test.Preference.write(preference_test.pairs(6), preferred.data)
        evaluated = World(cls.scratch.name + "/evaluated", records=1, model="none", text=evaluate_test.SHORT, results=("evaluation.h5",))
        evaluate_test.write_solutions(evaluated.data)
        written = World(cls.scratch.name + "/written", records=3, model=teacher.model, text=grpo_test.EXPERIMENT.replace("steps: 8", "steps: 3"), results=("student.h5",))
        written.data.write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(grpo_test.PROMPTS)))
        rolled = World(cls.scratch.name + "/rolled", records=3, model=teacher.model, text=rollout_test.EXPERIMENT, results=("rollouts.h5",))
        rolled.data.write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(grpo_test.PROMPTS)))
        small = {"vocab_size": json.loads((teacher.model / "config.json").read_text())["vocab_size"], "hidden_size": 32, "intermediate_size": 48,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": None, "num_labels": 1}
        value = teacher.model.parent / "value"
        score_test.make_classifier(value, teacher.model / "tokenizer.json", "llama", small, seed=7)
        guide = EXPERIMENT.split("  - task:")[0] + GUIDED % value
        guided = World(cls.scratch.name + "/guided", records=12, model=teacher.model, text=guide, results=("guided.h5",))
        examined = exam_test.make_world(cls.scratch.name + "/exam")
        cls.rolled, cls.guided, cls.examined = rolled, guided, examined
        cls.worlds = {world: world.complete("x", 2) for world in (teacher, chain, scored, trained, preferred, evaluated, written, rolled, guided, examined)}
        cls.teacher, cls.chain, cls.scored, cls.trained, cls.preferred, cls.evaluated, cls.written = teacher, chain, scored, trained, preferred, evaluated, written

    def choose(self, name):
        """The experiment that comes by the fail point."""
        self.world = (self.chain if name.startswith(("generate.", "judge.", "task.pack.", "whole_file."))
                      else self.evaluated if name.startswith(("score.verify.", "evaluate.")) else self.scored if name.startswith("score.")
                      else self.preferred if name.startswith("train.reference.") else self.written if name.startswith("train.rollout.")
                      else self.examined if name.startswith("exam.") else self.rolled if name.startswith("rollout.") else self.guided if name.startswith("guide.")
                      else self.trained if name.startswith("train.") else self.teacher)
        self.reference = self.worlds[self.world]

    def begin(self, name):
        """An empty folder; for what only a run comes by that goes on with a file which has changed, such a file."""
        self.world.forget("x")
        if name.startswith("results.resume."):
            self.assertNotEqual(self.world.run("x", 0, MAGISTER_FAIL_POINT="results.commit.done_written@3:kill").returncode, 0)
            damaged_results_test.flip(self.world.results("x").with_suffix(".h5.partial"), "commit/crc32c", 0)

    def finish(self, what, ranks):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74."""
        deadline = time.monotonic() + 20
        while (result := self.world.run("x", ranks)).returncode == 74 and time.monotonic() < deadline:
            time.sleep(0.3)
        self.assertEqual(result.returncode, 0, f"after {what}: {result.stderr[-2000:]}")
        self.assertEqual(self.world.sha256("x"), self.reference, f"after {what}")

    def interrupt(self, what):
        """-> whether the point was reached (the run then did not end with 0)."""
        self.begin(what)
        try:
            result = self.world.run("x", 2, seconds=600, MAGISTER_FAIL_POINT=what)
        except subprocess.TimeoutExpired:
            self.fail(f"{what}: the job hangs")
        if result.returncode == 0:
            self.assertEqual(self.world.sha256("x"), self.reference, what)
            return False
        self.assertFalse(self.world.results("x").exists() and "complete" not in what and "rename" not in what, what)
        return True

    def test_kill_at_every_point(self):
        self.assertGreater(len(names()), 5)
        kills, reached = 0, set()
        for index, name in enumerate(names()):
            self.choose(name)
            # Ranks draw their units: on a busy machine one may draw all of a small task, each time the other one than was named. Then
            # whichever comes by first.
            for where in (f"@1/{index % 2}", "@3", "@1"):
                if where == "@1" and name in reached:
                    continue
                if self.interrupt(f"{name}{where}:kill"):
                    kills += 1
                    reached.add(name)
                    self.finish(f"{name}{where}", 1 + (index + kills) % 3)
        print(f"{kills} kills at {len(reached)} of {len(names())} fail points")
        self.assertEqual(reached, set(names()), "a fail point that no run reaches tests nothing")

    def half_made(self):
        return [path.name for path in self.world.results("x").parent.rglob("*.creating")]

    def test_an_error_at_every_point_leaves_nothing_half_made(self):
        for index, name in enumerate(names()):
            self.choose(name)
            for where in (f"@1/{1 - index % 2}",):
                self.begin(name)
                result = self.world.run("x", 2, MAGISTER_FAIL_POINT=f"{name}{where}:throw")
                if result.returncode == 0:  # a point that this rank does not come by
                    continue
                self.assertEqual(result.returncode, 70, f"{name}{where}: {result.stderr[-2000:]}")
                self.assertEqual(self.half_made(), [], f"{name}{where}")
                self.finish(f"an error at {name}{where}", 1)

    def test_a_full_disk_at_every_write(self):
        self.assertGreaterEqual(len(writes()), 3)
        for name in writes():
            self.choose(name)
            for where in ("@1/0", "@1/1", "@4"):
                self.world.forget("x")
                result = self.world.run("x", 2, MAGISTER_FAIL_POINT=f"{name}{where}:enospc")
                if result.returncode == 0:
                    self.assertNotEqual(where, "@1/0", f"{name}: nothing is written there")
                    continue
                self.assertEqual(result.returncode, 74, f"{name}{where}: {result.stderr[-2000:]}")
                self.assertIn("No space left on device", result.stderr, f"{name}{where}")
                self.assertEqual(self.half_made(), [], f"{name}{where}")
                self.finish(f"a full disk at {name}{where}", 2)
                log = (self.world.results("x").parent / "run.jsonl").read_text()
                self.assertTrue(all(json.loads(line) for line in log.splitlines()), "every line is whole")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
