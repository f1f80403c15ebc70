// Random initial weights for training from a config alone, as a tensor file. They are drawn as transformers draws them
// (_init_weights): matrices and embeddings from a normal distribution with the config's initializer_range as standard
// deviation (smaller for GPT-2's products onto the residual stream), norms 1 (0 in families that add one to them),
// biases 0 (but the sinks and the router bias of gpt-oss are drawn). Each number is a function of seed, tensor name and
// position, so every window of a tensor has the same numbers on every rank.
#pragma once

#include <cstdint>
#include <memory>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"

namespace magister {

// description: from describe_config(). f32; the numbers are computed when they are read. The file has no paths().
// Local.
std::unique_ptr<TensorFile> random_weights(const ModelDescription& description, std::uint64_t seed);

}  // namespace magister
