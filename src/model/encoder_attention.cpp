// See encoder_attention.h. Source: transformers' DeBERTa-v2.
#include "model/encoder_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace magister {
namespace {

// The bucket of a distance: the distance itself up to half of the buckets, logarithmic beyond. The f32 operations are
// the same as in training, because at the edge of a bucket another rounding would select another vector.
at::Tensor bucket_of(const at::Tensor& distance, const EncoderConfig& encoder) {
  const std::int64_t middle = encoder.position_buckets / 2;
  if (middle == 0) return distance;
  const at::Tensor size = distance.abs();
  const at::Tensor beyond = size.clamp_min(std::max<std::int64_t>(middle - 1, 1)).to(at::kFloat);
  const double last = static_cast<double>(encoder.max_relative_positions - 1) / static_cast<double>(middle);
  const at::Tensor range = at::log(at::scalar_tensor(last, beyond.options()));
  const at::Tensor by_log =
      at::ceil(at::log(beyond / static_cast<double>(middle)) / range * (middle - 1)) + static_cast<double>(middle);
  return at::where(size <= middle, distance.to(at::kFloat), by_log * distance.sign()).to(at::kLong);
}

}  // namespace

at::Tensor vectors_of(const EncoderConfig& encoder, const at::Tensor& distance) {
  return (bucket_of(distance, encoder) + encoder.relative_span).clamp(0, 2 * encoder.relative_span - 1);
}

at::Tensor vectors_between(const EncoderConfig& encoder, std::int64_t length) {
  if (encoder.relative_span == 0) return {};
  // Row i has the distances from i down to i - length + 1.
  const at::Tensor falling = vectors_of(encoder, at::arange(length - 1, -length, -1, at::kLong));
  return falling.unfold(0, length, 1).flip(0);
}

double attention_scale(const EncoderConfig& encoder, std::int64_t E) {
  const int kinds = 1 + (encoder.content_to_position ? 1 : 0) + (encoder.position_to_content ? 1 : 0);
  return 1.0 / std::sqrt(static_cast<double>(E * kinds));
}

at::Tensor encoder_attention(const EncoderConfig& encoder, const EncoderHeads& heads, const at::Tensor& vectors_LL) {
  const std::int64_t L = heads.q_LE.size(-2), E = heads.q_LE.size(-1);
  at::Tensor scores_LL = at::matmul(heads.q_LE, heads.k_LE.transpose(-2, -1));
  // The scores of x with the vectors of the distances, [., L, L].
  const auto with_distances = [&](const at::Tensor& x_LE, const at::Tensor& distance_NE, const at::Tensor& index_LL) {
    return at::matmul(x_LE, distance_NE.transpose(-2, -1)).gather(-1, index_LL.expand(scores_LL.sizes()));
  };
  // Both terms of query i and key j have the vector of the distance i - j.
  const at::Tensor index_LL = vectors_LL.defined() ? vectors_LL.narrow(0, 0, L).narrow(1, 0, L) : vectors_LL;
  if (encoder.content_to_position) scores_LL += with_distances(heads.q_LE, heads.distance_k_NE, index_LL);
  if (encoder.position_to_content)
    scores_LL += with_distances(heads.k_LE, heads.distance_q_NE, index_LL.t()).transpose(-2, -1);
  scores_LL.mul_(attention_scale(encoder, E));
  return at::matmul(at::softmax(scores_LL, -1), heads.v_LE);
}

}  // namespace magister
