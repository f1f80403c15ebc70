// What the families of encoders read alike.
#pragma once

#include "model/families/hf_config.h"

namespace magister {

// Fields of a decoder that an encoder has otherwise: biases everywhere, an MLP without a gate, no rotary embedding, heads that are equal
// parts of the stream.
void read_encoder(const HfConfig& source, ModelConfig& config);
// Refuses a config that says another value than the only one which is computed.
void need_flag(const HfConfig& source, const char* key, bool computed, bool absent);
void need_text(const HfConfig& source, const char* key, const char* computed);

}  // namespace magister
