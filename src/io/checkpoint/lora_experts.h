// PEFT's factors of experts. Since version 5 transformers' modules hold a weight of all experts as one parameter, and
// PEFT (target_parameters) gives such a parameter one pair of factors: A [experts * rank, inputs], expert after expert,
// and B [outputs, rank * experts], rank after rank. The module has two such parameters, gate_up_proj and down_proj; the
// factors of the second one wrap those of the first, which are named ...experts.base_layer.lora_A. Files of models hold
// the same weights in several layouts.
// Source: PEFT 0.21, ParamWrapper in tuners/lora/layer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// How a pair of factors changes one tensor of the model's file.
struct LoraChange {
  std::string layer;  // the factors' layer in the adapter
  std::string key;    // PEFT's name of what it changes, for rank_pattern and alpha_pattern
  std::int64_t rank = 0;
  float scale = 0;
  std::int64_t experts = 1;        // of the factors
  std::int64_t expert = 0;         // the one whose weight the tensor is, or the first of a stacked tensor
  std::int64_t rows_a_expert = 0;  // of a tensor that holds all experts, as rows of one matrix; 0: it holds one
  std::int64_t first_output = 0;   // B's row for the tensor's first output (up_proj: after those of gate_proj)
  bool inputs_first = false;       // the tensor's rows are inputs
};

// True for ...experts and ...experts.base_layer.
bool names_experts(const std::string& layer);
// "model.layers.0.mlp.experts" for "model.layers.0.mlp.experts.base_layer".
std::string experts_of(const std::string& layer);

struct ExpertTensor {
  std::string name;
  LoraChange change;
};
// The tensors of the model that factors of these shapes ([experts * rank, inputs], [outputs, rank * experts]) change,
// without rank and scale. Empty: the model has no such experts, or of other shapes.
std::vector<ExpertTensor> tensors_of_experts(const TensorFile& model, const std::string& layer, const TensorInfo& a,
                                             const TensorInfo& b);

// The names that a tensor's weight may have among the parameters of transformers' modules:
// "model.layers.0.mlp.experts.gate_up_proj" for "model.layers.0.block_sparse_moe.experts.7.w1.weight".
std::vector<std::string> module_parameters(const std::string& tensor);
// The name with the other block of experts: mlp. or block_sparse_moe.; empty: it has neither.
std::string with_other_block(const std::string& name);

}  // namespace magister
