#!/usr/bin/env bash
# Believed: cache_implementation="static" of generate() changes speed alone: greedy texts are those of the default cache, sliding windows included, as they are with Gemma 3, gpt-oss and Mistral.
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), on a CPU, not compiled.
# Behaviour: with a static cache generate() makes the masks itself, by a table of layer types. Its row for hybrid_sliding, the sliding layers of Inkling and Inkling 2, names the mask without a
#   window: a prompt is read whole by each of them. Without a static cache, and with one that is given to the model directly, the model makes its masks, with a window. GPT-Neo's local layers take
#   the queries' rows of their window from the end of the keys, which is the end of the buffer here and not that of the text. Both are silent, and right where no text is longer than the window.
# Seen with a prompt of 40 tokens, windows of 8, two sliding layers: error of the first written token's logits, relative to the largest, written tokens that differ from the default cache's, and
#   what the prompt's first token, which no window reaches, changes in those logits:
#                       error of the default   of static   tokens     first token: default   static
#     inkling_text      3e-07                  1.1         16 of 16   0                      0.57
#     inkling2_text     2e-07                  0.55        16 of 16   0                      0.21
#     gpt_neo           3e-07                  1.5         15 of 16   0                      0.088
#     gemma3_text, gpt_oss, mistral: 4e-07 at most, 0 of 16 and 0. With windows of 128 all six have at most 4e-07, and no token differs
# Matters: a model that is compiled for generation, which needs a static cache, writes other texts as soon as a prompt is longer than the window. The download is large: torch.
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
SMALL = {"vocab_size": 96, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2}
LAYERS = {"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64}
EXPERTS = {"n_routed_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
INKLING, SLIDING = {**LAYERS, **EXPERTS, "unpadded_vocab_size": 96, "layer_types": 2 * ["hybrid_sliding"]}, {**LAYERS, "layer_types": 2 * ["sliding_attention"]}
FAMILIES = {"inkling_text": (INKLING, "sliding_window_size"), "inkling2_text": (INKLING, "sliding_window_size"),
            "gpt_neo": ({"num_layers": 2, "num_heads": 4, "attention_types": [[["local"], 2]]}, "window_size"),
            "gemma3_text": (SLIDING, "sliding_window"), "gpt_oss": ({**SLIDING, **EXPERTS}, "sliding_window"), "mistral": (LAYERS, "sliding_window")}
TEXT = torch.randint(3, 96, (1, 40), generator=torch.Generator().manual_seed(0))
OTHER = TEXT.clone()
OTHER[0, 0] = TEXT[0, 0] % 90 + 4


def make(name, window):
    torch.manual_seed(0)
    more, key = FAMILIES[name]
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL, **more, **{key: window})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1 and weight.std() < 0.1:
                weight.normal_(0, 0.2)
    model.generation_config.eos_token_id = None
    return model


def write(model, text, cache):
    out = model.generate(text, max_new_tokens=16, do_sample=False, pad_token_id=0, cache_implementation=cache, return_dict_in_generate=True, output_logits=True)
    return out.logits[0][0], out.sequences[0, text.shape[1]:]


def error(got, right):
    return ((got - right).abs().max() / right.abs().max()).item()


as_seen = True
for window in (8, 128):
    for name in FAMILIES:
        model = make(name, window)
        with torch.no_grad():
            right = model(TEXT, use_cache=False).logits[0, -1]
        (usual, words), (static, static_words) = write(model, TEXT, None), write(model, TEXT, "static")
        off, static_off, differ = error(usual, right), error(static, right), (words != static_words).sum().item()
        first, static_first = error(write(model, OTHER, None)[0], usual), error(write(model, OTHER, "static")[0], static)
        print(f"seen {name}, windows of {window}: error of the default {off:.2g}, of static {static_off:.2g}; {differ} of 16 tokens differ; the first token changes {first:.2g} and {static_first:.2g}")
        as_seen = as_seen and off < 1e-4
        if window == 8 and name in ("inkling_text", "inkling2_text", "gpt_neo"):
            as_seen = as_seen and static_off > 0.1 and differ > 4 and first == 0 and static_first > 0.01
        else:
            as_seen = as_seen and static_off < 1e-4 and differ == 0 and (window == 128 or first == static_first == 0)
sys.exit(0 if as_seen else "a static cache has other windows now")
PYTHON
