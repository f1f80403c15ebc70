#!/usr/bin/env python3
"""Mixtures of experts, or latent attention, beside transformers: prefill and decoding of a random model.

usage: .deps/venv/bin/python tests/bench/moe_speed.py [--kind experts|latent] [--program build/magister] [--core 0] [--rounds 5] [--layers 2]
                                                      [--dtype f32|bf16] [--against PROGRAM]
experts: Qwen3-MoE with 64 experts, 8 of them for a token (hidden 2048, experts of 768, as Qwen3-30B-A3B has them), with few layers and a
small vocabulary: 1.3 GB a layer in f32. latent: DeepSeek-V3 with dense MLPs (hidden 2048, 16 heads, a latent of 512 + 64), which decodes
after contexts of 1,024 and 4,096 tokens; both programs begin with a cache that is full of numbers without a meaning.
Both programs run in turn on one pinned core, one thread each, and a ratio is of one round; the table has the median over the rounds with
the smallest and the largest. transformers computes experts, or attention, in every way that it has on a CPU, and its fastest counts.
--against: another build of magister, for what a change costs.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import peers

WAYS = {"experts": ("eager", "batched_mm", "grouped_mm"), "latent": ("eager", "sdpa")}
# name: what, tokens (decode_after: of the context), sequences
FIGURES = {
    "experts": {"prefill, 512 tokens": ("prefill", 512, 1), "prefill, 64 tokens": ("prefill", 64, 1), "decode, one text": ("decode", 32, 1),
                "decode, 8 texts": ("decode", 32, 8)},
    "latent": {f"decode after {context:,} tokens, {name}": ("decode_after", context, sequences) for context in (1024, 4096)
               for name, sequences in (("one text", 1), ("8 texts", 8))},
}


def make_latent_model(folder, layers):
    import torch
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
    torch.manual_seed(0)
    config = DeepseekV3Config(vocab_size=8192, hidden_size=2048, intermediate_size=4096, num_hidden_layers=layers, num_attention_heads=16,
                              num_key_value_heads=16, q_lora_rank=768, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
                              first_k_dense_replace=layers, max_position_embeddings=8192, tie_word_embeddings=False)
    DeepseekV3ForCausalLM(config).save_pretrained(folder)


def make_model(folder, layers):
    """A folder with random weights; every expert is chosen about as often as the others."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
    torch.manual_seed(0)
    config = Qwen3MoeConfig(vocab_size=8192, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=layers,
                            num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=64, num_experts_per_tok=8, norm_topk_prob=True,
                            decoder_sparse_step=1, mlp_only_layers=[], max_position_embeddings=4096, tie_word_embeddings=False)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)


def worker(folder, kind, way, dtype):
    """Answers lines of "WHAT TOKENS SEQUENCES" with tokens a second, by one way of transformers."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache
    torch.set_num_threads(1)
    ways = {"attn_implementation": way} if kind == "latent" else {"attn_implementation": "sdpa", "experts_implementation": way}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **ways).eval()

    def prefill(tokens):
        ids = (torch.arange(tokens)[None] * 2654435761 + 97) % model.config.vocab_size
        model(ids, logits_to_keep=1, use_cache=False)

    def decode(tokens, sequences):
        """Seconds of the passes after the prompts of 16 tokens."""
        ids = torch.stack([(torch.arange(16) * 17 + 131 * i) % model.config.vocab_size for i in range(sequences)])
        out = model(ids, use_cache=True, logits_to_keep=1)
        start = time.perf_counter()
        for _ in range(tokens - 1):
            out = model(out.logits[:, -1].argmax(-1, keepdim=True), past_key_values=out.past_key_values, use_cache=True)
        return time.perf_counter() - start

    def decode_after(context, sequences):
        """Median seconds of a pass of one row of each text."""
        cache, config, seconds = DynamicCache(config=model.config), model.config, []
        for layer in range(config.num_hidden_layers):
            cache.update(*(torch.randn(sequences, 1, context, width, dtype=model.dtype) for width in (config.kv_lora_rank, config.qk_rope_head_dim)), layer)
        ids = torch.arange(sequences)[:, None] * 131 % config.vocab_size
        for _ in range(4):
            start = time.perf_counter()
            out = model(ids, past_key_values=cache, use_cache=True)
            seconds.append(time.perf_counter() - start)
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
        return statistics.median(seconds[1:])

    with torch.inference_mode():
        for line in sys.stdin:
            what, tokens, sequences = line.split()[0], *map(int, line.split()[1:])
            if what == "prefill":
                prefill(tokens)
                start = time.perf_counter()
                prefill(tokens)
                speed = tokens / (time.perf_counter() - start)
            elif what == "decode_after":
                speed = sequences / decode_after(tokens, sequences)
            else:
                speed = (tokens - 1) * sequences / decode(tokens, sequences)
            print(json.dumps(speed), flush=True)


class Transformers:
    def __init__(self, folder, kind, way, dtype, core):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, __file__, "--worker", str(folder), kind, way, dtype], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)

    def speed(self, what, tokens, sequences):
        """None: this way does not run here."""
        try:
            self.process.stdin.write(f"{what} {tokens} {sequences}\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline() or "null")
        except BrokenPipeError:
            return None

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it ended where this way does not run
        self.process.wait()


def bench(program, figure, dtype, folder):
    what, tokens, sequences = figure
    extra = ("--repeats", 3) if what == "prefill" else ("--sequences", sequences)
    if what == "decode_after":
        what, tokens, extra = "decode", 8, (*extra, "--past", tokens)
    return program.bench(what, tokens, dtype, extra, model=folder)["tokens_per_second"]


def one_round(ours, folder, kind, dtype, core):
    """-> {figure: {program: tokens a second}}; one process is in memory at a time."""
    row = {name: {} for name in FIGURES[kind]}
    for way in WAYS[kind]:
        peer = Transformers(folder, kind, way, {"f32": "float32", "bf16": "bfloat16"}[dtype], core)
        for name, figure in FIGURES[kind].items():
            # batched_mm copies the weights of every token's experts: 77 GB for 512 tokens.
            row[name][way] = None if (way, figure[0]) == ("batched_mm", "prefill") else peer.speed(*figure)
        peer.close()
    for label, program in ours.items():
        for name, figure in FIGURES[kind].items():
            row[name][label] = bench(program, figure, dtype, folder)
    return row


def report(rows, kind, ours):
    print("| what | magister tokens/s | transformers, its fastest | over it | spread |\n|---|---|---|---|---|")
    for name in FIGURES[kind]:
        best = [max((row[name][way], way) for way in WAYS[kind] if row[name][way]) for row in rows]
        ratios = [row[name]["magister"] / speed for row, (speed, _) in zip(rows, best)]
        print(f"| {name} | {statistics.median(row[name]['magister'] for row in rows):.4g} | {statistics.median(speed for speed, _ in best):.4g} "
              f"({best[-1][1]}) | {statistics.median(ratios):.2f} | {min(ratios):.2f} - {max(ratios):.2f} |")
    if "against" in ours:
        for name in FIGURES[kind]:
            ratios = [row[name]["magister"] / row[name]["against"] for row in rows]
            print(f"{name}: {statistics.median(ratios):.3f} of the other build ({min(ratios):.3f} - {max(ratios):.3f})")


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:6])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(FIGURES), default="experts")
    parser.add_argument("--program", type=pathlib.Path, default=peers.ROOT / "build/magister")
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--model", type=pathlib.Path, help="a folder that an earlier run has made, or where the model is to be kept")
    arguments = parser.parse_args()
    programs = {"magister": arguments.program} | ({"against": arguments.against} if arguments.against else {})
    ours = {label: peers.Magister(path.resolve(), arguments.core) for label, path in programs.items()}
    with tempfile.TemporaryDirectory(prefix="magister_moe_") as scratch:
        folder = arguments.model or pathlib.Path(scratch)
        if not (folder / "config.json").exists():
            (make_latent_model if arguments.kind == "latent" else make_model)(folder, arguments.layers)
        rows = []
        for index in range(arguments.rounds):
            rows.append(one_round(ours, folder, arguments.kind, arguments.dtype, arguments.core))
            print(f"round {index + 1}: {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
    print(f"CPU features: {' '.join(peers.cpu_words())}; one core pinned; {arguments.dtype}; {arguments.rounds} rounds\n")
    report(rows, arguments.kind, ours)


if __name__ == "__main__":
    main()
