#!/usr/bin/env bash
# Believed: what a checkpoint lacks and from_pretrained() reports as newly initialized has the values that the class gives it when a model is made from its config.
# Packages: transformers 5.23.0, torch 2.11.0 (PyPI).
# Behaviour: Apertus' activation holds two learned numbers a layer (alpha_p, alpha_n) and two constants (beta, eps), all stored in the checkpoint. Nothing initializes
#   them after the model was made without memory, as from_pretrained() makes it: where a file lacks them they are whatever the fresh memory held, also the constants.
# Seen with 2 layers, no learned numbers or no constants in the file: the keys are reported as missing; alpha_p is not the class's 0.2034 and beta not its 0.5
#   (0, 1e-38, 0.0623, -36421.9: other numbers in other processes). Whole files load as they were saved.
# Matters: a converted or merged checkpoint without these small tensors, or one by a program that treats beta and eps as constants, runs with numbers from memory
#   behind a warning that says the opposite. The download is large: torch.
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
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

torch.manual_seed(0)
config = transformers.ApertusConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
made = transformers.ApertusForCausalLM(config)
folder = tempfile.mkdtemp()
made.save_pretrained(folder)
whole = load_file(f"{folder}/model.safetensors")
filler = [torch.full((1,), 7.5) for _ in range(1000)]  # memory that is freed again, so that fresh memory seldom happens to hold the right number
del filler


def numbers(model):
    return {name: value.float().item() for name, value in model.state_dict().items() if ".act_fn." in name}


def loaded(*absent):
    save_file({name: value for name, value in whole.items() if not name.endswith(absent or ("no such name",))}, f"{folder}/model.safetensors", metadata={"format": "pt"})
    model, report = transformers.ApertusForCausalLM.from_pretrained(folder, output_loading_info=True)
    return numbers(model), set(report["missing_keys"])


right = numbers(made)
same, none = loaded()
seen = same == right and not none
for absent in (("alpha_p", "alpha_n"), ("beta", "eps")):
    found, missing = loaded(*absent)
    wrong = sorted(name for name in right if found[name] != right[name])
    print(f"without {absent}: {len(missing)} keys are reported as missing, {len(wrong)} numbers are wrong, for instance {wrong[0]}: {found[wrong[0]]:.6g} instead of {right[wrong[0]]:.6g}")
    seen = seen and len(missing) == 4 and len(wrong) > 0 and set(wrong) <= missing
sys.exit(0 if seen else "missing numbers of Apertus have the class's values now")
PYTHON
