// Names of a model's tensors in Hugging Face and GGUF files, and the check of a file against the parameter table.
#include <charconv>
#include <cstring>
#include <set>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/checkpoint/cache_scales.h"
#include "magister/model/parameter_table.h"
#include "model/families/family.h"

namespace magister {
namespace {

using Spelling = const char* LayerParameter::*;

// Weights of keys and values that a layer does not use if it reads those of another.
constexpr const char* kOfSharedKeys[] = {"self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                         "self_attn.k_proj.bias",   "self_attn.v_proj.bias",
                                         "self_attn.k_norm.weight", "self_attn.v_norm.weight"};

// Replaces "{}" by the number.
std::string numbered(std::string name, std::int64_t number) {
  const std::size_t place = name.find("{}");
  return place == std::string::npos ? name : name.replace(place, 2, std::to_string(number));
}

TensorNames::Layer layer_names(const std::vector<LayerParameter>& table, const std::string& prefix, Spelling spelling) {
  TensorNames::Layer layer;
  for (const LayerParameter& row : table) {
    if (row.expert >= static_cast<std::int64_t>(layer.experts.size()))
      layer.experts.resize(static_cast<std::size_t>(row.expert) + 1);
    row.name_in(layer) = numbered(prefix + row.*spelling, row.expert);
  }
  return layer;
}

}  // namespace

namespace {

// The family's name for a tensor, else our own. A family may swap two names.
const char* spelled(std::span<const std::pair<const char*, const char*>> renames, const char* ours) {
  for (const auto& [common, theirs] : renames) {
    if (std::strcmp(ours, common) == 0) return theirs;
  }
  return ours;
}

}  // namespace

TensorNames hf_tensor_names(const ModelConfig& config) { return hf_tensor_names(config, Family{}); }

TensorNames hf_tensor_names(const ModelConfig& config, const Family& family) {
  TensorNames names;
  const auto renames = family.hf_renames_of != nullptr ? family.hf_renames_of(config) : family.hf_renames;
  for (const ModelParameter& row : model_parameters(config))
    row.name_in(names) = numbered(spelled(renames, row.hf), static_cast<std::int64_t>(row.number));
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    std::vector<LayerParameter> table = layer_parameters(config, i);
    for (LayerParameter& row : table) row.hf = spelled(renames, row.hf);
    const std::string prefix = fmt::format("{}{}.", family.hf_layers, i);
    names.layers.push_back(layer_names(table, prefix, &LayerParameter::hf));
    names.ignored.push_back(prefix + "self_attn.rotary_emb.inv_freq");  // old files have this buffer
    for (const char* buffer : family.hf_ignored) names.ignored.push_back(prefix + buffer);
    if (config.has_own_kv(i)) continue;
    for (const char* unread : kOfSharedKeys) names.ignored.push_back(prefix + unread);  // published files have them
  }
  names.ignored.insert(names.ignored.end(), family.hf_unread.begin(), family.hf_unread.end());
  // Older files of encoders hold the positions 0, 1, 2 ... next to the word embeddings.
  if (config.encoder)
    names.ignored.push_back(names.embed_tokens.substr(0, names.embed_tokens.rfind("word_")) + "position_ids");
  names.interleaved_rope_rows = config.latent ? config.latent->rope_pairs : family.hf_interleaved_rope_rows;
  names.transposed_products = family.hf_transposed_products;
  return names;
}

TensorNames with_prefix(const ModelConfig& config, TensorNames names, const std::string& prefix,
                        const std::string& other) {
  const auto change = [&](std::string& name) {
    if (name.starts_with(prefix)) name.replace(0, prefix.size(), other);
  };
  for (const ModelParameter& row : model_parameters(config)) change(row.name_in(names));
  for (std::size_t i = 0; i < names.layers.size(); ++i) {
    for (const LayerParameter& row : layer_parameters(config, static_cast<std::int64_t>(i))) {
      change(row.name_in(names.layers[i]));
    }
  }
  for (std::string& name : names.ignored) change(name);
  return names;
}

TensorNames gguf_tensor_names(const ModelConfig& config, const Family& family) {
  TensorNames names;
  for (const ModelParameter& row : model_parameters(config)) row.name_in(names) = row.gguf;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    std::vector<LayerParameter> table = layer_parameters(config, i);
    for (LayerParameter& row : table) row.gguf = spelled(family.gguf_renames, row.gguf);
    names.layers.push_back(layer_names(table, fmt::format("blk.{}.", i), &LayerParameter::gguf));
  }
  names.ignored = {"rope_freqs.weight"};  // GgufConfig::rope() reads it
  if (config.rope.kind == RopeConfig::Kind::kLongRope)
    names.ignored.insert(names.ignored.end(), {"rope_factors_short.weight", "rope_factors_long.weight"});
  names.interleaved_rope_rows = family.gguf_interleaved_rope_rows;
  return names;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, const TensorNames& names) {
  std::vector<ExpectedTensor> all;
  for (const ModelParameter& row : model_parameters(config)) {
    if (const std::string& name = row.name_in(names); !name.empty()) all.push_back({name, row.shape});
  }
  for (std::size_t i = 0; i < names.layers.size(); ++i) {
    for (const LayerParameter& row : layer_parameters(config, static_cast<std::int64_t>(i))) {
      if (row.first_row != 0 || row.first_column != 0) continue;
      all.push_back({row.name_in(names.layers[i]), row.shape_in(names)});
    }
  }
  return all;
}

void leave_out_cache_scales(ModelDescription& description, const TensorFile& file, const std::string& path) {
  std::set<std::string> used;
  for (const ExpectedTensor& expected : expected_tensors(description.config, description.names))
    used.insert(expected.name);
  std::vector<std::string> scales;
  for (const TensorInfo& info : file.tensors()) {
    if (is_cache_scale(info) && !used.contains(info.name)) scales.push_back(info.name);
  }
  if (scales.empty()) return;
  log_info("{}: {}", printable(path), describe_cache_scales(scales.size(), scales.front()));
  description.names.ignored.insert(description.names.ignored.end(), scales.begin(), scales.end());
}

namespace {

// True for a part of the name such as "mtp", "mtp_block" or "mtp_layers", which transformers' classes do not read.
bool names_prediction(std::string_view name) {
  for (std::size_t begin = 0, dot = 0; dot != std::string_view::npos; begin = dot + 1) {
    dot = name.find('.', begin);
    const std::string_view part = name.substr(begin, dot == std::string_view::npos ? dot : dot - begin);
    if (part == "mtp" || part.starts_with("mtp_")) return true;
  }
  return false;
}

}  // namespace

void leave_out_later_layers(ModelDescription& description, const TensorFile& file, const Family& family,
                            const std::string& path) {
  std::vector<std::string>& left = description.names.other_parts;
  const std::size_t before = left.size();
  const std::string_view layers = family.hf_layers;
  for (const TensorInfo& info : file.tensors()) {
    std::int64_t number = -1;
    const bool is_layer = *family.hf_later_layers != '\0' && info.name.starts_with(layers);
    if (is_layer) std::from_chars(info.name.data() + layers.size(), info.name.data() + info.name.size(), number);
    if (number >= description.config.num_hidden_layers || names_prediction(info.name)) left.push_back(info.name);
  }
  const auto added = static_cast<std::ptrdiff_t>(before);
  description.names.ignored.insert(description.names.ignored.end(), left.begin() + added, left.end());
  if (left.size() == before) return;
  log_info("{}: {} tensors that predict several tokens at once are not read ({})", printable(path),
           left.size() - before, left[before]);
}

void check_tensors(const ModelDescription& description, const TensorFile& file, const std::string& path) {
  static const std::set<StorageType> kNoWeights = {StorageType::kI8,     StorageType::kI16, StorageType::kI32,
                                                   StorageType::kI64,    StorageType::kU8,  StorageType::kBool,
                                                   StorageType::kF8_E4M3};
  std::set<std::string> known(description.names.ignored.begin(), description.names.ignored.end());
  for (const ExpectedTensor& expected : expected_tensors(description.config, description.names)) {
    known.insert(expected.name);
    const TensorInfo* info = file.find(expected.name);
    MAGISTER_CHECK(info != nullptr, ExitCode::kData,
                   "{}: tensor {} is missing (the config asks for it, [{}]); fetch the model again", printable(path),
                   expected.name, fmt::join(expected.shape, ", "));
    MAGISTER_CHECK(
        info->shape == expected.shape, ExitCode::kData,
        "{}: tensor {} is [{}], the config asks for [{}] (they belong to different models); fetch the model again",
        printable(path), expected.name, fmt::join(info->shape, ", "), fmt::join(expected.shape, ", "));
    MAGISTER_CHECK(
        !kNoWeights.contains(info->type), ExitCode::kData,
        "{}: tensor {} is stored as {} (a weight is a real number; quantised checkpoints of this kind are not "
        "supported); use the unquantised model",
        printable(path), expected.name, to_string(info->type));
  }
  for (const TensorInfo& info : file.tensors()) {
    MAGISTER_CHECK(known.contains(info.name), ExitCode::kData,
                   "{}: tensor {} [{}] is not used in a {} model (results without it would be wrong); use another "
                   "model",
                   printable(path), printable(info.name), fmt::join(info.shape, ", "), description.config.family);
  }
}

}  // namespace magister
