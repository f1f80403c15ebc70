#!/usr/bin/env python3
"""Hugging Face transformers on a GPU as a peer: a model of a config.json's shape with random weights, made on the device.

usage: hf_gpu.py teacher FOLDER [--tokens 16384] [--sequences 8] [--top-k 64] [--repeats 3]
       hf_gpu.py save FOLDER OUT --tokenizer tokenizer.json     a model folder that magister reads, for whole runs
`teacher`: bf16, sdpa attention, log_softmax in fp32 over the whole vocabulary, top k, the kept numbers on the host: what
`magister bench teacher` does with the same batch. Prints one JSON object.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import time


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

    def run():
        logits = model(ids, use_cache=False).logits
        kept = torch.log_softmax(logits.float(), -1).topk(arguments.top_k)
        return kept.values.cpu(), kept.indices.cpu()  # waits for the device

    seconds = []
    with torch.inference_mode():
        for repeat in range(arguments.repeats + 1):  # the first warms up
            begin = time.perf_counter()
            run()
            if repeat > 0:
                seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    peak = torch.cuda.max_memory_allocated() if arguments.device.startswith("cuda") else 0
    print(json.dumps({"bench": "hf_teacher", "tokens_per_second": arguments.sequences * length / median, "seconds": median,
                      "tokens": arguments.sequences * length, "sequences": arguments.sequences, "peak_bytes": peak}))


def save(arguments):
    folder = pathlib.Path(arguments.out)
    make_model(arguments.folder, arguments.device).save_pretrained(folder, safe_serialization=True)
    shutil.copy(arguments.tokenizer, folder / "tokenizer.json")
    print(json.dumps({"bench": "hf_save", "bytes": sum(path.stat().st_size for path in folder.iterdir())}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("teacher", "save"))
    parser.add_argument("folder")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--tokenizer")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    teacher(arguments) if arguments.what == "teacher" else save(arguments)


if __name__ == "__main__":
    main()
