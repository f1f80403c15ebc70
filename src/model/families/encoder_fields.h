// Fields that the families of encoders read in the same way.
#pragma once

#include "model/families/needed_value.h"

namespace magister {

// Sets what all encoders have: biases everywhere, layer norms after the residual sums, an MLP without a gate, no rotary
// embedding, and heads that are equal parts of the hidden size.
void read_encoder(const HfConfig& source, ModelConfig& config);
// These refuse a config whose value differs from the only one that is computed. absent: the value where the key is
// missing.
void need_text(const HfConfig& source, const char* key, const char* computed);

}  // namespace magister
