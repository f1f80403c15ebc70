#!/usr/bin/env python3
"""The replacements with which scripts/gpu_check.sh --dry-run works without a GPU: tiny shapes, and substitutes for
NVIDIA's programs if they are missing. They accept the options that the check uses and refuse others, as the real
ones do.

usage: gpu_dry_run.py DIR    writes DIR/shapes/*/config.json, DIR/bin/nvidia-smi, DIR/bin/compute-sanitizer
"""
import json
import pathlib
import shutil
import sys

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
         "vocab_size": 384, "bos_token_id": 0, "eos_token_id": 0}

# The fields of nvidia-smi --help-query-gpu whose values are a number or a name.
NVIDIA_SMI = r'''#!{python}
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
KNOWN = {{"name": "No GPU (a stand-in)", "driver_version": "0.0", "memory.total": "81559", "clocks.max.sm": "1980", "clocks.max.memory": "2619",
         "power.limit": "700.00", "compute_cap": "9.0", "clocks.sm": "1755", "clocks.mem": "2619", "power.draw": "512.34",
         "temperature.gpu": "54", "utilization.gpu": "98", "memory.used": "1234"}}
fields, period = [], None
words = sys.argv[1:]
while words:
    word = words.pop(0)
    if word.startswith("--query-gpu="):
        fields = word.split("=", 1)[1].split(",")
    elif word in ("-i", "-lms"):
        value = int(words.pop(0))
        period = value if word == "-lms" else period
    elif not word.startswith("--format=") or set(word.split("=", 1)[1].split(",")) - {{"csv", "noheader", "nounits"}}:
        sys.exit(f"Invalid combination of input arguments: {{word}}")
for field in fields:
    if field not in KNOWN:
        print(f'Field "{{field}}" is not a valid field to query.')
        sys.exit(2)
idle = 2 if fields == ["utilization.gpu"] else 0
while True:
    print(", ".join("0" if idle > 0 else KNOWN[field] for field in fields), flush=True)
    idle -= 1
    if period is None:
        break
    time.sleep(0.01)
'''

COMPUTE_SANITIZER = r'''#!{python}
import os, sys
TOOLS, VALUES = ("memcheck", "racecheck", "synccheck", "initcheck"), ("--tool", "--error-exitcode", "--target-processes", "--kernel-name", "--print-limit")
words, seen = sys.argv[1:], {{}}
if words == ["--help"]:
    print("--kernel-name {{key1=val1}}[{{,key2=val2}}]")
    sys.exit(0)
while words and words[0].startswith("-"):
    word = words.pop(0)
    if word not in VALUES:
        sys.exit(f"unrecognised option '{{word}}'")
    seen[word] = words.pop(0)
if seen.get("--tool", "memcheck") not in TOOLS or "=" not in seen.get("--kernel-name", "a=b") or seen.get("--target-processes", "all") not in ("all", "application-only"):
    sys.exit(f"a value is wrong: {{seen}}")
print("========= COMPUTE-SANITIZER (a stand-in)", flush=True)
code = os.spawnvp(os.P_WAIT, words[0], words)
print("========= ERROR SUMMARY: 0 errors (a stand-in: nothing was looked at)")
sys.exit(code)
'''


def write_program(folder, name, text):
    if shutil.which(name) is None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.format(python=sys.executable), encoding="utf-8")
        (folder / name).chmod(0o755)


def main():
    folder = pathlib.Path(sys.argv[1])
    root = pathlib.Path(__file__).resolve().parents[2]
    for config in sorted((root / "configs/shapes").glob("*/config.json")):
        shape = {**json.loads(config.read_text(encoding="utf-8")), **SHAPE}
        if "layer_types" in shape:
            shape["layer_types"] = shape["layer_types"][:shape["num_hidden_layers"]]
        target = folder / "shapes" / config.parent.name
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    write_program(folder / "bin", "nvidia-smi", NVIDIA_SMI)
    write_program(folder / "bin", "compute-sanitizer", COMPUTE_SANITIZER)


if __name__ == "__main__":
    main()
