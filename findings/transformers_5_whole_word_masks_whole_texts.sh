#!/usr/bin/env bash
# Believed: whole_word_mask of DataCollatorForLanguageModeling masks whole words with any fast tokenizer: some words of each text, about mlm_probability of the tokens.
# Packages: transformers 5.24.0, tokenizers 0.23.3, torch 2.11.0 (PyPI).
# Behaviour: tokens are of one word where the second begins in the text at the character at which the first ends. That finds words if no token holds the blank between them, as in BERT, or
#   if the post-processor takes it off the offsets, as in RoBERTa. Where a token's offsets hold the blank before it, as in byte-level vocabularies with another post-processor (a
#   template) and in SentencePiece ones that are cut by Metaspace alone (DeBERTa 2 and 3), a text is one word and is masked whole or not at all. Nothing is said.
# Seen, 400 texts of 20 words, mlm_probability 0.15: tokens masked, texts without a mask, texts masked whole:
#     WordPiece, BERT's way                    15 %     11      0
#     byte-level, RoBERTa's post-processor     15 %     14      0
#     XLMRobertaTokenizer                      15 %     30      0
#     byte-level, a template behind it         13 %    347     53
#     DebertaV2Tokenizer                       13 %    348     52
# Matters: pretraining with such a vocabulary learns from one text of seven, which is all masks, and the loss and the mean rate of masks look plausible. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 \
  nvidia-nvtx==13.0.85 nvidia-nccl-cu13==2.28.9 numpy==2.4.6 typing-extensions==4.16.0 filelock==4.2.11 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0
"$folder/venv/bin/python" - <<'PYTHON'
import random
import sys
import warnings

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

warnings.filterwarnings("ignore", message="Random token replacement")
WORDS = "the cat sat on a mat and it was good bad running runner unbelievable hello world new york tokenization internationally".split()
NAMES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
random_words = random.Random(0)


def lines(count):
    return [" ".join(random_words.choice(WORDS) for _ in range(20)) for _ in range(count)]


CORPUS, TEXTS = lines(2000), lines(400)


def trained(model, cut, trainer, behind):
    plain = Tokenizer(model)
    plain.pre_tokenizer = cut
    plain.train_from_iterator(CORPUS, trainer)
    first, last = ((name, plain.token_to_id(name)) for name in ("[CLS]", "[SEP]"))
    if behind == "roberta":
        plain.post_processor = processors.RobertaProcessing(last, first, trim_offsets=True, add_prefix_space=False)
    else:
        plain.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[first, last])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **NAMES)


def byte_level(behind):
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=list(NAMES.values()), show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    return trained(models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False), trainer, behind)


def pieces_and(before, mask):
    pieces = sorted({piece for word in WORDS for piece in (*word, "▁" + word[:3], word[3:6])} - {""})
    return [(name, 0.0) for name in before] + [("▁", -5.0)] + [(piece, -3.0) for piece in pieces] + [(mask, 0.0)]


def masks(tokenizer):
    """Returns the share of masked tokens, and how many texts have none and how many nothing but masks."""
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, mlm_probability=0.15, seed=1)
    tokens, masked, none, whole = 0, 0, 0, 0
    for text in TEXTS:
        read = dict(tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True))
        count = len(read["special_tokens_mask"]) - sum(read["special_tokens_mask"])
        found = int((collator([read])["labels"] != -100).sum())
        tokens, masked = tokens + count, masked + found
        none, whole = none + (found == 0), whole + (found == count)
    return masked / tokens, none, whole


cut = trainers.WordPieceTrainer(vocab_size=60, special_tokens=list(NAMES.values()), show_progress=False)
seen = {"WordPiece": masks(trained(models.WordPiece(unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer(), cut, "template")), "byte-level, RoBERTa's": masks(byte_level("roberta")),
        "XLMRobertaTokenizer": masks(transformers.XLMRobertaTokenizer(vocab=pieces_and(["<s>", "<pad>", "</s>", "<unk>"], "<mask>"))), "byte-level, template": masks(byte_level("template")),
        "DebertaV2Tokenizer": masks(transformers.DebertaV2Tokenizer(vocab=pieces_and(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[MASK]")))}
for name, (share, none, whole) in seen.items():
    print(f"{name}: {share:.0%} of the tokens are masked; of {len(TEXTS)} texts {none} have no mask, {whole} are masked whole")
right = all(none < 40 and whole == 0 for _, none, whole in list(seen.values())[:3])
wrong = all(none > 280 and whole > 30 for _, none, whole in list(seen.values())[3:])
sys.exit(0 if right and wrong and all(0.1 < share < 0.2 for share, _, _ in seen.values()) else "words are found in another way now")
PYTHON
