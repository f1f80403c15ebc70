#!/usr/bin/env bash
# Believed: where all texts have one length, a step of transformers' Trainer is the same with 8 texts at a time, with 8 batches of 1 (gradient_accumulation_steps) and with 2
#   processes of 4 (the sums over batches were repaired in 2024), and label_smoothing_factor changes the cross entropy and nothing else.
# Packages: transformers 5.24.0, accelerate 1.15.0, torch 2.15.0 (PyPI).
# Behaviour: the model divides its cross entropy by the number of tokens of all batches and processes, which the Trainer tells it; the Trainer then does not divide by the number
#   of batches, and multiplies by the number of processes, over which gradients are averaged. The loss of a mixture has a second part, router_aux_loss_coef times what balances the
#   experts. It is a mean over one batch and divided by nothing. So the coefficient counts batches times processes times, in the gradient and in the loss that is reported.
#   With label_smoothing_factor the Trainer makes the cross entropy from the logits and gives the model no labels. The second part is then left out without a word.
# Seen, 8 times one text of 12 tokens, coefficient 0.5 (loss without it: 4.196), loss and norm of a router's gradient; mixtral and olmoe do the same:
#     qwen3_moe               8 texts          2 batches of 4    8 batches of 1    2 processes of 4
#     label_smoothing 0       5.210, 0.174     6.223, 0.348      12.303, 1.395     6.223, 0.348
#     label_smoothing 0.1     4.193, 0.001     4.193, 0.001      4.193, 0.001      4.193, 0.001
#   4.193 and 0.001 are also what a coefficient of 0 gives. The SFTTrainer of TRL 1.16.0 makes this loss itself, divides the second part, and has 5.197 for all.
# Matters: a mixture that is trained on 8 GPUs with 16 batches a step has its experts balanced 128 times as strongly as its config says, which is not seen where losses are compared
#   on one GPU with one batch. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
cat > "$folder/one_step.py" <<'PYTHON'
import json
import os
import sys

import torch
import transformers

NAMES, STEPS = ("qwen3_moe", "mixtral", "olmoe"), [int(steps) for steps in sys.argv[2:]]
SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts_per_tok": 2, "output_router_logits": True}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "moe_intermediate_size": 16, "intermediate_size": 16}
torch.set_num_threads(1)
torch.manual_seed(0)
TEXT = torch.randint(0, 64, (12,))


class KeepGradient(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.norm = getattr(model, "module", model).model.layers[0].mlp.gate.weight.grad.norm().item()


def one_step(name, steps, coefficient, smoothing):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **SMALL, **EXPERTS, router_aux_loss_coef=coefficient))
    args = transformers.TrainingArguments(sys.argv[1], gradient_accumulation_steps=steps, label_smoothing_factor=smoothing, max_steps=1, learning_rate=0.0, max_grad_norm=0.0, use_cpu=True,
                                          ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None, report_to="none", save_strategy="no", disable_tqdm=True, logging_strategy="no")
    args.per_device_train_batch_size = 8 // steps // args.world_size
    kept = KeepGradient()
    loss = transformers.Trainer(model, args, train_dataset=[{"input_ids": TEXT, "labels": TEXT}] * 8, callbacks=[kept]).train().training_loss
    if args.process_index == 0:
        print("seen", json.dumps({"name": name, "processes": args.world_size, "steps": steps, "coefficient": coefficient, "smoothing": smoothing, "loss": loss, "norm": kept.norm}))


for name in NAMES:
    for steps in STEPS:
        for coefficient, smoothing in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.1), (0.5, 0.1)):
            one_step(name, steps, coefficient, smoothing)
PYTHON
export TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
"$folder/venv/bin/python" "$folder/one_step.py" "$folder/out" 1 2 8 > "$folder/seen" 2> "$folder/log" || { cat "$folder/log"; exit 1; }
"$folder/venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/one_step.py" "$folder/out" 1 >> "$folder/seen" 2> "$folder/log" || { cat "$folder/log"; exit 1; }
"$folder/venv/bin/python" - "$folder/seen" <<'PYTHON'
import json
import sys

rows = [json.loads(line[5:]) for line in open(sys.argv[1]) if line.startswith("seen ")]
by_key = {(row["name"], row["processes"], row["steps"], row["coefficient"], row["smoothing"]): row for row in rows}
as_seen = len(by_key) == 3 * 4 * 4
for name in ("qwen3_moe", "mixtral", "olmoe"):
    one = by_key[name, 1, 1, 0.5, 0.0]
    second = one["loss"] - by_key[name, 1, 1, 0.0, 0.0]["loss"]
    for processes, steps in ((1, 1), (1, 2), (1, 8), (2, 1)):
        without, balanced, smooth, both = (by_key[name, processes, steps, *rest] for rest in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.1), (0.5, 0.1)))
        times = (balanced["loss"] - without["loss"]) / second
        print(f"{name}, {steps} batches, {processes} processes: loss {balanced['loss']:.3f}, norm {balanced['norm']:.3f}, second part {times:.3f} times; "
              f"with label smoothing {both['loss']:.3f}, {both['norm']:.3f} (coefficient 0: {smooth['loss']:.3f}, {smooth['norm']:.3f})")
        as_seen = as_seen and abs(times - steps * processes) < 0.01 and abs(balanced["norm"] / one["norm"] - steps * processes) < 0.1
        as_seen = as_seen and both["loss"] == smooth["loss"] and both["norm"] == smooth["norm"]
sys.exit(0 if as_seen else "the Trainer weighs the loss that balances experts in another way now")
PYTHON
