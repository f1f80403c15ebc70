"""Every command of the pages in configs/guides runs: with the small model and few records where a page names larger ones.

A page's blocks run in their order in a folder of their own that looks like a checkout. What another test runs is named here, with it.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PYTHON = ROOT / ".deps/venv/bin/python"
ELSEWHERE = {"cmake ": "app/install", "sbatch ": "jobs/slurm", "jobs/submit-array.sh ": "jobs/slurm", "scripts/quickstart.sh": "the second of README's two commands",
             "pip install ./scripts/reader": "reader"}
SMALL = " model.path=.deps/models/SmolLM2-135M-Instruct.Q4_1.gguf model.dtype=auto layout.gpus_per_group=auto layout.devices=cpu"
FEW = " tasks.0.dataset.path=configs/data/quickstart.jsonl tasks.0.dataset.limit=4 tasks.0.max_length=64"
INSTEAD = ((r"mpirun -np \d+", "mpirun --oversubscribe --bind-to none -np 2"),
           (r"((?:run|plan) configs/judge-jsonl\.yaml)", r"\1" + SMALL),
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
        self.assertEqual(self.run_page("evaluation.md"), 5)
        self.assertTrue((self.folder / "judge.html").exists())

    def test_laptop(self):
        self.assertEqual(self.run_page("laptop.md"), 5)

    def test_clusters(self):
        self.assertEqual(self.run_page("clusters.md"), 1)

    def test_every_page_is_here(self):
        self.assertEqual({path.name for path in (ROOT / "configs/guides").glob("*.md")}, {"distillation.md", "evaluation.md", "laptop.md", "clusters.md", "pita.md"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
