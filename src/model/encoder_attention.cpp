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

EncoderDistances encoder_distances(const EncoderConfig& encoder, std::int64_t length) {
  const std::int64_t span = encoder.relative_span;
  if (span == 0) return {};
  const at::Tensor place_L = at::arange(length, at::kLong);
  const at::Tensor bucket_LL = bucket_of(place_L.unsqueeze(1) - place_L.unsqueeze(0), encoder);
  return {(bucket_LL + span).clamp(0, 2 * span - 1), (span - bucket_LL).clamp(0, 2 * span - 1)};
}

at::Tensor encoder_attention(const EncoderConfig& encoder, const EncoderHeads& heads,
                             const EncoderDistances& distances) {
  const std::int64_t L = heads.q_LE.size(-2), E = heads.q_LE.size(-1);
  at::Tensor scores_LL = at::matmul(heads.q_LE, heads.k_LE.transpose(-2, -1));
  // The scores of x with the vectors of the distances, [., L, L].
  const auto with_distances = [&](const at::Tensor& x_LE, const at::Tensor& distance_NE, const at::Tensor& all_LL) {
    const at::Tensor index_LL = all_LL.narrow(0, 0, L).narrow(1, 0, L).expand(scores_LL.sizes());
    return at::matmul(x_LE, distance_NE.transpose(-2, -1)).gather(-1, index_LL);
  };
  if (encoder.content_to_position)
    scores_LL += with_distances(heads.q_LE, heads.distance_k_NE, distances.content_to_position_LL);
  if (encoder.position_to_content)
    scores_LL += with_distances(heads.k_LE, heads.distance_q_NE, distances.position_to_content_LL).transpose(-2, -1);
  const int kinds = 1 + (encoder.content_to_position ? 1 : 0) + (encoder.position_to_content ? 1 : 0);
  scores_LL.mul_(1.0 / std::sqrt(static_cast<double>(E * kinds)));
  return at::matmul(at::softmax(scores_LL, -1), heads.v_LE);
}

}  // namespace magister
