#!/usr/bin/env bash
# Believed: a maximum over ranks is a maximum: a NaN of any rank either comes through, as in torch.max, or is left out, so that the largest number is found.
# Package: torch 2.15.0 (PyPI), torch.distributed with the backend gloo (that of CPUs).
# Behaviour: neither. all_reduce with MAX or MIN compares two values at a time and keeps the first if the comparison is false, as it is with NaN. As the second of two a NaN
#   is forgotten; as the first it replaces the other, which may be the maximum of all other ranks, and may be forgotten then. Which is first depends on the rank and on the place in the
#   tensor, which is reduced in parts that begin at different ranks. So ranks agree about the result, and within one tensor equal inputs have different maxima. SUM is NaN everywhere.
# Seen, 4 ranks that hold 1, 2, 3, 4 in each of 8 elements, one of them NaN instead (float32, bfloat16, float16 and float64 alike):
#     NaN on rank    MAX                           MIN
#     0              nan nan 4 4 4 4 4 4           nan nan 2 2 3 3 4 4
#     1              1 1 nan nan 4 4 4 4           1 1 nan nan 1 1 1 1
#     2              2 2 2 2 nan nan 4 4           1 1 2 2 nan nan 1 1
#     3              3 3 3 3 3 3 nan nan           1 1 2 2 3 3 nan nan
#   A single number is as the first element: the maximum of 1, NaN, 3, 4 is 1. max() of a DTensor that is sharded over the ranks is 1, that of its full_tensor() is NaN, and
#   torch.nn.utils.get_total_norm with norm_type=inf, the norm that clip_grad_norm_ clips by, is 1 of such gradients where it is NaN of whole ones.
# Matters: a trainer that looks for NaN in the largest gradient of all ranks finds it on rank 0 only; a maximum for a softmax over a sharded vocabulary or a scale for quantisation is
#   too small, also where the NaN itself was meant to be ignored. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import math
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

RANKS, NAN = 4, float("nan")
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SEEN = {("MAX", 0): "n n 4 4 4 4 4 4", ("MAX", 1): "1 1 n n 4 4 4 4", ("MAX", 2): "2 2 2 2 n n 4 4", ("MAX", 3): "3 3 3 3 3 3 n n",
        ("MIN", 0): "n n 2 2 3 3 4 4", ("MIN", 1): "1 1 n n 1 1 1 1", ("MIN", 2): "1 1 2 2 n n 1 1", ("MIN", 3): "1 1 2 2 3 3 n n"}


def reduced(rank, holder, name, kind, count):
    values = torch.full((count,), NAN if rank == holder else rank + 1.0).to(kind)
    dist.all_reduce(values, op=getattr(dist.ReduceOp, name))
    everywhere = [None] * RANKS
    dist.all_gather_object(everywhere, " ".join("n" if math.isnan(value) else f"{value:.0f}" for value in values.tolist()))
    assert len(set(everywhere)) == 1, "ranks do not agree"
    return everywhere[0]


def run(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    as_seen = all(reduced(rank, holder, "SUM", torch.float32, 8) == "n n n n n n n n" for holder in range(RANKS))
    for (name, holder), wanted in SEEN.items():
        found = [reduced(rank, holder, name, kind, 8) for kind in TYPES]
        one = reduced(rank, holder, name, torch.float32, 1)
        as_seen = as_seen and set(found) == {wanted} and one == wanted[0]
        if rank == 0:
            print(f"{name}, NaN on rank {holder}: {found[0]}; of one element {one}")
    mesh = init_device_mesh("cpu", (RANKS,))
    for holder in range(RANKS):
        whole = torch.arange(1.0, RANKS + 1)
        whole[holder] = NAN
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        most, norm = (value.full_tensor().item() for value in (sharded.max(), torch.nn.utils.get_total_norm([sharded], norm_type=math.inf)))
        whole_norm = torch.nn.utils.get_total_norm([whole], norm_type=math.inf).item()
        if rank == 0:
            print(f"DTensor, NaN on rank {holder}: maximum {most}, norm {norm}; not sharded: {whole.max().item()}, {whole_norm}")
        right = math.isnan(whole.max()) and math.isnan(whole_norm)
        as_seen = as_seen and right and (math.isnan(most) and math.isnan(norm) if holder == 0 else most == norm == holder)
    dist.destroy_process_group()
    sys.exit(0 if as_seen else "maxima over ranks are computed in another way now")


torch.multiprocessing.start_processes(run, (sys.argv[1],), RANKS, start_method="fork")
PYTHON
