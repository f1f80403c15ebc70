// Conditions and bytes of pages of codes. Their layout: src/model/gpu/kv_code_kernels.h.
#include "magister/model/kv_codes.h"

#include "magister/core/error.h"
#include "magister/model/kv_pages.h"
#include "magister/model/transformer.h"

namespace magister {

void check_kv_codes(const ModelConfig& config, at::ScalarType dtype) {
  MAGISTER_CHECK(activation_dtype(dtype) == at::kBFloat16, ExitCode::kConfig,
                 "model.kv_cache: fp8 with model.dtype: f32 (keys and values are rounded from bf16); choose bf16, "
                 "remove the key, or give the task a `model` of its own");
  MAGISTER_CHECK(!config.latent, ExitCode::kConfig,
                 "model.kv_cache: fp8 with a model of the family {} (its cache holds one latent a token for all heads, "
                 "which has no codes); remove the key",
                 config.family);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::int64_t key = config.head_dim_of(layer), value = config.value_dim_of(layer);
    MAGISTER_CHECK(
        key % 8 == 0 && value % 8 == 0, ExitCode::kConfig,
        "model.kv_cache: fp8, and layer {} has keys of {} and values of {} numbers (codes are moved eight at "
        "a time); remove the key",
        layer, key, value);
  }
}

std::uint64_t gpu_page_bytes(const ModelConfig& config, const Partition& partition, at::ScalarType dtype, bool codes) {
  const std::uint64_t numbers = kv_page_bytes(config, partition) / sizeof(float);
  if (!codes) return numbers * c10::elementSize(activation_dtype(dtype));
  std::uint64_t vectors = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.has_own_kv(layer) && !config.is_linear(layer))
      vectors += 2 * layer_partition(config, partition, layer).kv_heads.size();
  }
  return numbers + KvPages::kSlots * vectors;
}

}  // namespace magister
