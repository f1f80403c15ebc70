// Range-checked reads of GGUF metadata, and the list of keys that stand for computations which are not supported. The
// tensor rope_freqs.weight holds divisors of the rotary frequencies (llama3 scaling, computed when the file was made).
// Source: ggml GGUF specification, standard keys.
#include "model/families/gguf_config.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/json_value.h"
#include "model/families/unsupported_key.h"

namespace magister {
namespace {

std::string shown(const MetadataValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return "\"" + printable(*text, 60) + "\"";
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return "a list";
}

constexpr std::array kUnsupportedGguf = {
    UnsupportedKey{"attn_logit_softcapping", 0, "soft-capped attention scores"},
    UnsupportedKey{"final_logit_softcapping", 0, "soft-capped logits"},
    UnsupportedKey{"attention.scale", 0, "another attention scale"},
    UnsupportedKey{"attention.clamp_kqv", 0, "clipped queries, keys and values"},
    UnsupportedKey{"attention.max_alibi_bias", 0, "ALiBi"},
    UnsupportedKey{"attention.sliding_window_pattern", 0, "a pattern of sliding layers"},
    UnsupportedKey{"attention.temperature_scale", 0, "attention temperature by position"},
    UnsupportedKey{"use_parallel_residual", 0, "attention and MLP in parallel"},
    UnsupportedKey{"embedding_scale", 1, "scaled embeddings"},
    UnsupportedKey{"residual_scale", 1, "scaled residual branches"},
    UnsupportedKey{"logit_scale", 1, "scaled logits"},
    UnsupportedKey{"expert_count", 0, "a mixture of experts"},
    UnsupportedKey{"rope.scaling.attn_factor", 1, "an attention factor of the rotary embedding"},
    UnsupportedKey{"rope.scaling.yarn_log_multiplier", 0, "YaRN"},
    UnsupportedKey{"rope.scaling.yarn_ext_factor", 1, "YaRN with another mixture of frequencies"},
    UnsupportedKey{"rope.scaling.yarn_attn_factor", 1, "YaRN with another attention factor"},
};

// A key that must be true: false changes results. architecture: the beginning of the architectures to which this
// applies; "" for all.
struct NeededTrue {
  const char* architecture;
  const char* key;
  const char* what;
};

constexpr std::array kNeededTrue = {
    NeededTrue{"", "attention.causal", "attention that looks ahead"},
    // In other architectures this key only describes a scaling. In Granite, llama.cpp applies no rotary embedding if it
    // is false.
    NeededTrue{"granite", "rope.scaling.finetuned", "layers without rotary embedding"},
};

bool is_neutral(const MetadataValue& value, double neutral) {
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole) == neutral;
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*whole) == neutral;
  if (const auto* real = std::get_if<double>(&value)) return *real == neutral;
  return false;
}

}  // namespace

GgufConfig::GgufConfig(const std::string& path, const TensorFile& file) : path_(path), file_(file) {
  const MetadataValue* value = find("general.architecture");
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  MAGISTER_CHECK(text != nullptr, ExitCode::kData,
                 "{}: general.architecture is {} (the model's family is unknown without it); fetch the file again",
                 printable(path), value == nullptr ? "missing" : shown(*value));
  architecture_ = *text;
}

const MetadataValue* GgufConfig::find(const std::string& full_key) const {
  const auto found = file_.metadata().find(full_key);
  return found == file_.metadata().end() ? nullptr : &found->second;
}

bool GgufConfig::has(const std::string& key) const { return find(architecture_ + "." + key) != nullptr; }

std::int64_t GgufConfig::checked_integer(const MetadataValue& value, const std::string& full_key, std::int64_t least,
                                         std::int64_t most) const {
  const auto* is_signed = std::get_if<std::int64_t>(&value);
  const auto* is_unsigned = std::get_if<std::uint64_t>(&value);
  std::int64_t whole = is_signed == nullptr ? 0 : *is_signed;
  bool good = is_signed != nullptr;
  if (is_unsigned != nullptr && *is_unsigned <= static_cast<std::uint64_t>(INT64_MAX)) {
    whole = static_cast<std::int64_t>(*is_unsigned);
    good = true;
  }
  MAGISTER_CHECK(good && whole >= least && whole <= most, ExitCode::kData,
                 "{}: {} is {} (a whole number from {} to {} is needed); fetch the file again", printable(path_),
                 printable(full_key), shown(value), least, most);
  return whole;
}

double GgufConfig::checked_number(const MetadataValue& value, const std::string& full_key, double least,
                                  double most) const {
  double number = std::nan("");
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) number = static_cast<double>(*whole);
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) number = static_cast<double>(*whole);
  MAGISTER_CHECK(number >= least && number <= most, ExitCode::kData,
                 "{}: {} is {} (a number from {} to {} is needed); fetch the file again", printable(path_),
                 printable(full_key), shown(value), least, most);
  return number;
}

std::int64_t GgufConfig::integer(const std::string& key, std::int64_t least, std::int64_t most) const {
  const std::string full_key = architecture_ + "." + key;
  const MetadataValue* value = find(full_key);
  MAGISTER_CHECK(value != nullptr, ExitCode::kData,
                 "{}: {} is missing (the model's shape is unknown without it); fetch "
                 "the file again",
                 printable(path_), full_key);
  return checked_integer(*value, full_key, least, most);
}

std::int64_t GgufConfig::integer_or(const std::string& key, std::int64_t fallback, std::int64_t least,
                                    std::int64_t most) const {
  return has(key) ? integer(key, least, most) : fallback;
}

double GgufConfig::number(const std::string& key, double least, double most) const {
  const std::string full_key = architecture_ + "." + key;
  const MetadataValue* value = find(full_key);
  MAGISTER_CHECK(value != nullptr, ExitCode::kData, "{}: {} is missing (results depend on it); fetch the file again",
                 printable(path_), full_key);
  return checked_number(*value, full_key, least, most);
}

double GgufConfig::number_or(const std::string& key, double fallback, double least, double most) const {
  return has(key) ? number(key, least, most) : fallback;
}

std::int64_t GgufConfig::vocab_size() const {
  constexpr std::int64_t kMost = 1 << 24;
  if (has("vocab_size")) return integer("vocab_size", 1, kMost);
  const MetadataValue* tokens = find("tokenizer.ggml.tokens");
  const auto* list = tokens == nullptr ? nullptr : std::get_if<std::vector<std::string>>(tokens);
  MAGISTER_CHECK(
      list != nullptr && !list->empty() && list->size() <= static_cast<std::size_t>(kMost), ExitCode::kData,
      "{}: neither {}.vocab_size nor tokenizer.ggml.tokens says how large the vocabulary is (1 to {} tokens); "
      "fetch the file again",
      printable(path_), architecture_, kMost);
  return static_cast<std::int64_t>(list->size());
}

std::int64_t GgufConfig::token_or(const std::string& full_key, std::int64_t fallback) const {
  const MetadataValue* value = find(full_key);
  return value == nullptr ? fallback : checked_integer(*value, full_key, 0, vocab_size() - 1);
}

void GgufConfig::refuse_unsupported(std::span<const char* const> computes) {
  computes_ = computes;
  for (const NeededTrue& entry : kNeededTrue) {
    const MetadataValue* value = find(architecture_ + "." + entry.key);
    if (value == nullptr || !architecture_.starts_with(entry.architecture)) continue;
    const auto* flag = std::get_if<bool>(value);
    MAGISTER_CHECK(flag != nullptr && *flag, ExitCode::kData,
                   "{}: {}.{} is {} ({} is not supported, and results without it would be wrong); use another model",
                   printable(path_), architecture_, entry.key, shown(*value), entry.what);
  }
  for (const UnsupportedKey& entry : kUnsupportedGguf) {
    if (is_named(computes, entry.key)) continue;
    const MetadataValue* value = find(architecture_ + "." + entry.key);
    if (value == nullptr || is_neutral(*value, entry.neutral)) continue;
    fail(ExitCode::kData,
         "{}: {}.{} is {} ({} is not supported, and results without it would be wrong); use another model",
         printable(path_), architecture_, entry.key, shown(*value), entry.what);
  }
}

bool GgufConfig::boolean(const std::string& key) const {
  const std::string full_key = architecture_ + "." + key;
  const MetadataValue* value = find(full_key);
  const auto* flag = value == nullptr ? nullptr : std::get_if<bool>(value);
  MAGISTER_CHECK(flag != nullptr, ExitCode::kData, "{}: {} is {} (true or false is needed); fetch the file again",
                 printable(path_), full_key, value == nullptr ? "missing" : shown(*value));
  return *flag;
}

std::vector<float> GgufConfig::divisors(const std::string& name, std::int64_t size) const {
  const TensorInfo* info = file_.find(name);
  if (info == nullptr) return {};
  const std::vector<std::int64_t> shape = {size};
  MAGISTER_CHECK(info->shape == shape && info->type == StorageType::kF32, ExitCode::kData,
                 "{}: tensor {} is {} [{}] ({} rotated dimensions of a head need F32 [{}]); fetch the file again",
                 printable(path_), name, to_string(info->type), fmt::join(info->shape, ", "), 2 * size, size);
  std::vector<float> values(static_cast<std::size_t>(size));
  file_.read(name, 0, 1, 0, size, at::from_blob(values.data(), {1, size}, at::kFloat));
  for (const float value : values) {
    MAGISTER_CHECK(value >= 1e-6f && value <= 1e6f, ExitCode::kData,
                   "{}: tensor {} holds {} (divisors of rotary frequencies lie between 1e-6 and 1e6); fetch the file "
                   "again",
                   printable(path_), name, value);
  }
  return values;
}

std::int64_t GgufConfig::rotary_dim(std::int64_t head_dim) const {
  constexpr const char* kKey = "rope.dimension_count";
  const std::int64_t rotary = integer_or(kKey, head_dim, 1, 1 << 16);
  MAGISTER_CHECK(
      rotary == head_dim || is_named(computes_, kKey), ExitCode::kData,
      "{}: {}.rope.dimension_count is {} and the head size {} (rotary embedding of a part of the head is not "
      "supported); use another model",
      printable(path_), architecture_, rotary, head_dim);
  return rotary == head_dim ? 0 : rotary;
}

// Cosines and sines are multiplied by 0.1 ln(factor) + 1 unless the file has rope.scaling.attn_factor. Versions of the
// programs that write and read that key disagree whether it replaces this number or multiplies it. So only values that
// mean the same in both cases are accepted.
void GgufConfig::read_yarn(RopeConfig& rope) const {
  rope.kind = RopeConfig::Kind::kYarn;
  rope.factor = number("rope.scaling.factor", 1.0, 1e6);
  rope.original_max_position_embeddings = integer("rope.scaling.original_context_length", 1, INT32_MAX);
  rope.beta_fast = number_or("rope.scaling.yarn_beta_fast", 32.0, 1e-6, 1e6);
  rope.beta_slow = number_or("rope.scaling.yarn_beta_slow", 1.0, 1e-6, 1e6);
  rope.attention_factor = 0.1 * std::log(rope.factor) + 1.0;
  const double stated = number_or("rope.scaling.attn_factor", 1.0, 1e-6, 1e6);
  MAGISTER_CHECK(
      stated == 1.0 || std::abs(stated - rope.attention_factor) < 1e-6, ExitCode::kData,
      "{}: {}.rope.scaling.attn_factor is {} (for a factor of {} only 1 and {} mean the same to every program); "
      "use the model's safetensors folder",
      printable(path_), architecture_, stated, rope.factor, rope.attention_factor);
}

std::vector<bool> GgufConfig::sliding_layers(std::int64_t interval, std::int64_t num_layers) const {
  constexpr const char* kKey = "attention.sliding_window_pattern";
  const MetadataValue* const value = find(architecture_ + "." + kKey);
  const auto* const flags = value == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(value);
  if (flags == nullptr) return all_but_every(integer_or(kKey, interval, 1, 1 << 12), num_layers);
  std::vector<bool> layers;
  for (const std::int64_t flag : *flags) {
    MAGISTER_CHECK(flag == 0 || flag == 1, ExitCode::kData,
                   "{}: {}.{} holds {} (truth values are 0 and 1); fetch the file again", printable(path_),
                   architecture_, kKey, flag);
    layers.push_back(flag == 1);
  }
  MAGISTER_CHECK(
      static_cast<std::int64_t>(layers.size()) == num_layers, ExitCode::kData,
      "{}: {}.{} has {} entries for {} layers (which layers have the window is unknown); fetch the file again",
      printable(path_), architecture_, kKey, layers.size(), num_layers);
  return layers;
}

RopeConfig GgufConfig::rope(std::int64_t head_dim) const {
  RopeConfig out;
  out.theta = number_or("rope.freq_base", 10000.0, 1e-3, 1e15);
  std::string type = "none";
  if (const MetadataValue* value = find(architecture_ + ".rope.scaling.type")) {
    const auto* text = std::get_if<std::string>(value);
    const std::vector<std::string> known =
        rope_types({"none", "linear"}, {{"longrope", "longrope"}, {"yarn", "rope.scaling.yarn"}}, computes_);
    MAGISTER_CHECK(text != nullptr && std::find(known.begin(), known.end(), *text) != known.end(), ExitCode::kData,
                   "{}: {}.rope.scaling.type is {} (known in this family: {}; results would be wrong); use another "
                   "model",
                   printable(path_), architecture_, shown(*value), fmt::join(known, ", "));
    type = *text;
  }
  // Files older than rope.scaling.* have only rope.scale_linear.
  out.factor = number_or("rope.scale_linear", 1.0, 1e-6, 1e6);
  if (type == "linear") out.factor = number("rope.scaling.factor", 1e-6, 1e6);
  if (out.factor != 1.0) out.kind = RopeConfig::Kind::kLinear;
  if (type == "yarn") read_yarn(out);
  out.frequency_divisors = divisors("rope_freqs.weight", head_dim / 2);
  if (!out.frequency_divisors.empty()) {
    MAGISTER_CHECK(
        out.kind == RopeConfig::Kind::kDefault, ExitCode::kData,
        "{}: rope_freqs.weight and a rope factor of {} are both set (which of the two applies is not defined); use "
        "another model",
        printable(path_), out.factor);
    out.kind = RopeConfig::Kind::kExplicit;
  }
  return out;
}

}  // namespace magister
