// The rows of an encoder in the parameter table; see parameter_table.h.
#pragma once

#include <vector>

#include "magister/model/parameter_table.h"

namespace magister {

// By BERT's names, without the prefix that its class gives them.
std::vector<LayerParameter> encoder_layer_parameters(const ModelConfig& config);
std::vector<ModelParameter> encoder_model_parameters(const ModelConfig& config);

}  // namespace magister
