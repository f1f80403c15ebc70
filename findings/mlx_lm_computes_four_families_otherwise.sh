#!/usr/bin/env bash
# Believed: mlx_lm, whose wheels for Linux run on a CPU, computes the model of a checkpoint: for the families that it loads without complaint its logits are those of transformers but for rounding.
# Packages: mlx-lm 0.32.2, mlx 0.32.4, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: of 33 families that could be compared on small models, four are others in mlx_lm, without a warning. Jamba: the weights of the chosen experts are made to add up to 1, where Jamba takes
#   them out of a softmax over all experts as they are. ERNIE 4.5's mixture: e_score_correction_bias, which decides on the experts, is removed from the weights when they are loaded. Gemma 2: no
#   layer has a sliding window. GLM: each head is turned as a whole, where the config (and transformers where it has no such key) says half, by partial_rotary_factor. Without these parts
#   the four are right; so are the other 29, three of them to 3e-4 only.
# Seen, 24 tokens in float32, error relative to the largest logit:
#     llama                                           9e-07
#     jamba, 4 of 4 experts for a token               4e-06      2 of 4 experts                  0.33
#     ernie4_5_moe, a bias of 0                       8e-07      a bias of 0.2 (deviation)       0.31
#     gemma2, windows of 32                           4e-07      8                               0.40
#     glm, partial_rotary_factor 1                    1e-06      0.5                             0.87
# Matters: texts and log-probabilities of these four from mlx_lm are those of models that nobody has trained, and are no oracle. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps mlx-lm==0.32.2 mlx==0.32.4 mlx-cpu==0.32.4 sentencepiece==0.2.3 protobuf==7.36.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - "$folder" 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import json
import pathlib
import sys

import mlx.core
import numpy
import torch
import transformers
from mlx_lm.utils import load_model

torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "initializer_range": 0.1}
LAYERS = {"num_hidden_layers": 2, "head_dim": 16}
JAMBA = {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 4}
ERNIE = {**LAYERS, "moe_intermediate_size": 32, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 0}
ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
TEXT = torch.randint(3, 96, (1, 24), generator=torch.Generator().manual_seed(0))


def make(name, more, bias=0.0):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL, **more)).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "correction_bias" in key:
                weight.copy_(bias * torch.randn(weight.shape))
            elif weight.ndim > 1:
                weight.normal_(0, 0.15)
    return model


def error(model, folder):
    """Of mlx_lm's logits, relative to the largest of transformers'."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    rotary = config.get("rope_parameters") or {}
    (folder / "config.json").write_text(json.dumps({**config, **{key: value for key, value in rotary.items() if key != "rope_type"}}))  # where published configs have them
    other, _ = load_model(folder)
    got = numpy.array(other(mlx.core.array(TEXT.numpy())))
    with torch.no_grad():
        right = model(TEXT, use_cache=False).logits.numpy()
    return float(abs(got - right).max() / abs(right).max())


CASES = [("llama", "as it is", LAYERS, 0.0, True),
         ("jamba", "4 of 4 experts", {**JAMBA, "num_experts_per_tok": 4}, 0.0, True), ("jamba", "2 of 4 experts", {**JAMBA, "num_experts_per_tok": 2}, 0.0, False),
         ("ernie4_5_moe", "a correction bias of 0", ERNIE, 0.0, True), ("ernie4_5_moe", "a correction bias", ERNIE, 0.2, False),
         ("gemma2", "windows of 32", {**LAYERS, "sliding_window": 32}, 0.0, True), ("gemma2", "windows of 8", {**LAYERS, "sliding_window": 8}, 0.0, False),
         ("glm", "partial_rotary_factor 1", {**LAYERS, "rope_parameters": {**ROTARY, "partial_rotary_factor": 1.0}}, 0.0, True),
         ("glm", "partial_rotary_factor 0.5", {**LAYERS, "rope_parameters": {**ROTARY, "partial_rotary_factor": 0.5}}, 0.0, False)]
as_seen = True
for place, (name, case, more, bias, right) in enumerate(CASES):
    folder = pathlib.Path(sys.argv[1]) / str(place)
    off = error(make(name, more, bias), folder)
    print(f"seen {name} with {case}: error of mlx_lm {off:.2g}")
    as_seen = as_seen and (off < 1e-4 if right else off > 0.01)
sys.exit(0 if as_seen else "mlx_lm computes these families in another way now")
PYTHON
