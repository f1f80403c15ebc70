#!/usr/bin/env bash
# Believed: where texts are the policy's own (one update a batch) the importance ratio of GRPO is 1, so a factor of it changes nothing, and equal losses mean that two
# implementations learn the same.
# Seen with trl 1.16.0, transformers 5.23.0, torch 2.11.0: GRPOConfig.use_bias_correction_kl, true by default, multiplies the KL term by the ratio. The ratio is 1, its derivative is not:
# with beta 0.3 the loss and the metric `kl` have the same bits with it and without, and the norms of the gradient were 10.2322 and 26.8396.
# A trainer that was written against an earlier TRL (without the factor) therefore passes every comparison of losses and learns something else.
# pandas and datasets, which the trainer's module imports and its loss does not use, are stood in for by empty modules. The download is large: torch and its CUDA libraries.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps trl==1.16.0 accelerate==1.15.0 psutil==7.2.2 pyarrow==26.0.1 \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 \
  nvidia-nvtx==13.0.85 nvidia-nccl-cu13==2.28.9 numpy==2.4.6 typing-extensions==4.16.0 filelock==4.2.11 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 \
  transformers==5.23.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import contextlib
import importlib.machinery
import sys
import types
from collections import defaultdict

import torch
import transformers

for name, classes in (("pandas", ["DataFrame"]), ("datasets", ["Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict"])):
    module = types.ModuleType(name)
    module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
    for word in classes:
        setattr(module, word, type(word, (), {}))
    sys.modules[name] = module
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head


class OneProcess:
    device, num_processes, sync_gradients, is_main_process = torch.device("cpu"), 1, True, True
    gather = gather_for_metrics = reduce = lambda self, tensor, **_: tensor
    autocast = lambda self: contextlib.nullcontext()


def policy(seed):
    torch.manual_seed(seed)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                                                  initializer_range=0.3)).double()
    add_fused_lm_head(made, outputs=("log_probs", "entropy"))
    return made


def loss_and_norm(**keys):
    args = GRPOConfig(output_dir=sys.argv[1], use_cpu=True, bf16=False, report_to="none", beta=0.3, num_generations=4, **keys)
    args.steps_per_generation = 1
    model, reference = policy(0), policy(1)
    one = object.__new__(GRPOTrainer)
    vars(one).update(args=args, model=model, accelerator=OneProcess(), aux_loss_enabled=False, current_gradient_accumulation_steps=1, _metrics={"train": defaultdict(list)}, beta=args.beta,
                     loss_type=args.loss_type, epsilon_low=args.epsilon, epsilon_high=args.epsilon, temperature=1.0, max_completion_length=6, top_entropy_quantile=1.0,
                     off_policy_mask_threshold=None, importance_sampling_level="token", use_vllm=False, vllm_importance_sampling_correction=True, _entropy_bonus_enabled=False)
    torch.manual_seed(2)
    prompt, text = torch.randint(0, 40, (4, 5)), torch.randint(0, 40, (4, 6))
    inputs = dict(prompt_ids=prompt, prompt_mask=torch.ones_like(prompt), completion_ids=text, completion_mask=torch.ones_like(text), advantages=torch.tensor([1.0, -1.0, 0.5, -0.5]).double(),
                  num_items_in_batch=torch.tensor(24))
    with torch.no_grad():
        inputs["ref_per_token_logps"] = one._get_per_token_logps_and_entropies(reference, torch.cat([prompt, text], 1), torch.ones(4, 11, dtype=torch.long), 6)[0]
    loss = one._compute_loss(model, inputs)
    loss.backward()
    return loss.item(), one._metrics["train"]["kl"][0], torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()


default, without = loss_and_norm(), loss_and_norm(use_bias_correction_kl=False)
print(f"with (default): loss {default[0]:.6f}, kl {default[1]:.6f}, norm {default[2]:.4f}; without: loss {without[0]:.6f}, kl {without[1]:.6f}, norm {without[2]:.4f}")
if default[:2] != without[:2] or abs(default[2] / without[2] - 1) < 0.01:
    sys.exit("the behaviour has changed")
PYTHON
