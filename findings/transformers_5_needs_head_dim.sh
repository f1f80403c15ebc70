#!/usr/bin/env bash
# Believed: a config whose head_dim has the default None gives heads of hidden_size / num_attention_heads, as in Llama, Mistral and Qwen2.
# Seen with transformers 5.23.0, torch 2.11.0: MinistralConfig, HunYuanDenseV1Config and HunYuanMoEV1Config have `head_dim: int | None = None`, and their attention
# takes getattr(config, "head_dim", hidden_size // num_attention_heads), whose fallback is never used: the attribute is there. A model of such a config cannot be made:
#   ministral: TypeError: unsupported operand type(s) for ** or pow(): 'NoneType' and 'float'
#   hunyuan_v1_dense, hunyuan_v1_moe: the same; MistralConfig fills its None in: 16, and the model is made
# (A published folder names head_dim; one that was saved from such a config has null, and loads nowhere in this version.) The download is large: torch.
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

import transformers

SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": None}


def made(model_type, **more):
    config = transformers.AutoConfig.for_model(model_type, **SMALL, **more)
    try:
        return config.head_dim, transformers.AutoModelForCausalLM.from_config(config).model.layers[0].self_attn.head_dim
    except TypeError as error:
        return config.head_dim, f"TypeError: {error}"


seen = {name: made(name) for name in ("mistral", "ministral", "hunyuan_v1_dense", "hunyuan_v1_moe")}
for name, (default, outcome) in seen.items():
    print(f"{name}: head_dim of the config {default}, heads of the model: {outcome}")
named = {name: made(name, head_dim=16)[1] for name in seen}
print(f"with head_dim=16: {named}")
as_seen = seen["mistral"][1] == 16 and set(named.values()) == {16} and all(
    default is None and "NoneType" in str(outcome) for name, (default, outcome) in seen.items() if name != "mistral")
sys.exit(0 if as_seen else "transformers makes these models now, or fails in another way")
PYTHON
