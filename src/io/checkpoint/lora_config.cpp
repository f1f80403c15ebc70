// Reads adapter_config.json. PEFT adds keys with every version: an unknown key is refused unless its value is empty.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "magister/core/error.h"
#include "magister/io/checkpoint/lora_adapter.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr std::uintmax_t kMaxLoraConfigBytes = 16 << 20;  // all-linear names each layer of a model: 100 bytes each
constexpr std::int64_t kMaxRank = 1 << 16;
constexpr int kConfigDepth = 32;
constexpr const char* kMerge = "merge it with PEFT's merge_and_unload and name the merged model's folder";

// Keys that concern training or the making of the file and not the saved numbers, or that are read below.
constexpr std::array kKnown = {"auto_mapping",
                               "base_model_name_or_path",
                               "bias",
                               "ensure_weight_tying",
                               "eva_config",
                               "exclude_modules",
                               "fan_in_fan_out",
                               "inference_mode",
                               "init_lora_weights",
                               "layers_pattern",
                               "layers_to_transform",
                               "lora_alpha",
                               "lora_dropout",
                               "megatron_core",
                               "peft_type",
                               "peft_version",
                               "qalora_group_size",
                               "r",
                               "revision",
                               "target_modules",
                               "task_type",
                               "use_rslora"};
// Initialisations that leave the model's own weights unchanged; PiSSA, OLoRA, CorDA and LoftQ change them.
constexpr std::array kPlainBegins = {"gaussian", "eva", "orthogonal"};

// The value for a message; deep values are shortened to their type.
std::string shown(const json& value) {
  const auto plain = [](const json& entry) { return entry.is_primitive(); };
  const bool short_list = value.is_array() && value.size() <= 4 && std::all_of(value.begin(), value.end(), plain);
  return value.is_primitive() || short_list ? printable(value.dump(-1, ' ', true), 80) : value.type_name();
}

bool says_nothing(const json& value) {
  return value.is_null() || value == false || ((value.is_structured() || value.is_string()) && value.empty()) ||
         value == "";
}

class LoraConfigReader {
 public:
  LoraConfigReader(std::string path, json root) : root_(std::move(root)) { out_.path = std::move(path); }

  LoraConfig read() {
    require(root_.is_object(), "", "an object must be in the file", "fetch the file again");
    require(root_.value("peft_type", json()) == "LORA", "peft_type", "only LORA is merged here", kMerge);
    for (const auto& [key, value] : root_.items()) {
      const bool known = std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end();
      require(known || says_nothing(value), key, "what it changes is not computed here", kMerge);
    }
    const json bias = root_.value("bias", json());
    require(bias == "none" || bias.is_null(), "bias", "trained biases are not merged here", kMerge);
    const json begin = root_.value("init_lora_weights", json(true));
    const bool plain = begin.is_boolean() || begin.is_null() ||
                       std::find(kPlainBegins.begin(), kPlainBegins.end(), begin) != kPlainBegins.end();
    require(plain, "init_lora_weights",
            "the adapter belongs to weights that its training changed first, not to the model's own", kMerge);
    read_scale();
    if (root_.value("base_model_name_or_path", json()).is_string())
      out_.base_model = root_["base_model_name_or_path"].get<std::string>();
    read_targets();
    return out_;
  }

 private:
  void require(bool holds, const std::string& key, const char* why, const char* what_to_do) const {
    if (holds) return;
    const bool inside = root_.is_object();
    fail(ExitCode::kData, "{}: {} is {} ({}); {}", printable(out_.path), inside ? printable(key, 60) : "the whole",
         shown(inside ? root_.value(key, json()) : root_), why, what_to_do);
  }

  void read_scale() {
    const json rank = root_.value("r", json());
    require(rank.is_number_unsigned() && rank >= 1 && rank <= kMaxRank, "r", "a rank from 1 to 65536 must be there",
            "fetch the file again");
    out_.rank = rank.get<std::int64_t>();
    const json alpha = root_.value("lora_alpha", json());
    require(alpha.is_number() && std::isfinite(alpha.get<double>()), "lora_alpha", "a number must be there",
            "fetch the file again");
    out_.alpha = alpha.get<double>();
    require(out_.alpha != 0, "lora_alpha", "the adapter would change nothing", "remove model.adapter");
    const json stabilized = root_.value("use_rslora", json(false));
    require(stabilized.is_boolean(), "use_rslora", "true or false must be there", "fetch the file again");
    out_.rank_stabilized = stabilized.get<bool>();
    const json transposed = root_.value("fan_in_fan_out", json(false));
    require(transposed.is_boolean() || transposed.is_null(), "fan_in_fan_out", "true or false must be there",
            "fetch the file again");
    out_.fan_in_fan_out = transposed == true;
  }

  // A string would be a regular expression, or "all-linear": only a list names layers.
  void read_targets() {
    const json targets = root_.value("target_modules", json());
    const bool chosen = !says_nothing(root_.value("layers_to_transform", json())) ||
                        !says_nothing(root_.value("exclude_modules", json()));
    if (!targets.is_array() || chosen) return;
    for (const json& target : targets) {
      require(target.is_string(), "target_modules", "names of layers must be there", "fetch the file again");
      out_.targets.push_back(target.get<std::string>());
    }
  }

  json root_;
  LoraConfig out_;
};

}  // namespace

double LoraConfig::scale() const {
  return alpha / (rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

LoraConfig read_lora_config(const std::string& adapter_folder) {
  std::error_code error;
  const fs::path path = lora_paths(adapter_folder).front();
  MAGISTER_CHECK(fs::is_regular_file(path, error), ExitCode::kInputOutput,
                 "{}: there is no such file (model.adapter names a folder as PEFT's save_pretrained writes it); check "
                 "the path",
                 printable(path.string()));
  const std::string text = read_whole_file(path, kMaxLoraConfigBytes, "it says how the adapter is scaled");
  // Copies of a value that is nested 100,000 deep would overflow the stack.
  bool too_deep = false;
  const auto shallow = [&](int depth, json::parse_event_t, const json&) {
    too_deep = too_deep || depth > kConfigDepth;
    return !too_deep;
  };
  json root = json::parse(text, shallow, false);
  MAGISTER_CHECK(!root.is_discarded() && !too_deep, ExitCode::kData,
                 "{}: is {} (it says how the adapter is scaled); fetch the file again", printable(path.string()),
                 too_deep ? fmt::format("nested deeper than {}", kConfigDepth) : "not JSON");
  return LoraConfigReader(path.string(), std::move(root)).read();
}

}  // namespace magister
