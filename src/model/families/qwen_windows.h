// Sliding windows as Qwen2 and Qwen3 configure them: one window, switched on by a flag, in the layers that
// layer_types names or, without it, from max_window_layers on. Source: transformers Qwen2Config, Qwen3Config.
#pragma once

#include "model/families/family.h"

namespace magister {

void read_qwen_windows(const HfConfig& source, ModelConfig& config);
// GGUF files of these families carry no windows; one that does is refused.
void refuse_qwen_windows(const GgufConfig& source);

}  // namespace magister
