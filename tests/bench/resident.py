#!/usr/bin/env python3
"""Where the resident memory of a teacher goes: prints a table by kind of mapping, of one rank and of two ranks on one host together.

usage: .deps/venv/bin/python tests/bench/resident.py [--program build/magister] [--against PROGRAM] [--model FOLDER|FILE] [--tokens 512]
                                                     [--rounds 1]
The model is random, in f32, with the shapes of SmolLM2-135M (513 MiB), unless --model names another one. One rank: `magister bench teacher`;
its peak is the kernel's (VmHWM). Two ranks: a run of 16 texts whose records are token ids; their peak is the largest sum of what each holds
(Pss: a page of several processes counts in parts) of all samples of /proc/PID/smaps. The rows of a table are the sample with the most
memory, so they add up to somewhat less than VmHWM. --against: another build, in turn with the first one.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import whole_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
EXPERIMENT = """name: resident
output: {{directory: {folder}/runs}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: teacher_logits
    dataset: {{path: {folder}/ids.jsonl, key: id, tokens: ids}}
    unit_tokens: {tokens}
"""


def make_model(folder):
    """The shapes of SmolLM2-135M, whose embeddings are its head, too."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                         max_position_embeddings=8192, tie_word_embeddings=True)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def kind_of(path, size, model):
    if "memfd:magister" in path:
        return "weights that ranks share"
    if path.startswith(str(model)):
        return "checkpoint"
    if "libtorch" in path or "libc10" in path:
        return "libtorch"
    if path.startswith("/dev/shm") or "ompi" in path or "/vader" in path or path.startswith("/dev/zero") or path.startswith("/memfd:"):
        return "MPI's shared memory"
    if ".so" in path:
        return "other libraries"
    if pathlib.PurePath(path).name.startswith("magister"):
        return "program"
    if path == "[heap]":
        return "heap"
    if not path or path.startswith("[anon"):
        return "blocks of 64 MiB and more" if size >= 64 * MIB else "smaller blocks, stacks"
    return "other"


def mapped(process, model):
    """-> {(kind, "written" or "as in its file"): bytes} of one process, of what it shares its part; {} if it has ended."""
    try:
        text = pathlib.Path(f"/proc/{process}/smaps").read_text()
    except OSError:
        return {}
    found, path, size, fields = {}, "", 0, {}

    def add():
        if not fields.get("Pss"):
            return
        kind = kind_of(path, size, model)
        is_file = kind in ("libtorch", "other libraries", "program")
        written = min(fields.get("Anonymous", 0), fields["Pss"]) if is_file else fields["Pss"]
        for how, count in (("written", written), ("as in its file", fields["Pss"] - written)):
            if count > 0:
                found[kind, how] = found.get((kind, how), 0) + count

    for line in text.splitlines():
        begin = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)$", line)
        if begin:
            add()
            path, size, fields = begin.group(3), int(begin.group(2), 16) - int(begin.group(1), 16), {}
        elif line.endswith(" kB"):
            name, count = line[:-3].split(":")
            fields[name] = 1024 * int(count)
    add()
    return found


def signal_to(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def watch(command, environment, model, processes_of):
    """-> (standard output, the sample with the most bytes, summed over the command's processes)."""
    most = {}
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=environment) as run:
        while run.poll() is None:
            begin, sample, processes = time.perf_counter(), {}, processes_of(run.pid)
            for process in processes if len(processes) > 1 else ():  # what they share moves from one to the other as they map it
                signal_to(process, signal.SIGSTOP)
            for process in processes:
                for key, count in mapped(process, model).items():
                    sample[key] = sample.get(key, 0) + count
            for process in processes if len(processes) > 1 else ():
                signal_to(process, signal.SIGCONT)
            if sum(sample.values()) > sum(most.values()):
                most = sample
            time.sleep(2 * (time.perf_counter() - begin))  # while they are looked at, they stand still
        output.seek(0)
        text = output.read()
    if run.returncode != 0:
        sys.exit(f"resident.py: {' '.join(map(str, command))} ended with {run.returncode}")
    return text, most


def one_rank(program, environment, model, tokens):
    """-> (weights' bytes, peak's bytes, sample)."""
    command = [str(program), "bench", "teacher", str(model), "--tokens", str(tokens), "--dtype", "f32", "--threads", "1", "--json"]
    text, sample = watch(command, environment, model, lambda process: [process])
    found = json.loads(text.splitlines()[-1])
    return found["weight_bytes"], found["peak_bytes"], sample


def two_ranks(program, environment, model, tokens):
    """-> (peak's bytes, sample)."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps({"id": str(i), "ids": [(i * 131 + t * 17) % 49152 for t in range(tokens)]}) for i in range(16)]
        (pathlib.Path(folder) / "ids.jsonl").write_text("\n".join(lines) + "\n")
        experiment = pathlib.Path(folder) / "resident.yaml"
        experiment.write_text(EXPERIMENT.format(folder=folder, model=model, tokens=tokens))
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(program), "run", str(experiment)]
        _, sample = watch(command, environment, model, whole_runs.children_of)
    return sum(sample.values()), sample


def table(samples):
    """samples: {name of a column: sample}."""
    keys = sorted({key for sample in samples.values() for key in sample}, key=lambda key: -max(sample.get(key, 0) for sample in samples.values()))
    text = [f"| MiB | {' | '.join(samples)} |", "|---|" + "---|" * len(samples)]
    for kind, how in keys:
        name = f"{kind}, {how}" if kind in ("libtorch", "other libraries", "program") else kind
        text.append(f"| {name} | {' | '.join(f'{sample.get((kind, how), 0) / MIB:.1f}' for sample in samples.values())} |")
    text.append(f"| all | {' | '.join(f'{sum(sample.values()) / MIB:.1f}' for sample in samples.values())} |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/magister")
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    programs = {"": arguments.program.resolve()} | ({" (against)": arguments.against.resolve()} if arguments.against else {})
    samples, ratios = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        model = (arguments.model or make_model(pathlib.Path(scratch) / "model")).resolve()
        for _ in range(arguments.rounds):
            for name, program in programs.items():
                weights, peak, samples[f"one rank{name}"] = one_rank(program, environment, model, arguments.tokens)
                together, samples[f"two ranks{name}"] = two_ranks(program, environment, model, arguments.tokens)
                ratios.setdefault(f"one rank{name}", []).append(peak / weights)
                ratios.setdefault(f"two ranks{name}", []).append(together / weights)
    print(table(samples))
    print(f"\nPeak over the weights' {weights / MIB:.1f} MiB, median of {arguments.rounds} with the least and the most:")
    for name, values in ratios.items():
        print(f"- {name}: {statistics.median(values):.3f} ({min(values):.3f} - {max(values):.3f})")


if __name__ == "__main__":
    main()
