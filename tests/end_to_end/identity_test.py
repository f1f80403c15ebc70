"""Results belong to an experiment by the content of what it names, not by where that stands: copies on a node's own disk, links and other
spellings of a path go on and are merged. What is another experiment is told key by key.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import h5py
import numpy

import tiny_world

TRAIN = tiny_world.EXPERIMENT.split("tasks:")[0] + """tasks:
  - task: train
    name: student
    objective: lm
    dataset: {{path: {data}}}
    train: {{max_length: 64, global_batch: 8, steps: 4, save_every: 1, optimizer: {{lr: 1.0e-3}}}}
"""


class Identity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=60)
        for job in ("job101", "job102"):
            shutil.copytree(cls.world.model, cls.folder / job / "lm")
            shutil.copy(cls.world.data, cls.folder / job / "data.jsonl")
        (cls.folder / "link").symlink_to(cls.folder / "job101")
        tiny_world.make_model(cls.folder / "other", seed=3)

    def at(self, place):
        """Overrides that name the model and the data below this place."""
        return f"model.path={place}/lm", f"tasks.0.dataset.path={place}/data.jsonl"

    def ended(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        for word in words:
            self.assertIn(word, done.stderr)

    def stopped(self, name, *overrides):
        self.world.forget(name)
        self.ended(self.world.interrupted("teacher.unit.begin@3", signal.SIGTERM, name, 1, *overrides), 75)

    def merged(self, out, *parts):
        return subprocess.run([tiny_world.PROGRAM, "merge", out, *parts], cwd=self.folder, env=self.world.environment, capture_output=True, text=True)

    def test_a_run_goes_on_where_the_same_files_stand_elsewhere(self):
        (whole,) = self.world.complete("moved", 1, *self.at("job101"))
        for place in (self.folder / "job102", "./job101", "job101/../job102", "link"):
            self.stopped("moved", *self.at("job101"))
            self.ended(self.world.run("moved", 2, *self.at(place)), 0)
            self.assertEqual(self.world.sha256("moved"), [whole], f"{place}: the bytes of a run that was not stopped")
            self.ended(self.world.run("moved", 0, *self.at("link")), 0, "is complete already")

    def test_other_content_at_another_path_is_another_experiment(self):
        self.stopped("content", *self.at("job101"))
        self.ended(self.world.run("content", 0, *self.at("job101"), "model.path=other"), 78, "another experiment", "its model_sha256 is ",
                   "model.path is job101/lm in it and other in this run")
        data = (self.folder / "job101/data.jsonl").read_text()
        try:
            (self.folder / "job101/data.jsonl").write_text(data.replace("plan", "plane"))
            self.ended(self.world.run("content", 0, *self.at("job101")), 78, "its dataset_sha256 is ", "(tasks.0.dataset.path names other content)")
        finally:
            (self.folder / "job101/data.jsonl").write_text(data)
        self.ended(self.world.run("content", 0, *self.at("job102")), 0)

    def test_the_keys_that_differ_are_told_with_both_values(self):
        self.stopped("keys", *self.at("job101"))
        self.ended(self.world.run("keys", 0, *self.at("job102"), "tasks.0.top_k=7", "model.dtype=bf16"), 78, "model.dtype is f32 in it and bf16 in this run, ",
                   "tasks.0.top_k is 8 in it and 7 in this run (")
        done = self.world.run("keys", 0, *self.at("job102"), "tasks.0.top_k=7")
        self.assertNotIn("sha256", done.stderr)
        self.assertNotIn("job102", done.stderr, "a path that decides nothing")
        self.ended(self.world.run("keys", 0, *self.at("job102")), 0)

    def test_slices_computed_from_copies_are_merged(self):
        parts = []
        for i, place in enumerate(("job101", "job102", "link")):
            self.world.complete(f"part{i}", 1, *self.at(place), f"tasks.0.slice={i}/3")
            parts.append(self.world.results(f"part{i}"))
        self.world.complete("whole", 1, *self.at("job101"))
        self.ended(self.merged("all.h5", *parts), 0)
        with h5py.File(self.folder / "all.h5") as merged, h5py.File(self.world.results("whole")) as whole:
            numpy.testing.assert_array_equal(merged["teacher/top_logprob"], whole["teacher/top_logprob"])
            self.assertEqual(merged.attrs["config_sha256"], whole.attrs["config_sha256"])
        self.world.complete("another", 1, *self.at("job101"), "tasks.0.slice=1/3", "tasks.0.top_k=7")
        self.ended(self.merged("mixed.h5", parts[0], self.world.results("another"), parts[2]), 65, "belongs to another experiment than", "top_k is 8 in ",
                   f"part0/teacher.h5 and 7 in {self.world.results('another')}")
        # Groups of another size: the one run that takes both is named.
        self.world.complete("pair", 1, *self.at("job101"), "tasks.0.slice=1/3", "layout.shards_per_rank=2", "layout.gpus_per_group=2")
        self.ended(self.merged("mixed.h5", parts[0], self.world.results("pair"), parts[2]), 65, "tp_size is ", "with groups of one size, or compute all in one run with groups of several: layout.gpus_per_group: [1, 2]")
        # What is missing, twice there or a run's folder.
        self.ended(self.merged("mixed.h5", parts[0], parts[2]), 65, "but record 20 comes next (records would be missing)")
        self.ended(self.merged("mixed.h5", parts[0], parts[0]), 65, "holds records 0 to 19, but record 20 comes next (records would be there twice)")
        self.ended(self.merged("mixed.h5", parts[0], parts[1]), 65, "ends before record 40 of 60 (counted from 0)")
        self.ended(self.merged("mixed.h5", parts[0].parent, parts[1]), 74, f"is a folder (this command looks at one results file); name {parts[0]}")

    def test_a_run_s_folder_is_no_file_of_it(self):
        """info, check and export name the results in it, and say nothing of moving it away."""
        self.world.complete("folder", 1)
        results = self.world.results("folder")
        for command in (("info",), ("check",), ("export", "--to", "jsonl")):
            done = subprocess.run([tiny_world.PROGRAM, command[0], results.parent, *command[1:]], capture_output=True, text=True, check=False)
            self.ended(done, 74, f"is a folder (this command looks at one results file); name {results}\n")
            self.assertNotIn("move it away", done.stderr)
        empty = self.folder / "nothing"
        empty.mkdir()
        done = subprocess.run([tiny_world.PROGRAM, "info", empty], capture_output=True, text=True, check=False)
        self.ended(done, 74, "is a folder without finished results", "magister status")

    def test_results_of_an_earlier_build_are_accepted(self):
        """Its config_sha256 was over the paths, too; its experiment says what was asked for."""
        def age(path):
            with h5py.File(path, "r+") as file:
                file.attrs.modify("config_sha256", numpy.bytes_(b"0" * 64))
        self.stopped("aged", *self.at("job101"))
        age(self.world.results("aged").with_suffix(".h5.partial"))
        self.ended(self.world.run("aged", 0, *self.at("job102"), "tasks.0.top_k=7"), 78, "tasks.0.top_k is 8 in it and 7 in this run")
        self.ended(self.world.run("aged", 0, *self.at("job102")), 0)
        self.ended(self.world.run("aged", 0, *self.at("job101")), 0, "is complete already")
        parts = [self.world.folder / "runs" / f"aged{i}" / "teacher.h5" for i in range(2)]
        for i, place in enumerate(("job101", "job102")):
            self.world.complete(f"aged{i}", 1, *self.at(place), f"tasks.0.slice={i}/2")
        age(parts[0])
        self.ended(self.merged("aged.h5", *parts), 0)
        with h5py.File(self.folder / "aged.h5") as merged, h5py.File(parts[1]) as part:
            self.assertEqual(merged.attrs["config_sha256"], part.attrs["config_sha256"])

    def test_a_training_goes_on_with_a_copy_of_its_model(self):
        world = tiny_world.World(self.folder / "train", records=40, text=TRAIN, results=("student.h5",))
        for job in ("job101", "job102"):
            shutil.copytree(world.model, world.folder / job / "lm")
            shutil.copy(world.data, world.folder / job / "data.jsonl")
        self.ended(world.run("student", 1, *self.at("job101")), 0)
        weights = (world.folder / "runs/student/student/model.safetensors").read_bytes()
        world.forget("student")
        self.assertNotEqual(world.run("student", 1, *self.at("job101"), MAGISTER_FAIL_POINT="train.step.begin@3:kill").returncode, 0)
        tiny_world.wait_until(lambda: world.run("student", 0, *self.at("job102"), "tasks.0.train.optimizer.lr=2.0e-3").returncode == 78, seconds=60, pause=0.3)
        self.ended(world.run("student", 0, *self.at("job102"), "tasks.0.train.optimizer.lr=2.0e-3"), 78, "tasks.0.train.optimizer.lr is 0.001 in it and 0.002 in this run")
        self.ended(world.run("student", 1, *self.at(os.path.join(world.folder, "job102"))), 0, "continues after step")
        self.assertEqual((world.folder / "runs/student/student/model.safetensors").read_bytes(), weights)


if __name__ == "__main__":
    unittest.main(verbosity=2)
