#!/usr/bin/env bash
# Believed: TRL's SFTTrainer trains the model that is saved: on equal texts it has the loss of transformers' Trainer, as it has with Llama and with Granite's logits_scaling.
# Packages: trl 1.16.0, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: TRL computes the last layer itself, in pieces (add_fused_lm_head): the base model's hidden states times the weight of get_output_embeddings(), with the scale or cap that some
#   names in the config tell. What else a family does between the two is left out, without an error or a warning. ModernBERT's decoder has a dense layer, an activation and a norm there:
#   they are skipped and get no gradient. Inkling divides by logits_mup_width_multiplier and cuts the logits off at unpadded_vocab_size: neither is done. RecurrentGemma's cap is
#   named logits_soft_cap: no cap. The trainers of DPO, KTO, GRPO and RLOO call the same function.
# Seen, 8 texts of 12 tokens, one step with a learning rate of 0:
#                             Trainer   SFTTrainer
#     llama                   6.073     6.073
#     granite                 4.595     4.595
#     modernbert-decoder      5.632     5.695        no gradient: lm_head.dense.weight, lm_head.norm.weight
#     inkling_text            4.409     5.543
#     recurrent_gemma         4.569     4.604        with a cap of 0.5
#   After 60 steps of the SFTTrainer on these texts it tells a loss of 0.03 for modernbert-decoder; the same model, called with the same texts and labels, has 5.38.
# Matters: a decoder of ModernBERT's kind (Ettin) that was fine-tuned by TRL has a good curve and writes noise. The download is large: torch.
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
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
         "sliding_window": 64, "attention_window_size": 64, "lru_width": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES = {"llama": {}, "granite": {"logits_scaling": 8.0}, "modernbert-decoder": {}, "inkling_text": {"unpadded_vocab_size": 80, "logits_mup_width_multiplier": 4.0}, "recurrent_gemma": {"logits_soft_cap": 0.5}}
GENERATOR = torch.Generator().manual_seed(0)
TEXTS = [torch.randint(3, 80, (12,), generator=GENERATOR).tolist() for _ in range(8)]
TOKENIZER = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({f"w{i}": i for i in range(96)}, unk_token="w0")), pad_token="w0", eos_token="w2")
SHARED = {"max_steps": 1, "learning_rate": 0.0, "max_grad_norm": 0.0, "gradient_checkpointing": False, "use_cpu": True, "logging_steps": 1, "report_to": "none", "save_strategy": "no",
          "disable_tqdm": True, "per_device_train_batch_size": 8}


class KeepGradients(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.gradients = {name: None if weight.grad is None else weight.grad.clone() for name, weight in model.named_parameters()}


def make(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL, **FAMILIES[name]))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1 and weight.std() < 0.05:
                weight.normal_(0, 0.2)
    return model


def step(trainer):
    kept = KeepGradients()
    trainer.add_callback(kept)
    trainer.train()
    return trainer.state.log_history[0]["loss"], kept.gradients


as_seen = True
for name in FAMILIES:
    rows = datasets.Dataset.from_list([{"input_ids": text, "labels": text} for text in TEXTS])
    loss, gradients = step(transformers.Trainer(make(name), transformers.TrainingArguments(sys.argv[1], **SHARED), train_dataset=rows))
    rows = rows.remove_columns("labels")
    trl_loss, trl_gradients = step(trl.SFTTrainer(make(name), args=trl.SFTConfig(sys.argv[1], bf16=False, **SHARED), train_dataset=rows, processing_class=TOKENIZER))
    lost = [key for key in gradients if trl_gradients[key] is None and gradients[key] is not None]
    print(f"seen {name}: loss of the Trainer {loss:.4f}, of the SFTTrainer {trl_loss:.4f}; without a gradient there: {lost}")
    right = name in ("llama", "granite")
    as_seen = as_seen and (abs(loss - trl_loss) < 1e-4 if right else abs(loss - trl_loss) > 0.01)
    as_seen = as_seen and lost == (["lm_head.dense.weight", "lm_head.norm.weight"] if name == "modernbert-decoder" else [])

learnt = make("modernbert-decoder")
trainer = trl.SFTTrainer(learnt, args=trl.SFTConfig(sys.argv[1], bf16=False, **SHARED | {"max_steps": 60, "learning_rate": 3e-3, "logging_steps": 60}), train_dataset=rows, processing_class=TOKENIZER)
trainer.train()
told, ids = trainer.evaluate(rows)["eval_loss"], torch.tensor(TEXTS)
with torch.no_grad():
    own = learnt(ids, labels=ids).loss.item()
print(f"seen modernbert-decoder after 60 steps: loss that the SFTTrainer tells {told:.4f}, of the model itself {own:.4f}")
as_seen = as_seen and told < 0.5 and own > 3
sys.exit(0 if as_seen else "the SFTTrainer computes other logits now")
PYTHON
