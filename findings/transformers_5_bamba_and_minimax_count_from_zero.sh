#!/usr/bin/env bash
# Believed: whoever calls a causal model of transformers with a cache need not name positions. position_ids are optional, and without them new tokens stand
#   behind those of the cache, as the models' code does it: a range that begins at cache.get_seq_length().
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: Bamba begins the range at 0 in every call, whatever the cache holds. MiniMax asks the cache, whose answer is the length of the first layer's
#   keys; where the first layer is a linear one, as in the published MiniMax-Text-01, that has none and the answer is 0, always. Both write every new token at
#   position 0 and say nothing. generate() names positions itself, so what it writes is right.
# Seen, largest difference between the logits of 24 tokens one by one and those of one pass (their deviation is 1.2):
#   without position_ids: Bamba 3, MiniMax with a linear layer first 5, with a full layer first 1e-5, Qwen3Next 3e-5 (linear layers first, too)
#   with position_ids: 3e-5 or less, all; MiniMax's cache says that it holds 0 tokens
# Matters: loops of one's own, which score answers behind a cached prompt or write texts beside generate(), compute another model; and code that asks the
#   cache how much of a text it has read is told nothing. The download is large: torch.
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
from transformers.models.minimax.modeling_minimax import MiniMaxCache

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
EXPERTS = {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}
LINEAR, FULL = "linear_attention", "full_attention"
MODELS = {
    "Bamba": (transformers.BambaForCausalLM, transformers.BambaConfig(**SIZES, **MAMBA2, attn_layer_indices=[1, 3])),
    "MiniMax, a linear layer first": (transformers.MiniMaxForCausalLM, transformers.MiniMaxConfig(**SIZES, **EXPERTS, layer_types=[LINEAR, FULL] * 2)),
    "MiniMax, a full layer first": (transformers.MiniMaxForCausalLM, transformers.MiniMaxConfig(**SIZES, **EXPERTS, layer_types=[FULL, LINEAR] * 2)),
    "Qwen3Next": (transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig(
        **SIZES, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, layer_types=[LINEAR, FULL] * 2, num_experts=2,
        num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16)),
}
torch.manual_seed(0)
IDS = torch.randint(3, 64, (1, 24))


def apart(model, positions):
    """Largest difference of logits between one pass over the text and a pass a token through a cache."""
    cache, rows = MiniMaxCache() if isinstance(model, transformers.MiniMaxForCausalLM) else transformers.DynamicCache(config=model.config), []
    for i in range(24):
        named = {"position_ids": torch.tensor([[i]])} if positions else {}
        rows.append(model(IDS[:, i : i + 1], cache=cache, use_cache=True, **named).logits[0])
    return (torch.cat(rows) - model(IDS, use_cache=False).logits[0]).abs().max().item(), cache.get_seq_length()


seen = {}
with torch.no_grad():
    for name, (kind, config) in MODELS.items():
        torch.manual_seed(0)
        model = kind(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=1.2 / weight.shape[-1] ** 0.5)
        (without, length), (given, _) = apart(model, False), apart(model, True)
        seen[name] = without > 0.1, given > 0.1, length
        print(f"{name}: {without:.1g} without position_ids, {given:.1g} with them; the cache says that it holds {length} tokens")
expected = {"Bamba": (True, False, 24), "MiniMax, a linear layer first": (True, False, 0), "MiniMax, a full layer first": (False, False, 24), "Qwen3Next": (False, False, 24)}
sys.exit(0 if seen == expected else "the positions of other models begin at 0 now, or none")
PYTHON
