#!/usr/bin/env python3
"""Prints the files of src/ and include/ by module, each with the first sentence of its first comment.

usage: scripts/list_files.py [MODULE ...]
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_layers import MODULES

ROOT = pathlib.Path(__file__).resolve().parents[1]


def first_sentence(path):
    """The first sentence of the comment at the file's beginning; a leading "Name: " is kept, because it names the
    subject."""
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        words.append(line[2:].strip())
    text = " ".join(words)
    found = re.match(r"(.*?[a-z0-9)\"'\]][.;])(\s|$)", text)
    return (found.group(1) if found else text).rstrip(".;")


def rows_of(module):
    """One row per stem: header and source share it; the text is that of the header."""
    stems = {}
    for top in (ROOT / "include/magister", ROOT / "src"):
        for path in sorted((top / module).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                stems.setdefault(str(path.relative_to(top).with_suffix("")), []).append(path)
    for stem, paths in sorted(stems.items()):
        public = any(path.is_relative_to(ROOT / "include") for path in paths)
        head = next((path for path in paths if path.suffix in (".h", ".cuh")), paths[0])
        name = stem + head.suffix + "".join(" " + path.suffix for path in paths if path is not head)
        yield f"{name:50} {'public ' if public else '       '} {first_sentence(head)}"


def main():
    for module in sys.argv[1:] or MODULES:
        rows = list(rows_of(module))
        if rows:
            print("\n".join([f"\n{module}", *rows]))


if __name__ == "__main__":
    main()
