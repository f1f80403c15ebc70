#!/usr/bin/env python3
"""What makes an exam fast: checks by one prefill over the same checks written out, shared beginnings of prompts over none, two ranks over one.

    .deps/venv/bin/python tests/bench/exam_speed.py [--items 6] [--passage 256] [--reply 128] [--rounds 1] [--only checks|ranks]

SmolLM2-135M on one core for each rank, in turn. The checks are those of an exam, with the templates that its results keep: per item of four
choices 4 orders of the choices with the passages and 4 without, 3 wrong choices, support, objective, wording and level. They run as
`task: judge`, so that the items are the same on both sides; nothing is written but the replies. Two figures for each ratio: by the CPU
seconds of the process (of a rank, in the mean) without those of a run of two checks, or of one cut item, which other work on the machine disturbs less, and by the
seconds of computing.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import h5py
import jinja2

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
LETTERS = {"answer", "closed_answer", "bloom"}
REASON = "\n\nFirst explain in a few sentences what speaks for and against it. End with a line \"Verdict:\" and the verdict."


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.cores = sorted(os.sched_getaffinity(0))
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, name, tasks, ranks=1):
        """-> (seconds of computing of the slowest rank, CPU seconds of a rank in the mean, of the busiest)."""
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "seed": 7, "output": {"directory": str(self.folder)}, "layout": {"devices": "cpu"},
                                    "model": {"path": str(MODEL), "dtype": "f32"}, "tasks": tasks}))
        cores = ",".join(map(str, self.cores[:ranks]))
        command = ["taskset", "-c", cores, "mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), str(self.program), "run", str(path), "--fresh"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=self.environment)
        if done.returncode != 0:
            raise SystemExit(done.stderr[-3000:])
        events = [json.loads(line) for line in (self.folder / name / "run.jsonl").read_text().splitlines()]
        events = events[max(i for i, event in enumerate(events) if event["event"] == "run"):]  # earlier runs of the name stand before
        computing = sum(phase["max"] for event in events if event["event"] == "phases" for phase in event["phases"] if phase["phase"] == "compute")
        usage = [event for event in events if event["event"] == "usage"][-1]
        cpu = [rank["values"]["cpu_cores"]["increase"] for rank in usage["ranks"]]
        return computing, sum(cpu) / len(cpu), max(cpu)


def templates(runs):
    """The exam's prompts, as the results of every exam keep them: name -> {"system", "user"}."""
    exam(runs, 1, 1, max_new_tokens=32)
    with h5py.File(runs.folder / "exam/exam.h5") as file:
        return json.loads(file.attrs["prompts"])


def checks(prompts, number, passage_tokens):
    """Records of the checks of `number` clean items over the example's chapter: {kind: [{"system", "user"}]}, kind letters or words."""
    lines = [line for line in (ROOT / "tests/tasks/exam_items.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    chapter = (ROOT / "configs/data/exam/chapter.md").read_text(encoding="utf-8").split()
    words = int(passage_tokens / 1.25)
    passages = [" ".join((chapter * 9)[start:start + words]) for start in (0, words)]
    records = {"letters": [], "words": []}
    render = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string
    for line in lines[:number]:
        stem, *choices = (part.strip() for part in line.split("|"))
        fields = {"passages": passages, "objective": "Explain how nature works, from cells to stars.", "question": stem, "answer": choices[0], "explanation": f"It is {choices[0]}.", "cited": 0}
        asked = [(name, {**fields, "options": choices[order:] + choices[:order]}) for order in range(4) for name in ("answer", "closed_answer")]
        asked += [("right", {**fields, "answer": wrong}) for wrong in choices[1:]] + [(name, fields) for name in ("support", "alignment", "wording", "bloom")]
        for name, given in asked:
            records["letters" if name in LETTERS else "words"].append({"system": prompts[name]["system"], "user": render(prompts[name]["user"]).render(given), "answer": "x", "question": "x", "references": ["x"], "options": list("ABCDEF")})
    return records


def judged(runs, records, name, written=0, **keys):
    """(seconds, CPU seconds) of all checks; written: tokens of a reply, 0 for one prefill each."""
    tasks = []
    for kind, rows in records.items():
        path = runs.folder / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        tasks.append({"task": "judge", "name": kind, "dataset": {"path": str(path)}, "mode": "choice" if kind == "letters" else "reference", "low_mass": 0, "max_prompt_length": 4096,
                      "prompt": {"system": "{{ system }}", "user": "{{ user }}" + (REASON if written else "")}, **({"classes": 6} if kind == "letters" else {}), **keys,
                      **({"method": "decode", "read": "score", "max_new_tokens": written} if written else {})})
    return runs.run(name, tasks)


def exam(runs, ranks, objectives, **keys):
    path = runs.folder / "objectives.txt"
    topics = ("evaporation", "transpiration", "condensation", "groundwater", "the water table", "erosion", "deltas", "meanders")
    path.write_text("".join(f"1.1.{i // 8 + 1}.{i % 8 + 1} Explain {topics[i % 8]} in your own words.\n" for i in range(objectives)))
    task = {"task": "exam", "source": {"path": str(ROOT / "configs/data/exam/chapter.md"), "passage_tokens": 160}, "objectives": {"path": str(path)}, "items": {"per_objective": 2},
            "bounds": {"generate": 1, "validate": 1, "review": 1}, "validator": {"reject": "none"}, "temperature": 0.7, "max_new_tokens": 320, "max_prompt_length": 1600, **keys}
    figures = runs.run("exam", [task], ranks)
    return figures, (runs.folder / "exam/exam.h5").read_bytes()


def say(what, floor, aim, over, under, start=0.0):
    """start: CPU seconds that both sides take before they compute."""
    def middle(values):
        return sorted(values)[len(values) // 2]

    seconds = middle([a[0] / b[0] for a, b in zip(over, under)])
    cpu = middle([(a[1] - start) / (b[1] - start) for a, b in zip(over, under)])
    raw = " / ".join(f"{middle([one[0] for one in side]):.1f} ({middle([one[1] for one in side]) - start:.1f})" for side in (over, under))
    print(f"| {what} | {floor} | {aim} | {cpu:.2f} | {seconds:.2f} | {raw} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/magister")
    parser.add_argument("--items", type=int, default=6)
    parser.add_argument("--passage", type=int, default=256, help="tokens of a passage; an objective has two")
    parser.add_argument("--reply", type=int, default=128, help="most tokens of a reply")
    parser.add_argument("--objectives", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["checks", "ranks"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(options.program, folder)
        print("| what | floor | aim | by CPU seconds | by seconds | seconds (CPU seconds) of both |\n|---|---|---|---|---|---|", flush=True)
        if options.only != "ranks":
            records = checks(templates(runs), options.items, options.passage)
            prefill, written, unshared = [], [], []
            start = judged(runs, {kind: rows[:1] for kind, rows in records.items()}, "start")[1]
            for turn in range(options.rounds):
                prefill.append(judged(runs, records, f"prefill-{turn}"))
                unshared.append(judged(runs, records, f"unshared-{turn}", share_prefixes=False))
                written.append(judged(runs, records, f"written-{turn}", options.reply))
            number = sum(map(len, records.values()))
            say(f"{number} checks of {options.items} items by prefill over the same written out in at most {options.reply} tokens", 4, 8, written, prefill, start)
            say(f"the same checks with shared beginnings (two passages of about {options.passage} tokens) over none shared", 2, 4, unshared, prefill, start)
        if options.only != "checks":
            one, two = [], []
            start = exam(runs, 1, 1, max_new_tokens=32)[0][1]
            for _ in range(options.rounds):
                (figures, first), (others, second) = exam(runs, 1, options.objectives), exam(runs, 2, options.objectives)
                one.append(figures)
                two.append(others)
                print("the bytes of one rank and of two are the same" if first == second else "ONE RANK AND TWO WROTE OTHER BYTES", flush=True)
            say(f"an exam of {options.objectives} objectives and {2 * options.objectives} items: two ranks on two cores over one on one", 1.8, 1.95, one, two, start)
            print(f"the busiest of two ranks: {two[-1][2] / two[-1][1]:.2f} of the mean")


if __name__ == "__main__":
    main()
