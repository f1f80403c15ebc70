"""Prints the library folders of the torch wheel and of NVIDIA's wheels beside it, for LD_LIBRARY_PATH.

usage: torch_libraries.py VERSION. torch is found, not imported: importing takes seconds.
"""
import importlib.util
import pathlib
import re
import sys


def stop(problem):
    print(f"magister: {problem}; name the Python that has the torch wheel by MAGISTER_PYTHON", file=sys.stderr)
    sys.exit(78)


def main():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        stop(f"{sys.executable} has no torch (the program uses its libraries)")
    torch = pathlib.Path(spec.submodule_search_locations[0])
    if not (torch / "lib/libtorch_cpu.so").exists():
        stop(f"{torch} holds no lib/libtorch_cpu.so (the program uses it)")
    found = re.search(r"__version__ = ['\"]([\d.]+)", (torch / "version.py").read_text(encoding="utf-8"))
    version = found.group(1).rstrip(".") if found else "unknown"
    if version != sys.argv[1]:
        stop(f"{torch} is torch {version}, and the program was built with {sys.argv[1]} (their C++ interfaces differ)")
    folders = [torch / "lib"]
    for site in (torch.parent, *map(pathlib.Path, sys.path)):
        folders += [folder for folder in sorted(site.glob("nvidia/*/lib")) if folder not in folders]
    print(":".join(map(str, folders)))


main()
