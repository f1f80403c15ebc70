// Chooses the layers that have factors, and draws the first values; see lora.h.
#include "magister/train/lora.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"

namespace magister {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr const char* kAllLinear = "all-linear";

// transformers' name of the module that holds this tensor; files of a bare trunk omit `model.` or GPT-2's
// `transformer.`.
std::string module_of(const std::string& tensor) {
  const std::string module = tensor.substr(0, tensor.size() - kWeight.size());
  return module.starts_with("layers.") ? "model." + module
         : module.starts_with("h.")    ? "transformer." + module
                                       : module;
}

// As in PEFT: the target is the module's whole name, or its end after a dot.
bool matches(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

std::string last_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// Positions of the linear layers among the layer's parameters, each once although the table may name parts of it. Those
// of an indexer would have no gradient.
std::vector<std::size_t> linear_layers(const ParameterLayout::Layer& layer) {
  std::set<std::size_t> found;
  for (std::size_t row = 0; row < layer.table.size(); ++row) {
    const LayerParameter& of_row = layer.table[row];
    const bool is_step =
        of_row.name == &TensorNames::Layer::delta_strength || of_row.name == &TensorNames::Layer::delta_decay;
    if ((of_row.product != FusedProduct::kNone || is_step) && of_row.expert < 0 && !of_row.is_of_indexer())
      found.insert(layer.holder[row]);
  }
  return {found.begin(), found.end()};
}

// Reports whether the target covers a mixture of experts: all layers at once, experts or their router, or a name that
// experts share with other layers' MLPs. PEFT treats each of them as transformers 4 stored it, one linear layer per
// expert.
bool names_experts(const ParameterLayout& model, const std::string& target) {
  if (target == kAllLinear) return model.description().config.num_experts > 0;
  for (const ParameterLayout::Layer& layer : model.layers()) {
    for (std::size_t row = 0; row < layer.table.size(); ++row) {
      if (layer.table[row].expert < 0 && layer.table[row].name != &TensorNames::Layer::router) continue;
      const std::string& tensor = model.all()[layer.parameters[layer.holder[row]]].name;
      if (fmt::format(".{}.", tensor).find(fmt::format(".{}.", last_name(target))) != std::string::npos) return true;
    }
  }
  return false;
}

// Last parts of the names of layers that may have an adapter.
std::set<std::string> names_of_linear_layers(const ParameterLayout& model) {
  std::set<std::string> names;
  for (const ParameterLayout::Layer& layer : model.layers()) {
    for (const std::size_t position : linear_layers(layer))
      names.insert(last_name(module_of(model.all()[layer.parameters[position]].name)));
  }
  std::erase_if(names, [&](const std::string& name) { return names_experts(model, name); });
  return names;
}

// PEFT's defaults.
std::vector<std::string> default_targets(const std::set<std::string>& names) {
  for (const char* const fused : {"qkv_proj", "c_attn", "query_key_value"}) {
    if (names.contains(fused)) return {fused};
  }
  return {"q_proj", "v_proj"};
}

}  // namespace

LoraLayout::LoraLayout(const ParameterLayout& model, const LoraOptions& options)
    : config_(options.config), seed_(options.seed), inputs_first_(model.description().names.transposed_products) {
  config_.fan_in_fan_out = inputs_first_;
  const ModelDescription& description = model.description();
  MAGISTER_CHECK(description.outer_type.empty() || description.names.norm.starts_with("model.language_model."),
                 ExitCode::kConfig,
                 "train.adapter: the file names the last norm {} (transformers calls it model.language_model.norm, and "
                 "PEFT would not find the adapter's layers); save the model once with transformers' newest names, or "
                 "train all weights",
                 description.names.norm);
  std::vector<std::string> wanted = config_.targets;
  const std::set<std::string> names = names_of_linear_layers(model);
  std::set<std::string> matched, adapted;
  if (wanted.empty()) wanted = default_targets(names);
  for (const ParameterLayout::Layer& layer : model.layers()) {
    std::vector<Pair>& pairs = layers_.emplace_back();
    for (const std::size_t position : linear_layers(layer)) {
      const TrainParameter& weight = model.all()[layer.parameters[position]];
      const std::string module = module_of(weight.name);
      bool is_target = false;
      for (const std::string& target : wanted) {
        if (target != kAllLinear && !matches(module, target)) continue;
        matched.insert(target);
        is_target = true;
      }
      if (!is_target) continue;
      adapted.insert(last_name(module));
      const std::int64_t out = weight.shape[inputs_first_ ? 1 : 0], in = weight.shape[inputs_first_ ? 0 : 1];
      const std::int64_t side = std::min(out, in);
      smallest_side_ = smallest_side_ == 0 ? side : std::min(smallest_side_, side);
      const std::size_t a = add(lora_tensor_name(module, 'A'), {config_.rank, in});
      pairs.push_back({position, a, add(lora_tensor_name(module, 'B'), {out, config_.rank})});
    }
  }
  for (const std::string& target : wanted) {
    MAGISTER_CHECK(
        !names_experts(model, target), ExitCode::kConfig,
        "train.adapter.targets: \"{}\" names experts or their router (they get no adapter: transformers holds "
        "all experts of a layer as one tensor, and adapters are for linear layers); choose among {}",
        printable(target, 80), fmt::join(names, ", "));
    MAGISTER_CHECK(matched.contains(target), ExitCode::kConfig,
                   "train.adapter.targets: \"{}\" is no linear layer of the model's layers (it would get no adapter); "
                   "choose among {}, or all-linear",
                   printable(target, 80), fmt::join(names, ", "));
  }
  // A choice of single layers keeps its spelling, which PEFT matches in the same way.
  const bool all = std::find(wanted.begin(), wanted.end(), kAllLinear) != wanted.end();
  config_.targets = all ? std::vector<std::string>(adapted.begin(), adapted.end()) : wanted;
}

at::Tensor LoraLayout::first_values() const {
  at::Tensor flat = at::zeros({flat_size()}, at::kFloat);
  for (const std::vector<Pair>& pairs : layers_) {
    for (const Pair& pair : pairs) {
      at::Tensor a_RK = view(flat, pair.a);
      const double bound = 1.0 / std::sqrt(static_cast<double>(a_RK.size(1)));
      // "LoRA": another stream than the epochs'.
      const std::uint64_t key = splitmix64(splitmix64(seed_ ^ 0x4c6f5241) + pair.a);
      float* const values = a_RK.data_ptr<float>();
      for (std::int64_t i = 0; i < a_RK.numel(); ++i)
        values[i] = static_cast<float>((2 * uniform_number(key + static_cast<std::uint64_t>(i)) - 1) * bound);
    }
  }
  return flat;
}

}  // namespace magister
