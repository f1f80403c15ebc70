#!/usr/bin/env python3
"""Writes the report of scripts/gpu_check.sh: machine, steps, the table of ratios, the passes part by part. It names
what was not run or failed.

usage: gpu_report.py machine --work DIR --program P
       gpu_report.py measure --part table|layer|train|jobs|decoding|judge|judge_int8|kv_cache --work DIR --program P --root DIR --deadline SECONDS
                             [--only NAME,...] [--small SHAPE]
       gpu_report.py write --work DIR --report gpu_report.md
       gpu_report.py join --report whole.md PART.json ...    joins reports of several parts (--only); the later one wins
DIR is where the check keeps steps.tsv (name, exit code, seconds, limit, command) and one log per step. Every
measurement is written there when it ends, so a check that is cut off loses only the unfinished ones. --small uses
another shape instead of the 8B one. --shapes DIR, --device host and --tiny are for the dry run: tiny shapes, and the
GPU's code on the CPU; `measure` then ends with 1 if a number is missing.
"""
import argparse
import functools
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
import gpu_layer
import gpu_whole
from gpu_clocks import Clocks
from gpu_table import PARTS, TINY, measurements, rows_of, sizes_for

# "test_x (module.Class.test_x)", maybe a line of its docstring, " ... ", the test's own output, "ok"
UNITTEST = r"^(test_\w+) \([\w.]+\)(?:\n[^\n]*)? \.\.\.(.*?)(?=^test_\w+ \(|^=====|^-----|\Z)"
OUTCOMES = {0: "passed", 77: "skipped", 124: "timed out", 137: "timed out", 200: "not run"}


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
    memory = said_by(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"]).splitlines()
    found["memory GiB"] = round(float(memory[0]) / 1024, 1) if memory and re.fullmatch(r"[\d.]+", memory[0]) else "not measured"
    for package in ("torch", "transformers", "nvidia-nccl-cu13", "nvidia-cuda-runtime", "numpy", "h5py"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    found["magister"] = said_by([arguments.program, "--version"])
    (arguments.work / "machine.json").write_text(json.dumps(found, indent=1))
    missing = [key for key, value in found.items() if str(value).startswith("not measured")]
    return 1 if arguments.tiny and missing else 0


def last_line(text):
    return (text.strip().splitlines() or ["nothing was printed"])[-1][:300]


def run_json(command, limit):
    """-> numbers, or the reason why there are none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"timed out after {limit:.0f} s"
    except OSError as problem:
        return str(problem)
    if done.returncode != 0:
        return f"ended with {done.returncode}: {last_line(done.stderr)}"
    try:
        values = json.loads(last_line_whole(done.stdout))
        return values if isinstance(values, dict) else "printed no JSON object"
    except ValueError:
        return f"printed no JSON: {last_line(done.stdout)}"


def last_line_whole(text):
    return (text.strip().splitlines() or [""])[-1]


def sizes_of(work, tiny):
    if tiny:
        return TINY
    path = work / "machine.json"
    memory = json.loads(path.read_text()).get("memory GiB") if path.exists() else None
    return sizes_for(memory if isinstance(memory, float) else None)


class Measurer:
    def __init__(self, arguments, clocks):
        self.arguments, self.clocks = arguments, clocks
        shapes = arguments.shapes or arguments.root / "configs/shapes"
        self.folders = {"{8b}": shapes / (arguments.small or "llama-3.1-8b"), "{70b}": shapes / "llama-3.1-70b",
                        "{1b}": shapes / "llama-3.2-1b", "{moe}": shapes / "gpt-oss-120b"}
        self.whole = gpu_whole.Whole(arguments, self.folders)

    def command(self, measurement):
        words = [str(self.folders.get(word, word)) for word in measurement.arguments]
        on_host = self.arguments.device == "host"
        if measurement.runner == "bench":
            threads = 1 if on_host else min(16, os.cpu_count() or 1)
            return [str(self.arguments.program), "bench", *words, "--threads", str(threads), "--device", self.arguments.device,
                    *(["--random"] if measurement.random else []), "--json"]
        here = pathlib.Path(__file__).resolve().parent
        if measurement.runner == "hf":
            return [sys.executable, str(here / "hf_gpu.py"), *words, *(["--device", "cpu", "--repeats", "1"] if on_host else [])]
        return [str(self.arguments.program), "run", "busy.yaml"] if measurement.runner == "busy" else [measurement.runner, measurement.name]

    def busy(self, limit):
        arguments, model = self.arguments, self.arguments.work / "model-1b"
        on_host = arguments.device == "host"
        begin = time.time()
        problem = gpu_busy.model_in(model, self.folders["{1b}"], arguments.root, limit, "cpu" if on_host else "cuda")
        if problem:
            return problem
        few = {"devices": "cpu", "records": 4, "length": 40} if on_host else {}
        return gpu_busy.measure(arguments.program, model, limit - (time.time() - begin), **few)

    def measure(self, measurement):
        command = self.command(measurement)
        left = self.arguments.deadline - time.time()
        begin = time.time()
        # Limits are for a GPU; the host may be busy with other work.
        limit = measurement.limit * (10 if self.arguments.tiny else 1)
        if left < min(self.arguments.least, limit):
            values = f"no time left ({max(left, 0):.0f} s of the budget)"
        elif measurement.runner in ("busy", *gpu_whole.RUNNERS):
            measure_it = self.busy if measurement.runner == "busy" else functools.partial(self.whole.measure, measurement)
            try:
                values = measure_it(min(left, limit))
            except (OSError, subprocess.TimeoutExpired) as problem:
                values = str(problem)[:300]
        else:
            values = run_json(command, min(left, limit))
        result = {"name": measurement.name, "command": shlex.join(command), "wall_seconds": round(time.time() - begin, 2)}
        result["values" if isinstance(values, dict) else "reason"] = values
        if clocks := self.clocks.between(begin, time.time()):
            result["clocks"] = clocks
        return result


def measure(arguments):
    wanted = set(arguments.only.split(",")) if arguments.only else None
    missing = []
    with Clocks() as clocks:
        measurer = Measurer(arguments, clocks)
        for measurement in measurements(arguments.part, sizes_of(arguments.work, arguments.tiny)):
            if wanted is not None and measurement.name not in wanted:
                continue
            result = measurer.measure(measurement)
            with open(arguments.work / "measurements.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            if arguments.report and not arguments.tiny:
                write(arguments)
            if "reason" in result:
                missing.append(result["name"])
            shown = {key: value for key, value in result.get("values", {}).items() if key != "parts"}
            print(f"{result['name']}: {json.dumps(shown) if shown else result['reason']}", flush=True)
        measurer.whole.close()
    if arguments.tiny and missing:
        print(f"gpu_report.py: no number of {', '.join(missing)} (a dry run has all of them); see the reasons above", file=sys.stderr)
        return 1
    return 0


def tests_in(log):
    """-> {test: outcome} from a log of GoogleTest or unittest, and the lines for the report: a test's own lines
    (which begin with three spaces), and a sanitizer's summary.
    """
    outcomes = {}
    for outcome, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] ([\w./]+)", log, re.MULTILINE):
        outcomes[name] = outcome.lower()
    for name, text in re.findall(UNITTEST, log, re.MULTILINE | re.DOTALL):
        found = re.search(r"\b(ok|FAIL|ERROR|skipped)\b[^\n]*$", text.strip())
        outcomes[name] = {"ok": "ok", "skipped": "skipped"}.get(found.group(1), "failed") if found else "cut off"
    return outcomes, re.findall(r"^(?:(?:.*\.\.\. )?   |={9} (?=.*SUMMARY))(\S.*)$", log, re.MULTILINE)


def outcome_of(code, log):
    if code == 77 and (said := re.search(r"^skipped: .*$", log, re.MULTILINE)):
        return said.group(0)
    return OUTCOMES.get(code, "failed")


def steps_of(work):
    path = work / "steps.tsv"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, code, seconds, limit, command = line.split("\t", 4)
        log = work / f"{name}.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        tests, notes = tests_in(text)
        yield {"name": name, "exit_code": int(code), "outcome": outcome_of(int(code), text), "seconds": float(seconds),
               "limit": float(limit), "command": command, "tests": tests, "notes": notes, "log_end": text[-3000:]}


def explained(machine, steps, measured, sizes):
    """A report's contents: computes the rows from the measurements and explains missed floors."""
    rows = list(rows_of(measured, sizes))
    for row in rows:
        if row.get("verdict", "").startswith("below the floor"):
            explain = gpu_layer.explanation if row["layer"].startswith("layer_") else gpu_whole.explanation
            row["explanation"] = explain(measured, row["layer"]) if row["layer"] else ["no pass is looked into for this row"]
    return {"machine": machine, "steps": steps, "rows": rows, "measurements": list(measured.values())}


def gathered(arguments):
    work = arguments.work
    path, machine_path = work / "measurements.jsonl", work / "machine.json"
    results = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    machine_is = json.loads(machine_path.read_text()) if machine_path.exists() else {}
    return explained(machine_is, list(steps_of(work)), {result["name"]: result for result in results}, sizes_of(work, arguments.tiny))


def join(arguments):
    """Joins reports. A measurement without numbers does not replace an earlier one that has them."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.parts]
    measured, steps, machine_is = {}, {}, {}
    for part in parts:
        machine_is.update(part["machine"])
        steps.update({step["name"]: step for step in part["steps"]})
        measured.update({result["name"]: result for result in part["measurements"] if "values" in result or result["name"] not in measured})
    memory = machine_is.get("memory GiB")
    report = explained(machine_is, list(steps.values()), measured, sizes_for(memory if isinstance(memory, float) else None))
    return put(arguments, report)


def table_lines(report):
    lines = ["", "## Ratios", "", "| what | floor | aim | measured | verdict |", "|---|---|---|---|---|"]
    for row in report["rows"]:
        value = f"{row['value']:.3g}" if "value" in row else "not measured"
        floor, aim = ("" if row[key] is None else row[key] for key in ("floor", "aim"))
        lines.append(f"| {row['what']} | {floor} | {aim} | {value} | {row.get('verdict') or row['reason']} |")
    for row in report["rows"]:
        if "explanation" in row:
            lines += ["", f"Below the floor ({row['value']:.3g} of {row['floor']}): {row['what']}; {row['layer'] or 'no pass'}:"]
            lines += [f"- {sentence}" for sentence in row["explanation"]]
    return lines


def step_lines(report):
    lines = ["", "## Steps", "", "| step | outcome | tests ok | failed | seconds | command |", "|---|---|---|---|---|---|"]
    for step in report["steps"]:
        ok = sum(outcome == "ok" for outcome in step["tests"].values())
        failed = sum(outcome in ("failed", "cut off") for outcome in step["tests"].values())
        lines.append(f"| {step['name']} | {step['outcome']} | {ok} | {failed} | {step['seconds']:.0f} | `{step['command']}` |")
    for step in report["steps"]:
        bad = [name for name, outcome in step["tests"].items() if outcome in ("failed", "cut off")]
        lines += [f"- {step['name']}: {note}" for note in step["notes"][:20]]
        if step["outcome"] != "passed" and not step["outcome"].startswith("skipped"):
            lines += ["", f"### {step['name']}: {step['outcome']}", *[f"- {name}" for name in bad[:50]]]
            lines += ["", "```", step["log_end"].strip(), "```"]
    return lines


def markdown(report):
    lines = ["# GPU check", "", "## Machine", ""]
    lines += [f"- {key}: {value}".replace("\n", "; ") for key, value in report["machine"].items()] or ["- not measured"]
    lines += table_lines(report) + step_lines(report)
    measured = {result["name"]: result for result in report["measurements"]}
    lines += ["", "## Passes, part by part", *([*gpu_layer.markdown(measured), *gpu_whole.markdown(measured)] or ["", "not measured"])]
    lines += ["", "## Measurements", "", "| name | numbers | clocks | seconds in all | command |", "|---|---|---|---|---|"]
    for result in report["measurements"]:
        numbers = {key: value for key, value in result.get("values", {}).items() if key != "parts"}
        said = json.dumps(numbers) if numbers else f"not measured: {result['reason']}"
        clocks = ", ".join(f"{key} {value:g}" for key, value in result.get("clocks", {}).items())
        lines.append(f"| {result['name']} | {said} | {clocks} | {result['wall_seconds']} | `{result['command']}` |".replace("\n", " "))
    return "\n".join([*lines, ""])


def write(arguments):
    return put(arguments, gathered(arguments))


def put(arguments, report):
    text = markdown(report)
    for path, content in ((arguments.report, text), (arguments.report.with_suffix(".json"), json.dumps(report, indent=1))):
        new = path.with_name(path.name + ".new")  # complete or not at all
        new.write_text(content, encoding="utf-8")
        new.replace(path)
    if arguments.tiny and arguments.complete:
        missing = [row["what"] for row in report["rows"] if "value" not in row]
        if missing:
            print(f"gpu_report.py: rows without a number (a dry run has all of them): {'; '.join(missing)}", file=sys.stderr)
            return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("machine", "measure", "write", "join"))
    parser.add_argument("parts", nargs="*", type=pathlib.Path, help="join: reports in JSON")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--program", default="magister")
    parser.add_argument("--part", choices=tuple(PARTS), default="table")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--deadline", type=float, default=float("inf"))
    parser.add_argument("--least", type=float, default=15, help="seconds that must be left for a measurement to begin")
    parser.add_argument("--only")
    parser.add_argument("--small")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--shapes", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--complete", action="store_true", help="write: with --tiny, every row must have its number")
    arguments = parser.parse_intermixed_args()
    sys.exit({"machine": machine, "measure": measure, "write": write, "join": join}[arguments.what](arguments))


if __name__ == "__main__":
    main()
