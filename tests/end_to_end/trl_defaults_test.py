"""Every field of TRL's SFTConfig, DPOConfig, RewardConfig and GRPOConfig: the key here with the same default, the key with another one and why, or why there is
none. The test reads the real dataclasses and the tables of configs/keys (which app/schema and repository/configs hold against the program): a field
that TRL has and this list has not, or a default on either side that is not what the list says, fails.
"""
import dataclasses
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PAGE = "".join(page.read_text() for page in sorted((ROOT / "configs/keys").glob("train*.md")))
sys.path.insert(0, str(ROOT / "tests/oracle"))
import trl_alone  # noqa: E402

NONE = None
ALL = ("lm", "dpo", "reward", "grpo")

# (configs, field, key here): the defaults are equal. A third and fourth element: TRL's value and the value here that mean the same.
EQUAL = [
    (ALL, "num_train_epochs", "train.epochs"), (ALL, "max_steps", "train.steps", -1, "optional"), (ALL, "per_device_train_batch_size", "train.global_batch"),
    (ALL, "lr_scheduler_type", "train.optimizer.schedule"), (ALL, "warmup_steps", "train.optimizer.warmup"), (ALL, "weight_decay", "train.optimizer.weight_decay"),
    (ALL, "adam_beta1", "train.optimizer.beta1"), (ALL, "adam_beta2", "train.optimizer.beta2"), (ALL, "adam_epsilon", "train.optimizer.epsilon"),
    (ALL, "max_grad_norm", "train.optimizer.clip"), (ALL, "save_steps", "train.save_every"),
    (("lm", "dpo", "reward"), "max_length", "train.max_length"),
    (ALL, "train_sampling_strategy", "train.shuffle", "random", True), ("grpo", "shuffle_dataset", "train.shuffle"),
    ("lm", "packing", "train.packing"), ("lm", "assistant_only_loss", "assistant_only_loss"), ("lm", "loss_type", "objective", "nll", "lm"),
    (("lm", "reward"), "eos_token", "train.append_eos", NONE, True),
    (("dpo", "grpo"), "learning_rate", "train.optimizer.lr", 1e-6, 5e-5), ("reward", "learning_rate", "train.optimizer.lr", 1e-4, 5e-5),  # another one for each: LEARNING_RATES
    ("dpo", "loss_type", "dpo.loss_type", ["sigmoid"], "sigmoid"), ("dpo", "beta", "dpo.beta"), ("dpo", "label_smoothing", "dpo.label_smoothing"),
    ("dpo", "truncation_mode", "dpo.truncation_mode"), ("reward", "center_rewards_coefficient", "reward.center_rewards_coefficient", NONE, 0.0),
    ("grpo", "num_generations", "grpo.num_generations"), ("grpo", "max_completion_length", "grpo.max_new_tokens"), ("grpo", "temperature", "grpo.temperature"),
    ("grpo", "top_k", "grpo.top_k"), ("grpo", "top_p", "grpo.top_p"), ("grpo", "min_p", "grpo.min_p", NONE, 0.0), ("grpo", "repetition_penalty", "grpo.repetition_penalty"),
    ("grpo", "beta", "grpo.beta"), ("grpo", "use_bias_correction_kl", "grpo.use_bias_correction_kl"), ("grpo", "epsilon", "grpo.epsilon"),
    ("grpo", "epsilon_high", "grpo.epsilon_high", NONE, 0.2), ("grpo", "num_iterations", "grpo.num_iterations"), ("grpo", "scale_rewards", "grpo.scale_rewards"),
    ("grpo", "loss_type", "grpo.loss_type"), ("grpo", "log_completions", "grpo.log_completions"),
]
LEARNING_RATES = {"dpo": 1e-6, "grpo": 1e-6, "reward": 1e-4}  # in the meaning of the key

# (configs, field, TRL's default, key here, its default, why).
DIFFERS = [
    ("lm", "learning_rate", 2e-5, "train.optimizer.lr", 5e-5, "that of Hugging Face's Trainer"),
    (ALL, "bf16", NONE, "train.precision", "auto", "None is True there: products in bf16; here f32 unless asked for"),
    (ALL, "gradient_checkpointing", True, "train.gradient_checkpointing", "auto", "the same bits: only where memory asks for it"),
    (ALL, "save_total_limit", NONE, "train.keep", 2, "states there stay for ever"),
    (ALL, "eval_steps", NONE, "train.evaluate.every", 500, "None is logging_steps there"),
    (ALL, "seed", 42, "seed", 0, "of the whole experiment; draws are not torch's"),
]

# (configs, why, fields with TRL's defaults): no key.
NOT_OFFERED = [
    (ALL, "always so: AdamW; the mean over all tokens of all ranks; the last step of an epoch may be shorter; states to go on from hold everything", dict(
        optim="adamw_torch_fused", average_tokens_across_devices=True, dataloader_drop_last=False, save_strategy="steps", save_only_model=False)),
    (ALL, "what stands instead is global_batch and micro_batch, whose numbers hold for all ranks together", dict(
        gradient_accumulation_steps=1, per_device_eval_batch_size=8, auto_find_batch_size=False, eval_accumulation_steps=NONE)),
    (ALL, "off there unless asked for", dict(
        lr_scheduler_kwargs=NONE, optim_args=NONE, optim_target_modules=NONE, label_smoothing_factor=0.0, fp16=False, bf16_full_eval=False, fp16_full_eval=False, tf32=NONE,
        neftune_noise_alpha=NONE, use_liger_kernel=False, liger_kernel_config=NONE, load_best_model_at_end=False, metric_for_best_model=NONE, greater_is_better=NONE)),
    (ALL, "held-out data are there where train.evaluate is, and then before the first step, too", dict(
        eval_strategy="no", eval_delay=0, eval_on_start=False, prediction_loss_only=False, eval_do_concat_batches=True, eval_use_gather_object=False, include_for_metrics=[],
        batch_eval_metrics=False)),
    (ALL, "how torch computes and who does; nothing of it changes what is learnt", dict(
        activation_checkpointing=NONE, activation_checkpointing_kwargs=NONE, gradient_checkpointing_kwargs=NONE, torch_compile=False, torch_compile_backend=NONE,
        torch_compile_mode=NONE, use_cache=False, torch_empty_cache_steps=NONE, pad_to_multiple_of="auto", use_cpu=False, accelerator_config=NONE, parallelism_config=NONE,
        dataloader_num_workers=0, dataloader_pin_memory=True, dataloader_persistent_workers=False, dataloader_prefetch_factor=NONE,
        dataloader_multiprocessing_context=NONE, dataloader_in_order=True, ddp_find_unused_parameters=NONE, ddp_bucket_cap_mb=NONE,
        ddp_broadcast_buffers=NONE, ddp_static_graph=NONE, ddp_backend=NONE, ddp_timeout=1800, fsdp=NONE, fsdp_config=NONE, deepspeed=NONE, debug="", skip_memory_metrics=True,
        full_determinism=False, data_seed=NONE, local_rank=-1)),
    (ALL, "every step is in the results and in the log; a run goes on by itself", dict(
        logging_strategy="steps", logging_steps=10, logging_first_step=False, log_on_each_node=True, logging_nan_inf_filter=True, include_num_input_tokens_seen="no",
        log_level="passive", log_level_replica="warning", disable_tqdm=NONE, report_to="none", run_name=NONE, project="huggingface", trackio_space_id=NONE,
        trackio_bucket_id=NONE, trackio_static_space_id=NONE, save_on_each_node=False, enable_jit_checkpoint=False, ignore_data_skip=False,
        restore_callback_states_from_checkpoint=False, resume_from_checkpoint=NONE, do_train=False, do_eval=False, do_predict=False)),
    (ALL, "no hub, no code of models", dict(
        push_to_hub=False, hub_token=NONE, hub_private_repo=NONE, hub_model_id=NONE, hub_strategy="every_save", hub_always_push=False, hub_revision=NONE,
        trust_remote_code=False)),
    (ALL, "model, output.directory and dataset say it", dict(output_dir=NONE, model_init_kwargs=NONE, label_names=NONE, length_column_name="length")),
    (("lm", "dpo", "reward"), "model, output.directory and dataset say it", dict(remove_unused_columns=True, dataset_num_proc=NONE, pad_token=NONE)),
    (("lm", "dpo", "reward"), "how torch computes and who does; nothing of it changes what is learnt", dict(activation_offloading=False)),
    (("lm", "reward"), "model.chat_template", dict(chat_template_path=NONE)),
    (("dpo", "reward"), "there is never dropout", dict(disable_dropout=True)),
    (("lm", "dpo", "grpo"), "no loss by which experts are used evenly, which a mixture has there (None: config.json's router_aux_loss_coef)", dict(router_aux_loss_coef=NONE)),
    ("lm", "dataset.text; longer texts are cut at their end; records are shuffled by train.shuffle", dict(
        dataset_text_field="text", dataset_kwargs=NONE, truncation_mode="keep_start", shuffle_dataset=False)),
    ("lm", "of packing: records keep their order and see themselves alone", dict(packing_strategy="bfd", padding_free=False, eval_packing=NONE)),
    ("lm", "there are no records of a prompt and a completion: chats and assistant_only_loss", dict(completion_only_loss=NONE)),
    ("dpo", "how torch computes and who does; nothing of it changes what is learnt", dict(padding_free=False)),
    ("dpo", "what the reference says is always computed before the first step: the same numbers", dict(precompute_ref_log_probs=False, precompute_ref_batch_size=NONE)),
    ("dpo", "off there unless asked for, or of a loss that is not offered", dict(
        loss_weights=NONE, ld_alpha=NONE, f_divergence_type="reverse_kl", f_alpha_divergence_coef=0.5, use_weighting=False, discopop_tau=0.05, sync_ref_model=False,
        ref_model_mixup_alpha=0.6, ref_model_sync_steps=512)),
    ("grpo", "there is never dropout", dict(disable_dropout=False)),
    ("grpo", "the head and its products are f32 unless train.precision says otherwise on GPUs", dict(cast_lm_head_to_fp32=False)),
    ("grpo", "model, output.directory and dataset say it", dict(remove_unused_columns=False, chat_template_kwargs=NONE)),
    ("grpo", "every step writes its global_batch texts, as these defaults mean", dict(generation_batch_size=NONE, steps_per_generation=NONE)),
    ("grpo", "no held-out data", dict(num_generations_eval=NONE)),
    ("grpo", "the program's own generator writes the texts, whose log-probabilities are the trainer's: nothing to correct", dict(
        ds3_gather_for_generation=True, generation_kwargs=NONE, cache_implementation=NONE, use_vllm=False, vllm_mode="colocate", vllm_model_impl="vllm",
        vllm_enable_sleep_mode=False, vllm_structured_outputs_regex=NONE, vllm_server_base_url=NONE, vllm_server_host="0.0.0.0", vllm_server_port=8000,
        vllm_server_timeout=240.0, vllm_group_port=51216, vllm_gpu_memory_utilization=0.3, vllm_max_model_length=NONE, vllm_tensor_parallel_size=1,
        vllm_importance_sampling_correction=True, vllm_importance_sampling_mode="sequence_mask", vllm_importance_sampling_clip_max=3.0,
        vllm_importance_sampling_clip_min=NONE, vllm_importance_sampling_cap=NONE, use_transformers_continuous_batching=False,
        transformers_continuous_batching_config=NONE, use_transformers_paged=False)),
    ("grpo", "off there unless asked for, or of a loss that is not offered", dict(
        delta=NONE, sapo_temperature_neg=1.05, sapo_temperature_pos=1.0, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0, vespo_lambda_neg=2.0,
        importance_sampling_level="token", mask_truncated_completions=False, sync_ref_model=False, ref_model_mixup_alpha=0.6, ref_model_sync_steps=512,
        top_entropy_quantile=1.0, entropy_coef=0.0, use_adaptive_entropy=False, entropy_coef_min=0.0, entropy_coef_max=1.0, entropy_coef_delta=0.005,
        entropy_target=0.2, off_policy_mask_threshold=NONE)),
    ("grpo", "a text has one reward, and there are no tools", dict(reward_weights=NONE, multi_objective_aggregation="sum_then_normalize", max_tool_calling_iterations=NONE)),
    ("grpo", "every text is logged, or none", dict(
        log_multimodal=True, num_completions_to_print=NONE, log_unique_prompts=False, log_completions_hub_repo=NONE)),
]


def names(configs):
    return (configs,) if isinstance(configs, str) else configs


def default_of(field):
    value = field.default if field.default is not dataclasses.MISSING else field.default_factory()
    return getattr(value, "value", value)  # of an enumeration


def read(text):
    text = text.strip().strip("`")
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", text) else text


class Defaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours = {}
        for line in [*PAGE.splitlines(), *(ROOT / "configs/keys/experiment.md").read_text().splitlines()]:
            found = re.match(r"\| `(?:train\.)?([a-z_0-9.*]+)` \| ([^|]*) \|", line)
            if found and (line.startswith("| `train.") or found[1] == "seed"):
                usual = re.search(r"`auto`: (\d+(?:,\d{3})*),", line)  # what it is where a model has positions enough (default_lengths_test runs it)
                cls.ours[found[1]] = read(usual[1].replace(",", "") if usual and read(found[2]) == "auto" else found[2])
        cls.trl = {name: {field.name: default_of(field) for field in dataclasses.fields(config)} for name, config in trl_alone.CONFIGS.items()}

    def test_every_field_stands_once(self):
        listed = {name: [] for name in ALL}
        for configs, *rest in [*EQUAL, *DIFFERS]:
            for name in names(configs):
                listed[name].append(rest[0])
        for configs, _, fields in NOT_OFFERED:
            for name in names(configs):
                listed[name] += fields
        for name in ALL:
            self.assertEqual(sorted(listed[name]), sorted(self.trl[name]), name)
        print({name: len(fields) for name, fields in listed.items()}, "fields")

    def test_equal(self):
        for configs, field, key, *means in EQUAL:
            for name in names(configs):
                with self.subTest(config=name, field=field):
                    theirs, ours = self.trl[name][field], self.ours[key]
                    self.assertEqual((theirs, ours), tuple(means) if means else (theirs, theirs))
        lr = next(line for line in PAGE.splitlines() if line.startswith("| `train.train.optimizer.lr`"))
        for name, rate in LEARNING_RATES.items():
            self.assertEqual(self.trl[name]["learning_rate"], rate)
        self.assertIn("1e-06 unless given for `dpo` and `grpo`, 1e-04 for `reward`", lr)

    def test_what_differs_is_said(self):
        said = PAGE[PAGE.index("Defaults that are not TRL's"):].split("\n\n")[0]
        for configs, field, theirs, key, ours, _ in DIFFERS:
            for name in names(configs):
                with self.subTest(config=name, field=field):
                    self.assertEqual((self.trl[name][field], self.ours[key]), (theirs, ours))
                    self.assertIn(f"`{field}`", said)
                    self.assertIn(f"`{key}`", said)

    def test_what_there_is_not(self):
        for configs, why, fields in NOT_OFFERED:
            for name in names(configs):
                for field, default in fields.items():
                    with self.subTest(config=name, field=field, why=why):
                        self.assertEqual(self.trl[name][field], default)


if __name__ == "__main__":
    unittest.main()
