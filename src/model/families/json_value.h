// Checked values out of parsed JSON, and the rotary embedding's object in its three spellings.
// Shared by the reads of config.json; each fault names file, key and value.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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
RopeConfig json_rope(const nlohmann::json& root, const std::string& path, std::int64_t max_position_embeddings);

}  // namespace magister
