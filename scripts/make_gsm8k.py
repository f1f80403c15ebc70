#!/usr/bin/env python3
"""Writes GSM8K as configs/pita-gsm8k.yaml reads it: data/gsm8k/train.jsonl and test.jsonl, one line per problem with
id, messages (a user's turn with the question) and answer (the published solution, which ends with #### and the
number).

usage: make_gsm8k.py SOURCE [--out data/gsm8k]
SOURCE is a folder with the published set: JSON lines (train.jsonl and test.jsonl of
github.com/openai/grade-school-math), or the Parquet files of the Hugging Face hub (`hf download openai/gsm8k
--repo-type dataset --local-dir SOURCE`), which need pyarrow (`scripts/setup.sh data`).
"""
import argparse
import json
import pathlib
import sys


def files_of(source, split):
    """The files of the configuration `main`; `socratic` next to it has the same problems with other solutions."""
    found = [path for end in ("jsonl", "parquet") for path in sorted(source.rglob(f"{split}*.{end}")) if "socratic" not in str(path.relative_to(source))]
    kinds = {path.suffix for path in found}
    return [path for path in found if path.suffix == (".jsonl" if ".jsonl" in kinds else ".parquet")]


def problems(path):
    if path.suffix == ".jsonl":
        with open(path, encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.strip())
        return
    try:
        import pyarrow.parquet
    except ImportError:
        sys.exit("make_gsm8k.py: there is no pyarrow (it reads Parquet); run `scripts/setup.sh data` and use .deps/venv/bin/python, or give a folder with JSON lines")
    yield from pyarrow.parquet.read_table(path).to_pylist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data/gsm8k"))
    arguments = parser.parse_args()
    for split in ("train", "test"):
        files = files_of(arguments.source, split)
        if not files:
            sys.exit(f"make_gsm8k.py: {arguments.source} has no {split}*.jsonl and no {split}*.parquet (the problems stand in them); name the folder that was downloaded")
        lines = []  # all lines are read before a file is written
        for problem in (one for path in files for one in problems(path)):
            if "####" not in problem["answer"]:
                sys.exit(f"make_gsm8k.py: problem {len(lines)} of {split} has no #### in its answer (nothing says which number is right); fetch the files again")
            record = {"id": f"{split}-{len(lines)}", "messages": [{"role": "user", "content": problem["question"]}], "answer": problem["answer"]}
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{arguments.out / split}.jsonl: {len(lines)} problems")


if __name__ == "__main__":
    main()
