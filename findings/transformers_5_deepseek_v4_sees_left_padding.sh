#!/usr/bin/env bash
# Believed: attention_mask hides a batch's padding. A text that is padded on the left, as generate() wants a batch of prompts, has the logits that it has alone, whatever the pad id is.
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), eager attention on a CPU.
# Behaviour: layers of DeepSeek V4 with compressed keys (compressed_sparse_attention, heavily_compressed_attention) make one key of each 4 or 8 places in a row, counted from the row's
#   beginning. The mask does not reach them: embeddings of pad tokens are part of those keys, and the text's own tokens fall into other groups. Nothing warns. Padding on the right is hidden,
#   and so is padding on the left in layers of kind sliding_attention and in other models.
# Seen with 24 tokens, 6 pads and two layers of a kind; errors relative to the largest logit:
#                                       pads on the left   on the right   another pad id on the left   greedy tokens that differ, padded on the left and alone
#     sliding_attention                 4.7e-07            1.2e-06        0                            0 of 16
#     compressed_sparse_attention       0.80               5.9e-07        0.99                         16 of 16
#     heavily_compressed_attention      0.89               5.7e-07        0.66                         15 of 16
#     (Llama)                           7.5e-07            0              0                            0 of 16
# Matters: in a batch of prompts of several lengths all but the longest get other texts and log-probabilities than alone, and others again with another neighbour. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys

import torch
import transformers

torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 32, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
         "q_lora_rank": 32, "o_lora_rank": 32, "o_groups": 2, "index_n_heads": 2, "index_head_dim": 32, "index_topk": 64, "sliding_window": 8, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2, "initializer_range": 0.2, "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}}
PADS, TEXT = 6, torch.randint(3, 96, (1, 24), generator=torch.Generator().manual_seed(0))


def make(name, **more):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **{**SMALL, **more})).eval()


@torch.no_grad()
def errors(model):
    """Relative to the largest logit: padded on the left, on the right, and the left pads' other id alone."""
    alone = model(TEXT, use_cache=False).logits
    ones, zeros, most = torch.ones_like(TEXT), torch.zeros(1, PADS, dtype=torch.long), alone.abs().max()
    left, mask = torch.cat([zeros, TEXT], 1), torch.cat([zeros, ones], 1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    padded = model(left, attention_mask=mask, position_ids=places, use_cache=False).logits[:, PADS:]
    other = model(torch.cat([zeros + 5, TEXT], 1), attention_mask=mask, position_ids=places, use_cache=False).logits[:, PADS:]
    right = model(torch.cat([TEXT, zeros], 1), attention_mask=torch.cat([ones, zeros], 1), use_cache=False).logits[:, :-PADS]
    model.generation_config.eos_token_id = None
    words = [model.generate(ids, attention_mask=seen, max_new_tokens=16, do_sample=False, pad_token_id=0)[0, ids.shape[1]:] for ids, seen in ((TEXT, ones), (left, mask))]
    return [(words[0] != words[1]).sum().item()] + [((one - two).abs().max() / most).item() for one, two in ((padded, alone), (right, alone), (other, padded))]


as_seen = True
for name, layers in (("deepseek_v4", "sliding_attention"), ("deepseek_v4", "compressed_sparse_attention"), ("deepseek_v4", "heavily_compressed_attention"), ("llama", None)):
    words, left, right, other = errors(make(name, **({"layer_types": 2 * [layers]} if layers else {"num_key_value_heads": 2, "intermediate_size": 64})))
    print(f"seen {name}, {layers}: padded on the left {left:.2g}, on the right {right:.2g}, another pad id on the left {other:.2g}; {words} of 16 written tokens differ")
    joined = layers is not None and "compressed" in layers
    as_seen = as_seen and right < 1e-4 and (words > 0) == joined and (left > 0.01 and other > 0.01 if joined else left < 1e-4 and other < 1e-4)
sys.exit(0 if as_seen else "padding counts in another way now")
PYTHON
