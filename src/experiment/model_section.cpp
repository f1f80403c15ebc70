// Reads which model a task computes with, key by key; configs/keys/model.md lists the keys for users. The order of the
// reads is the order of the resolved experiment, so changing it changes every config_sha256.
#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/experiment/config.h"
#include "magister/experiment/task_paths.h"
#include "magister/io/checkpoint/model_path.h"

namespace magister {
namespace {

// config: the value of model.config, the folder of a config.json or that file.
void read_random_start(ConfigNode& section, const std::string& config, std::uint64_t seed, ModelSection& model) {
  ConfigNode node = section.only_if(
      !config.empty(), "is given without `config` (only a model that has no weights yet asks for it); remove it");
  const auto own_seed = node.optional_integer("seed", 0);
  const std::string tokenizer = find_model(node.optional_text("tokenizer").value_or(""));
  if (config.empty()) return;
  model.random = {own_seed ? static_cast<std::uint64_t>(*own_seed) : seed, tokenizer};
  const std::filesystem::path path = find_model(config);
  model.path = path.filename() == "config.json" ? path.parent_path().string() : path.string();
  if (model.path.empty()) model.path = ".";
}

// The model from which this training starts, in a form that can be opened before any task has run. It has the config
// and tokenizer of the trained model.
ModelSection start_of(const ExperimentConfig& experiment, const std::string& task) {
  ModelSection found;
  for (const auto& [name, start] : experiment.trained) {
    if (name == task) found = start.placeholder();
  }
  return found;
}

// Fills in the folder of the task that model.task names, and the model from which that task starts.
void find_task(const ExperimentConfig& experiment, ModelSection& model) {
  if (model.task.empty()) return;
  const ModelSection start = start_of(experiment, model.task);
  model.begins_as = start.path;
  model.begins_random = start.random;
  model.head_labels = start.head_labels;
  model.path = experiment.folder() + "/" + model.task;
}

// A path to the folder that an earlier training writes means that training's model, as if `task` named it.
void find_maker(const ExperimentConfig& experiment, ModelSection& model) {
  const auto maker = [&](const std::string& path) {
    const TaskPath at(experiment.folder(), path);
    const bool trained = std::any_of(experiment.trained.begin(), experiment.trained.end(),
                                     [&](const auto& one) { return at.is_folder_of(one.first); });
    return trained ? at.name() : std::string();
  };
  if (model.task.empty() && !model.random) {
    model.task = maker(model.path);
    find_task(experiment, model);
  }
  if (!model.adapter.empty()) model.adapter_task = maker(model.adapter);
  if (!model.random) return;
  model.config_task = maker(model.path);
  model.tokenizer_task = maker(model.random->tokenizer);
  const auto tokenizer_of = [](const ModelSection& start) {
    return start.random && !start.random->tokenizer.empty() ? start.random->tokenizer : start.path;
  };
  const ModelSection config = start_of(experiment, model.config_task);
  model.available_config = config.path;
  model.available_tokenizer = !model.tokenizer_task.empty() ? tokenizer_of(start_of(experiment, model.tokenizer_task))
                              : model.random->tokenizer.empty() ? tokenizer_of(config)
                                                                : model.random->tokenizer;
}

void set_path(ModelSection& model, const std::string& given) {
  model.path = find_model(given);
  if (model.path != given) model.hub_name = given;
}

// Reads the source of a task's own model: the model that an earlier task trains, a path, or a config without weights.
void read_source(ConfigNode& section, const ExperimentConfig& experiment, ModelSection& model) {
  model.task = section.optional_text("task").value_or("");
  ConfigNode other =
      section.only_if(model.task.empty(),
                      "is given together with `task` (a model is a folder or what a task writes); remove one of them");
  const std::string config = other.optional_text("config").value_or("");
  ConfigNode named =
      other.only_if(config.empty(),
                    "is given together with `config` (a model has weights, or it begins without); remove one of them");
  set_path(model, named.text("path"));
  section.one_of({"path", "task", "config"});
  read_random_start(other, config, experiment.seed, model);
  find_task(experiment, model);
}

}  // namespace

ModelSection read_reward_model(ConfigNode& section, const ExperimentConfig& experiment) {
  ModelSection model;
  model.task = section.optional_text("task").value_or("");
  ConfigNode named =
      section.only_if(model.task.empty(),
                      "is given together with `task` (a model is a folder or what a task writes); remove one of them");
  set_path(model, named.text("path"));
  section.one_of({"path", "task"});
  section.also_called("path", {"model", "name", "model_name_or_path", "pretrained_model_name_or_path", "model_id"});
  const bool by_path = model.task.empty();
  model.place = section.place();
  find_task(experiment, model);
  find_maker(experiment, model);
  if (model.task.empty() || (!model.begins_as.empty() && model.head_labels > 0)) return model;
  std::vector<std::string> names;
  for (const auto& [name, start] : experiment.trained)
    if (start.head_labels > 0) names.push_back(name);
  const std::string nearest = nearest_name(model.task, names);
  section.reject(by_path ? "path" : "task",
                 "no train task of objective reward or value before this one is named {} (its weights are needed); {}",
                 printable(model.task),
                 nearest.empty() ? "put that task before this one, or name a folder with path"
                                 : fmt::format("did you mean {}?", printable(nearest)));
  return model;
}

namespace {

// experiment: null for the experiment's own section. judges: the section of a reward's judge, whose passes all have a
// cache.
ModelSection read_model(ConfigNode section, const ExperimentConfig* experiment, bool judges = false) {
  ModelSection model;
  if (experiment != nullptr) {
    read_source(section, *experiment, model);
  } else {
    set_path(model, section.text("path"));
  }
  model.adapter = find_model(section.optional_text("adapter").value_or(""));
  if (experiment != nullptr) find_maker(*experiment, model);
  model.dtype = section.choice("dtype", {"auto", "f32", "bf16", "f16", "fp8"}, "auto");
  model.quantization = section.choice("quantization", {"none", "int8", "int4"}, "none");
  if (model.quantization != "none" && model.dtype == "fp8") {
    section.reject("dtype",
                   "fp8 together with a quantization (both say how the weights are stored); keep one of the two");
  }
  const bool quantized = model.quantization != "none";
  model.quantization_group =
      section
          .only_if(
              quantized,
              "a group is given without a quantization (nothing would be grouped); set quantization to int8 or int4, "
              "or remove it")
          .integer_or_auto_among("quantization_group", {0, 32, 64, 128});
  if (!judges) model.fp8_cache = section.later_choice("kv_cache", {"auto", "fp8"}) == "fp8";
  model.quantization_loss =
      section
          .only_if(quantized || model.fp8_cache,
                   "a loss is asked for without a quantization or kv_cache: fp8 (nothing would be lost); set one of "
                   "them, or remove it")
          .integer("quantization_loss", 0, 0, 1 << 20);
  section.outside_identity("quantization_loss");  // measured in addition to the results, which stay the same
  if (!judges) {
    model.throughput_decoding = section.later_choice("decoding", {"latency", "throughput"}) == "throughput";
    model.cudnn_attention = section.later_choice("attention", {"flash", "cudnn"}) == "cudnn";
  }
  model.rope_length = static_cast<std::uint64_t>(section.optional_integer("rope_length", 1, INT32_MAX).value_or(0));
  model.chat_template = section.optional_text("chat_template").value_or("");
  model.chat_template_kwargs = section.value_map("chat_template_kwargs");
  model.chat_template_kwargs_place = section.place("chat_template_kwargs");
  model.place = section.place();
  section.also_called("path", {"model", "name", "model_name_or_path", "pretrained_model_name_or_path", "model_id"});
  section.also_called("adapter",
                      {"lora", "peft", "lora_path", "adapter_path", "adapter_name_or_path", "peft_model_id"});
  section.also_called("dtype", {"torch_dtype"});
  if (!judges) {
    section.also_called("attention", {"attn_implementation", "attention_backend"});
    section.also_called("kv_cache", {"kv_cache_dtype"});
  }
  section.also_called("chat_template_kwargs", {"template_kwargs", "default_chat_template_kwargs", "enable_thinking"});
  section.also_called("layout.gpus_per_group", {"tensor_parallel_size", "tp_size"});
  return model;
}

}  // namespace

ModelSection read_shared_model(ConfigNode section) { return read_model(std::move(section), nullptr); }

ModelSection read_judge_model(ConfigNode section, const ExperimentConfig& experiment) {
  ModelSection model = read_model(std::move(section), nullptr, true);
  find_maker(experiment, model);
  return model;
}

std::string ExperimentConfig::maker_of(const std::string& path) const {
  const TaskPath at(folder(), path);
  const bool is_earlier = std::find(earlier.begin(), earlier.end(), at.name()) != earlier.end();
  return is_earlier && at.is_output_of(at.name()) ? at.name() : std::string();
}

std::string ExperimentConfig::task_of(const std::string& name_or_path) const {
  const TaskPath at(folder(), name_or_path);
  return at.name().empty() || !at.is_output_of(at.name()) ? name_or_path : at.name();
}

ModelSection ModelSection::placeholder() const {
  ModelSection section = *this;
  if (!task.empty()) {
    section.path = begins_as;
    section.random = begins_random;
  }
  if (!adapter_task.empty()) section.adapter.clear();
  if (!tokenizer_task.empty() || !config_task.empty()) section.random->tokenizer = available_tokenizer;
  if (config_task.empty()) return section;
  section.path = available_config;
  // A GGUF file or an adapter's folder has no config.json to draw weights for, so it is opened itself.
  if (!std::filesystem::exists(std::filesystem::path(available_config) / "config.json")) section.random.reset();
  return section;
}

ModelSection read_task_model(ConfigNode& task, const ExperimentConfig& experiment, bool trains) {
  if (std::optional<ConfigNode> own = task.optional_section("model")) {
    ModelSection model = read_model(*own, &experiment);
    if (model.random && !trains) {
      own->reject("config",
                  "a model without weights (this task would compute with noise); name a model with path, or the task "
                  "that trains this one with task");
    }
    return model;
  }
  if (!experiment.has_model) return read_model(task.section("model"), &experiment);
  ModelSection model = experiment.model;
  find_maker(experiment, model);
  return model;
}

}  // namespace magister
