#include "serve/training_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "magister/core/error.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

// True if a value may take the place of the other: the same kind, or any number for null.
bool is_alike(const Json& usual, const Json& given) {
  if (usual.is_boolean() || usual.is_string()) return usual.type() == given.type();
  if (usual.is_array())
    return given.is_array() && std::all_of(given.begin(), given.end(), [](const Json& id) {
             return id.is_number_unsigned() && id.get<std::uint64_t>() < 1024;
           });
  if (usual.is_number_integer()) return given.is_number_integer() && given >= 1 && given <= 1 << 20;
  return given.is_number() && given > 0 && given <= 1e9;
}

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

// The member of this name; an empty object if there is none.
Json part_of(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? Json::object() : *found;
}

// The folder of this name below the root, else the hub's name.
std::string path_of_model(const std::string& name, const std::string& root) {
  std::error_code ignored;
  if (name == "gpt2" && !std::filesystem::exists(std::filesystem::path(root) / name, ignored))
    return "openai-community/gpt2";
  return name;
}

std::string read_texts(const Json& dataset, TrainingRequest& request) {
  for (const auto& [key, value] : dataset.items())
    if (key != "texts" && key != "path" && key != "max_length")
      return fmt::format("dataset_config.{} is no key here (texts, path, max_length are)", printable(key, 60));
  if (dataset.contains("texts") == dataset.contains("path")) return "dataset_config needs texts or path, and not both";
  if (dataset.contains("path")) return dataset["path"].is_string() ? "" : "dataset_config.path is no text";
  if (!dataset["texts"].is_array() || dataset["texts"].empty()) return "dataset_config.texts is no list of texts";
  for (const Json& text : dataset["texts"]) {
    if (!text.is_string()) return "dataset_config.texts has an entry that is no text";
    request.data += Json{{"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return "";
}

Json layout_of(const Json& gpu, std::size_t gpus_here) {
  if (gpus_here == 0 || gpu["gpu_ids"].empty()) return Json{{"devices", "auto"}};
  return Json{{"devices", gpu["gpu_ids"]}};
}

}  // namespace

Json usual_gpu_config() {
  return {{"use_multi_gpu", true},   {"gpu_ids", Json::array()}, {"distributed_training", false},
          {"backend", "nccl"},       {"batch_size_per_gpu", 8},  {"gradient_accumulation_steps", 1},
          {"sync_batch_norm", true}, {"mixed_precision", true},  {"memory_fraction", 0.9}};
}

Json usual_training_config() {
  return {{"epochs", nullptr}, {"learning_rate", nullptr}, {"weight_decay", nullptr}, {"max_length", nullptr}};
}

std::string change_config(Json& config, const Json& given) {
  if (!given.is_object()) return "the configuration is no object";
  Json changed = config;
  for (const auto& [key, value] : given.items()) {
    if (!config.contains(key)) {
      std::vector<std::string> known;
      for (const auto& [name, usual] : config.items()) known.push_back(name);
      return fmt::format("{} is no key here (known: {})", printable(key, 60), fmt::join(known, ", "));
    }
    if (!is_alike(config[key], value)) return fmt::format("{}: {} has another form or range", key, shown(value));
    changed[key] = value;
  }
  if (changed.contains("memory_fraction") && changed["memory_fraction"] > 1)
    return "memory_fraction: a share is at most 1";
  if (changed.contains("backend") && changed["backend"] != "nccl" && changed["backend"] != "gloo")
    return "backend is nccl or gloo";
  config = std::move(changed);
  return "";
}

std::vector<std::string> notes_of(const Json& gpu_config, std::size_t gpus_here) {
  std::vector<std::string> notes = {
      "backend: MPI joins the ranks, and NCCL the GPUs of a group; there is nothing to choose",
      "distributed_training, use_multi_gpu: each training runs on all ranks that the service's launcher starts"};
  if (gpu_config["sync_batch_norm"] == true) notes.emplace_back("sync_batch_norm: no model here has a batch norm");
  const Json& ids = gpu_config["gpu_ids"];
  if (gpus_here == 0 && !ids.empty())
    notes.push_back(fmt::format("gpu_ids: {} on a machine without a GPU; trainings take its cores", ids.dump()));
  if (gpus_here == 0 && gpu_config["mixed_precision"] == true)
    notes.emplace_back("mixed_precision: trainings on cores compute in f32");
  return notes;
}

TrainingRequest read_training_request(const Json& body, const Json& gpu_config, const Json& training_config,
                                      std::size_t gpus_here, int ranks, const std::string& root) {
  TrainingRequest request;
  const auto refuse = [&request](std::string fault) {
    request.fault = std::move(fault);
    return request;
  };
  if (!body.is_object() || !body.contains("model_name") || !body["model_name"].is_string())
    return refuse("the body needs model_name: a folder, or the hub's name of a model in its cache here");
  const Json dataset = part_of(body, "dataset_config"), given = part_of(body, "training_config");
  if (!dataset.is_object() || !given.is_object()) return refuse("dataset_config and training_config are objects");
  if (std::string fault = read_texts(dataset, request); !fault.empty()) return refuse(std::move(fault));
  Json gpu = gpu_config, training = training_config;
  for (const auto& [key, value] : given.items()) {
    const std::string fault = change_config(gpu.contains(key) ? gpu : training, Json{{key, value}});
    if (!fault.empty()) return refuse("training_config." + fault);
  }
  const auto out_of_range = [gpus_here](const Json& id) { return id.get<std::size_t>() >= gpus_here; };
  const Json& ids = gpu["gpu_ids"];
  if (gpus_here > 0 && std::any_of(ids.begin(), ids.end(), out_of_range))
    return refuse(fmt::format("gpu_ids {} names a GPU beyond the {} of this machine", ids.dump(), gpus_here));
  const std::int64_t batch = gpu["batch_size_per_gpu"], steps = gpu["gradient_accumulation_steps"];
  Json train = {
      {"global_batch", batch * steps * ranks}, {"micro_batch", batch}, {"memory_fraction", gpu["memory_fraction"]}};
  if (gpus_here > 0 && gpu["mixed_precision"] == true) train["precision"] = "bf16";
  const Json length = dataset.contains("max_length") ? dataset["max_length"] : training["max_length"];
  if (!length.is_null()) train["max_length"] = length;
  if (!training["epochs"].is_null()) train["epochs"] = training["epochs"];
  if (!training["learning_rate"].is_null()) train["optimizer"]["lr"] = training["learning_rate"];
  if (!training["weight_decay"].is_null()) train["optimizer"]["weight_decay"] = training["weight_decay"];
  Json task = {{"task", "train"}, {"model", {{"path", path_of_model(body["model_name"], root)}}}};
  task["dataset"] = dataset.contains("path") ? Json{{"path", dataset["path"]}} : Json::object();
  task["train"] = std::move(train);
  request.experiment = {{"name", "training"}, {"layout", layout_of(gpu, gpus_here)}, {"tasks", Json::array({task})}};
  request.notes = notes_of(gpu, gpus_here);
  return request;
}

}  // namespace magister
