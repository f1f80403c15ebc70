#!/usr/bin/env bash
# Believed: mergekit's methods compute what its guide says: SCE weighs models by the mean squares of their differences from the base, Model Stock by the angle
#   between these, Multi-SLERP interpolates on a sphere, and nuslerp_row_wise "SLERPs row vectors instead of column vectors". None depends on how large all
#   differences are.
# Packages: mergekit 0.1.5, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: sce gives all models equal weights where the mean squares of a tensor sum to less than 1e-6, which is a root mean square of 0.0007 for two equal
#   models. model_stock divides by a product of norms that is at least 1e-6: where rows (filter_wise) or tensors change less, it takes the differences as
#   orthogonal and keeps the base. multislerp projects onto the tangent space at the normalised weighted mean, where the weighted sum of the projections is
#   always zero: what comes out is that mean, scaled, and with two models no SLERP. nuslerp_row_wise takes columns if it is true and rows if it is false.
#   Nothing is said of any of it.
# Seen, a Llama of width 4096 and two fine-tunes of it, merged by run_merge:
#     sce, differences of the second a third of the first's    size 1e-3: weights 0.900 and 0.100    6e-4, 1e-4: 0.500 and 0.500
#     model_stock, cosine 0.5, so that t is 0.667              size 1e-4: t 0.666    1e-5: 0.665, filter_wise 0.339    1e-6: 0.232, filter_wise 0.004
#     weights 0.9 and 0.1, orthogonal differences              nuslerp 9.0 degrees from the first, multislerp 6.3, as the normalised weighted sum
#     nuslerp_flatten false, against SLERP by hand             nuslerp_row_wise true: the columns', to 1e-6; false: the rows', to 1e-6
# Matters: full fine-tunes differ from their base by 1e-5 to 1e-3. Below the limits sce is a mean of those that agree in sign, and model_stock gives the base
#   back. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps mergekit==0.1.5 immutables==0.21 peft==0.21.2 pydantic==2.14.4 \
  pydantic-core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5 sentencepiece==0.2.3 colorama==0.4.6 scipy==1.17.1 accelerate==1.15.0 psutil==7.2.2 \
  torch==2.15.0 nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 \
  nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 \
  nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 typing-extensions==4.16.0 filelock==4.3.1 \
  sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 transformers==5.24.0 tokenizers==0.23.3 \
  safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 \
  anyio==4.16.0 h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 \
  markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 charset-normalizer==3.5.3 urllib3==2.8.0
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import math
import pathlib
import sys

import torch
import transformers
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from safetensors.torch import load_file

torch.manual_seed(0)
torch.set_num_threads(1)
CONFIG = transformers.LlamaConfig(vocab_size=32, hidden_size=4096, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                                  head_dim=64)
NAME = "model.layers.0.self_attn.q_proj.weight"
base = transformers.LlamaForCausalLM(CONFIG)
base.save_pretrained("base")
FOLDERS = (f"model{number}" for number in range(100))


def draw(scale, other=None, cosine=0.0):
    """Random differences of all weights, at a given cosine to others."""
    found = {}
    for name, weight in base.named_parameters():
        own = torch.randn(weight.shape)
        found[name] = scale * (own if other is None else cosine * other[name] + math.sqrt(1 - cosine ** 2) * own)
    return found


def tune(differences, size):
    """Writes the base with the differences added."""
    model, folder = transformers.LlamaForCausalLM.from_pretrained("base"), next(FOLDERS)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight += size * differences[name]
    model.save_pretrained(folder)
    return folder


def read(folder):
    """The differences of a model's query weights from the base."""
    tensors = {name: value for path in pathlib.Path(folder).glob("*.safetensors") for name, value in load_file(path).items()}
    return tensors[NAME].double() - base.state_dict()[NAME].double()


def merge(method, folders, weights=None, **parameters):
    models = [{"model": name, "parameters": {"weight": weight} if weights else {}} for name, weight in zip(folders, weights or folders)]
    config = {"merge_method": method, "base_model": "base", "models": models, "dtype": "float32", "parameters": parameters}
    folder = next(FOLDERS)
    run_merge(MergeConfiguration.model_validate(config), folder, MergeOptions(copy_tokenizer=False, write_model_card=False))
    return read(folder)


def angle(one, other):
    return math.degrees(math.acos((one.flatten() @ other.flatten() / one.norm() / other.norm()).item()))


def slerp(one, other, share, dim):
    """SLERP of the vectors along a dimension."""
    theta = torch.nn.functional.cosine_similarity(one, other, dim=dim).acos().unsqueeze(dim)
    return (torch.sin((1 - share) * theta) * one + torch.sin(share * theta) * other) / torch.sin(theta)


def distance(got, right):
    return ((got - right).norm() / right.norm()).item()


as_seen, first = True, draw(1.0)
for size, right in ((1e-3, True), (6e-4, False), (1e-4, False)):
    folders = [tune(first, size), tune(draw(1 / 3), size)]
    one, other = map(read, folders)
    agree = one * other > 0
    merged = merge("sce", folders)
    shares = torch.linalg.lstsq(torch.stack([one[agree], other[agree]], 1), merged[agree].unsqueeze(1)).solution.flatten().tolist()
    print(f"sce, size {size}: weights {shares[0]:.3f} and {shares[1]:.3f}")
    as_seen = as_seen and abs(shares[0] - (0.9 if right else 0.5)) < 0.01 and abs(sum(shares) - 1) < 0.01

for size, low, high in ((1e-4, 0.66, 0.66), (1e-5, 0.66, 0.3), (1e-6, 0.2, 0.0)):
    folders = [tune(first, size), tune(draw(1.0, first, 0.5), size)]
    mean = sum(map(read, folders)) / 2
    whole, rows = (((merge("model_stock", folders, filter_wise=wise) * mean).sum() / mean.square().sum()).item() for wise in (False, True))
    print(f"model_stock, size {size}: t {whole:.3f}, filter_wise {rows:.3f}")
    as_seen = as_seen and low <= whole < low + 0.05 and high <= rows < high + 0.05

folders, weights = [tune(first, 1e-3), tune(draw(1.0), 1e-3)], (0.9, 0.1)
one, other = map(read, folders)
spherical, multiple = merge("nuslerp", folders, weights), merge("multislerp", folders, weights)
line = weights[0] * one / one.norm() + weights[1] * other / other.norm()
line *= (weights[0] * one.norm() + weights[1] * other.norm()) / line.norm()
print(f"angles to the first: nuslerp {angle(spherical, one):.2f}, multislerp {angle(multiple, one):.2f}")
print(f"multislerp differs from the normalised weighted sum by {distance(multiple, line):.0e}")
as_seen = as_seen and abs(angle(spherical, one) - 9) < 0.1 and abs(angle(multiple, one) - 6.34) < 0.1 and distance(multiple, line) < 1e-4
for row_wise in (True, False):
    got = merge("nuslerp", folders, weights, nuslerp_flatten=False, nuslerp_row_wise=row_wise)
    rows, columns = (distance(got, slerp(one, other, 0.1, dim)) for dim in (1, 0))
    print(f"nuslerp_row_wise {row_wise}: differs from the rows' by {rows:.0e}, from the columns' by {columns:.0e}")
    as_seen = as_seen and (columns if row_wise else rows) < 1e-4 < 1e-3 < (rows if row_wise else columns)
sys.exit(0 if as_seen else "mergekit merges in another way now")
PYTHON
