#!/usr/bin/env bash
# Believed: transformers' Trainer decays the weights of products and tables, and of no norm: its documentation says that it leaves out norm layers and biases.
# Seen with transformers 5.23.0, torch 2.11.0: it knows PyTorch's own LayerNorm by its class, and all other norms by the names of their weights (layernorm, rmsnorm, norm
# between dots, or _norm at the end of a name). HyperCLOVA X calls the norms on the outputs of its blocks post_norm1 and post_norm2, which is none of these. So the weights
# of these two norms of every layer shrink towards 0 in training, while those of all other norms, which are of the same class, do not:
#   hyperclovax: of 9 weights of norms these are decayed: model.layers.0.post_norm1.weight, model.layers.0.post_norm2.weight, and those of layer 1
#   granite, olmo2, gemma3_text: of 5, 9 and 13 weights of norms none
# (With use_post_norm false HyperCLOVA X has no such norms.) The download is large: torch.
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

SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": None}


def norms_of(model_type, **more):
    """-> the names of norms' weights, and of those among them that the Trainer decays."""
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(model_type, **SMALL, **more))
    norms = [f"{name}.weight" for name, module in model.named_modules() if type(module).__name__.endswith("Norm")]
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    assert "model.layers.0.self_attn.q_proj.weight" in decayed
    return norms, [name for name in norms if name in decayed]


seen = {name: norms_of(name) for name in ("hyperclovax", "granite", "olmo2", "gemma3_text")}
for name, (norms, decayed) in seen.items():
    print(f"{name}: of {len(norms)} weights of norms these are decayed: {', '.join(decayed) or 'none'}")
without = norms_of("hyperclovax", use_post_norm=False)[1]
print(f"hyperclovax with use_post_norm false: {', '.join(without) or 'none'}")
wanted = [f"model.layers.{layer}.post_norm{number}.weight" for layer in range(2) for number in (1, 2)]
as_seen = sorted(seen["hyperclovax"][1]) == wanted and not without and not any(decayed for name, (_, decayed) in seen.items() if name != "hyperclovax")
sys.exit(0 if as_seen else "the Trainer decays other norms now")
PYTHON
