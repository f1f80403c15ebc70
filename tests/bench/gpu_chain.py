#!/usr/bin/env python3
"""Two tasks in one job at a realistic size: a 1B model of random weights writes texts, then judges them. The second
task finds the device as the first one left it, so this fails if memory is not given back. Prints rates; exit code 0
if both files are complete.

usage: gpu_chain.py --program build/magister --root . --work DIR [--shape configs/shapes/llama-3.2-1b] [--tiny]
DIR/model-1b is made if it does not exist. --tiny: few short texts, with the GPU's code on the host.
"""
import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_busy

EXPERIMENT = """name: chain
seed: 5
output: {{directory: {folder}/runs}}
model: {{path: {model}, dtype: bf16}}
layout: {{devices: {devices}}}
tasks:
  - task: generate
    name: answers
    dataset: {{path: {folder}/data.jsonl}}
    max_new_tokens: {written}
    max_prompt_length: 1024
  - task: judge
    name: verdicts
    dataset: {{path: {folder}/data.jsonl}}
    answers: answers
    mode: simpleqa
    prompt: {{user: "{{{{ text }}}} {{{{ answer }}}}"}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--shape", type=pathlib.Path)
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    shape = arguments.shape or arguments.root / "configs/shapes/llama-3.2-1b"
    problem = gpu_busy.model_in(arguments.work / "model-1b", shape, arguments.root, 300, "cpu" if arguments.tiny else "cuda")
    if problem:
        sys.exit(f"gpu_chain.py: {problem}")
    folder = arguments.work / "chain"
    folder.mkdir(exist_ok=True)
    records, length, written = (3, 12, 3) if arguments.tiny else (768, 600, 128)
    gpu_busy.write_data(folder / "data.jsonl", records, length)
    experiment = folder / "chain.yaml"
    experiment.write_text(EXPERIMENT.format(folder=folder, model=arguments.work / "model-1b", written=written,
                                            devices="cpu" if arguments.tiny else "auto"))
    done = subprocess.run([arguments.program, "run", str(experiment), "--fresh"], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode != 0:
        print(said[-3000:])
        sys.exit(f"gpu_chain.py: `magister run` ended with {done.returncode} (texts and verdicts of one job were wanted)")
    for rate in re.findall(r"[^\n]*tokens in [\d.]+ s: [\d.]+ tokens/s[^\n]*", said):
        print(f"   {records} records, {written} new tokens: {rate.strip()}")
    for name in ("answers", "verdicts"):
        checked = subprocess.run([arguments.program, "check", str(folder / f"runs/chain/{name}.h5")], capture_output=True, text=True, check=False)
        if checked.returncode != 0:
            sys.exit(f"gpu_chain.py: {name}.h5 is not whole: {checked.stderr.strip()[-500:]}")


if __name__ == "__main__":
    main()
