#!/usr/bin/env python3
"""Writes scripts/requirements/<set>.txt from <set>.in: every pinned package with the SHA-256 of each of its wheels
for Linux on x86-64.

usage: lock_requirements.py [SET ...]    (default: all). Queries the package index that pip is configured with; needs
only the standard library.
Without --require-hashes a damaged or replaced file would be linked into the program; with one hash per package, only
one version of Python could install it.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent / "requirements"
FITS = re.compile(r"-(cp31[1-9]|cp3[2-9]|cp310|py3|py2\.py3)[^-]*-[^-]+-(any|(many)?linux[^-]*x86_64[^-]*)\.whl$")


def index_url():
    found = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False)
    return os.environ.get("PIP_INDEX_URL") or found.stdout.strip() or "https://pypi.org/simple"


def hashes(name, version):
    request = urllib.request.Request(f"{index_url().rstrip('/')}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    spelt = re.sub(r"[-_.]+", "[-_.]+", name)
    wanted = re.compile(rf"{spelt}-{re.escape(version)}(-\d[^-]*)?-", re.IGNORECASE)
    found = sorted(entry["hashes"]["sha256"] for entry in files
                   if wanted.match(entry["filename"]) and FITS.search(entry["filename"]) and not re.search(r"-cp3\d+t-", entry["filename"]))
    if not found:
        sys.exit(f"lock_requirements.py: {name}=={version} has no wheel for Linux on x86-64 (nothing could be installed); choose another version")
    return found


def main():
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.in")):
        lines = [f"# From {name}.in by scripts/lock_requirements.py; do not edit."]
        for line in (FOLDER / f"{name}.in").read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                package, version = line.split("==")
                lines.append(" \\\n    ".join([line, *(f"--hash=sha256:{one}" for one in hashes(package, version))]))
        (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {sum('==' in line for line in lines)} packages")


if __name__ == "__main__":
    main()
