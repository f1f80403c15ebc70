// Opening a model for a task; see open_model.h.
#include "tasks/open_model.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/model/transformer.h"

namespace magister {

OpenModel open_model(const Communicator& world, const ModelSection& section) {
  OpenModel model;
  model.file = TensorFile::open(section.path);
  model.description = describe_model(section.path, *model.file);
  model.dtype = resolve_cpu_dtype(section.storage_dtype());
  model.quantization = quant_scheme(section.quantization, section.quantization_group);
  // `auto` follows the CPU: one rank without fast bf16 decides for all, or the rows would depend on who computed them.
  const bool all_agree = world.min(static_cast<std::uint64_t>(model.dtype)) == world.max(static_cast<std::uint64_t>(model.dtype));
  if (!all_agree) model.dtype = at::kFloat;
  return model;
}

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kFloat ? "f32" : dtype == at::kBFloat16 ? "bf16" : "f16";
}

std::vector<TokenId> end_tokens(const std::string& model_path, const ModelConfig& config) {
  std::vector<TokenId> ids;
  const auto add = [&](const nlohmann::json& value) {
    if (!value.is_number_integer()) return;
    const auto id = value.get<std::int64_t>();
    if (id >= 0 && id < config.vocab_size) ids.push_back(static_cast<TokenId>(id));
  };
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::ifstream file(std::filesystem::path(model_path) / name);
    const nlohmann::json object = file ? nlohmann::json::parse(file, nullptr, false) : nlohmann::json();
    if (!object.is_object() || !object.contains("eos_token_id")) continue;
    const nlohmann::json& eos = object.at("eos_token_id");
    if (eos.is_array()) {
      for (const nlohmann::json& id : eos) add(id);
    } else {
      add(eos);
    }
    if (!ids.empty()) return ids;
  }
  if (config.eos_token_id >= 0) ids.push_back(static_cast<TokenId>(config.eos_token_id));
  return ids;
}

}  // namespace magister
