#!/usr/bin/env bash
# Believed: a tokenizer.json that tokenizers has read and written again is the same tokenizer, and a Unigram piece keeps its score: both are doubles,
#   JSON has 17 digits, and Rust and Python parse and print decimals exactly.
# Packages: tokenizers 0.23.3 (PyPI).
# Behaviour: one score of 16 or 17 digits in eight is read as the double beside the one that it names, and written so; f32 values printed as doubles, as
#   converted SentencePiece models have them, likewise. serde_json rounds exactly only with its feature float_roundtrip. Scores of few digits stay,
#   what was moved once stays, and as f32 all are equal.
# Seen: 267 of 2,000 random scores came back as another number, -15.275492379532281 as -15.27549237953228, and 248 of 2,000 f32 values.
# Matters: hashes and comparisons of tokenizer files by value differ between a file and its copy; sums of scores differ in their last bit between
#   tokenizers and whoever reads the same file exactly, which decides between segmentations that tie. Compare scores as f32.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PYTHON'
import json, random, struct, sys
from tokenizers import Tokenizer

def read_and_written(scores):
    vocab = [["<unk>", 0.0]] + [[f"p{i}", score] for i, score in enumerate(scores)]
    text = json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                       "decoder": None, "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}})
    return [score for _, score in json.loads(Tokenizer.from_str(text).to_str())["model"]["vocab"][1:]]

random.seed(1)
scores = [-random.random() * 20 for _ in range(2000)]
once = read_and_written(scores)
moved = [(a, b) for a, b in zip(scores, once) if a != b]
again = sum(a != b for a, b in zip(once, read_and_written(once)))
short = [round(score, 6) for score in scores]
moved_short = sum(a != b for a, b in zip(short, read_and_written(short)))
single = [struct.unpack("f", struct.pack("f", score))[0] for score in scores]
moved_single = [(a, b) for a, b in zip(single, read_and_written(single)) if a != b]
as_single = sum(struct.pack("f", a) != struct.pack("f", b) for a, b in moved)
print(f"{len(moved)} of {len(scores)} scores moved, for example {moved[:1]}; {again} when read again; of 6 digits {moved_short}; of f32 values {len(moved_single)}; other as f32: {as_single}")
if not (len(moved) == 267 and len(moved_single) == 248 and again == moved_short == as_single == 0):
    sys.exit("tokenizers reads Unigram scores otherwise now: see the head of this file")
PYTHON
