#!/usr/bin/env bash
# Believed: a text has the same logits in one pass and token by token through a cache. time_step_limit, "accepted range of time step values" of a Mamba-2 layer, holds for every token.
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), the layers of torch on a CPU.
# Behaviour: of the two ways through a Mamba-2 layer that 5.24.0 has, the scan over several tokens keeps the time steps within the limit and the step over a single token does not. So a
#   text's prompt is read with the limit and all that generate() writes is not, and the states drift from those of a pass. No warning. Nothing is bounded by default, (0, inf), in Mamba 2,
#   Bamba, Falcon-H1 and Granite 4 (granitemoehybrid). Zamba 2 and Nemotron-H bound by default: their scan takes time_step_min, 0.001, which is a number of the initialisation, as the lower
#   limit, also in Nemotron-H whose config has a time_step_limit of its own that nothing reads. (That Nemotron-H ignores it is open pull request 48989; that steps know no limit is
#   independent of it.)
# Seen, random models whose dt_bias go from -9 to 0, errors to a pass over the same text relative to the largest logit:
#                                              generate()    one token at a time through a cache    two at a time
#     mamba2, as it is                         9e-07         8e-07                                  5e-07
#     mamba2, time_step_limit (0, 0.1)         0.44          0.49                                   5e-07
#     bamba, the same                          0.76          0.69                                   9e-07
#     falcon_h1, the same                      0.51          1.2                                    2e-06
#     granitemoehybrid, the same               1.0           1.0                                    3e-06
#     zamba2, as it is                         0.030         0.055                                  1e-05
#     nemotron_h, as it is, or (0, 0.1)        0.0044        0.0055                                 6e-07
#     nemotron_h, time_step_min 1e-9           1e-06         1e-06                                  7e-07
# Matters: log-probabilities of samples and those of a pass over them, as in reinforcement learning, differ by more than rounding. The download is large: torch.
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

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
INNER = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2}
CONFIGS = {"mamba2": {"num_hidden_layers": 4, "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1},
           "bamba": {"num_hidden_layers": 4, "attn_layer_indices": [1, 3], **INNER},
           "falcon_h1": {"num_hidden_layers": 4, "mamba_d_ssm": 128, **INNER},
           "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "attention"] * 2, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64, **INNER},
           "zamba2": {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2, "hybrid_layer_ids": [1, 3], "num_mem_blocks": 1, "mamba_d_state": 16, "mamba_expand": 2, "mamba_headdim": 16,
                      "n_mamba_heads": 8, "mamba_ngroups": 1, "attention_head_dim": 32},
           "nemotron_h": {"layers_block_type": ["mamba", "attention"] * 2, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1}}
TEXTS = torch.randint(3, 96, (2, 60), generator=torch.Generator().manual_seed(1))
PROMPT = 20


def make(name, **more):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL | CONFIGS[name], **more)).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.ndim > 1 and weight.std() < 0.05:
                weight.normal_(0, 0.2)
            if key.endswith("dt_bias"):
                weight.copy_(torch.linspace(-9, 0, len(weight)))
    return model


@torch.no_grad()
def error(model):
    """The logits of texts that generate() writes against those of the same texts in one pass, relative to the largest."""
    found = model.generate(TEXTS[:, :PROMPT], max_new_tokens=40, min_new_tokens=40, do_sample=False, output_logits=True, return_dict_in_generate=True)
    passed = model(found.sequences, use_cache=False).logits[:, PROMPT - 1:-1]
    return ((torch.stack(found.logits, 1) - passed).abs().max() / passed.abs().max()).item()


@torch.no_grad()
def error_of_pieces(model, size):
    """The same with the texts given and read through a cache, the first 20 tokens at once and then some at a time."""
    passed, cache, logits = model(TEXTS, use_cache=False).logits, transformers.DynamicCache(config=model.config), []
    for begin, end in [(0, PROMPT)] + [(place, place + size) for place in range(PROMPT, TEXTS.shape[1], size)]:
        logits.append(model(TEXTS[:, begin:end], cache=cache, use_cache=True, attention_mask=torch.ones(2, end, dtype=torch.long), position_ids=torch.arange(begin, end)[None]).logits)
    return ((torch.cat(logits, 1) - passed).abs().max() / passed.abs().max()).item()


LIMITS = {"as it is": {}, "up to 0.1": {"time_step_limit": (0.0, 0.1)}, "from 0.01": {"time_step_limit": (0.01, float("inf"))}, "time_step_min 1e-9": {"time_step_min": 1e-9}}
as_seen = True
for name in CONFIGS:
    own = name in ("zamba2", "nemotron_h")
    for told, more in LIMITS.items():
        if told == "time_step_min 1e-9" and not own:
            continue
        model = make(name, **more)
        written, ones, twos = error(model), error_of_pieces(model, 1), error_of_pieces(model, 2)
        print(f"{name}, {told}: error of generate() {written:.2g}, of one token at a time {ones:.2g}, of two at a time {twos:.2g}")
        wrong = told != "time_step_min 1e-9" if own else told != "as it is"
        as_seen = as_seen and twos < 1e-4 and (min(written, ones) > 5e-4 if wrong else max(written, ones) < 1e-4)
sys.exit(0 if as_seen else "the time step of single tokens is bounded in another way now")
PYTHON
