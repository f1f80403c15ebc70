#!/usr/bin/env python3
"""Runs every example of configs/ with two builds of magister and compares what they write, byte for byte.

usage: .deps/venv/bin/python tests/bench/same_results.py OLD NEW [--ranks 2] [EXAMPLE ...]
OLD, NEW: two programs, for example of the commits before and after a change that must not change results.
An example runs as it is published, with fewer records and steps; where it names a model or data that only its reader
has, a student of configs/train.yaml or data of the same form take their place. Each program works in a folder of its
own that looks like a checkout. Compared is the sha256 of every file under runs/, except for logs and states, which
hold times. Prints one row per example; the exit status is 1 where a file differs. About ten minutes on two cores.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ("model.path=.deps/models/SmolLM2-135M-Instruct.Q4_1.gguf", "model.dtype=f32", "layout.gpus_per_group=auto", "layout.devices=cpu")
STUDENT = "model.path=runs/train/student"
FEW_TEXTS = ("tasks.0.dataset.path=configs/data/quickstart.jsonl", "tasks.0.dataset.limit=6", "tasks.0.max_length=64")
SHORT_WALKS = ("tasks.0.train.steps=4", "tasks.0.train.save_every=2", "tasks.2.train.steps=4", "tasks.2.train.save_every=2")
# Later examples use what earlier ones wrote: the student of `train`, the reward model of `grpo-hf`.
EXAMPLES = {
    "quickstart": ("tasks.0.dataset.limit=12",),
    "array": ("tasks.0.dataset.limit=6", "tasks.0.slice=0/2"),
    "8b-one-gpu": (*SMALL, *FEW_TEXTS),
    "70b-four-gpus": (*SMALL, *FEW_TEXTS),
    "first-student": ("tasks.0.max_length=64", "tasks.1.train.epochs=1", "tasks.2.max_new_tokens=4"),
    "train": ("tasks.0.train.steps=6", "tasks.0.train.save_every=3"),
    "constrained": ("tasks.0.max_new_tokens=48", "tasks.0.dataset.limit=4"),
    "judge": ("tasks.0.max_new_tokens=16",),
    "judge-run": ("layout.devices=cpu",),
    "judge-jsonl": SMALL,
    "evaluate": ("tasks.0.max_new_tokens=8", "tasks.1.max_new_tokens=8", "tasks.0.dataset.limit=6", "tasks.1.dataset.limit=6",
                 "tasks.2.dataset.limit=6", "tasks.3.dataset.limit=6"),
    "exam-problems": ("layout.devices=cpu", "tasks.0.n=1", "tasks.0.max_new_tokens=80", "tasks.0.dataset.limit=2", "tasks.1.dataset.limit=2"),
    "dpo": (STUDENT, "tasks.0.train.epochs=1"),
    "grpo-hf": (STUDENT, "tasks.0.train.epochs=1", "tasks.1.train.steps=1", "tasks.1.grpo.max_new_tokens=8"),
    "grpo": (STUDENT, "tasks.0.train.steps=2", "tasks.0.grpo.max_new_tokens=8", "tasks.0.train.save_every=1"),
    "score": ("model.path=runs/grpo-hf/rewards", "layout.devices=cpu", "tasks.0.dataset.limit=6"),
    "guide": ("tasks.0.train.steps=2", "tasks.1.max_new_tokens=6", "tasks.2.tasks.0.max_new_tokens=6"),
    "guide-sums": ("tasks.0.n=2", "tasks.0.cuts=2", "tasks.0.max_new_tokens=8", "tasks.1.train.steps=3",
                   "tasks.2.tasks.0.n=2", "tasks.2.tasks.0.max_new_tokens=6"),
    "distill-tiny": tuple(f"tasks.{i}.train.epochs=1" for i in range(2, 6)),
    "pita-star-graph": SHORT_WALKS,
    "qsharp-star-graph": SHORT_WALKS,
    "pita-gsm8k": (STUDENT, "layout.devices=cpu", "tasks.1.model.path=runs/train/student",
                   *(f"tasks.{i}.{key}" for i in (0, 2) for key in ("max_prompt_length=96", "max_new_tokens=8", "cuts=2")),
                   *(f"tasks.{i}.train.{key}" for i in (1, 3) for key in ("epochs=1", "max_length=128")),
                   *(f"tasks.{i}.{key}" for i in ("4", "6.tasks.0") for key in ("max_prompt_length=96", "max_new_tokens=8", "n=2")),
                   "tasks.7.evaluate.pass_at=[1, 2]", "tasks.7.evaluate.majority_at=[2]"),
}


def lay_out(folder):
    """A folder that looks like a checkout, with the data that examples expect from their reader."""
    for name in ("configs", "scripts", ".deps"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "gsm8k").mkdir()
    for split in ("train", "test"):
        problems = [{"question": f"{split}: what is {i} + 1?", "answer": f"It is {i} + 1 = <<{i}+1={i + 1}>>{i + 1}.\n#### {i + 1:,}"} for i in (1, 7, 12, 999)]
        (folder / "gsm8k" / f"{split}.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    python = ROOT / ".deps/venv/bin/python"
    subprocess.run([python, "scripts/make_gsm8k.py", "gsm8k"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([python, "scripts/make_star_graphs.py", "--walks", "64", "--graphs", "8", "--test", "8"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for name in ("teacher", "student"):
        (folder / name).symlink_to("runs/train/student")
    for split, count in (("train", 24), ("held_out", 8)):
        lines = (json.dumps({"ids": [(7 * i + 13 * k + i * k) % 300 + 20 for k in range(12)]}) for i in range(count))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


def run(program, folder, example, ranks, settings):
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), str(program), "run", f"configs/{example}.yaml", *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode} (nothing can be compared):\n{done.stderr[-1500:]}")


def written(folder, example):
    """-> {path: sha256} of the results of an example."""
    files = {}
    for path in sorted((folder / "runs" / example.replace("distill-tiny", "tiny").replace("8b-one-gpu", "teacher-8b").replace("70b-four-gpus", "teacher-70b")).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.name.startswith("run") and path.suffix not in (".log", ".lock") and "/states/" not in name:
            files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("examples", nargs="*", default=list(EXAMPLES))
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory(prefix="magister-same-") as scratch:
        folders = {program: pathlib.Path(scratch, name) for program, name in ((options.old.resolve(), "old"), (options.new.resolve(), "new"))}
        for folder in folders.values():
            folder.mkdir()
            lay_out(folder)
        print(f"| example, {options.ranks} ranks | files | different |\n|---|---|---|", flush=True)
        for example in options.examples:
            for program, folder in folders.items():
                run(program, folder, example, options.ranks, EXAMPLES[example])
            old, new = (written(folder, example) for folder in folders.values())
            differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            different += len(differing) + (not old)
            print(f"| {example} | {len(old)} | {', '.join(differing) or '-'} |", flush=True)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
