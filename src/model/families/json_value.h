// Checked values out of parsed JSON, and the rotary embedding's object in its three spellings.
// Shared by the reads of config.json; each fault names file, key and value.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "magister/model/model_config.h"

namespace magister {

// A value as a terminal may show it, cut to 60 bytes.
std::string json_shown(const nlohmann::json& value);
// Whole numbers only: 576.0, "576" and true are refused.
std::int64_t json_integer(const nlohmann::json& value, const std::string& path, const std::string& key,
                          std::int64_t least, std::int64_t most);
double json_number(const nlohmann::json& value, const std::string& path, const std::string& key, double least,
                   double most);

// `root` is the whole config: rope_scaling {"type" or "rope_type"} beside rope_theta, or rope_parameters.
struct RopeReading {
  const std::string& path;
  std::int64_t max_position_embeddings;
  double theta;                           // where the config does not say
  std::span<const char* const> computes;  // keys and rope types that the family computes and that are refused otherwise
  std::string
      layer_type;  // the member to read of an object that has one for each type of layer; "": no such object is known
};
RopeConfig json_rope(const nlohmann::json& root, const RopeReading& reading);
// Whether the object has a member for layers of this type.
bool json_has_rope_of(const nlohmann::json& root, const std::string& path, const std::string& layer_type);
// A number of the object for all layers.
std::optional<double> json_rope_member(const nlohmann::json& root, const std::string& path, const std::string& name);
// Of a head's numbers those that turn; 1: all. Beside the rotary embedding's object or in it.
std::optional<double> json_partial_rotary_factor(const nlohmann::json& root, const std::string& path,
                                                 std::span<const char* const> computes);
bool is_named(std::span<const char* const> names, std::string_view name);

}  // namespace magister
