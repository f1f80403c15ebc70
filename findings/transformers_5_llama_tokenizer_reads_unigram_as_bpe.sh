#!/usr/bin/env bash
# Believed: LlamaTokenizer of transformers gives the ids that sentencepiece gives on the tokenizer.model it is made from, whatever kind of SentencePiece model that is.
# Packages: transformers 5.24.0 with tokenizers 0.23.3, and 4.57.3 with 0.22.2, against sentencepiece 0.2.1 (PyPI), no torch.
# Behaviour: in 5 the class makes a BPE of every model, with a blank first and without a normaliser. The pieces of a Unigram model have next to no merges, so that words become single
#   characters. NFKC and the removal of blanks, sentencepiece's defaults, are left out, user-defined pieces are made of smaller ones or become parts of larger ones, and add_dummy_prefix
#   false is ignored. Nothing is said, and texts come back right from the ids, but for what a normaliser would have changed. The plain class (PreTrainedTokenizerFast) reads all of these
#   models rightly; 4.57.3's LlamaTokenizer, made of sentencepiece itself, all but that without a blank, and 4.57.3's fast one read Unigram as such.
# Seen, 200 lines of plain words, lines with sentencepiece's ids and tokens in relation to sentencepiece's:
#                                           LlamaTokenizer of 5    plain class of 5    LlamaTokenizer of 4.57.3 (use_fast=False)
#     Unigram                               0, 3.53 times          200                 200
#     Unigram, umlauts in two characters    0, 3.80 times          200                 200
#     BPE, user-defined piece "run"         178, 0.99 times        200                 200
#     BPE, umlauts in two characters        41, 1.67 times         200                 200
#     BPE, no blank before a text           0                      200                 0
#     BPE as Llama's own                    200                    200                 200
# Matters: models of Llama's classes with a tokenizer of their own, sentencepiece's default kind being Unigram with NFKC: behind transformers 5 they get other ids than they were trained on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
SHARED="sentencepiece==0.2.1 protobuf==7.36.2 certifi==2026.10.19.post1 charset-normalizer==3.5.3 filelock==4.3.1 fsspec==2026.9.0 hf-xet==1.8.0 idna==3.20 numpy==2.4.6 packaging==26.4 pyyaml==6.0.4
  regex==2026.11.19 requests==2.34.2 safetensors==0.8.0 tqdm==4.70.1 typing-extensions==4.16.0 urllib3==2.8.0"
NEWER="transformers==5.24.0 tokenizers==0.23.3 huggingface-hub==2.4.0 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 h11==0.16.0 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0
  pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7"
for version in 5 4; do
  python3 -m venv "$folder/$version"
  # shellcheck disable=SC2086
  "$folder/$version/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps $SHARED $([ $version = 5 ] && echo $NEWER || echo transformers==4.57.3 tokenizers==0.22.2 huggingface-hub==0.36.2)
done
cat > "$folder/compare.py" <<'PYTHON'
import io
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import sentencepiece
import transformers

WORDS = "the cat sat on a mat and it was good bad running runner runs hello world new york 2024 naïve café grün schön x=1 foo()".split()
random_words = random.Random(0)


def lines(count):
    return [" ".join(random_words.choice(WORDS) for _ in range(8)) for _ in range(count)]


CORPUS, TEXTS = lines(3000), lines(200)
APART = [unicodedata.normalize("NFD", text) for text in TEXTS]
OWN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}  # Llama's settings
CASES = {"Unigram": ({"model_type": "unigram"}, TEXTS), "Unigram, umlauts in two characters": ({"model_type": "unigram"}, APART),
         "BPE, user-defined": ({"model_type": "bpe", "user_defined_symbols": ["run"], **OWN}, TEXTS), "BPE, umlauts in two characters": ({"model_type": "bpe"}, APART),
         "BPE, no blank": ({"model_type": "bpe", "add_dummy_prefix": False, **OWN}, TEXTS), "BPE, Llama's": ({"model_type": "bpe", **OWN}, TEXTS)}


def read(data, name):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "tokenizer.model").write_bytes(data)
        pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "legacy": False}))
        pathlib.Path(folder, "config.json").write_text('{"model_type": "llama"}')
        return transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)


newer = transformers.__version__ == "5.24.0"
print(f"transformers {transformers.__version__}")
equal = {}
for case, (settings, texts) in CASES.items():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=400, hard_vocab_limit=False, byte_fallback=True, minloglevel=2, num_threads=1, **settings)
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    expected = [own.encode(text) for text in texts]
    for name in ("LlamaTokenizer", "PreTrainedTokenizerFast") if newer else ("LlamaTokenizer",):
        found = [read_one(text, add_special_tokens=False) for read_one in [read(model.getvalue(), name).encode] for text in texts]
        equal[case, name] = sum(one == other for one, other in zip(found, expected))
        print(f"  {case}, {name}: {equal[case, name]} of {len(texts)} lines have sentencepiece's ids, {sum(map(len, found)) / sum(map(len, expected)):.2f} times as many tokens")
by_llama = [equal[case, "LlamaTokenizer"] for case in CASES]
if newer:
    as_seen = by_llama[:2] == [0, 0] and by_llama[2] < 190 and by_llama[3] < 190 and by_llama[4:] == [0, 200] and all(equal[case, "PreTrainedTokenizerFast"] == 200 for case in CASES)
else:
    as_seen = by_llama == [200, 200, 200, 200, 0, 200]
sys.exit(0 if as_seen else "the class reads these models in another way now")
PYTHON
for version in 5 4; do
  "$folder/$version/bin/python" "$folder/compare.py"
done
