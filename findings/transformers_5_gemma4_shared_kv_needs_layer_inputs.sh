#!/usr/bin/env bash
# Believed: num_kv_shared_layers and hidden_size_per_layer_input of Gemma 4's config are independent: a model whose last layers share keys and values reads texts with and
#   without the embeddings per layer (hidden_size_per_layer_input 0, for which the layers and the model have branches).
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: before the first layer that shares, Gemma4TextModel cuts its inputs down to the tokens whose logits are kept (_maybe_slice_kv_shared_inputs), and indexes
#   per_layer_inputs there without checking for None. The model is made and reads one token at a time, and fails on a text of two tokens.
# Seen with 4 layers, 2 of them sharing, with the default attention:
#   hidden_size_per_layer_input 8: 1 and 12 tokens give logits
#   hidden_size_per_layer_input 0: 1 token gives logits; 2 and 12 tokens and generate(): TypeError: 'NoneType' object is not subscriptable
#   hidden_size_per_layer_input 0 with output_hidden_states=True, which cuts nothing: 12 tokens give the logits that one token after the other gives with a cache
# Matters: a comparison of such a model with transformers must ask for output_hidden_states. The download is large: torch.
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

SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "global_head_dim": 16, "vocab_size_per_layer_input": 64, "num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8}
IDS = torch.arange(3, 15)[None]


def made(size):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(transformers.Gemma4TextConfig(**SMALL, hidden_size_per_layer_input=size)).eval()


def outcome(call):
    try:
        with torch.no_grad():
            result = call()
        return tuple(result.logits.shape) if hasattr(result, "logits") else "ids"
    except TypeError as error:
        return f"TypeError: {error}"


seen = {}
for size in (8, 0):
    model = made(size)
    seen[size] = {f"{count} tokens": outcome(lambda: model(IDS[:, :count])) for count in (1, 2, 12)}
    seen[size]["generate"] = outcome(lambda: model.generate(IDS, max_new_tokens=2, do_sample=False))
    print(f"hidden_size_per_layer_input {size}: {seen[size]}")

with torch.no_grad():
    whole = made(0)(IDS, output_hidden_states=True).logits
    model, cache, steps = made(0), None, []
    for token in IDS[0]:
        step = model(token[None, None], past_key_values=cache, use_cache=True)
        cache = step.past_key_values
        steps.append(step.logits)
difference = (whole - torch.cat(steps, dim=1)).abs().max()
print(f"hidden_size_per_layer_input 0 with output_hidden_states: {tuple(whole.shape)}, differs from one token after the other by at most {difference:.0e}")
fails = "TypeError: 'NoneType' object is not subscriptable"
as_seen = seen[8] == {"1 tokens": (1, 1, 64), "2 tokens": (1, 2, 64), "12 tokens": (1, 12, 64), "generate": "ids"}
as_seen = as_seen and seen[0] == {"1 tokens": (1, 1, 64), "2 tokens": fails, "12 tokens": fails, "generate": fails} and difference < 1e-4
sys.exit(0 if as_seen else "Gemma 4 reads such texts now, or fails in another way")
PYTHON
