"""Replaces the run path of programs, which names folders of the machine that built them, by $ORIGIN/../lib, in
place.

usage: bundle_runpath.py FILE ...
"""
import pathlib
import re
import subprocess
import sys

WANTED = b"$ORIGIN/../lib"


def main():
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        section = subprocess.run(["readelf", "-d", name], capture_output=True, text=True, check=True).stdout
        found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", section)
        if not found:
            continue
        old, data = found.group(1).encode(), path.read_bytes()
        if data.count(old + b"\0") != 1 or len(old) < len(WANTED):
            sys.exit(f"bundle_runpath.py: {name} holds its run path {data.count(old)} times (one was expected); link it anew")
        path.write_bytes(data.replace(old + b"\0", WANTED.ljust(len(old), b"\0") + b"\0"))


if __name__ == "__main__":
    main()
