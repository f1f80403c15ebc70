// Windows of Qwen2 and Qwen3. A layer_types list without any sliding layer disables the window.
// The defaults, 4096 positions and 28 layers, are those of transformers.
#include "model/families/qwen_windows.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

void read_qwen_windows(const HfConfig& source, ModelConfig& config) {
  std::int64_t window = 0;
  if (source.boolean_or("use_sliding_window", false) && !source.is_null("sliding_window")) {
    window = source.integer_or("sliding_window", 4096, 1, INT32_MAX);
  }
  const std::int64_t first = source.integer_or("max_window_layers", 28, 0, INT32_MAX);
  const std::vector<std::string> types = source.texts("layer_types");
  std::vector<bool> sliding;
  for (const std::string& type : types) {
    MAGISTER_CHECK(type == "full_attention" || type == "sliding_attention", ExitCode::kData,
                   "{}: layer_types has \"{}\" (known: full_attention, sliding_attention); use another model",
                   printable(source.path()), printable(type));
    sliding.push_back(type == "sliding_attention");
  }
  if (types.empty()) {
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) sliding.push_back(window > 0 && i >= first);
  }
  const bool any = std::find(sliding.begin(), sliding.end(), true) != sliding.end();
  MAGISTER_CHECK(!any || window > 0, ExitCode::kData,
                 "{}: layer_types has sliding_attention, but use_sliding_window and sliding_window give no window (the "
                 "layers cannot be computed); fetch the config again",
                 printable(source.path()));
  // check_config() refuses a list of the wrong length.
  const bool wrong_length = static_cast<std::int64_t>(sliding.size()) != config.num_hidden_layers;
  if (!any && !wrong_length) return;
  config.sliding_window = window;
  config.layer_is_sliding = std::move(sliding);
}

void refuse_qwen_windows(const GgufConfig& source) {
  const std::int64_t window = source.integer_or("attention.sliding_window", 0, 0, INT32_MAX);
  MAGISTER_CHECK(
      window == 0, ExitCode::kData,
      "{}: {}.attention.sliding_window is {} (such files do not state which layers have the window); use the model's "
      "safetensors folder",
      printable(source.path()), source.architecture(), window);
}

}  // namespace magister
