#!/usr/bin/env python3
"""Ten million tiny records: the memory and seconds per rank for planning and for the start of a run.

    MAGISTER=build/magister MAGISTER_SOURCE_DIR=. .deps/venv/bin/python tests/bench/many_records.py [--records N ...]

A unit of `generate` is a record, so a data set cannot have more units than this. The data and the runs take 100 bytes
per record in --folder; --records is for example 1000000 10000000. Prints a Markdown table; tests/bench/README.md has
one.
"""
import argparse
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("MAGISTER_SOURCE_DIR", str(ROOT))
os.environ.setdefault("MAGISTER", str(ROOT / "build/magister"))
sys.path.insert(0, str(ROOT / "tests/end_to_end"))
import many_records  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", nargs="+", default=["tokens", "text"], choices=["tokens", "text"])
    parser.add_argument("--folder", help="where data and runs go; a temporary folder otherwise")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        runs = many_records.Runs(folder)
        print("| records of | records | ranks | step | seconds | peak MB of each rank |\n|---|---|---|---|---|---|", flush=True)
        for kind in options.kinds:
            for count in options.records:
                data = many_records.write_records(runs.folder / "records.jsonl", count, kind)
                for ranks in options.ranks:
                    name = f"{kind}-{count}-{ranks}"
                    experiment = runs.experiment(name, data, kind)
                    steps = (("plan", lambda: runs.plan(experiment, ranks)), ("run, to the first units", lambda: runs.run_to_first_units(experiment, name, ranks, 5)),
                             ("run again, to the first units", lambda: runs.run_to_first_units(experiment, name, ranks, 5)))
                    for step, measure in steps:
                        seconds, peaks = measure()
                        memory = ", ".join(f"{peak / 1e6:.0f}" for peak in peaks)
                        print(f"| {kind} | {count:,} | {ranks} | {step} | {seconds:.1f} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
