#!/usr/bin/env bash
# Believed: final_logit_softcapping of Gemma 3's text_config caps the logits whichever class reads it: the same weights and the same text_config give the same logits in
#   Gemma3ForCausalLM (text_config alone) and in Gemma3ForConditionalGeneration (the class with the vision tower) for a text without images.
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: Gemma3ForCausalLM computes cap * tanh(logits / cap). Gemma3ForConditionalGeneration, which AutoModelForImageTextToText makes of a folder with both towers, returns
#   the logits of its lm_head as they are. Its config keeps the cap, and nothing warns.
# Seen with a cap of 0.5: the largest logit is 0.5 in the inner class and 35.3 in the outer one. The cap, put on the outer class's logits by hand, gives the inner class's
#   logits. Without a cap (the default is null) both classes agree.
# Matters: a model that was trained with a cap has other probabilities and another loss in the outer class. The download is large: torch.
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

TEXT = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "sliding_window": 8, "initializer_range": 0.5}
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
IDS = torch.arange(3, 15)[None]


def logits_of_both(cap):
    torch.manual_seed(0)
    text = transformers.Gemma3TextConfig(**TEXT, final_logit_softcapping=cap)
    inner = transformers.Gemma3ForCausalLM(text).eval()
    config = transformers.Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4)
    outer = transformers.AutoModelForImageTextToText.from_config(config).eval()
    assert type(outer) is transformers.Gemma3ForConditionalGeneration and outer.config.text_config.final_logit_softcapping == cap
    outer.model.language_model.load_state_dict(inner.model.state_dict())
    outer.lm_head.load_state_dict(inner.lm_head.state_dict())
    with torch.no_grad():
        return inner(IDS).logits, outer(IDS).logits


inner, outer = logits_of_both(0.5)
by_hand = 0.5 * torch.tanh(outer / 0.5)
print(f"cap 0.5: largest logit {inner.abs().max():.4f} in Gemma3ForCausalLM, {outer.abs().max():.4f} in Gemma3ForConditionalGeneration")
print(f"cap 0.5 put on the second by hand: they differ by at most {(by_hand - inner).abs().max():.1e}")
plain_inner, plain_outer = logits_of_both(None)
print(f"no cap: they differ by at most {(plain_inner - plain_outer).abs().max():.1e}")
as_seen = inner.abs().max() <= 0.5 and outer.abs().max() > 1 and torch.allclose(by_hand, inner, atol=1e-5) and torch.allclose(plain_inner, plain_outer, atol=1e-4)
sys.exit(0 if as_seen else "Gemma3ForConditionalGeneration caps its logits now, or differs in another way")
PYTHON
