#!/usr/bin/env python3
"""Hugging Face transformers on a GPU as a peer: a model with a config.json's shape and random weights, made on the
device.

usage: hf_gpu.py teacher FOLDER [--tokens 16384] [--sequences 8] [--top-k 64] [--repeats 3] [--chunk 1024]
       hf_gpu.py save FOLDER OUT --root ROOT     writes a model folder that magister reads, for whole runs
`teacher`: bf16, sdpa attention, log_softmax in fp32 over the whole vocabulary, top k, the kept numbers copied to the
host, as `magister bench teacher` does with the same batch. It is measured twice: with all logits at once, and with the
head and what follows in chunks of rows (chunked_tokens_per_second), as an expert would do it. Prints one JSON object.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_busy


def make_model(folder, device):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(str(folder))
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.eval()


def teacher(arguments):
    import torch
    model = make_model(arguments.folder, arguments.device)
    length = arguments.tokens // arguments.sequences
    ids = torch.arange(arguments.sequences * length, device=arguments.device).view(arguments.sequences, length)
    ids = (ids * 2654435761 + 97) % model.config.vocab_size

    def whole():
        kept = torch.log_softmax(model(ids, use_cache=False).logits.float(), -1).topk(arguments.top_k)
        return kept.values.cpu(), kept.indices.cpu()  # waits for the device

    def chunked():
        hidden = model.model(ids, use_cache=False).last_hidden_state.flatten(0, 1)
        kept = [torch.log_softmax(model.lm_head(rows).float(), -1).topk(arguments.top_k) for rows in hidden.split(arguments.chunk)]
        return torch.cat([part.values for part in kept]).cpu(), torch.cat([part.indices for part in kept]).cpu()

    def tokens_per_second(run):
        seconds = []
        for repeat in range(arguments.repeats + 1):  # the first run warms up
            begin = time.perf_counter()
            run()
            if repeat > 0:
                seconds.append(time.perf_counter() - begin)
        return arguments.sequences * length / statistics.median(seconds)

    def peak():
        return torch.cuda.max_memory_allocated() if arguments.device.startswith("cuda") else 0

    result = {"bench": "hf_teacher", "tokens": arguments.sequences * length, "sequences": arguments.sequences, "chunk": arguments.chunk}
    with torch.inference_mode():
        result["chunked_tokens_per_second"] = tokens_per_second(chunked)
        result["chunked_peak_bytes"] = peak()
        try:
            result["tokens_per_second"] = tokens_per_second(whole)
            result["peak_bytes"] = peak()
        except torch.OutOfMemoryError as problem:
            result["tokens_per_second"] = 0  # only the chunked way works
            result["whole"] = str(problem)[:200]
    print(json.dumps(result))


def padded(tokenizer, size):
    """The tokenizer with as many entries as the model has logits, since random weights choose any of them, and each
    must have a text."""
    known = json.loads(pathlib.Path(tokenizer).read_text(encoding="utf-8"))
    vocabulary = known["model"]["vocab"]
    taken = set(vocabulary.values()) | {token["id"] for token in known.get("added_tokens", ())}
    for index in range(size):
        if index not in taken:
            vocabulary[f"word{index}"] = index
    return json.dumps(known)


def save(arguments):
    folder = pathlib.Path(arguments.out)
    make_model(arguments.folder, arguments.device).save_pretrained(folder, safe_serialization=True)
    size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    tokenizer = gpu_busy.tokenizer_in(pathlib.Path(arguments.root))
    (folder / "tokenizer.json").write_text(padded(tokenizer, size), encoding="utf-8")
    print(json.dumps({"bench": "hf_save", "bytes": sum(path.stat().st_size for path in folder.iterdir())}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("teacher", "save"))
    parser.add_argument("folder")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=1024)
    arguments = parser.parse_args()
    teacher(arguments) if arguments.what == "teacher" else save(arguments)


if __name__ == "__main__":
    main()
