"""Hugging Face transformers as a peer: one process on the pinned core that loads the model once and then answers
requests.

Reads "WHAT TOKENS" per line from standard input and answers with one JSON object per line. fp32, sdpa attention, one
thread.
"""
import json
import os
import pathlib
import subprocess
import sys
import time


class Worker:
    """The client."""

    def __init__(self, model, core):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, __file__, str(model)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        self.ask("ready")

    def ask(self, what, tokens=0):
        self.process.stdin.write(f"{what} {tokens}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the transformers process ended with {self.process.wait()}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.stdin.close()
        self.process.wait()


def median_seconds(body, repeats=3):
    body()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        body()
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[repeats // 2]


def answer(model, torch, what, tokens):
    if what == "sgemm":
        a, b, out = torch.rand(2048, 2048), torch.rand(2048, 2048), torch.empty(2048, 2048)
        return {"gflops": 2e-9 * 2048 ** 3 / median_seconds(lambda: torch.mm(a, b, out=out), 5)}
    if what == "generate":  # 32 texts at once, prompts of 16 tokens, `tokens` new ones each
        prompts = torch.stack([(torch.arange(16) * 17 + 131 * i) % model.config.vocab_size for i in range(32)])
        settings = {"attention_mask": torch.ones_like(prompts), "do_sample": False, "max_new_tokens": tokens, "min_new_tokens": tokens}
        return {"tokens_per_second": 32 * tokens / median_seconds(lambda: model.generate(prompts, **settings), 1)}
    if what not in ("prefill", "teacher"):
        return {"ready": True}
    ids = (torch.arange(tokens)[None] * 2654435761 + 97) % model.config.vocab_size

    def prefill():
        model(ids, logits_to_keep=1, use_cache=False)

    def teacher():
        logprobs = torch.log_softmax(model(ids, use_cache=False).logits[0], -1)
        logprobs.topk(64)
    return {"tokens_per_second": tokens / median_seconds(prefill if what == "prefill" else teacher)}


def main():
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    path = pathlib.Path(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="sdpa").eval()
    with torch.inference_mode():
        for line in sys.stdin:
            what, tokens = line.split()
            print(json.dumps(answer(model, torch, what, int(tokens))), flush=True)


if __name__ == "__main__":
    main()
