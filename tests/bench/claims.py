"""Measures figures again that the docs give outside the big tables: the cost of quantising SmolLM2
(configs/keys/model.md, src/README.md) and of 8-bit pages of its keys and values, bf16 against fp32 products of oneDNN and MKL, and the speed of SHA-256 on
this CPU.

usage: tests/bench/claims.py [perplexity] [pages] [products] [sha256]    (default: all four; twenty minutes on a quiet core)
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = 4096
EXPERIMENT = """name: loss
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32, {keys}, quantization_loss: {tokens}}}
layout: {{devices: cpu}}
tasks:
  - task: teacher_logits
    dataset: {{path: {root}/configs/data/quickstart.jsonl, key: id}}
    name: teacher
"""


def perplexity():
    """Prints the relative change of perplexity on the quickstart's first 4096 tokens, for codes made here and the
    file's."""
    for kind, group in (("int4", "auto"), ("int8", 32), ("int8", 64), ("int8", 128), ("int4", 32)):
        keys = f"quantization: {kind}" if group == "auto" else f"quantization: {kind}, quantization_group: {group}"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "loss.yaml"
            path.write_text(EXPERIMENT.format(runs=folder, model=MODEL, keys=keys, tokens=TOKENS, root=ROOT))
            subprocess.run([ROOT / "build/magister", "run", path], check=True, capture_output=True)
            found = json.loads((pathlib.Path(folder) / "loss/teacher.quantization.json").read_text())
        change = found["perplexity_quantized"] / found["perplexity_unquantized"] - 1
        print(f"{kind}, groups {group}: {change:+.3%} of perplexity, {found['tokens']} tokens", flush=True)


def pages():
    """The same for model.kv_cache: fp8 and 512 tokens, with the GPU's code on the host: the prompts of a generation."""
    experiment = EXPERIMENT.replace("task: teacher_logits", "task: generate\n    max_new_tokens: 1").replace("dtype: f32", "dtype: bf16")
    experiment = experiment.replace("key: id", "key: id, limit: 12")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "loss.yaml"
        path.write_text(experiment.format(runs=folder, model=MODEL, keys="kv_cache: fp8", tokens=512, root=ROOT))
        subprocess.run([ROOT / "build/magister", "run", path], check=True, capture_output=True, env={**os.environ, "MAGISTER_GPU_CODE_ON_HOST": "1"})
        found = json.loads((pathlib.Path(folder) / "loss/teacher.quantization.json").read_text())
    change = found["perplexity_quantized"] / found["perplexity_unquantized"] - 1
    print(f"kv_cache fp8: {change:+.3%} of perplexity, mean KL {found['mean_kl_nats']:.2g} nat, {found['tokens']} tokens", flush=True)


def products():
    """Multiplies 2048 x 2048 x 2048 on one thread; the best of five runs."""
    import torch
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(2, 2048, 2048).to(dtype)
        torch.mm(a, b)
        best = min(_seconds(lambda: torch.mm(a, b)) for _ in range(5))
        print(f"torch.mm {dtype}: {2 * 2048 ** 3 / best / 1e9:.0f} GFLOP/s", flush=True)


def sha256():
    """Times OpenSSL's SHA-256, which magister calls, on 256 MiB."""
    data = os.urandom(1 << 28)
    best = min(_seconds(lambda: hashlib.sha256(data).digest()) for _ in range(4))
    print(f"sha256: {len(data) / best / 1e9:.2f} GB/s", flush=True)


def _seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    known = {"perplexity": perplexity, "pages": pages, "products": products, "sha256": sha256}
    for name in sys.argv[1:] or known:
        if name not in known:
            sys.exit(f"unknown figure {name}; known: {', '.join(known)}")
        known[name]()
