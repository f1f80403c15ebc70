// Makes a ModelDescription from a model's files: finds the family, reads config and tensor names, and checks them. If
// the config ties the head but the file holds a different head, the file's head is used, as in transformers.
#include "magister/model/model_config.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/checkpoint/stored_quantization.h"
#include "magister/model/parameter_table.h"
#include "model/families/family.h"
#include "model/families/outer_model.h"

namespace magister {

std::uint64_t ModelConfig::num_parameters() const {
  std::uint64_t sum = 0;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) {
    for (const LayerParameter& row : layer_parameters(*this, layer)) sum += num_elements(row.shape);
  }
  for (const ModelParameter& row : model_parameters(*this)) sum += num_elements(row.shape);
  return sum;
}

std::uint64_t ModelConfig::parameters_a_token() const {
  std::uint64_t idle = 0;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) {
    if (!is_sparse(layer)) continue;
    for (const LayerParameter& row : layer_parameters(*this, layer)) {
      if (row.expert >= num_experts_per_tok && row.expert < num_experts) idle += num_elements(row.shape);
    }
  }
  return num_parameters() - idle;
}

namespace {

// True if two tensors of one shape hold the same numbers. Reads blocks of 4 MB and stops at the first difference.
bool same_values(const TensorFile& file, const TensorInfo& a, const TensorInfo& b) {
  if (a.shape != b.shape || a.shape.size() != 2) return false;
  const std::int64_t columns = a.shape[1];
  const std::int64_t block = std::max<std::int64_t>(1, (1 << 20) / std::max<std::int64_t>(columns, 1));
  at::Tensor left = at::empty({block, columns}, at::kFloat), right = at::empty({block, columns}, at::kFloat);
  for (std::int64_t row = 0; row < a.shape[0]; row += block) {
    const std::int64_t end = std::min(row + block, a.shape[0]);
    file.read(a.name, row, end, 0, columns, left.narrow(0, 0, end - row));
    file.read(b.name, row, end, 0, columns, right.narrow(0, 0, end - row));
    if (!at::equal(left.narrow(0, 0, end - row), right.narrow(0, 0, end - row))) return false;
  }
  return true;
}

ModelDescription describe_gguf(const std::string& path, const TensorFile& file) {
  GgufConfig source(path, file);
  const Family& family = family_of(source);
  ModelDescription description;
  description.config = read_config(source, family);
  description.names = gguf_tensor_names(description.config, family);
  return description;
}

ModelDescription describe_source(HfConfig& source, const TensorFile* file) {
  ModelDescription description;
  const OuterModel* outer = source.enter_text();
  const Family& family = family_of(source);
  if (outer != nullptr) source.fill(family.hf_text_defaults);
  description.config = read_config(source, family);
  // The classes around any decoder take its hidden states, and multiply them by the head alone.
  const bool scales = description.config.logit_scale != 1.0 || description.config.final_logit_softcapping != 0.0;
  MAGISTER_CHECK(outer == nullptr || !outer->any_text || !scales, ExitCode::kData,
                 "{}: text_config is a {} whose logits are scaled or capped (transformers leaves that out in a {}, and "
                 "programs differ in it); use another model",
                 printable(source.path()), description.config.family, outer->model_type);
  description.names = hf_tensor_names(description.config, family);
  if (outer != nullptr) use_outer_names(description, *outer, file, source.path());
  return description;
}

ModelDescription describe_folder(const std::string& config_path, const TensorFile& file) {
  HfConfig source(config_path);
  if (file.dequantizes()) source.accept_quantization();
  ModelDescription description = describe_source(source, &file);
  if (file.find(description.names.embed_tokens) == nullptr) {
    const char* prefix = family_of(source).hf_optional_prefix;
    TensorNames bare = with_prefix(description.config, description.names, prefix, "");
    if (file.find(bare.embed_tokens) != nullptr) description.names = std::move(bare);
  }
  use_fused_experts(description, file);
  leave_out_later_layers(description, file, family_of(source), config_path);
  for (const TensorNames::Layer& layer : description.names.layers) {
    for (const char* number : {"beta", "eps"}) {  // transformers has no values for them where a file lacks them
      const std::string name = layer.xielu_number(number);
      if (file.find(name) != nullptr) description.names.other_parts.push_back(name);
    }
  }
  const TensorInfo* head = description.outer_type.empty() ? file.find("lm_head.weight") : outer_head(file);
  const TensorInfo* embeddings = file.find(description.names.embed_tokens);
  if (description.config.is_classifier() || !description.config.tie_word_embeddings || head == nullptr ||
      embeddings == nullptr)
    return description;
  if (same_values(file, *embeddings, *head)) {
    description.names.ignored.push_back(head->name);
    return description;
  }
  log_warning("{}: tie_word_embeddings is true, but {} differs from the embeddings; the head of the file is used",
              printable(config_path), head->name);
  description.config.tie_word_embeddings = false;
  description.names.lm_head = head->name;
  return description;
}

}  // namespace

ModelDescription describe_config(const std::string& config_json_path) {
  HfConfig source(config_json_path);
  if (stored_quantization(std::filesystem::path(config_json_path).parent_path().string())) source.accept_quantization();
  return describe_source(source, nullptr);
}

ModelDescription describe_model(const std::string& path, const TensorFile& file) {
  const std::filesystem::path model(path);
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(model, ignored);
  const bool safetensors = model.extension() == ".safetensors" || model.extension() == ".json";
  ModelDescription description;
  if (folder || safetensors) {
    description = describe_folder(((folder ? model : model.parent_path()) / "config.json").string(), file);
  } else {
    description = describe_gguf(path, file);
  }
  leave_out_cache_scales(description, file, path);
  check_tensors(description, file, path);
  return description;
}

}  // namespace magister
