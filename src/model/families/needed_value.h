// Refusals of values that a family's layers do not compute.
#pragma once

#include "model/families/hf_config.h"

namespace magister {

// Refuses a config whose flag differs from the only value that is computed. absent: the value where the key is missing.
void need_flag(const HfConfig& source, const char* key, bool computed, bool absent);
// Refuses a config whose heads are not equal parts of the hidden size, in families whose class has no other.
void need_even_heads(const HfConfig& source, const ModelConfig& config);

}  // namespace magister
