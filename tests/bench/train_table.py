#!/usr/bin/env python3
"""The cost of a training step: magister against transformers + torch, and its own variants against each other.
Prints the table of README.md.

usage: .deps/venv/bin/python tests/bench/train_table.py [--program build/magister] [--rounds 3] [--steps 8] [--only NAME
...] [--avx2] [--against PROGRAM]
SmolLM2-135M in f32 on the first core; the two ranks of one row have a core each. Everything runs in turn, each ratio is
of one round, and the median over the rounds is shown with the smallest and the largest. A step is 4 texts of 256
tokens; the first three steps of every run, in which memory is allocated for the first time, precede the --steps that
are measured. The peer's optimizer is torch's fused AdamW, the default of transformers' Trainer.
"""
import argparse
import concurrent.futures
import copy
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import peers
from train_peer import BATCH, LENGTH, WARM_UP, Peer

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = 16


class World:
    """A model folder, texts as token ids, and a teacher's rows of them."""

    def __init__(self, program, folder, steps):
        self.program, self.folder, self.steps = program, folder, steps
        self.cores = sorted(os.sched_getaffinity(0))
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run([sys.executable, ROOT / "tests/bench/train_peer.py", "prepare", peers.MODEL, folder, str(TEXTS)], check=True)
        self.run("teacher", {"task": "teacher_logits", "dataset": self.dataset(), "top_k": 64})

    def dataset(self):
        return {"path": str(self.folder / "texts.jsonl"), "tokens": "ids"}

    def run(self, name, task, ranks=1, collectives="reproducible", first_core=0):
        """-> (events of the run, largest resident set in bytes)."""
        experiment = self.folder / f"{name}.yaml"
        experiment.write_text(json.dumps({"name": name, "output": {"directory": str(self.folder / "runs")}, "layout": {"devices": "cpu", "collectives": collectives},
                                          "model": {"path": str(self.folder / "model"), "dtype": "f32"}, "tasks": [{"name": name, **task}]}))
        command = ["taskset", "-c", ",".join(str(core) for core in self.cores[first_core:first_core + ranks])]
        command += ["mpirun", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
        process = subprocess.Popen([*command, self.program, "run", experiment, "--fresh", "-v"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, env=self.environment, cwd=ROOT)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise RuntimeError(f"{experiment}: {status}\n{errors[-2000:]}")
        events = [json.loads(line) for line in (self.folder / "runs" / name / "run.jsonl").read_text().splitlines()]
        return events, usage.ru_maxrss * 1024

    def two_programs(self):
        """-> tokens per second of two trainings of one rank that run at the same time on a core each: the machine's
        limit for two ranks."""
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            started = [both.submit(self.train, f"beside-{core}", first_core=core, micro_batch=2) for core in range(2)]
            found = [one.result() for one in started]
        return sum(speed for speed, _ in found), max(peak for _, peak in found)

    def train(self, name, ranks=1, objective="lm", collectives="reproducible", first_core=0, **train):
        """-> (tokens per second, largest resident set in bytes)."""
        task = {"task": "train", "objective": objective}
        if objective == "distill":
            task |= {"teacher": {"results": str(self.folder / "runs/teacher/teacher.h5")}}
        else:
            task |= {"dataset": self.dataset()}
        task["train"] = {"steps": WARM_UP + self.steps, "global_batch": BATCH, "max_length": LENGTH, "save_every": 1000, **train}
        events, peak = self.run(name, task, ranks, collectives, first_core)
        return statistics.median(event["tokens_per_second"] for event in events if event["event"] == "step" and event["step"] > WARM_UP), peak


def measure(world, rounds, wanted, against=None):
    whole = {"micro_batch": BATCH}  # all texts at once, as the peer computes them
    other = copy.copy(world)
    other.program = against
    ways = {
        "lm": lambda: world.train("lm", **whole),
        "peer": lambda: Peer.run(world.folder, world.cores[0], world.steps),
        "distill": lambda: world.train("distill", objective="distill", **whole),
        "peer with teacher": lambda: Peer.run(world.folder, world.cores[0], world.steps, teacher=True),
        "checkpointing": lambda: world.train("checkpointing", gradient_checkpointing=True, **whole),
        "lora": lambda: world.train("lora", adapter={"rank": 16, "alpha": 32}, **whole),
        "one rank": lambda: world.train("one-rank", micro_batch=2),
        "two ranks": lambda: world.train("two-ranks", ranks=2, micro_batch=2),
        "two programs": world.two_programs,
        "fast sums": lambda: world.train("fast-sums", ranks=2, collectives="fast", micro_batch=2),
    }
    if against:
        ways["other build"] = lambda: other.train("other-build", **whole)
    found = {name: [] for name in ways if not wanted or name in wanted}
    for index in range(rounds):
        for name in found:
            found[name].append(ways[name]())
            print(f"round {index + 1}: {name}: {found[name][-1][0]:.1f} tokens/s, {found[name][-1][1] / 1e9:.2f} GB", file=sys.stderr)
    return found


# name, the two compared ways, floor, aim
ROWS = (("LM step over transformers + torch AdamW, tokens/s", "lm", "peer", 1.1, 1.35),
        ("distill step from a file (k = 64) over the LM step", "distill", "lm", 0.9, 0.97),
        ("distill from a file over transformers with the teacher in the process", "distill", "peer with teacher", 1.7, 2.2),
        ("2 ranks over 1", "two ranks", "one rank", 1.85, 1.95),
        ("two trainings beside each other over one: the machine's limit for two ranks", "two programs", "one rank", "", ""),
        ("reproducible over fast sums, 2 ranks", "two ranks", "fast sums", 0.9, 0.97),
        ("LoRA over the full step", "lora", "lm", 1.25, 1.5),
        ("LM step over the other build's", "lm", "other build", "", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/magister")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--against", type=pathlib.Path, help="another build, whose LM step is measured, too (\"other build\")")
    parser.add_argument("--avx2", action="store_true", help="all programs without AVX-512 and AMX")
    arguments = parser.parse_args()
    if arguments.avx2:
        os.environ.update(peers.AVX2_ALONE)
    with tempfile.TemporaryDirectory() as folder:
        world = World(arguments.program.resolve(), pathlib.Path(folder), arguments.steps)
        found = measure(world, arguments.rounds, arguments.only, arguments.against and arguments.against.resolve())
    print(f"CPU features: {' '.join(peers.cpu_words())}; a core a rank; {arguments.rounds} rounds of {arguments.steps} steps after {WARM_UP}\n")
    print("| what | floor | aim | measured | spread |\n|---|---|---|---|---|")
    for what, over, under, floor, aim in ROWS:
        if over in found and under in found:
            ratios = [a[0] / b[0] for a, b in zip(found[over], found[under])]
            print(f"| {what} | {floor} | {aim} | {statistics.median(ratios):.3f} | {min(ratios):.3f} - {max(ratios):.3f} |")
    if "checkpointing" in found and "lm" in found:
        times = [a[0] / b[0] for a, b in zip(found["lm"], found["checkpointing"])]
        print(f"| checkpointing: time of a step over none (floor and aim are upper bounds) | 1.4 | 1.3 | {statistics.median(times):.3f} | "
              f"{min(times):.3f} - {max(times):.3f} |")
        print(f"\nLargest resident set: {found['lm'][0][1] / 1e9:.2f} GB, with checkpointing {found['checkpointing'][0][1] / 1e9:.2f} GB.")


if __name__ == "__main__":
    main()
