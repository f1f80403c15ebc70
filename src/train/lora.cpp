// Which layers have factors, and what they begin with; see lora.h.
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

// transformers' name of the module that holds this tensor: files of a bare trunk leave `model.` out.
std::string module_of(const std::string& tensor) {
  const std::string module = tensor.substr(0, tensor.size() - kWeight.size());
  return module.starts_with("layers.") ? "model." + module : module;
}

// As PEFT has it: the module's whole name, or its end from a dot on.
bool matches(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

std::string last_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// Positions in the layer's parameters that are linear layers, each once though the table may name parts of it.
std::vector<std::size_t> linear_layers(const ParameterLayout& model, const ParameterLayout::Layer& layer) {
  std::set<std::size_t> found;
  for (std::size_t row = 0; row < model.table().size(); ++row) {
    if (model.table()[row].product != FusedProduct::kNone) found.insert(layer.slices[row].parameter);
  }
  return {found.begin(), found.end()};
}

}  // namespace

LoraLayout::LoraLayout(const ParameterLayout& model, const LoraOptions& options)
    : config_(options.config), seed_(options.seed) {
  std::vector<std::string> wanted = config_.targets;
  std::set<std::string> names, matched, adapted;
  for (const ParameterLayout::Layer& layer : model.layers()) {
    for (const std::size_t position : linear_layers(model, layer))
      names.insert(last_name(module_of(model.all()[layer.parameters[position]].name)));
  }
  if (wanted.empty())
    wanted = names.contains("qkv_proj") ? std::vector<std::string>{"qkv_proj"}
                                        : std::vector<std::string>{"q_proj", "v_proj"};
  for (const ParameterLayout::Layer& layer : model.layers()) {
    std::vector<Pair>& pairs = layers_.emplace_back();
    for (const std::size_t position : linear_layers(model, layer)) {
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
      const std::int64_t out = weight.shape[0], in = weight.shape[1];
      const std::size_t a = add(lora_tensor_name(module, 'A'), {config_.rank, in});
      pairs.push_back({position, a, add(lora_tensor_name(module, 'B'), {out, config_.rank})});
    }
  }
  for (const std::string& target : wanted) {
    MAGISTER_CHECK(matched.contains(target), ExitCode::kConfig,
                   "train.adapter.targets: \"{}\" is no linear layer of the model's layers (it would get no adapter); "
                   "choose among {}, or all-linear",
                   printable(target, 80), fmt::join(names, ", "));
  }
  // A choice of single layers keeps its words; PEFT matches them alike.
  const bool all = std::find(wanted.begin(), wanted.end(), kAllLinear) != wanted.end();
  config_.targets = all ? std::vector<std::string>(adapted.begin(), adapted.end()) : wanted;
}

at::Tensor LoraLayout::first_values() const {
  at::Tensor flat = at::zeros({flat_size()}, at::kFloat);
  for (const std::vector<Pair>& pairs : layers_) {
    for (const Pair& pair : pairs) {
      at::Tensor a_RK = view(flat, pair.a);
      const double bound = 1.0 / std::sqrt(static_cast<double>(a_RK.size(1)));
      const std::uint64_t key =
          splitmix64(splitmix64(seed_ ^ 0x4c6f5241) + pair.a);  // "LoRA": another stream than the epochs'
      float* const values = a_RK.data_ptr<float>();
      for (std::int64_t i = 0; i < a_RK.numel(); ++i)
        values[i] = static_cast<float>((2 * uniform_number(key + static_cast<std::uint64_t>(i)) - 1) * bound);
    }
  }
  return flat;
}

}  // namespace magister
