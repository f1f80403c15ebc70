// Layouts of experts in files: a tensor per expert (gate_proj, up_proj, down_proj, or w1, w3, w2), one tensor for all
// ([experts, outputs, inputs], or gpt-oss's [experts, inputs, outputs]), and Granite's input_linear and output_linear.
#include "io/checkpoint/lora_experts.h"

#include <array>
#include <string_view>

namespace magister {
namespace {

constexpr std::string_view kExperts = ".experts", kInner = ".base_layer";
constexpr std::string_view kMlp = ".mlp.", kSparse = ".block_sparse_moe.";
// gate, up and down of one expert in files.
constexpr std::array<std::array<std::string_view, 3>, 2> kSpellings = {
    {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}};

std::string without_end(const std::string& name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

// The spellings of a module's name in files: with and without the prefix, and with the other block of experts.
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> all = {name};
  if (std::string other = with_other_block(name); !other.empty()) all.push_back(std::move(other));
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back("model." + all[i]);
    if (all[i].starts_with("model.")) all.push_back(all[i].substr(6));
  }
  return all;
}

struct Sizes {
  std::int64_t experts = 0, inputs = 0, outputs = 0;  // of the factors' parameter
};

// Experts and shapes of gate_up and down as these files have them; both are tried.
using Found = std::vector<ExpertTensor>;

// all: one tensor of all experts.
Found of_one_tensor(const TensorFile& model, const std::string& gate_up, const std::string& down, const TensorInfo& a,
                    const TensorInfo& b) {
  const TensorInfo *const wide = model.find(gate_up), *const narrow = model.find(down);
  if (wide == nullptr || narrow == nullptr || wide->shape.size() != 3 || narrow->shape.size() != 3) return {};
  const std::int64_t X = wide->shape[0];
  const bool inputs_first = wide->shape[2] == 2 * narrow->shape[1] && wide->shape[1] == narrow->shape[2];
  const bool outputs_first = wide->shape[1] == 2 * narrow->shape[2] && wide->shape[2] == narrow->shape[1];
  if (!inputs_first && !outputs_first) return {};
  for (const TensorInfo* info : {wide, narrow}) {
    const std::int64_t outputs = info->shape[inputs_first ? 2 : 1], inputs = info->shape[inputs_first ? 1 : 2];
    if (a.shape[1] != inputs || b.shape[0] != outputs) continue;
    LoraChange change;
    change.key = info == wide ? "gate_up_proj" : "down_proj";
    change.experts = X;
    change.rows_a_expert = info->shape[1];
    change.inputs_first = inputs_first;
    return {{info->name, change}};
  }
  return {};
}

Found of_many_tensors(const TensorFile& model, const std::string& experts, const TensorInfo& a, const TensorInfo& b) {
  for (const auto& [gate, up, down] : kSpellings) {
    const auto name = [&](std::int64_t expert, std::string_view of) {
      return experts + "." + std::to_string(expert) + "." + std::string(of) + ".weight";
    };
    const TensorInfo* const first = model.find(name(0, gate));
    if (first == nullptr || first->shape.size() != 2) continue;
    std::int64_t X = 1;
    while (model.find(name(X, gate)) != nullptr) ++X;
    const std::int64_t F = first->shape[0], D = first->shape[1];
    const bool wide = a.shape[1] == D && b.shape[0] == 2 * F, narrow = a.shape[1] == F && b.shape[0] == D;
    Found found;
    for (std::int64_t expert = 0; expert < X && (wide || narrow); ++expert) {
      LoraChange change;
      change.key = wide ? "gate_up_proj" : "down_proj";
      change.experts = X;
      change.expert = expert;
      found.push_back({name(expert, wide ? gate : down), change});
      change.first_output = F;
      if (wide) found.push_back({name(expert, up), change});
    }
    return found;
  }
  return {};
}

}  // namespace

bool names_experts(const std::string& layer) {
  return layer.ends_with(kExperts) || layer.ends_with(std::string(kExperts) + std::string(kInner));
}

std::string experts_of(const std::string& layer) { return without_end(layer, kInner); }

std::string with_other_block(const std::string& name) {
  for (const auto& [from, to] : {std::pair(kMlp, kSparse), std::pair(kSparse, kMlp)}) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) return std::string(name).replace(at, from.size(), to);
  }
  return "";
}

std::vector<ExpertTensor> tensors_of_experts(const TensorFile& model, const std::string& layer, const TensorInfo& a,
                                             const TensorInfo& b) {
  const std::string experts = experts_of(layer);
  for (const std::string& spelled : spellings(experts)) {
    Found found = of_many_tensors(model, spelled, a, b);
    if (found.empty()) found = of_one_tensor(model, spelled + ".gate_up_proj", spelled + ".down_proj", a, b);
    const std::string block = without_end(spelled, kExperts);
    if (found.empty())
      found = of_one_tensor(model, block + ".input_linear.weight", block + ".output_linear.weight", a, b);
    for (ExpertTensor& tensor : found) {
      tensor.change.layer = layer;
      tensor.change.key = experts + "." + tensor.change.key;
    }
    if (!found.empty()) return found;
  }
  return {};
}

std::vector<std::string> module_parameters(const std::string& tensor) {
  std::string name = tensor;
  const std::size_t experts = name.find(".experts.");
  if (experts != std::string::npos && name.ends_with(".weight")) {
    const std::string plain = without_end(name, ".weight");
    const std::string last = plain.substr(plain.rfind('.') + 1), container = name.substr(0, experts + kExperts.size());
    for (const auto& [gate, up, down] : kSpellings) {
      if (last == gate || last == up) name = container + ".gate_up_proj";
      if (last == down) name = container + ".down_proj";
    }
  }
  for (const auto& [file, module] :
       {std::pair<std::string_view, std::string_view>(".input_linear.weight", ".experts.gate_up_proj"),
        {".output_linear.weight", ".experts.down_proj"},
        {".router.layer.weight", ".router.weight"}}) {
    if (name.ends_with(file)) name = without_end(name, file) + std::string(module);
  }
  std::vector<std::string> all = {name};
  if (std::string other = with_other_block(name); !other.empty()) all.push_back(std::move(other));
  return all;
}

}  // namespace magister
