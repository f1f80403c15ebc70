#!/usr/bin/env python3
"""Speed of encoding against the Python package `tokenizers`, one thread each, in turn in one run: prose and code in
lines of a few hundred bytes. Megabytes per second of processor time, the best of three turns; the ratio is of these.

usage: tokenizer_speed.py [--megabytes N | --wide LINES]    with MAGISTER_BUILD_DIR and MAGISTER_SOURCE_DIR, as for
tests
--wide: lines of every language and script in installed packages (tests/text/corpus.py), with hardly a repeated word.
Needs build/tests/text/text_probe. Prints a table in Markdown; CI does not use it.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
SOURCE = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests/text"))

import corpus  # noqa: E402
import families_test  # noqa: E402
import oracle_test  # noqa: E402


def text_lines(megabytes):
    """Lines of about 600 bytes from Python's own library: prose in its comments, and code."""
    lines, size = [], 0
    for path in sorted(pathlib.Path(os.__file__).parent.glob("*.py")):
        text = " ".join(path.read_text(encoding="utf-8", errors="ignore").split("\n"))
        for begin in range(0, len(text), 600):
            lines.append(text[begin:begin + 600])
            size += 600
        if size >= megabytes * 10**6:
            return lines
    return lines


def ours(path, lines):
    done = subprocess.run([families_test.PROBE, "json", path, "speed"], input="\n".join(lines), capture_output=True, text=True, check=True)
    return float(done.stdout)


def theirs(tokenizer, lines):
    size, best = sum(len(line.encode()) for line in lines), 0
    for _ in range(3):
        begin = time.process_time()
        for line in lines: tokenizer.encode(line)
        best = max(best, size / 1e6 / (time.process_time() - begin))
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--wide", type=int, default=0)
    arguments = parser.parse_args()
    lines = [line.replace("\n", " ") for line in corpus.wide(arguments.wide)[:arguments.wide]] if arguments.wide else text_lines(arguments.megabytes)
    cases = {"byte-level, Llama 3's pattern": lambda: oracle_test.trained(oracle_test.LLAMA3, None, True, True),
             "byte-level, GPT-2's pattern": families_test.roberta, "Llama 2": families_test.llama_2, "Mistral": families_test.mistral, "Gemma": families_test.gemma,
             "T5 (Unigram, charsmap)": families_test.FAMILIES["t5"], "BERT": families_test.bert}
    print("| tokenizer | magister MB/s | tokenizers MB/s | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        for name, make in cases.items():
            tokenizer = make()
            tokenizer.save(path)
            a, b = (max(speeds) for speeds in zip(*((ours(path, lines), theirs(tokenizer, lines)) for _ in range(3))))
            print(f"| {name} | {a:.1f} | {b:.1f} | {a / b:.1f} |", flush=True)
        # The speed for a single word: texts without spaces, of several lengths.
        tokenizer = families_test.llama_2()
        tokenizer.save(path)
        for size in (10**5, 10**6, 4 * 10**6):
            print(f"| Llama 2, one word of {size} bytes | {ours(path, ['th' * (size // 2)]):.2f} | | |")


if __name__ == "__main__":
    main()
