#!/usr/bin/env python3
"""Speed of guided texts, of scores and of rollouts, in turn on one pinned core. Each ratio is of one round; the
table has the median over the rounds with the smallest and the largest.

- guided step: SmolLM2-135M writes 32 texts of 32 tokens at once with and without a value model of 10 million parameters
(random weights) and 20 candidates per token; the bound is the run without a guide plus the value model's own passes, by
the guided run's clock.
- scores by a reward model of SmolLM2's shape (random head), in batches of a token budget, against transformers: two
texts per call, padded, as the seed's scorer has them (a prompt with two answers, or with eight in four calls: 32 or 8
prompts of 64 to 256 tokens, answers of 16 to 64), and its text-classification pipeline with a batch of 32 (64 texts of
16 to 300 tokens that have nothing in common).
- rollouts: 4 prompts of 256 tokens, eight cuts, four continuations each of at most 32 tokens; with and without shared
prefixes.

usage: .deps/venv/bin/python tests/bench/guide_table.py [--rounds 3] [--core 0] [--only guided|score|rollout]
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GGUF = ROOT / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
PROGRAM = os.environ.get("MAGISTER", str(ROOT / "build/magister"))
LIMITS = {"guided step over (reference step + value step)": (0.74, 0.9), "scores in token budgets over two texts a call": (2, 3), "the same, eight answers a prompt": (2, 3), "the same, texts with nothing in common": (None, None),
          "scores over transformers' pipeline, batch 32": (1.2, 1.5), "rollouts with shared prefixes over without": (1.5, 2.0)}


def make_models(folder):
    """-> tokenizer. Makes a value model of 10 million parameters (without its embeddings), and a reward model with
    SmolLM2's weights and a random head."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(str(GGUF.parent), gguf_file=GGUF.name)
    reference = AutoModelForCausalLM.from_pretrained(str(GGUF.parent), gguf_file=GGUF.name, dtype=torch.float32)
    shape = {key: value for key, value in reference.config.to_dict().items() if key not in ("quantization_config", "architectures", "dtype", "torch_dtype", "id2label", "label2id")}
    plain = LlamaForCausalLM(LlamaConfig(**shape))
    plain.load_state_dict(reference.state_dict())
    shape.update(num_labels=1, pad_token_id=reference.config.eos_token_id)
    reward = LlamaForSequenceClassification(LlamaConfig(**shape))
    reward.model.load_state_dict(reference.model.state_dict())
    small = {**shape, "hidden_size": 320, "intermediate_size": 864, "num_hidden_layers": 8, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 64}
    for name, model in (("reference", plain), ("reward", reward), ("value", LlamaForSequenceClassification(LlamaConfig(**small)))):
        model.float().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return tokenizer


def write_records(folder, tokenizer):
    words = "".join(json.loads(line)["text"] + "\n" for line in (ROOT / "configs/data/quickstart.jsonl").read_text(encoding="utf-8").splitlines())
    ids, source = tokenizer(words)["input_ids"], random.Random(1)

    def text(length):
        begin = source.randrange(len(ids) - length)
        return tokenizer.decode(ids[begin:begin + length])
    for name, lengths in (("texts", [source.randint(16, 300) for _ in range(64)]), ("prompts", [64] * 32), ("long", [256] * 4)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text(length), "answer": "7"}) + "\n" for length in lengths), encoding="utf-8")


    for name, prompts, answers in (("pairs", 32, 2), ("eights", 8, 8)):
        lines = []
        for _ in range(prompts):
            prompt = text(source.randint(64, 256))
            lines += [prompt + text(source.randint(16, 64)) for _ in range(answers)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")


class Magister:
    def __init__(self, folder, core):
        self.folder, self.core, self.runs = folder, core, 0

    def phases(self, task):
        """-> {phase: seconds} of a run of one task."""
        self.runs += 1
        name = f"run-{self.runs}"
        path = self.folder / f"{name}.yaml"
        path.write_text(f"name: {name}\noutput: {{directory: {self.folder / 'runs'}}}\nlayout: {{devices: cpu}}\ntasks:\n  - {json.dumps(task)}\n")
        done = subprocess.run(["taskset", "-c", str(self.core), PROGRAM, "run", str(path)], capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(done.stderr[-3000:])
        events = [json.loads(line) for line in (self.folder / "runs" / name / "run.jsonl").read_text().splitlines()]
        return {row["phase"]: row["max"] for event in events if event["event"] == "phases" for row in event["phases"]}

    def guided(self):
        task = {"task": "generate", "model": {"path": str(self.folder / "reference"), "dtype": "f32"}, "dataset": {"path": str(self.folder / "prompts.jsonl")}, "max_prompt_length": 128,
                "max_new_tokens": 32, "ignore_eos": True, "temperature": 1.0, "max_sequences": 32}
        plain = self.phases(task)
        guided = self.phases({**task, "guide": {"model": {"path": str(self.folder / "value")}, "candidates": 20, "multiplier": 1.0}})
        own = guided["the value model's passes"]
        print(f"guided {guided['compute']:.2f} s, of which the value model's passes {own:.2f} s; without a guide {plain['compute']:.2f} s")
        return {"guided step over (reference step + value step)": (plain["compute"] + own) / guided["compute"]}

    def score(self, texts):
        found = self.phases({"task": "score", "model": {"path": str(self.folder / "reward"), "dtype": "f32"}, "dataset": {"path": str(self.folder / f"{texts}.jsonl")}})
        return found["compute"]

    def rollout(self, shares):
        return self.phases({"task": "rollout", "model": {"path": str(self.folder / "reference"), "dtype": "f32"}, "dataset": {"path": str(self.folder / "long.jsonl")}, "max_prompt_length": 400,
                            "max_new_tokens": 32, "cuts": 8, "n": 4, "roll_in": "sampled", "continuations": "sampled", "ignore_eos": True, "share_prefixes": shares,
                            "reward": {"verifier": "regex", "pattern": "[0-9]"}})["compute"]


def peer(folder, core, texts, batch, pipeline):
    """Seconds of transformers for the texts, in a separate process on the same core."""
    return float(subprocess.run(["taskset", "-c", str(core), sys.executable, __file__, "peer", str(folder), texts, str(batch), str(int(pipeline))], check=True, capture_output=True, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}).stdout.splitlines()[-1])


def run_peer(folder, texts, batch, pipeline):
    import torch
    import transformers
    torch.set_num_threads(1)
    texts = [json.loads(line)["text"] for line in (folder / f"{texts}.jsonl").read_text(encoding="utf-8").splitlines()]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(str(folder / "reward"), dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder / "reward"))
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    if pipeline:
        classify = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, function_to_apply="none", batch_size=batch, device="cpu")
        classify(texts[:2])
        begin = time.perf_counter()
        classify(texts)
    else:
        begin = time.perf_counter()
        with torch.no_grad():
            for first in range(0, len(texts), batch):
                model(**tokenizer(texts[first:first + batch], return_tensors="pt", padding=True))
    print(time.perf_counter() - begin)


def one_round(ours, only):
    ratios = {}
    if only in (None, "guided"):
        ratios.update(ours.guided())
    if only in (None, "score"):
        for texts, name in (("pairs", "scores in token budgets over two texts a call"), ("eights", "the same, eight answers a prompt"),
                            ("texts", "the same, texts with nothing in common")):
            own, two = ours.score(texts), peer(ours.folder, ours.core, texts, 2, False)
            print(f"{texts}: scores {own:.2f} s; two texts a call {two:.2f} s")
            ratios[name] = two / own
        pipeline = peer(ours.folder, ours.core, "texts", 32, True)
        print(f"pipeline {pipeline:.2f} s")
        ratios["scores over transformers' pipeline, batch 32"] = pipeline / own
    if only in (None, "rollout"):
        shared, alone = ours.rollout(True), ours.rollout(False)
        print(f"rollouts {shared:.2f} s, without shared prefixes {alone:.2f} s")
        ratios["rollouts with shared prefixes over without"] = alone / shared
    return ratios


def main():
    if sys.argv[1:2] == ["peer"]:
        return run_peer(pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5] == "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", choices=("guided", "score", "rollout"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_records(folder, make_models(folder))
        ours = Magister(folder, arguments.core)
        rounds = [one_round(ours, arguments.only) for _ in range(arguments.rounds)]
    print("\n| what | floor | aim | median | range |\n|---|---|---|---|---|")
    for name in rounds[0]:
        found = [one[name] for one in rounds]
        floor, aim = LIMITS[name]
        print(f"| {name} | {floor or ''} | {aim or ''} | {statistics.median(found):.2f} | {min(found):.2f} - {max(found):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
