// See model_folder.h.
#include "tasks/train/model_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/checkpoint/gguf_vocabulary.h"
#include "magister/io/checkpoint/safetensors_writer.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/io/whole_file.h"
#include "magister/model/weights.h"
#include "magister/run/results_on_disk.h"
#include "magister/runtime/tokenizer_files.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  return read_whole_file(path, 256 << 20, "the trained model's folder needs it");
}

// A folder that is being written; the destructor removes it unless it was renamed.
class MadeFolder {
 public:
  explicit MadeFolder(std::string path) : path_(std::move(path)) {
    remove();  // left by an attempt that was killed
    make_folders(path_);
  }
  ~MadeFolder() { remove(); }
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

 private:
  void remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path_;
};

// The config of the first model with dtype f32. If the weights have a head of their own, it says so
// (tie_word_embeddings: false): readers follow the config and would drop the trained head.
std::string trained_config(const ModelOrigin& origin, const ParameterLayout& layout, TokenId pad_token_id) {
  auto config = nlohmann::ordered_json::parse(content_of(fs::path(origin.folder) / "config.json"));
  const ModelConfig& model = layout.description().config;
  if (model.is_classifier()) {
    config["architectures"] = nlohmann::ordered_json::array({classifier_architecture(model)});
    config.erase("num_labels");
    config["id2label"] = config["label2id"] = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < model.labels.size(); ++i) {
      config["id2label"][std::to_string(i)] = model.labels[i];
      config["label2id"][model.labels[i]] = i;
    }
    if (pad_token_id >= 0) config["pad_token_id"] = pad_token_id;
  } else if (layout.head() != layout.embeddings()) {
    config["tie_word_embeddings"] = false;
    if (config.contains("text_config")) config["text_config"]["tie_word_embeddings"] = false;
  }
  if (!origin.end_tokens.empty()) config["eos_token_id"] = origin.end_tokens.front();
  bool named = false;
  for (const char* const key : {"dtype", "torch_dtype"}) {
    if (!config.contains(key)) continue;
    config[key] = "float32";
    named = true;
  }
  if (!named) config["torch_dtype"] = "float32";
  return config.dump(2) + "\n";
}

// The generation_config.json of the first model with the student's end tokens. If it has none, readers derive one from
// the config; they stop doing so once this file exists, so it holds what they would derive.
std::string generation_config(const ModelOrigin& origin) {
  std::error_code error;
  const fs::path folder = origin.folder, own = folder / "generation_config.json";
  auto config = nlohmann::ordered_json::object();
  if (fs::is_regular_file(own, error)) {
    config = nlohmann::ordered_json::parse(content_of(own));
  } else {
    const auto model = nlohmann::ordered_json::parse(content_of(folder / "config.json"));
    for (const char* const key : {"bos_token_id", "pad_token_id"}) {
      if (model.contains(key)) config[key] = model.at(key);
    }
  }
  config.erase("_from_model_config");  // no longer true
  config["eos_token_id"] = origin.end_tokens;
  return config.dump(2) + "\n";
}

// The files of a folder: names of the weights file and of the config, and the text of the config.
struct Contents {
  const char *weights, *config;
  std::string config_text;
  bool is_model;
  TextPairs metadata = {{"format", "pt"}};  // of the weights file
  std::vector<std::string> other_parts{};   // tensors of the first model that the weights file keeps
  std::vector<NamedTensor> numbers{};       // fixed numbers that the first model's file lacks
};

// Writes the tokenizer files and, for a whole model, the files that generation needs.
void write_files_next_to_weights(const std::string& folder, const ModelOrigin& origin, bool is_model) {
  const auto put = [&](const std::string& name, const std::string& text) {
    write_whole_file(fmt::format("{}/{}", folder, name), text);
  };
  const auto put_tool_template = [&](const std::string& text) {
    make_folders((fs::path(folder) / kToolTemplate).parent_path().string());
    put(kToolTemplate, text);
  };
  for (const fs::path path : files_next_to_weights(origin.tokenizer, is_model ? origin.folder : "")) {
    if (!path.string().ends_with(kToolTemplate)) {
      put(path.filename().string(), content_of(path));
    } else if (origin.chat_template.empty()) {
      put_tool_template(content_of(path));
    }
  }
  if (!origin.end_tokens.empty()) put("generation_config.json", generation_config(origin));
  std::error_code error;
  if (!fs::is_directory(origin.tokenizer, error)) {
    put("tokenizer.gguf", gguf_vocabulary_file(TensorFile::open(origin.tokenizer)->metadata()));
    put("tokenizer_config.json", origin.tokenizer_config);
  }
  if (!origin.chat_template.empty()) put("chat_template.jinja", origin.chat_template);
  if (!origin.tool_template.empty()) put_tool_template(origin.tool_template);
}

// Adds the tensors that the model holds beside what was trained, such as its image encoder, unchanged in f32.
void add_other_parts(const ModelOrigin& origin, const std::vector<std::string>& names,
                     std::vector<NamedTensor>& tensors) {
  if (names.empty()) return;
  const auto file = TensorFile::open(origin.folder);
  for (const std::string& name : names) {
    const TensorInfo* info = file->find(name);
    MAGISTER_CHECK(info != nullptr, ExitCode::kData,
                   "{}: tensor {} is no longer there (the trained model keeps it); put the model back",
                   printable(origin.folder), printable(name));
    at::Tensor values = at::empty(info->shape, at::kFloat);
    const at::Tensor rows = values.dim() == 0 ? values.view({1, 1}) : as_rows(values);
    file->read(name, 0, rows.size(0), 0, rows.size(1), rows);
    tensors.push_back({name, values});
  }
}

// The two fixed numbers of each xIELU that are not among the other parts: a model that began at random has no file with
// them, and transformers takes what is in memory for those that a file lacks. Its buffers have no dimensions.
std::vector<NamedTensor> xielu_numbers(const TensorNames& names) {
  std::vector<NamedTensor> all;
  for (const TensorNames::Layer& layer : names.layers) {
    for (const auto& [number, value] : {std::pair("beta", Xielu::kBeta), std::pair("eps", Xielu::kLeast)}) {
      const std::string name = layer.xielu_number(number);
      if (!name.empty() && std::ranges::find(names.other_parts, name) == names.other_parts.end())
        all.push_back({name, at::full({}, value, at::kFloat)});
    }
  }
  return all;
}

void write_folder(const std::string& folder, const ModelOrigin& origin, const Contents& contents,
                  const FlatLayout& layout, const at::Tensor& flat_weights) {
  const std::string creating = folder + ".creating";
  std::error_code error;
  const MadeFolder made(creating);
  std::vector<NamedTensor> tensors;
  tensors.reserve(layout.all().size());
  for (std::size_t i = 0; i < layout.all().size(); ++i)
    tensors.push_back({layout.all()[i].name, layout.view(flat_weights, i)});
  add_other_parts(origin, contents.other_parts, tensors);
  tensors.insert(tensors.end(), contents.numbers.begin(), contents.numbers.end());
  write_safetensors(fmt::format("{}/{}", creating, contents.weights), tensors, contents.metadata);
  write_whole_file(fmt::format("{}/{}", creating, contents.config), contents.config_text);
  write_files_next_to_weights(creating, origin, contents.is_model);
  fail_point("train.folder.written");
  if (has_same_files(folder, creating)) return;  // a run that was killed before its results file was complete wrote it
  put_path_aside(folder);
  fs::rename(creating, folder, error);
  MAGISTER_CHECK(!error, ExitCode::kInputOutput, "{}: cannot be renamed to {} ({}); make the folder writable",
                 printable(creating), printable(folder), error.message());
  sync_folder_of(folder);
  fail_point("train.folder.renamed");
}

// The adapter_config.json: all that PEFT needs to load the adapter, and the name of the model that it belongs to. Other
// options keep the defaults of PEFT.
std::string adapter_config(const std::string& base, const LoraConfig& config) {
  const bool whole = config.alpha == std::floor(config.alpha);
  const nlohmann::ordered_json alpha =
      whole ? nlohmann::ordered_json(static_cast<std::int64_t>(config.alpha)) : nlohmann::ordered_json(config.alpha);
  const nlohmann::ordered_json json = {{"base_model_name_or_path", base},
                                       {"bias", "none"},
                                       {"fan_in_fan_out", config.fan_in_fan_out},
                                       {"inference_mode", true},
                                       {"init_lora_weights", true},
                                       {"lora_alpha", alpha},
                                       {"lora_dropout", 0.0},
                                       {"modules_to_save", nullptr},
                                       {"peft_type", "LORA"},
                                       {"r", config.rank},
                                       {"target_modules", config.targets},
                                       {"task_type", "CAUSAL_LM"},
                                       {"use_dora", false},
                                       {"use_rslora", config.rank_stabilized}};
  return json.dump(2) + "\n";
}

}  // namespace

void write_model_folder(const std::string& folder, const ModelOrigin& origin, const ParameterLayout& layout,
                        const at::Tensor& flat_weights, TokenId pad_token_id) {
  const std::string config = trained_config(origin, layout, pad_token_id);
  Contents contents{"model.safetensors", "config.json", config, true};
  contents.other_parts = layout.description().names.other_parts;
  contents.numbers = xielu_numbers(layout.description().names);
  write_folder(folder, origin, contents, layout, flat_weights);
}

void write_adapter_folder(const std::string& folder, const ModelOrigin& origin, const LoraLayout& layout,
                          const at::Tensor& flat_weights, const std::string& base_sha256) {
  const std::string config = adapter_config(origin.name, layout.config());
  write_folder(folder, origin,
               {"adapter_model.safetensors",
                "adapter_config.json",
                config,
                false,
                {{"format", "pt"}, {std::string(kLoraBaseKey), base_sha256}}},
               layout, flat_weights);
}

}  // namespace magister
