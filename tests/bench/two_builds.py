#!/usr/bin/env python3
"""Compares two builds of magister, for a change that should cost no speed: prints a table of new over old.

usage: .deps/venv/bin/python tests/bench/two_builds.py OLD NEW [--core 0] [--rounds 6] [--instructions]
       OLD, NEW: two programs, for example of two commits built by the same compiler
The programs run in turn on one pinned core, and the first one changes from round to round. Each ratio is of one round;
the table shows the median over the rounds with the smallest and the largest. On a shared machine whose minutes differ
by 30 % this is not precise enough: --instructions counts instructions under valgrind instead, once, with few tokens, on
the AVX2 paths, which valgrind supports (three minutes per figure and program). It counts the whole command with loading
and self-test; the ratio is old over new, so that more is better there, too.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys

import peers

# The figures and their arguments of `magister bench`: the fast paths of all three tasks.
FIGURES = {
    "prefill, 512 tokens, f32": ("prefill", 512, "f32"),
    "teacher logits, 512 tokens, f32": ("teacher", 512, "f32"),
    "decode, one text, f32": ("decode", 64, "f32"),
    "decode, one text, f16": ("decode", 64, "f16"),
    "decode, one text, int8": ("decode", 64, "f16", ("--format", "int8", "--group", 32)),
    "decode, one text, int4": ("decode", 64, "f16", ("--format", "int4", "--group", 32)),
    "decode, 32 texts, f32": ("decode", 32, "f32", ("--sequences", 32)),
}


def measure(program, what, tokens, dtype, extra=()):
    return program.bench(what, tokens, dtype, ("--repeats", 1, *extra))["tokens_per_second"]


def instructions(program, what, tokens, dtype, extra=()):
    """The number of instructions of a command. Few tokens suffice to see a loop that has become longer."""
    fewer = [str(min(word, 8)) if extra[i - 1] == "--sequences" else str(word) for i, word in enumerate(extra)]
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", str(program), "bench", what, peers.MODEL,
               "--tokens", str(min(tokens, 16)), "--dtype", dtype, "--threads", "1", "--repeats", "1", *fewer]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"MAGISTER_CPU_KERNELS": "avx2"})
    found = re.search(r"I +refs: +([\d,]+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"two_builds.py: valgrind ended with {done.returncode} and counted nothing; its last words: {done.stderr[-500:]}")
    return int(found.group(1).replace(",", ""))


def count(old, new):
    print("| what | instructions, old over new | old |\n|---|---|---|", flush=True)
    for name, figure in FIGURES.items():
        counts = [instructions(program.resolve(), *figure) for program in (old, new)]
        print(f"| {name} | {counts[0] / counts[1]:.4f} | {counts[0]:.4g} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--instructions", action="store_true")
    arguments = parser.parse_args()
    if arguments.instructions:
        count(arguments.old, arguments.new)
        return
    old, new = (peers.Magister(path.resolve(), arguments.core) for path in (arguments.old, arguments.new))
    speeds = {name: [] for name in FIGURES}
    for index in range(arguments.rounds):
        for name, figure in FIGURES.items():
            order = (old, new) if index % 2 == 0 else (new, old)
            speed = {program: measure(program, *figure) for program in order}
            speeds[name].append((speed[old], speed[new]))
            print(f"round {index + 1}: {name}: {speed[old]:.1f} and {speed[new]:.1f} tokens/s", file=sys.stderr)
    print(f"CPU features: {' '.join(peers.cpu_words())}; one core pinned; {arguments.rounds} rounds\n")
    print("| what | new over old | spread | best over best |\n|---|---|---|---|")
    for name, pairs in speeds.items():
        ratios = [of_new / of_old for of_old, of_new in pairs]
        best = max(of_new for _, of_new in pairs) / max(of_old for of_old, _ in pairs)
        print(f"| {name} | {statistics.median(ratios):.3f} | {min(ratios):.3f} - {max(ratios):.3f} | {best:.3f} |")


if __name__ == "__main__":
    main()
