#!/usr/bin/env bash
# Believed: an operation on a DTensor gives what it gives on the whole tensor, or an error that it is not supported; placements are no part of the mathematics.
# Package: torch 2.15.0 (PyPI), torch.distributed.tensor.
# Behaviour: for operations without a rule of their own, 2.15 finds the placements by following their decomposition at the size of the whole tensor, and then runs the operation itself, not
#   decomposed, on each rank's part. Where it divides by the number of elements, that is the number of the part. The mean of mse_loss, huber_loss, smooth_l1_loss, binary_cross_entropy and
#   soft_margin_loss has a gradient that is too large by the number of ranks though the loss is right: in what was followed, the whole number is a constant, so nothing divides by the ranks.
#   With rows that the ranks do not divide, the loss is the mean of the ranks' means, that of binary_cross_entropy_with_logits (whose gradient is right), too, and each rank's rows are scaled
#   in another way; with a rank that has no rows it is NaN. reduction="sum", reduction="none" with mean(), l1_loss, kl_div, cross_entropy and the same formula written out are right.
# Seen, 4 ranks, inputs with Shard(0), targets so, too: loss, and the factor by which the gradient of the first and of the last row is too large:
#                                        8 rows (2 each)                10 rows (3, 3, 3, 1)
#                                        loss      right     factors    loss      right     factors
#     mse_loss                           2.3178    2.3178    4, 4       2.2683    1.7827    3.33, 10
#     huber_loss, smooth_l1_loss         0.8020    0.8020    4, 4       0.7571    0.6407    3.33, 10
#     binary_cross_entropy               0.8307    0.8307    4, 4       0.8066    0.7719    3.33, 10
#     soft_margin_loss                   0.8875    0.8875    4, 4       0.8146    0.7800    3.33, 10
#     ..._with_logits                    0.8307    0.8307    1, 1       0.8066    0.7719    1, 1
#     ((x - y) ** 2).mean()              2.3178    2.3178    1, 1       1.7827    1.7827    1, 1
#   The gradient of a replicated weight before it, as in data parallelism by DTensor, is 4 times the right one as well.
# Matters: a value head, a reward model or a distillation of hidden states by mse_loss trains with another learning rate on each number of devices, while all logged losses agree with one
#   device. The ranks are those of torch's LocalTensorMode, all in one process; 4 processes with gloo had the same factor of 4, and means of means, too.
#   The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

RANKS = 4
# The losses, what they are of inputs x and targets y, elementwise, and the slope of that in x.
SIGMOID = lambda x: 1 / (1 + numpy.exp(-x))
CROSS = (lambda x, y: numpy.log1p(numpy.exp(x)) - x * SIGMOID(y), lambda x, y: SIGMOID(x) - SIGMOID(y))
HUBER = (lambda x, y: numpy.where(abs(x - y) < 1, (x - y) ** 2 / 2, abs(x - y) - 0.5), lambda x, y: numpy.clip(x - y, -1, 1))
SQUARE = (lambda x, y: (x - y) ** 2, lambda x, y: 2 * (x - y))
MARGIN = (lambda x, y: numpy.log1p(numpy.exp(-numpy.sign(y) * x)), lambda x, y: -numpy.sign(y) * SIGMOID(-numpy.sign(y) * x))
LOSSES = {"mse_loss": (F.mse_loss, *SQUARE), "huber_loss": (F.huber_loss, *HUBER), "smooth_l1_loss": (F.smooth_l1_loss, *HUBER),
          "binary_cross_entropy": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), *CROSS),
          "soft_margin_loss": (lambda x, y: F.soft_margin_loss(x, y.sign()), *MARGIN),
          "binary_cross_entropy_with_logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), *CROSS),
          "written out": (lambda x, y: ((x - y) ** 2).mean(), *SQUARE),
          "mse_loss, sum": (lambda x, y: F.mse_loss(x, y, reduction="sum") / x.numel(), *SQUARE),
          "mse_loss, none": (lambda x, y: F.mse_loss(x, y, reduction="none").mean(), *SQUARE)}
WRONG = list(LOSSES)[:5]


def whole(value):
    return value.full_tensor().reconcile().detach().double().numpy()


def look(mesh, name, shape):
    loss, each, slope = LOSSES[name]
    torch.manual_seed(0)
    x, y = torch.randn(shape), torch.randn(shape)
    inputs, targets = (distribute_tensor(value, mesh, [Shard(0)], src_data_rank=None).detach() for value in (x, y))
    inputs.requires_grad_()
    value = loss(inputs, targets)
    value.full_tensor().backward()
    x, y = x.double().numpy(), y.double().numpy()
    factors = whole(inputs.grad) / (slope(x, y) / x.size)
    assert all(numpy.ptp(row) < 1e-3 * abs(row).max() for row in factors)
    right, found, first, last = each(x, y).mean(), float(whole(value)), factors[0, 0], factors[-1, 0]
    print(f"{name}, {shape[0]} rows: loss {found:.4f}, right {right:.4f}; gradient of the first row {first:.3g} times, of the last {last:.3g} times the right one")
    return abs(found - right) < 1e-5, first, last


def weight_factor(mesh, loss):
    torch.manual_seed(0)
    inputs, targets, weight = torch.randn(8, 3), torch.randn(8, 4), torch.randn(3, 4)
    parts = [distribute_tensor(value, mesh, [Shard(0)], src_data_rank=None).detach() for value in (inputs, targets)]
    head = distribute_tensor(weight, mesh, [Replicate()], src_data_rank=None).detach().requires_grad_()
    loss(parts[0] @ head, parts[1]).full_tensor().backward()
    right = 2 * inputs.T.double() @ (inputs.double() @ weight.double() - targets) / targets.numel()
    factors = whole(head.grad) / right.numpy()
    assert numpy.ptp(factors) < 1e-3
    return factors.mean()


def close(got, wanted):
    return all(abs(one / other - 1) < 1e-3 for one, other in zip(got, wanted, strict=True))


dist.init_process_group("fake", rank=0, world_size=RANKS)
as_seen = True
with LocalTensorMode(frozenset(range(RANKS))):
    mesh = init_device_mesh("cpu", (RANKS,))
    for name in LOSSES:
        even, uneven = look(mesh, name, (8, 4)), look(mesh, name, (10, 6))
        as_seen = as_seen and even[0] and uneven[0] == (name not in WRONG and "logits" not in name)
        as_seen = as_seen and close(even[1:], (4, 4) if name in WRONG else (1, 1)) and close(uneven[1:], (10 / 3, 10) if name in WRONG else (1, 1))
    wrong, right = weight_factor(mesh, F.mse_loss), weight_factor(mesh, LOSSES["written out"][0])
    print(f"a replicated weight before mse_loss: gradient {wrong:.3g} times the right one, before the formula written out {right:.3g} times")
    as_seen = as_seen and close((wrong, right), (4, 1))
sys.exit(0 if as_seen else "losses of DTensors are computed in another way now")
PYTHON
