// Weights that a training starts from where there is no model yet, as a tensor file: what a config asks for, drawn as transformers draws it
// (_init_weights) - matrices and embeddings from a normal distribution of the config's initializer_range (GPT-2's products onto the residual
// stream from a narrower one), norms one (zero where the family adds one to them), biases zero (but the router's, of gpt-oss). A number is a function of seed, name and place: any window of any tensor, on any rank, has the same.
#pragma once

#include <cstdint>
#include <memory>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"

namespace magister {

// Of describe_config(). f32; nothing is kept in memory. It has no paths(). Local.
std::unique_ptr<TensorFile> random_weights(const ModelDescription& description, std::uint64_t seed);

}  // namespace magister
