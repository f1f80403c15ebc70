// Checked JSON values and the rotary embedding's object. Precedence is as in transformers, for old and new configs:
// rope_scaling before rope_parameters, rope_type before type, and rope_theta inside the object before the one outside.
// Source: transformers modeling_rope_utils (standardised rope parameters).
#include "model/families/json_value.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "magister/core/error.h"

namespace magister {

std::string json_shown(const nlohmann::json& value) {
  if (value.is_object() || value.is_array()) return value.is_object() ? "an object" : "a list";
  return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

std::int64_t json_integer(const nlohmann::json& value, const std::string& path, const std::string& key,
                          std::int64_t least, std::int64_t most) {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                  value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  MAGISTER_CHECK(fits && value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most, ExitCode::kData,
                 "{}: {} is {} (a whole number from {} to {} is needed); fix the config or fetch it again",
                 printable(path), key, json_shown(value), least, most);
  return value.get<std::int64_t>();
}

double json_number(const nlohmann::json& value, const std::string& path, const std::string& key, double least,
                   double most) {
  MAGISTER_CHECK(value.is_number() && value.get<double>() >= least && value.get<double>() <= most, ExitCode::kData,
                 "{}: {} is {} (a number from {} to {} is needed); fix the config or fetch it again", printable(path),
                 key, json_shown(value), least, most);
  return value.get<double>();
}

bool is_named(std::span<const char* const> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> rope_types(std::vector<std::string> of_all,
                                    std::initializer_list<std::pair<const char*, const char*>> others,
                                    std::span<const char* const> computes) {
  for (const auto& [type, computed_as] : others) {
    if (is_named(computes, computed_as)) of_all.emplace_back(type);
  }
  return of_all;
}

namespace {

constexpr double kLeastTheta = 1e-3, kMostTheta = 1e15;
constexpr double kLeastFactor = 1e-6, kMostFactor = 1e6;

const nlohmann::json* member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// One rotary embedding object of the config, and its key there.
struct RopeObject {
  const nlohmann::json* value = nullptr;
  std::string key;
  const std::string& path;

  const nlohmann::json* find(const char* name) const { return value == nullptr ? nullptr : member(*value, name); }
  double required(const char* name) const {
    const auto* found = find(name);
    MAGISTER_CHECK(found != nullptr, ExitCode::kData,
                   "{}: {}.{} is missing (this rope type is not defined without it); fetch the config again",
                   printable(path), key, name);
    return json_number(*found, path, key + "." + name, kLeastFactor, kMostFactor);
  }
};

// Refuses one object for all layers in a family that has one per layer type. transformers ignores such objects, except
// rope_scaling with the newer member rope_type.
void refuse_flat(const nlohmann::json& rope, const std::string& key, const std::string& path) {
  MAGISTER_CHECK(key == "rope_scaling" && (member(rope, "rope_type") != nullptr || member(rope, "type") == nullptr),
                 ExitCode::kData,
                 "{}: {} {} (this family has one rotary embedding per layer type, and transformers ignores this one); "
                 "write rope_parameters with full_attention and sliding_attention",
                 printable(path), key,
                 key == "rope_scaling" ? "has type and no rope_type" : "is not by types of layers");
}

RopeObject rope_object(const nlohmann::json& root, const std::string& path, const std::string& layer_type) {
  const auto is_by_type = [](const nlohmann::json& object) {
    return std::any_of(object.begin(), object.end(), [](const auto& value) { return value.is_object(); });
  };
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto* found = member(root, key);
    if (found == nullptr || (found->is_object() && found->empty())) continue;
    MAGISTER_CHECK(found->is_object(), ExitCode::kData, "{}: {} is {} (an object is needed); fetch the config again",
                   printable(path), key, json_shown(*found));
    if (layer_type.empty()) return {found, key, path};
    const auto* parameters = member(root, "rope_parameters");
    MAGISTER_CHECK(parameters == nullptr || parameters == found || !parameters->is_object() || !is_by_type(*parameters),
                   ExitCode::kData,
                   "{}: rope_scaling is given together with rope_parameters by types of layers (which of the two "
                   "applies depends on the program); remove one of them",
                   printable(path));
    if (is_by_type(*found)) return {member(*found, layer_type.c_str()), std::string(key) + "." + layer_type, path};
    refuse_flat(*found, key, path);
    return {found, key, path};
  }
  return {nullptr, "rope_parameters", path};
}

void refuse_unknown_members(const RopeObject& rope, std::span<const char* const> computes, bool longrope, bool yarn) {
  constexpr std::array kKnown = {"type",
                                 "rope_type",
                                 "rope_theta",
                                 "factor",
                                 "low_freq_factor",
                                 "high_freq_factor",
                                 "original_max_position_embeddings",
                                 "partial_rotary_factor"};
  for (const auto& [name, value] : rope.value->items()) {
    if (value.is_null()) continue;
    const bool of_longrope = name == "short_factor" || name == "long_factor" || name == "attention_factor";
    const bool of_yarn = name == "beta_fast" || name == "beta_slow" || name == "attention_factor" ||
                         name == "truncate" || name == "mscale" || name == "mscale_all_dim";
    const bool known = std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end() || (longrope && of_longrope) ||
                       (yarn && of_yarn) || is_named(computes, "rope_parameters." + name);
    MAGISTER_CHECK(
        known, ExitCode::kData,
        "{}: {}.{} is {} (this part of a rotary embedding is not supported, and results would be wrong); use "
        "another model",
        printable(rope.path), rope.key, printable(name), json_shown(value));
  }
}

std::string rope_type(const RopeObject& rope) {
  for (const char* name : {"rope_type", "type"}) {
    const auto* found = rope.find(name);
    if (found == nullptr) continue;
    MAGISTER_CHECK(found->is_string(), ExitCode::kData, "{}: {}.{} is {} (a name is needed); fetch the config again",
                   printable(rope.path), rope.key, name, json_shown(*found));
    return found->get<std::string>();
  }
  return "default";
}

constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr const char* kProportional = "proportional";

// transformers prefers the value outside the object.
std::int64_t original_positions(const RopeObject& rope, const nlohmann::json& root, std::int64_t max_positions) {
  const auto* original = member(root, kOriginal);
  if (original == nullptr) original = rope.find(kOriginal);
  return original == nullptr ? max_positions
                             : json_integer(*original, rope.path, rope.key + "." + kOriginal, 1, INT32_MAX);
}

void read_llama3(const RopeObject& rope, const nlohmann::json& root, std::int64_t max_positions, RopeConfig& out) {
  out.kind = RopeConfig::Kind::kLlama3;
  out.factor = rope.required("factor");
  out.low_freq_factor = rope.required("low_freq_factor");
  out.high_freq_factor = rope.required("high_freq_factor");
  MAGISTER_CHECK(
      out.low_freq_factor <= out.high_freq_factor, ExitCode::kData,
      "{}: {}.low_freq_factor is {} and high_freq_factor {} (the first must not be the larger); fetch the config "
      "again",
      printable(rope.path), rope.key, out.low_freq_factor, out.high_freq_factor);
  out.original_max_position_embeddings = original_positions(rope, root, max_positions);
}

std::vector<float> wave_factors(const RopeObject& rope, const char* name) {
  const auto* list = rope.find(name);
  MAGISTER_CHECK(list != nullptr && list->is_array(), ExitCode::kData,
                 "{}: {}.{} is {} (a list with one number per frequency is needed); fetch the config again",
                 printable(rope.path), rope.key, name, list == nullptr ? "missing" : json_shown(*list));
  std::vector<float> out;
  for (const auto& number : *list)
    out.push_back(static_cast<float>(json_number(number, rope.path, rope.key + "." + name, kLeastFactor, kMostFactor)));
  return out;
}

// Source: transformers' _compute_yarn_parameters.
void read_yarn(const RopeObject& rope, const nlohmann::json& root, std::int64_t max_positions, RopeConfig& out) {
  out.kind = RopeConfig::Kind::kYarn;
  out.original_max_position_embeddings = original_positions(rope, root, max_positions);
  out.factor = rope.find("factor") != nullptr
                   ? rope.required("factor")
                   : static_cast<double>(max_positions) / static_cast<double>(out.original_max_position_embeddings);
  if (rope.find("beta_fast") != nullptr) out.beta_fast = rope.required("beta_fast");
  if (rope.find("beta_slow") != nullptr) out.beta_slow = rope.required("beta_slow");
  if (const auto* truncate = rope.find("truncate")) {
    MAGISTER_CHECK(truncate->is_boolean(), ExitCode::kData,
                   "{}: {}.truncate is {} (true or false is needed); fix the config", printable(rope.path), rope.key,
                   json_shown(*truncate));
    out.truncates = truncate->get<bool>();
  }
  const auto scaled = [&](double mscale) {
    return out.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(out.factor) + 1.0;
  };
  const auto mscale = [&](const char* name) {
    const auto* found = rope.find(name);
    return found == nullptr ? 0.0 : json_number(*found, rope.path, rope.key + "." + name, 0.0, kMostFactor);
  };
  const double part = mscale("mscale"), all = mscale("mscale_all_dim");
  out.attention_factor = part > 0 && all > 0 ? scaled(part) / scaled(all) : scaled(1.0);
  if (rope.find("attention_factor") != nullptr) out.attention_factor = rope.required("attention_factor");
}

// Source: transformers' _compute_proportional_rope_parameters.
void read_proportional(const RopeObject& rope, RopeConfig& out) {
  out.kind = RopeConfig::Kind::kProportional;
  if (rope.find("factor") != nullptr) out.factor = rope.required("factor");
  if (const auto* part = rope.find("partial_rotary_factor"))
    out.turning_part = json_number(*part, rope.path, rope.key + ".partial_rotary_factor", 0, 1);
}

// Source: transformers' _compute_longrope_parameters. The default attention factor follows from the ratio of extended
// to original positions.
void read_longrope(const RopeObject& rope, const nlohmann::json& root, std::int64_t max_positions, RopeConfig& out) {
  out.kind = RopeConfig::Kind::kLongRope;
  out.short_factor = wave_factors(rope, "short_factor");
  out.long_factor = wave_factors(rope, "long_factor");
  MAGISTER_CHECK(rope.find(kOriginal) != nullptr || member(root, kOriginal) != nullptr, ExitCode::kData,
                 "{}: {} is missing (where long sequences begin is unknown without it); fetch the config again",
                 printable(rope.path), kOriginal);
  const std::int64_t original = out.original_max_position_embeddings = original_positions(rope, root, max_positions);
  const double factor = rope.find("factor") != nullptr
                            ? rope.required("factor")
                            : static_cast<double>(max_positions) / static_cast<double>(original);
  if (rope.find("attention_factor") != nullptr) {
    out.attention_factor = rope.required("attention_factor");
  } else if (factor > 1.0) {
    MAGISTER_CHECK(original > 1, ExitCode::kData,
                   "{}: original_max_position_embeddings is 1 (its logarithm is a divisor); fetch the config again",
                   printable(rope.path));
    out.attention_factor = std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original)));
  }
}

}  // namespace

std::optional<double> json_rope_member(const nlohmann::json& root, const std::string& path, const std::string& name) {
  const RopeObject rope = rope_object(root, path, "");
  const auto* inside = rope.find(name.c_str());
  if (inside == nullptr) return std::nullopt;
  return json_number(*inside, path, rope.key + "." + name, kLeastFactor, kMostTheta);
}

std::optional<double> json_partial_rotary_factor(const nlohmann::json& root, const std::string& path,
                                                 std::span<const char* const> computes, const std::string& layer_type) {
  constexpr const char* kKey = "partial_rotary_factor";
  const double least = is_named(computes, kKey) ? kLeastFactor : 1.0;
  const RopeObject rope = rope_object(root, path, layer_type);
  if (rope_type(rope) == kProportional) return std::nullopt;  // json_rope() reads it
  if (const auto* inside = rope.find(kKey)) return json_number(*inside, path, rope.key + "." + kKey, least, 1);
  const auto* outside = layer_type.empty() ? member(root, kKey) : nullptr;
  if (outside == nullptr) return std::nullopt;
  return json_number(*outside, path, kKey, least, 1);
}

bool json_has_rope_of(const nlohmann::json& root, const std::string& path, const std::string& layer_type) {
  const RopeObject rope = rope_object(root, path, layer_type);
  return rope.value != nullptr && rope.key.find('.') != std::string::npos;
}

RopeConfig json_rope(const nlohmann::json& root, const RopeReading& reading) {
  const std::string& path = reading.path;
  const std::int64_t max_position_embeddings = reading.max_position_embeddings;
  RopeConfig out;
  out.theta = reading.theta;
  const RopeObject rope = rope_object(root, path, reading.layer_type);
  // With two rotary embeddings, the outer rope_theta is that of layers with full attention.
  if (const auto* theta = reading.layer_type == "sliding_attention" ? nullptr : member(root, "rope_theta"))
    out.theta = json_number(*theta, path, "rope_theta", kLeastTheta, kMostTheta);
  if (rope.value == nullptr) return out;
  // Objects nested by layer type are refused first: their members are objects, so "unknown member" would mislead.
  for (const auto& [name, value] : rope.value->items()) {
    MAGISTER_CHECK(
        !value.is_object(), ExitCode::kData,
        "{}: {}.{} is an object (rotary embeddings that differ by layer are not supported); use another model",
        printable(path), rope.key, printable(name));
  }
  std::string type = rope_type(rope);
  // Three positions a token, which are one number in a text without images.
  if (type == "mrope" && is_named(reading.computes, "mrope")) type = "default";
  if (type == "deepseek_yarn" && is_named(reading.computes, "deepseek_yarn"))
    type = "yarn";  // the same by another name
  std::vector<std::string> known =
      rope_types({"default", "linear", "dynamic", "llama3", "yarn"}, {{"longrope", "longrope"}}, reading.computes);
  // Layers that rotate the first part of a head alone have no place for its frequencies, which are those of all.
  if (!is_named(reading.computes, "partial_rotary_factor")) known.emplace_back(kProportional);
  MAGISTER_CHECK(std::find(known.begin(), known.end(), type) != known.end(), ExitCode::kData,
                 "{}: rope type \"{}\" in {} is not supported (known in this family: {}; results would be wrong); use "
                 "another model",
                 printable(path), printable(type), rope.key, fmt::join(known, ", "));
  const bool longrope = type == "longrope", yarn = type == "yarn";
  refuse_unknown_members(rope, reading.computes, longrope, yarn);
  if (const auto* theta = rope.find("rope_theta")) {
    out.theta = json_number(*theta, path, rope.key + ".rope_theta", kLeastTheta, kMostTheta);
  }
  // Without a layer type, or in a family that computes it, json_partial_rotary_factor() reads this key.
  const bool part_is_read =
      reading.layer_type.empty() || type == kProportional || is_named(reading.computes, "partial_rotary_factor");
  if (const auto* part = part_is_read ? nullptr : rope.find("partial_rotary_factor"))
    json_number(*part, path, rope.key + ".partial_rotary_factor", 1, 1);
  if (type == kProportional) read_proportional(rope, out);
  if (yarn) read_yarn(rope, root, max_position_embeddings, out);
  if (longrope) read_longrope(rope, root, max_position_embeddings, out);
  if (type == "llama3") read_llama3(rope, root, max_position_embeddings, out);
  if (type == "linear" || type == "dynamic") {
    out.kind = type == "linear" ? RopeConfig::Kind::kLinear : RopeConfig::Kind::kDynamic;
    out.factor = rope.required("factor");
    out.original_max_position_embeddings = max_position_embeddings;
  }
  return out;
}

}  // namespace magister
