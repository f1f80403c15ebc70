"""An exam by a tiny model: bounded versions with parents and reasons, the same bytes for any number of ranks and after kills, exports and
summary beside the results, and bad input that is named before anything is written.
"""
import json
import pathlib
import subprocess
import tempfile
import unittest

import h5py

import tiny_world

EXAM = """name: {name}
seed: 5
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: exam
    source: {{path: {data}.md, passage_tokens: 60}}
    objectives: {{path: {data}.txt}}
    items: {{per_objective: 2, kinds: [true_false, short_answer, numeric, choice], choices: 3}}
    bounds: {{generate: 2, validate: 2, review: 2}}
    validator: {{reject: [alignment]}}
    exports: [jsonl, html, gift, qti21, txt]
    max_new_tokens: 700
    max_prompt_length: 3000
"""
CHAPTER = "\n\n".join(f"The plan has {n} units. A shard of unit {n} repeats the logit of the teacher, and the student ends." for n in range(6))
OBJECTIVES = "# objectives\n1.1.1.1 Explain the plan and its units.\n1.1.1.2 Describe a shard.\n\n1.2.1.1 Tell teacher and student apart.\n"


def write(world, chapter, objectives):
    world.data.with_name(world.data.name + ".md").write_text(chapter)
    world.data.with_name(world.data.name + ".txt").write_text(objectives)


def make_world(folder):
    # Id 2, the usual end token of such a model, is the quotation mark here, which JSON needs.
    model = tiny_world.make_model(pathlib.Path(folder) / "model", eos_token_id=0)
    world = tiny_world.World(folder, model=model, text=EXAM, results=("exam.summary.json", "exam.summary.txt", "exam.h5"))
    write(world, CHAPTER, OBJECTIVES)
    return world


class Exam(unittest.TestCase, tiny_world.Refusals):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = make_world(cls.scratch.name)
        cls.digests = cls.world.complete("exam", 0)
        cls.folder = cls.world.folder / "runs/exam"

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_versions_are_bounded_and_linked(self):
        with h5py.File(self.folder / "exam.h5") as file:
            column = {name: file[f"items/{name}"][:] for name in ("item", "attempt", "parent", "state", "reasons")}
            objective = [one.decode() for one in file["items/objective"][:]]
        self.assertEqual(sorted(set(objective)), ["1.1.1.1", "1.1.1.2", "1.2.1.1"])
        versions = {}
        for i, key in enumerate(zip(objective, column["item"])):
            versions.setdefault(key, []).append(i)
        self.assertEqual(len(versions), 6)
        for rows in versions.values():
            self.assertLessEqual(len(rows), 4)  # 2 + 2 + 2 - 2
            self.assertEqual(column["attempt"][rows].tolist(), list(range(len(rows))))
            self.assertEqual(column["parent"][rows].tolist(), list(range(-1, len(rows) - 1)))
            self.assertTrue(all(state == 1 for state in column["state"][rows[:-1]]))
            self.assertIn(column["state"][rows[-1]], (0, 2))
        self.assertTrue(all((state == 0) == (reasons == 0) for state, reasons in zip(column["state"], column["reasons"])))

    def test_summary_counts_what_the_file_holds(self):
        summary = json.loads((self.folder / "exam.summary.json").read_text())
        with h5py.File(self.folder / "exam.h5") as file:
            state = file["items/state"][:].tolist()
        self.assertEqual((summary["requested"], summary["accepted"], summary["versions"]), (6, state.count(0), len(state)))
        self.assertEqual(summary["missing"], 6 - state.count(0))
        self.assertEqual(sum(one["missing"] for one in summary["objectives"]), summary["missing"])

    def test_check_finds_it_sound(self):
        done = subprocess.run([tiny_world.PROGRAM, "check", str(self.folder / "exam.h5")], env=self.world.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)

    def test_a_format_made_later_is_that_of_the_run(self):
        for name, suffix in (("html", ".html"), ("gift", ".gift"), ("qti21", ".qti21.zip"), ("txt", "_Solutions.txt")):
            later = self.folder / f"later{'' if name == 'txt' else suffix}"
            done = subprocess.run([tiny_world.PROGRAM, "export", str(self.folder / "exam.h5"), "--to", name, "--out", str(later)], env=self.world.environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((self.folder / f"later{suffix}").read_bytes(), (self.folder / f"exam{suffix}").read_bytes(), name)

    def test_any_number_of_ranks_and_kills_give_the_same_bytes(self):
        for ranks in (1, 2):
            self.world.forget("exam")
            self.assertEqual(self.world.complete("exam", ranks), self.digests)
        for point in ("exam.objective.done", "exam.export.file", "task.pack.block"):
            self.world.forget("exam")
            self.world.run("exam", 0, MAGISTER_FAIL_POINT=f"{point}:kill:2")
            self.assertEqual(self.world.complete("exam", 0), self.digests, point)

    def test_bad_input_is_named(self):
        for chapter, objectives, code, words in (
                (" \n", OBJECTIVES, 65, ()), (CHAPTER, "Explain the plan.\n", 65, ("number",)), (CHAPTER, "1.1 One.\n1.1 Two.\n", 65, ("1.1",)), (CHAPTER, "\n", 65, ())):
            write(self.world, chapter, objectives)
            self.refused("bad", code, *words)
        write(self.world, CHAPTER, OBJECTIVES)
        folder = str(self.world.data.parent)
        self.refused("folder", 65, "tasks.0.source.path", "is a folder", "*.md", overrides=(f"tasks.0.source.path={folder}",))
        self.refused("nothing", 65, "tasks.0.objectives.path", "no such file", "1.1.1.1 text", overrides=(f"tasks.0.objectives.path={folder}/missing.txt",))
        self.refused("none", 78, "tasks.0.items.per_objective", overrides=("tasks.0.items.per_objective=0",))
        self.refused("long", 65, "max_prompt_length", overrides=("tasks.0.max_prompt_length=1000",))
        self.refused("kind", 78, "essay", overrides=("tasks.0.items.kinds=essay",))
        self.refused("both", 78, "tasks.0.objectives.path", "auto", overrides=("tasks.0.objectives.auto=2",))
        self.refused("auto", 78, "tasks.0.objectives.auto", overrides=("tasks.0.objectives.auto=0",))
        self.refused("validator", 74, "nothing", overrides=("tasks.0.validator.model.path=nothing",))
        self.refused("loss", 78, "quantization_loss", overrides=(f"tasks.0.validator.model.path={self.world.model}", "tasks.0.validator.model.quantization=int8",
                                                                 "tasks.0.validator.model.quantization_loss=100"))
        self.refused("aiken", 78, "tasks.0.exports", "items.kinds", overrides=("tasks.0.exports=[aiken]",))


if __name__ == "__main__":
    unittest.main()
