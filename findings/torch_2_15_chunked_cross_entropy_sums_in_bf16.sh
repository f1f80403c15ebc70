#!/usr/bin/env bash
# Believed: torch.nn.functional.linear_cross_entropy with LinearCrossEntropyOptions is the same loss in less memory: the head is applied to some rows
#   at a time, and what is summed over the pieces is summed in float32. The documentation says so of bfloat16 inputs: acc_dtype, the type of
#   internal accumulation, becomes float32 by itself.
# Package: torch 2.15.0 (PyPI), on a CPU. The sums are made in Python, the same lines for all devices.
# Behaviour: softmax and the products of a piece are in float32. The loss itself and the gradient of the head's weight are kept in bfloat16 and
#   rounded after every piece, also with acc_policy="accurate" and acc_dtype=torch.float32. Once a piece is less than half a step of the sum it
#   adds nothing. Without a gradient it is so, too. float16 keeps the loss in float32, and reduction="none" has nothing to sum: both are right.
# Seen with 4096 rows, 2048 words and a loss of 8.252 (gradient: relative error of the head's; that of the inputs is 0.0017 throughout):
#     rows a piece      4096     256     16      4            float16, 16 rows: 8.25     "none", 16 rows, mean of the rows: 8.252
#     loss              8.25    8.31    8.0    2.0
#     gradient         0.002   0.005  0.035  0.059
#   With 64 features and 8192 words (the ratio of a language model's head, 128) the default options make 11.25 of a loss of 10.23.
# Matters: a training in bfloat16 shows a loss that depends on the size of the pieces, and learns the head from a coarser gradient; a perplexity that
#   is taken of the loss is wrong by a factor. The download is large: torch.
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

import torch
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import cross_entropy, linear_cross_entropy


def problem(features, words):
    torch.manual_seed(0)
    rows, head = torch.randn(4096, features).bfloat16(), (0.2 * torch.randn(words, features)).bfloat16()
    return rows, head, torch.randint(0, words, (4096,))


def loss_and_gradients(rows, head, loss):
    rows, head = rows.clone().requires_grad_(), head.clone().requires_grad_()
    value = loss(rows, head)
    value.backward()
    return value.item(), rows.grad.float(), head.grad.float()


def pieces(count):
    return LinearCrossEntropyOptions(batch_chunk_size=count, chunking_method=None, acc_policy="accurate", acc_dtype=torch.float32)


def error(got, right):
    return ((got - right).norm() / right.norm()).item()


rows, head, words = problem(32, 2048)
right = loss_and_gradients(rows.float(), head.float(), lambda x, w: cross_entropy(x @ w.T, words))
print(f"the loss in float32 is {right[0]:.3f}")
off, coarse = {}, {}
for count in (4096, 256, 16, 4):
    got = loss_and_gradients(rows, head, lambda x, w: linear_cross_entropy(x, w, words, options=pieces(count)))
    off[count], coarse[count] = abs(got[0] / right[0] - 1), error(got[2], right[2])
    print(f"{count} rows a piece: loss {got[0]:.3f}, error of the gradients: inputs {error(got[1], right[1]):.4f}, head {coarse[count]:.4f}")
half = linear_cross_entropy(rows.half(), head.half(), words, options=pieces(16)).item()
each = linear_cross_entropy(rows, head, words, options=pieces(16), reduction="none").float().mean().item()
print(f"16 rows a piece in float16: {half:.3f}; the mean of the rows of reduction='none': {each:.3f}")
rows, head, words = problem(64, 8192)
default, true = linear_cross_entropy(rows, head, words, options=LinearCrossEntropyOptions()).item(), cross_entropy(rows.float() @ head.float().T, words).item()
print(f"default options, 64 features and 8192 words: {default:.3f} of {true:.3f}")
as_seen = off[4096] < 0.005 and off[16] > 0.02 and off[4] > 0.5 and coarse[4096] < 0.005 and coarse[4] > 0.03 and abs(default / true - 1) > 0.03
others_right = max(abs(half / right[0] - 1), abs(each / right[0] - 1)) < 0.005
sys.exit(0 if as_seen and others_right else "the loss by pieces is summed in another way now")
PYTHON
