#!/usr/bin/env bash
# Believed: the ways of attention of one model in transformers (eager, sdpa) compute the same up to rounding; eager is the plain one that others are compared with.
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: FalconModel puts the ALiBi biases, divided by sqrt(head size), into the mask that it gives to every layer, and eager attention adds the biases to its
#   scores once more before it divides by the same number. So eager adds every bias twice, sdpa once. Models with rotary embeddings (alibi: false) have no such bias.
# Seen with 2 layers, 4 heads of 16, weights with a deviation of 0.15, one text of 37 tokens without padding:
#   eager and sdpa differ by up to 1.0 in their logits; the first token's logits agree, since it sees itself alone
#   eager with all slopes halved gives sdpa's logits within 2e-06; with alibi: false eager and sdpa agree within 2e-06
# Matters: falcon-rw-1b and falcon-rw-7b (alibi: true) give other texts with attn_implementation="eager" than by default. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 \
  nvidia-nvtx==13.0.85 nvidia-nccl-cu13==2.28.9 numpy==2.4.6 typing-extensions==4.16.0 filelock==4.2.11 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 \
  transformers==5.23.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers
from transformers.models.falcon import modeling_falcon

IDS = torch.arange(3, 40)[None]
slopes = modeling_falcon.build_alibi_tensor


def logits(attention, alibi=True, factor=1.0):
    modeling_falcon.build_alibi_tensor = lambda *arguments, **named: factor * slopes(*arguments, **named)
    config = transformers.FalconConfig(vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, alibi=alibi, multi_query=False, parallel_attn=False)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.15)
        return model(IDS).logits[0]


def difference(a, b):
    return (a - b).abs().max().item()


eager, sdpa = logits("eager"), logits("sdpa")
apart, first = difference(eager, sdpa), difference(eager[0], sdpa[0])
halved, rotary = difference(logits("eager", factor=0.5), sdpa), difference(logits("eager", False), logits("sdpa", False))
print(f"eager and sdpa differ by {apart:.2g}, at the first token by {first:.1g}; eager with halved slopes and sdpa by {halved:.1g}; without ALiBi by {rotary:.1g}")
sys.exit(0 if apart > 0.5 and max(first, halved, rotary) < 1e-4 else "eager attention adds ALiBi once now, or in another way")
PYTHON
