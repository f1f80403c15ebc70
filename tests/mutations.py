"""Do the tests notice? Each mutation of mutation_table.py is a small fault put into a copy of the sources; the program is built again and the tests named
beside it must fail. A table tells which did. Outside CI; the last table stands in tests/README.md.

usage: tests/mutations.py [--only NAME ...] [--list] [--check] [--markdown]
Needs what `scripts/setup.sh test` brings. Works in build-mutations/tree (a copy of the tracked and new files, with a build folder); your
own files are only read. Safe to stop and to run again. The first run builds everything once; a mutation then costs about a minute on
two cores. Exit status 0 only when every mutation was noticed and every test passes without one.
"""
import argparse
import filecmp
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from mutation_table import MUTATIONS

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build-mutations"
TREE = WORK / "tree"
BUILD = TREE / "build"  # as in the repository itself, so that ccache knows the files
PYTHON = ROOT / ".deps/venv/bin/python"


def sh(command, log, **options):
    """-> exit status; the output goes to the log."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(map(str, command))}\n")
        file.flush()
        return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, **options).returncode


def copy_tree():
    """Tracked and new files as they are now; what is gone there goes here. What is the same keeps its time, so that it is not compiled again."""
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True).stdout
    names = [name for name in files.decode().split("\0") if name and (ROOT / name).exists()]
    TREE.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.exists() or not filecmp.cmp(source, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            os.utime(target)
    kept = set(names)
    for folder in [entry for entry in TREE.iterdir() if entry.is_dir() and entry.name not in ("build", ".deps")]:
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            if str(path.relative_to(TREE)) not in kept and "__pycache__" not in path.parts:
                path.unlink()
    if not (TREE / ".deps").exists():
        (TREE / ".deps").symlink_to(ROOT / ".deps")


def configure():
    return sh(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMAGISTER_TESTS=ON",
               "-DMAGISTER_UNITY=OFF"], WORK / "configure.log")


def build(targets, log):
    return sh(["ninja", "-C", BUILD, *targets], log)


def targets_of(test):
    """A Python test of a module may start that module's small program."""
    words = test.split()
    if not words[0].endswith(".py"):
        return [words[0]]
    probes = {"model": ["families_probe", "own_family_probe", "model_probe"], "io": ["io_probe", "results_probe", "nfs_client"], "text": ["text_probe", "chat_probe"], "tasks": ["judge_summary_probe", "teacher_rows_probe"],
              "train": ["train_probe"]}
    return ["magister", *probes.get(pathlib.PurePath(words[0]).parts[1], [])]


def run_test(test, log):
    words = test.split()
    environment = {**os.environ, "MAGISTER": str(BUILD / "magister"), "MAGISTER_SOURCE_DIR": str(TREE), "MAGISTER_BUILD_DIR": str(BUILD),
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if words[0].endswith(".py"):
        command = [PYTHON, TREE / words[0], *words[1:]]
    else:
        found = next(path for path in BUILD.glob(f"tests/*/{words[0]}"))
        command = [found, *(["--gtest_filter=" + ":".join(words[1:])] if words[1:] else [])]
        if words[0].startswith(("test_parallel", "test_io_results_file", "test_io_results_units", "test_train_flat_shards", "test_train_gradient_tree", "test_train_state_writer", "test_model_host_copy")):
            command = ["mpirun", "--oversubscribe", "-np", "2", *command, "--mpi"]
    return sh(["timeout", "600", *command], log, cwd=WORK, env=environment)


def try_mutation(mutation):
    """-> what came of it: noticed, NOT NOTICED, or why it could not be tried."""
    path, log = TREE / mutation.file, WORK / f"{mutation.name}.log"
    log.unlink(missing_ok=True)
    original = path.read_text(encoding="utf-8")
    if original.count(mutation.search) != 1:
        return f"STALE (its text occurs {original.count(mutation.search)} times in {mutation.file})"
    try:
        path.write_text(original.replace(mutation.search, mutation.replace), encoding="utf-8")
        if build(targets_of(mutation.test), log) != 0:
            return f"DOES NOT COMPILE ({log})"
        return "noticed" if run_test(mutation.test, log) not in (0, 77) else f"NOT NOTICED ({log})"
    finally:
        path.write_text(original, encoding="utf-8")


def check_unchanged(mutations):
    """-> the tests that fail without any mutation."""
    log = WORK / "unchanged.log"
    log.unlink(missing_ok=True)
    tests = sorted({mutation.test for mutation in mutations})
    targets = sorted({target for test in tests for target in targets_of(test)})
    if build(targets, log) != 0:
        raise SystemExit(f"the unchanged sources do not build; see {log}")
    return [test for test in tests if run_test(test, log) != 0]


def names_no_test(test):
    """-> whether a C++ test's filter chooses nothing: such a run passes, whatever the code does."""
    target, *filters = test.split()
    source = next((path for path in ROOT.glob("tests/*/*_test.cpp") if target == f"test_{path.parent.name}_{path.stem.removesuffix('_test')}"), None)
    if source is None:
        return not target.endswith(".py") or not (ROOT / target).exists()
    names = [f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", source.read_text(encoding="utf-8"))]
    return any(not fnmatch.filter([*names, *(f"All/{name}/0" for name in names)], word) for word in filters)


def stale(mutations):
    """-> those whose text does not occur once in their file as it is now, or whose test is none."""
    found = [f"{mutation.name}: its text occurs {count} times in {mutation.file}" for mutation in mutations
             if (count := (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.search)) != 1]
    return found + [f"{mutation.name}: there is no {mutation.test}" for mutation in mutations if names_no_test(mutation.test)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[mutation.name for mutation in MUTATIONS])
    parser.add_argument("--list", action="store_true", help="names and tests, nothing else")
    parser.add_argument("--check", action="store_true", help="only whether every mutation still finds its place; part of CI")
    parser.add_argument("--markdown", action="store_true", help="the table as tests/README.md has it")
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if not arguments.only or mutation.name in arguments.only]
    if arguments.list:
        print("\n".join(f"{mutation.name:28} {mutation.file:36} {mutation.test}" for mutation in chosen))
        return 0
    if arguments.check:
        print("\n".join(found := stale(chosen)))
        return 1 if found else 0
    copy_tree()
    if configure() != 0:
        raise SystemExit(f"the copy cannot be configured; see {WORK / 'configure.log'}")
    failing = check_unchanged(chosen)
    for test in failing:
        print(f"fails without a mutation: {test}", flush=True)
    rows = []
    for mutation in chosen:
        begin = time.monotonic()
        outcome = "NOT TRIED (its test fails without it)" if mutation.test in failing else try_mutation(mutation)
        rows.append((mutation.name, mutation.test, outcome))
        print(f"{mutation.name:28} {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    if arguments.markdown:
        print("| fault put in | test that must fail | outcome |\n|---|---|---|")
        print("\n".join(f"| {name} | `{test}` | {outcome.split(' (')[0]} |" for name, test, outcome in rows))
    noticed = sum(outcome == "noticed" for _, _, outcome in rows)
    print(f"{noticed} of {len(rows)} noticed")
    return 0 if noticed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
