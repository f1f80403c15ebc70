// Reads the keys of `task: train`, in the order in which the resolved experiment shows them. Names and defaults are
// those of Hugging Face's Trainer and of TRL.
#include "tasks/train/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"
#include "tasks/train/objective.h"

namespace magister {
namespace {

// refusal: why the keys are refused; empty: the objective uses them.
ConfigNode only_where_used(ConfigNode& node, std::string_view refusal) {
  return node.only_if(refusal.empty(), std::string(refusal));
}

void read_batches(ConfigNode& node, TrainConfig& config) {
  const RefusedKeys& refused = config.objective().refused;
  BatchOptions& batches = config.batches;
  batches.epochs = node.number("epochs", 3.0, 1e-6, 1e6);
  if (const auto steps = node.optional_integer("steps", 1, 1 << 28)) batches.steps = static_cast<std::uint64_t>(*steps);
  ConfigNode of_known = only_where_used(node, refused.batch_tokens);
  const auto tokens = of_known.optional_integer("batch_tokens", 1, std::int64_t{1} << 40);
  if (tokens) batches.batch_tokens = static_cast<std::uint64_t>(*tokens);
  ConfigNode of_sequences = node.only_if(
      !tokens,
      "is given together with `batch_tokens` (a step has a number of sequences or of tokens, not both); remove one of "
      "them");
  batches.global_batch = of_sequences.count("global_batch", 8, 1, 1 << 20);
  if (const auto sequences = node.integer_or_auto("micro_batch", 1, 1 << 20))
    batches.micro_batch = static_cast<std::uint64_t>(*sequences);
  if (!tokens && batches.micro_batch > batches.global_batch) {
    node.reject(
        "micro_batch",
        "{} sequences at once of a step that takes {} (they would be computed as {}, all by one rank and thread); "
        "lower it, or raise global_batch",
        batches.micro_batch, batches.global_batch, batches.global_batch);
  }
  config.length = LengthKey(node, "max_length", 1024, 2, 1 << 24);
  batches.max_length = config.length.tokens();
  config.length_place = node.place("max_length");
  ConfigNode of_single = only_where_used(
      node, config.of_pairs() ? "is given with pairs of answers (a pair is not divided or joined); remove it"
                              : refused.packing);
  batches.packing = of_single.boolean("packing", false);
  batches.shuffle = node.boolean("shuffle", true);
  ConfigNode of_texts = only_where_used(node, refused.append_eos);
  config.append_eos = of_texts.boolean("append_eos", true);
  node.also_called("epochs", {"num_train_epochs", "num_epochs", "max_epochs"});
  node.also_called("steps", {"max_steps"});
  node.also_called("global_batch", {"train_batch_size", "batch_size", "gradient_accumulation_steps"});
  node.also_called("batch_tokens", {"max_tokens", "tokens_per_batch"});
  node.also_called("micro_batch", {"per_device_train_batch_size", "micro_batch_size", "micro_batch_size_per_gpu"});
  node.also_called("max_length", {"max_seq_length", "block_size"});
}

void read_optimizer(ConfigNode node, TrainConfig& config) {
  OptimizerOptions& optimizer = config.trainer.optimizer;
  optimizer.lr = node.number("lr", config.objective().default_lr, 0, 10);
  if (optimizer.lr <= 0) node.reject("lr", "0 (nothing would be learnt); choose for example 5.0e-5");
  node.range_end("lr", ConfigNode::RangeEnd::kAbove, 0);
  const std::string schedule = node.choice("schedule", {"linear", "cosine", "constant"}, "linear");
  config.schedule = schedule == "linear"   ? LrSchedule::kLinear
                    : schedule == "cosine" ? LrSchedule::kCosine
                                           : LrSchedule::kConstant;
  config.warmup = node.number("warmup", 0, 0, 1e9);
  if (config.warmup >= 1 && config.warmup != std::floor(config.warmup))
    node.reject("warmup",
                "{} is neither a part of all steps nor a number of them (below 1 it is a part, else the steps are "
                "counted, and none is divided); round it",
                config.warmup);
  optimizer.weight_decay = node.number("weight_decay", 0, 0, 10);
  optimizer.clip = node.number("clip", 1.0, 0, 1e9);
  optimizer.beta1 = node.number("beta1", 0.9, 0, 0.99999999);
  optimizer.beta2 = node.number("beta2", 0.999, 0, 0.99999999);
  optimizer.epsilon = node.number("epsilon", 1e-8, 1e-30, 1);
  node.also_called("lr", {"learning_rate"});
  node.also_called("schedule", {"lr_scheduler_type", "scheduler"});
  node.also_called("warmup", {"warmup_ratio", "warmup_steps"});
  node.also_called("clip", {"max_grad_norm"});
  node.also_called("beta1", {"adam_beta1"});
  node.also_called("beta2", {"adam_beta2"});
  node.also_called("epsilon", {"adam_epsilon", "eps"});
}

// The keys are those of PEFT's LoraConfig.
void read_adapter(ConfigNode& train, TrainConfig& config) {
  std::optional<ConfigNode> node = train.optional_section("adapter");
  train.also_called("adapter", {"lora", "peft", "peft_config", "lora_config"});
  if (!node) return;
  LoraOptions lora;
  lora.seed = config.batches.seed;
  lora.config.rank = node->integer("rank", 8, 1, 1 << 16);
  config.rank_place = node->place("rank");
  lora.config.alpha = node->number("alpha", 8, 1e-6, 1e6);
  lora.config.targets = node->optional_texts("targets");
  lora.config.rank_stabilized = node->boolean("rank_stabilized", false);
  node->also_called("rank", {"r", "lora_r"});
  node->also_called("alpha", {"lora_alpha"});
  node->also_called("targets", {"target_modules", "lora_target_modules"});
  node->also_called("rank_stabilized", {"use_rslora"});
  config.trainer.lora = std::move(lora);
}

// Hugging Face's Trainer calls these keys eval_dataset and eval_steps.
void read_evaluation(ConfigNode& train, const ExperimentConfig& experiment, TrainConfig& config) {
  ConfigNode of_records = only_where_used(train, config.objective().refused.evaluate);
  std::optional<ConfigNode> node = of_records.optional_section("evaluate");
  train.also_called("evaluate", {"eval", "evaluation", "eval_dataset", "eval_strategy"});
  if (!node) return;
  HeldOutConfig evaluate;
  const bool distills = config.trainer.objective == ObjectiveKind::kDistill;
  ConfigNode of_data =
      node->only_if(!distills,
                    "is given with objective: distill (a teacher's file holds the held-out tokens, too); name "
                    "evaluate.teacher");
  evaluate.dataset = read_dataset_or_pairs(of_data, config.of_pairs(), config.objective().has_margins);
  ConfigNode of_teacher = node->only_if(
      distills, "is given with another objective (only a distillation has a teacher); name evaluate.dataset");
  ConfigNode teacher = of_teacher.section("teacher");
  evaluate.teacher = read_results_source(teacher, distills, experiment, kOneTeacher);
  node->one_of({"dataset", "teacher"});
  evaluate.every = node->count("every", 500, 1, 1 << 28);
  node->also_called("every", {"eval_steps", "steps", "interval"});
  const auto kind = [](const DatasetConfig& dataset) {
    return !dataset.messages_field.empty() ? "messages" : !dataset.tokens_field.empty() ? "tokens" : "text";
  };
  if (std::string_view(kind(evaluate.dataset)) != kind(config.dataset)) {
    node->reject("dataset",
                 "names {}, and the training's data set {} (the two losses could not be compared); hold records of one "
                 "kind out",
                 kind(evaluate.dataset), kind(config.dataset));
  }
  config.evaluate = std::move(evaluate);
}

// The stages are DeepSpeed's. A known stage that is not implemented is refused, and the message names the alternative.
void read_what_is_divided(ConfigNode& node, TrainConfig& config) {
  const std::int64_t stage = node.integer("zero", 1, 0, 3);
  if (stage > 1) {
    node.reject(
        "zero",
        "stage {} of ZeRO (every rank holds all weights and a whole gradient); choose 1, and fewer ranks a host",
        stage);
  }
  node.range_end("zero", ConfigNode::RangeEnd::kMost, 1);
  config.trainer.divides_optimizer = stage == 1;
  config.trainer.bf16 = node.choice("precision", {"auto", "f32", "bf16"}, "auto") == "bf16";
  node.also_called("precision", {"dtype"});
  if (node.boolean("sync_batch_norm", false)) {
    node.reject("sync_batch_norm",
                "true (no model here has a batch norm: layer and RMS norms look at one token, so there is nothing to "
                "synchronise); remove it");
  }
}

}  // namespace

const Objective& TrainConfig::objective() const {
  return **std::ranges::find_if(kObjectives, [this](const Objective* one) { return one->kind == trainer.objective; });
}
bool TrainConfig::of_pairs() const { return objective().of_pairs(*this); }
std::int64_t TrainConfig::head_labels() const { return objective().head_labels(*this); }

ResultsSource read_results_source(ConfigNode& node, bool is_needed, const ExperimentConfig& experiment,
                                  const char* why) {
  ResultsSource source = {node.optional_text("results").value_or(""), node.optional_text("task").value_or(""), ""};
  node.one_of({"results", "task"});
  node.also_called("results", {"path", "file", "dataset"});
  if (is_needed && source.results.empty() == source.task.empty()) {
    node.reject("", "{} ({}); give one of them",
                source.task.empty() ? "neither `results` nor `task` is there" : "`results` and `task` are there", why);
  }
  source.place = node.place(source.task.empty() ? "results" : "task");
  if (source.task.empty()) source.task = experiment.maker_of(source.results);
  return source;
}

std::string ResultsSource::path(const char* kind, const RunContext& context) const {
  return task.empty() ? results_at(results, kind, place) : results_path_of(context, task, kind, place);
}

std::uint64_t TrainConfig::warmup_steps(std::uint64_t total_steps) const {
  return static_cast<std::uint64_t>(warmup >= 1 ? warmup : std::ceil(warmup * static_cast<double>(total_steps)));
}

namespace {

// Reads the objective, its source of samples and its own keys, in the order in which the resolved experiment shows
// them. The keys of the other objectives are read, too.
void read_objective(ConfigNode& node, const ExperimentConfig& experiment, TrainConfig& config) {
  std::vector<std::string> names;
  for (const Objective* one : kObjectives) names.emplace_back(one->name);
  const std::string name = node.choice("objective", names, "lm");
  node.also_called("objective", {"loss", "method", "training_objective"});
  for (const Objective* one : kObjectives) {
    if (name == one->name) config.trainer.objective = one->kind;
  }
  kValueObjective.read(node, experiment, config);  // before the data set, whose keys its loss decides
  const Objective& objective = config.objective();
  ConfigNode of_records = only_where_used(node, objective.refused.dataset);
  config.dataset =
      read_dataset_or_pairs(of_records, config.of_pairs() && objective.learns_from == nullptr, objective.has_margins);
  for (const Objective* one : kObjectives) {
    if (one != &kValueObjective) one->read(node, experiment, config);
  }
  node.one_of({"dataset", "teacher", "rollouts"});
  const std::string_view refusal = objective.refused.assistant_only;
  ConfigNode of_chats =
      of_records.only_if(!config.dataset.messages_field.empty() && refusal.empty(),
                         !refusal.empty() ? std::string(refusal)
                                          : "is given without chats (only in a chat something is the assistant's); "
                                            "name the chats with dataset.messages");
  config.assistant_only = of_chats.boolean("assistant_only_loss", false);
}

// Reports a fault for a model that cannot be trained.
void check_trained_model(ConfigNode& node, const ModelSection& model) {
  if (model.dtype != "f32")
    node.reject(
        "model",
        "dtype {} (weights are trained in f32); choose f32 or auto, and train.precision: bf16 for products in bf16",
        model.dtype);
  if (model.quantization != "none")
    node.reject("model", "quantization {} (codes cannot be trained); remove it", model.quantization);
  if (model.cudnn_attention)
    node.reject("model",
                "attention: cudnn (it computes in bf16, and weights are trained in f32); remove the key, or give the "
                "task a `model` of its own");
  if (model.throughput_decoding)
    node.reject(
        "model",
        "decoding: throughput (it is for bf16 and fp8, and weights are trained in f32); remove the key, or give the "
        "task a `model` of its own");
  if (model.fp8_cache)
    node.reject("model",
                "kv_cache: fp8 (it is for bf16, and weights are trained in f32); remove the key, or give the task a "
                "`model` of its own");
}

}  // namespace

TrainConfig read_train_config(ConfigNode& node, const ExperimentConfig& experiment) {
  TrainConfig config;
  config.name = read_task_name(node, "student");
  config.model = read_task_model(node, experiment, true);
  config.batches.seed = experiment.seed;
  read_objective(node, experiment, config);
  ConfigNode section = node.section("train");
  read_batches(section, config);
  config.objective().read_batches(node, section, config);
  read_optimizer(section.section("optimizer"), config);
  read_adapter(section, config);
  read_what_is_divided(section, config);
  config.recompute = section.boolean_or_auto("gradient_checkpointing");
  config.memory_fraction = section.number("memory_fraction", 0.9, 0, 1);
  // These keys decide the use of memory only; the results have the same bits.
  for (const char* const key : {"zero", "gradient_checkpointing", "memory_fraction"}) section.outside_identity(key);
  if (config.memory_fraction == 0)
    section.reject("memory_fraction", "0 (nothing could be computed); choose for example 0.9");
  section.range_end("memory_fraction", ConfigNode::RangeEnd::kAbove, 0);
  config.save_every = section.count("save_every", 500, 1, 1 << 28);
  config.keep = section.count("keep", 2, 1, 1 << 20);
  read_evaluation(section, experiment, config);
  section.also_called("save_every", {"save_steps", "checkpoint_every", "checkpoint_interval", "save_interval"});
  section.also_called("keep", {"save_total_limit"});
  section.also_called("gradient_checkpointing", {"activation_checkpointing", "use_gradient_checkpointing"});
  section.also_called("memory_fraction", {"gpu_memory_utilization", "gpu_memory_fraction", "mem_fraction"});
  node.also_called("assistant_only_loss", {"score", "train_on_inputs", "completion_only_loss"});
  if (config.trainer.lora && config.model.random) {
    section.reject("adapter",
                   "an adapter of a model that has no weights yet (nothing would hold what it is added to); remove it, "
                   "or name a model with path");
  }
  if (config.model.dtype == "auto") config.model.dtype = "f32";
  check_trained_model(node, config.model);
  return config;
}

}  // namespace magister
