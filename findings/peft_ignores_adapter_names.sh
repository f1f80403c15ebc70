#!/usr/bin/env bash
# Believed: a model of PEFT that is called with adapter_names computes each row of the batch with the adapter that is named for it, or refuses: an unknown name, train() mode, merged adapters and
#   LoRA's variants that cannot do it raise errors.
# Packages: peft 0.21.2, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: LoRA, RoAd and GLoRA do so. With most other methods the model takes the argument out of the call and drops it, for their classes have no hook that could use it: all rows, those of
#   "__base__", too, are computed by the active adapter, and any list of any names is taken. There is no error and no warning.
# Seen with three texts, adapter_names one, two and __base__, `one` active; errors of the three rows against each adapter (and none) alone, relative to the largest logit:
#     LoRA, RoAd, GLoRA        7e-07 at most                     an unknown name is an error
#     IA3                      0, 0.44, 0.24                     an unknown name is taken
#     OFT                      0, 1.3, 1.1                       an unknown name is taken
#     LN tuning                0, 0.53, 0.46                     an unknown name is taken
#     DeLoRA, FourierFT, GraLoRA, HRA, HiRA, LoHa, LoKr, MiSS, PSOFT, RandLoRA, SHiRA, VeRA, WaveFT: the same, with errors of 0.076 to 1.6
# Matters: a job that serves several adapters in a batch, or compares an adapter with its base model in one, writes one adapter's texts under all names. The download is large: torch.
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

torch.set_num_threads(1)
CONFIG = transformers.LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
TEXTS = torch.randint(3, 96, (3, 12), generator=torch.Generator().manual_seed(0))
TARGETS, OWN = ["q_proj", "up_proj", "down_proj"], {"LNTuningConfig": ["input_layernorm"]}
RIGHT = ["LoraConfig", "RoadConfig", "GloraConfig"]
OTHERS = ["DeloraConfig", "FourierFTConfig", "GraloraConfig", "HRAConfig", "HiraConfig", "IA3Config", "LNTuningConfig", "LoHaConfig", "LoKrConfig", "MissConfig", "OFTConfig",
          "PsoftConfig", "RandLoraConfig", "ShiraConfig", "VeraConfig", "WaveFTConfig"]
NAMES = ["one", "two", "__base__"]


def config(name):
    more = {"feedforward_modules": ["down_proj"]} if name == "IA3Config" else {}
    return getattr(peft, name)(target_modules=OWN.get(name, TARGETS), **more)


def make(name):
    torch.manual_seed(0)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(CONFIG), config(name), adapter_name="one")
    model.add_adapter("two", config(name))
    for adapter in ("one", "two"):
        model.set_adapter(adapter)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad and weight.is_floating_point():
                    weight.add_(0.1 * torch.randn(weight.shape))
    model.set_adapter("one")
    return model.eval()


@torch.no_grad()
def logits(model, names):
    return model(input_ids=TEXTS, **({"adapter_names": names} if names else {})).logits


as_seen = True
transformers.logging.set_verbosity_error()
for name in RIGHT + OTHERS:
    model = make(name)
    model.set_adapter("two")
    second = logits(model, None)
    with model.disable_adapter():
        base = logits(model, None)
    model.set_adapter("one")
    first = logits(model, None)
    right = torch.stack([first[0], second[1], base[2]])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        got = logits(model, NAMES)
    off, same = ((got - right).abs().amax((1, 2)) / right.abs().max()).tolist(), torch.equal(got, first)
    try:
        logits(model, ["one", "nobody", "one"])
        refused = False
    except ValueError:
        refused = True
    print(f"seen {name}: errors of the rows {off[0]:.2g}, {off[1]:.2g}, {off[2]:.2g}; all rows by the active adapter: {same}; warnings: {len(warned)}; an unknown name is refused: {refused}")
    if name in RIGHT:
        as_seen = as_seen and max(off) < 1e-4 and refused
    else:
        as_seen = as_seen and same and min(off[1:]) > 0.01 and not warned and not refused
sys.exit(0 if as_seen else "other methods of PEFT take adapter_names now")
PYTHON
