// Rows are sorted by what they are about. A word stands here once; its letters are compared without case.
#include "magister/core/foreign_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace magister {
namespace {

struct Row {
  std::string_view words;  // divided by blanks
  std::string_view advice;
};

constexpr Row kKeys[] = {
    // Who computes where.
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
     "a model stands on GPUs whole or not at all: layout.devices: auto or "
     "cpu, layout.gpus_per_group"},
    {"device device_type accelerator use_cpu no_cuda use_gpu", "here that is layout.devices: auto, cpu or a list"},
    {"num_gpus n_gpu n_gpus gpu_count num_devices world_size nproc nproc_per_node num_processes num_machines num_nodes "
     "data_parallel_size dp_size dp local_rank node_rank num_workers n_workers",
     "the number of ranks is the launcher's: mpirun -np N magister run FILE.yaml, or srun"},
    {"worker_id worker_index shard_id shard_index num_shards total_workers n_shards job_index array_index",
     "a run divides its records over its ranks by itself; of separate jobs it is a task's slice: 0/6, and `magister "
     "merge` joins their results"},
    {"use_parallel_execution parallel_execution parallelization max_parallel num_parallel", "here that is run.at_once"},
    {"distributed distributed_backend ddp_backend dist_backend fsdp deepspeed parallel_method "
     "accelerate_config",
     "every training is over all ranks that the launcher starts; train.zero says what they divide"},
    {"user_id priority queue partition time_limit walltime nodes",
     "that is the scheduler's (jobs/README.md); a run ends "
     "in time with run.max_wall"},
    // Memory.
    {"swap_space cpu_offload cpu_offload_gb kv_cache_memory max_gpu_memory memory_limit gpu_memory vram",
     "free memory is measured and used; passes are made smaller with token_budget or max_sequences, of a training with "
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
    {"model_name model_path hf_model model_id llm_name llm base_model",
     "here that is model.path, of one task alone tasks.0.model.path"},
    {"judge_model judge_name judge_path teacher_model teacher_name teacher_path student_model student_name "
     "student_path "
     "writer_model",
     "here that is the model of its task: tasks.0.model.path"},
    // Sections of other programs' files.
    {"distillation distill kd knowledge_distillation",
     "here those are tasks: `task: teacher_logits` writes a teacher's logits, `task: train` with `objective: distill` "
     "learns from them; of each the records are tasks.0.dataset, the first of them tasks.0.dataset.limit"},
    {"training trainer_config training_args sft",
     "here that is a task of its own, `task: train`, with its keys below tasks"},
    {"generation generation_config sampling sampling_params inference",
     "here that is a task of its own, `task: generate`, with its keys below tasks"},
    {"judging evaluation metrics metric",
     "here those are tasks: `judge`, `score`, `evaluate`, with their keys below tasks"},
    // Studies of answers.
    {"run_id run_ids answers_run", "of a judge that is `answers`: the path of that run's results, or its folder"},
    {"semantic_entropy semantic_clusters nli_model entailment_model",
     "remove it: no task clusters texts by what they mean (configs/guides/evaluation.md says what there is)"},
    {"gnll g_nll nll sequence_nll",
     "remove it: it is the sum of a text's /generate/logprob (configs/guides/evaluation.md has the lines)"},
    {"auroc roc_auc", "remove it: a judge of `answers` writes auroc_of_likelihood into its summary"},
    // Training.
    {"batch_size_per_gpu per_gpu_batch_size batch_size_per_device train_batch_size_per_gpu",
     "here that is train.global_batch, over all ranks together; train.micro_batch is what is computed at once"},
    {"mixed_precision use_amp amp fp16 bf16 half precision_plugin",
     "here that is train.precision: bf16 of a training, "
     "and model.dtype elsewhere"},
    {"resume resume_from_checkpoint load_checkpoint checkpoint_path auto_resume",
     "remove it: the same command goes on "
     "with a stopped run; --fresh starts over"},
    {"overwrite overwrite_output_dir force", "remove it: `magister run --fresh` puts earlier results aside"},
    {"checkpoint_dir checkpoints_dir save_dir save_path",
     "here that is output.directory: results and states stand in its "
     "folder of the experiment's name"},
    {"save_total_limit max_checkpoints keep_last", "here that is train.keep"},
    {"early_stopping early_stopping_patience load_best_model_at_end metric_for_best_model callbacks",
     "remove it: a training makes its steps; train.evaluate shows the loss of records that are held out"},
    {"use_peft use_lora lora_dropout lora_bias", "here that is train.adapter, of LoRA without dropout"},
    {"num_train_steps max_train_steps total_steps train_steps", "here that is train.steps"},
    {"algos algorithm algo trainer trainer_type",
     "here that is a task of its own: task: train with its objective, or "
     "task: rollout"},
    {"reward_batch_size", "remove it: rewards are computed in passes of their own"},
    {"report_to wandb wandb_project tensorboard logging_steps logging_dir log_interval mlflow",
     "remove it: runs/NAME/run.jsonl has a line for every step, and `magister status RUN` shows them"},
    {"push_to_hub hub_model_id hub_strategy",
     "remove it: nothing is sent anywhere; the student is a folder that `hf "
     "upload` takes"},
    // Texts.
    {"num_beams beam_search beam_width use_beam_search length_penalty",
     "there is no search by beams; best_of keeps the "
     "most probable of several texts"},
    {"stream streaming", "remove it: texts stand in the results when they are complete"},
    // A service.
    {"host port listen api_key served_model_name base_url endpoint uvicorn",
     "remove it: there is no server; a run "
     "reads its requests from dataset.path"},
    {"log_level verbose debug log_file",
     "`magister run -v` says what every rank does, -q warnings alone; logs stand in "
     "runs/NAME/logs"},
};

constexpr Row kCommands[] = {
    {"serve server api start-server vllm",
     "there is no server; `magister run FILE.yaml` answers a file of requests (task: "
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
    {"resume continue restart launch start submit", "magister run FILE.yaml goes on with a stopped run by itself"},
    {"validate dry-run dryrun lint verify estimate", "magister plan FILE.yaml checks everything and computes nothing"},
    {"monitor top watch progress ps tail", "magister status RUN shows a run's tasks; `watch` repeats it"},
    {"health test-setup env gpus list-gpus nvidia-smi", "magister doctor shows ranks, hosts, GPUs and links"},
    {"list ls runs jobs", "magister history DIR lists the runs in a folder"},
    {"stop cancel kill", "send the run SIGUSR1 or SIGTERM: it stops cleanly (jobs/README.md)"},
    {"download pull fetch", "nothing is downloaded; `hf download ORG/NAME` fills the cache that model.path looks into"},
    {"convert quantize gguf", "model.quantization: int8 or int4 quantises while a model is loaded"},
};

constexpr Row kOptions[] = {
    {"--dry-run --validate --check", "magister plan FILE.yaml checks everything and computes nothing"},
    {"--resume --continue", "magister run FILE.yaml goes on with a stopped run by itself"},
    {"--restart --overwrite --force", "--fresh puts an earlier result aside and starts over"},
    {"--np --num-gpus --nproc-per-node --world-size --num-processes",
     "the number of ranks is mpirun's, one a GPU: mpirun -np N magister run FILE.yaml"},
    {"--config --config-file", "the experiment stands behind the command: magister run FILE.yaml"},
    {"--output --output-file --outfile", "of export that is --out; a run's folder is output.directory"},
    {"--format --type", "of export that is --to"},
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

// Values of keys with a choice; of several meanings the first that the key knows.
constexpr Row kValues[] = {
    {"float16 half torch.float16 torch.half", "f16"},
    {"bfloat16 torch.bfloat16", "bf16"},
    {"float32 float single torch.float32 torch.float", "f32"},
    {"float8 e4m3 float8_e4m3fn torch.float8_e4m3fn", "fp8"},
    {"8bit 8-bit 8 llm.int8 w8a16", "int8"},
    {"4bit 4-bit 4 nf4 fp4 w4a16", "int4"},
    {"gpu gpus cuda all", "auto"},
    {"sft dpo grpo ppo finetune fine-tune", "train"},
    {"logits teacher", "teacher_logits"},
    {"inference generation chat", "generate"},
    {"cross_entropy ce", "lm"},
};

std::string lower_case(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

template <std::size_t N>
std::string_view found_in(const Row (&rows)[N], std::string_view word) {
  const std::string wanted = lower_case(word);
  for (const Row& row : rows) {
    for (std::size_t begin = 0; begin < row.words.size();) {
      const std::size_t end = std::min(row.words.find(' ', begin), row.words.size());
      if (row.words.substr(begin, end - begin) == wanted) return row.advice;
      begin = end + 1;
    }
  }
  return {};
}

}  // namespace

std::string foreign_key(std::string_view key) { return std::string(found_in(kKeys, key)); }

std::string foreign_value(std::string_view value, const std::vector<std::string>& names) {
  const std::string meant(found_in(kValues, value));
  return std::find(names.begin(), names.end(), meant) == names.end() ? "" : meant;
}

std::string foreign_command(std::string_view command) { return std::string(found_in(kCommands, command)); }

std::string foreign_option(std::string_view option) { return std::string(found_in(kOptions, option)); }

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
    out += fmt::format("{} the end of the name asks for what model.quantization: {} does, beside the model's own name",
                       out.empty() ? ";" : ", and", quantization);
  return out;
}

}  // namespace magister
