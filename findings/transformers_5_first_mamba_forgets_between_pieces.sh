#!/usr/bin/env bash
# Believed: a text may be given to a causal model of transformers in pieces of several tokens through its cache (a long prompt in parts, several answers
#   behind one cached prompt), for all models that have a cache. For layers of Mamba-2 and of the gated delta rule, which began anew with every piece, this
#   was reported and repaired in 2026 (transformers' issue 46032, pull requests 45513, 46084 and 46741).
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), on a CPU without the packages mamba_ssm and causal_conv1d; transformers says of its own code for
#   them that it is correct.
# Behaviour: the first Mamba was left out. Mamba, FalconMamba and Jamba go on from the state of the cache where a piece is one token. Where it is more, the
#   convolution goes on and the state of the scan begins at zero, without a word; the cache then holds the state of this last piece alone.
#   A maintainer knows it (in a review of pull request 47087: the first Mamba takes no pieces); the models neither refuse nor warn.
# Seen, largest difference to the logits of one pass (their deviation is 1.2) for 24 tokens:
#   token by token: 1e-5 or less, all five models below
#   12 and 12 tokens: Mamba 4, FalconMamba 4, Jamba 3; Mamba2 and FalconH1, which were repaired: less than 1e-5
# Matters: a judge or a scorer that keeps a prompt's cache and appends whole answers gives each answer the score that it has without most of its prompt.
#   generate() with one cached prompt and several new tokens does the same. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
STATE = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 4, "pad_token_id": 0}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
MODELS = {
    "Mamba": (transformers.MambaConfig(**STATE, state_size=8, time_step_rank=4), transformers.MambaForCausalLM),
    "FalconMamba": (transformers.FalconMambaConfig(**STATE, state_size=8, time_step_rank=4), transformers.FalconMambaForCausalLM),
    "Jamba": (transformers.JambaConfig(**STATE, **HEADS, attn_layer_period=2, attn_layer_offset=1, num_experts=2, mamba_d_state=8, mamba_dt_rank=4), transformers.JambaForCausalLM),
    "Mamba2": (transformers.Mamba2Config(**STATE, num_heads=8, head_dim=8, state_size=8, n_groups=1, chunk_size=8), transformers.Mamba2ForCausalLM),
    "FalconH1": (transformers.FalconH1Config(**STATE, **HEADS, **MAMBA2, mamba_d_ssm=64), transformers.FalconH1ForCausalLM),
}
torch.manual_seed(0)
IDS = torch.randint(3, 64, (1, 24))


def apart(model, *ends):
    """Largest difference of logits between one pass over the text and a pass a piece through a cache."""
    cache, begin, rows = transformers.DynamicCache(config=model.config), 0, []
    for end in (*ends, 24):
        rows.append(model(IDS[:, begin:end], cache=cache, use_cache=True).logits[0])
        begin = end
    return (torch.cat(rows) - model(IDS, use_cache=False).logits[0]).abs().max().item()


seen = {}
with torch.no_grad():
    for name, (config, kind) in MODELS.items():
        torch.manual_seed(0)
        model = kind(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=1.2 / weight.shape[-1] ** 0.5)
        seen[name] = apart(model, *range(1, 24)), apart(model, 12)
        print(f"{name}: token by token {seen[name][0]:.1g}, 12 and 12 tokens {seen[name][1]:.1g}")
whole = all(steps < 1e-3 for steps, _ in seen.values())
forgotten = {name for name, (_, pieces) in seen.items() if pieces > 0.1}
sys.exit(0 if whole and forgotten == {"Mamba", "FalconMamba", "Jamba"} else "other models forget their state now, or none")
PYTHON
