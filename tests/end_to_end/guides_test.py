"""Every command of the pages in configs/guides runs: with the small model and few records where a page names larger ones.

A page's blocks run in their order in a folder of their own that looks like a checkout. What another test runs is named here, with it.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import h5py
import yaml

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PYTHON = ROOT / ".deps/venv/bin/python"
ELSEWHERE = {"cmake ": "app/install", "sbatch ": "jobs/slurm", "jobs/submit-array.sh ": "jobs/slurm", "scripts/quickstart.sh": "the second of README's two commands",
             "pip install ./scripts/reader": "reader"}
SMALL = " model.path=.deps/models/SmolLM2-135M-Instruct.Q4_1.gguf model.dtype=auto layout.gpus_per_group=auto layout.devices=cpu"
FEW = " tasks.0.dataset.path=configs/data/quickstart.jsonl tasks.0.dataset.limit=4 tasks.0.max_length=64"
INSTEAD = ((r"mpirun -np \d+", "mpirun --oversubscribe --bind-to none -np 2"),
           (r"(run configs/judge-jsonl\.yaml)", r"\1" + SMALL),
           (r"(plan configs/judge-jsonl\.yaml)", r"\1" + SMALL.replace(" layout.devices=cpu", "")),  # for GPUs that are elsewhere
           (r"(run configs/train\.yaml)", r"\1 tasks.0.train.steps=1"),
           (r"(run configs/first-student\.yaml)", r"\1 tasks.0.max_length=32 tasks.1.train.epochs=1 tasks.2.max_new_tokens=2"),
           (r"(run configs/exam-problems\.yaml)", r"\1 layout.devices=cpu tasks.0.n=1 tasks.0.max_new_tokens=80"),
           (r"((?:run|plan) configs/8b-one-gpu\.yaml)", r"\1" + SMALL + FEW))


class Guides(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="magister_guides_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("configs", "scripts", "jobs", "build", ".deps"):
            (self.folder / name).symlink_to(ROOT / name)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts/reader/src")}

    def commands(self, block):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            command = line.split("  #")[0].strip()
            if command and not any(command.startswith(start) for start in ELSEWHERE):
                for pattern, replacement in INSTEAD:
                    command = re.sub(pattern, replacement, command)
                yield command

    def run_page(self, name):
        """-> the number of commands that ran."""
        count = 0
        for kind, block in re.findall(r"^```(sh|python)\n(.*?)^```", (ROOT / "configs/guides" / name).read_text(), re.M | re.S):
            for command in self.commands(block) if kind == "sh" else [[PYTHON, "-c", block]]:
                done = subprocess.run(command, shell=kind == "sh", cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, f"{name}: {command}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
                count += 1
        return count

    def test_distillation(self):
        self.assertEqual(self.run_page("distillation.md"), 6)
        self.assertTrue((self.folder / "teacher.html").exists())

    def test_evaluation(self):
        self.assertEqual(self.run_page("evaluation.md"), 8)
        self.assertTrue((self.folder / "runs/judge-run/verdicts.summary.csv").exists())
        self.assertTrue((self.folder / "judge.html").exists())

    def test_constraints(self):
        self.assertEqual(self.run_page("constraints.md"), 1)

    def test_laptop(self):
        self.assertEqual(self.run_page("laptop.md"), 5)

    def test_clusters(self):
        self.assertEqual(self.run_page("clusters.md"), 1)

    def test_exams(self):
        self.assertEqual(self.run_page("exams.md"), 3)
        with h5py.File(self.folder / "runs/exam/water.h5") as file:
            accepted = int((file["items/state"][:] == 0).sum())
        self.assertIn(f"{accepted} of 6 items are in the exam", (self.folder / "runs/exam/water.summary.txt").read_text())
        self.run_lines("mpirun -np 2 build/magister run configs/exam-problems.yaml")
        with h5py.File(self.folder / "runs/exam-problems/problems.h5") as file:
            texts, reasons = file["generate/text"].asstr()[:], file["generate/finish_reason"][:]
        self.assertEqual(len(texts), 4)
        for text in texts[reasons == 0]:
            self.assertEqual(list(json.loads(text)), ["problem", "answer"])

    def test_batch_files(self):
        self.assertEqual(self.run_page("batch-files.md"), 1)
        asked, answers = ([json.loads(line) for line in path.read_text().splitlines()] for path in (ROOT / "configs/data/batch.jsonl", self.folder / "answers.jsonl"))
        self.assertEqual([one["custom_id"] for one in answers], [one["custom_id"] for one in asked])
        self.assertTrue(all(one["response"]["body"]["choices"][0]["message"]["content"] for one in answers), answers)

    def run_lines(self, block, more=""):
        for command in self.commands(block):
            done = subprocess.run(re.sub(r"(magister (?:run|plan) \S+)", r"\1" + more, command), shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")

    def test_first_example_of_the_readme(self):
        """As it stands, but for fewer records: no file in it that the quickstart has not brought."""
        own = (ROOT / "README.md").read_text().split("## A first experiment of your own")[1]
        experiment, block = re.search(r"```yaml\n(.*?)```\n```sh\n(.*?)```", own, re.S).groups()
        (self.folder / "mine.yaml").write_text(experiment)
        self.run_lines(block, " tasks.0.dataset.limit=3 tasks.0.max_length=64")
        self.assertTrue((self.folder / "runs/mine-128/teacher.h5").exists())

    def test_training(self):
        self.assertEqual(self.run_page("training.md"), 3)
        self.assertTrue((self.folder / "runs/train/student/model.safetensors").exists())
        self.assertTrue((self.folder / "curve.svg").exists())

    def test_results(self):
        """The columns that the page and README read are in the file of the first nine texts."""
        self.run_lines("mpirun -np 2 build/magister run configs/quickstart.yaml tasks.0.dataset.limit=9 tasks.0.max_length=64\n")
        self.assertEqual(self.run_page("results.md"), 6)
        code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
        done = subprocess.run([PYTHON, "-c", code], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_experiments_in_pages_are_experiments(self):
        """A page's whole experiment names files that only its reader has: its keys are read, nothing else."""
        count = 0
        for page in sorted((ROOT / "configs/guides").glob("*.md")):
            for block in re.findall(r"^ *```yaml\n(.*?)^ *```", page.read_text(), re.M | re.S):
                if not block.lstrip().startswith("name:"):
                    continue
                (self.folder / "page.yaml").write_text(block)
                done = subprocess.run([os.environ["MAGISTER"], "--print-config", "page.yaml"], cwd=self.folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, f"{page.name}: {done.stderr}")
                count += 1
        self.assertGreaterEqual(count, 2)

    def test_data_of_pita_gsm8k(self):
        """Both forms in which the set is published give the same records, whose own answers are right by the rule of the example."""
        import pyarrow
        import pyarrow.parquet
        written = {}
        sets = {split: [{"question": f"{split} {i}: what is {i} + 1?", "answer": f"It is {i} + 1 = <<{i}+1={i + 1}>>{i + 1}.\n#### {i + 1:,}"} for i in (1, 999, 2500)] for split in ("train", "test")}
        for form in ("jsonl", "parquet"):
            source = self.folder / form / ("main" if form == "parquet" else "grade_school_math/data")
            source.mkdir(parents=True)
            for split, problems in sets.items():
                if form == "jsonl":
                    (source / f"{split}.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
                    (source / f"{split}_socratic.jsonl").write_text(json.dumps({"question": "another", "answer": "#### 1"}) + "\n")
                else:
                    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(problems), source / f"{split}-00000-of-00001.parquet")
            done = subprocess.run([PYTHON, ROOT / "scripts/make_gsm8k.py", form], cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            written[form] = (self.folder / "data/gsm8k/train.jsonl").read_text()
        self.assertEqual(written["jsonl"], written["parquet"])
        self.assertEqual([json.loads(line)["messages"] for line in written["jsonl"].splitlines()], [[{"role": "user", "content": problem["question"]}] for problem in sets["train"]])
        (self.folder / "own.yaml").write_text("name: own\ntasks:\n  - {task: score, dataset: {path: data/gsm8k/test.jsonl, key: id}, score: {verifier: math, rule: gsm8k_flexible, answer: answer, completion: answer}}\n")
        done = subprocess.run([os.environ["MAGISTER"], "run", "own.yaml"], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.folder / "runs/own/score.h5") as file:
            self.assertEqual(file["score/value"][:].ravel().tolist(), [1, 1, 1])
        config = yaml.safe_load((ROOT / "configs/pita-gsm8k.yaml").read_text())
        self.assertNotIn("layout", config)
        self.assertEqual({task["dataset"]["path"] for task in config["tasks"] if "dataset" in task}, {f"data/gsm8k/{split}.jsonl" for split in ("train", "test")})

    def test_every_page_is_here(self):
        self.assertEqual({path.name for path in (ROOT / "configs/guides").glob("*.md")},
                         {"distillation.md", "evaluation.md", "laptop.md", "clusters.md", "pita.md", "training.md", "results.md", "models.md", "limits.md", "commands.md", "exams.md", "service.md", "constraints.md", "monitoring.md", "batch-files.md"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
