// Rotary frequencies and tables by ATen operations in the order in which transformers applies them, all in float32.
// Limits: angles lose precision as positions grow (about 1e-3 rad at 2^14 in f32); the reference loses the same.
// Sources: transformers modeling_rope_utils; Llama 3.1's frequency bands.
#include "magister/model/rope.h"

#include <ATen/ATen.h>

#include <numbers>

#include "magister/core/error.h"

namespace magister {
namespace {

at::Tensor exponents(std::int64_t head_dim) {
  return at::arange(0, head_dim, 2, at::kLong).to(at::kFloat).div(static_cast<double>(head_dim));
}

at::Tensor default_frequencies(double theta, std::int64_t head_dim) {
  return at::pow(at::Scalar(theta), exponents(head_dim)).reciprocal();
}

// NTK scaling: the base grows with the length, so that the longest wave is stretched and the shortest is not. The
// reference holds the length in a tensor, hence float32 from the first product on.
at::Tensor dynamic_frequencies(const ModelConfig& config, std::int64_t sequence_length) {
  const double factor = config.rope.factor, dim = static_cast<double>(config.head_dim);
  const at::Tensor length = at::scalar_tensor(sequence_length, at::kLong);
  const at::Tensor stretch =
      (length * factor).div(static_cast<double>(config.max_position_embeddings)) - (factor - 1.0);
  const at::Tensor theta = stretch.pow(dim / (dim - 2.0)) * config.rope.theta;
  return at::pow(theta, exponents(config.head_dim)).reciprocal();
}

// Long waves are divided by the factor, short ones kept, those between interpolated smoothly.
at::Tensor llama3_frequencies(const RopeConfig& rope, const at::Tensor& frequencies) {
  const double trained = static_cast<double>(rope.original_max_position_embeddings);
  const double longest = trained / rope.low_freq_factor, shortest = trained / rope.high_freq_factor;
  const at::Tensor wavelength = frequencies.reciprocal() * (2.0 * std::numbers::pi);
  const at::Tensor scaled = at::where(wavelength > longest, frequencies / rope.factor, frequencies);
  const at::Tensor smooth =
      (wavelength.reciprocal() * trained - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor between = (smooth.neg() + 1.0) * scaled / rope.factor + smooth * scaled;
  const at::Tensor is_between = (wavelength < shortest).logical_not() * (wavelength > longest).logical_not();
  return at::where(is_between, between, scaled);
}

}  // namespace

bool rope_needs_own_table(const ModelConfig& config, std::int64_t sequence_length) {
  return config.rope.kind == RopeConfig::Kind::kDynamic && sequence_length > config.max_position_embeddings;
}

at::Tensor rope_inverse_frequencies(const ModelConfig& config, std::int64_t sequence_length) {
  const RopeConfig& rope = config.rope;
  if (rope_needs_own_table(config, sequence_length)) return dynamic_frequencies(config, sequence_length);
  const at::Tensor frequencies = default_frequencies(rope.theta, config.head_dim);
  switch (rope.kind) {
    case RopeConfig::Kind::kDefault:
    case RopeConfig::Kind::kDynamic:
      return frequencies;
    case RopeConfig::Kind::kLinear:
      return frequencies / rope.factor;
    case RopeConfig::Kind::kLlama3:
      return llama3_frequencies(rope, frequencies);
    case RopeConfig::Kind::kExplicit:
      break;
  }
  MAGISTER_CHECK(static_cast<std::int64_t>(rope.frequency_divisors.size()) == config.head_dim / 2, ExitCode::kInternal,
                 "{} rotary divisors for a head size of {} (half as many are needed); report this",
                 rope.frequency_divisors.size(), config.head_dim);
  return frequencies / at::tensor(rope.frequency_divisors, at::kFloat);
}

RopeTable rope_table(const ModelConfig& config, std::int64_t sequence_length, std::int64_t num_positions) {
  const at::Tensor positions_P1 = at::arange(num_positions, at::kLong).to(at::kFloat).unsqueeze(1);
  const at::Tensor angles_PE2 = positions_P1 * rope_inverse_frequencies(config, sequence_length);
  return {angles_PE2.cos(), angles_PE2.sin()};
}

}  // namespace magister
