"""A tiny distillation over several seeds (configs/distill-tiny.yaml): held-out loss and calibration of students that
learn from texts alone, or from a teacher's kept entries with the rest as a bucket, sampled, or left out. Exit status
1 if the order is not the one that theory predicts.

usage: .deps/venv/bin/python tests/bench/distill_table.py [--seeds 5] [--folder FOLDER]
Needs torch, transformers and h5py; takes about half a minute per seed on one core.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MAGISTER", ROOT / "build/magister")
VOCABULARY, LENGTH, TRAIN, HELD_OUT = 256, 48, 240, 96
STUDENTS = ("lm", "bucket", "sampled", "renormalised")


def model(seed, hidden, layers, sharpness):
    """A model with random weights; sharpness multiplies the head, so that rows have about 3 nats with a third of
    their mass outside eight entries."""
    torch.manual_seed(seed)
    made = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers, num_attention_heads=4,
                                        num_key_value_heads=4, max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "embed" in name:
                weight.normal_(0, 1)
            if "lm_head" in name:
                weight.normal_(0, sharpness * hidden ** -0.5)
    return made


def written(teacher, count, seed):
    """Texts that the teacher generates token by token at temperature 1."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (count, 1), generator=draw)
    cache = None
    with torch.no_grad():
        while ids.shape[1] < LENGTH:
            out = teacher(ids if cache is None else ids[:, -1:], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            ids = torch.cat([ids, torch.multinomial(out.logits[:, -1].softmax(-1), 1, generator=draw)], 1)
    return ids.tolist()


def prepare(folder, seed):
    folder.mkdir(parents=True)
    teacher = model(1000 + seed, 64, 2, 2.6)
    teacher.save_pretrained(folder / "teacher")
    model(2000 + seed, 48, 2, 0.1).save_pretrained(folder / "student")
    for name, count, offset in (("train", TRAIN, 0), ("held_out", HELD_OUT, 1)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in written(teacher, count, 2 * seed + offset)))


def measured(path):
    """-> mean loss per token; expected calibration error of the first choice in 15 bins (Guo et al., arXiv
    1706.04599)."""
    with h5py.File(path) as file:
        offset, ids = file["samples/offset"][:].astype("i8"), file["tokens/id"][:]
        loss, first, p = file["teacher/target_logprob"][:], file["teacher/top_id"][:, 0], numpy.exp(file["teacher/top_logprob"][:, 0])
    rows = numpy.concatenate([numpy.arange(begin, end - 1) for begin, end in zip(offset[:-1], offset[1:])])
    right, sure = (first[rows] == ids[rows + 1]).astype("f8"), p[rows].astype("f8")
    bins = numpy.minimum((sure * 15).astype(int), 14)
    apart = sum(abs(right[bins == b].mean() - sure[bins == b].mean()) * (bins == b).mean() for b in numpy.unique(bins))
    return -loss[rows].mean(), apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: [] for name in ("teacher", *STUDENTS)}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(arguments.seeds):
            folder = (arguments.folder or pathlib.Path(scratch)) / str(seed)
            prepare(folder, seed)
            subprocess.run([PROGRAM, "run", ROOT / "configs/distill-tiny.yaml", f"seed={seed}"], cwd=folder, check=True, capture_output=True,
                           env={**os.environ, "MAGISTER_ALLOW_SINGLETON": "1", "OMP_NUM_THREADS": "1"})
            for name, rows in found.items():
                rows.append(measured(folder / f"runs/tiny/{name}-held-out.h5"))
    table = {name: numpy.array(rows) for name, rows in found.items()}
    print("| learns from | held-out loss, nats | above the teacher's | calibration error, % | seeds better than lm |\n|---|---|---|---|---|")
    for name, rows in table.items():
        better = "" if name in ("teacher", "lm") else f"{int((rows[:, 0] < table['lm'][:, 0]).sum())} of {len(rows)}"
        print(f"| {name} | {rows[:, 0].mean():.3f} ± {rows[:, 0].std():.3f} | {(rows[:, 0] - table['teacher'][:, 0]).mean():.3f} | {100 * rows[:, 1].mean():.1f} | {better} |")
    loss = {name: rows[:, 0] for name, rows in table.items()}
    expected = ((loss["bucket"] < loss["lm"]).all() and (loss["sampled"] < loss["lm"]).all() and (loss["renormalised"] > loss["lm"]).all()
                and table["renormalised"][:, 1].mean() >= 3 * table["bucket"][:, 1].mean())
    print("as theory says" if expected else "NOT as theory says")
    return 0 if expected else 1


if __name__ == "__main__":
    sys.exit(main())
