#!/usr/bin/env bash
# Believed: texts that are packed into one row, with position_ids that begin at 0 for each, do not see each other: transformers' masks find the borders by the positions for sdpa and
#   eager attention, too. use_cache changes speed alone. TRL's packing gives the loss of the same texts with padding.
# Packages: transformers 5.24.0, trl 1.16.0, torch 2.15.0 (PyPI), sdpa on a CPU.
# Behaviour: the borders are looked for only where no cache is made. use_cache is true by default in the configs, in eval() and train(), so a plain call of a Llama with position_ids joins
#   the texts. The trainers of transformers and TRL turn it off. Some families join the texts all the same, without an error or a warning: AFMoE and OPT do not hand the positions to the
#   mask (so do BioGPT and XGLM), Jamba's, MiniMax' and RecurrentGemma's states and convolutions run on into the next text. TRL's SFTTrainer takes all of them with packing=True,
#   and passes them seq_idx and cu_seq_lens as well. (Qwen3-Next and other hybrids refuse seq_idx on this device with an error.)
# Seen with 8 texts; the error is that of the second of two packed texts, relative to its largest logit:
#                        error   use_cache=False   SFTTrainer, padded: loss, norm of the gradient   packing=True
#     llama              1.1     6.5e-07           5.700, 8.669                                     5.700, 8.669
#     afmoe              1.1     1.1               6.120, 5.209                                     6.054, 4.806
#     opt                1.4     1.4               6.005, 4.290                                     5.673, 5.074
#     jamba              1.2     1.0               5.869, 40.947                                    6.099, 33.117
#     minimax            1.3     1.3               5.944, 29.827                                    5.785, 28.557
#     recurrent_gemma    0.62    0.42              4.590, 2.493                                     4.586, 2.639
# Matters: log-probabilities and teacher's logits of packed texts, and a training on them, depend on which texts stand beside each other. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps trl==1.16.0 accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0 datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 python-dateutil==2.9.0.post0 six==1.17.0 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 \
  aiohttp==3.14.5 aiohappyeyeballs==2.7.1 aiosignal==1.4.0 attrs==26.1.0 frozenlist==1.8.0 multidict==7.2.1 propcache==0.5.4 yarl==1.25.1
"$folder/venv/bin/python" - "$folder/out" 2> "$folder/log" <<'PYTHON' | grep "^seen " || { cat "$folder/log"; exit 1; }
import sys

import datasets
import torch
import transformers
import trl
from tokenizers import Tokenizer, models

datasets.disable_progress_bars()
torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "ffn_dim": 64,
         "max_position_embeddings": 256, "sliding_window": 64, "attention_window_size": 64, "lru_width": 64, "word_embed_proj_dim": 64, "num_experts": 4, "num_local_experts": 4,
         "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mamba_d_state": 16, "mamba_dt_rank": 8, "attn_layer_period": 2, "attn_layer_offset": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES = ("llama", "afmoe", "opt", "jamba", "minimax", "recurrent_gemma")
GENERATOR = torch.Generator().manual_seed(0)
TEXTS = [torch.randint(3, 96, (length,), generator=GENERATOR).tolist() for length in (7, 9, 12, 5, 14, 11, 6, 20)]
TOKENIZER = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({f"w{i}": i for i in range(96)}, unk_token="w0")), pad_token="w0", eos_token="w2")


def make(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1 and weight.std() < 0.05:
                weight.normal_(0, 0.2)
    return model.eval()


@torch.no_grad()
def error(model, **more):
    first, second = (torch.tensor([text]) for text in TEXTS[:2])
    places = torch.cat([torch.arange(first.shape[1]), torch.arange(second.shape[1])])[None]
    alone = model(second).logits
    packed = model(torch.cat([first, second], 1), position_ids=places, **more).logits[:, first.shape[1]:]
    return ((packed - alone).abs().max() / alone.abs().max()).item()


def step(name, packing):
    args = trl.SFTConfig(sys.argv[1], packing=packing, max_length=64, per_device_train_batch_size=8, max_steps=1, learning_rate=0.0, gradient_checkpointing=False, bf16=False, use_cpu=True,
                         logging_steps=1, report_to="none", save_strategy="no", disable_tqdm=True)
    trainer = trl.SFTTrainer(make(name), args=args, train_dataset=datasets.Dataset.from_list([{"input_ids": text} for text in TEXTS]), processing_class=TOKENIZER)
    trainer.train()
    return trainer.state.log_history[0]["loss"], trainer.state.log_history[0]["grad_norm"]


as_seen = True
for name in FAMILIES:
    model = make(name)
    default, without = error(model), error(model, use_cache=False)
    (loss, norm), (packed_loss, packed_norm) = step(name, False), step(name, True)
    print(f"seen {name}: second text's logits, error {default:.2g}, without a cache {without:.2g}; TRL, padded: loss {loss:.4f}, norm {norm:.3f}; packed: loss {packed_loss:.4f}, norm {packed_norm:.3f}")
    right = name == "llama"
    as_seen = as_seen and default > 0.05 and (without < 1e-4 if right else without > 0.05)
    as_seen = as_seen and (abs(loss - packed_loss) < 1e-4 and abs(norm - packed_norm) < 1e-3 if right else abs(loss - packed_loss) > 5e-4 and abs(norm - packed_norm) > 1e-2)
sys.exit(0 if as_seen else "packed texts see each other in another way now")
PYTHON
