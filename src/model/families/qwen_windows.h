// Sliding windows as Qwen2 and Qwen3 configure them: one window, enabled by a flag, in the layers that layer_types
// lists or, without that list, from layer max_window_layers on. Source: transformers Qwen2Config, Qwen3Config.
#pragma once

#include "model/families/family.h"

namespace magister {

void read_qwen_windows(const HfConfig& source, ModelConfig& config);
// GGUF files of these families do not say which layers have the window, so a file with a window is refused.
void refuse_qwen_windows(const GgufConfig& source);

}  // namespace magister
