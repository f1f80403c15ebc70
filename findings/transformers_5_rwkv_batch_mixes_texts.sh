#!/usr/bin/env bash
# Believed: a prompt that generate() completes in a batch, beside prompts of the same length and so without padding, gets the greedy text that it gets alone. (RWKV ignores attention_mask, as
#   its documentation says, but here there is nothing to mask.)
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: RWKV mixes each token's hidden state with that of the token before. In a pass over one token the latter comes out of the state in shape (batch, hidden), and is added to hidden
#   states of shape (batch, 1, hidden): both are broadcast to (batch, batch, hidden), each text with the past of every text. The layers above take that for a sequence of as many tokens as
#   the batch has texts, run their recurrence over it and keep its end as the state; generate() takes the last place's logits. So from the second new token on every text of a batch goes on
#   from its neighbours' pasts, without an error or a warning. A batch of one text, and use_cache=False, are right.
# Seen, a random RWKV of 4 layers, 3 prompts of 8 tokens, 6 new tokens:
#                                                  alone                       in a batch                  in a batch with another third prompt
#     first prompt                                 18 63 91 61 95 36           18 49 58 13 18 89           18 89 95 36 27 27
#     logits' errors to one pass over the text     4e-07                       0.5 to 0.8 from the second token on
#     hidden states of a step                      (1, 1, 64)                  (3, 3, 64)
# Matters: evaluations and samples of RWKV in batches are texts that the model would not write, and depend on the batch's size and neighbours. The download is large: torch.
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

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
PROMPT, NEW = 8, 6
torch.manual_seed(0)
model = transformers.RwkvForCausalLM(transformers.RwkvConfig(vocab_size=96, hidden_size=64, attention_hidden_size=64, intermediate_size=64, num_hidden_layers=4, context_length=64, bos_token_id=1,
                                                             eos_token_id=2, pad_token_id=0)).eval()
with torch.no_grad():
    for weight in model.parameters():
        if weight.ndim > 1 and weight.std() < 0.05:
            weight.normal_(0, 0.2)
PROMPTS = torch.randint(3, 96, (3, PROMPT), generator=torch.Generator().manual_seed(1))


def texts(prompts, **more):
    found = model.generate(prompts, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, output_logits=True, output_hidden_states=True, return_dict_in_generate=True, **more)
    return found.sequences[:, PROMPT:], torch.stack(found.logits, 1), [tuple(states[0].shape) for states in found.hidden_states]


@torch.no_grad()
def error(sequences, logits, prompts):
    """The largest difference of each step's logits to those of the whole text in one pass, relative to the largest logit."""
    passed = model(torch.cat([prompts, sequences], 1), use_cache=False).logits[:, PROMPT - 1:-1]
    return ((logits - passed).abs().amax((0, 2)) / passed.abs().max()).tolist()


alone = [texts(PROMPTS[row:row + 1]) for row in range(3)]
batch, logits, shapes = texts(PROMPTS)
without, without_logits, _ = texts(PROMPTS, use_cache=False)
other = PROMPTS.clone()
other[2] = PROMPTS[2].flip(0)
beside, _, _ = texts(other)
print("hidden states of a batch:", shapes)
for row in range(3):
    print(f"prompt {row}: alone {alone[row][0][0].tolist()}, in the batch {batch[row].tolist()}, beside another last prompt {beside[row].tolist()}")
print("errors of the logits, alone:", [f"{value:.1g}" for value in error(*alone[0][:2], PROMPTS[:1])])
print("in the batch:", [f"{value:.1g}" for value in error(batch, logits, PROMPTS)])
print("in the batch, use_cache=False:", [f"{value:.1g}" for value in error(without, without_logits, PROMPTS)])

as_seen = shapes == [(3, PROMPT, 64)] + [(3, 3, 64)] * (NEW - 1) and all(max(error(*alone[row][:2], PROMPTS[row:row + 1])) < 1e-4 for row in range(3))
as_seen = as_seen and max(error(without, without_logits, PROMPTS)) < 1e-4 and torch.equal(without, torch.cat([sequences for sequences, _, _ in alone]))
as_seen = as_seen and error(batch, logits, PROMPTS)[0] < 1e-4 and min(error(batch, logits, PROMPTS)[1:]) > 0.1 and not torch.equal(batch, without) and not torch.equal(batch[:2], beside[:2])
sys.exit(0 if as_seen else "RWKV generates from a batch in another way now")
PYTHON
