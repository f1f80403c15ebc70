#!/usr/bin/env python3
"""Measures the build times of two revisions, in turn, each in a fresh clone.
Each is built cold (with an empty compiler cache) and again in another clone (with the cache of the first). Prints one
row per build: seconds, CPU seconds, and the number of compilations that the cache answered.

usage: build_times.py BEFORE AFTER [--target magister|all] [--cuda] [--rounds N] [--elsewhere] [--deps .deps]
BEFORE and AFTER are revisions of this repository, for example HEAD~10 HEAD. The Python environment and xgrammar are
those of --deps. Needs a quiet machine.
"""
import argparse
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(command, log, **more):
    with open(log, "ab") as output:
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, **more).returncode
    if status != 0:
        tail = "\n".join(pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
        sys.exit(f"`{' '.join(map(str, command))}` ended with {status} (no time can be told):\n{tail}")


def build(revision, folder, cache, options):
    """Clones, configures and builds; -> (seconds, CPU seconds) of the build alone."""
    log = folder.with_suffix(".log")
    run(["git", "clone", "--quiet", ROOT, folder], log)
    run(["git", "checkout", "--quiet", revision], log, cwd=folder)
    # every clone has its own .deps, so paths are inside the clone
    (folder / ".deps").symlink_to(options.deps.resolve())
    run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DMAGISTER_TESTS={'ON' if options.target == 'all' else 'OFF'}",
         f"-DMAGISTER_CUDA={'ON' if options.cuda else 'OFF'}"], log, cwd=folder)
    environment = {**os.environ, "CCACHE_DIR": str(cache)}
    subprocess.run(["ccache", "-z"], env=environment, stdout=subprocess.DEVNULL, check=True)
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run(["cmake", "--build", "build", "--parallel", str(os.cpu_count()), "--target", options.target], log, cwd=folder, env=environment)
    seconds, now = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def answered(cache):
    """-> "hits of all": the compilations that the cache answered since its statistics were reset."""
    text = subprocess.run(["ccache", "--print-stats"], env={**os.environ, "CCACHE_DIR": str(cache)}, capture_output=True, text=True, check=True).stdout
    number = {name: int(value) for name, value in re.findall(r"^(\w+)\t(\d+)$", text, re.M)}
    hits = number.get("direct_cache_hit", 0) + number.get("preprocessed_cache_hit", 0)
    return f"{hits} of {hits + number.get('cache_miss', 0)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--target", default="magister", choices=["magister", "all"])
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--elsewhere", action="store_true")
    parser.add_argument("--deps", type=pathlib.Path, default=ROOT / ".deps")
    options = parser.parse_args()
    print(f"| revision | {options.target}, GPU code {'on' if options.cuda else 'off'} | seconds | CPU seconds | from the cache |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="magister-build-") as scratch:
        for _ in range(options.rounds):
            for revision in dict.fromkeys((options.before, options.after)):
                cache = pathlib.Path(scratch, "cache")
                for where in ("cold", "elsewhere")[: 2 if options.elsewhere else 1]:
                    folder = pathlib.Path(scratch, f"clone_{where}")
                    seconds, used = build(revision, folder, cache, options)
                    print(f"| {revision} | {where} | {seconds:.1f} | {used:.0f} | {answered(cache)} |", flush=True)
                    shutil.rmtree(folder)
                shutil.rmtree(cache)


if __name__ == "__main__":
    main()
