#!/usr/bin/env bash
# Believed: a key of config.json that a family does not know changes nothing. Llama, GPT-2 or DeepSeek V3 have no sliding window, so a `sliding_window` in their config, say one kept from the
#   model that a checkpoint was converted from, with use_sliding_window false, is without effect.
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), sdpa on a CPU.
# Behaviour: the model ignores the key, its cache obeys it. DynamicCache and StaticCache are made of the config: where that has a sliding_window and no layer_types, each layer keeps that many keys,
#   whatever the model does with them. A text in one pass sees everything, a text through a cache forgets what is further back; so do the texts of generate(), which makes such a cache. Nothing
#   warns. `attention_chunk_size` does the same. A trial found it in 64 of 88 families without a window of their own; the others list the types of their layers or keep states.
# Seen with a text of 24 tokens and keys of 8: error of 12 tokens through a cache of the 12 before, relative to the largest logit (a static cache has the same), and greedy tokens that generate()
#   writes otherwise than passes without a cache do. One pass has the same bits with each key as without:
#                      without them        sliding_window or attention_chunk_size
#     llama            2e-06, 0 of 16      0.96, 14 of 16
#     glm              1e-06, 0 of 16      1.2, 14 of 16
#     gemma            6e-07, 0 of 16      0.80, 15 of 16
#     gpt2             5e-07, 0 of 16      0.98, 15 of 16
#     falcon           6e-07, 0 of 16      0.52, 13 of 16
#     minimax_m2       1e-06, 0 of 16      1.1, 15 of 16
#     deepseek_v3      2e-06, 0 of 16      1.5, 15 of 16
# Matters: log-probabilities of such a checkpoint are right and its texts are not, beyond a length that short trials do not reach (4096, often). The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys

import torch
import transformers

torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2, "initializer_range": 0.2}
FAMILIES = {"llama": {"num_key_value_heads": 2}, "glm": {"num_key_value_heads": 2, "head_dim": 16}, "gemma": {"num_key_value_heads": 2, "head_dim": 16}, "gpt2": {"n_inner": 64}, "falcon": {},
            "minimax_m2": {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
            "deepseek_v3": {"num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1,
                            "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1}}
TEXT = torch.randint(3, 96, (1, 24), generator=torch.Generator().manual_seed(0))


def make(name, more):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL, **FAMILIES[name], **more)).eval()
    model.generation_config.eos_token_id = None
    return model


@torch.no_grad()
def through_cache(model, cache):
    whole, out = model(TEXT, use_cache=False).logits, [model(TEXT[:, :12], past_key_values=cache, use_cache=True).logits]
    for place in range(12, 24):
        out.append(model(TEXT[:, place:place + 1], past_key_values=cache, use_cache=True).logits)
    return ((torch.cat(out, 1) - whole).abs().max() / whole.abs().max()).item(), whole


@torch.no_grad()
def greedy(model):
    text = TEXT
    for _ in range(16):
        text = torch.cat([text, model(text, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return text


as_seen = True
for name in FAMILIES:
    right = None
    for more in ({}, {"sliding_window": 8, "use_sliding_window": False}, {"attention_chunk_size": 8}):
        model = make(name, more)
        off, whole = through_cache(model, transformers.DynamicCache(config=model.config))
        static, _ = through_cache(model, transformers.StaticCache(config=model.config, max_cache_len=64))
        right = whole if right is None else right
        same = torch.equal(whole, right)
        differ = (model.generate(TEXT, max_new_tokens=16, do_sample=False, pad_token_id=0) != greedy(model))[0, 24:].sum().item()
        print(f"seen {name}, {more or 'neither key'}: one pass as without the key: {same}; error through a cache {off:.2g}, a static one {static:.2g}; {differ} of 16 written tokens differ")
        as_seen = as_seen and same and (min(off, static) > 0.1 and differ > 4 if more else max(off, static) < 1e-4 and differ == 0)
sys.exit(0 if as_seen else "caches take other keys of a config now")
PYTHON
