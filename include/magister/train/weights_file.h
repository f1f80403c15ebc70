// The current weights of a training in the form of a model's file: code that reads a model from a file (the generator)
// reads them from memory, with an adapter merged as io/checkpoint/lora_adapter.h merges one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "magister/device/launch.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/train/lora.h"
#include "magister/train/parameters.h"

namespace magister {

// Tensors and names are those of the model's file, f32. Everything is kept by reference; the weights must not change
// while they are read. gpu: the default stream of the device that weights and adapter are on; the file then is also
// DeviceTensors (io/checkpoint/device_tensors.h), and read() has the same bits as for weights on the host. Local.
std::unique_ptr<TensorFile> weights_as_file(const ParameterLayout& layout, const at::Tensor& flat_weights,
                                            const std::optional<LoraWeights>& adapter = std::nullopt,
                                            const std::optional<gpu::Queue>& gpu = std::nullopt);

}  // namespace magister
