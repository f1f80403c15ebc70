#!/usr/bin/env bash
# Believed: an adapter whose file holds a pair of factors for each expert's w1 and w3 (or gate_proj and up_proj) adds scale * B A to each of these weights, whatever transformers calls
#   them. The scale of LoRA is lora_alpha / r, and lora_alpha / sqrt(r) with use_rslora; PEFT's source says that it keeps the scale where transformers 5 fuses the two weights.
# Packages: peft 0.21.2, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: where the two weights are one gate_up_proj, PEFT makes one pair of the two of twice the rank and doubles r and lora_alpha with it. That keeps lora_alpha / r. With
#   use_rslora it multiplies the scale of w1 and w3 by the square root of 2, and leaves that of w2 and of all other layers. Its one warning says that the patterns of
#   gate_up_proj matched nothing and were ignored; it comes without use_rslora, too, and they are used. It does so when it loads an
#   adapter of that form, and when it makes a new one with target_modules w1, w2, w3, which then is trained and saved that way: rank_pattern and alpha_pattern of the saved file have
#   the doubled numbers, so that to a reader that takes both configs at their word the adapter is another once PEFT has saved it again.
# Seen, one layer of 4 experts, r 4, lora_alpha 2, largest difference of logits (whose deviation is 1) to a model whose weights were added by hand:
#     model        use_rslora    W + scale B A    the same with sqrt(2) scale for gate and up
#     mixtral      false         0                0.7
#     mixtral      true          1.0              1e-6
#     qwen3_moe    false         0                0.9
#     qwen3_moe    true          1.0              1e-6
# Matters: adapters of mixtures that were trained under transformers 4 give other texts under 5; PEFT as an oracle of such files says that a right reader is wrong.
#   The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps peft==0.21.2 accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import copy
import json
import math
import pathlib
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

WIDTH, INNER, EXPERTS, RANK, ALPHA = 32, 48, 4, 4, 2
SMALL = {"vocab_size": 64, "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts_per_tok": 2}
MODELS = {"mixtral": (transformers.MixtralConfig(**SMALL, intermediate_size=INNER, num_local_experts=EXPERTS), "block_sparse_moe", ("w1", "w3", "w2")),
          "qwen3_moe": (transformers.Qwen3MoeConfig(**SMALL, moe_intermediate_size=INNER, num_experts=EXPERTS), "mlp", ("gate_proj", "up_proj", "down_proj"))}
IDS = torch.arange(24)[None] * 7 % 64
folder = pathlib.Path(sys.argv[1])


def begin(config):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.data.normal_(std=weight.shape[-1] ** -0.5)
    return model


def added_by_hand(model, factors, layer, parts, scale, of_two):
    out = copy.deepcopy(model)
    experts = out.model.layers[0].mlp.experts
    for expert in range(EXPERTS):
        gate, up, down = (factors[f"{layer}.{expert}.{part}.lora_B.weight"] @ factors[f"{layer}.{expert}.{part}.lora_A.weight"] for part in parts)
        experts.gate_up_proj.data[expert] += scale * of_two * torch.cat([gate, up])
        experts.down_proj.data[expert] += scale * down
    return out


@torch.no_grad()
def differences(name, stabilized):
    config, block, parts = MODELS[name]
    model, layer, factors = begin(config), f"base_model.model.model.layers.0.{block}.experts", {}
    for expert in range(EXPERTS):
        for part in parts:
            wide, narrow = (WIDTH, INNER) if part == parts[2] else (INNER, WIDTH)
            factors[f"{layer}.{expert}.{part}.lora_A.weight"] = torch.randn(RANK, narrow) * narrow ** -0.5
            factors[f"{layer}.{expert}.{part}.lora_B.weight"] = torch.randn(wide, RANK) * RANK ** -0.5
    adapter, again = folder / f"{name}-{stabilized}", folder / f"{name}-{stabilized}-again"
    adapter.mkdir()
    save_file(factors, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "use_rslora": stabilized,
                                                             "target_modules": list(parts), "lora_dropout": 0.0, "bias": "none"}))
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(model), adapter).eval()
    logits = loaded(IDS).logits
    loaded.save_pretrained(again)
    saved = json.loads((again / "adapter_config.json").read_text())
    assert all("experts.0." not in key for key in load_file(again / "adapter_model.safetensors"))
    print(f"  saved again: rank_pattern {saved['rank_pattern']}, alpha_pattern {saved['alpha_pattern']}")
    new = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=RANK, lora_alpha=ALPHA, use_rslora=stabilized, target_modules=list(parts)))
    scales = sorted(module.scaling["default"] for module in new.modules() if isinstance(module, peft.tuners.lora.LoraLayer))
    scale = ALPHA / (math.sqrt(RANK) if stabilized else RANK)
    whole, more = ((logits - added_by_hand(model, factors, layer, parts, scale, of_two)(IDS).logits).abs().max().item() for of_two in (1, math.sqrt(2)))
    print(f"{name}, use_rslora {stabilized}: {whole:.1g} from W + scale B A, {more:.1g} from sqrt(2) of it for gate and up; scales of a new adapter {scales[0]:.4g}, {scales[1]:.4g}")
    return whole, more, scales[1] / scales[0]


as_seen = True
for name in MODELS:
    plain, stabilized = differences(name, False), differences(name, True)
    as_seen = as_seen and plain[0] < 1e-4 and plain[1] > 0.1 and plain[2] == 1
    as_seen = as_seen and stabilized[0] > 0.1 and stabilized[1] < 1e-4 and abs(stabilized[2] - math.sqrt(2)) < 1e-9
sys.exit(0 if as_seen else "the scale of fused experts is computed in another way now")
PYTHON
