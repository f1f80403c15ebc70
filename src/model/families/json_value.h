// Checked values from parsed JSON, and the rotary embedding's object in its three spellings. Every fault is an
// Error(kData) with file, key and value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/model/model_config.h"

namespace magister {

// A value as text that a terminal may print, cut to 60 bytes.
std::string json_shown(const nlohmann::json& value);
// Whole numbers only: 576.0, "576" and true are refused.
std::int64_t json_integer(const nlohmann::json& value, const std::string& path, const std::string& key,
                          std::int64_t least, std::int64_t most);
double json_number(const nlohmann::json& value, const std::string& path, const std::string& key, double least,
                   double most);

// How json_rope() reads the whole config `root`: rope_scaling {"type" or "rope_type"} with rope_theta outside it, or
// rope_parameters.
struct RopeReading {
  const std::string& path;
  std::int64_t max_position_embeddings;
  double theta;                           // for a config without rope_theta
  std::span<const char* const> computes;  // keys and rope types that the family computes; others are refused
  // Layer type whose member is read, in an object that has one member per layer type; "": the family has no such
  // objects.
  std::string layer_type;
};
RopeConfig json_rope(const nlohmann::json& root, const RopeReading& reading);
// True if the object has a member for layers of this type.
bool json_has_rope_of(const nlohmann::json& root, const std::string& path, const std::string& layer_type);
// A number in the object for all layers; nothing: the object lacks it.
std::optional<double> json_rope_member(const nlohmann::json& root, const std::string& path, const std::string& name);
// The fraction of a head's dimensions that is rotated, from inside or outside the rotary embedding's object; 1: all.
// Nothing: the config does not say. layer_type: from inside the object of these layers alone.
std::optional<double> json_partial_rotary_factor(const nlohmann::json& root, const std::string& path,
                                                 std::span<const char* const> computes,
                                                 const std::string& layer_type = "");
bool is_named(std::span<const char* const> names, std::string_view name);
// The rope types that a family accepts, for the check and its message: those of all families, and each of `others`
// whose second name is in `computes`.
std::vector<std::string> rope_types(std::vector<std::string> of_all,
                                    std::initializer_list<std::pair<const char*, const char*>> others,
                                    std::span<const char* const> computes);

}  // namespace magister
