#!/usr/bin/env bash
# Believed: a file that a library writes for others to read has the mode that open() gives, 0666 less the umask, so that a model which one
# user trains in a shared folder can be loaded by the others.
# Package: safetensors 0.8.0 (PyPI), with numpy 2.2.6. Reported as safetensors/safetensors#782 of later candidates; 0.7.0 is as believed.
# Behaviour: save_file() writes a temporary file and renames it, and the mode of temporary files stays: 0600 under any umask, also where
# a file for a group stood there before. The files beside it (config.json) are 0644, so the folder looks readable.
# Seen:
#   safetensors 0.7.0: new file 0644, written over a 0664 file 0664, with json 0644
#   safetensors 0.8.0: new file 0600, written over a 0664 file 0600, with json 0644
# usage: findings/safetensors_umask.sh      exit 1: the behaviour has changed
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.2.6

# -> the modes of a new file, of one written over another, and of a file that open() makes
modes() {
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "safetensors==$1"
  (cd "$folder" && umask 022 && venv/bin/python - <<'PY'
import os
import numpy
from safetensors.numpy import save_file

def mode(path):
    return f"{os.stat(path).st_mode & 0o7777:04o}"

for name in ("new", "old", "plain.json"):
    if os.path.exists(name):
        os.remove(name)
save_file({"a": numpy.zeros(3, numpy.float32)}, "new")
open("old", "w").close()
os.chmod("old", 0o664)
save_file({"a": numpy.zeros(3, numpy.float32)}, "old")
open("plain.json", "w").close()
print(f"new file {mode('new')}, written over a 0664 file {mode('old')}, with json {mode('plain.json')}")
PY
  )
}

for version in 0.7.0 0.8.0; do
  echo "safetensors $version: $(modes "$version")"
done | tee "$folder/seen"
for wanted in "safetensors 0.7.0: new file 0644, written over a 0664 file 0664, with json 0644" \
  "safetensors 0.8.0: new file 0600, written over a 0664 file 0600, with json 0644"; do
  grep -qxF "$wanted" "$folder/seen" || { echo "changed: \"$wanted\" was seen before" >&2; exit 1; }
done
