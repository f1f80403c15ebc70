#!/usr/bin/env python3
"""Fills the list of files in src/README.md, room by room in floor order, from the first sentence of each file's head.

usage: map_of_files.py. Run it in the commit that adds or moves a file: tests/house fails while a file is missing in the map.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_floors import ROOMS

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAP = ROOT / "src/README.md"
BEGIN, END = "<!-- files: scripts/map_of_files.py -->", "<!-- end of files -->"


def first_sentence(path):
    """Of the comment at the file's head; a leading "Name: " stays, it is what the file is about."""
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        words.append(line[2:].strip())
    text = " ".join(words)
    found = re.match(r"(.*?[a-z0-9)\"'\]][.;])(\s|$)", text)
    return (found.group(1) if found else text).rstrip(".;").replace("|", "\\|")


def rows_of(room):
    """One row a stem: header and source share it, the header's head speaks."""
    stems = {}
    for top in (ROOT / "include/magister", ROOT / "src"):
        for path in sorted((top / room).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                stems.setdefault(str(path.relative_to(top).with_suffix("")), []).append(path)
    for stem, paths in sorted(stems.items()):
        public = any(path.is_relative_to(ROOT / "include") for path in paths)
        head = next((path for path in paths if path.suffix in (".h", ".cuh")), paths[0])
        others = "".join(f" `{path.suffix}`" for path in paths if path is not head)
        mark = "" if public else " (private)"
        yield f"| `{stem}{head.suffix}`{others}{mark} | {first_sentence(head)} |"


def listing():
    lines = [BEGIN]
    for room in ROOMS:
        rows = list(rows_of(room))
        if rows:
            lines += [f"\n### {room}", "| file | what it holds |", "|---|---|", *rows]
    main_head = first_sentence(ROOT / "src/main.cpp")
    lines += ["\n### outside a room", "| file | what it holds |", "|---|---|", f"| `main.cpp` | {main_head} |"]
    return "\n".join([*lines, END])


def main():
    before, rest = MAP.read_text(encoding="utf-8").split(BEGIN)
    MAP.write_text(before + listing() + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
