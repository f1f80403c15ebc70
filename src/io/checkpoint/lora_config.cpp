// Reads adapter_config.json. PEFT adds keys with every version: an unknown key is refused unless its value is empty.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/checkpoint/name_pattern.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/lora_adapter.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;                      // of two patterns that name a layer the first one counts
constexpr std::uintmax_t kMaxLoraConfigBytes = 16 << 20;  // all-linear names each layer of a model: 100 bytes each
constexpr std::int64_t kMaxRank = 1 << 16;
constexpr std::size_t kMaxPattern = 512;
constexpr int kConfigDepth = 32;
constexpr const char* kMerge = "merge it with PEFT's merge_and_unload and name the merged model's folder";

// Keys that concern training or the making of the file and not the saved numbers, or that are read below.
constexpr std::array kKnown = {"alpha_pattern",
                               "auto_mapping",
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
                               "rank_pattern",
                               "revision",
                               "target_modules",
                               "target_parameters",
                               "task_type",
                               "use_rslora"};
// Initialisations that leave the model's own weights unchanged; PiSSA, OLoRA, CorDA and LoftQ change them.
constexpr std::array kPlainBegins = {"gaussian", "eva", "orthogonal"};

// The value for a message; deep values are shortened to their type.
std::string shown(const Json& value) {
  const auto plain = [](const Json& entry) { return entry.is_primitive(); };
  const bool short_list = value.is_array() && value.size() <= 4 && std::all_of(value.begin(), value.end(), plain);
  return value.is_primitive() || short_list ? printable(value.dump(-1, ' ', true), 80) : value.type_name();
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || ((value.is_structured() || value.is_string()) && value.empty()) ||
         value == "";
}

class LoraConfigReader {
 public:
  LoraConfigReader(std::string path, Json root) : root_(std::move(root)) { out_.path = std::move(path); }

  LoraConfig read() {
    require(root_.is_object(), "", "an object must be in the file", "fetch the file again");
    require(root_.value("peft_type", Json()) == "LORA", "peft_type", "only LORA is merged here", kMerge);
    for (const auto& [key, value] : root_.items()) {
      const bool known = std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end();
      require(known || says_nothing(value), key, "what it changes is not computed here", kMerge);
    }
    const Json bias = root_.value("bias", Json());
    require(bias == "none" || bias.is_null(), "bias", "trained biases are not merged here", kMerge);
    const Json begin = root_.value("init_lora_weights", Json(true));
    const bool plain = begin.is_boolean() || begin.is_null() ||
                       std::find(kPlainBegins.begin(), kPlainBegins.end(), begin) != kPlainBegins.end();
    require(plain, "init_lora_weights",
            "the adapter belongs to weights that its training changed first, not to the model's own", kMerge);
    read_scale();
    read_patterns();
    if (root_.value("base_model_name_or_path", Json()).is_string())
      out_.base_model = root_["base_model_name_or_path"].get<std::string>();
    read_targets();
    return out_;
  }

 private:
  void require(bool holds, const std::string& key, const char* why, const char* what_to_do) const {
    if (holds) return;
    const bool inside = root_.is_object();
    fail(ExitCode::kData, "{}: {} is {} ({}); {}", printable(out_.path), inside ? printable(key, 60) : "the whole",
         shown(inside ? root_.value(key, Json()) : root_), why, what_to_do);
  }

  void read_scale() {
    const Json rank = root_.value("r", Json());
    require(is_rank(rank), "r", "a rank from 1 to 65536 must be there", "fetch the file again");
    out_.rank = rank.get<std::int64_t>();
    const Json alpha = root_.value("lora_alpha", Json());
    require(alpha.is_number() && std::isfinite(alpha.get<double>()), "lora_alpha", "a number must be there",
            "fetch the file again");
    out_.alpha = alpha.get<double>();
    require(out_.alpha != 0, "lora_alpha", "the adapter would change nothing", "remove model.adapter");
    const Json stabilized = root_.value("use_rslora", Json(false));
    require(stabilized.is_boolean(), "use_rslora", "true or false must be there", "fetch the file again");
    out_.rank_stabilized = stabilized.get<bool>();
    const Json transposed = root_.value("fan_in_fan_out", Json(false));
    require(transposed.is_boolean() || transposed.is_null(), "fan_in_fan_out", "true or false must be there",
            "fetch the file again");
    out_.fan_in_fan_out = transposed == true;
  }

  static bool is_rank(const Json& value) { return value.is_number_unsigned() && value >= 1 && value <= kMaxRank; }

  // Each key is a regular expression over names of layers.
  template <typename Value>
  void read_pattern(const char* key, bool (*fits)(const Json&), std::vector<std::pair<std::string, Value>>& out) const {
    const Json patterns = root_.value(key, Json());
    require(patterns.is_null() || patterns.is_object(), key, "values by names of layers must be there",
            "fetch the file again");
    for (const auto& [pattern, value] : patterns.items()) {
      const std::string what = unread_in_pattern(pattern.substr(0, kMaxPattern));
      MAGISTER_CHECK(pattern.size() <= kMaxPattern && what.empty(), ExitCode::kData,
                     "{}: {} has the pattern {} (\"{}\" of regular expressions is not read here, and which layers it "
                     "names would be unknown); {}",
                     printable(out_.path), key, printable(pattern, 80),
                     pattern.size() > kMaxPattern ? "its length" : printable(what, 20), kMerge);
      require(fits(value), key, "a rank from 1 to 65536, or for alpha a number other than 0, must be there",
              "fetch the file again");
      out.emplace_back(pattern, value.template get<Value>());
    }
  }

  void read_patterns() {
    read_pattern<std::int64_t>("rank_pattern", is_rank, out_.ranks);
    read_pattern<double>(
        "alpha_pattern",
        [](const Json& value) {
          return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() != 0;
        },
        out_.alphas);
  }

  // A string would be a regular expression, or "all-linear": only a list names layers.
  void read_targets() {
    const Json targets = root_.value("target_modules", Json());
    const bool chosen = !says_nothing(root_.value("layers_to_transform", Json())) ||
                        !says_nothing(root_.value("exclude_modules", Json()));
    if (targets.is_array() && !chosen) read_names("target_modules", targets, out_.targets);
    const Json parameters = root_.value("target_parameters", Json());
    require(parameters.is_array() || parameters.is_null(), "target_parameters", "names of parameters must be there",
            "fetch the file again");
    if (parameters.is_array() && !chosen) read_names("target_parameters", parameters, out_.target_parameters);
  }

  void read_names(const char* key, const Json& names, std::vector<std::string>& out) const {
    for (const Json& name : names) {
      require(name.is_string(), key, "names of layers must be there", "fetch the file again");
      out.push_back(name.get<std::string>());
    }
  }

  Json root_;
  LoraConfig out_;
};

}  // namespace

double LoraConfig::scale() const {
  return alpha / (rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

std::int64_t LoraConfig::rank_of(const std::string& name) const {
  const auto found =
      std::find_if(ranks.begin(), ranks.end(), [&](const auto& one) { return pattern_names(one.first, name); });
  return found == ranks.end() ? rank : found->second;
}

double LoraConfig::scale_of(const std::string& name) const {
  const auto found =
      std::find_if(alphas.begin(), alphas.end(), [&](const auto& one) { return pattern_names(one.first, name); });
  LoraConfig own;
  own.rank = rank_of(name);
  own.alpha = found == alphas.end() ? alpha : found->second;
  own.rank_stabilized = rank_stabilized;
  return own.scale();
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
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    too_deep = too_deep || depth > kConfigDepth;
    return !too_deep;
  };
  Json root = Json::parse(text, shallow, false);
  MAGISTER_CHECK(!root.is_discarded() && !too_deep, ExitCode::kData,
                 "{}: is {} (it says how the adapter is scaled); fetch the file again", printable(path.string()),
                 too_deep ? fmt::format("nested deeper than {}", kConfigDepth) : "not JSON");
  return LoraConfigReader(path.string(), std::move(root)).read();
}

}  // namespace magister
