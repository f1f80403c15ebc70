// A LoRA adapter in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors, merged into a model's weights as they
// are read. What PEFT can write and is not computed here is refused by name.
// Sources: PEFT's LoraConfig and its guide "PEFT checkpoint format"; Hu et al., "LoRA", arXiv 2106.09685; rsLoRA, arXiv 2312.03732.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// What adapter_config.json says of a saved adapter's numbers.
struct LoraConfig {
  std::string path;  // of the JSON file, for messages
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;  // use_rslora
  bool fan_in_fan_out = false;   // of weights that stand as [in, out] (GPT-2)
  std::string base_model;        // base_model_name_or_path; empty: not said
  // Names that every matching layer must have a part for; empty where a pattern or a choice of layers says which.
  std::vector<std::string> targets;

  double scale() const;  // of B A: alpha / rank, or alpha / sqrt(rank)
};

// adapter_config.json and adapter_model.safetensors of the folder.
std::vector<std::string> lora_paths(const std::string& adapter_folder);

// Throws Error(kInputOutput) where there is no such file, Error(kData) naming the file and the key. Local.
LoraConfig read_lora_config(const std::string& adapter_folder);

// model_sha256 of the model that the adapter was trained on, as its trainer wrote it into the metadata of adapter_model.safetensors;
// empty where it did not (PEFT does not). open_merged has taken the folder.
inline constexpr std::string_view kLoraBaseKey = "magister.base_sha256";
std::string lora_base_sha256(const std::string& adapter_folder);
// Whether a folder's path may be that of the model base_model_name_or_path names: a last name in common, or a name of the Hub's cache.
bool may_be_base(const std::string& base_model, const std::string& model_path);

// PEFT's name of a layer's factor: base_model.model.<layer>.lora_A.weight, [rank, in], or with 'B' [out, rank].
std::string lora_tensor_name(const std::string& layer, char factor);

// weight += scale * B A. Each number is summed over the rank in order with fused multiply-adds, whatever window it stands in. f32, contiguous.
// Local.
void add_lora_product(at::Tensor& weight_NK, const at::Tensor& b_NR, const at::Tensor& a_RK, float scale);

// The file with the adapter merged: read() gives W + scale * B A, summed in f32 over the rank in order and then converted, so that a number is
// the same in any window. Merged tensors have no code_format(); paths() names the adapter's files behind the model's. The factors are
// mapped, too: no memory stays but their names. Throws as read_lora_config, and Error(kData) naming the tensor. Local.
// inputs_first: names of tensors that stand as [in, out], to which the transpose of B A is added; PEFT goes by the layer's class, too.
std::unique_ptr<TensorFile> open_merged(std::unique_ptr<TensorFile> model, const std::string& adapter_folder,
                                        std::set<std::string> inputs_first = {});

}  // namespace magister
