#!/usr/bin/env python3
"""Draws one page about a results file or about all results of a run folder: distributions, verdicts, speed, stops.

usage: scripts/report.py RUN [--out FILE.html|.pdf|.png] [--json]
RUN is runs/<name> or one results file, also one that is still being written: only committed units count. Without --out
the page is report.html in the folder, or <file>.html next to a file. --json prints the numbers and draws only if --out
is given.
Needs h5py, numpy and, to draw, matplotlib. Its parts are in scripts/report/.
"""
import argparse
import json
import os
import sys
import tempfile

FORMS = ("html", "pdf", "png")
MOST_FILES = 12  # on one page
try:
    from report import CONFIGURATION, DATA, INPUT_OUTPUT, USAGE, ReportError, printable
    from report.page import matplotlib_parts, page
    from report.results_file import SUFFIXES, ResultsFile, task_of
    from report.run_log import run_log
    from report.tasks import numbers_of
except ImportError as error:
    print(f"report.py: {error} (results are read with h5py and numpy); run it with .deps/venv/bin/python, or install them with "
          "`python3 -m pip install h5py numpy`", file=sys.stderr)
    sys.exit(78)


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise ReportError(USAGE, f"{printable(message)} (nothing was drawn); see --help")


def parse(arguments):
    parser = Arguments(prog="report.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", metavar="RUN", help="a run's folder or one results file")
    parser.add_argument("--out", metavar="FILE", help="the page: .html, .pdf or .png")
    parser.add_argument("--json", action="store_true", help="print the numbers; draw only if --out is given")
    given = parser.parse_args(arguments)
    if given.out is not None and given.out.rpartition(".")[2].lower() not in FORMS:
        raise ReportError(USAGE, f"--out {printable(given.out)} ends in none of .html, .pdf and .png (the form of the page is told by the "
                                 "name); choose one of them")
    return given


def files_of(run):
    """-> the results files of a folder, one per task in the order of their names: the final one, or the one that a
    run has left or still writes."""
    if not os.path.isdir(run):
        return [run]
    try:
        names = sorted(os.listdir(run))
    except OSError as error:
        raise ReportError(INPUT_OUTPUT, f"{printable(run)}: {error.strerror} (its results cannot be found); make it readable") from error
    # A packed file that is not final yet is made from the running one and has fewer units.
    order = (".h5", ".running.h5", ".running.h5.partial", ".h5.partial")
    found = {}
    for name in names:
        task = task_of(name)
        if task is not None and os.path.isfile(os.path.join(run, name)):
            suffix = name[len(task):]
            if task not in found or order.index(suffix) < order.index(found[task][len(task):]):
                found[task] = name
    if not found:
        raise ReportError(DATA, f"{printable(run)}: holds no results file (there is nothing to draw); name the folder of a run that has "
                                f"begun: files that end in {', '.join(SUFFIXES)}")
    if len(found) > MOST_FILES:
        raise ReportError(USAGE, f"{printable(run)}: holds {len(found)} results files (a page shows {MOST_FILES} at most); name one of them")
    return [os.path.join(run, name) for name in found.values()]


def collect(run):
    """-> all numbers of the page."""
    tasks = []
    for path in files_of(run):
        with ResultsFile(path) as results:
            tasks.append(numbers_of(results))
    folder = run if os.path.isdir(run) else os.path.dirname(run)
    log = run_log(os.path.join(folder, "run.jsonl"), [one["task"] for one in tasks])
    if log is not None:  # in the order of computation; tasks that the log does not know go last
        tasks.sort(key=lambda one: (log["order"] + [one["task"]]).index(one["task"]))
    return {"name": tasks[0]["run"], "complete": all(one["complete"] for one in tasks), "tasks": tasks, "log": log}


def write_whole(path, data):
    """Writes a temporary file next to it and renames it: a reader never sees half a page, and a full disk leaves the
    old page."""
    made = None
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", prefix=".report-", delete=False) as file:
            made = file.name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o666 & ~mask)
        os.replace(made, path)
    except OSError as error:
        raise ReportError(INPUT_OUTPUT, f"{printable(path)}: cannot be written: {error.strerror} (the page is not there, nothing else was "
                                        "changed); choose another --out") from error
    finally:
        if made is not None and os.path.exists(made):
            os.unlink(made)


def main(arguments):
    given = parse(arguments)
    run = given.run.rstrip("/") or given.run
    target = given.out or (None if given.json else os.path.join(run, "report.html") if os.path.isdir(run) else f"{run}.html")
    if target is not None:
        matplotlib_parts()  # fails before the columns are read, which may take minutes
    numbers = collect(run)
    if target is not None:
        write_whole(target, page(numbers, target.rpartition(".")[2].lower()))
    print(json.dumps(numbers, indent=1, allow_nan=False) if given.json else target)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:  # the reader, for example head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
