#!/usr/bin/env bash
# Believed: an adapter that PEFT puts on linear layers is computed in train() and in eval(), and merging it changes nothing.
# Packages: peft 0.21.2, transformers 5.24.0 (which PEFT imports), torch 2.15.0 (PyPI), on a CPU.
# Behaviour: in eval() torch's nn.TransformerEncoderLayer computes by a fast path with linear1.weight and linear2.weight, which of PEFT's layers are the base model's. The fast path is left
#   only where those weights need gradients, and PEFT freezes them: so every pass in eval() is the base model's, with gradients and without, whatever has been trained. Nothing is said.
#   train(), torch.backends.mha.set_fastpath_enabled(False) and the merged model compute the adapter.
# Seen, two layers and a classifier, adapters with random weights; largest differences of the logits to train() without dropout:
#                base model    adapter in eval()    the same in no_grad    without the fast path    merged
#     LoRA       0.97          0.97                 0.97                   0                        4e-07
#     LoHa       0.69          0.69                 0.69                   0                        2e-07
#     OFT        0.55          0.55                 0.55                   0                        2e-07
#     IA3        0.15          0.15                 0.15                   0                        1e-07
#   In eval() all are exactly the base model. A LoRA that is trained on 64 texts to a loss of 0.012 has an accuracy of 0.406 on them in eval(), 1.000 without the fast path.
# Matters: an evaluation during the training measures the model from before it, and chooses and stops by that. The download is large: torch.
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
from torch import nn

warnings.simplefilter("ignore")
torch.set_num_threads(1)
TEXTS = torch.randn(3, 6, 32, generator=torch.Generator().manual_seed(0))
KINDS = {"LoRA": peft.LoraConfig(r=4, target_modules=["linear1", "linear2"]), "LoHa": peft.LoHaConfig(r=4, target_modules=["linear1", "linear2"]),
         "OFT": peft.OFTConfig(oft_block_size=8, target_modules=["linear1", "linear2"]), "IA3": peft.IA3Config(target_modules=["linear1", "linear2"], feedforward_modules=["linear2"])}


class Reader(nn.Module):
    """Two layers of torch's encoder and a classifier."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 2)

    def forward(self, inputs):
        return self.head(self.encoder(inputs).mean(1))


def without(model):
    with torch.no_grad():
        return model(TEXTS)


as_seen = True
for name, config in KINDS.items():
    torch.manual_seed(0)
    base = Reader().eval()
    plain = without(base)
    model = peft.get_peft_model(base, config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.5 * torch.randn_like(weight))
    right, evaluated, fast = model.train()(TEXTS).detach(), model.eval()(TEXTS).detach(), without(model)
    torch.backends.mha.set_fastpath_enabled(False)
    slow = without(model)
    torch.backends.mha.set_fastpath_enabled(True)
    merged = without(model.merge_and_unload())
    errors = [(found - right).abs().max().item() for found in (plain, evaluated, fast, slow, merged)]
    print(f"{name}: to train() without dropout: base model {errors[0]:.2g}, adapter in eval() {errors[1]:.2g}, in eval() and no_grad {errors[2]:.2g}, without the fast path {errors[3]:.2g}, merged {errors[4]:.2g}; "
          f"adapter in eval() to the base model {(fast - plain).abs().max().item():.2g}")
    as_seen = as_seen and min(errors[:3]) > 0.01 and max(errors[3:]) < 1e-4 and (fast - plain).abs().max() < 1e-5

# Trained: the loss that an optimizer sees and the one of an evaluation.
torch.manual_seed(0)
inputs, labels = torch.randn(64, 6, 32), torch.randint(0, 2, (64,))
model = peft.get_peft_model(Reader(), peft.LoraConfig(r=8, target_modules=["linear1", "linear2"]))
optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], 1e-2)
for _ in range(150):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    evaluated = (model(inputs).argmax(1) == labels).float().mean().item()
    torch.backends.mha.set_fastpath_enabled(False)
    slow = (model(inputs).argmax(1) == labels).float().mean().item()
print(f"trained to a loss of {loss.item():.3f}: accuracy in eval() on the same texts {evaluated:.3f}, without the fast path {slow:.3f}")
as_seen = as_seen and slow > 0.95 and evaluated < 0.7
sys.exit(0 if as_seen else "the encoder's fast path treats adapters in another way now")
PYTHON
