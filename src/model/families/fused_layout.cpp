// Folders whose experts are stored as transformers' modules hold them since version 5, which
// save_pretrained(save_original_format=False) and some trainers write: gate and up of all experts as one tensor
// [experts, 2 outputs, inputs], rows of gate first, and down as [experts, outputs, inputs]. A few other weights then
// have their module's name, too.
// Source: transformers 5.24, conversion_mapping.py and the modules of the families here.
#include "magister/core/error.h"
#include "magister/model/parameter_table.h"
#include "model/families/family.h"

namespace magister {
namespace {

constexpr std::string_view kBlocks[] = {"mlp.", "block_sparse_moe."};
// A weight's name in published files, and the module's.
constexpr std::pair<std::string_view, std::string_view> kModuleNames[] = {
    {"block_sparse_moe.", "mlp."},
    {"mlp.moe_statics.", "mlp.gate.moe_statics."},
    {"router.layer.", "router."},
    {"mlp.router.gate.", "mlp.gate."},
    {"mlp.expert_bias", "mlp.e_score_correction_bias"},
    {"mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"},
    {"mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"},
    {"moe.router.expert_bias", "mlp.gate.e_score_correction_bias"},
    {"mlp.shared_mlp.", "mlp.shared_experts."},
    {"mlp.shared_expert.", "mlp.shared_experts."},
    {"attention_sink_bias", "sinks"},
    {"softmax_offset", "sinks"},
    {"post_attn_norm.", "post_self_attn_layernorm."},
    {"post_ffn_norm.", "post_mlp_layernorm."},
    {"post_mlp_layernorm.", "mlp.post_mlp_layernorm."}};

// The layer's prefix with its block of experts: "model.layers.3.mlp."; empty if the file does not have such experts.
std::string block_of(const TensorNames::Layer& layer, const TensorFile& file) {
  for (const std::string_view published : kBlocks) {
    const std::size_t at = layer.router.find(published);
    if (at == std::string::npos) continue;
    for (const std::string_view block : kBlocks) {
      const std::string prefix = layer.router.substr(0, at) + std::string(block);
      if (file.find(prefix + "experts.gate_up_proj") != nullptr) return prefix;
    }
  }
  return "";
}

void use_module_name(std::string& name, const TensorFile& file) {
  if (name.empty() || file.find(name) != nullptr) return;
  for (const auto& [published, module] : kModuleNames) {
    const std::size_t at = name.find(published);
    if (at == std::string::npos) continue;
    std::string other = name;
    other.replace(at, published.size(), module);
    if (file.find(other) == nullptr) continue;
    name = std::move(other);
    return;
  }
}

}  // namespace

void use_fused_experts(ModelDescription& description, const TensorFile& file) {
  ModelConfig& config = description.config;
  if (config.num_experts == 0 || config.fused_experts) return;
  bool any = false;
  for (std::size_t i = 0; i < description.names.layers.size(); ++i) {
    TensorNames::Layer& layer = description.names.layers[i];
    if (!config.is_sparse(static_cast<std::int64_t>(i)) || layer.experts.empty()) continue;
    const std::string block = block_of(layer, file);
    if (block.empty() || file.find(layer.experts.front().gate_proj) != nullptr) continue;
    any = true;
    for (std::size_t expert = 0; expert < static_cast<std::size_t>(config.num_experts); ++expert) {
      layer.experts[expert].gate_proj = layer.experts[expert].up_proj = block + "experts.gate_up_proj";
      layer.experts[expert].down_proj = block + "experts.down_proj";
    }
    for (const LayerParameter& row : layer_parameters(config, static_cast<std::int64_t>(i))) {
      if (row.expert < 0 || row.expert >= config.num_experts) use_module_name(row.name_in(layer), file);
    }
  }
  // Layers without experts may have names of modules, too.
  for (std::size_t i = 0; any && i < description.names.layers.size(); ++i) {
    if (config.is_sparse(static_cast<std::int64_t>(i))) continue;
    for (const LayerParameter& row : layer_parameters(config, static_cast<std::int64_t>(i)))
      use_module_name(row.name_in(description.names.layers[i]), file);
  }
  if (any) config.stacked_experts = config.fused_gate_up_proj = true;
}

}  // namespace magister
