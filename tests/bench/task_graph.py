#!/usr/bin/env python3
"""How well tasks that run at the same time fill the ranks: 40 generate tasks of different lengths, some of which
need others, over 8 ranks with `run.at_once: 0`. Every pass of the generator sleeps a tenth of a second (a fail
point), so that two cores suffice for 8 ranks. The bound is max(longest chain, sum / ranks) of the seconds that the
same tasks take one after the other on one rank. The makespan is the time from the first task's beginning to the last
one's end in run.jsonl; the time of the whole command, with the start of the job, is printed, too.
usage: tests/bench/task_graph.py [--tasks 40] [--ranks 8] [--rounds 1]
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("MAGISTER_SOURCE_DIR", str(ROOT))
os.environ.setdefault("MAGISTER", str(ROOT / "build/magister"))
sys.path.insert(0, str(ROOT / "tests/end_to_end"))
import tiny_world  # noqa: E402

HEAD = tiny_world.EXPERIMENT.split("tasks:")[0]


def experiment(num_tasks, source):
    """-> (text, needs): lengths over a decade; every third task needs one or two earlier tasks."""
    text, needs = HEAD + "run: {{at_once: %d}}\ntasks:\n", {}
    for i in range(num_tasks):
        name = f"t{i}"
        needs[name] = [f"t{j}" for j in source.sample(range(i), min(i, source.choice((1, 2))))] if i % 3 == 2 else []
        waits = f", needs: [{', '.join(needs[name])}]" if needs[name] else ""
        text += (f"  - {{{{task: generate, name: {name}, dataset: {{{{path: {{data}}, limit: 2}}}}, max_prompt_length: 2048, "
                 f"max_new_tokens: {round(20 * 10 ** source.random())}, ignore_eos: true{waits}}}}}\n")
    return text, needs


def events_of(folder):
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def seconds_of_tasks(folder):
    return {event["task"]: event["seconds"] for event in events_of(folder) if event["event"] == "task_end"}


def makespan(folder):
    when = {kind: [datetime.datetime.fromisoformat(event["time"]) for event in events_of(folder) if event["event"] == kind] for kind in ("task", "task_end")}
    return (max(when["task_end"]) - min(when["task"])).total_seconds()


def longest_chain(seconds, needs):
    chain = {}
    for name in seconds:
        chain[name] = seconds[name] + max((chain[other] for other in needs[name]), default=0)
    return max(chain.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tasks", 40), ("ranks", 8), ("rounds", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    print("| round | sum, s | longest chain, s | bound, s | makespan, s | command, s | bound over makespan |\n|---|---|---|---|---|---|---|")
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as scratch:
            text, needs = experiment(arguments.tasks, random.Random(number))
            world = tiny_world.World(scratch, records=2, text=text % 1)
            one, seconds = {}, 0.0
            for name, ranks, at_once in (("in_turn", 0, 1), ("at_once", arguments.ranks, 0)):
                world.text = text % at_once
                begin = time.perf_counter()
                done = subprocess.run(world.command(name, ranks), cwd=scratch, env={**world.environment, "MAGISTER_FAIL_POINT": "generate.pass:slow"}, check=False)
                seconds = time.perf_counter() - begin
                if done.returncode != 0:
                    return done.returncode
                one = one or seconds_of_tasks(pathlib.Path(scratch) / "runs" / name)
            span = makespan(pathlib.Path(scratch) / "runs/at_once")
            chain, total = longest_chain(one, needs), sum(one.values())
            bound = max(chain, total / arguments.ranks)
            print(f"| {number} | {total:.1f} | {chain:.1f} | {bound:.1f} | {span:.1f} | {seconds:.1f} | {bound / span:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
