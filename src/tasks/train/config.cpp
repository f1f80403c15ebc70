// The keys of `task: train`, in the order in which the resolved experiment shows them; names and defaults of Hugging Face's Trainer and TRL.
#include "tasks/train/config.h"

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"

namespace magister {
namespace {

TeacherSource read_teacher(ConfigNode& node, bool is_needed, const ExperimentConfig& experiment) {
  TeacherSource teacher = {node.optional_text("results").value_or(""), node.optional_text("task").value_or(""), ""};
  node.one_of({"results", "task"});
  if (is_needed && teacher.results.empty() == teacher.task.empty()) {
    node.reject("", "{} (the student learns from one file of teacher logits); give one of them",
                teacher.task.empty() ? "neither `results` nor `task` is there" : "`results` and `task` are there");
  }
  teacher.place = node.place(teacher.task.empty() ? "results" : "task");
  if (teacher.task.empty()) teacher.task = experiment.maker_of(teacher.results);
  return teacher;
}

// The teacher's file, and what is made of its rows. Names of the losses as in the literature; TRL's GKD calls js generalised JS.
void read_distillation(ConfigNode& node, const ExperimentConfig& experiment, TrainConfig& config) {
  ConfigNode of_distill = node.only_if(
      config.distills,
      "is given with another objective (only a distillation has a teacher); set objective: distill, or remove it");
  ConfigNode teacher = of_distill.section("teacher");
  config.teacher = read_teacher(teacher, config.distills, experiment);
  using Loss = DistillOptions::Loss;
  using Tail = DistillOptions::Tail;
  DistillOptions& options = config.trainer.distill;
  ConfigNode section = of_distill.section("distill");
  const std::string loss = section.choice("loss", {"forward_kl", "reverse_kl", "js", "total_variation"}, "forward_kl");
  options.loss = loss == "reverse_kl"        ? Loss::kReverseKl
                 : loss == "js"              ? Loss::kJs
                 : loss == "total_variation" ? Loss::kTotalVariation
                                             : Loss::kForwardKl;
  const std::string tail =
      section.choice("tail", {"bucket", "none", "renormalised", "renormalised_both", "gold"}, "bucket");
  options.tail = tail == "none"                ? Tail::kNone
                 : tail == "renormalised"      ? Tail::kRenormalised
                 : tail == "renormalised_both" ? Tail::kRenormalisedBoth
                 : tail == "gold"              ? Tail::kGold
                                               : Tail::kBucket;
  ConfigNode of_js = section.only_if(
      loss == "js", "is given without `loss: js` (only that mixes two distributions); set the loss or remove it");
  options.beta = of_js.number("beta", 0.5, 0, 1);
  options.temperature = section.number("temperature", 1.0, 0.01, 100);
  options.weight = section.number("weight", 1.0, 0, 1e6);
  options.lm_weight = section.number("lm_weight", 0.0, 0, 1e6);
  if (config.distills && options.weight == 0 && options.lm_weight == 0)
    section.reject("weight", "0, and so is lm_weight (nothing would be learnt); raise one of them");
  section.also_called("lm_weight", {"ce_weight", "cross_entropy_weight"});
  section.also_called("tail", {"missing_probability_handling"});
  if (!config.distills) {
    options = {};
    options.weight = 0;
    options.lm_weight = 1;
  }
}

// Names and defaults of TRL's DPOConfig.
void read_dpo(ConfigNode& node, TrainConfig& config) {
  const bool applies = config.objective() == Objective::kDpo;
  ConfigNode of_dpo = node.only_if(applies, "is given with another objective; set objective: dpo, or remove it");
  ConfigNode section = of_dpo.section("dpo");
  PreferenceOptions& options = config.trainer.preference;
  using Loss = PreferenceOptions::Loss;
  const std::string loss = section.choice("loss_type", {"sigmoid", "hinge", "ipo", "robust"}, "sigmoid");
  options.loss = loss == "hinge"    ? Loss::kHinge
                 : loss == "ipo"    ? Loss::kIpo
                 : loss == "robust" ? Loss::kRobust
                                    : Loss::kSigmoid;
  options.beta = section.number("beta", 0.1, 0, 1e6);
  if (options.beta == 0) section.reject("beta", "0 (nothing would be learnt); choose for example 0.1");
  ConfigNode of_robust = section.only_if(
      loss == "robust",
      "is given without `loss_type: robust` (no other loss knows of wrong labels); set it, or remove label_smoothing");
  options.label_smoothing = of_robust.number("label_smoothing", 0.0, 0, 0.499999);
  config.truncation = section.choice("truncation_mode", {"keep_start", "keep_end"}, "keep_start") == "keep_end"
                          ? TruncationMode::kKeepEnd
                          : TruncationMode::kKeepStart;
  section.also_called("loss_type", {"loss"});
}

// Of TRL's RewardConfig.
void read_reward(ConfigNode& node, TrainConfig& config) {
  ConfigNode of_reward = node.only_if(config.objective() == Objective::kReward && !config.values,
                                      "is given with another objective; set objective: reward, or remove it");
  ConfigNode section = of_reward.section("reward");
  config.trainer.preference.center_rewards_coefficient = section.number("center_rewards_coefficient", 0.0, 0, 1e6);
}

void read_batches(ConfigNode& node, TrainConfig& config) {
  BatchOptions& batches = config.batches;
  batches.epochs = node.number("epochs", 3.0, 1e-6, 1e6);
  if (const auto steps = node.optional_integer("steps", 1, 1 << 28)) batches.steps = static_cast<std::uint64_t>(*steps);
  ConfigNode of_known = node.only_if(!config.of_prompts(),
                                     "is given with objective: grpo (a step takes whole groups of texts whose lengths "
                                     "nobody knows before); name global_batch");
  const auto tokens = of_known.optional_integer("batch_tokens", 1, std::int64_t{1} << 40);
  if (tokens) batches.batch_tokens = static_cast<std::uint64_t>(*tokens);
  ConfigNode of_sequences = node.only_if(
      !tokens,
      "is given beside `batch_tokens` (a step takes so many sequences, or so many tokens); remove one of them");
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
  ConfigNode of_single = node.only_if(
      !config.of_pairs() && !config.of_prompts(),
      config.of_pairs() ? "is given with pairs of answers (a pair is not divided or joined); remove it"
                        : "is given with objective: grpo (every text stands behind its own prompt); remove it");
  batches.packing = of_single.boolean("packing", false);
  batches.shuffle = node.boolean("shuffle", true);
  ConfigNode of_texts = node.only_if(
      !config.reads_results() && !config.of_prompts(),
      config.values ? "is given with objective: value (the rollouts hold the tokens as they are); remove it"
      : config.distills
          ? "is given with objective: distill (the teacher's file holds the tokens as they are); remove it"
          : "is given with objective: grpo (the model writes on after a prompt); remove it");
  config.append_eos = of_texts.boolean("append_eos", true);
  node.also_called("epochs", {"num_train_epochs", "num_epochs", "max_epochs"});
  node.also_called("steps", {"max_steps"});
  node.also_called("global_batch", {"train_batch_size", "batch_size", "gradient_accumulation_steps"});
  node.also_called("batch_tokens", {"max_tokens", "tokens_per_batch"});
  node.also_called("micro_batch", {"per_device_train_batch_size", "micro_batch_size", "micro_batch_size_per_gpu"});
  node.also_called("max_length", {"max_seq_length", "block_size"});
}

// A step of the plan takes prompts; global_batch and steps count texts and updates, as TRL's do.
void count_in_prompts(ConfigNode& task, ConfigNode& section, TrainConfig& config) {
  const GrpoConfig& grpo = config.grpo;
  BatchOptions& batches = config.batches;
  if (batches.global_batch % grpo.num_generations != 0) {
    section.reject(
        "global_batch",
        "{} texts are not whole groups of {} (a text is compared with the others of its prompt); choose a multiple of "
        "grpo.num_generations",
        batches.global_batch, grpo.num_generations);
  }
  if (grpo.text_length.is_written() && grpo.max_new_tokens >= batches.max_length) {
    section.reject(
        "max_length",
        "{} tokens of prompt and text, of which grpo.max_new_tokens takes {} (no token is left for a prompt); raise "
        "max_length, or lower grpo.max_new_tokens",
        batches.max_length, grpo.max_new_tokens);
  }
  if (grpo.reduction == PolicyReduction::kBnpo && batches.micro_batch == 0) {
    section.reject(
        "micro_batch",
        "auto with loss_type: bnpo (its loss is the mean over micro-batches of each one's mean, so their size decides "
        "it); set micro_batch");
  }
  if (!config.dataset.tokens_field.empty())
    task.reject("dataset",
                "tokens with objective: grpo (rewards are read from texts); name a field with text or messages");
  config.steps = batches.steps;
  batches.steps = (batches.steps + grpo.num_iterations - 1) / grpo.num_iterations;
  batches.global_batch = std::max<std::uint64_t>(1, batches.global_batch / grpo.num_generations);
  if (grpo.reward.reads_fields()) config.dataset.whole_record = true;
}

// Hugging Face's Trainer; DPOConfig and GRPOConfig of TRL; its RewardConfig; PITA's value models.
double default_lr(const TrainConfig& config) {
  const Objective objective = config.objective();
  return config.values                                                   ? 2e-5
         : objective == Objective::kDpo || objective == Objective::kGrpo ? 1e-6
         : objective == Objective::kReward                               ? 1e-4
                                                                         : 5e-5;
}

void read_optimizer(ConfigNode node, TrainConfig& config) {
  OptimizerOptions& optimizer = config.trainer.optimizer;
  optimizer.lr = node.number("lr", default_lr(config), 0, 10);
  if (optimizer.lr <= 0) node.reject("lr", "0 (nothing would be learnt); choose for example 5.0e-5");
  const std::string schedule = node.choice("schedule", {"linear", "cosine", "constant"}, "linear");
  config.schedule = schedule == "linear"   ? LrSchedule::kLinear
                    : schedule == "cosine" ? LrSchedule::kCosine
                                           : LrSchedule::kConstant;
  config.warmup = node.number("warmup", 0, 0, 1e9);
  if (config.warmup >= 1 && config.warmup != std::floor(config.warmup))
    node.reject("warmup", "{} is neither a part of all steps (below 1) nor a number of steps; round it", config.warmup);
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

// PEFT's LoraConfig.
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

// Names of Hugging Face's Trainer are eval_dataset and eval_steps.
void read_evaluation(ConfigNode& train, const ExperimentConfig& experiment, TrainConfig& config) {
  ConfigNode of_records = train.only_if(!config.of_prompts() && !config.values,
                                        "is given with objective: grpo or value (what they learn from is written on "
                                        "the way, so no loss can be held out); remove it");
  std::optional<ConfigNode> node = of_records.optional_section("evaluate");
  train.also_called("evaluate", {"eval", "evaluation", "eval_dataset", "eval_strategy"});
  if (!node) return;
  HeldOutConfig evaluate;
  ConfigNode of_data =
      node->only_if(!config.distills,
                    "is given with objective: distill (a teacher's file holds the held-out tokens, too); name "
                    "evaluate.teacher");
  evaluate.dataset = read_dataset_or_pairs(of_data, config.of_pairs(), config.objective() == Objective::kReward);
  ConfigNode of_teacher = node->only_if(
      config.distills, "is given with another objective (only a distillation has a teacher); name evaluate.dataset");
  ConfigNode teacher = of_teacher.section("teacher");
  evaluate.teacher = read_teacher(teacher, config.distills, experiment);
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

// DeepSpeed's stages; what is known and not computed is refused with what there is instead.
void read_what_is_divided(ConfigNode& node, TrainConfig& config) {
  const std::int64_t stage = node.integer("zero", 1, 0, 3);
  if (stage > 1) {
    node.reject(
        "zero",
        "stage {} of ZeRO (every rank holds the whole weights and a whole gradient as yet); choose 1, and fewer "
        "ranks a host",
        stage);
  }
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

// A text that is `auto` is as long as usual where it leaves a prompt half of max_length, or max_length is written and longer; else it takes half.
void TrainConfig::fit_lengths(std::uint64_t positions, Notes& notes) {
  fit_length(length, positions, notes);
  batches.max_length = length.tokens();
  LengthKey& text = grpo.text_length;
  if (!of_prompts() || text.is_written()) return;
  const std::uint64_t half = std::max<std::uint64_t>(1, length.tokens() / 2);
  const bool as_usual = text.usual() <= half || (length.is_written() && text.usual() < length.tokens());
  text.become(as_usual ? text.usual() : half);
  grpo.max_new_tokens = text.tokens();
  if (as_usual) return;
  notes.emplace_back("grpo.max_new_tokens",
                     fmt::format("{}, half of max_length (auto; {} where that is longer)", half, text.usual()));
}

std::uint64_t TrainConfig::warmup_steps(std::uint64_t total_steps) const {
  return static_cast<std::uint64_t>(warmup >= 1 ? warmup : std::ceil(warmup * static_cast<double>(total_steps)));
}

std::uint64_t TrainConfig::updates(std::uint64_t plan_steps) const {
  return !of_prompts() ? plan_steps : steps > 0 ? steps : plan_steps * grpo.num_iterations;
}

TrainConfig read_train_config(ConfigNode& node, const ExperimentConfig& experiment) {
  TrainConfig config;
  config.name = read_task_name(node, "student");
  config.model = read_task_model(node, experiment, true);
  config.batches.seed = experiment.seed;
  const std::string objective = node.choice("objective", {"lm", "distill", "dpo", "reward", "grpo", "value"}, "lm");
  node.also_called("objective", {"loss", "method", "training_objective"});
  config.distills = objective == "distill";
  config.values = objective == "value";
  config.value = read_value(node, config.values, experiment);
  config.trainer.preference.objective = objective == "dpo"        ? Objective::kDpo
                                        : objective == "reward"   ? Objective::kReward
                                        : objective == "grpo"     ? Objective::kGrpo
                                        : !config.values          ? Objective::kTokens
                                        : config.value.of_pairs() ? Objective::kReward
                                                                  : Objective::kValue;
  if (config.value.loss == ValueConfig::Loss::kHistogram) config.trainer.value.loss = ValueOptions::Loss::kHistogram;
  ConfigNode of_lm = node.only_if(
      !config.reads_results(),
      config.values
          ? "is given with objective: value (the rollouts hold the tokens); remove it"
          : "is given with objective: distill (the teacher's file holds the tokens that it has read); remove it");
  config.dataset = read_dataset_or_pairs(of_lm, config.of_pairs() && !config.values, objective == "reward");
  read_distillation(node, experiment, config);
  read_dpo(node, config);
  read_reward(node, config);
  config.grpo = read_grpo(node, config.of_prompts(), experiment, config.trainer.policy);
  node.one_of({"dataset", "teacher", "rollouts"});
  ConfigNode of_chats =
      of_lm.only_if(!config.dataset.messages_field.empty() && !config.of_prompts(),
                    config.of_prompts()
                        ? "is given with objective: grpo (all that the model writes is learnt, and no more); remove it"
                        : "is given without chats (only in a chat something is the assistant's); name the chats with "
                          "dataset.messages");
  config.assistant_only = of_chats.boolean("assistant_only_loss", false);
  ConfigNode section = node.section("train");
  read_batches(section, config);
  if (config.of_prompts()) count_in_prompts(node, section, config);
  read_optimizer(section.section("optimizer"), config);
  read_adapter(section, config);
  read_what_is_divided(section, config);
  config.recompute = section.boolean_or_auto("gradient_checkpointing");
  config.memory_fraction = section.number("memory_fraction", 0.9, 0, 1);
  // Where the optimizer stands, and what memory is spent on: the same bits whatever they are.
  for (const char* const key : {"zero", "gradient_checkpointing", "memory_fraction"}) section.outside_identity(key);
  if (config.memory_fraction == 0)
    section.reject("memory_fraction", "0 (nothing could be computed); choose for example 0.9");
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
  if (config.model.dtype != "f32")
    node.reject(
        "model",
        "dtype {} (weights are trained in f32); choose f32 or auto, and train.precision: bf16 for products in bf16",
        config.model.dtype);
  if (config.model.quantization != "none")
    node.reject("model", "quantization {} (codes cannot be trained); remove it", config.model.quantization);
  if (config.model.cudnn_attention)
    node.reject("model",
                "attention: cudnn (it computes in bf16, and weights are trained in f32); remove the key, or give the "
                "task a `model` of its own");
  if (config.model.throughput_decoding)
    node.reject("model",
                "decoding: throughput (it is for bf16, and weights are trained in f32); remove the key, or give the "
                "task a `model` of its own");
  return config;
}

}  // namespace magister
