#!/usr/bin/env bash
# Believed: a model of images and texts has, for a text without images, the logits of its decoder's class of texts.
# Seen with transformers 5.24.0 (5.23.0 the same), torch 2.11.0: the outer classes multiply hidden states by the head and leave out by what the decoder's class then
# multiplies or divides logits. Best tokens are the same; sampling at temperature 1 is sampling at 1/16 or 1/8, log-probabilities and losses are wrong as much:
#   aya_vision of a cohere2, cohere2_vision of a cohere2 (logit_scale 0.0625, the class's default): logits 16 times those of Cohere2ForCausalLM
#   llava_next of a granite (logits_scaling 8, as Granite Vision is built): 8 times those of GraniteForCausalLM
#   hyperclovax_vision_v2 of a hyperclovax (logits_scaling 0.125), the only one of the four that scales: 1
# The download is large: torch.
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
import sys

import torch
import transformers

SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
SIGHT = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
CASES = {  # outer model: decoder, keys of the outer config
    "aya_vision": ({"model_type": "cohere2"}, {}),
    "cohere2_vision": ({"model_type": "cohere2"}, {"alignment_intermediate_size": 64}),
    "llava_next": ({"model_type": "granite", "logits_scaling": 8.0}, {}),
    "hyperclovax_vision_v2": ({"model_type": "hyperclovax", "logits_scaling": 0.125}, None),
}
ids = torch.tensor([[1, 5, 9, 33, 17]])
ratios = {}
for name, (decoder, keys) in CASES.items():
    torch.manual_seed(0)
    vision = {"vision_config": SIGHT} if keys is not None else {}
    config = transformers.AutoConfig.for_model(name, text_config={**SMALL, **decoder}, tie_word_embeddings=False, **vision, **(keys or {}))
    outer = transformers.AutoModelForImageTextToText.from_config(config).eval()
    texts = transformers.AutoModelForCausalLM.from_config(config.get_text_config()).eval()
    texts.model.load_state_dict(outer.model.language_model.state_dict())
    texts.lm_head.load_state_dict(outer.lm_head.state_dict())
    with torch.no_grad():
        ours, theirs = outer(ids, use_cache=False).logits, texts(ids, use_cache=False).logits
    ratios[name] = (ours / theirs).median().item()
    print(f"{name} of {decoder['model_type']}: logits {ratios[name]:.4g} times those of {type(texts).__name__}, best tokens equal: {torch.equal(ours.argmax(-1), theirs.argmax(-1))}")
expected = {"aya_vision": 16.0, "cohere2_vision": 16.0, "llava_next": 8.0, "hyperclovax_vision_v2": 1.0}
sys.exit(0 if all(abs(ratios[name] - value) < 1e-3 for name, value in expected.items()) else "an outer class scales now, or otherwise")
PYTHON
