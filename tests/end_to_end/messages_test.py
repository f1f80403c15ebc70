"""What the program says, tried from outside: places of faults that show only when model or data are known, one message for one
fault of the data, advice that fits the task, no control characters on the terminal, names of the Hugging Face hub, plans asked
for in the shell of an allocation, and small data sets divided over all groups.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py

from tiny_world import PROGRAM, World

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np"]
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="magister_messages_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.world = World(cls.folder, records=12)

    def run_it(self, task, ranks=1, data=None, model=None, arguments=(), command="run", **environment):
        """A run of one task -> CompletedProcess with bytes; the task begins at line 5 of e.yaml."""
        path = self.folder / "e.yaml"
        lines = "\n    ".join([f"dataset: {{path: {json.dumps(str(data or self.world.data))}, key: id}}", *task[1:]])
        path.write_text(f"name: e\noutput: {{directory: {self.folder}/runs}}\nmodel: {{path: {json.dumps(str(model or self.world.model))}, dtype: f32}}\n"
                        f"layout: {{devices: cpu}}\ntasks:\n  - task: {task[0]}\n    {lines}\n")
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        launcher = [*MPIRUN, str(ranks)] if ranks > 1 else []
        return subprocess.run([*launcher, PROGRAM, command, "e.yaml", *arguments], cwd=self.folder, env={**self.world.environment, **environment},
                              capture_output=True, check=False, timeout=600)

    def refused(self, code, *arguments, **options):
        """-> the messages of a refusal."""
        done = self.run_it(*arguments, **options)
        said = [line for line in done.stderr.split(b"\n") if line.startswith(b"magister: ") and b"warning" not in line]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIsNone(CONTROL.search(done.stderr), done.stderr)
        return [line.decode() for line in said]

    def test_faults_that_the_model_decides_name_their_place(self):
        for task, where in ((["teacher_logits", "max_length: 5000"], "e.yaml:8:17: tasks.0.max_length"),
                            (["teacher_logits", "max_length: 512", "top_k: 100000"], "e.yaml:9:12: tasks.0.top_k"),
                            (["generate", "max_prompt_length: 5000"], "e.yaml:8:24: tasks.0.max_prompt_length"),
                            (["generate", "max_new_tokens: 4", "constraint: {regex: '(?=a)b'}"], "e.yaml:9:25: tasks.0.constraint.regex"),
                            (["generate", "max_new_tokens: 4", "constraint: {json_schema: '{\"not\": {}}'}"], "e.yaml:9:31: tasks.0.constraint.json_schema"),
                            (["judge", "prompt: {named: strictest}"], "e.yaml:8:21: tasks.0.prompt.named"),
                            (["judge", "max_prompt_length: 5000"], "e.yaml:8:24: tasks.0.max_prompt_length")):
            with self.subTest(task=task):
                said = self.refused(78, task)
                self.assertEqual(len(said), 1, said)
                self.assertTrue(said[0].startswith(f"magister: {where}"), said[0])

    def test_a_fault_of_the_data_is_told_once_and_it_is_the_first(self):
        bad = self.folder / "bad.jsonl"
        bad.write_text("".join(json.dumps({"id": str(i), "text": 5 if i in (3, 9) else "some text"}) + "\n" for i in range(12)))
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                said = self.refused(65, ["teacher_logits", "max_length: 64"], ranks=ranks, data=bad)
                self.assertEqual(len(said), 1, said)
                self.assertIn("bad.jsonl:4:", said[0])

    def test_a_prompt_that_is_too_long_gets_advice_that_its_task_has(self):
        for task, has, has_not in ((["generate", "max_prompt_length: 4"], "raise max_prompt_length", "overflow"),
                                   (["teacher_logits", "max_length: 4", "overflow: error"], "choose overflow: truncate or window", "prompt")):
            said = self.refused(65, task)
            self.assertIn(has, said[0])
            self.assertNotIn(has_not, said[0])

    def test_small_data_sets_are_divided_over_all_groups(self):
        units = {}
        for ranks in (1, 2):
            done = self.run_it(["teacher_logits", "max_length: 512", "top_k: 4"], ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            with h5py.File(self.folder / "runs/e/teacher.h5") as file:
                units[ranks] = file["/commit/unit_begin"][:].tolist()
        self.assertEqual(units[1], list(range(13)))  # 12 records that would fit one unit of 2048 tokens
        self.assertEqual(units[1], units[2])

    def test_no_control_character_reaches_the_terminal(self):
        escape = "\x1b[31mred\x9b\x07"
        model = self.folder / "vocabulary"
        shutil.copytree(self.world.model, model, dirs_exist_ok=True)
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"][escape] = "no number"
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        said = self.refused(65, ["teacher_logits", "max_length: 64"], model=model)
        self.assertIn("\\x1B[31mred\\xC2\\x9B\\x07", said[0])
        for broken in ("tokenizer", "gguf"):
            folder = self.folder / f"{broken}\x1b[31m"
            folder.mkdir(exist_ok=True)
            path = folder / ("tokenizer.json" if broken == "tokenizer" else "model.gguf")
            path.write_bytes(b"{}" if broken == "tokenizer" else b"GGUF")
            done = subprocess.run([PROGRAM, "tokenize", folder if broken == "tokenizer" else path], input=b"", capture_output=True, check=False)
            self.assertEqual(done.returncode, 65, done.stderr)
            self.assertIsNone(CONTROL.search(done.stderr), done.stderr)
        # The success lines of check and merge.
        parts = []
        for part in range(2):
            done = self.run_it(["teacher_logits", "max_length: 64", f"slice: {part}/2"])
            self.assertEqual(done.returncode, 0, done.stderr)
            parts.append(self.folder / f"part{part}\x1b[31m.h5")
            shutil.copy(self.folder / "runs/e/teacher.h5", parts[-1])
        whole = self.folder / "whole\x1b[31m.h5"
        for command in (["check", parts[0]], ["merge", whole, *parts], ["check", whole], ["info", whole]):
            done = subprocess.run([PROGRAM, *command], capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIsNone(CONTROL.search(done.stdout + done.stderr), done.stdout)

    def test_a_folder_of_data_that_is_not_there(self):
        said = self.refused(74, ["teacher_logits", "max_length: 64"], data=self.folder / "typo_folder")
        self.assertIn("No such file or directory", said[0])

    def test_a_name_of_the_hugging_face_hub(self):
        home = self.folder / "hf"
        task = ["teacher_logits", "max_length: 64"]
        said = self.refused(74, task, model="some-org/Some-Model-1B", HF_HOME=str(home))
        self.assertIn("`hf download some-org/Some-Model-1B`", said[0])
        self.assertNotIn("hf download", self.refused(74, task, model="/nowhere/model", HF_HOME=str(home))[0])
        # As hf download lays it out: blobs, and a snapshot of links.
        cached = home / "hub/models--some-org--Some-Model-1B"
        snapshot = cached / "snapshots/0123abcd"
        snapshot.mkdir(parents=True)
        (cached / "refs").mkdir()
        (cached / "refs/main").write_text("0123abcd")
        for file in pathlib.Path(self.world.model).iterdir():
            (snapshot / file.name).symlink_to(file)
        self.assertEqual(self.run_it(task).returncode, 0)
        local = (self.folder / "runs/e/teacher.h5").read_bytes()
        for place in ({"HF_HOME": str(home)}, {"HF_HUB_CACHE": str(home / "hub"), "HF_HOME": "/nowhere"}):
            done = self.run_it(task, model="some-org/Some-Model-1B", **place)
            self.assertEqual(done.returncode, 0, done.stderr)
            with h5py.File(self.folder / "runs/e/teacher.h5") as file:
                self.assertIn("some-org/Some-Model-1B", file.attrs["experiment"].decode() if isinstance(file.attrs["experiment"], bytes) else file.attrs["experiment"])
        self.assertEqual(len((self.folder / "runs/e/teacher.h5").read_bytes()) > 0, len(local) > 0)
        done = subprocess.run([PROGRAM, "tokenize", "some-org/Some-Model-1B"], input=b"a\n", env={**self.world.environment, "HF_HOME": str(home)}, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_plan_for_more_ranks_in_the_shell_of_an_allocation(self):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_NPROCS": "8", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "4(x2)"}
        task = ["teacher_logits", "max_length: 64"]
        done = self.run_it(task, command="plan", arguments=["--ranks", "4"], MAGISTER_ALLOW_SINGLETON="", **slurm)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(rb"(?m)^  group [0-3]: ", done.stdout)), 4, done.stdout)
        done = self.run_it(task, command="plan", arguments=["--config-only"], MAGISTER_ALLOW_SINGLETON="", **slurm)
        self.assertEqual(done.returncode, 0, done.stderr)
        # Without a number, eight ranks may have been meant; so may they by a run.
        self.assertEqual(self.run_it(task, command="plan", MAGISTER_ALLOW_SINGLETON="", **slurm).returncode, 64)
        self.assertEqual(self.run_it(task, MAGISTER_ALLOW_SINGLETON="", **slurm).returncode, 64)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
