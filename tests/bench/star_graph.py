#!/usr/bin/env python3
"""Runs configs/qsharp-star-graph.yaml and configs/pita-star-graph.yaml from random weights to guided texts, for
several seeds. Each run is killed twice (SIGKILL, in the training of the reference and in that of the value model)
and started again. Prints how often each method finds the goal.
usage: tests/bench/star_graph.py [--seeds 5] [--ranks 2] [--folder FOLDER] [--methods qsharp,pita]
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The number of training steps that a job begins before it kills itself: first in the middle of the reference's 1,000;
# then after the rest of those (a state is saved every 100) in the middle of the value model's.
KILLS = (550, 1000)


def run(command, kill):
    """-> seconds. kill: the step at whose beginning the job kills itself, or None."""
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False,
                          env={**os.environ, **({"MAGISTER_FAIL_POINT": f"train.step.begin@{kill}:kill"} if kill else {})})
    if (done.returncode == 0) == bool(kill):
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-3000:]}")
    return time.perf_counter() - begin


def wilson(count, of):
    share, z = count / of, 1.959964
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def table(name, results, seconds):
    print(f"\n{name}: {len(results)} seeds, each killed twice, {min(seconds):.0f} to {max(seconds):.0f} s\n\n| method | " + " | ".join(f"seed {seed}" for seed in results)
          + " | all, 95 % |\n|---|" + "---|" * (len(results) + 1))
    for method in next(iter(results.values())):
        counts = [(result[method]["accuracy"]["count"], result[method]["accuracy"]["of"]) for result in results.values()]
        count, of = map(sum, zip(*counts))
        low, high = wilson(count, of)
        shares = " | ".join(f"{c / o:.3f}" for c, o in counts)
        print(f"| {method.removesuffix('-scores')} | {shares} | {count / of:.3f} ({low:.3f} - {high:.3f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--methods", default="qsharp,pita")
    arguments = parser.parse_args()
    scratch = tempfile.TemporaryDirectory()
    folder = (arguments.folder or pathlib.Path(scratch.name)).resolve()
    for method in arguments.methods.split(","):
        results, seconds = {}, []
        for seed in range(1, arguments.seeds + 1):
            data, name = folder / f"data-{seed}", f"{method}-{seed}"
            subprocess.run([sys.executable, "scripts/make_star_graphs.py", "--folder", str(data), "--seed", str(seed)], cwd=ROOT, check=True)
            text = (ROOT / f"configs/{method}-star-graph.yaml").read_text(encoding="utf-8").replace("runs/star-graph-data", str(data))
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(arguments.ranks), os.environ.get("MAGISTER", "build/magister"), "run",
                       str(folder / f"{name}.yaml"), f"name={name}", f"seed={seed}", f"output.directory={folder / 'runs'}"]
            seconds.append(sum(run(command, kill) for kill in (*KILLS, None)))
            results[seed] = json.loads((folder / "runs" / name / "evaluation.json").read_text())["methods"]
        table(method, results, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
