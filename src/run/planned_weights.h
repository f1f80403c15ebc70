// Lines of `plan --config-only` about the weights of a model, from its config.json alone. Local, no device.
#pragma once

#include <string>
#include <vector>

#include "magister/experiment/config.h"
#include "magister/model/cpu/quantize.h"
#include "magister/model/model_config.h"

namespace magister {

// True if GPUs hold the experts of this model's checkpoint as its MXFP4 codes.
bool keeps_mxfp4(const ModelSection& section);

// The size of a checkpoint whose config.json says that its weights are codes, and what a run holds of them: in
// model.dtype, unless GPUs keep the codes. Empty for other checkpoints.
std::string stored_line(const ModelSection& named, const ModelConfig& config, bool on_gpus);

// The number of experts, their weights, and the parameters that a token takes. Empty for a model without experts.
std::string experts_line(const ModelConfig& config);

// Weights of a device in every format, for groups of these sizes.
std::string formats_table(const ModelConfig& config, const std::vector<int>& sizes, bool on_gpus);

// A note for shards whose columns begin inside a group: this program computes them, other programs refuse them.
std::string alignment_note(const ModelConfig& config, const QuantScheme& scheme, int tp_size);

}  // namespace magister
