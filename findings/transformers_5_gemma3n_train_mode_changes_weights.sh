#!/usr/bin/env bash
# Believed: a forward pass without gradients leaves a model's weights as they are, and a model without dropout computes the same in train() and eval() mode.
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: in train() mode Gemma 3n's AltUp clamps its prediction coefficients in place, to +- altup_coef_clip, in every pass, also under no_grad. The correction
#   coefficients are clamped in a copy, for this pass alone: in eval() mode they count whole. So the first pass in train() mode changes what the model writes from then
#   on, and its logits are neither those of eval() before it nor those of eval() after it.
# Seen with 4 layers, 4 heads of 8, altup_coef_clip 0.3, weights with a deviation of 0.2, one text of 24 tokens (the logits' deviation is 1.1):
#   the four layers' altup.prediction_coefs have changed, no other weight has; an eval() pass changes none
#   eval() before and eval() after differ by 0.07 in their logits, train() and eval() after by 0.02; with altup_coef_clip 120 all three are equal
# Matters: a loss measured during a training is not the loss of the saved model; a frozen or adapted (LoRA) base model is no longer the base model. The published
#   models' clip is 120, which only a training that runs away reaches. The download is large: torch.
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

IDS = torch.arange(3, 27)[None]


def run(clip):
    """Logits by eval(), train() and eval() again, and the weights that the first and the second pass changed."""
    config = transformers.Gemma3nTextConfig(
        vocab_size=64, vocab_size_per_layer_input=64, hidden_size=32, hidden_size_per_layer_input=8, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_kv_shared_layers=1, max_position_embeddings=128, laurel_rank=8, activation_sparsity_pattern=[0.0] * 4,
        layer_types=["full_attention"] * 4, altup_coef_clip=clip)
    torch.manual_seed(0)
    model = transformers.Gemma3nForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2)
    logits, changed = [], []
    for training in (False, True, False):
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        with torch.no_grad():
            logits.append(model.train(training)(IDS).logits)
        changed.append([name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])])
    return logits, changed


def difference(a, b):
    return (a - b).abs().max().item()


(first, training, last), (by_eval, by_train, _) = run(0.3)
free, unchanged = run(120.0)
moved, apart = difference(first, last), difference(training, last)
print(f"a pass in train() mode changes {by_train}; logits of eval() move by {moved:.1g}; train() and eval() after it differ by {apart:.1g}")
as_seen = not by_eval and len(by_train) == 4 and all(name.endswith("altup.prediction_coefs.weight") for name in by_train) and min(moved, apart) > 0.005
plain = not any(unchanged) and torch.equal(free[0], free[1]) and torch.equal(free[1], free[2])
sys.exit(0 if as_seen and plain else "train() mode of Gemma 3n changes other weights now, or none")
PYTHON
