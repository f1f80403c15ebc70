"""A build without GPU code links, too. Such a build is not made here: its stand-ins (*_no_cuda.cpp, *_no_nccl.cpp) are compiled, and
they must define every symbol that the rest of the program takes from the files that they stand in for.
usage: without_gpu_test.py FOLDER, in which the stand-ins' objects lie; the modules' libraries lie in $MAGISTER_BUILD_DIR
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

OF_THE_GPU = re.compile(r"(?<!_no)_(cuda|nccl)\.cpp\.o$|\.cu\.o$")


def symbols(path):
    """-> {object: (defined, undefined)} of a library or an object."""
    found = collections.defaultdict(lambda: (set(), set()))
    listing = subprocess.run(["nm", "--print-file-name", "--extern-only", "--demangle", str(path)], capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        match = re.match(r"(?:[^:]*:)?([^:]+\.o):\s*[0-9a-f]* *([A-Za-z]) (.*)$", line)
        if match:
            name, kind, symbol = match.groups()
            found[name][1 if kind in "Uw" else 0].add(symbol)
    return found


def main():
    defined_by_gpu, defined_elsewhere, wanted = set(), set(), set()
    for library in sorted(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]).glob("libmagister_*.a")):
        for name, (defined, undefined) in symbols(library).items():
            if OF_THE_GPU.search(name):
                defined_by_gpu |= defined
            else:
                defined_elsewhere |= defined
                wanted |= undefined
    objects = list(pathlib.Path(sys.argv[1]).rglob("*.o"))
    provided = set()
    for path in objects:
        provided = provided.union(*(defined for defined, _ in symbols(path).values()))
    # Templates that a header defines in such a build.
    needed = {symbol for symbol in (wanted & defined_by_gpu) - defined_elsewhere if "::launch_cuda<" not in symbol}
    missing = sorted(needed - provided)
    print(f"{len(needed)} symbols of GPU code are wanted, {len(objects)} stand-ins define {len(provided)}, {len(missing)} are missing")
    print("\n".join(missing))
    return 1 if missing or not needed or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
