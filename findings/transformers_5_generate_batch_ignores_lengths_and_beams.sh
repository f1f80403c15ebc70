#!/usr/bin/env bash
# Believed: generate_batch() of transformers, its continuous batching, makes of each prompt what generate() makes of it with the same GenerationConfig, or says what it leaves out, as it does of
#   repetition_penalty ("isn't supported by CB. Dropping it."); a model that it cannot run fails.
# Packages: transformers 5.24.0, torch 2.15.0 (PyPI), on CPUs.
# Behaviour: min_new_tokens and min_length do nothing, since the processors of both are only made where generate() has prepared the end tokens; num_beams does nothing; max_length does nothing,
#   and without max_new_tokens a text goes on to its end token, however far. None of them is told of. Where none of these is set, the greedy texts of 40 families were equal.
#   Models that keep their past in another way, RWKV, or in none, the first GPT (openai-gpt), get no error either: after the prompt each token is computed of the last token alone. In a
#   batch their texts depend on the other prompts as well, which are packed into the same row.
# Seen, prompts of 3, 9, 17, 6 and 12 tokens, at most 20 new ones: tokens that generate() and generate_batch() make:
#     min_new_tokens 20    llama               20, 20, 20, 20, 20    3, 5, 1, 2, 2, as without it
#     min_length 20        llama               20, 20, 8, 20, 9      3, 5, 1, 2, 2, as without it
#     max_length 18        llama, prompt of 9  9                     142, up to its end token
#     num_beams 3          llama               4 of 5 texts differ; those of generate_batch() are the greedy ones
#     as it is             rwkv, openai-gpt    5 of 5 differ; those of one prompt alone are those of a model that sees one token, and 4 are others in a batch
#   What it says of the last two is that their attention implementation cannot be set.
# Matters: rollouts and evaluations by generate_batch (TRL's use_transformers_continuous_batching makes them so) hold texts that are too short, too long or of another search; results of the
#   models without such a cache are noise. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 psutil==7.2.2 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import sys
import warnings

import torch
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "tie_word_embeddings": False}
CONFIGS = {"llama": transformers.LlamaConfig(**SMALL), "rwkv": transformers.RwkvConfig(**SMALL, attention_hidden_size=32),
           "openai-gpt": transformers.OpenAIGPTConfig(n_embd=32, n_layer=2, n_head=4, n_positions=128, vocab_size=64)}
ENDS, FEW, LONGEST = [*range(2, 20), 63], [*range(2, 9), 63], 20
generator = torch.Generator().manual_seed(1)
PROMPTS = [torch.randint(2, 60, (count,), generator=generator).tolist() for count in (3, 9, 17, 6, 12)]


class Said(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


said = Said()
logging.getLogger("ContinuousBatchingLogger").addHandler(said)


def begin(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.data.normal_(std=1.5 * weight.shape[-1] ** -0.5)
    return model


def both(model, prompts, **settings):
    """Returns the texts of generate(), one at a time, and of generate_batch(), and what the latter said."""
    config = GenerationConfig(**{"max_new_tokens": LONGEST, "do_sample": False, "eos_token_id": 63, "pad_token_id": 0, **settings})
    model.generation_config = config
    single = [model.generate(torch.tensor([prompt]), generation_config=config)[0, len(prompt):].tolist() for prompt in prompts]
    said.lines.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = model.generate_batch(inputs=prompts, generation_config=config, continuous_batching_config=ContinuousBatchingConfig(page_size=8, num_blocks=60, max_batch_tokens=64))
    return single, [list(found[f"req_{place}"].generated_tokens) for place in range(len(prompts))], said.lines + [str(one.message) for one in warned]


def by_last_token(model, prompt, positions):
    """The text where each token but the first is computed of the one before it alone."""
    text = [model(torch.tensor([prompt])).logits[0, -1].argmax().item()]
    while len(text) < LONGEST and text[-1] != 63:
        place = {"position_ids": torch.tensor([[len(prompt) + len(text) - 1]])} if positions else {}
        text.append(model(torch.tensor([text[-1:]]), **place).logits[0, -1].argmax().item())
    return text


def lengths(texts):
    return [len(text) for text in texts]


model = begin("llama")
greedy, as_is, lines = both(model, PROMPTS)
ended, as_ended, _ = both(model, PROMPTS, eos_token_id=ENDS)
dropped = both(model, PROMPTS, repetition_penalty=1.5)[2]
as_seen = greedy == as_is and ended == as_ended and not lines and any("Dropping" in line for line in dropped)
print(f"end tokens alone: {lengths(ended)} and {lengths(as_ended)} tokens; repetition_penalty: {dropped}")
for name in ("min_new_tokens", "min_length"):
    single, batch, lines = both(model, PROMPTS, eos_token_id=ENDS, **{name: 20})
    print(f"{name} 20: {lengths(single)} and {lengths(batch)} tokens; said: {lines}")
    as_seen = as_seen and single != batch and batch == ended and not lines
single, batch, lines = both(model, PROMPTS[1:2], eos_token_id=FEW, max_length=18, max_new_tokens=None)
print(f"max_length 18 behind a prompt of 9: {lengths(single)} and {lengths(batch)} tokens; said: {lines}")
as_seen = as_seen and lengths(single) == [9] and len(batch[0]) > 100 and batch[0][:9] == single[0] and batch[0][-1] in FEW and not lines
single, batch, lines = both(model, PROMPTS, num_beams=3)
print(f"num_beams 3: {sum(one != other for one, other in zip(single, batch))} texts differ, of generate_batch's {sum(one == other for one, other in zip(greedy, batch))} are greedy; said: {lines}")
as_seen = as_seen and single != batch and batch == greedy and not lines
for name in ("rwkv", "openai-gpt"):
    model = begin(name)
    single, batch, lines = both(model, PROMPTS)
    alone = [both(model, [prompt])[1][0] for prompt in PROMPTS]
    last = [by_last_token(model, prompt, name == "openai-gpt") for prompt in PROMPTS]
    equal = [sum(one == other for one, other in zip(alone, texts)) for texts in (single, last, batch)]
    print(f"{name}: of {len(PROMPTS)} texts of one prompt each {equal[0]} are generate()'s, {equal[1]} those by the last token, {equal[2]} those of a batch; said: {lines}")
    as_seen = as_seen and equal[:2] == [0, len(PROMPTS)] and equal[2] < len(PROMPTS) and not lines
sys.exit(0 if as_seen else "generate_batch does or says something else now")
PYTHON
