// Opening a model for a task; see open_model.h.
#include "tasks/open_model.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/model/transformer.h"

namespace magister {

namespace {

// The type of 16 bits that loses least of embeddings and head: bf16 where the file has bf16, else f16 with its three more bits.
at::ScalarType table_dtype(const OpenModel& model) {
  const TensorInfo* embeddings = model.file->find(model.description.names.embed_tokens);
  return embeddings != nullptr && embeddings->type == StorageType::kBF16 ? at::kBFloat16 : at::kHalf;
}

}  // namespace

OpenModel open_model(const Communicator& world, const ModelSection& section) {
  OpenModel model;
  model.file = TensorFile::open(section.path);
  model.description = describe_model(section.path, *model.file);
  model.plain_dtype = resolve_cpu_dtype(section.dtype);
  // `auto` follows the CPU: one rank without fast bf16 decides for all, or the rows would depend on who computed them.
  const auto type = static_cast<std::uint64_t>(model.plain_dtype);
  if (world.min(type) != world.max(type)) model.plain_dtype = at::kFloat;
  model.quantization = quant_scheme(section.quantization, section.quantization_group.value_or(32));
  model.quantization.group_given = section.quantization_group.has_value();
  model.dtype = model.quantization.on() && section.dtype == "auto" ? table_dtype(model) : model.plain_dtype;
  model.products = quantized_products(model.description, *model.file, model.quantization);
  return model;
}

std::function<std::uint64_t(int)> OpenModel::shard_bytes(int tp_size) const {
  return [this, tp_size](int tp_rank) { return weight_bytes(description, *file, dtype, tp_rank, tp_size, quantization); };
}

std::string OpenModel::layers() const {
  if (!quantization.on()) return "";
  const char* type = quantization.type == QuantType::kInt8 ? "int8" : "int4";
  std::string text = fmt::format("layers {}:", type);
  if (products.kept > 0) text += fmt::format(" {} products with the file's own codes", products.kept);
  if (products.made > 0) text += fmt::format("{} {} made in groups of {}", products.kept > 0 ? "," : "", products.made, quantization.group);
  return text;
}

nlohmann::ordered_json OpenModel::facts() const {
  const char* type = !quantization.on() ? "none" : quantization.type == QuantType::kInt8 ? "int8" : "int4";
  nlohmann::ordered_json facts = {{"dtype", dtype_name(dtype)}, {"quantization", type}};
  if (quantization.on()) facts.update({{"products_kept", products.kept}, {"products_made", products.made}, {"made_group", quantization.group}});
  return facts;
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
