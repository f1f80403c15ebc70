// Tables are sorted by subject. A name is in one row only; letters are compared without case.
#include "magister/core/foreign_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace magister {
namespace {

struct Row {
  std::string_view words;  // separated by spaces
  std::string_view advice;
};

constexpr Row kKeys[] = {
    // Devices, ranks and the division of work.
    {"gpu_ids gpu_list gpus device_ids cuda_devices cuda_visible_devices visible_devices gpu_id",
     "here that is layout.devices, a list such as [0, 1]; how many of them hold one copy is layout.gpus_per_group"},
    {"gpus_per_model gpus_per_worker num_gpus_per_model gpus_per_replica model_parallel_size devices_per_model "
     "num_shard n_gpus_per_model tensor_split split_mode main_gpu",
     "here that is layout.gpus_per_group"},
    {"device_map infer_auto_device_map no_split_module_classes low_cpu_mem_usage offload_folder offload_state_dict",
     "a model is divided over the GPUs of a group: layout.gpus_per_group, where auto takes as many as it needs"},
    {"max_memory max_memory_per_gpu per_gpu_memory",
     "remove it: no GPU has a limit of its own; a model is divided evenly over the GPUs of a group "
     "(layout.gpus_per_group, where auto takes as many as it needs), and may have 92 % of what is free"},
    {"pipeline_parallel_size pp_size pp context_parallel_size",
     "a model is divided over a group by the columns of its weights: layout.gpus_per_group"},
    {"n_gpu_layers gpu_layers ngl num_gpu_layers",
     "a model is on GPUs as a whole or not at all: layout.devices: auto or cpu, layout.gpus_per_group"},
    {"device device_type accelerator use_cpu no_cuda use_gpu", "here that is layout.devices: auto, cpu or a list"},
    {"num_gpus n_gpu n_gpus gpu_count num_devices world_size nproc nproc_per_node num_processes num_machines num_nodes "
     "data_parallel_size dp_size dp local_rank node_rank n_workers",
     "the number of ranks is the launcher's: mpirun -np N magister run FILE.yaml, or srun"},
    {"worker_id worker_index shard_id shard_index num_shards total_workers n_shards job_index array_index",
     "a run divides its records over its ranks by itself; separate jobs take slices of a task (slice: 0/6), and "
     "`magister merge` joins their results"},
    {"num_workers dataloader_num_workers num_proc preprocessing_num_workers",
     "remove it: the ranks that the launcher starts (mpirun -np N) read and tokenise the records before the work "
     "begins"},
    {"use_parallel_execution parallel_execution parallelization max_parallel num_parallel", "here that is run.at_once"},
    {"backend distributed_backend ddp_backend dist_backend nccl gloo",
     "remove it: MPI joins the ranks, and NCCL the GPUs of a group"},
    {"distributed fsdp deepspeed parallel_method accelerate_config use_multi_gpu multi_gpu distributed_training "
     "training_type training_method",
     "every training runs over all ranks that the launcher starts; train.zero decides what they divide"},
    {"timeout time_out job_timeout max_time max_runtime", "here that is run.max_wall: HH:MM:SS"},
    {"user",
     "of a prompt: prompt.user of judge and generate; generate also takes finished prompts, dataset.text or "
     "dataset.messages"},
    {"user_id users tenant priority queue partition time_limit walltime nodes",
     "that is the scheduler's (jobs/README.md); a run ends "
     "in time with run.max_wall"},
    // Memory.
    {"swap_space cpu_offload cpu_offload_gb kv_cache_memory max_gpu_memory memory_limit gpu_memory vram",
     "free memory is measured and used; passes are made smaller with token_budget or max_sequences, in a training with "
     "train.memory_fraction"},
    {"clear_cache clear_cache_interval empty_cache torch_empty_cache_steps gc_interval",
     "remove it: memory is given "
     "back when a task ends"},
    // Models.
    {"load_in_8bit load_8bit use_8bit 8bit int8", "here that is model.quantization: int8"},
    {"load_in_4bit load_4bit use_4bit 4bit int4 bnb_4bit_quant_type bnb_4bit_compute_dtype bnb_4bit_use_double_quant",
     "here that is model.quantization: int4"},
    {"quantization_config bnb_config quant_method",
     "here that is model.quantization: int8 or int4; checkpoints that are "
     "quantised are read as they are"},
    {"bits wbits", "here that is model.quantization: int8 or int4"},
    {"attn_impl attn_implementation use_flash_attention use_flash_attention_2 flash_attention flash_attn "
     "attention_backend",
     "here that is model.attention"},
    {"enforce_eager compile torch_compile use_cuda_graph cuda_graphs",
     "remove it: a decoding pass is a CUDA graph "
     "wherever that is possible"},
    {"trust_remote_code",
     "remove it: no code of a model is ever run; configs/guides/models.md lists the families that are computed"},
    {"revision cache_dir download_dir hf_token use_auth_token",
     "nothing is downloaded: model.path is a folder, a "
     "file or a name in the hub's cache"},
    {"tokenizer_name tokenizer_path tokenizer_name_or_path tokenizer_mode", "the tokenizer is that of model.path"},
    {"speculative_model num_speculative_tokens draft_model", "remove it: no model drafts for another here"},
    {"model_name model_path hf_model model_id llm_name llm base_model model_tag",
     "here that is model.path (a folder, a .gguf file, or org/name of the hub's cache), for one task alone "
     "tasks.0.model.path"},
    {"judge_model judge_name judge_path teacher_model teacher_name teacher_path student_model student_name "
     "student_path writer_model",
     "here that is the model of its task: tasks.0.model.path"},
    // Sections of other programs' files.
    {"distillation distill kd knowledge_distillation",
     "here those are tasks: `task: teacher_logits` writes a teacher's logits, `task: train` with `objective: distill` "
     "learns from them; the records of each are tasks.0.dataset, and tasks.0.dataset.limit takes the first ones"},
    {"first_round", "only tasks of `rounds` have it: in a matrix no task is the first"},
    {"judging evaluation metric", "here those are tasks: `judge`, `score`, `evaluate`, with their keys below tasks"},
    // Studies of answers.
    {"run_id run_ids answers_run", "for a judge that is `answers`: the path of that run's results, or its folder"},
    {"semantic_entropy semantic_clusters nli_model entailment_model",
     "remove it: no task clusters texts by what they mean (configs/guides/evaluation.md says what there is)"},
    {"gnll g_nll nll sequence_nll",
     "remove it: it is the sum of a text's column logprob (configs/guides/evaluation.md has the lines)"},
    {"auroc roc_auc", "remove it: a judge of `answers` writes auroc_of_likelihood into its summary"},
    // Training.
    {"batch_size_per_gpu per_gpu_batch_size batch_size_per_device train_batch_size_per_gpu",
     "here that is train.global_batch, over all ranks together; train.micro_batch is what is computed at once"},
    {"mixed_precision use_amp amp fp16 bf16 half precision_plugin",
     "here that is train.precision: bf16 of a training, "
     "and model.dtype elsewhere"},
    {"resume resume_from_checkpoint load_checkpoint checkpoint_path auto_resume",
     "remove it: the same command continues a stopped run; --fresh starts over"},
    {"overwrite overwrite_output_dir force", "remove it: `magister run --fresh` puts earlier results aside"},
    {"checkpoint_dir checkpoints_dir save_dir save_path",
     "here that is output.directory: results and states are in its folder with the experiment's name"},
    {"save_total_limit max_checkpoints keep_last", "here that is train.keep"},
    {"early_stopping early_stopping_patience load_best_model_at_end metric_for_best_model callbacks",
     "remove it: a training makes its steps; train.evaluate shows the loss of records that are held out"},
    {"use_peft use_lora lora_dropout lora_bias", "here that is train.adapter, of LoRA without dropout"},
    {"num_train_steps max_train_steps total_steps train_steps", "here that is train.steps"},
    {"algos algorithm algo trainer trainer_type",
     "here that is a task of its own: task: train with its objective, or "
     "task: rollout"},
    {"dropout hidden_dropout attention_dropout", "remove it: no training has dropout"},
    {"val valid validation val_path validation_path val_file validation_file eval_file",
     "here that is train.evaluate.dataset: records that are held out"},
    {"optim optimizer_type optimizer_name optimizer_class", "remove it: the optimizer is AdamW"},
    {"hyperparameter_search hyperparameters hpo optuna ray_tune sweep search_space n_trials num_trials",
     "nothing searches by itself: `matrix` makes a task for each combination of values that you list "
     "(configs/keys/experiment.md)"},
    {"federated federated_learning", "remove it: a training is one job over one data set"},
    {"reward_batch_size", "remove it: rewards are computed in passes of their own"},
    {"report_to wandb wandb_project tensorboard logging_steps logging_dir log_interval log_every mlflow",
     "remove it: runs/NAME/run.jsonl has a line for every step, and `magister status RUN` shows them"},
    {"push_to_hub hub_model_id hub_strategy",
     "remove it: nothing is sent anywhere; the student is a folder that `hf "
     "upload` takes"},
    // Generation of texts.
    {"num_beams beam_search beam_width use_beam_search length_penalty",
     "there is no search by beams; best_of keeps the "
     "most probable of several texts"},
    {"presence_penalty frequency_penalty",
     "remove it: no penalty is subtracted from the logits; repetition_penalty divides them, so its numbers mean "
     "something else (1 changes nothing)"},
    {"stream streaming", "remove it: texts are in the results when these are complete"},
    {"generation inference",
     "here that is a task of its own, `task: generate`, which has the keys of its texts: temperature, "
     "max_new_tokens, max_sequences"},
    {"sampling_params generation_config gen_kwargs generation_kwargs sampling",
     "here these are keys of the task that writes the texts: temperature, top_p, top_k, max_new_tokens, n"},
    {"num_ctx n_ctx context_window", "here that is max_prompt_length and max_new_tokens together"},
    {"num_clients max_clients clients concurrency max_concurrency max_concurrent_requests parallel_requests",
     "here that is max_sequences: texts that a group writes at the same time"},
    // Exams.
    {"exam exams exam_title blueprint sections points answer_key variants learning_objectives",
     "remove it: `task: exam` writes an exam by its own keys (configs/keys/exam.md)"},
    {"deduplicate deduplication dedup unique near_duplicates",
     "remove it: no task looks for texts that are alike (configs/guides/exams.md)"},
    {"accept accept_if accepted min_score min_rating filter filter_by keep_if where only_if review_and_fix max_retries "
     "max_attempts",
     "here that is dataset.task and dataset.keep of a later task, which reads the texts that a verdict keeps "
     "(configs/guides/exams.md)"},
    {"answers source_task from_task previous",
     "judge and score read the texts of an earlier task by answers, generate by dataset.task"},
    // Services.
    {"ollama ollama_url ollama_host openai_base_url api_base api_url",
     "remove it: there is no server to ask; a run loads model.path itself"},
    {"alert alerts alerting webhook webhooks notify notifications email slack slack_url callback_url",
     "remove it: nothing is sent anywhere; the exit code and runs/NAME/run.jsonl show how a run went "
     "(configs/guides/service.md)"},
    {"monitor monitoring monitor_interval gpu_monitor gpu_monitoring metrics metrics_port prometheus prometheus_port "
     "grafana dashboard max_temperature temperature_limit power_limit",
     "remove it: a run samples its ranks and GPUs by itself; `magister top RUN` and `--metrics` show them "
     "(configs/guides/monitoring.md)"},
    {"auth authentication auth_token rate_limit rate_limits",
     "remove it: an experiment has no users; `magister serve` has tokens and rates (configs/guides/service.md)"},
    {"host port listen api_key served_model_name base_url endpoint uvicorn fastapi",
     "remove it: a run reads its requests from dataset.path; `magister serve --listen HOST:PORT` is a queue of jobs"},
    {"log_level verbose debug log_file",
     "`magister run -v` prints what every rank does, -q only warnings; logs are in runs/NAME/logs"},
};

constexpr Row kCommands[] = {
    {"server api start-server vllm",
     "magister serve queues experiments over HTTP; `magister run FILE.yaml` answers a file of requests (task: "
     "generate)"},
    {"chat complete completion generate infer inference predict sample",
     "it is a task: write `task: generate` in an "
     "experiment, then magister run FILE.yaml"},
    {"train finetune fine-tune sft dpo grpo ppo distill distillation rl",
     "it is a task: write `task: train` in an "
     "experiment, then magister run FILE.yaml"},
    {"judge eval evaluate score lm-eval accuracy",
     "it is a task: write `task: judge`, `score` or `evaluate` in an "
     "experiment, then magister run FILE.yaml"},
    {"teacher logits teacher_logits",
     "it is a task: write `task: teacher_logits` in an experiment, then magister run "
     "FILE.yaml"},
    {"resume continue restart", "magister run FILE.yaml continues a stopped run by itself"},
    {"launch start submit run_parallel run_parallel.py accelerate torchrun deepspeed",
     "mpirun -np N magister run FILE.yaml, on a cluster sbatch jobs/one-node.sbatch FILE.yaml"},
    {"exam exams quiz", "write `task: exam` in an experiment (configs/guides/exams.md)"},
    {"tune sweep optimize hpo search",
     "nothing searches by itself; `matrix` in an experiment makes a task for each combination of values "
     "(configs/keys/experiment.md)"},
    {"init new create template", "copy an example of configs/, which README.md begins with"},
    {"config show-config print-config", "magister --print-config FILE.yaml prints an experiment as resolved"},
    {"rm remove delete clean cleanup purge", "nothing is deleted here: a run is the folder runs/NAME"},
    {"validate dry-run dryrun lint verify estimate", "magister plan FILE.yaml checks everything and computes nothing"},
    {"monitor watch progress ps tail", "magister top RUN shows a run at work, magister status RUN its tasks"},
    {"metrics stats gpu-stats performance prometheus grafana dashboard",
     "magister status RUN --json describes a run, magister doctor --json the machine, magister top RUN "
     "what its GPUs do"},
    {"log logs", "a run's logs are runs/NAME/logs, its events runs/NAME/run.jsonl; magister status RUN sums them up"},
    {"recommend recommendations advise sizing",
     "magister plan --config-only FILE.yaml shows how many GPUs a model needs"},
    {"health test-setup test_parallel_setup test_parallel_setup.py selftest self-test test env gpu gpus list-gpus "
     "multigpu nvidia-smi",
     "magister doctor shows ranks, hosts, GPUs and links"},
    {"benchmark perf", "magister bench measures the program itself"},
    {"queue users user login auth token",
     "magister serve is a queue of jobs with tokens; the cluster's scheduler has users (jobs/README.md)"},
    {"list ls runs jobs", "magister history DIR lists the runs in a folder"},
    {"stop cancel kill", "send the run SIGUSR1 or SIGTERM: it stops cleanly (jobs/README.md)"},
    {"download pull fetch", "nothing is downloaded; `hf download ORG/NAME` fills the cache that model.path looks into"},
    {"convert quantize gguf", "model.quantization: int8 or int4 quantises while a model is loaded"},
};

constexpr Row kOptions[] = {
    {"--dry-run --validate --check", "magister plan FILE.yaml checks everything and computes nothing"},
    {"--resume --continue", "magister run FILE.yaml continues a stopped run by itself"},
    {"--restart --overwrite --force", "--fresh puts an earlier result aside and starts over"},
    {"--np --num-gpus --nproc-per-node --world-size --num-processes",
     "the number of ranks is mpirun's, one a GPU: mpirun -np N magister run FILE.yaml"},
    {"--config --config-file", "the experiment comes after the command: magister run FILE.yaml"},
    {"--output --output-file --outfile", "of export that is --out; a run's folder is output.directory"},
    {"--format --type", "of export that is --to"},
    {"--timeout --time --time-limit --walltime", "--max-wall HH:MM:SS stops a run cleanly after that time"},
    {"--list-gpus", "magister doctor shows the GPUs that each rank sees"},
    {"--model --model-name", "a model is a key of the experiment: model.path=..."},
};

constexpr Row kModels[] = {
    {"gpt2 openai-gpt2", "openai-community/gpt2"},
    {"gpt2-medium", "openai-community/gpt2-medium"},
    {"gpt2-large", "openai-community/gpt2-large"},
    {"gpt2-xl", "openai-community/gpt2-xl"},
    {"distilgpt2", "distilbert/distilgpt2"},
    {"bert-base-uncased", "google-bert/bert-base-uncased"},
    {"bert-large-uncased", "google-bert/bert-large-uncased"},
    {"roberta-base", "FacebookAI/roberta-base"},
    {"roberta-large", "FacebookAI/roberta-large"},
    {"xlm-roberta-base", "FacebookAI/xlm-roberta-base"},
    {"distilbert-base-uncased", "distilbert/distilbert-base-uncased"},
    {"llama-3.2-1b llama3.2:1b", "meta-llama/Llama-3.2-1B-Instruct"},
    {"llama-3.2-3b llama3.2 llama3.2:3b", "meta-llama/Llama-3.2-3B-Instruct"},
    {"llama-3.1-8b llm_llama-3.1-8b llama3.1 llama3.1:8b llama3", "meta-llama/Llama-3.1-8B-Instruct"},
    {"llama-3.1-70b llm_llama-3.1-70b llama3.1:70b llama-3-70b", "meta-llama/Llama-3.1-70B-Instruct"},
    {"llama-3.1-405b llama3.1:405b", "meta-llama/Llama-3.1-405B-Instruct"},
    {"mistral mistral-7b mistral:7b", "mistralai/Mistral-7B-Instruct-v0.3"},
    {"qwen2.5 qwen2.5-7b qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct"},
    {"phi-4 phi4", "microsoft/phi-4"},
    {"tinyllama tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
    {"smollm2 smollm2-135m smollm2:135m", "HuggingFaceTB/SmolLM2-135M-Instruct"},
};

struct ValueRow {
  std::string_view keys;    // the last part of a key's path
  std::string_view values;  // separated by spaces
  std::string_view advice;
};

constexpr ValueRow kValues[] = {
    {"devices", "gpu gpus cuda nvidia all any", "auto takes GPUs where there are some; a list such as [0, 1] chooses"},
    {"devices", "free free_memory idle least_used",
     "no GPU is chosen by its free memory: auto takes those that the run is shown, a list such as [0, 1] chooses"},
    {"dtype precision", "bfloat16 torch.bfloat16", "write bf16"},
    {"dtype precision", "float32 torch.float32 full single", "write f32"},
    {"dtype", "float16 torch.float16 half", "write f16, which is for CPUs, or bf16"},
    {"dtype", "int8 8bit q8_0 int4 4bit nf4 q4_0", "that is model.quantization: int8 or int4"},
    {"dtype", "float8 float8_e4m3fn fp8_e4m3", "write fp8"},
    {"precision", "fp16 float16 torch.float16 half mixed amp 16-mixed bf16-mixed true",
     "write bf16: there is no training in fp16, and so no scaling of losses"},
    {"quantization", "8bit 8-bit llm.int8 w8a16 w8a8 bnb_8bit", "write int8"},
    {"quantization", "4bit 4-bit nf4 fp4 w4a16 bnb_4bit", "write int4"},
    {"quantization", "fp8", "that is model.dtype: fp8, on GPUs"},
    {"quantization", "awq gptq bitsandbytes compressed-tensors gguf mxfp4 q4_k_m q5_k_m q8_0 q4_0",
     "remove it: what is quantised in a checkpoint or a GGUF file is read as it is"},
    {"attention", "eager sdpa math auto xformers triton flash_attention_2 flash_attention_3 flash_attn flash-attn",
     "remove it: the hardware decides; flash and cudnn choose between two kernels for long texts on GPUs"},
    {"schedule", "round_robin round-robin roundrobin", "write static: every n-th unit"},
    {"schedule", "balanced load auto work_stealing", "write dynamic: whoever is free"},
    {"schedule", "constant_with_warmup linear_with_warmup cosine_with_warmup",
     "leave out with_warmup: that is optimizer.warmup"},
    {"collectives", "nccl gloo mpi", "the library is not chosen here; reproducible or fast is"},
    {"objective", "sft clm causal_lm pretrain", "write lm"},
    {"objective", "kd gkd distillation soft_labels", "write distill"},
    {"objective", "ppo rloo reinforce rl",
     "of these only grpo exists, which learns from rewards without a value model"},
    {"objective", "pita qsharp q# critic", "write value: configs/guides/pita.md"},
    {"objective", "rm reward_model bradley_terry", "write reward"},
    {"objective", "orpo kto cpo simpo", "of these dpo is there"},
    {"mode", "yesno yes_no yes/no binary same_meaning correctness",
     "write reference: yes or no against the right answers"},
    {"mode", "score scores likert rating scale", "write rubric: a score"},
    {"mode", "pair pairs comparison preference arena", "write pairwise"},
    {"mode", "multiple_choice mcq letter letters", "write choice"},
    {"method", "logits logprobs likelihood", "write prefill: the verdict's probability is read at its position"},
    {"method", "generate generation text greedy", "write decode: a reply is written and read"},
    {"task", "sft finetune fine-tune finetuning training dpo grpo ppo distill distillation reward",
     "write train, whose objective says what is learnt"},
    {"task", "infer inference predict prediction chat completion completions sample", "write generate"},
    {"task", "classify classification embedding reward_model rerank", "write score"},
    {"task", "logits teacher logprobs", "write teacher_logits"},
    {"task", "review validate validation grade grading critique", "write judge"},
    {"task", "pita qsharp q#", "that is three tasks, rollout, train and generate: configs/guides/pita.md"},
    {"task", "exams quiz assemble", "write exam"},
    {"task", "fix rewrite filter", "write generate, with dataset.task, dataset.keep and a prompt"},
    {"task", "deduplicate dedup", "no task does that: configs/guides/exams.md"},
    {"task", "serve server api", "generate answers a file of requests; `magister serve` queues experiments"},
};

std::string lower_case(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_among(std::string_view words, std::string_view wanted) {
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == wanted) return true;
    begin = end + 1;
  }
  return false;
}

template <std::size_t N>
std::string_view found_in(const Row (&rows)[N], std::string_view word) {
  const std::string wanted = lower_case(word);
  for (const Row& row : rows) {
    if (is_among(row.words, wanted)) return row.advice;
  }
  return {};
}

}  // namespace

std::string foreign_key(std::string_view key) { return std::string(found_in(kKeys, key)); }

std::string foreign_command(std::string_view command) { return std::string(found_in(kCommands, command)); }

std::string foreign_option(std::string_view option) {
  if (const std::string_view known = found_in(kOptions, option); !known.empty()) return std::string(known);
  std::string key(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  std::replace(key.begin(), key.end(), '-', '_');
  return foreign_key(key);
}

std::string foreign_value(std::string_view key, std::string_view value) {
  const std::string wanted = lower_case(value);
  for (const ValueRow& row : kValues) {
    if (is_among(row.keys, key) && is_among(row.values, wanted)) return std::string(row.advice);
  }
  return {};
}

std::string foreign_model(std::string_view path) {
  std::string quantization;
  for (const auto& [end, kind] : {std::pair("-8bit", "int8"), std::pair("-int8", "int8"), std::pair("-4bit", "int4"),
                                  std::pair("-int4", "int4")}) {
    if (lower_case(path).ends_with(end)) {
      quantization = kind;
      path.remove_suffix(std::string_view(end).size());
      break;
    }
  }
  const std::string_view repository = found_in(kModels, path);
  std::string out;
  if (!repository.empty())
    out = fmt::format("; the hub's name of it is {0}: download it with `hf download {0}`, and write that name",
                      repository);
  if (!quantization.empty())
    out += fmt::format(
        "{} the end of the name asks for what model.quantization: {} does; write that key and the model's own name",
        out.empty() ? ";" : ", and", quantization);
  return out;
}

}  // namespace magister
