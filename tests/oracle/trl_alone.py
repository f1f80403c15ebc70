"""TRL's trainers as oracles: their own functions for losses on batches that a test prepared. What TRL imports for data sets alone (pandas, datasets) is stood
in for by empty modules, and a trainer is made without its constructor, which wants data, a tokenizer and an output folder.
"""
import contextlib
import importlib.machinery
import sys
import types
from collections import defaultdict

import torch


def stand_in(name, *classes):
    if name in sys.modules:
        return
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []
    for word in classes:
        setattr(module, word, type(word, (), {}))
    sys.modules[name] = module


stand_in("pandas", "DataFrame")
stand_in("datasets", "Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict", "Features", "Value", "concatenate_datasets")
stand_in("datasets.fingerprint", "Hasher")

from trl.trainer.dpo_config import DPOConfig  # noqa: E402
from trl.trainer.dpo_trainer import DPOTrainer  # noqa: E402
from trl.trainer.grpo_config import GRPOConfig  # noqa: E402
from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: E402
from trl.trainer.reward_config import RewardConfig  # noqa: E402
from trl.trainer.reward_trainer import RewardTrainer  # noqa: E402
from trl.trainer.sft_config import SFTConfig  # noqa: E402
from trl.trainer.sft_trainer import SFTTrainer  # noqa: E402
from trl.trainer.utils import add_fused_lm_head  # noqa: E402

CONFIGS = {"lm": SFTConfig, "dpo": DPOConfig, "reward": RewardConfig, "grpo": GRPOConfig}
TRAINERS = {"lm": SFTTrainer, "dpo": DPOTrainer, "reward": RewardTrainer, "grpo": GRPOTrainer}


class OneProcess:
    """What losses ask of an accelerator, on one CPU."""
    device, num_processes, sync_gradients, is_main_process, parallelism_config = torch.device("cpu"), 1, True, True, None

    def same(self, tensor, **_):
        return tensor
    gather = gather_for_metrics = reduce = same

    def unwrap_model(self, model, **_):
        return model

    def autocast(self):
        return contextlib.nullcontext()


def trainer(objective, model, folder, reference=None, **arguments):
    """The real trainer of an objective with its config's defaults but for `arguments`, ready for compute_loss; model and reference get its head."""
    args = CONFIGS[objective](output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", **arguments)
    one = object.__new__(TRAINERS[objective])
    state = dict(args=args, model=model, ref_model=reference, accelerator=OneProcess(), aux_loss_enabled=False, current_gradient_accumulation_steps=1,
                 _metrics={"train": defaultdict(list), "eval": defaultdict(list)}, _total_train_tokens=0, _tp_size=1, compute_loss_func=None, label_smoother=None, get_tp_size=lambda: 1)
    if objective == "dpo":
        state.update(beta=args.beta, loss_types=args.loss_type, loss_weights=args.loss_weights or [1.0] * len(args.loss_type), label_smoothing=args.label_smoothing,
                     ld_alpha=args.ld_alpha, f_divergence_type=args.f_divergence_type, use_weighting=args.use_weighting, precompute_ref_logps=args.precompute_ref_log_probs)
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
        add_fused_lm_head(reference)
    elif objective == "grpo":
        state.update(beta=args.beta, loss_type=args.loss_type, epsilon_low=args.epsilon, epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
                     temperature=args.temperature, max_completion_length=args.max_completion_length, top_entropy_quantile=args.top_entropy_quantile,
                     off_policy_mask_threshold=args.off_policy_mask_threshold, importance_sampling_level=args.importance_sampling_level, use_vllm=args.use_vllm,
                     vllm_importance_sampling_correction=args.vllm_importance_sampling_correction, entropy_coef=args.entropy_coef, _entropy_bonus_enabled=args.entropy_coef != 0)
        for each in (model, reference):
            if each is not None:
                add_fused_lm_head(each, temperature=args.temperature, outputs=("log_probs", "entropy"))
    elif objective == "lm":
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    vars(one).update(state)
    return one


def padded(rows, value, left=False):
    """Lists of numbers as one tensor, and which of its places they fill."""
    longest = max(map(len, rows))
    fill = [[value] * (longest - len(row)) for row in rows]
    mask = [[0] * len(gap) for gap in fill]
    ones = [[1] * len(row) for row in rows]
    both = (lambda gap, row: gap + list(row)) if left else (lambda gap, row: list(row) + gap)
    return torch.tensor(list(map(both, fill, rows))), torch.tensor(list(map(both, mask, ones)))
