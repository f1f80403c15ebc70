#!/usr/bin/env bash
# Believed: CTranslate2's converter makes of a model of transformers one with the same logits, or refuses what it lacks, as it does with YaRN.
# Packages: ctranslate2 4.8.5, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: parts of config.json are left out without an error or a warning, and the converted model computes exactly what the original would without them.
#   llama with rope_type llama3, all of Llama 3.1, 3.2 and 3.3: low_freq_factor and high_freq_factor are written, factor is not, and with a factor of 1 no
#   position is scaled. gemma2: no soft caps of attention and logits, no sliding windows, and query_pre_attn_scalar is taken to be head_dim, which is wrong for
#   27B. gemma3: query_pre_attn_scalar likewise, wrong for 27B, and no soft cap of logits. qwen2 and qwen3: no sliding windows. gpt2: scale_attn_weights,
#   scale_attn_by_inverse_layer_idx and layer_norm_epsilon have their defaults.
# Seen, random weights in float32, size of the error of all logits by size of the logits; against transformers without the part it is at most 2e-6 each time:
#     llama, linear positions                             0.000
#     llama, numbers of Llama 3.1, a text of 1000 tokens  0.185
#     gemma2, no caps, no windows                         0.000
#     gemma2, caps of 50 and 30                           0.004
#     gemma2, window of 8                                 0.733
#     gemma2, head_dim 128, scalar 144                    0.049
#     gemma3, head_dim 128, scalar 168                    0.101
#     qwen2, windows of 8 from layer 1                    0.675
#     qwen3, windows of 8 from layer 1                    0.663
#     gemma3, cap of 5 of logits                          0.090
#     gpt2, layer_norm_epsilon 1e-2                       0.087
#     gpt2, no scale of attention                         0.679
#     gpt2, scale by inverse layer                        0.049
# Matters: log-probabilities and texts of the converted model are those of another one; short prompts of Llama 3.1 look right and long ones drift. The download
#   is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps ctranslate2==4.8.5 setuptools==80.9.0 colorama==0.4.6 scipy==1.17.1 \
  accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 \
  nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 \
  nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 \
  tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 \
  rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 charset-normalizer==3.5.3 urllib3==2.8.0
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys
import warnings

import ctranslate2
import numpy
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer, models

torch.set_num_threads(1)
WORDS = Tokenizer(models.WordLevel({f"w{number}": number for number in range(96)}, unk_token="w0"))
TOKENIZER = transformers.PreTrainedTokenizerFast(tokenizer_object=WORDS, unk_token="w0", pad_token="w0", bos_token="w1", eos_token="w2")
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WIDE = {"hidden_size": 512, "num_hidden_layers": 2, "max_position_embeddings": 131072}
PLAIN = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 256, "attn_logit_softcapping": None, "final_logit_softcapping": None}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 5e5}
WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
# The family, what its config holds, what must be taken from that to get CTranslate2's logits, and the tokens of the text.
CASES = {
    "llama, linear positions": ("llama", {"rope_parameters": LINEAR}, {}, 40),
    "llama, numbers of Llama 3.1": ("llama", {**WIDE, "rope_parameters": LLAMA3}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 1000),
    "gemma2, no caps, no windows": ("gemma2", PLAIN, {}, 40),
    "gemma2, caps of 50 and 30": ("gemma2", {**PLAIN, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, PLAIN, 40),
    "gemma2, window of 8": ("gemma2", {**PLAIN, "sliding_window": 8}, PLAIN, 40),
    "gemma2, head_dim 128, scalar 144": ("gemma2", {**PLAIN, "head_dim": 128, "query_pre_attn_scalar": 144}, {"query_pre_attn_scalar": 128}, 40),
    "gemma3, head_dim 128, scalar 168": ("gemma3_text", {**PLAIN, "head_dim": 128, "query_pre_attn_scalar": 168}, {"query_pre_attn_scalar": 128}, 40),
    "qwen2, windows of 8 from layer 1": ("qwen2", WINDOWS, {"use_sliding_window": False}, 40),
    "qwen3, windows of 8 from layer 1": ("qwen3", {"head_dim": 16, **WINDOWS}, {"use_sliding_window": False}, 40),
    "gemma3, cap of 5 of logits": ("gemma3_text", {**PLAIN, "final_logit_softcapping": 5.0}, PLAIN, 40),
    "gpt2, layer_norm_epsilon 1e-2": ("gpt2", {"layer_norm_epsilon": 1e-2}, {"layer_norm_epsilon": 1e-5}, 40),
    "gpt2, no scale of attention": ("gpt2", {"scale_attn_weights": False}, {"scale_attn_weights": True}, 40),
    "gpt2, scale by inverse layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_by_inverse_layer_idx": False}, 40)}


def begin(family, settings):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.data.normal_(0, 0.15 * (64 / weight.shape[-1]) ** 0.5)
    return model


def converted(model, name, text):
    model.save_pretrained(name)
    TOKENIZER.save_pretrained(name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        TransformersConverter(name).convert(f"{name}-converted")
    said = [str(one.message) for one in said if "ctranslate2" in one.filename]
    generator = ctranslate2.Generator(f"{name}-converted", device="cpu", intra_threads=1, compute_type="float32")
    return numpy.array(generator.forward_batch(text.tolist()))[0, :, :96], said


as_seen = True
for name, (family, settings, taken, count) in CASES.items():
    settings = {**({"vocab_size": 96, "n_embd": 64, "n_layer": 4, "n_head": 4} if family == "gpt2" else SMALL), **settings}
    text = torch.randint(3, 90, (1, count), generator=torch.Generator().manual_seed(1))
    model, other = begin(family, settings), begin(family, {**settings, **taken})
    other.load_state_dict(model.state_dict())
    got, said = converted(model, name.replace(",", "").replace(" ", "-"), text)
    with torch.no_grad():
        right, without = (each(text).logits[0].numpy() for each in (model, other))
    errors = [numpy.linalg.norm(got - logits) / numpy.linalg.norm(logits) for logits in (right, without)]
    print(f"{name}: error {errors[0]:.3f}, without the part {errors[1]:.0e}; the converter said {said}")
    as_seen = as_seen and errors[1] < 1e-4 and not said and (errors[0] > 1e-3 if taken else errors[0] < 1e-4)
sys.exit(0 if as_seen else "CTranslate2 converts other parts now")
PYTHON
