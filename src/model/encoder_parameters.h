// The rows of encoders in the parameter table; see parameter_table.h.
#pragma once

#include <vector>

#include "magister/model/parameter_table.h"

namespace magister {

// Names are BERT's, without the prefix of its class.
std::vector<LayerParameter> encoder_layer_parameters(const ModelConfig& config);
std::vector<ModelParameter> encoder_model_parameters(const ModelConfig& config);

}  // namespace magister
