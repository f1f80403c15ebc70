#!/usr/bin/env bash
# Believed: the 4-bit weights of bitsandbytes are cut into blocks over all numbers of a matrix, row after row, and what comes back is off by the rounding to 16 levels, whatever
#   the shape: blocks that go over the end of a row are as good as others.
# Packages: bitsandbytes 0.50.2, torch 2.15.0 (PyPI), on a CPU with AVX-512, which this needs.
# Behaviour: where the length of a row is a multiple of 16, this CPU's way back to floats takes length / blocksize, rounded down, as the number of scales of a row. If blocks go over the ends of rows
#   (64, the default, and rows of 32, 80 or 96) the second row and all that follow begin at a scale of an earlier row; with rows shorter than a block all take the first row's. The bytes are
#   right: the same bytes and scales, named a vector, come back right. Linear4bit computes with the wrong numbers. No error, no warning. Blocks of 2048 and 4096 take another way and are right.
# Seen with 64 rows, each larger than the one before by 5 per cent, nf4, relative errors: of the matrix and the vector that come back, of the matrix against this account of its scales, and of
#   Linear4bit against a product with the vector's numbers:
#     blocks of     rows of     matrix     vector     account     Linear4bit
#     64            128         0.093      0.093                  0
#     64            100         0.094      0.094                  0
#     64            32          0.88       0.091      2e-08       0.87
#     64            80          0.42       0.092      2e-08       0.41
#     64            96          0.59       0.095      2e-08       0.60
#     64            160         0.44       0.092      2e-08       0.42
#     64            1376        0.25       0.092      2e-08       0.23
#     128           64          0.90       0.096      2e-08       0.90
#     128           192         0.58       0.096      3e-08       0.56
#     1024          512         0.90       0.106      2e-08       0.90
#     2048          512         0.11       0.11                   0
# Matters: a layer with such a number of inputs, or one of ordinary width with larger blocks, is another layer on such a CPU than the file says. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps bitsandbytes==0.50.2 packaging==26.4 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys

import bitsandbytes
import torch
from bitsandbytes import functional

if torch.backends.cpu.get_cpu_capability() != "AVX512":
    sys.exit("this CPU has no AVX-512, and the behaviour is that of CPUs with it")
torch.set_num_threads(1)


def error(got, right):
    return ((got - right).norm() / right.norm()).item()


def linear(weight, size):
    layer = bitsandbytes.nn.Linear4bit(weight.shape[1], weight.shape[0], bias=False, compute_dtype=torch.float32, quant_type="nf4")
    layer.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", blocksize=size, compress_statistics=False)
    return layer.to("cpu")


RIGHT, WRONG = [(64, 128), (64, 100), (2048, 512)], [(64, 32), (64, 80), (64, 96), (64, 160), (64, 1376), (128, 64), (128, 192), (1024, 512)]
as_seen = True
for size, length in RIGHT + WRONG:
    torch.manual_seed(0)
    weight = torch.randn(64, length) * 1.05 ** torch.arange(64)[:, None]
    packed, state = functional.quantize_4bit(weight, blocksize=size, quant_type="nf4")
    matrix = functional.dequantize_4bit(packed, state)
    vector = torch.ops.bitsandbytes.dequantize_4bit(packed, state.absmax, size, "nf4", (weight.numel(),), torch.float32).view_as(weight)
    place, row = torch.arange(weight.numel()).view_as(weight), torch.arange(64)[:, None]
    account = vector / state.absmax[place // size] * state.absmax[row * (length // size) + torch.arange(length) // size]
    off, vector_off, to_account = error(matrix, weight), error(vector, weight), error(account, matrix)
    rows = torch.randn(8, length)
    layer_off = error(linear(weight, size)(rows), rows @ vector.T)
    print(f"seen blocks of {size}, rows of {length}: error as a matrix {off:.3f}, as a vector {vector_off:.3f}; matrix to the account {to_account:.1g}; Linear4bit {layer_off:.2g}")
    as_seen = as_seen and vector_off < 0.15 and (off < 0.15 and layer_off < 1e-4 if (size, length) in RIGHT else off > 0.2 and layer_off > 0.2 and to_account < 1e-5)
sys.exit(0 if as_seen else "4-bit weights come back in another way now")
PYTHON
