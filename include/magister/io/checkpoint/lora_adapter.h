// A LoRA adapter in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors. It is merged into a
// model's weights while they are read. PEFT features that are not supported here are refused by name.
// Sources: PEFT's LoraConfig and its guide "PEFT checkpoint format"; Hu et al., "LoRA", arXiv 2106.09685; rsLoRA, arXiv
// 2312.03732.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// The values of adapter_config.json that decide the merged weights.
struct LoraConfig {
  std::string path;  // of the JSON file, for messages
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;  // use_rslora
  bool fan_in_fan_out = false;   // weights are stored as [in, out] (GPT-2)
  std::string base_model;        // base_model_name_or_path; empty: not given
  // Names that every matching layer must have a factor for; empty where a pattern or a choice of layers replaces such
  // names.
  std::vector<std::string> targets;
  std::vector<std::string> target_parameters;  // the same for parameters of modules: "mlp.experts.down_proj"
  // rank_pattern and alpha_pattern: {regular expression over names, value}, in the file's order; the first one counts.
  std::vector<std::pair<std::string, std::int64_t>> ranks{};
  std::vector<std::pair<std::string, double>> alphas{};

  double scale() const;  // factor of B A: alpha / rank, or alpha / sqrt(rank)
  // The same for the layer or parameter of this name ("model.layers.0.self_attn.q_proj"), by the patterns.
  std::int64_t rank_of(const std::string& name) const;
  double scale_of(const std::string& name) const;
};

// Paths of adapter_config.json and adapter_model.safetensors in the folder.
std::vector<std::string> lora_paths(const std::string& adapter_folder);

// Throws Error(kInputOutput) if the file does not exist, Error(kData) naming the file and the key. Local.
LoraConfig read_lora_config(const std::string& adapter_folder);

// model_sha256 of the model that the adapter was trained on, as its trainer wrote it into the metadata of
// adapter_model.safetensors; empty where it did not (PEFT does not). Call it only after open_merged has accepted the
// folder.
inline constexpr std::string_view kLoraBaseKey = "magister.base_sha256";
std::string lora_base_sha256(const std::string& adapter_folder);
// True if the model at model_path may be the one that base_model_name_or_path names: both are the same path, or a part
// of the path equals the last name or the name of the Hub's cache folder.
bool may_be_base(const std::string& base_model, const std::string& model_path);

// PEFT's name of one factor of a layer: base_model.model.<layer>.lora_A.weight, [rank, in], or with 'B' [out, rank].
std::string lora_tensor_name(const std::string& layer, char factor);

// weight += scale * B A. Each number is summed over the rank in order with fused multiply-adds, so that it is the same
// in every window. f32, contiguous. Local.
void add_lora_product(at::Tensor& weight_NK, const at::Tensor& b_NR, const at::Tensor& a_RK, float scale);

// The file with the adapter merged. read() gives W + scale * B A, summed in f32 over the rank in order and then
// converted, so that a number is the same in every window. Merged tensors have no code_format(). paths() lists the
// model's files, then the adapter's. The factors are mapped, too: only their names stay in memory. Throws as
// read_lora_config, and Error(kData) naming the tensor. Local.
// inputs_first: names of tensors stored as [in, out], to which the transpose of B A is added; PEFT decides this by the
// layer's class.
std::unique_ptr<TensorFile> open_merged(std::unique_ptr<TensorFile> model, const std::string& adapter_folder,
                                        std::set<std::string> inputs_first = {});

}  // namespace magister
