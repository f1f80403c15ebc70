#!/usr/bin/env python3
"""Compares magister's speed with the machine's limit and with other programs: prints the table of
tests/bench/README.md.

usage: .deps/venv/bin/python tests/bench/peers.py [--program build/magister] [--core 0] [--rounds 5] [--tokens 512]
                                                  [--no-llama] [--avx2] [--only FIGURE ...]
Everything runs in turn, A B C A B C ..., on one pinned core. Each ratio is of one round, and the median over rounds is
printed with its spread: runs of one round have the same load of the machine, runs of different rounds do not. Figures are
printed to standard error as they are measured and saved after every round. A part that fails is a row that says so.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import hf_worker
import llama_cpp
import whole_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"


# Every program works as on a CPU without AVX-512 and AMX; caches and clocks stay those of this CPU.
AVX2_ALONE = {"MAGISTER_CPU_KERNELS": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def cpu_words():
    """The CPU's features that may be used, which decide the figures; its name is not reported."""
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE).group(1).split()
    wanted = ("avx2", "fma")
    if os.environ.get("MAGISTER_CPU_KERNELS") != "avx2":
        wanted += ("avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16")
    return [flag for flag in wanted if flag in flags]


def pinned(core, command, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    result = subprocess.run(["taskset", "-c", str(core), *map(str, command)], capture_output=True, text=True, check=False,
                            env=environment, **options)
    if result.returncode != 0:
        raise RuntimeError(f"{command}: {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
    return result.stdout, result.stderr


# Weights for decoding: the keys of magister's figures, and the format of the same number of bits in llama.cpp.
DECODE = {"f32": ("f32",), "bf16": ("bf16",), "f16": ("f16",), "int8": ("f16", ("--format", "int8", "--group", 32)),
          "int4": ("f16", ("--format", "int4", "--group", 32))}
LLAMA_DECODE = {"f16": "F16", "int8": "Q8_0", "int4": "Q4_1"}


class Magister:
    def __init__(self, program, core):
        self.program, self.core = program, core

    def bench(self, what, tokens=512, dtype="f32", extra=(), model=MODEL):
        model = [] if what == "sgemm" else [model, "--tokens", tokens, "--dtype", dtype]
        output, _ = pinned(self.core, [self.program, "bench", what, *model, "--threads", 1, "--json", *extra])
        return json.loads(output.splitlines()[-1])

    def product(self, kind):
        """Weights read per second by a product of one row, over plain reading of as much memory."""
        output, _ = pinned(self.core, [self.program, "bench", "product", "--format", kind, "--rows", 1, "--threads", 1, "--json"])
        return json.loads(output.splitlines()[-1])["ratio"]


def parts_of_round(ours, hf, llama, tokens, bf16):
    """-> [(names of figures, function that gives them as {name: figure})], one after the other. Names ending in _gflops are 1e9
    FLOP/s, the others tokens or rows per second."""
    def of_units(count):
        prefill, teacher = ours.bench("prefill", count), ours.bench("teacher", count)
        return {f"prefill_{count}": prefill["tokens_per_second"], f"prefill_{count}_gflops": prefill["gflops"],
                f"teacher_{count}": teacher["tokens_per_second"], f"teacher_{count}_gflops": teacher["gflops"],
                "peak_over_weights": teacher["peak_bytes"] / teacher["weight_bytes"]}

    def speed(name, *arguments, model=MODEL):
        return [name], lambda: {name: ours.bench(*arguments, model=model)["tokens_per_second"]}

    def of_peer(name, what, count):
        return [name], lambda: {name: hf.ask(what, count)["tokens_per_second"]}

    parts = [(["sgemm_gflops"], lambda: {"sgemm_gflops": max(ours.bench("sgemm")["gflops"], hf.ask("sgemm")["gflops"])})]
    for count in (tokens, 2048):
        names = [f"{what}_{count}{unit}" for what in ("prefill", "teacher") for unit in ("", "_gflops")]
        parts.append(([*names, "peak_over_weights"], lambda count=count: of_units(count)))
    if bf16:
        parts.append((["prefill_bf16_gflops"], lambda: {"prefill_bf16_gflops": ours.bench("prefill", tokens, "bf16")["gflops"]}))
    for kind, extra in DECODE.items():
        if kind != "f16":
            parts.append(([f"read_{kind}"], lambda kind=kind: {f"read_{kind}": ours.product(kind)}))
        # int8: llama.cpp's own Q8_0 file, whose codes are kept, as int4 keeps those of the Q4_1 file.
        model = llama.models["Q8_0"] if llama and kind == "int8" else MODEL
        parts.append(speed(f"decode_{kind}", "decode", 64, *extra, model=model))
    parts.append(speed("decode_f32_32", "decode", 64, "f32", ("--sequences", 32)))
    parts.append((["prefix"], lambda: {"prefix": ours.bench("prefix", 512, "f32", ("--sequences", 16, "--repeats", 1))["ratio"]}))
    parts += [of_peer("hf_generate_32", "generate", 32), of_peer("hf_prefill", "prefill", tokens), of_peer("hf_teacher", "teacher", tokens)]
    if llama:
        parts += [([f"llama_{kind}"], lambda kind=kind: {f"llama_{kind}": llama.bench(kind, tokens)}) for kind in llama_cpp.KINDS]
        parts.append((["llama_kl"], lambda: {"llama_kl": llama.scored_rows()}))
        parts += [([f"llama_tg_{kind}"], lambda kind=kind: {f"llama_tg_{kind}": llama.decode(kind, 64)}) for kind in LLAMA_DECODE.values()]
    return parts


def measure_round(parts, show):
    """-> {name: figure}, and under "missing" {name: why there is no figure}. A part that fails does not end the round. show: called
    with a line of text after every part."""
    row = {"missing": {}}
    for names, measure in parts:
        try:
            found = measure()
        except Exception as error:  # whatever a part dies of, the others are measured
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            row["missing"] |= {name: reason for name in names}
            show(f"{names[0]}: not measured: {reason}")
            continue
        row |= found
        show(", ".join(f"{name} {value:.4g}" for name, value in found.items()))
    return row


def ratio(rows, above, below):
    """Median over rounds of above / below, with the smallest and the largest; if below is several, the best one counts. Rounds that
    lack a figure are left out; if all do, the reason as text."""
    below = [below] if isinstance(below, str) else below
    whole = [row for row in rows if all(name in row for name in (above, *below))]
    values = [row[above] / max(row[name] for name in below) for row in whole]
    if values:
        return statistics.median(values), min(values), max(values)
    return next((row["missing"][name] for row in rows for name in (above, *below) if name in row["missing"]), "no round was measured")


def table(rows, runs, tokens, bf16, llama):
    """-> lines of (name, floor, aim, (median, least, most), or the reason why it was not measured)."""
    peers = ["hf_prefill"] + ([f"llama_{kind}" for kind in llama_cpp.KINDS] if llama else [])
    lines = [(f"prefill, {tokens} tokens, f32: FLOP/s over the best sgemm", 0.85, 0.95, ratio(rows, f"prefill_{tokens}_gflops", "sgemm_gflops")),
             ("prefill, 2048 tokens, f32: FLOP/s over the best sgemm", 0.85, 0.95, ratio(rows, "prefill_2048_gflops", "sgemm_gflops"))]
    if bf16:
        lines.append((f"prefill, {tokens} tokens, bf16: FLOP/s over the best fp32 sgemm", 1.2, None, ratio(rows, "prefill_bf16_gflops", "sgemm_gflops")))
    lines.append((f"prefill, {tokens} tokens: tokens/s over the best of {', '.join(peers)}", 1.0, 1.15, ratio(rows, f"prefill_{tokens}", peers)))
    for peer in peers:
        lines.append((f"- over {peer}", None, None, ratio(rows, f"prefill_{tokens}", peer)))
    for count in (tokens, 2048):
        lines.append((f"teacher logits, top 64, {count} tokens: FLOP/s over own prefill's", 0.90, 0.95, ratio(rows, f"teacher_{count}_gflops", f"prefill_{count}_gflops")))
    lines.append(("teacher tokens/s over transformers + log_softmax + topk", 1.2, 1.35, ratio(rows, f"teacher_{tokens}", "hf_teacher")))
    if llama:
        lines.append(("scored rows/s over llama.cpp --kl-divergence-base, F32", 2.8, 3.3, ratio(rows, f"teacher_{tokens}", "llama_kl")))
    lines.append(("peak memory over the weights' bytes", 1.2, 1.12, ratio([{**row, "one": 1.0} for row in rows], "peak_over_weights", "one")))
    single = [{**row, "one": 1.0} for row in rows]
    for kind, floor, aim in (("f32", 0.80, 0.90), ("bf16", 0.80, 0.90), ("int8", 0.65, 0.80), ("int4", 0.45, 0.65)):
        lines.append((f"decode product, one row, {kind}: weights read a second over plain reading", floor, aim, ratio(single, f"read_{kind}", "one")))
    for kind, theirs in LLAMA_DECODE.items() if llama else ():
        lines.append((f"decode tokens/s, one text, {kind}, over llama.cpp tg {theirs}", 1.0, 1.2, ratio(rows, f"decode_{kind}", f"llama_tg_{theirs}")))
    lines.append(("32 texts at once over one, f32", 6, 12, ratio(rows, "decode_f32_32", "decode_f32")))
    lines.append(("32 texts at once over transformers generate, f32", 2, 5, ratio(rows, "decode_f32_32", "hf_generate_32")))
    lines.append(("16 prompts with 80 % in common: sharing over not", 3, 4.5, ratio(single, "prefix", "one")))
    return lines + runs


def markdown(lines):
    text = ["| what | floor | aim | measured | spread |", "|---|---|---|---|---|"]
    for what, floor, aim, measured in lines:
        cells = ["" if value is None else f"{value:.2f}" for value in (floor, aim)]
        if isinstance(measured, str):
            text.append(f"| {what} | {cells[0]} | {cells[1]} | not measured: {measured.replace('|', '/')} | |")
        else:
            median, least, most = measured
            text.append(f"| {what} | {cells[0]} | {cells[1]} | {median:.3g} | {least:.3g} - {most:.3g} |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/magister")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--no-llama", action="store_true", help="without llama.cpp, whose build takes about 15 minutes on two cores")
    parser.add_argument("--avx2", action="store_true", help="all programs without AVX-512 and AMX, llama.cpp as a build of its own")
    parser.add_argument("--only", nargs="*", default=[], help="these figures alone, by their names in the file of --save")
    parser.add_argument("--no-runs", action="store_true", help="without the whole runs (ranks, writing, start, resume)")
    parser.add_argument("--save", type=pathlib.Path, default=ROOT / ".deps/bench.json", help="all single figures")
    arguments = parser.parse_args()
    if arguments.avx2:
        os.environ.update(AVX2_ALONE)
    folder = ROOT / (".deps/llama.cpp-avx2" if arguments.avx2 else ".deps/llama.cpp")
    llama = None if arguments.no_llama else llama_cpp.LlamaCpp(folder, MODEL, arguments.core, pinned, arguments.avx2)
    features = cpu_words()
    bf16 = "avx512_bf16" in features or "amx_bf16" in features
    ours = Magister(arguments.program.resolve(), arguments.core)
    rows, runs = [], []

    def save():
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text(json.dumps({"cpu": features, "rounds": rows, "runs": runs}, indent=1))

    def show(text):
        print(text, file=sys.stderr, flush=True)

    with hf_worker.Worker(MODEL, arguments.core) as hf:
        parts = [part for part in parts_of_round(ours, hf, llama, arguments.tokens, bf16) if not arguments.only or set(part[0]) & set(arguments.only)]
        for index in range(arguments.rounds):
            rows.append(measure_round(parts, lambda text: show(f"round {index + 1}: {text}")))
            save()
    if not arguments.no_runs:
        for lines in whole_runs.measure(arguments.program.resolve(), arguments.rounds):
            runs += lines
            show(markdown(lines))
            save()
    names = sorted({name for row in rows for name in row} - {"missing"})
    medians = {name: statistics.median(row[name] for row in rows if name in row) for name in names}
    print(f"CPU features: {' '.join(features)}; {os.cpu_count()} cores; one core pinned; {arguments.rounds} rounds\n")
    if not arguments.only:
        print(markdown(table(rows, runs, arguments.tokens, bf16, llama)))
    print("\nMedians: " + ", ".join(f"{name} {value:.4g}" for name, value in medians.items()))


if __name__ == "__main__":
    main()
