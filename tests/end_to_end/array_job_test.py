"""Job arrays: the slices of a chain generate -> judge (answers) -> judge (answers and panel) are merged, task by task, into what one
job writes; slices whose answers or panel another run wrote are refused.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import h5py
import numpy

import tiny_world

TASKS = ("answers", "first", "verdicts")


class ArrayJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = tiny_world.World(cls.scratch.name, records=1)
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(11):
                record = {"id": f"r{index}", "question": " ".join(tiny_world.WORDS[index:index + 5]), "references": ["año"]}
                file.write(json.dumps(record) + "\n")
        cls.whole = cls.run_it("whole")
        cls.parts = [cls.run_it(f"part-{i}", f"{i}/2") for i in range(2)]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def run_it(cls, name, part=None, **generate):
        data = {"path": str(cls.world.data), "key": "id"}
        judge = {"task": "judge", "dataset": data, "mode": "reference", "low_mass": 0.0, "answers": "answers"}
        tasks = [{"task": "generate", "name": "answers", "dataset": {**data, "text": "question"}, "max_new_tokens": 8, "n": 2, **generate},
                 {**judge, "name": "first", "prompt": {"user": "{{ question }} {{ answer }}"}},
                 {**judge, "name": "verdicts", "panel": ["first"]}]
        for task in tasks if part else []:
            task["slice"] = part
        path = cls.world.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "output": {"directory": str(cls.world.folder / "runs")}, "layout": {"devices": "cpu"},
                                    "model": {"path": str(cls.world.model), "dtype": "f32"}, "tasks": tasks}))
        done = subprocess.run([tiny_world.PROGRAM, "run", path], env=cls.world.environment, cwd=cls.world.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return cls.world.folder / "runs" / name

    def merge(self, out, parts, code=0):
        done = subprocess.run([tiny_world.PROGRAM, "merge", out, *parts], env=self.world.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        if code == 0:
            checked = subprocess.run([tiny_world.PROGRAM, "check", out], env=self.world.environment, capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        return done.stderr

    def test_every_task_of_a_chain_is_merged(self):
        for task in TASKS:
            out = self.world.folder / f"merged-{task}.h5"
            self.merge(out, [part / f"{task}.h5" for part in reversed(self.parts)])
            with h5py.File(out) as merged, h5py.File(self.whole / f"{task}.h5") as whole:
                for group in set(whole) - {"commit", "plot"}:
                    for name in whole[group]:
                        ours, theirs = merged[group][name][:], whole[group][name][:]
                        same = numpy.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
                        self.assertTrue(same, f"{task}: /{group}/{name}")
                self.assertEqual(set(merged.attrs), set(whole.attrs))

    def test_the_whole_names_what_its_parts_were_made_from(self):
        out = self.world.folder / "digests.h5"
        self.merge(out, [part / "verdicts.h5" for part in self.parts])
        with h5py.File(out) as merged:
            for name, file in (("answers_sha256", "answers.h5"), ("panel_sha256_first", "first.h5")):
                lines = "".join(hashlib.sha256((part / file).read_bytes()).hexdigest() + "\n" for part in self.parts)
                self.assertEqual(merged.attrs[name].decode(), hashlib.sha256(b"merged\n" + lines.encode()).hexdigest())

    def test_answers_of_another_run_are_refused(self):
        other = self.run_it("other", "1/2", temperature=0.5)
        for task, name in (("first", "answers_run_sha256"), ("verdicts", "_run_sha256")):
            out = self.world.folder / f"mixed-{task}.h5"
            said = self.merge(out, [self.parts[0] / f"{task}.h5", other / f"{task}.h5"], 65)
            self.assertIn(name, said)
            self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
