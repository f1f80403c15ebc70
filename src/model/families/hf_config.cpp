// Range-checked reads of config.json, and the list of keys that stand for computations which are not supported. The
// list is needed because transformers ignores keys that a class does not know, and a model saved by another class may
// have them.
// Source: transformers' configuration classes of the families here and of similar ones (Gemma, Granite, Cohere, ...).
#include "model/families/hf_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "magister/core/error.h"
#include "magister/io/checkpoint/cache_scales.h"
#include "magister/io/whole_file.h"
#include "model/families/json_value.h"
#include "model/families/outer_model.h"
#include "model/families/unsupported_key.h"

namespace magister {
namespace {

std::string read_text(const std::string& path) {
  std::error_code ignored;
  MAGISTER_CHECK(std::filesystem::is_regular_file(path, ignored), ExitCode::kData,
                 "{}: not a file (a model folder needs its config.json next to the weights); fetch the whole model",
                 printable(path));
  return read_whole_file(path, HfConfig::kMaxBytes, "a model's config describes it in a few thousand");
}

constexpr std::array kUnsupportedHf = {
    UnsupportedKey{"quantization_config", 0, "weights quantised by another program"},
    UnsupportedKey{"compression_config", 0, "compressed weights"},
    UnsupportedKey{"partial_rotary_factor", 1, "rotary embedding of a part of the head"},
    UnsupportedKey{"rotary_pct", 1, "rotary embedding of a part of the head"},
    UnsupportedKey{"rope_ratio", 1, "scaled rotary frequencies"},
    UnsupportedKey{"rope_local_base_freq", 0, "a second rotary base"},
    UnsupportedKey{"no_rope_layers", 0, "layers without rotary embedding"},
    UnsupportedKey{"no_rope_layer_interval", 0, "layers without rotary embedding"},
    UnsupportedKey{"attn_logit_softcapping", 0, "soft-capped attention scores"},
    UnsupportedKey{"final_logit_softcapping", 0, "soft-capped logits"},
    UnsupportedKey{"logit_cap", 0, "soft-capped logits"},
    UnsupportedKey{"attn_temperature_tuning", 0, "attention temperature by position"},
    UnsupportedKey{"attn_scale", 0, "another attention scale"},
    UnsupportedKey{"query_pre_attn_scalar", 0, "another attention scale"},
    UnsupportedKey{"attention_multiplier", 0, "another attention scale"},
    UnsupportedKey{"attention_chunk_size", 0, "chunked attention"},
    UnsupportedKey{"use_bidirectional_attention", 0, "attention that looks ahead"},
    UnsupportedKey{"use_qk_norm", 0, "norms on queries and keys"},
    UnsupportedKey{"qk_layernorm", 0, "norms on queries and keys"},
    UnsupportedKey{"clip_qkv", 0, "clipped queries, keys and values"},
    UnsupportedKey{"parallel_attn", 0, "attention and MLP in parallel"},
    UnsupportedKey{"use_parallel_residual", 0, "attention and MLP in parallel"},
    UnsupportedKey{"embedding_multiplier", 1, "scaled embeddings"},
    UnsupportedKey{"scale_emb", 1, "scaled embeddings"},
    UnsupportedKey{"residual_multiplier", 1, "scaled residual branches"},
    UnsupportedKey{"scale_depth", 0, "scaled residual branches"},
    UnsupportedKey{"logits_scaling", 1, "scaled logits"},
    UnsupportedKey{"logit_scale", 1, "scaled logits"},
    UnsupportedKey{"num_experts", 0, "a mixture of experts"},
    UnsupportedKey{"num_local_experts", 0, "a mixture of experts"},
    UnsupportedKey{"n_routed_experts", 0, "a mixture of experts"},
    UnsupportedKey{"kv_lora_rank", 0, "latent attention"},
};

constexpr const char* kFirstOtherId = "first_other_id";  // not a key of files

// The least vocab_offset of the encoders.
std::int64_t first_other_id(const nlohmann::json& root, const std::string& path, std::int64_t absent) {
  std::int64_t first = absent;
  for (const char* encoder : {"vision_config", "audio_config"}) {
    if (!root.contains(encoder) || !root[encoder].is_object() || !root[encoder].contains("vocab_offset")) continue;
    const std::string key = std::string(encoder) + ".vocab_offset";
    const std::int64_t offset = json_integer(root[encoder]["vocab_offset"], path, key, 0, 1 << 24);
    first = std::string_view(encoder) == "vision_config" ? offset : std::min(first, offset);
  }
  return first;
}

bool is_neutral(const nlohmann::json& value, double neutral) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == neutral;
  return (value.is_array() || value.is_object()) && value.empty();
}

}  // namespace

HfConfig::HfConfig(const std::string& path) : path_(path), root_(std::make_unique<nlohmann::json>()) {
  try {
    *root_ = nlohmann::json::parse(read_text(path));
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::kData, "{}: not valid JSON: {} (the model's shape is unknown); fetch the file again",
         printable(path), printable(error.what()));
  }
  MAGISTER_CHECK(root_->is_object(), ExitCode::kData,
                 "{}: holds {}, not an object (the model's shape is unknown); fetch the file again", printable(path),
                 root_->type_name());
}
HfConfig::~HfConfig() = default;
HfConfig::HfConfig(HfConfig&&) noexcept = default;

bool HfConfig::has(const std::string& key) const {
  const auto found = root_->find(key);
  return found != root_->end() && !found->is_null();
}

bool HfConfig::is_absent(const std::string& key) const { return !root_->contains(key); }

bool HfConfig::is_empty(const std::string& key) const {
  const auto found = root_->find(key);
  return found != root_->end() && found->is_object() && found->empty();
}

bool HfConfig::is_null(const std::string& key) const {
  const auto found = root_->find(key);
  return found != root_->end() && found->is_null();
}

std::int64_t HfConfig::integer(const std::string& key, std::int64_t least, std::int64_t most) const {
  MAGISTER_CHECK(has(key), ExitCode::kData,
                 "{}: {} is missing (the model's shape is unknown without it); fetch the "
                 "config again or add the key",
                 printable(path_), key);
  return json_integer((*root_)[key], path_, key, least, most);
}

std::int64_t HfConfig::integer_or(const std::string& key, std::int64_t fallback, std::int64_t least,
                                  std::int64_t most) const {
  return has(key) ? json_integer((*root_)[key], path_, key, least, most) : fallback;
}

double HfConfig::number_or(const std::string& key, double fallback, double least, double most) const {
  return has(key) ? json_number((*root_)[key], path_, key, least, most) : fallback;
}

bool HfConfig::boolean_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = (*root_)[key];
  MAGISTER_CHECK(value.is_boolean(), ExitCode::kData, "{}: {} is {} (true or false is needed); fix the config",
                 printable(path_), key, json_shown(value));
  return value.get<bool>();
}

std::string HfConfig::text_or(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = (*root_)[key];
  MAGISTER_CHECK(value.is_string(), ExitCode::kData, "{}: {} is {} (a text is needed); fix the config",
                 printable(path_), key, json_shown(value));
  return value.get<std::string>();
}

bool HfConfig::is_text(const std::string& key) const { return has(key) && (*root_)[key].is_string(); }

bool HfConfig::is_list(const std::string& key) const { return has(key) && (*root_)[key].is_array(); }

std::vector<std::string> HfConfig::texts(const std::string& key) const {
  std::vector<std::string> out;
  if (!has(key)) return out;
  const nlohmann::json& value = (*root_)[key];
  bool good = value.is_array();
  for (const auto& item : value) {
    if (!good) break;
    good = item.is_string();
    if (good) out.push_back(item.get<std::string>());
  }
  MAGISTER_CHECK(good, ExitCode::kData, "{}: {} is {} (a list of texts is needed); fix the config", printable(path_),
                 key, json_shown(value));
  return out;
}

std::vector<std::string> HfConfig::repeated_texts(const std::string& key) const {
  std::vector<std::string> out;
  try {
    for (const auto& [texts, times] : (*root_)[key].get<std::vector<std::pair<std::vector<std::string>, int>>>()) {
      MAGISTER_CHECK(times >= 0 && times <= (1 << 12), ExitCode::kData,
                     "{}: {} repeats a list {} times; fix the config", printable(path_), key, times);
      for (int i = 0; i < times; ++i) out.insert(out.end(), texts.begin(), texts.end());
    }
  } catch (const nlohmann::json::exception&) {
    fail(ExitCode::kData, "{}: {} is {} (lists of texts with a number each are needed); fix the config",
         printable(path_), key, json_shown((*root_)[key]));
  }
  return out;
}

std::vector<std::int64_t> HfConfig::integers(const std::string& key, std::int64_t least, std::int64_t most) const {
  std::vector<std::int64_t> out;
  if (!has(key)) return out;
  const nlohmann::json& value = (*root_)[key];
  MAGISTER_CHECK(value.is_array(), ExitCode::kData,
                 "{}: {} is {} (a list of whole numbers from {} to {} is needed); fix the config", printable(path_),
                 key, json_shown(value), least, most);
  for (const auto& item : value) out.push_back(json_integer(item, path_, key, least, most));
  return out;
}

std::vector<double> HfConfig::numbers(const std::string& key, double least, double most) const {
  std::vector<double> out;
  if (!has(key)) return out;
  const nlohmann::json& value = (*root_)[key];
  MAGISTER_CHECK(value.is_array(), ExitCode::kData,
                 "{}: {} is {} (a list of numbers from {} to {} is needed); fix the config", printable(path_), key,
                 json_shown(value), least, most);
  for (const auto& item : value) out.push_back(json_number(item, path_, key, least, most));
  return out;
}

std::vector<std::int64_t> HfConfig::by_layer(const std::string& name, std::span<const char* const> known,
                                             std::int64_t layers, std::int64_t absent) const {
  constexpr const char* kKey = "per_layer_config";
  std::vector<std::int64_t> out(static_cast<std::size_t>(layers), absent);
  if (!has(kKey)) return out;
  const nlohmann::json& all = (*root_)[kKey];
  MAGISTER_CHECK(all.is_object(), ExitCode::kData, "{}: {} is {} (an object is needed); fetch the config again",
                 printable(path_), kKey, json_shown(all));
  for (const auto& [layer, numbers] : all.items()) {
    const auto number = std::find_if(
        out.begin(), out.end(), [&](const std::int64_t& one) { return layer == std::to_string(&one - out.data()); });
    MAGISTER_CHECK(number != out.end() && numbers.is_object(), ExitCode::kData,
                   "{}: {}.{} is {} (an object for each of {} layers is needed); fetch the config again",
                   printable(path_), kKey, printable(layer), json_shown(numbers), layers);
    for (const auto& [key, value] : numbers.items()) {
      MAGISTER_CHECK(is_named(known, key), ExitCode::kData,
                     "{}: {}.{}.{} is {} (this does not differ by layer in models that are supported, and results "
                     "without it would be wrong); use another model",
                     printable(path_), kKey, layer, printable(key), json_shown(value));
      if (key == name) *number = json_integer(value, path_, std::string(kKey) + "." + layer + "." + key, 1, 1 << 16);
    }
  }
  return out;
}

std::vector<bool> HfConfig::flags(const std::string& key) const {
  std::vector<bool> out;
  for (const std::int64_t item : integers(key, 0, 1)) out.push_back(item == 1);
  return out;
}

std::int64_t HfConfig::token_or(const std::string& key, std::int64_t fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = (*root_)[key];
  if (value.is_array()) {
    return value.empty() ? fallback : json_integer(value.front(), path_, key, -1, INT32_MAX);
  }
  return json_integer(value, path_, key, -1, INT32_MAX);
}

std::vector<std::string> HfConfig::labels() const {
  constexpr std::int64_t kMostLabels = 1 << 16;
  std::vector<std::string> names;
  if (!has("id2label")) {
    const std::int64_t count = integer_or("num_labels", 2, 1, kMostLabels);
    for (std::int64_t i = 0; i < count; ++i) names.push_back(fmt::format("LABEL_{}", i));
    return names;
  }
  const nlohmann::json& given = (*root_)["id2label"];
  bool good = given.is_object() && !given.empty() && given.size() <= static_cast<std::size_t>(kMostLabels);
  for (std::size_t i = 0; good && i < given.size(); ++i) {
    const auto found = given.find(std::to_string(i));
    good = found != given.end() && found->is_string();
    if (good) names.push_back(found->get<std::string>());
  }
  MAGISTER_CHECK(good, ExitCode::kData,
                 "{}: id2label is {} (a name for each of 0, 1, ... is needed, at most {}); fix the config",
                 printable(path_), json_shown(given), kMostLabels);
  return names;
}

void HfConfig::refuse_two(const std::string& one, const std::string& other) const {
  MAGISTER_CHECK(
      !has(one) || !has(other) || (*root_)[one] == (*root_)[other], ExitCode::kData,
      "{}: {} is {} and {} is {} (two names of one value: which of them the weights have is unknown); remove "
      "the wrong one",
      printable(path_), one, json_shown((*root_)[one]), other, json_shown((*root_)[other]));
}

void HfConfig::call(std::span<const std::pair<const char*, const char*>> keys) {
  for (const auto& [common, theirs] : keys) {
    refuse_two(common, theirs);
    if (std::string_view(common) == "hidden_act") activation_key_ = theirs;
    const auto found = root_->find(theirs);
    if (found == root_->end()) {
      root_->erase(common);  // transformers ignores the common name, too
    } else {
      nlohmann::json value = *found;
      (*root_)[common] = std::move(value);
    }
  }
}

void HfConfig::also_call(std::span<const std::pair<const char*, const char*>> keys) {
  for (const auto& [common, theirs] : keys) {
    refuse_two(common, theirs);
    if (has(theirs)) (*root_)[common] = nlohmann::json((*root_)[theirs]);
  }
}

void HfConfig::lift(const std::string& object) {
  if (!has(object)) return;
  const nlohmann::json members = (*root_)[object];
  MAGISTER_CHECK(members.is_object(), ExitCode::kData, "{}: {} is {} (an object is needed); fix the config",
                 printable(path_), object, json_shown(members));
  for (const auto& [name, value] : members.items()) (*root_)[object + "." + name] = value;
}

void HfConfig::fill(std::span<const std::pair<const char*, std::int64_t>> defaults) {
  for (const auto& [key, value] : defaults) {
    if (is_absent(key)) (*root_)[key] = value;
  }
}

const OuterModel* HfConfig::enter_text() {
  const OuterModel* outer = outer_model(text_or("model_type", ""));
  if (outer == nullptr) return nullptr;
  for (const std::string& name : texts("architectures")) {
    const bool is_published = !name.empty() && name == outer->published_architecture;
    MAGISTER_CHECK(name == outer->architecture || is_published, ExitCode::kData,
                   "{}: architectures names \"{}\" (of a {} only the texts of {} run here); use another model",
                   printable(path_), printable(name), outer->model_type, outer->architecture);
  }
  const bool nested = has("text_config");
  MAGISTER_CHECK(nested ? (*root_)["text_config"].is_object() : outer->is_flat, ExitCode::kData,
                 "{}: text_config is not an object (the text decoder of a {} is unknown); fetch the config again",
                 printable(path_), outer->model_type);
  if (nested) require_causal();
  nlohmann::json text = nested ? (*root_)["text_config"] : *root_;
  // This class does not cap its logits, while the class of texts alone does.
  const bool caps = outer->model_type == std::string_view("gemma3") && text.contains("final_logit_softcapping") &&
                    !is_neutral(text["final_logit_softcapping"], 0);
  MAGISTER_CHECK(!caps, ExitCode::kData,
                 "{}: text_config.final_logit_softcapping is {} (programs differ in whether a {} caps its logits); use "
                 "another model",
                 printable(path_), json_shown(text["final_logit_softcapping"]), outer->model_type);
  if (!nested || !text.contains("model_type")) text["model_type"] = outer->text_type;
  MAGISTER_CHECK(outer->any_text || text["model_type"] == outer->text_type, ExitCode::kData,
                 "{}: text_config.model_type is {} (the texts of a {} are a {}); use another model", printable(path_),
                 json_shown(text["model_type"]), outer->model_type, outer->text_type);
  for (const char* key :
       {"bos_token_id", "eos_token_id", "pad_token_id", "quantization_config", "compression_config"}) {
    if (root_->contains(key) && (!text.contains(key) || text[key].is_null())) text[key] = (*root_)[key];
  }
  const auto tied = [&](const nlohmann::json& in, bool absent) {
    return in.contains("tie_word_embeddings") ? in["tie_word_embeddings"] == true : absent;
  };
  const bool is_tied = tied(*root_, outer->tied_by_default) || (outer->tied_by_text && tied(text, false));
  text["tie_word_embeddings"] = is_tied;
  text.erase("architectures");
  if (outer->first_other_id > 0) text[kFirstOtherId] = first_other_id(*root_, path_, outer->first_other_id);
  *root_ = std::move(text);
  return outer;
}

void HfConfig::accept_quantization() {
  root_->erase("quantization_config");
  root_->erase("compression_config");
}

void HfConfig::refuse_unsupported(std::span<const char* const> computes) {
  computes_ = computes;
  for (const char* const key : {"quantization_config", "compression_config"}) {
    const auto found = root_->find(key);
    if (found != root_->end() && quantizes_cache_alone(*found)) root_->erase(found);
  }
  for (const UnsupportedKey& entry : kUnsupportedHf) {
    if (is_named(computes, entry.key)) continue;
    const auto found = root_->find(entry.key);
    if (found == root_->end() || is_neutral(*found, entry.neutral)) continue;
    fail(ExitCode::kData,
         "{}: {} is {} ({} is not supported, and results without it would be wrong); use another model",
         printable(path_), entry.key, json_shown(*found), entry.what);
  }
}

// From transformers 5.2 on, every decoder attends to later tokens if this key is present and not true, null included.
void HfConfig::require_causal() const {
  const auto found = root_->find("is_causal");
  MAGISTER_CHECK(found == root_->end() || *found == true, ExitCode::kData,
                 "{}: is_causal is {} (attention that looks ahead is not supported, and results without it would be "
                 "wrong); use another model",
                 printable(path_), json_shown(*found));
}

Activation HfConfig::activation() const {
  const std::string name = text_or("hidden_act", "silu");
  if (name == "xielu" && is_named(computes_, "xielu")) return Activation::kSilu;  // ModelConfig::xielu
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return Activation::kGeluTanh;
  if (name == "relu" && is_named(computes_, "relu")) return Activation::kRelu;
  if (name == "relu2" && is_named(computes_, "relu2")) return Activation::kRelu2;
  if (name == "gelu" && is_named(computes_, "gelu by the normal distribution")) return Activation::kGelu;
  if (name == "gelu" && is_named(computes_, "gelu")) return Activation::kGeluTanh;
  fail(ExitCode::kData,
       "{}: {} is \"{}\" (only silu and gelu_pytorch_tanh are computed in this family, and results would be "
       "wrong); use "
       "another model",
       printable(path_), activation_key_, printable(name));
}

RopeConfig HfConfig::rope(std::int64_t max_position_embeddings, double theta) const {
  const bool by_type = is_named(computes_, "rope_parameters.full_attention");
  return json_rope(*root_, {path_, max_position_embeddings, theta, computes_, by_type ? "full_attention" : ""});
}

std::optional<RopeConfig> HfConfig::rope_of(const std::string& layer_type, std::int64_t max_position_embeddings,
                                            double theta) const {
  if (!json_has_rope_of(*root_, path_, layer_type)) return std::nullopt;
  return json_rope(*root_, {path_, max_position_embeddings, theta, computes_, layer_type});
}

std::optional<double> HfConfig::rope_member(const std::string& name) const {
  return json_rope_member(*root_, path_, name);
}

std::int64_t HfConfig::rotary_dim(std::int64_t head_dim, double absent, const std::string& layer_type) const {
  const double factor = json_partial_rotary_factor(*root_, path_, computes_, layer_type).value_or(absent);
  if (factor == 1.0) return 0;
  const auto rotary = static_cast<std::int64_t>(static_cast<double>(head_dim) * factor);
  MAGISTER_CHECK(rotary >= 2, ExitCode::kData,
                 "{}: partial_rotary_factor is {} (of a head of {} numbers {} would turn); fetch the config again",
                 printable(path_), factor, head_dim, rotary);
  return rotary;
}

std::vector<bool> HfConfig::sliding_layers(std::vector<bool> absent) const {
  if (!has("layer_types")) return absent;
  std::vector<bool> sliding;
  for (const std::string& type : texts("layer_types")) {
    MAGISTER_CHECK(type == "full_attention" || type == "sliding_attention", ExitCode::kData,
                   "{}: layer_types has \"{}\" (known: full_attention, sliding_attention); use another model",
                   printable(path_), printable(type));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

}  // namespace magister
