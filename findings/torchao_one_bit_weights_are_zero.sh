#!/usr/bin/env bash
# Believed: torchao's IntxWeightOnlyConfig takes torch.int1 to torch.int8 ("1 <= x <= 8"), so one bit a weight is coarse, but keeps of each weight which of two values is nearer.
# Packages: torchao 0.18.0, torch 2.15.0 (PyPI).
# Behaviour: with the default, symmetric mapping the scale of one bit is twice the largest size of a weight, so each weight is at most half of a step, which rounds to the even number, 0: all
#   weights of all layers become 0, and a model is its biases. The asymmetric mapping has a step from the least to the largest weight of a group and 0 as its other value, and nearly all become 0
#   as well where a group has both signs. SYMMETRIC_NO_CLIPPING_ERR divides by the largest number of one bit, 0, and makes all weights NaN. With two bits the last, meant to lose less, loses more
#   than the default. Only the algorithm hqq_scale_only keeps signs with one bit. No warning or error comes, at making or at use.
# Seen, weights of a new Linear, groups of 32, size of the error by size of the weights (the same for weights alone and with activations of 8 bits):
#     bits    SYMMETRIC    ASYMMETRIC    SYMMETRIC_NO_CLIPPING_ERR    hqq_scale_only    sign and mean of a group, by hand
#     1       1.000        0.99          NaN                          0.74              0.49
#     2       0.335        0.33          0.46                         0.32
#     3       0.143        0.14          0.15                         0.14
#     4       0.067        0.06          0.07                         0.06
#   A layer quantised by default with one bit gives its bias for each input, to the bit.
# Matters: a sweep over bits shows 1 as worthless, and layers that were chosen for it are cut out of the model. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torchao==0.18.0 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import copy
import math
import sys
import warnings

import torch
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, MappingType, PerAxis, PerGroup, quantize_

GROUP = 32
MAPPINGS = {"SYMMETRIC": MappingType.SYMMETRIC, "ASYMMETRIC": MappingType.ASYMMETRIC, "SYMMETRIC_NO_CLIPPING_ERR": MappingType.SYMMETRIC_NO_CLIPPING_ERR}
torch.manual_seed(0)
layer, rows = torch.nn.Linear(256, 64), torch.randn(5, 256)
weight = layer.weight.detach()


def error(got):
    return ((got - weight).norm() / weight.norm()).item()


def quantized(config):
    model = torch.nn.Sequential(copy.deepcopy(layer))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        quantize_(model, config)
        out = model(rows)
    assert not said, said[0].message
    return error(model[0].weight.dequantize()), out.detach()


errors = {}
for bits in range(1, 9):
    kind = getattr(torch, f"int{bits}")
    for name, mapping in MAPPINGS.items():
        both = [quantized(Int8DynamicActivationIntxWeightConfig(weight_dtype=kind, weight_granularity=PerGroup(GROUP), weight_mapping_type=mapping))[0]]
        if name != "SYMMETRIC_NO_CLIPPING_ERR":
            both.append(quantized(IntxWeightOnlyConfig(weight_dtype=kind, granularity=PerGroup(GROUP), mapping_type=mapping))[0])
        assert len(set(both)) == 1 or all(map(math.isnan, both))
        errors[bits, name] = both[0]
    errors[bits, "hqq"] = quantized(IntxWeightOnlyConfig(weight_dtype=kind, granularity=PerGroup(GROUP), intx_choose_qparams_algorithm="hqq_scale_only"))[0]
    print(f"{bits} bits: " + ", ".join(f"{name} {errors[bits, name]:.3f}" for name in (*MAPPINGS, "hqq")))
groups = weight.reshape(64, -1, GROUP)
by_hand = error((groups.sign() * groups.abs().mean(2, keepdim=True)).reshape(weight.shape))
constant = all(torch.equal(quantized(IntxWeightOnlyConfig(weight_dtype=torch.int1, granularity=parts))[1], layer.bias.detach().expand(5, -1)) for parts in (PerAxis(0), PerGroup(GROUP)))
print(f"1 bit by hand: {by_hand:.3f}; with the default mapping all rows give the bias: {constant}")
as_seen = constant and errors[1, "SYMMETRIC"] == 1 and errors[1, "ASYMMETRIC"] > 0.95 and math.isnan(errors[1, "SYMMETRIC_NO_CLIPPING_ERR"]) and errors[1, "hqq"] < 0.8 and by_hand < 0.55
as_seen = as_seen and errors[2, "SYMMETRIC_NO_CLIPPING_ERR"] > 1.2 * errors[2, "SYMMETRIC"] and all(errors[bits, "SYMMETRIC"] < 0.6 * errors[bits - 1, "SYMMETRIC"] for bits in range(2, 9))
sys.exit(0 if as_seen else "weights of one or two bits are quantised in another way now")
PYTHON
