#!/usr/bin/env bash
# Believed: "If a FloatTensor is provided, it will be added to the attention weight": a float mask of nn.TransformerEncoder can hold biases, as ALiBi's slopes or relative positions, and a model
#   in eval() computes the same with gradients and without.
# Package: torch 2.15.0 (PyPI), on a CPU.
# Behaviour: in eval() without gradients the encoder takes its fast path, which reads a float mask as a bool one: whatever is not 0 is masked. Masks of 0 and -inf are right, so are 0 and
#   -1e9. Of slopes, where only a token's own place is 0, each token sees itself alone; softer weights of padding are none or all. No warning, and the numbers are plausible. With gradients
#   and with torch.backends.mha.set_fastpath_enabled(False) the biases are added, as in MultiheadAttention called by itself.
# Seen, one layer, 6 tokens; largest errors to the same layer in plain operations:
#     mask                                    with gradients    in no_grad    in no_grad without the fast path    in no_grad, to all but 0 masked
#     causal, 0 and -inf, or bool             2e-07             5e-07         2e-07                               5e-07
#     causal, 0 and -1e9                      2e-07             5e-07         2e-07                               5e-07
#     causal with slopes of -0.5 a place      5e-07             0.95          5e-07                               0
#     distances times -0.5                    4e-07             0.95          4e-07                               0
#     src_key_padding_mask of 0 and -1        4e-07             0.20          4e-07                               5e-07
# Matters: such a model trains with its biases and is evaluated and served as another one. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys
import warnings

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH, HEADS, LENGTH = 16, 2, 6
TEXTS = torch.randn(3, LENGTH, WIDTH)
places = torch.arange(LENGTH)
MASKS = {"causal, 0 and -inf": nn.Transformer.generate_square_subsequent_mask(LENGTH), "the same as bool": torch.ones(LENGTH, LENGTH).triu(1).bool(),
         "causal with slopes -0.5 a place": torch.where(places <= places[:, None], -0.5 * (places[:, None] - places), -torch.inf), "causal, 0 and -1e9": torch.ones(LENGTH, LENGTH).triu(1) * -1e9,
         "distances alone": -0.5 * (places[:, None] - places).abs().float()}


def by_hand(layer, inputs, mask, padding):
    """A layer with its norm behind, in plain operations: the mask is added to the scores, a bool one is -inf."""
    batch = len(inputs)
    query, key, value = (inputs @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).view(batch, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(2, 3) / key.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + (torch.zeros(mask.shape).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask)
    if padding is not None:
        scores = scores + padding[:, None, None]
    mixed = (scores.softmax(3) @ value).transpose(1, 2).reshape(batch, LENGTH, WIDTH)
    inner = layer.norm1(inputs + layer.self_attn.out_proj(mixed))
    return layer.norm2(inner + layer.linear2(layer.linear1(inner).relu()))


def error(found, right):
    return (found - right).abs().max().item() if found.isfinite().all() else float("nan")


layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True).eval()
encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
attention = layer.self_attn
as_seen, told = True, set()
soft = torch.where(torch.arange(LENGTH) >= 4, -1.0, 0.0).repeat(3, 1)
for name, mask in [*MASKS.items(), ("weights of keys by src_key_padding_mask, 0 and -1", None)]:
    padding = soft if mask is None else None
    right = by_hand(layer, TEXTS, mask, padding).detach()
    with_gradients = error(encoder(TEXTS, mask=mask, src_key_padding_mask=padding).detach(), right)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = encoder(TEXTS, mask=mask, src_key_padding_mask=padding)
    told |= {str(warning.message).split(" (")[0] for warning in caught}
    without = error(found, right)
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        slow = error(encoder(TEXTS, mask=mask, src_key_padding_mask=padding), right)
    torch.backends.mha.set_fastpath_enabled(True)
    as_bool = error(found, by_hand(layer, TEXTS, None if mask is None else mask != 0, None if padding is None else torch.where(padding != 0, -torch.inf, 0.0)).detach())
    print(f"{name}: errors with gradients {with_gradients:.2g}, in no_grad {without:.2g}, in no_grad without the fast path {slow:.2g}; in no_grad to all but 0 being masked {as_bool:.2g}")
    plain = name in ("causal, 0 and -inf", "the same as bool", "causal, 0 and -1e9")
    as_seen = as_seen and max(with_gradients, slow) < 1e-5 and (without < 1e-5 if plain else not without < 0.05)
print("warnings:", told)
with torch.no_grad():
    mask = MASKS["causal with slopes -0.5 a place"]
    direct = attention(TEXTS, TEXTS, TEXTS, attn_mask=mask, need_weights=False)[0]
right = attention(TEXTS, TEXTS, TEXTS, attn_mask=mask, need_weights=False)[0].detach()
print(f"MultiheadAttention by itself: {error(direct, right):.2g}")
sys.exit(0 if as_seen else "the encoder's fast path treats masks in another way now")
PYTHON
