#!/usr/bin/env bash
# Believed: with use_sliding_window false, a layer of type "sliding_attention" attends to all tokens before it, or the config is refused: Qwen2 and Qwen3 refuse it with
#   "Could not find a `sliding_window` argument in the config, or it is not set".
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: Qwen2MoeConfig accepts such layer_types without a warning and sets sliding_window to 0, where Qwen2Config sets None. A window of 0 hides every token from every
#   token, its own included. Eager attention then gives each token of the text the same weight, the later ones too; SDPA gives other numbers. With a cache, which is
#   the default, the call ends with "RuntimeError: The size of tensor a (12) must match the size of tensor b (11)".
# Seen with 12 tokens, one layer, a window of 4096 in the config: all attention weights are 1/12 in eager attention, and the first token's logits change with the last token.
#   Logits differ from those of full attention in eager attention and in SDPA, and between these two. With use_sliding_window true they are those of full attention.
# Matters: transformers' logits for such a config are no reference, and neither full attention nor a window agrees with them. The download is large: torch.
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

SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.5,
         "sliding_window": 4096, "max_window_layers": 1, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
EXPERTS = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
IDS = torch.arange(3, 15)[None]
OTHER_END = torch.cat([IDS[:, :-1], torch.tensor([[40]])], dim=1)


def made(model_type, attention, layer_type, use_sliding_window, **more):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **SMALL, **more, layer_types=[layer_type], use_sliding_window=use_sliding_window)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def logits(model, ids=IDS, **more):
    with torch.no_grad():
        return model(ids, use_cache=False, **more).logits


def refusal(model, error, **more):
    try:
        with torch.no_grad():
            model(IDS, **more)
    except error as caught:
        return f"{type(caught).__name__}: {caught}"
    return None


off, as_seen = {}, True
for attention in ("eager", "sdpa"):
    full = logits(made("qwen2_moe", attention, "full_attention", False, **EXPERTS))
    on = logits(made("qwen2_moe", attention, "sliding_attention", True, **EXPERTS))
    model = made("qwen2_moe", attention, "sliding_attention", False, **EXPERTS)
    off[attention] = logits(model)
    cached = refusal(model, RuntimeError)
    print(f"{attention}: window of the config {model.config.sliding_window}; logits differ from full attention's by at most {(off[attention] - full).abs().max():.2f}, "
          f"with use_sliding_window by {(on - full).abs().max():.0e}; with a cache: {cached}")
    as_seen = as_seen and model.config.sliding_window == 0 and (off[attention] - full).abs().max() > 0.1 and torch.allclose(on, full, atol=1e-4) and cached is not None

model = made("qwen2_moe", "eager", "sliding_attention", False, **EXPERTS)
with torch.no_grad():
    weights = model(IDS, use_cache=False, output_attentions=True).attentions[0]
moved = (logits(model) - logits(model, OTHER_END))[0, 0].abs().max()
print(f"eager: attention weights from {weights.min():.4f} to {weights.max():.4f}; another last token moves the first token's logits by {moved:.2f}")
print(f"eager and sdpa differ by {(off['eager'] - off['sdpa']).abs().max():.2f}")
refused = {name: refusal(made(name, "eager", "sliding_attention", False), ValueError, use_cache=False) for name in ("qwen2", "qwen3")}
print(refused)
as_seen = as_seen and torch.allclose(weights, torch.full_like(weights, 1 / 12)) and moved > 0.1 and (off["eager"] - off["sdpa"]).abs().max() > 0.1
as_seen = as_seen and all(text and "sliding_window" in text for text in refused.values())
sys.exit(0 if as_seen else "qwen2_moe refuses such a config now, or computes in another way")
PYTHON
