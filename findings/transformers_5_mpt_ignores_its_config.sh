#!/usr/bin/env bash
# Believed: a key that MptConfig declares and validates is computed, or refused: with attn_config.alibi false a model has no ALiBi, with qk_ln it norms queries and keys.
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: MptForCausalLM reads softmax_scale, clip_qkv and layer_norm_epsilon of what changes results. It takes attn_config.alibi, qk_ln, prefix_lm and attn_type, and
#   logit_scale, no_bias, embedding_fraction and learned_pos_emb without a word and computes ALiBi, no norms, a causal mask, a head of keys for each head of queries,
#   logits as they are, no biases and no learned positions, whatever they say. BioGptForCausalLM does the same with layer_norm_eps (1e-12 by default): its norms use 1e-05.
# Seen with 2 layers, 4 heads of 8, weights with a deviation of 0.2, one text of 24 tokens (the logits' deviation is 1.2):
#   eight keys of mpt and layer_norm_eps of biogpt: the same logits, bit for bit, and the same number of parameters
#   softmax_scale 1.5 changes logits by 3.5, layer_norm_epsilon 1.0 by 4
# Matters: MPT models whose config says so (learned positions instead of ALiBi, scaled logits) are other models in transformers than in the program that trained them.
#   The download is large: torch.
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
COMMON = {"vocab_size": 64, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
MODELS = {
    "mpt": COMMON | {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "biogpt": COMMON | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64},
}
OF_ATTENTION = ({"alibi": False}, {"qk_ln": True}, {"prefix_lm": True}, {"attn_type": "multiquery_attention"})
OF_THE_MODEL = ({"logit_scale": 0.1}, {"no_bias": False}, {"embedding_fraction": 0.1}, {"learned_pos_emb": False})
IGNORED = [("mpt", {"attn_config": keys}) for keys in OF_ATTENTION] + [("mpt", keys) for keys in OF_THE_MODEL] + [("biogpt", {"layer_norm_eps": 1.0})]
READ = [("mpt", {"attn_config": {"softmax_scale": 1.5}}), ("mpt", {"layer_norm_epsilon": 1.0})]


def logits(kind, keys):
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **MODELS[kind], **keys)).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2)
        return model(IDS).logits[0]


def change(kind, keys):
    return (logits(kind, keys) - logits(kind, {})).abs().max().item()


ignored, read = [change(*case) for case in IGNORED], [change(*case) for case in READ]
for (kind, keys), largest in zip(IGNORED + READ, ignored + read):
    print(f"{kind}, {keys}: logits change by {largest:.2g}")
sys.exit(0 if max(ignored) == 0 and min(read) > 1 else "some of these keys are computed now")
PYTHON
