#!/usr/bin/env bash
# Believed: what a text has been read to stands in its cache. Two texts with a cache each do not meet in a model, the beams of beam search keep their pasts, and attention_mask hides padding.
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), on a CPU.
# Behaviour: RecurrentGemma takes and fills a DynamicCache, but with the keys and values of its attention only. The states of its recurrences and the last inputs of its convolutions are
#   attributes of the model's layers. The next pass of any text overwrites them, so texts read in turns go on from each other's states, and a pass without a cache clears them. Reordering
#   the cache, as beam search does at each step, leaves them where they are. And no layer of that kind gets the mask: its convolution of 4 reads the pads to the left of a text. No errors,
#   no warnings. (A prompt that begins at position 0 resets the recurrence, so one greedy text after the other is right.)
# Seen, a random model of 4 layers; errors relative to the largest logit:
#     a text's 8 tokens through its cache                           1e-06
#     the same behind another text's prompt in another cache        1.2
#     the same behind a pass over another text without a cache      1.3
#     6 pads on the left of a text                                  1.3      on the right 0
#     generate(): a prompt with 6 pads beside a longer one          1.2, and 8 of 8 greedy tokens are others than alone
#     scores of beams to the log-probabilities of their texts       20       without a cache 2e-06; 2 of 12 texts are those without a cache
# Matters: batches of prompts, beams, two conversations in turns and an evaluation during a generation give plausible texts and numbers that belong to no text. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.manual_seed(0)
model = transformers.RecurrentGemmaForCausalLM(transformers.RecurrentGemmaConfig(
    vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, lru_width=64, attention_window_size=64, pad_token_id=0,
    bos_token_id=1, eos_token_id=2)).eval()
with torch.no_grad():
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(0, 0.3)
TEXTS = torch.randint(3, 96, (3, 24), generator=torch.Generator().manual_seed(1))
GREEDY = {"do_sample": False, "max_new_tokens": 8, "min_new_tokens": 8, "output_logits": True, "return_dict_in_generate": True}


@torch.no_grad()
def passed(texts):
    return model(texts, use_cache=False).logits


def error(found, right):
    return ((found - right).abs().max() / right.abs().max()).item()


@torch.no_grad()
def read(cache, text, begin, end):
    return model(text[:, begin:end], cache=cache, use_cache=True, position_ids=torch.arange(begin, end)[None]).logits


def steps_of_first(between):
    """The first text's prompt and tokens through its own cache; in between something is done with another text's."""
    one, two = transformers.DynamicCache(config=model.config), transformers.DynamicCache(config=model.config)
    read(one, TEXTS[:1], 0, 16)
    between(two)
    return error(torch.cat([read(one, TEXTS[:1], place, place + 1) for place in range(16, 24)], 1), passed(TEXTS[:1])[:, 16:])


@torch.no_grad()
def beams(**more):
    found = model.generate(TEXTS[:, :12], num_beams=4, num_return_sequences=4, do_sample=False, max_new_tokens=8, min_new_tokens=8, length_penalty=0.0, output_scores=True, return_dict_in_generate=True,
                           **more)
    logs = passed(found.sequences)[:, 11:-1].log_softmax(-1).gather(2, found.sequences[:, 12:, None])[..., 0]
    return (logs.sum(1) - found.sequences_scores).abs().max().item(), found.sequences


@torch.no_grad()
def padded(side):
    pads, text = torch.zeros(1, 6, dtype=torch.long), TEXTS[:1]
    row, mask = ((pads, text), (pads, torch.ones_like(text))) if side == "left" else ((text, pads), (torch.ones_like(text), pads))
    row, mask = torch.cat(row, 1), torch.cat(mask, 1)
    logits = model(row, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0), use_cache=False).logits
    return error(logits[:, 6:] if side == "left" else logits[:, :24], passed(text))


def batch():
    """Greedy texts of two prompts of 16 and 10 tokens in one batch, and alone."""
    rows, mask = TEXTS[:2, :16].clone(), torch.ones(2, 16, dtype=torch.long)
    rows[1, :6] = mask[1, :6] = 0
    found = model.generate(rows, attention_mask=mask, **GREEDY)
    alone = model.generate(rows[1:, 6:], attention_mask=mask[1:, 6:], **GREEDY)
    return error(torch.stack(found.logits, 1)[1:], torch.stack(alone.logits, 1)), (found.sequences[1, 16:] != alone.sequences[0, 10:]).sum().item()


alone, beside, evaluated = steps_of_first(lambda two: None), steps_of_first(lambda two: read(two, TEXTS[1:2], 0, 16)), steps_of_first(lambda two: passed(TEXTS[1:2]))
print(f"errors of a text's steps through its cache {alone:.2g}, behind another text read into another cache {beside:.2g}, behind a pass over another text without a cache {evaluated:.2g}")
(wrong, texts), (right, texts_without) = beams(), beams(use_cache=False)
same = sum(text in texts_without.tolist() for text in texts.tolist())
print(f"scores of beams to those of their texts in one pass {wrong:.2g}, without a cache {right:.2g}; {same} of 12 texts are those without a cache")
left, behind, (in_batch, others) = padded("left"), padded("right"), batch()
print(f"error with 6 pads on the left {left:.2g}, on the right {behind:.2g}; generate() with 6 pads {in_batch:.2g}, {others} of 8 greedy tokens differ")
as_seen = alone < 1e-4 and min(beside, evaluated) > 0.1 and right < 1e-3 and wrong > 1 and same < 12 and behind < 1e-4 and min(left, in_batch) > 0.1 and others
sys.exit(0 if as_seen else "RecurrentGemma's states behave in another way now")
PYTHON
