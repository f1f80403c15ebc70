// Phi-3, Phi-3.5 and Phi-4: Llama's layers, q, k and v as one tensor of the file and gate and up as another. In the mini models of Phi-4
// a part of the head turns; long-context models divide each wave by a number of its own (LongRoPE).
// Source: transformers Phi3Config and Phi3Attention.
#include <string_view>

#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace {

constexpr const char* kComputes[] = {"partial_rotary_factor", "longrope", "rope.dimension_count"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.fused_qkv_proj = config.fused_gate_up_proj = true;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.sliding_window = source.integer_or("sliding_window", 0, 1, INT32_MAX);
  // transformers' class gives the outer key 4096 where it is missing, whatever stands inside.
  MAGISTER_CHECK(config.rope.kind != RopeConfig::Kind::kLongRope || source.has("original_max_position_embeddings") ||
                     config.rope.original_max_position_embeddings == 4096,
                 ExitCode::kData,
                 "{}: original_max_position_embeddings is {} inside rope_scaling alone (transformers takes 4096 then); "
                 "write it beside max_position_embeddings",
                 printable(source.path()), config.rope.original_max_position_embeddings);
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.fused_qkv_proj = config.fused_gate_up_proj = true;
  MAGISTER_CHECK(
      !source.has_tensor("rope_factors_long.weight"), ExitCode::kData,
      "{}: tensor rope_factors_long.weight (LongRoPE is read from safetensors folders alone); use the model's "
      "safetensors folder",
      printable(source.path()));
  // Old files say a window that llama.cpp has not computed either; whether it holds is unknown.
  const std::int64_t window = source.integer_or("attention.sliding_window", 0, 0, INT32_MAX);
  MAGISTER_CHECK(window == 0 || window >= config.max_position_embeddings, ExitCode::kData,
                 "{}: {}.attention.sliding_window is {} (which layers slide is not written in such files); use the "
                 "model's safetensors folder",
                 printable(source.path()), source.architecture(), window);
}

}  // namespace

extern const Family kPhi3Family;
const Family kPhi3Family{"phi3", "phi3", "Phi3ForCausalLM", "phi3", false, read_hf, read_gguf, kComputes};

}  // namespace magister
