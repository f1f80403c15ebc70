#!/usr/bin/env bash
# Believed: fused=True makes an optimizer faster and changes no update. Where strides of a weight, its gradient and its states differ, each number still goes to its place, as with foreach
#   and the plain loop; or there is an error, as from the fused Adam on GPUs ("must have same dtype, device, and layout").
# Package: torch 2.15.0 (PyPI), on a CPU.
# Behaviour: on a CPU the fused SGD, Adam, AdamW and Adagrad go through the four memories in parallel and do not look at strides. Where they differ, a weight is updated by another element's
#   gradient or momentum, without an error. backward() gives gradients with the weight's strides, so that is all right; but not torch.autograd.grad, whose result may be a transposed
#   tensor, nor a model that becomes channels_last after its optimizer's first step or is channels_last when the optimizer's states of a plain one are loaded.
# Seen, 4 steps with learning rate 0.05, the largest difference of a weight to the plain loop; foreach has 0 everywhere:
#     fused                                                            SGD, momentum    Adam     AdamW    Adagrad
#     weight.grad, = torch.autograd.grad(loss of an einsum, weight)    0.29             0.40     0.40     0.30
#     .to(memory_format=torch.channels_last) behind two steps          0.014            0.14     0.14     0.035
#     states of a plain model loaded for one in channels_last          0.014            0.14     0.14     0.035
#     channels_last from the beginning                                 0                2e-08    2e-08    8e-09
#   A single step of SGD is exactly the step with the gradient's numbers in the order in which they lie in memory.
# Matters: such a training goes on with updates that are not its gradient's and says nothing. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import io
import sys

import torch
from torch import nn

torch.set_num_threads(1)
OPTIMIZERS = {"SGD, momentum": lambda weights, **more: torch.optim.SGD(weights, 0.05, momentum=0.9, **more), "Adam": lambda weights, **more: torch.optim.Adam(weights, 0.05, **more),
              "AdamW": lambda weights, **more: torch.optim.AdamW(weights, 0.05, **more), "Adagrad": lambda weights, **more: torch.optim.Adagrad(weights, 0.05, **more)}
GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, INPUTS, IMAGES = (torch.randn(*shape, generator=GENERATOR) for shape in ((16, 8), (5, 8), (4, 3, 10, 10)))


def by_autograd_grad(make, kind):
    """A layer written as an einsum, its gradient from torch.autograd.grad: a tensor of the weight's shape whose strides are those of the transposed one."""
    weight = nn.Parameter(WEIGHT.clone())
    optimizer = make([weight], **kind)
    for _ in range(4):
        weight.grad, = torch.autograd.grad((torch.einsum("bi,oi->bo", INPUTS, weight) ** 2).mean(), weight)
        optimizer.step()
    return weight.detach(), (weight.stride(), weight.grad.stride())


def by_moving(make, kind, load=False, always=False):
    """A convolution that becomes channels_last between two steps, or is loaded with its optimizer from files of a plain one; always: from its beginning, as all states then are."""
    def layer():
        torch.manual_seed(1)
        return nn.Conv2d(3, 8, 3)

    model = layer().to(memory_format=torch.channels_last) if always else layer()
    optimizer = make(model.parameters(), **kind)
    for step in range(4):
        if step == 2 and load:
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            weights, states = torch.load(file)
            model = layer().to(memory_format=torch.channels_last)
            model.load_state_dict(weights)
            optimizer = make(model.parameters(), **kind)
            optimizer.load_state_dict(states)
        elif step == 2 and not always:
            model.to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        (model(IMAGES) ** 2).mean().backward()
        optimizer.step()
    state = next(value for value in optimizer.state[model.weight].values() if torch.is_tensor(value) and value.ndim == 4)
    return model.weight.detach().contiguous(), (model.weight.stride(), state.stride())


CASES = {"gradient of torch.autograd.grad": by_autograd_grad, "channels_last between two steps": by_moving, "channels_last and loaded states": lambda make, kind: by_moving(make, kind, load=True),
         "channels_last from the beginning": lambda make, kind: by_moving(make, kind, always=True)}
as_seen = True
for case, train in CASES.items():
    for name, make in OPTIMIZERS.items():
        plain, foreach, (fused, strides) = train(make, {"foreach": False})[0], train(make, {"foreach": True})[0], train(make, {"fused": True})
        error, other = ((result - plain).abs().max().item() for result in (fused, foreach))
        print(f"{case}, {name}: strides {strides[0]} and {strides[1]}; largest difference of a weight to the plain loop: foreach {other:.2g}, fused {error:.2g}")
        as_seen = as_seen and other < 1e-6 and ((error < 1e-6) if case.endswith("beginning") else error > 1e-3)

# The oracle: one step of SGD by hand. The fused one takes the gradient's numbers in the order in which they lie in memory.
gradient = torch.randn(16, 8, generator=GENERATOR).t().contiguous().t()
weight = nn.Parameter(WEIGHT.clone())
weight.grad = gradient
torch.optim.SGD([weight], 0.5, fused=True).step()
right, shuffled = WEIGHT - 0.5 * gradient, WEIGHT - 0.5 * gradient.t().reshape(16, 8)
print(f"one step of SGD: error to weight - lr * gradient {(weight - right).abs().max().item():.2g}, to the same with the gradient's numbers in memory's order {(weight - shuffled).abs().max().item():.2g}")
as_seen = as_seen and (weight - right).abs().max() > 0.1 and (weight - shuffled).abs().max() < 1e-6
sys.exit(0 if as_seen else "fused optimizers on CPUs treat strides in another way now")
PYTHON
