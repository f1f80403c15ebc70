// Rotary frequencies and tables with ATen operations in the order of transformers, all in float32.
// Limits: angles lose precision at high positions (about 1e-3 rad at 2^14 in f32); the reference loses the same.
// Sources: transformers modeling_rope_utils; Llama 3.1's frequency bands.
#include "magister/model/rope.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "magister/core/error.h"

namespace magister {
namespace {

at::Tensor exponents(std::int64_t rotary_dim) {
  return at::arange(0, rotary_dim, 2, at::kLong).to(at::kFloat).div(static_cast<double>(rotary_dim));
}

at::Tensor default_frequencies(double theta, std::int64_t rotary_dim) {
  return at::pow(at::Scalar(theta), exponents(rotary_dim)).reciprocal();
}

// Rotated dimensions of the layers that use this table. Table 0 is that of full attention where there are two.
std::int64_t rotary_dim_of(const ModelConfig& config, std::size_t table) {
  if (table == 1 && config.sliding_rotary_dim > 0) return config.sliding_rotary_dim;
  if (config.rotary_dim > 0) return config.rotary_dim;
  return table == 0 && config.full_head_dim > 0 ? config.full_head_dim : config.head_dim;
}

// NTK scaling: the base grows with the length, so that the longest wave is stretched and the shortest is not. The
// reference holds the length in a tensor, so all its products are in float32.
at::Tensor dynamic_frequencies(const ModelConfig& config, std::int64_t sequence_length) {
  const double factor = config.rope.factor, dim = static_cast<double>(rotary_dim_of(config, 0));
  const at::Tensor length = at::scalar_tensor(sequence_length, at::kLong);
  const at::Tensor stretch =
      (length * factor).div(static_cast<double>(config.max_position_embeddings)) - (factor - 1.0);
  const at::Tensor theta = stretch.pow(dim / (dim - 2.0)) * config.rope.theta;
  return at::pow(theta, exponents(rotary_dim_of(config, 0))).reciprocal();
}

// Frequencies of long waves are divided by the factor, those of short waves are kept, and those in between are
// interpolated.
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

// Frequencies that rotate more than beta_fast times within the original positions are kept; those below beta_slow
// rotations are divided by the factor; in between they are interpolated.
at::Tensor yarn_frequencies(const RopeConfig& rope, const at::Tensor& frequencies, std::int64_t rotary_dim) {
  const double dim = static_cast<double>(rotary_dim);
  const auto wave_of = [&](double turns) {
    const double positions = static_cast<double>(rope.original_max_position_embeddings);
    return dim * std::log(positions / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
  };
  const double first = wave_of(rope.beta_fast), last = wave_of(rope.beta_slow);
  const double low = std::max(rope.truncates ? std::floor(first) : first, 0.0);
  double high = std::min(rope.truncates ? std::ceil(last) : last, dim - 1.0);
  if (low == high) high += 0.001;  // as in the reference, avoids a division by zero
  const at::Tensor kept = 1.0 - ((at::arange(rotary_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor divided = (frequencies.reciprocal() * rope.factor).reciprocal();
  return divided * (1.0 - kept) + frequencies * kept;
}

// Each frequency has a divisor, one for short sequences and another for long ones.
at::Tensor longrope_frequencies(const ModelConfig& config, bool is_long) {
  const at::Tensor divisors = at::tensor(is_long ? config.rope.long_factor : config.rope.short_factor, at::kFloat);
  return (divisors * at::pow(at::Scalar(config.rope.theta), exponents(rotary_dim_of(config, 0)))).reciprocal();
}

// The first frequencies are those of a whole head, and the others are 0: these dimensions do not turn.
at::Tensor proportional_frequencies(const RopeConfig& rope, const at::Tensor& frequencies, std::int64_t rotary_dim) {
  const auto turning = static_cast<std::int64_t>(std::floor(rope.turning_part * static_cast<double>(rotary_dim) / 2.0));
  at::Tensor out = frequencies.clone();
  out.narrow(0, turning, out.size(0) - turning).zero_();
  return out / rope.factor;
}

}  // namespace

std::int64_t positions_of_first_rope(const ModelConfig& config) {
  if (config.rope.kind == RopeConfig::Kind::kDynamic) return config.max_position_embeddings;
  if (config.rope.kind == RopeConfig::Kind::kLongRope) return config.rope.original_max_position_embeddings;
  return std::numeric_limits<std::int64_t>::max();
}

std::int64_t positions_of_shared_rope(const ModelConfig& config) {
  return config.rope.fixed_length > 0 ? std::numeric_limits<std::int64_t>::max() : positions_of_first_rope(config);
}

bool rope_needs_own_table(const ModelConfig& config, std::int64_t sequence_length) {
  return sequence_length > positions_of_shared_rope(config);
}

at::Tensor rope_inverse_frequencies(const ModelConfig& config, std::int64_t sequence_length, std::size_t table) {
  const RopeConfig& rope = rope_of(config, table);
  const std::int64_t length = rope.fixed_length > 0 ? rope.fixed_length : sequence_length;
  const bool is_long = table == 0 && length > positions_of_first_rope(config);
  if (rope.kind == RopeConfig::Kind::kLongRope) return longrope_frequencies(config, is_long);
  if (is_long) return dynamic_frequencies(config, length);
  const std::int64_t rotary_dim = rotary_dim_of(config, table);
  at::Tensor frequencies = default_frequencies(rope.theta, rotary_dim);
  switch (rope.kind) {
    case RopeConfig::Kind::kDefault:
    case RopeConfig::Kind::kDynamic:
      return frequencies;
    case RopeConfig::Kind::kLinear:
      return frequencies / rope.factor;
    case RopeConfig::Kind::kLlama3:
      return llama3_frequencies(rope, frequencies);
    case RopeConfig::Kind::kYarn:
      return yarn_frequencies(rope, frequencies, rotary_dim);
    case RopeConfig::Kind::kProportional:
      return proportional_frequencies(rope, frequencies, rotary_dim);
    case RopeConfig::Kind::kLongRope:
    case RopeConfig::Kind::kExplicit:
      break;
  }
  MAGISTER_CHECK(static_cast<std::int64_t>(rope.frequency_divisors.size()) == rotary_dim / 2, ExitCode::kInternal,
                 "{} rotary divisors for {} numbers of a head (half as many are needed); report this",
                 rope.frequency_divisors.size(), rotary_dim);
  return frequencies / at::tensor(rope.frequency_divisors, at::kFloat);
}

RopeTable rope_rows(const ModelConfig& config, std::int64_t sequence_length, const at::Tensor& positions_P,
                    std::size_t table) {
  at::Tensor frequencies = rope_inverse_frequencies(config, sequence_length, table);
  if (rope_of(config, table).turns_back) frequencies = frequencies.neg();
  const at::Tensor angles_PE2 = positions_P.to(at::kFloat).unsqueeze(1) * frequencies;
  const double factor = rope_of(config, table).attention_factor;
  if (factor == 1.0) return {angles_PE2.cos(), angles_PE2.sin()};
  return {angles_PE2.cos() * factor, angles_PE2.sin() * factor};
}

RopeTable rope_table(const ModelConfig& config, std::int64_t sequence_length, std::int64_t num_positions,
                     std::size_t table) {
  return rope_rows(config, sequence_length, at::arange(num_positions, at::kLong), table);
}

std::uint64_t rope_row_bytes(const ModelConfig& config) {
  std::int64_t numbers = 0;
  for (std::size_t table = 0; table < num_rope_tables(config); ++table) numbers += rotary_dim_of(config, table);
  return static_cast<std::uint64_t>(numbers) * sizeof(float);
}

}  // namespace magister
