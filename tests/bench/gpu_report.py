#!/usr/bin/env python3
"""The report of scripts/gpu_check.sh: machine, steps, the table of ratios. What was not run or failed says so.

usage: gpu_report.py machine --work DIR --program P
       gpu_report.py measure --work DIR --program P --root DIR --deadline SECONDS [--only NAME,...] [--small SHAPE]
       gpu_report.py write --work DIR --report gpu_report.md
DIR is where the check keeps steps.tsv (name, exit code, seconds, limit, command) and a log a step; every measurement is written
there when it ends, so a check that is cut off loses only what had not ended. --small takes another shape for the 8B one.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_busy
from gpu_table import MEASUREMENTS, rows_of

USAGE_ERROR = 64
# "test_x (module.Class.test_x)", perhaps a line of its docstring, " ... ", what it printed, "ok"
UNITTEST = r"^(test_\w+) \([\w.]+\)(?:\n[^\n]*)? \.\.\.(.*?)(?=^test_\w+ \(|^=====|^-----|\Z)"
OUTCOMES = {0: "passed", 77: "skipped: no GPU", 124: "timed out", 137: "timed out", 200: "not run"}


def said_by(command, limit=60):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"not measured: {problem}"
    return done.stdout.strip() if done.returncode == 0 else f"not measured: `{shlex.join(command)}` ended with {done.returncode}"


def machine(arguments):
    found = {}
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit,compute_cap"
    found["nvidia-smi"] = said_by(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    for package in ("torch", "transformers", "nvidia-nccl-cu13", "nvidia-cuda-runtime", "numpy", "h5py"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    found["magister"] = said_by([arguments.program, "--version"])
    (arguments.work / "machine.json").write_text(json.dumps(found, indent=1))


def last_line(text):
    return (text.strip().splitlines() or ["nothing was printed"])[-1][:300]


def run_json(command, limit):
    """-> (exit code, numbers or the reason why there are none)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return 124, f"timed out after {limit:.0f} s"
    except OSError as problem:
        return 127, str(problem)
    if done.returncode != 0:
        return done.returncode, f"ended with {done.returncode}: {last_line(done.stderr)}"
    try:
        values = json.loads(last_line_whole(done.stdout))
        return 0, values if isinstance(values, dict) else "printed no JSON object"
    except ValueError:
        return 0, f"printed no JSON: {last_line(done.stdout)}"


def last_line_whole(text):
    return (text.strip().splitlines() or [""])[-1]


class Measurer:
    def __init__(self, arguments):
        self.program, self.root, self.deadline = arguments.program, arguments.root, arguments.deadline
        self.least = arguments.least
        shapes = arguments.root / "configs/shapes"
        self.folders = {"{8b}": shapes / (arguments.small or "llama-3.1-8b"), "{70b}": shapes / "llama-3.1-70b",
                        "{1b}": shapes / "llama-3.2-1b"}

    def command(self, measurement):
        words = [str(self.folders.get(word, word)) for word in measurement.arguments]
        if measurement.runner == "bench":
            return [str(self.program), "bench", *words, "--threads", str(min(16, os.cpu_count() or 1)), "--device", "cuda:0",
                    "--random", "--json"]
        here = pathlib.Path(__file__).resolve().parent
        if measurement.runner == "hf":
            return [sys.executable, str(here / "hf_gpu.py"), *words]
        return [str(self.program), "run", "busy.yaml"]

    def measure(self, measurement):
        command = self.command(measurement)
        left = self.deadline - time.time()
        begin = time.time()
        if left < min(self.least, measurement.limit):
            values = f"no time left ({max(left, 0):.0f} s of the budget)"
        elif measurement.runner == "busy":
            try:
                values = gpu_busy.measure(self.program, self.folders["{1b}"], self.root, min(left, measurement.limit))
            except (OSError, subprocess.TimeoutExpired) as problem:
                values = str(problem)[:300]
        else:
            code, values = run_json(command, min(left, measurement.limit))
            if code == USAGE_ERROR and not measurement.model:  # a program that wants a model's folder in every bench
                command.insert(3, str(self.folders["{8b}"]))
                code, values = run_json(command, min(self.deadline - time.time(), measurement.limit))
        result = {"name": measurement.name, "command": shlex.join(command), "wall_seconds": round(time.time() - begin, 2)}
        result["values" if isinstance(values, dict) else "reason"] = values
        return result


def measure(arguments):
    measurer = Measurer(arguments)
    wanted = set(arguments.only.split(",")) if arguments.only else None
    for measurement in MEASUREMENTS:
        if wanted is not None and measurement.name not in wanted:
            continue
        result = measurer.measure(measurement)
        with open(arguments.work / "measurements.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        if arguments.report:
            write(arguments)
        print(f"{result['name']}: {json.dumps(result.get('values')) if 'values' in result else result['reason']}", flush=True)


def tests_in(log):
    """-> {test: outcome} of a log of GoogleTest or unittest, and the lines for the report: a test's own (three spaces first), and
    a sanitizer's summary.
    """
    outcomes = {}
    for outcome, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] ([\w./]+)", log, re.MULTILINE):
        outcomes[name] = outcome.lower()
    for name, text in re.findall(UNITTEST, log, re.MULTILINE | re.DOTALL):
        found = re.search(r"\b(ok|FAIL|ERROR|skipped)\b[^\n]*$", text.strip())
        outcomes[name] = {"ok": "ok", "skipped": "skipped"}.get(found.group(1), "failed") if found else "cut off"
    return outcomes, re.findall(r"^(?:(?:.*\.\.\. )?   |={9} (?=.*SUMMARY))(\S.*)$", log, re.MULTILINE)


def steps_of(work):
    path = work / "steps.tsv"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, code, seconds, limit, command = line.split("\t", 4)
        log = work / f"{name}.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        tests, notes = tests_in(text)
        yield {"name": name, "exit_code": int(code), "outcome": OUTCOMES.get(int(code), "failed"), "seconds": float(seconds),
               "limit": float(limit), "command": command, "tests": tests, "notes": notes, "log_end": text[-3000:]}


def gathered(work):
    measured = {}
    path = work / "measurements.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        result = json.loads(line)
        measured[result["name"]] = result
    machine_path = work / "machine.json"
    return {"machine": json.loads(machine_path.read_text()) if machine_path.exists() else {}, "steps": list(steps_of(work)),
            "rows": list(rows_of(measured)), "measurements": list(measured.values())}


def markdown(report):
    lines = ["# GPU check", "", "## Machine", ""]
    lines += [f"- {key}: {value}".replace("\n", "; ") for key, value in report["machine"].items()] or ["- not measured"]
    lines += ["", "## Steps", "", "| step | outcome | tests ok | failed | seconds | command |", "|---|---|---|---|---|---|"]
    for step in report["steps"]:
        ok = sum(outcome == "ok" for outcome in step["tests"].values())
        failed = sum(outcome in ("failed", "cut off") for outcome in step["tests"].values())
        lines.append(f"| {step['name']} | {step['outcome']} | {ok} | {failed} | {step['seconds']:.0f} | `{step['command']}` |")
    for step in report["steps"]:
        bad = [name for name, outcome in step["tests"].items() if outcome in ("failed", "cut off")]
        lines += [f"- {step['name']}: {note}" for note in step["notes"][:20]]
        if step["outcome"] not in ("passed", "skipped: no GPU"):
            lines += ["", f"### {step['name']}: {step['outcome']}", *[f"- {name}" for name in bad[:50]]]
            lines += ["", "```", step["log_end"].strip(), "```"]
    lines += ["", "## Ratios", "", "| what | floor | aim | measured | verdict |", "|---|---|---|---|---|"]
    for entry in report["rows"]:
        value = f"{entry['value']:.3g}" if "value" in entry else "not measured"
        lines.append(f"| {entry['what']} | {entry['floor']} | {entry['aim']} | {value} | {entry.get('verdict') or entry['reason']} |")
    lines += ["", "## Measurements", "", "| name | numbers | seconds in all | command |", "|---|---|---|---|"]
    for result in report["measurements"]:
        numbers = json.dumps(result["values"]) if "values" in result else f"not measured: {result['reason']}"
        lines.append(f"| {result['name']} | {numbers} | {result['wall_seconds']} | `{result['command']}` |".replace("\n", " "))
    return "\n".join([*lines, ""])


def write(arguments):
    report = gathered(arguments.work)
    text = markdown(report)
    for path, content in ((arguments.report, text), (arguments.report.with_suffix(".json"), json.dumps(report, indent=1))):
        new = path.with_name(path.name + ".new")  # whole or not at all
        new.write_text(content, encoding="utf-8")
        new.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("machine", "measure", "write"))
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--program", default="magister")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--deadline", type=float, default=float("inf"))
    parser.add_argument("--least", type=float, default=15, help="seconds that must be left for a measurement to begin")
    parser.add_argument("--only")
    parser.add_argument("--small")
    parser.add_argument("--report", type=pathlib.Path)
    arguments = parser.parse_args()
    {"machine": machine, "measure": measure, "write": write}[arguments.what](arguments)


if __name__ == "__main__":
    main()
