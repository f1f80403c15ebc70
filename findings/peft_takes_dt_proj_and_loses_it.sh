#!/usr/bin/env bash
# Believed: PEFT refuses the layers of Mamba's kind that an adapter cannot reach (out_proj and conv1d, pull request 2562), so what it takes is adapted; PiSSA and OLoRA, which move the largest
#   part of a weight into the adapter, leave the model's logits at the start as they are.
# Packages: peft 0.21.2, transformers 5.24.0, torch 2.15.0 (PyPI), on a CPU.
# Behaviour: transformers computes with dt_proj.weight and never calls dt_proj in Mamba, FalconMamba and Jamba. An adapter on dt_proj, which "all-linear" puts there in Jamba, gets no gradient
#   and changes nothing until it is merged. PiSSA and OLoRA take their part out of dt_proj.weight, and the adapter that holds it is never added: the model begins as another one, without an
#   error or a warning. (Merged at once it is right again, trained adapters are those of the wrong model.) PEFT refuses out_proj in Mamba and takes it in Jamba.
# Seen, random models of 4 layers; errors relative to the largest logit:
#                                          weights of adapters     at the start:                    merging random
#                                          without a gradient      default    PiSSA     OLoRA       adapters
#     mamba, x_proj, in_proj, dt_proj      8 of 24                 0          0.0006    0.001       0.15
#     falcon_mamba, the same               8 of 24                 0          0.089     0.13        0.28
#     jamba, "all-linear"                  4 of 56                 0          1.2       1.3         0.97
#     llama, "all-linear"                  0 of 56                 0          3e-06     3e-06       8e-06
#   The weights without a gradient are those of dt_proj alone.
# Matters: a training from PiSSA or OLoRA starts from a damaged model, and parameters counted as trainable are none. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps peft==0.21.2 accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys
import warnings

import peft
import torch
import transformers

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES = {"mamba": {"state_size": 16, "time_step_rank": 8}, "falcon_mamba": {"state_size": 16, "time_step_rank": 8},
            "jamba": {"mamba_d_state": 16, "mamba_dt_rank": 8, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1, "num_experts_per_tok": 1}, "llama": {}}
TEXTS = torch.randint(3, 96, (2, 20), generator=torch.Generator().manual_seed(0))


def make(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL | FAMILIES[name])).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1 and weight.std() < 0.05:
                weight.normal_(0, 0.2)
    return model


def logits(model):
    with torch.no_grad():
        return model(TEXTS, use_cache=False).logits


def error(found, right):
    return ((found - right).abs().max() / right.abs().max()).item()


as_seen = True
for name in FAMILIES:
    targets = {"mamba": ["x_proj", "in_proj", "dt_proj"], "falcon_mamba": ["x_proj", "in_proj", "dt_proj"]}.get(name, "all-linear")
    right = logits(make(name))
    starts = {}
    for way in (True, "pissa", "olora"):
        model = peft.get_peft_model(make(name), peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=way, task_type="CAUSAL_LM")).eval()
        starts[way] = error(logits(model), right)
        if way == "pissa":
            merged = error(logits(model.merge_and_unload()), right)
    model = peft.get_peft_model(make(name), peft.LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.2)
    model(TEXTS, labels=TEXTS, use_cache=False).loss.backward()
    adapters = [key for key, weight in model.named_parameters() if weight.requires_grad]
    dead = [key for key, weight in model.named_parameters() if weight.requires_grad and (weight.grad is None or not weight.grad.any())]
    kinds = sorted({key.split(".lora_")[0].split(".")[-1] for key in dead})
    trained = logits(model.eval())
    change = error(logits(model.merge_and_unload()), trained)
    print(f"{name}: {len(dead)} of {len(adapters)} weights of adapters get no gradient {kinds}; error at the start: default {starts[True]:.2g}, PiSSA {starts['pissa']:.2g}, OLoRA {starts['olora']:.2g}; "
          f"PiSSA merged {merged:.2g}; random adapters merged {change:.2g}")
    if name == "llama":
        as_seen = as_seen and not dead and max(starts.values()) < 1e-4 and max(merged, change) < 1e-4
    else:
        as_seen = as_seen and kinds == ["dt_proj"] and starts[True] < 1e-4 and min(starts["pissa"], starts["olora"], change) > 3e-4 and merged < 1e-4
for name in ("mamba", "jamba"):
    for target in ("out_proj", "dt_proj"):
        try:
            peft.get_peft_model(make(name), peft.LoraConfig(target_modules=[target]))
            print(f"{name}, {target}: taken")
        except ValueError as problem:
            print(f"{name}, {target}: {str(problem)[:90]}")
sys.exit(0 if as_seen else "adapters of dt_proj behave in another way now")
PYTHON
