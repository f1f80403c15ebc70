#!/usr/bin/env bash
# Believed: an adapter on the linear layers of a causal model leaves it causal, and a text's log-probabilities do not depend on the other texts of the batch: LoRA and about thirty other
#   methods of PEFT keep that.
# Packages: peft 0.21.2, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: Lily (LilyConfig) has several matrices B and a router, which says for each token how much each B counts. The layer averages that over all tokens of the batch, later ones, those
#   of other texts and padding included, and applies one mixture to all. (The documentation tells of "a weighted combination for each forward pass".) So logits of a text differ with its
#   continuation, with its neighbours, and between one pass and steps through a cache; a training learns to look ahead.
# Seen: texts that are "heads" 8 times or "tails" 8 times behind a mark, as a coin falls; 400 steps on one text each. No causal model can have a loss under 0.087 (ln 2 / 8) or give
#   the first word of both texts more than 1 in sum:
#                                       LoRA: heads, tails    Lily: heads, tails
#     the whole text in the pass        0.608, 0.268          0.966, 0.928
#     the mark alone                    0.608, 0.268          0.003, 0.927
#     the other text in the batch       0.608, 0.268          0.920, 0.023
#     loss                              0.161                 0.054
# Matters: curves and log-probabilities of such an adapter are better than its texts, and change with the size and order of batches. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps peft==0.21.2 accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import peft
import torch
import transformers

torch.set_num_threads(1)
BEGIN, HEADS, TAILS = 2, 3, 4
CONFIG = transformers.LlamaConfig(vocab_size=32, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.1, bos_token_id=0, eos_token_id=1, pad_token_id=1)
TARGETS = ["q_proj", "up_proj", "down_proj"]
KINDS = {"LoRA": peft.LoraConfig(r=8, target_modules=TARGETS), "Lily": peft.LilyConfig(r=8, num_B=4, target_modules=TARGETS)}


def text_of(word):
    return torch.tensor([[BEGIN] + 8 * [word]])


def trained(config):
    torch.manual_seed(0)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(CONFIG), config)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    for _ in range(400):
        text = text_of(HEADS if torch.rand(()) < 0.5 else TAILS)
        model(text, labels=text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def first_word(model, word):
    """The probability of a text's first word behind the mark of its beginning: with the whole text, with the mark alone, with the other text in the batch."""
    text, other = text_of(word), text_of(HEADS + TAILS - word)
    passes = [model(text), model(text[:, :1]), model(torch.cat([text, other]))]
    return [passed.logits[0, 0].softmax(-1)[word].item() for passed in passes]


as_seen = True
for name, config in KINDS.items():
    model = trained(config)
    heads, tails = first_word(model, HEADS), first_word(model, TAILS)
    with torch.no_grad():
        alone = torch.cat([model(text_of(word), labels=text_of(word)).loss[None] for word in (HEADS, TAILS)]).mean().item()
    print(f"{name}: loss {alone:.3f}")
    for place, one, two in zip(("whole text", "the mark alone", "beside the other text"), heads, tails):
        print(f"    first word, {place}: heads {one:.3f}, tails {two:.3f}, sum {one + two:.3f}")
    if name == "LoRA":
        as_seen = as_seen and all(max(values) - min(values) < 1e-4 for values in (heads, tails)) and heads[0] + tails[0] < 1.0001
    else:
        as_seen = as_seen and heads[0] + tails[0] > 1.5 and heads[1] + tails[1] < 1.0001 and alone < 0.8 * 0.6931 / 8
        as_seen = as_seen and max(abs(values[0] - values[2]) for values in (heads, tails)) > 0.2
sys.exit(0 if as_seen else "Lily's adapters mix in another way now")
PYTHON
