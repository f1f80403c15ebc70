// Mistral 7B and related models: Llama's layers with a sliding window in all of them or in none. Without the key the
// window is 4096, and null means no window, as in transformers.
// Source: transformers MistralConfig.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace mistral {

void read_hf(const HfConfig& source, ModelConfig& config) {
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  const char* kind = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(
        type == kind, ExitCode::kData,
        "{}: layer_types has \"{}\" with sliding_window {} (Mistral's layers are all alike: {}); use another model",
        printable(source.path()), printable(type), config.sliding_window, kind);
  }
}

}  // namespace mistral

extern const Family kMistralFamily;
const Family kMistralFamily{
    .name = "mistral", .model_type = "mistral", .architecture = "MistralForCausalLM", .read_hf = mistral::read_hf};

}  // namespace magister
