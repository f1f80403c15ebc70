#!/usr/bin/env python3
"""The cost of sums between the GPUs of a group. `model` computes it from bytes and labels it so; `measure` runs the
same teacher job on groups of one and of two GPUs if a host has two.

usage: gpu_groups.py model [--ring GB/s] [--link GB/s] [--rate TFLOP/s]
       gpu_groups.py measure --program build/magister [--shape configs/shapes/llama-3.2-1b]
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_busy

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = (2, 4, 8)


def products_a_token(config):
    """FLOPs of a token in the layers' products; those of attention, a few per cent, are not counted."""
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    head = config.get("head_dim", width // config["num_attention_heads"])
    projections = width * (config["num_attention_heads"] * 2 + config["num_key_value_heads"] * 2) * head
    return 2 * layers * (projections + 3 * width * config["intermediate_size"])


def exposed_share(config, size, link, rate, number_bytes):
    """Seconds of sums over seconds of sums and products. A layer has two sums; a ring moves 2 (n - 1) / n of each
    through every GPU."""
    ring = 2 * (size - 1) / size * number_bytes * config["hidden_size"] * 2 * config["num_hidden_layers"]
    sums, products = ring / (link * 1e9), products_a_token(config) / size / (rate * 1e12)
    return sums / (sums + products)


def model(arguments):
    print(f"A MODEL, not a measurement: {arguments.ring:g} GB/s a direction between GPUs over `reproducible`'s eight channels and {arguments.link:g} over all that NCCL "
          f"takes, {arguments.rate:g} TFLOP/s in products, nothing overlapped.")
    print("| shape | sums travel as | " + " | ".join(f"group of {size}" for size in SIZES) + " |")
    print("|---|---|" + "---|" * len(SIZES))
    for folder in sorted((ROOT / "configs/shapes").iterdir()):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if "text_config" in config:  # with experts; products_a_token() counts none
            continue
        for words, link, number_bytes in (("fp32 (`reproducible`)", arguments.ring, 4), ("bf16 (`fast`)", arguments.link, 2)):
            shares = [exposed_share(config, size, link, arguments.rate, number_bytes) for size in SIZES]
            print(f"| {folder.name} | {words} | " + " | ".join(f"{share:.0%} of the time in sums" for share in shares) + " |")


def tokens_a_second(program, experiment, folder, ranks, group, collectives):
    changes = [f"layout.gpus_per_group={group}", f"layout.collectives={collectives}", f"name=g{group}{collectives}"]
    command = ["mpirun", "--oversubscribe", "-np", str(ranks), str(program), "run", str(experiment), *changes]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found = re.search(r"tokens in [\d.]+ s: ([\d.]+) tokens/s", done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"gpu_groups.py: `{' '.join(command)}` ended with {done.returncode} (nothing was measured): {done.stderr.strip()[-500:]}")
    return float(found.group(1))


def measure(arguments):
    program = pathlib.Path(arguments.program).resolve()
    gpus = json.loads(subprocess.run([program, "doctor", "--json"], capture_output=True, text=True, check=True).stdout)["ranks"][0]["gpus"]
    if len(gpus) < 2:
        print(f"skipped: {len(gpus)} GPU (a group of two needs two)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        problem = gpu_busy.model_in(folder / "model", arguments.shape, ROOT, 600)
        if problem:
            sys.exit(f"gpu_groups.py: {problem}")
        gpu_busy.write_data(folder / "data.jsonl")
        experiment = folder / "groups.yaml"
        experiment.write_text(gpu_busy.EXPERIMENT.format(folder=folder, model=folder / "model", devices="auto"))
        alone = tokens_a_second(program, experiment, folder, 1, 1, "reproducible")
        copies = tokens_a_second(program, experiment, folder, 2, 1, "reproducible")
        print(f"two copies on two GPUs over one: {copies / alone:.3f}")
        for collectives in ("reproducible", "fast"):
            pair = tokens_a_second(program, experiment, folder, 2, 2, collectives)
            print(f"a group of two over one GPU, {collectives}: {pair / alone:.3f}, {1 - pair / (2 * alone):.1%} of the time not in products")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("model", "measure"))
    parser.add_argument("--ring", type=float, default=170.0, help="a ring of eight channels: 150 to 190 by arithmetic")
    parser.add_argument("--link", type=float, default=400.0)
    parser.add_argument("--rate", type=float, default=600.0)
    parser.add_argument("--program", default=ROOT / "build/magister")
    parser.add_argument("--shape", default=ROOT / "configs/shapes/llama-3.2-1b")
    arguments = parser.parse_args()
    return model(arguments) if arguments.what == "model" else measure(arguments)


if __name__ == "__main__":
    sys.exit(main())
