// Phi-3, Phi-3.5 and Phi-4: Llama's layers, with q, k and v in one tensor of the file, and gate and up in another. In
// the mini models of Phi-4 only a part of each head is rotated. Long-context models divide each frequency by a number
// of its own (LongRoPE).
// Source: transformers Phi3Config and Phi3Attention.
#include <cmath>
#include <string_view>

#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace phi3 {

constexpr const char* kComputes[] = {"partial_rotary_factor", "longrope", "rope.dimension_count",
                                     "rope.scaling.attn_factor"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.fused_qkv_proj = config.fused_gate_up_proj = true;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.sliding_window = source.integer_or("sliding_window", 0, 1, INT32_MAX);
  // If the outer key is missing, transformers' class sets it to 4096, whatever the object contains.
  MAGISTER_CHECK(config.rope.kind != RopeConfig::Kind::kLongRope || source.has("original_max_position_embeddings") ||
                     config.rope.original_max_position_embeddings == 4096,
                 ExitCode::kData,
                 "{}: original_max_position_embeddings is {} only inside rope_scaling (transformers then takes 4096); "
                 "write it next to max_position_embeddings",
                 printable(source.path()), config.rope.original_max_position_embeddings);
}

// Two tensors hold the divisors for short and for long sequences. Source: llama.cpp's converter of Phi3ForCausalLM.
void read_gguf_longrope(const GgufConfig& source, ModelConfig& config) {
  constexpr const char* kShort = "rope_factors_short.weight";
  constexpr const char* kLong = "rope_factors_long.weight";
  const double attention = source.number_or("rope.scaling.attn_factor", 1.0, 1e-6, 1e6);
  MAGISTER_CHECK(source.has_tensor(kShort) == source.has_tensor(kLong) &&
                     (source.has_tensor(kShort) || (attention == 1.0 && !source.has("rope.scaling.type"))),
                 ExitCode::kData,
                 "{}: tensors {} and {} are not both there, but one of them, {}.rope.scaling.attn_factor or "
                 "rope.scaling.type is (the rotary embedding of long sequences is unknown); fetch the file again",
                 printable(source.path()), kShort, kLong, source.architecture());
  if (!source.has_tensor(kShort)) return;
  RopeConfig& rope = config.rope;
  MAGISTER_CHECK(rope.kind == RopeConfig::Kind::kDefault, ExitCode::kData,
                 "{}: tensor {} together with another scaling of the rotary embedding (it is not defined which of the "
                 "two holds); use another model",
                 printable(source.path()), kLong);
  rope.kind = RopeConfig::Kind::kLongRope;
  const std::int64_t size = (config.rotary_dim > 0 ? config.rotary_dim : config.head_dim) / 2;
  rope.short_factor = source.divisors(kShort, size);
  rope.long_factor = source.divisors(kLong, size);
  rope.original_max_position_embeddings = source.integer("rope.scaling.original_context_length", 2, INT32_MAX);
  // The factor of transformers' LongRoPE; the file has it as f32. Files of Phi-3 models with another scaling ("yarn")
  // have another number here.
  const double factor =
      static_cast<double>(config.max_position_embeddings) / static_cast<double>(rope.original_max_position_embeddings);
  const double original = std::log(static_cast<double>(rope.original_max_position_embeddings));
  const double expected = factor > 1.0 ? std::sqrt(1.0 + std::log(factor) / original) : 1.0;
  rope.attention_factor = source.has("rope.scaling.attn_factor") ? attention : expected;
  MAGISTER_CHECK(
      std::abs(rope.attention_factor - expected) < 1e-6, ExitCode::kData,
      "{}: {}.rope.scaling.attn_factor is {} (LongRoPE from {} to {} positions has {}, and another scaling is "
      "not supported); use the model's safetensors folder",
      printable(source.path()), source.architecture(), attention, rope.original_max_position_embeddings,
      config.max_position_embeddings, expected);
  rope.attention_factor = expected;
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.fused_qkv_proj = config.fused_gate_up_proj = true;
  read_gguf_longrope(source, config);
  // Old files state a window that llama.cpp does not compute either. Whether the model has it is unknown.
  const std::int64_t window = source.integer_or("attention.sliding_window", 0, 0, INT32_MAX);
  MAGISTER_CHECK(
      window == 0 || window >= config.max_position_embeddings, ExitCode::kData,
      "{}: {}.attention.sliding_window is {} (such files do not state which layers have the window); use the "
      "model's safetensors folder",
      printable(source.path()), source.architecture(), window);
}

}  // namespace phi3

extern const Family kPhi3Family;
const Family kPhi3Family{.name = "phi3",
                         .model_type = "phi3",
                         .architecture = "Phi3ForCausalLM",
                         .gguf_architecture = "phi3",
                         .read_hf = phi3::read_hf,
                         .read_gguf = phi3::read_gguf,
                         .computes = phi3::kComputes};

}  // namespace magister
